//! Random blocks of every type, without quantising: random codes, and scales that make the values
//! come out around zero with the spread that trained weights have.

use half::{bf16, f16};
use llmsrv_gguf::TensorType;

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Content {
    /// Values around zero.
    Random,
    /// This number everywhere.
    All(f32),
}

/// The values of one tensor.
#[derive(Debug)]
pub(super) struct Weights {
    random: SplitMix,
    ty: TensorType,
    content: Content,
}

impl Weights {
    /// Begins the tensor with this number.
    pub(super) fn new(seed: u64, ty: TensorType, content: Content) -> Weights {
        Weights {
            random: SplitMix(seed << 40),
            ty,
            content,
        }
    }

    /// Makes the next blocks, in place of what is in `out`.
    pub(super) fn fill(&mut self, n_blocks: usize, out: &mut Vec<u8>) {
        out.resize(n_blocks * self.ty.block_bytes(), 0);
        if self.ty.block_len() == 1 {
            self.fill_floats(out);
            return;
        }
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = self.random.next().to_le_bytes();
        }
        rest.fill(self.random.next() as u8);
        for block in out.chunks_exact_mut(self.ty.block_bytes()) {
            set_scales(self.ty, block, self.random.next());
        }
    }

    fn fill_floats(&mut self, out: &mut [u8]) {
        let n_bytes = self.ty.block_bytes();
        for value in out.chunks_exact_mut(n_bytes) {
            let number = match self.content {
                Content::All(number) => number,
                Content::Random => self.random.normal() * SPREAD,
            };
            match self.ty {
                TensorType::F32 => value.copy_from_slice(&number.to_le_bytes()),
                TensorType::F16 => value.copy_from_slice(&f16::from_f32(number).to_le_bytes()),
                _ => value.copy_from_slice(&bf16::from_f32(number).to_le_bytes()),
            }
        }
    }
}

/// Writes the scales of a block whose codes are random already.
fn set_scales(ty: TensorType, block: &mut [u8], random: u64) {
    // Scales of neighbouring blocks differ by up to an eighth.
    let spread = SPREAD * (1.0 + (random % 256) as f32 / 2048.0);
    let mut put = |at: usize, value: f32| {
        block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    };
    match ty {
        TensorType::Q4_0 => put(0, spread / deviation(16)),
        TensorType::Q5_0 => put(0, spread / deviation(32)),
        TensorType::Q8_0 => put(0, spread / deviation(256)),
        TensorType::Q4_1 | TensorType::Q5_1 => {
            let n_codes = if ty == TensorType::Q4_1 { 16 } else { 32 };
            let scale = spread / deviation(n_codes);
            put(0, scale);
            put(2, -scale * (n_codes - 1) as f32 / 2.0);
        }
        TensorType::Q4_K | TensorType::Q5_K => {
            let n_codes = if ty == TensorType::Q4_K { 16 } else { 32 };
            let scale = spread / deviation(n_codes) / SUB_SCALE;
            put(0, scale);
            put(2, scale * (n_codes - 1) as f32 / 2.0);
            // The minimum of a part is as its scale, so that its values lie around zero.
            let scales: [u8; 8] = random.to_le_bytes().map(|byte| 24 + byte % 16);
            block[4..16].copy_from_slice(&packed(scales, scales));
        }
        TensorType::Q6_K => {
            put(208, spread / deviation(64) / SUB_SCALE);
            for (index, scale) in block[192..208].iter_mut().enumerate() {
                *scale = 24 + (random >> (4 * index)) as u8 % 16;
            }
        }
        TensorType::Q2_K => {
            let scale = spread / deviation(4) / FOUR_BIT_SCALE;
            put(80, scale);
            put(82, scale * 1.5);
            // The minimum of a sub-block is as its scale, as above.
            for (index, scale) in block[..16].iter_mut().enumerate() {
                *scale = (8 + (random >> (4 * index)) as u8 % 8) * 17;
            }
        }
        TensorType::Q3_K => {
            put(108, spread / deviation(8) / SIGNED_SCALE);
            // The upper bits of the scales: every other one is below zero, since of the codes one
            // more is below zero than above.
            block[104..108].copy_from_slice(&[0xff, 0, 0xff, 0]);
        }
        // An exponent of two, biased by 127.
        TensorType::MXFP4 => block[0] = 120,
        TensorType::IQ4_NL => put(0, spread / IQ4_DEVIATION),
        TensorType::IQ4_XS => {
            put(0, spread / IQ4_DEVIATION / SIGNED_SCALE);
            // The upper bits of the scales of eight sub-blocks.
            block[2..4].copy_from_slice(&[0xcc, 0xcc]);
        }
        TensorType::IQ3_S | TensorType::IQ3_XXS => put(0, spread / EIGHT_LEVELS / ODD_SCALE),
        TensorType::IQ2_S | TensorType::IQ2_XS | TensorType::IQ2_XXS => {
            put(0, spread / THREE_LEVELS / ODD_SCALE);
        }
        _ => {}
    }
}

/// Eight scales and eight minima of 6 bits each in 12 bytes, as the K types have them.
fn packed(scales: [u8; 8], minima: [u8; 8]) -> [u8; 12] {
    let mut out = [0; 12];
    for at in 0..4 {
        let (scale, min) = (scales[at + 4], minima[at + 4]);
        out[at] = scales[at] | (scale >> 4) << 6;
        out[at + 4] = minima[at] | (min >> 4) << 6;
        out[at + 8] = (scale & 15) | (min & 15) << 4;
    }
    out
}

/// Standard deviation of so many equally probable codes.
fn deviation(n_codes: u32) -> f32 {
    let n_codes = n_codes as f32;
    ((n_codes * n_codes - 1.0) / 12.0).sqrt()
}

/// Standard deviation of the weights.
const SPREAD: f32 = 0.02;
/// The mean of the random scales of parts.
const SUB_SCALE: f32 = 31.5;
/// The same of scales of 4 bits, from 8 to 15.
const FOUR_BIT_SCALE: f32 = 11.5;
/// The same, without the sign, of scales of 6 bits from -32 to -17 and from 16 to 31.
const SIGNED_SCALE: f32 = 24.0;
/// Standard deviation of the steps of IQ4, all equally probable.
const IQ4_DEVIATION: f32 = 67.2;

/// Standard deviation of the levels of the IQ3 grids, and of the IQ2 grids, in their units.
const EIGHT_LEVELS: f32 = 7.5;
const THREE_LEVELS: f32 = 3.0;
/// The root of the mean square of the odd numbers below 32.
const ODD_SCALE: f32 = 18.5;

/// SplitMix64 (Steele, Lea and Flood, 2014): fast, and good enough for weights.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Nearly normal: the sum of four uniform numbers, with mean 0 and deviation 1.
    fn normal(&mut self) -> f32 {
        let word = self.next();
        let sum: u64 = (0..4).map(|part| (word >> (16 * part)) & 0xffff).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3.0_f32.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_are_like_trained_weights() {
        for target in crate::Target::ALL {
            let ty = target.main_type();
            let n_blocks = 65_536 / ty.block_len();
            let mut bytes = Vec::new();
            Weights::new(7, ty, Content::Random).fill(n_blocks, &mut bytes);
            let mut values = vec![0.0; 65_536];
            llmsrv_kernels::dequantize(ty, &bytes, &mut values).unwrap();
            let mean = values.iter().sum::<f32>() / 65_536.0;
            let square = values.iter().map(|value| value * value).sum::<f32>() / 65_536.0;
            // Types of 4 bits without a minimum have one code more below zero than above.
            assert!(mean.abs() < 0.003, "{ty}: mean {mean}");
            let deviation = square.sqrt();
            assert!((0.018..0.025).contains(&deviation), "{ty}: {deviation}");
        }
    }
}
