//! Packing, for the formats that need no search for good scales. Blocks whose errors are weighed are searched in
//! [`super::encode_k`].

use half::{bf16, f16};

use super::encode_k;

pub(super) fn f32(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = value.to_le_bytes();
    }
}

pub(super) fn f16(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = f16::from_f32(*value).to_le_bytes();
    }
}

pub(super) fn bf16(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = bf16::from_f32(*value).to_le_bytes();
    }
}

pub(super) fn q8_0(values: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    each::<34>(values, out, |values, block| {
        let largest = values
            .iter()
            .fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let d = largest / 127.0;
        let inverse = inverse(d);
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        for (byte, value) in block[2..].iter_mut().zip(values) {
            *byte = ((value * inverse).round() as i8).cast_unsigned();
        }
    });
}

pub(super) fn q4_0(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    if let Some(weights) = weights {
        return encode_k::q4_0(values, weights, out);
    }
    each::<18>(values, out, |values, block| {
        let d = farthest(values) / -8.0;
        let inverse = inverse(d);
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        let q = values.map(|value| ((value * inverse + 8.5) as u8).min(15));
        nibbles(&q, &mut block[2..]);
    });
}

pub(super) fn q4_1(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    if let Some(weights) = weights {
        return encode_k::q4_1(values, weights, out);
    }
    each::<20>(values, out, |values, block| {
        let (d, min) = range(values, 15.0);
        let inverse = inverse(d);
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(min).to_le_bytes());
        let q = values.map(|value| (((value - min) * inverse + 0.5) as u8).min(15));
        nibbles(&q, &mut block[4..]);
    });
}

pub(super) fn q5_0(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    if let Some(weights) = weights {
        return encode_k::q5_0(values, weights, out);
    }
    each::<22>(values, out, |values, block| {
        let d = farthest(values) / -16.0;
        let inverse = inverse(d);
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        let q = values.map(|value| ((value * inverse + 16.5) as u8).min(31));
        block[2..6].copy_from_slice(&fifths(&q).to_le_bytes());
        nibbles(&q, &mut block[6..]);
    });
}

pub(super) fn q5_1(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    if let Some(weights) = weights {
        return encode_k::q5_1(values, weights, out);
    }
    each::<24>(values, out, |values, block| {
        let (d, min) = range(values, 31.0);
        let inverse = inverse(d);
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(min).to_le_bytes());
        let q = values.map(|value| (((value - min) * inverse + 0.5) as u8).min(31));
        block[4..8].copy_from_slice(&fifths(&q).to_le_bytes());
        nibbles(&q, &mut block[8..]);
    });
}

fn each<const BYTES: usize>(
    values: &[f32],
    out: &mut [u8],
    pack: impl Fn(&[f32; 32], &mut [u8; BYTES]),
) {
    for (values, block) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        pack(values, block);
    }
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The value farthest from zero, with its sign.
fn farthest(values: &[f32]) -> f32 {
    values.iter().fold(0.0_f32, |farthest, value| {
        if value.abs() > farthest.abs() {
            *value
        } else {
            farthest
        }
    })
}

/// Step and minimum for `n_steps` steps.
fn range(values: &[f32], n_steps: f32) -> (f32, f32) {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    ((max - min) / n_steps, min)
}

pub(super) fn nibbles(q: &[u8; 32], out: &mut [u8]) {
    for (byte, (low, high)) in out.iter_mut().zip(q[..16].iter().zip(&q[16..])) {
        *byte = low & 15 | high << 4;
    }
}

pub(super) fn fifths(q: &[u8; 32]) -> u32 {
    q.iter()
        .enumerate()
        .fold(0, |bits, (j, q)| bits | u32::from(q >> 4 & 1) << j)
}
