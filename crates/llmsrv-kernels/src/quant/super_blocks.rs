//! Formats with blocks of 256 elements: a scale for all and small scales for sub-blocks of 16 or 32.

use super::{blocks::IQ4_STEPS, half};

/// Small scales and minimums (4 bits each) of 16 sub-blocks; 2-bit elements; scale; scale of minimums.
pub(super) fn q2_k(bytes: &[u8], out: &mut [f32]) {
    each::<84>(bytes, out, |block, out| {
        let (scales, packed) = (&block[..16], &block[16..80]);
        let (d, dmin) = (half([block[80], block[81]]), half([block[82], block[83]]));
        for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let (scale, min) = (
                d * f32::from(scales[sub_block] & 15),
                dmin * f32::from(scales[sub_block] >> 4),
            );
            let packed = quarter(packed, sub_block);
            let shift = sub_block % 8 / 2 * 2;
            for (value, byte) in out.iter_mut().zip(packed) {
                *value = scale * f32::from(byte >> shift & 3) - min;
            }
        }
    });
}

/// The third bits of all elements, inverted; 2 low bits; 6-bit scales of 16 sub-blocks; scale.
pub(super) fn q3_k(bytes: &[u8], out: &mut [f32]) {
    each::<110>(bytes, out, |block, out| {
        let (high, packed, scales) = (&block[..32], &block[32..96], &block[96..108]);
        let d = half([block[108], block[109]]);
        for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let low = if sub_block < 8 {
                scales[sub_block] & 15
            } else {
                scales[sub_block - 8] >> 4
            };
            let top = scales[8 + sub_block % 4] >> (sub_block / 4 * 2) & 3;
            let scale = d * (f32::from(low | top << 4) - 32.0);
            let shift = sub_block % 8 / 2 * 2;
            let bit = 1_u8 << (sub_block / 2);
            let high = &high[sub_block % 2 * 16..][..16];
            for ((value, byte), high) in out.iter_mut().zip(quarter(packed, sub_block)).zip(high) {
                let missing = if high & bit == 0 { 4.0 } else { 0.0 };
                *value = scale * (f32::from(byte >> shift & 3) - missing);
            }
        }
    });
}

/// Scale; scale of minimums; 6-bit scales and minimums of 8 sub-blocks; nibbles.
pub(super) fn q4_k(bytes: &[u8], out: &mut [f32]) {
    each::<144>(bytes, out, |block, out| {
        let (d, dmin) = (half([block[0], block[1]]), half([block[2], block[3]]));
        let scales = &block[4..16];
        for ((pair, out), packed) in out
            .as_chunks_mut::<64>()
            .0
            .iter_mut()
            .enumerate()
            .zip(block[16..].as_chunks::<32>().0)
        {
            let (low, high) = out.split_at_mut(32);
            let (scale, min) = scale_and_min(scales, 2 * pair);
            let (scale, min) = (d * scale, dmin * min);
            for (value, byte) in low.iter_mut().zip(packed) {
                *value = scale * f32::from(byte & 15) - min;
            }
            let (scale, min) = scale_and_min(scales, 2 * pair + 1);
            let (scale, min) = (d * scale, dmin * min);
            for (value, byte) in high.iter_mut().zip(packed) {
                *value = scale * f32::from(byte >> 4) - min;
            }
        }
    });
}

/// As Q4_K, with the fifth bits of all elements between scales and nibbles.
pub(super) fn q5_k(bytes: &[u8], out: &mut [f32]) {
    each::<176>(bytes, out, |block, out| {
        let (d, dmin) = (half([block[0], block[1]]), half([block[2], block[3]]));
        let (scales, fifths) = (&block[4..16], &block[16..48]);
        for ((pair, out), packed) in out
            .as_chunks_mut::<64>()
            .0
            .iter_mut()
            .enumerate()
            .zip(block[48..].as_chunks::<32>().0)
        {
            let (low, high) = out.split_at_mut(32);
            let (scale, min) = scale_and_min(scales, 2 * pair);
            let (scale, min) = (d * scale, dmin * min);
            for ((value, byte), fifth) in low.iter_mut().zip(packed).zip(fifths) {
                *value = scale * f32::from(byte & 15 | (fifth >> (2 * pair) & 1) << 4) - min;
            }
            let (scale, min) = scale_and_min(scales, 2 * pair + 1);
            let (scale, min) = (d * scale, dmin * min);
            for ((value, byte), fifth) in high.iter_mut().zip(packed).zip(fifths) {
                *value = scale * f32::from(byte >> 4 | (fifth >> (2 * pair + 1) & 1) << 4) - min;
            }
        }
    });
}

/// 4 low bits; 2 high bits; 8-bit scales of 16 sub-blocks; scale.
pub(super) fn q6_k(bytes: &[u8], out: &mut [f32]) {
    each::<210>(bytes, out, |block, out| {
        let d = half([block[208], block[209]]);
        for (part, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let (low, high) = (&block[part * 64..][..64], &block[128 + part * 32..][..32]);
            let scales = &block[192 + part * 8..][..8];
            for (quarter, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let low = &low[quarter % 2 * 32..][..32];
                let nibble = quarter / 2 * 4;
                for (l, ((value, low), high)) in out.iter_mut().zip(low).zip(high).enumerate() {
                    let q = low >> nibble & 15 | (high >> (2 * quarter) & 3) << 4;
                    let scale = d * f32::from(scales[2 * quarter + l / 16].cast_signed());
                    *value = scale * (f32::from(q) - 32.0);
                }
            }
        }
    });
}

/// Scale; 6-bit scales of 8 sub-blocks, split into 2 high and 4 low bits; indices of steps.
pub(super) fn iq4_xs(bytes: &[u8], out: &mut [f32]) {
    each::<136>(bytes, out, |block, out| {
        let d = half([block[0], block[1]]);
        let tops = u16::from_le_bytes([block[2], block[3]]);
        for ((sub_block, out), packed) in out
            .as_chunks_mut::<32>()
            .0
            .iter_mut()
            .enumerate()
            .zip(block[8..].as_chunks::<16>().0)
        {
            let low = block[4 + sub_block / 2] >> (sub_block % 2 * 4) & 15;
            let top = (tops >> (2 * sub_block) & 3) as u8;
            let scale = d * (f32::from(low | top << 4) - 32.0);
            let (first, second) = out.split_at_mut(16);
            for ((byte, first), second) in packed.iter().zip(first).zip(second) {
                *first = scale * IQ4_STEPS[usize::from(byte & 15)];
                *second = scale * IQ4_STEPS[usize::from(byte >> 4)];
            }
        }
    });
}

/// 240 elements of three values in 48 bytes, five to a byte, the last 16 in 4 bytes, four to a byte; scale.
pub(super) fn tq1_0(bytes: &[u8], out: &mut [f32]) {
    each::<54>(bytes, out, |block, out| {
        let d = half([block[52], block[53]]);
        for (value, step) in out.iter_mut().zip(trits(block)) {
            *value = d * (f32::from(step) - 1.0);
        }
    });
}

/// Elements of two bits; scale.
pub(super) fn tq2_0(bytes: &[u8], out: &mut [f32]) {
    each::<66>(bytes, out, |block, out| {
        let d = half([block[64], block[65]]);
        for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let shift = sub_block % 8 / 2 * 2;
            for (value, byte) in out.iter_mut().zip(quarter(block, sub_block)) {
                *value = d * (f32::from(byte >> shift & 3) - 1.0);
            }
        }
    });
}

/// Scale of four bytes; signed bytes; their sums, which only products with other bytes would need.
pub(super) fn q8_k(bytes: &[u8], out: &mut [f32]) {
    each::<292>(bytes, out, |block, out| {
        let d = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        for (value, q) in out.iter_mut().zip(&block[4..260]) {
            *value = d * f32::from(q.cast_signed());
        }
    });
}

/// Reads the elements of a block of TQ1_0: 0, 1 or 2.
///
/// A byte `b` stands for the fraction `b / 256`, whose digits in base 3 are the elements. They lie a
/// whole group of bytes apart:
///
/// ```text
/// bytes  0..32     first digits: elements 0..32, second 32..64, ... fifth 128..160
/// bytes 32..48     first digits: 160..176, ... fifth 224..240
/// bytes 48..52     first digits: 240..244, ... fourth 252..256
/// ```
pub(crate) fn trits(block: &[u8]) -> [u8; 256] {
    let groups = [(0..32, 5), (32..48, 5), (48..52, 4)];
    let mut out = [0; 256];
    let mut rest = &mut out[..];
    for (bytes, n_digits) in groups {
        let bytes = &block[bytes];
        for power in [1_u8, 3, 9, 27, 81].into_iter().take(n_digits) {
            let (digits, behind) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            for (digit, byte) in digits.iter_mut().zip(bytes) {
                *digit = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8;
            }
            rest = behind;
        }
    }
    out
}

fn each<const BYTES: usize>(
    bytes: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; BYTES], &mut [f32; 256]),
) {
    for (block, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        unpack(block, out);
    }
}

/// The 16 bytes that hold the two bits of the elements of a sub-block.
fn quarter(packed: &[u8], sub_block: usize) -> &[u8] {
    &packed[sub_block / 8 * 32 + sub_block % 2 * 16..][..16]
}

/// Scale and minimum of sub-block `j`: 6 bits each, of the last four in two places.
fn scale_and_min(scales: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        (
            scales[j + 4] & 15 | scales[j - 4] >> 6 << 4,
            scales[j + 4] >> 4 | scales[j] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(min))
}
