//! Formats with blocks of 256 elements that are points of a grid: IQ1, IQ2 and IQ3.
//!
//! Eight elements are an index into a grid ([`super::grids`]) and eight signs, or one sign for a shift
//! of all of them. Nearly all signs are stored as seven bits: the number of negative elements is even.
//!
//! A block is read into codes, of which each stands for one of a few whole numbers (its level), since
//! both need them: what unpacks a row, and what packs it for the kernels.

use super::{grids, half};

/// A format: how codes are read, and what they stand for.
///
/// An element is `scale * UNIT * (2 * n + 1) * LEVELS[code]`, with the scale of its block and the number
/// `n` of its stretch.
pub(crate) trait GridFormat {
    /// Bytes of a block.
    const BYTES: usize;
    /// Elements with one small scale: 16 or 32.
    const STRETCH: usize;
    /// What levels count, as a share of the scale: a power of two.
    const UNIT: f32;
    /// Bits of a code, of which the uppermost is the sign: 3 or 4.
    const CODE_BITS: usize;
    /// What codes stand for.
    const LEVELS: [i8; 16];

    /// Reads the codes of a block, which has [`GridFormat::BYTES`] bytes.
    fn read(block: &[u8]) -> Codes;
}

/// A block of 256 elements.
pub(crate) struct Codes {
    /// The scale, of half precision.
    pub(crate) scale: [u8; 2],
    /// Numbers of the stretches: below 16. Those beyond the last stretch are 0.
    pub(crate) stretches: [u8; 16],
    /// A code for each element.
    pub(crate) elements: [u8; 256],
}

/// Unpacks blocks of a format.
pub(super) fn unpack<T: GridFormat>(bytes: &[u8], out: &mut [f32]) {
    let levels = T::LEVELS.map(f32::from);
    for (block, out) in bytes.chunks_exact(T::BYTES).zip(out.chunks_exact_mut(256)) {
        let codes = T::read(block);
        let unit = half(codes.scale) * T::UNIT;
        let stretches = out.chunks_mut(T::STRETCH);
        let elements = codes.elements.chunks(T::STRETCH);
        for ((out, elements), n) in stretches.zip(elements).zip(codes.stretches) {
            let scale = unit * f32::from(2 * n + 1);
            for (value, code) in out.iter_mut().zip(elements) {
                *value = scale * levels[usize::from(*code)];
            }
        }
    }
}

/// Scale; for each stretch four indices, and a word of four times seven signs and its number.
pub(crate) struct Iq2Xxs;
impl GridFormat for Iq2Xxs {
    const BYTES: usize = 66;
    const STRETCH: usize = 32;
    const UNIT: f32 = 0.125;
    const CODE_BITS: usize = 3;
    const LEVELS: [i8; 16] = IQ2_LEVELS;

    fn read(block: &[u8]) -> Codes {
        let mut codes = Codes::new([block[0], block[1]]);
        for (stretch, part) in block[2..].as_chunks::<8>().0.iter().enumerate() {
            let [a, b, c, d, word @ ..] = *part;
            let word = u32::from_le_bytes(word);
            for (eight, idx) in [a, b, c, d].into_iter().enumerate() {
                let point = grids::IQ2_XXS[usize::from(idx)];
                codes.put::<Self>(
                    4 * stretch + eight,
                    point,
                    word >> (7 * eight),
                    Signs::Seven,
                );
            }
            codes.stretches[stretch] = (word >> 28) as u8;
        }
        codes
    }
}

/// Scale; for each eight a word: an index of 9 bits, seven signs; numbers of the stretches.
pub(crate) struct Iq2Xs;
impl GridFormat for Iq2Xs {
    const BYTES: usize = 74;
    const STRETCH: usize = 16;
    const UNIT: f32 = 0.125;
    const CODE_BITS: usize = 3;
    const LEVELS: [i8; 16] = IQ2_LEVELS;

    fn read(block: &[u8]) -> Codes {
        let mut codes = Codes::new([block[0], block[1]]);
        for (eight, word) in block[2..66].as_chunks().0.iter().enumerate() {
            let word = u16::from_le_bytes(*word);
            let point = grids::IQ2_XS[usize::from(word & 511)];
            codes.put::<Self>(eight, point, u32::from(word >> 9), Signs::Seven);
        }
        codes.put_nibbles(&block[66..74]);
        codes
    }
}

/// Scale; for each eight the lower 8 bits of its index, and its signs; for four eights the upper two
/// bits of their indices; numbers of the stretches.
pub(crate) struct Iq2S;
impl GridFormat for Iq2S {
    const BYTES: usize = 82;
    const STRETCH: usize = 16;
    const UNIT: f32 = 0.125;
    const CODE_BITS: usize = 3;
    const LEVELS: [i8; 16] = IQ2_LEVELS;

    fn read(block: &[u8]) -> Codes {
        let mut codes = Codes::new([block[0], block[1]]);
        let (low, signs, high) = (&block[2..34], &block[34..66], &block[66..74]);
        for eight in 0..32 {
            let high = high[eight / 4] >> (2 * (eight % 4)) & 3;
            let point = grids::IQ2_S[usize::from(low[eight]) | usize::from(high) << 8];
            codes.put::<Self>(eight, point, u32::from(signs[eight]), Signs::Eight);
        }
        codes.put_nibbles(&block[74..82]);
        codes
    }
}

/// Scale; an index for each four; for each stretch a word of four times seven signs and its number.
pub(crate) struct Iq3Xxs;
impl GridFormat for Iq3Xxs {
    const BYTES: usize = 98;
    const STRETCH: usize = 32;
    const UNIT: f32 = 0.25;
    const CODE_BITS: usize = 4;
    const LEVELS: [i8; 16] = with_negative([4, 12, 20, 28, 36, 44, 52, 62]);

    fn read(block: &[u8]) -> Codes {
        let mut codes = Codes::new([block[0], block[1]]);
        let words = block[66..].as_chunks().0;
        for (eight, pair) in block[2..66].as_chunks::<2>().0.iter().enumerate() {
            let word = u32::from_le_bytes(words[eight / 4]);
            let fours = pair.map(|idx| grids::IQ3_XXS[usize::from(idx)]);
            codes.put::<Self>(
                eight,
                joined(fours),
                word >> (7 * (eight % 4)),
                Signs::Seven,
            );
            codes.stretches[eight / 4] = (word >> 28) as u8;
        }
        codes
    }
}

/// Scale; for each four the lower 8 bits of its index; for eight fours the ninth ones; for each eight
/// its signs; numbers of the stretches.
pub(crate) struct Iq3S;
impl GridFormat for Iq3S {
    const BYTES: usize = 110;
    const STRETCH: usize = 32;
    const UNIT: f32 = 1.0;
    const CODE_BITS: usize = 4;
    const LEVELS: [i8; 16] = with_negative([1, 3, 5, 7, 9, 11, 13, 15]);

    fn read(block: &[u8]) -> Codes {
        let mut codes = Codes::new([block[0], block[1]]);
        let (low, ninth, signs) = (&block[2..66], &block[66..74], &block[74..106]);
        for (eight, signs) in signs.iter().enumerate() {
            let fours = [2 * eight, 2 * eight + 1].map(|four| {
                let ninth = ninth[four / 8] >> (four % 8) & 1;
                grids::IQ3_S[usize::from(low[four]) | usize::from(ninth) << 8]
            });
            codes.put::<Self>(eight, joined(fours), u32::from(*signs), Signs::Eight);
        }
        codes.put_nibbles(&block[106..110]);
        codes
    }
}

/// Scale; for each eight the lower 8 bits of its index; for each stretch a word: four times the upper
/// three bits, its number (three bits), whether its elements are shifted down.
pub(crate) struct Iq1S;
impl GridFormat for Iq1S {
    const BYTES: usize = 50;
    const STRETCH: usize = 32;
    const UNIT: f32 = 0.125;
    const CODE_BITS: usize = 3;
    const LEVELS: [i8; 16] = IQ1_LEVELS;

    fn read(block: &[u8]) -> Codes {
        let mut codes = Codes::new([block[0], block[1]]);
        let words = block[34..].as_chunks().0;
        for (eight, low) in block[2..34].iter().enumerate() {
            let word = u16::from_le_bytes(words[eight / 4]);
            let high = word >> (3 * (eight % 4)) & 7;
            let point = grids::IQ1[usize::from(*low) | usize::from(high) << 8];
            codes.put::<Self>(eight, point, u32::from(word >> 15), Signs::One);
            codes.stretches[eight / 4] = (word >> 12 & 7) as u8;
        }
        codes
    }
}

/// For each eight the lower 8 bits of its index; four bits: the upper three, and whether its elements
/// are shifted down; four words, each with the numbers of four stretches (three bits each) and, above
/// them, four bits of the scale.
pub(crate) struct Iq1M;
impl GridFormat for Iq1M {
    const BYTES: usize = 56;
    const STRETCH: usize = 16;
    const UNIT: f32 = 0.125;
    const CODE_BITS: usize = 3;
    const LEVELS: [i8; 16] = IQ1_LEVELS;

    fn read(block: &[u8]) -> Codes {
        let words = block[48..].as_chunks().0;
        let words = words.iter().map(|word| u16::from_le_bytes(*word));
        let scale = words
            .clone()
            .rev()
            .fold(0, |scale, word| scale << 4 | word >> 12);
        let mut codes = Codes::new(scale.to_le_bytes());
        for (stretches, word) in codes.stretches.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *stretches = [0, 3, 6, 9].map(|shift| (word >> shift & 7) as u8);
        }
        for (eight, low) in block[..32].iter().enumerate() {
            let four_bits = block[32 + eight / 2] >> (4 * (eight % 2)) & 15;
            let point = grids::IQ1[usize::from(*low) | usize::from(four_bits & 7) << 8];
            codes.put::<Self>(eight, point, u32::from(four_bits >> 3), Signs::One);
        }
        codes
    }
}

/// How the signs of eight elements are stored, in the lowest bits of a number.
enum Signs {
    /// A bit for each.
    Eight,
    /// A bit for each but the last, which makes the number of negative elements even.
    Seven,
    /// One bit for all.
    One,
}

impl Codes {
    fn new(scale: [u8; 2]) -> Codes {
        Codes {
            scale,
            stretches: [0; 16],
            elements: [0; 256],
        }
    }

    /// Sets the codes of eight elements: the levels of a point, and their signs above them.
    fn put<T: GridFormat>(&mut self, eight: usize, point: [u8; 8], signs: u32, stored: Signs) {
        let signs = match stored {
            Signs::Eight => signs,
            Signs::Seven => {
                let seven = signs & 127;
                seven | (seven.count_ones() & 1) << 7
            }
            Signs::One => (signs & 1) * 255,
        };
        let out = self.elements.iter_mut().skip(8 * eight);
        for (element, (code, level)) in out.zip(point).enumerate() {
            *code = level | ((signs >> element & 1) as u8) << (T::CODE_BITS - 1);
        }
    }

    /// Sets the numbers of the stretches, of which a byte holds two: the first in its lower half.
    fn put_nibbles(&mut self, bytes: &[u8]) {
        for (pair, byte) in self.stretches.as_chunks_mut().0.iter_mut().zip(bytes) {
            *pair = [byte & 15, byte >> 4];
        }
    }
}

fn joined([first, second]: [[u8; 4]; 2]) -> [u8; 8] {
    let [[a, b, c, d], [e, f, g, h]] = [first, second];
    [a, b, c, d, e, f, g, h]
}

const IQ2_LEVELS: [i8; 16] = [8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// -1, 0 and 1, shifted up or down by an eighth, in eighths.
const IQ1_LEVELS: [i8; 16] = [-7, 1, 9, 0, -9, -1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0];

const fn with_negative(levels: [i8; 8]) -> [i8; 16] {
    let mut all = [0; 16];
    let mut idx = 0;
    while idx < 8 {
        all[idx] = levels[idx];
        all[idx + 8] = -levels[idx];
        idx += 1;
    }
    all
}
