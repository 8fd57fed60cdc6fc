//! From the blocks of a file to those of a row panel: see [`super::formats`] for where everything goes.

use llmsrv_gguf::TensorType;

use super::formats::{
    BF16, F16, F32, Format, IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS, IQ4NL, IQ4XS, Layout,
    MXFP4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, TQ,
};
use crate::quant::{Codes, GridFormat, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, trits};

/// Writes the blocks of a row into a row panel, as its row of that number.
pub(super) type PackRow = Box<dyn Fn(&[u8], &mut [u8], usize) + Sync>;

/// Returns the function that packs a type; none for a type that is not packed.
pub(super) fn pack_row(ty: TensorType) -> Option<PackRow> {
    Some(match ty {
        TensorType::Q4_0 => blocks::<Q4_0, 18>(nibbles),
        TensorType::IQ4_NL => blocks::<IQ4NL, 18>(nibbles),
        TensorType::MXFP4 => blocks::<MXFP4, 17>(|block, out| {
            out.scales(&mxfp4_scale(block[0]).to_le_bytes());
            out.dwords(0, &block[1..]);
        }),
        TensorType::Q4_1 => blocks::<Q4_1, 20>(|block, out| {
            out.scales(&block[..4]);
            out.dwords(0, &block[4..]);
        }),
        TensorType::Q5_0 => blocks::<Q5_0, 22>(|block, out| {
            out.scales(&block[..2]);
            out.dwords(0, &block[6..]);
            out.dword(4, spread(&block[2..6]));
        }),
        TensorType::Q5_1 => blocks::<Q5_1, 24>(|block, out| {
            out.scales(&block[..4]);
            out.dwords(0, &block[8..]);
            out.dword(4, spread(&block[4..8]));
        }),
        TensorType::Q8_0 => blocks::<Q8_0, 34>(|block, out| {
            out.scales(&block[..2]);
            for (idx, quants) in block[2..].as_chunks::<4>().0.iter().enumerate() {
                let quants = u32::from_le_bytes(*quants) ^ 0x8080_8080;
                out.dword(idx, quants.to_le_bytes());
            }
        }),
        TensorType::Q2_K => blocks::<Q2K, 84>(|block, out| {
            out.scales(&block[80..84]);
            out.dwords(0, &block[..16]);
            for (idx, quants) in two_bits(&block[16..80]).enumerate() {
                out.words(4 + 2 * idx, &fours(quants));
            }
        }),
        TensorType::Q3_K => blocks::<Q3K, 110>(|block, out| {
            out.scales(&block[108..110]);
            out.dwords(0, &block[96..104]);
            let mut tops = [0; 4];
            tops.copy_from_slice(&block[104..108]);
            out.dword(2, tops.map(|tops| tops ^ 0xaa));
            for (idx, mut quants) in two_bits(&block[32..96]).enumerate() {
                for (quants, bits) in quants.iter_mut().zip(block.as_chunks::<4>().0) {
                    *quants |= (u32::from_le_bytes(*bits) >> idx & 0x0101_0101) << 2;
                }
                out.words(3 + 3 * idx, &thirds(quants));
            }
        }),
        TensorType::Q4_K => blocks::<Q4K, 144>(|block, out| {
            out.scales(&block[..4]);
            out.dwords(0, &block[4..16]);
            for (pair, quants) in block[16..].as_chunks::<32>().0.iter().enumerate() {
                let [low, high] = split_nibbles(quants);
                out.dwords(3 + 8 * pair, &low);
                out.dwords(7 + 8 * pair, &high);
            }
        }),
        TensorType::Q5_K => blocks::<Q5K, 176>(|block, out| {
            out.scales(&block[..4]);
            out.dwords(0, &block[4..16]);
            let fifth = qh(&block[16..48]);
            for (pair, quants) in block[48..].as_chunks::<32>().0.iter().enumerate() {
                let [low, high] = split_nibbles(quants);
                out.dwords(3 + 10 * pair, &low);
                out.dword(7 + 10 * pair, fifth[2 * pair]);
                out.dwords(8 + 10 * pair, &high);
                out.dword(12 + 10 * pair, fifth[2 * pair + 1]);
            }
        }),
        TensorType::Q6_K => blocks::<Q6K, 210>(|block, out| {
            out.scales(&block[208..210]);
            out.dwords(0, &block[192..208]);
            for (part, low) in block[..128].as_chunks::<64>().0.iter().enumerate() {
                let halves = low.as_chunks::<32>().0;
                let (first, second) = (split_nibbles(&halves[0]), split_nibbles(&halves[1]));
                let quarters = [first[0], second[0], first[1], second[1]];
                for (quarter, nibbles) in quarters.iter().enumerate() {
                    out.dwords(4 + 6 * (4 * part + quarter), nibbles);
                }
            }
            for (idx, tops) in two_bits(&block[128..192]).enumerate() {
                out.words(8 + 6 * idx, &fours(tops));
            }
        }),
        TensorType::IQ4_XS => blocks::<IQ4XS, 136>(|block, out| {
            let (mut tops, mut lows) = (0, 0);
            for sub_block in 0..8 {
                let top = (block[2 + sub_block / 4] >> (2 * (sub_block % 4)) & 3) ^ 2;
                let low = block[4 + sub_block / 2] >> (4 * (sub_block % 2)) & 15;
                tops |= u16::from(top) << (8 * (sub_block % 2) + 6 - 2 * (sub_block / 2));
                lows |= u32::from(low) << (8 * (sub_block % 4) + 4 * (sub_block / 4));
            }
            let [first, second] = tops.to_le_bytes();
            out.scales(&[block[0], block[1], first, second]);
            out.dword(0, lows.to_le_bytes());
            out.dwords(1, &block[8..]);
        }),
        TensorType::IQ1_S => blocks::<IQ1S, 50>(|block, out| {
            let mut codes = Iq1S::read(block);
            let shifts = codes.elements.chunks(Iq1S::STRETCH);
            for (n, elements) in codes.stretches.iter_mut().zip(shifts) {
                *n |= (elements[0] >> 2) << 3;
            }
            out.scales(&codes.scale);
            out.dword(0, stretches(&codes)[0]);
            for (idx, elements) in sub_blocks(&codes.elements).enumerate() {
                let elements = elements.map(|four| four & 0x0303_0303);
                out.words(1 + 2 * idx, &fours(elements));
            }
        }),
        TensorType::IQ1_M => blocks::<IQ1M, 56>(|block, out| leveled::<Iq1M>(block, out)),
        TensorType::IQ2_XXS => blocks::<IQ2XXS, 66>(|block, out| leveled::<Iq2Xxs>(block, out)),
        TensorType::IQ2_XS => blocks::<IQ2XS, 74>(|block, out| leveled::<Iq2Xs>(block, out)),
        TensorType::IQ2_S => blocks::<IQ2S, 82>(|block, out| leveled::<Iq2S>(block, out)),
        TensorType::IQ3_XXS => blocks::<IQ3XXS, 98>(|block, out| leveled::<Iq3Xxs>(block, out)),
        TensorType::IQ3_S => blocks::<IQ3S, 110>(|block, out| leveled::<Iq3S>(block, out)),
        TensorType::TQ1_0 => blocks::<TQ, 54>(|block, out| {
            out.scales(&block[52..54]);
            for (idx, quants) in sub_blocks(&trits(block)).enumerate() {
                out.words(2 * idx, &fours(quants));
            }
        }),
        TensorType::TQ2_0 => blocks::<TQ, 66>(|block, out| {
            out.scales(&block[64..66]);
            for (idx, quants) in two_bits(&block[..64]).enumerate() {
                out.words(2 * idx, &fours(quants));
            }
        }),
        TensorType::F32 => numbers::<F32, 4>(|block, out| out.dwords(0, block)),
        TensorType::F16 => numbers::<F16, 2>(|block, out| {
            let row = out.row;
            let body = out.body.as_flattened_mut().as_flattened_mut();
            for (number, out) in block
                .as_chunks::<2>()
                .0
                .iter()
                .zip(body.as_chunks_mut::<64>().0)
            {
                out[2 * row..2 * row + 2].copy_from_slice(number);
            }
        }),
        TensorType::BF16 => numbers::<BF16, 2>(|block, out| {
            let (pairs, last) = block.as_chunks::<4>();
            out.dwords(0, block);
            if let [low, high] = last {
                out.dword(pairs.len(), [*low, *high, 0, 0]);
            }
        }),
        _ => return None,
    })
}

/// Packs a type whose elements are codes for levels.
fn leveled<T: GridFormat>(block: &[u8], out: &mut Lane<'_, 16>) {
    let codes = T::read(block);
    out.scales(&codes.scale);
    let n_vectors = 32 / T::STRETCH;
    for (idx, stretches) in stretches(&codes).into_iter().take(n_vectors).enumerate() {
        out.dword(idx, stretches);
    }
    for (idx, elements) in sub_blocks(&codes.elements).enumerate() {
        let first = n_vectors + T::CODE_BITS * idx;
        if T::CODE_BITS == 3 {
            out.words(first, &thirds(elements));
            continue;
        }
        let [low @ .., a, b, c, d] = elements;
        for (idx, (low, high)) in low.into_iter().zip([a, b, c, d]).enumerate() {
            out.words(first + idx, &[low | high << 4]);
        }
    }
}

/// Puts the numbers of eight stretches into four bytes: byte `i` has those of `i` and of `4 + i`.
fn stretches(codes: &Codes) -> [[u8; 4]; 2] {
    let [low, high, third, last] = [0, 4, 8, 12].map(|first| {
        let mut four = [0; 4];
        four.copy_from_slice(&codes.stretches[first..first + 4]);
        u32::from_le_bytes(four)
    });
    [low | high << 4, third | last << 4].map(u32::to_le_bytes)
}

/// Returns the elements of each 32 as eight times four.
fn sub_blocks(elements: &[u8; 256]) -> impl Iterator<Item = [u32; 8]> {
    let parts = elements.as_chunks::<32>().0.iter();
    parts.map(|part| {
        let mut fours = [0; 8];
        for (four, bytes) in fours.iter_mut().zip(part.as_chunks().0) {
            *four = u32::from_le_bytes(*bytes);
        }
        fours
    })
}

/// Where the bytes of one of `ROWS` rows go in a packed block.
struct Lane<'a, const ROWS: usize> {
    /// Numbers of half precision, one of each row.
    head: &'a mut [[[u8; 2]; ROWS]],
    /// Vectors of four bytes of each row.
    body: &'a mut [[[u8; 4]; ROWS]],
    row: usize,
}

/// Packs a row of blocks of so many bytes. Sizes are known to the compiler, which a row of small blocks needs: each of
/// its bytes is written with a handful of instructions.
fn blocks<F: Format, const BYTES: usize>(
    pack: impl Fn(&[u8; BYTES], &mut Lane<'_, 16>) + Sync + 'static,
) -> PackRow {
    Box::new(move |row_bytes, row_panel, row| {
        for (idx, block) in row_bytes.as_chunks::<BYTES>().0.iter().enumerate() {
            pack(block, &mut lane(F::LAYOUT, row_panel, idx, row));
        }
    })
}

/// Packs a row of numbers of so many bytes, 32 to a block; the last block may be shorter.
fn numbers<F: Format, const BYTES: usize>(
    pack: impl Fn(&[u8], &mut Lane<'_, 32>) + Sync + 'static,
) -> PackRow {
    Box::new(move |row_bytes, row_panel, row| {
        for (idx, block) in row_bytes.chunks(32 * BYTES).enumerate() {
            pack(block, &mut lane(F::LAYOUT, row_panel, idx, row));
        }
    })
}

/// Returns where a row goes in a block of a row panel.
#[inline(always)]
fn lane<const ROWS: usize>(
    layout: Layout,
    row_panel: &mut [u8],
    idx: usize,
    row: usize,
) -> Lane<'_, ROWS> {
    let (head, body) = layout.block(idx);
    let (before, after) = row_panel.split_at_mut(body);
    Lane {
        head: before[head..][..layout.head]
            .as_chunks_mut()
            .0
            .as_chunks_mut()
            .0,
        body: after[..layout.body].as_chunks_mut().0.as_chunks_mut().0,
        row: row % ROWS,
    }
}

/// Packs a block of a scale and nibbles.
fn nibbles(block: &[u8; 18], out: &mut Lane<'_, 16>) {
    out.scales(&block[..2]);
    out.dwords(0, &block[2..]);
}

/// Returns the bits of half the power of two that an exponent means, as a number of BF16: the steps are
/// doubled. The smallest two are below the smallest normal number, and still exact.
fn mxfp4_scale(exponent: u8) -> u16 {
    match exponent {
        0..2 => 0x20 << exponent,
        exponent => u16::from(exponent - 1) << 7,
    }
}

impl<const ROWS: usize> Lane<'_, ROWS> {
    /// Writes one or two numbers of half precision.
    #[inline(always)]
    fn scales(&mut self, scales: &[u8]) {
        for (scale, out) in scales.as_chunks().0.iter().zip(&mut *self.head) {
            out[self.row % ROWS] = *scale;
        }
    }

    /// Writes four bytes to a vector.
    #[inline(always)]
    fn dword(&mut self, vector: usize, bytes: [u8; 4]) {
        self.body[vector][self.row % ROWS] = bytes;
    }

    /// Writes bytes to as many vectors as there are fours of them.
    #[inline(always)]
    fn dwords(&mut self, first: usize, bytes: &[u8]) {
        for (idx, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
            self.dword(first + idx, *bytes);
        }
    }

    /// Writes four bytes to each of some vectors.
    #[inline(always)]
    fn words(&mut self, first: usize, words: &[u32]) {
        for (idx, word) in words.iter().enumerate() {
            self.dword(first + idx, word.to_le_bytes());
        }
    }
}

/// Turns 32 pairs of nibbles into the quants of two sub-blocks: those of the low halves, and of the high
/// ones, each with its first 16 elements in its own low halves.
fn split_nibbles(quants: &[u8; 32]) -> [[u8; 16]; 2] {
    let (first, second) = quants.split_at(16);
    let number = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |bytes| u128::from_le_bytes(*bytes))
    };
    let (first, second) = (number(first), number(second));
    let low = u128::from_le_bytes([0x0f; 16]);
    [
        (first & low | (second & low) << 4).to_le_bytes(),
        (first >> 4 & low | second & low << 4).to_le_bytes(),
    ]
}

/// Reads quants of two bits, sub-block after sub-block of 32: each as eight times four of them.
fn two_bits(quants: &[u8]) -> impl Iterator<Item = [u32; 8]> {
    let parts = quants.as_chunks::<32>().0.iter();
    parts.flat_map(|part| {
        (0..4).map(|quarter| {
            let mut quants = [0; 8];
            for (quants, bytes) in quants.iter_mut().zip(part.as_chunks().0) {
                *quants = u32::from_le_bytes(*bytes) >> (2 * quarter) & 0x0303_0303;
            }
            quants
        })
    })
}

/// Puts quants of two bits together, four to a byte: the first in the lower bits.
fn fours(quants: [u32; 8]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = quants;
    [a | b << 2 | c << 4 | d << 6, e | f << 2 | g << 4 | h << 6]
}

/// Puts quants of three bits together: two to a byte, and above them what is left, two bits each of the
/// fourth and of the last, and their third bits.
fn thirds(quants: [u32; 8]) -> [u32; 3] {
    let [a, b, c, low, d, e, f, high] = quants;
    let (two, third) = (0x0303_0303, 0x0404_0404);
    [
        a | d << 3 | (low & two) << 6,
        b | e << 3 | (high & two) << 6,
        c | f << 3 | (low & third) << 4 | (high & third) << 5,
    ]
}

/// Turns 32 bits, one for each element, into bytes `j` whose bit `g` is that of element `4g + j`.
fn spread(bits: &[u8]) -> [u8; 4] {
    let spread = bits
        .iter()
        .enumerate()
        .map(|(idx, bits)| SPREAD[usize::from(*bits)] << (2 * idx));
    spread.fold(0, |all, bits| all | bits).to_le_bytes()
}

/// For 8 bits: bit `j` goes to bit 0, and bit `4 + j` to bit 1 of byte `j`.
static SPREAD: [u32; 256] = {
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut j = 0;
        while j < 4 {
            table[bits] |= ((bits >> j & 1) as u32 | ((bits >> (4 + j) & 1) as u32 * 2)) << (8 * j);
            j += 1;
        }
        bits += 1;
    }
    table
};

/// Turns bytes of 32 elements, whose bit `s` belongs to sub-block `s`, into what [`spread`] makes of each
/// sub-block.
fn qh(bytes: &[u8]) -> [[u8; 4]; 8] {
    let mut out = [[0; 4]; 8];
    for j in 0..4 {
        let mut column = [0; 8];
        for (byte, from) in column.iter_mut().zip(bytes.iter().skip(j).step_by(4)) {
            *byte = *from;
        }
        for (out, byte) in out
            .iter_mut()
            .zip(transposed(u64::from_le_bytes(column)).to_le_bytes())
        {
            out[j] = byte;
        }
    }
    out
}

/// Transposes 8 times 8 bits, by swapping ever larger squares (Warren, Hacker's Delight, 7-3).
fn transposed(mut bits: u64) -> u64 {
    for (mask, by) in [
        (0x00aa_00aa_00aa_00aa, 7),
        (0x0000_cccc_0000_cccc, 14),
        (0x0000_0000_f0f0_f0f0, 28),
    ] {
        let swapped = (bits ^ bits >> by) & mask;
        bits ^= swapped ^ swapped << by;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact for every exponent, the smallest included.
    #[test]
    fn scales_of_mxfp4_are_what_unpacking_says() {
        for exponent in 0..=u8::MAX {
            // All elements are the step 1/2, which is 1 when doubled.
            let mut block = [0x11; 17];
            block[0] = exponent;
            let mut unpacked = [0.0; 32];
            crate::dequantize(TensorType::MXFP4, &block, &mut unpacked).unwrap();
            let scale = f32::from_bits(u32::from(mxfp4_scale(exponent)) << 16);
            assert_eq!(unpacked, [scale; 32], "{exponent}");
        }
    }
}
