//! Plain numbers, and formats with blocks of 32 elements or a few times as many.
//!
//! In the formats of 32 elements byte `j` of a block holds element `j` in its low and element `j + 16` in its
//! high half.

use half::slice::{HalfBitsSliceExt as _, HalfFloatSliceExt as _};

use super::half;

pub(super) fn f32(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

pub(super) fn f16(bytes: &[u8], out: &mut [f32]) {
    // Many at once where the bytes are aligned, as they are in KV memory and in model files.
    if let Ok(bits) = bytemuck::try_cast_slice::<u8, u16>(bytes)
        && cfg!(target_endian = "little")
    {
        return bits
            .reinterpret_cast::<half::f16>()
            .convert_to_f32_slice(out);
    }
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = half(*bytes);
    }
}

pub(super) fn bf16(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

/// Scale; 32 signed bytes.
pub(super) fn q8_0(bytes: &[u8], out: &mut [f32]) {
    each::<34, 32>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        for (value, q) in out.iter_mut().zip(&block[2..]) {
            *value = f32::from(q.cast_signed()) * d;
        }
    });
}

/// Scale; 32 nibbles, 8 = zero.
pub(super) fn q4_0(bytes: &[u8], out: &mut [f32]) {
    each::<18, 32>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        nibbles(&block[2..], out, |q| (f32::from(q) - 8.0) * d);
    });
}

/// Scale, minimum; 32 nibbles.
pub(super) fn q4_1(bytes: &[u8], out: &mut [f32]) {
    each::<20, 32>(bytes, out, |block, out| {
        let (d, min) = (half([block[0], block[1]]), half([block[2], block[3]]));
        nibbles(&block[4..], out, |q| f32::from(q) * d + min);
    });
}

/// Scale; the fifth bits of all elements; 32 nibbles, 16 = zero.
pub(super) fn q5_0(bytes: &[u8], out: &mut [f32]) {
    each::<22, 32>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
        nibbles(&block[6..], out, f32::from);
        for (j, value) in out.iter_mut().enumerate() {
            *value = (*value + fifth(high, j) - 16.0) * d;
        }
    });
}

/// Scale, minimum; the fifth bits of all elements; 32 nibbles.
pub(super) fn q5_1(bytes: &[u8], out: &mut [f32]) {
    each::<24, 32>(bytes, out, |block, out| {
        let (d, min) = (half([block[0], block[1]]), half([block[2], block[3]]));
        let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
        nibbles(&block[8..], out, f32::from);
        for (j, value) in out.iter_mut().enumerate() {
            *value = (*value + fifth(high, j)) * d + min;
        }
    });
}

/// Scale; 32 indices into a table of unequal steps.
pub(super) fn iq4_nl(bytes: &[u8], out: &mut [f32]) {
    each::<18, 32>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        nibbles(&block[2..], out, |q| d * IQ4_STEPS[usize::from(q)]);
    });
}

/// Exponent of a power of two; 32 numbers of four bits with a floating point (OCP MX specification).
pub(super) fn mxfp4(bytes: &[u8], out: &mut [f32]) {
    each::<17, 32>(bytes, out, |block, out| {
        // Half the power, since the table holds doubled numbers.
        let d = match block[0] {
            exponent @ 0..2 => f32::from_bits(0x0020_0000 << exponent),
            exponent => f32::from_bits(u32::from(exponent - 1) << 23),
        };
        nibbles(&block[1..], out, |q| d * MXFP4_DOUBLED[usize::from(q)]);
    });
}

/// Four scales of 8 bits, each for 16 elements; numbers as in MXFP4, eight in the low and eight in the
/// high halves of 8 bytes.
pub(super) fn nvfp4(bytes: &[u8], out: &mut [f32]) {
    each::<36, 64>(bytes, out, |block, out| {
        let (scales, packed) = block.split_at(4);
        let parts = packed.as_chunks::<8>().0.iter().zip(scales);
        for (out, (packed, scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(parts) {
            // Half of it, since the table holds doubled numbers.
            let d = 0.5 * e4m3(*scale);
            let (low, high) = out.split_at_mut(8);
            for ((byte, low), high) in packed.iter().zip(low).zip(high) {
                *low = d * MXFP4_DOUBLED[usize::from(byte & 15)];
                *high = d * MXFP4_DOUBLED[usize::from(byte >> 4)];
            }
        }
    });
}

/// Reads a number of three bits of mantissa and four of exponent, of which the sign is not used; what
/// would not be a number is 0.
fn e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (bits >> 3 & 15, f32::from(bits & 7));
    match (bits, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 120) << 23),
    }
}

/// Scale; for each of 128 elements whether it is positive.
pub(super) fn q1_0(bytes: &[u8], out: &mut [f32]) {
    each::<18, 128>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        for (j, value) in out.iter_mut().enumerate() {
            let is_positive = block[2 + j / 8] >> (j % 8) & 1 == 1;
            *value = if is_positive { d } else { -d };
        }
    });
}

/// Scale; 64 elements of two bits side by side, 1 = zero.
pub(super) fn q2_0(bytes: &[u8], out: &mut [f32]) {
    each::<18, 64>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        for (j, value) in out.iter_mut().enumerate() {
            let q = block[2 + j / 4] >> (2 * (j % 4)) & 3;
            *value = d * (f32::from(q) - 1.0);
        }
    });
}

fn each<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        unpack(block, out);
    }
}

fn nibbles(packed: &[u8], out: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(16);
    for ((byte, low), high) in packed.iter().zip(low).zip(high) {
        *low = value(byte & 15);
        *high = value(byte >> 4);
    }
}

fn fifth(high: u32, j: usize) -> f32 {
    f32::from((high >> j & 1) as u8 * 16)
}

/// Steps of the IQ4 formats.
pub(crate) const IQ4_STEPS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// The numbers of E2M1, doubled so that they are whole.
pub(crate) const MXFP4_DOUBLED: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0,
];
