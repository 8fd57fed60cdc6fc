//! Numbers of bf16: the upper half of an f32.

use crate::tier::tiered;

/// Returns the bits of the nearest bf16, the even one of two. What is below the normal numbers becomes 0,
/// as in the instructions that compute with bf16. Not a number stays so.
#[inline(always)]
pub(crate) fn round(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & !SIGN;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let rounded = if magnitude < f32::MIN_POSITIVE.to_bits() {
        bits & SIGN
    } else {
        rounded
    };
    // Rounding could make another number of one that is none.
    let rounded = if magnitude > f32::INFINITY.to_bits() {
        bits | QUIET
    } else {
        rounded
    };
    (rounded >> 16) as u16
}

/// Returns the number with these bits.
#[inline(always)]
pub(crate) fn expand(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

tiered! {
    /// Rounds all elements.
    pub(crate) fn round_all(values: &[f32], out: &mut [u16]) {
        for (value, out) in values.iter().zip(out) {
            *out = round(*value);
        }
    }
}

const SIGN: u32 = 1 << 31;
/// Tells numbers that are none apart from infinity.
const QUIET: u32 = 1 << 22;

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::Tier;

    #[test]
    fn it_rounds_to_the_nearest_and_keeps_what_is_no_number() {
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                let got = bf16::from_bits(round(value));
                if value.is_nan() {
                    assert!(got.is_nan() && expand(got.to_bits()).is_nan(), "{high:x}");
                } else if value.is_subnormal() {
                    assert_eq!(got.to_bits(), high & 0x8000);
                } else {
                    assert_eq!(got, bf16::from_f32(value), "{value}");
                    assert_eq!(expand(got.to_bits()), got.to_f32());
                }
            }
        }
    }

    #[test]
    fn rows_are_rounded_as_numbers_are() {
        let values: Vec<f32> = (0..77).map(|i| (i * i) as f32 * -0.317 + 9.0).collect();
        for tier in [Tier::Scalar].into_iter().chain(Tier::VECTORS) {
            let mut out = vec![0; values.len()];
            round_all(tier, &values, &mut out);
            assert!(values.iter().zip(&out).all(|(v, out)| round(*v) == *out));
        }
    }
}
