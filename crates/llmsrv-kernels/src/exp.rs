//! The exponential function, for lanes.

use crate::tier::fma;

/// Returns `exp(x)` within 2 units in the last place, for `x` up to 88; larger ones count as 88.
/// Below -87, where the result would lose digits, it is 0. Not a number stays so.
///
/// `exp(x) = 2^n * exp(r)` with a whole `n` and `|r| <= ln(2) / 2`; the polynomial for `exp(r)` is that of
/// Cephes' `expf` (<https://www.netlib.org/cephes/>). `exp(0)` is exactly 1.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    let x = if x > 88.0 { 88.0 } else { x };
    // Adding a number whose last bit counts ones rounds to a whole number.
    let shifted = fma::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<FUSED>(n, -LN_2_HIGH, x);
    let r = fma::<FUSED>(n, -LN_2_LOW, r);
    let mut sum = POLYNOMIAL[0];
    let mut idx = 1;
    while idx < POLYNOMIAL.len() {
        sum = fma::<FUSED>(sum, r, POLYNOMIAL[idx]);
        idx += 1;
    }
    let of_r = fma::<FUSED>(sum, r * r, r + 1.0);
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits() - 127);
    let value = of_r * f32::from_bits(exponent << 23);
    if x < -87.0 { 0.0 } else { value }
}

/// Returns `2^x` for `x` up to 0, within 4 units in the last place; 0 below -126. `2^0` is exactly 1.
#[inline(always)]
pub(crate) fn exp2_below_1<const FUSED: bool>(x: f32) -> f32 {
    exp2_with::<FUSED, 6>(x, &OF_2)
}

/// As [`exp2_below_1`] within a ten-thousandth, a twentieth of what rounding to bf16 changes.
#[inline(always)]
pub(crate) fn exp2_bf16<const FUSED: bool>(x: f32) -> f32 {
    exp2_with::<FUSED, 4>(x, &OF_2_FOR_BF16)
}

/// As [`exp`] with fewer steps: `2^x = 2^n * 2^r` with `|r| <= 1/2`, where `r` is exact, and `n` is added to
/// the exponent of `2^r`.
#[inline(always)]
fn exp2_with<const FUSED: bool, const N: usize>(x: f32, polynomial: &[f32; N]) -> f32 {
    let shifted = x + ROUND;
    let r = x - (shifted - ROUND);
    let mut sum = polynomial[0];
    let mut idx = 1;
    while idx < N {
        sum = fma::<FUSED>(sum, r, polynomial[idx]);
        idx += 1;
    }
    // Of the shifted number only `n` is left above the digits.
    let value = f32::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x < -126.0 { 0.0 } else { value }
}

/// The polynomial of `2^r`, highest power first, through the values at Chebyshev's nodes.
const OF_2: [f32; 6] = [
    1.338_131_8e-3,
    9.666_368e-3,
    5.550_381e-2,
    2.402_235e-1,
    6.931_472e-1,
    1.0,
];
/// The same with the least largest error that three powers can have.
const OF_2_FOR_BF16: [f32; 4] = [5.500_884_7e-2, 2.422_111_8e-1, 6.932_829_6e-1, 1.0];
/// 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;
/// The first digits of ln(2); products with whole numbers up to 2^9 are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
/// The rest of ln(2).
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// The polynomial of `(exp(r) - 1 - r) / r^2`, highest power first.
const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    5e-1,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential_function() {
        let mut worst = 0.0_f64;
        for step in 0..=1_750_000 {
            let x = -87.0 + step as f32 * 1e-4;
            let (got, exact) = (f64::from(exp::<true>(x)), f64::from(x.min(88.0)).exp());
            worst = worst.max((got / exact - 1.0).abs());
            let unfused = f64::from(exp::<false>(x));
            assert!((unfused / exact - 1.0).abs() < 1e-6, "{x}");
        }
        assert!(worst < 2.4e-7, "{worst}");
        assert_eq!(exp::<true>(0.0), 1.0);
        assert_eq!(exp::<false>(0.0), 1.0);
        for tiny in [-87.01, -1e9, f32::NEG_INFINITY] {
            assert_eq!(exp::<true>(tiny), 0.0);
        }
        for step in 0..=1_260_000 {
            let x = step as f32 * -1e-4;
            for got in [exp2_below_1::<true>(x), exp2_below_1::<false>(x)] {
                assert!(
                    (f64::from(got) / f64::from(x).exp2() - 1.0).abs() < 4e-7,
                    "{x}"
                );
            }
            let rough = f64::from(exp2_bf16::<true>(x));
            assert!((rough / f64::from(x).exp2() - 1.0).abs() < 1.1e-4, "{x}");
        }
        assert_eq!(exp2_below_1::<true>(0.0), 1.0);
        assert_eq!(exp2_bf16::<true>(0.0), 1.0);
        for tiny in [-126.01, -1e9, f32::NEG_INFINITY] {
            assert_eq!(exp2_below_1::<true>(tiny), 0.0);
            assert_eq!(exp2_bf16::<true>(tiny), 0.0);
        }
        assert!(exp2_below_1::<true>(f32::NAN).is_nan());
        assert_eq!(exp::<true>(f32::INFINITY), exp::<true>(88.0));
        assert!(exp::<true>(f32::NAN).is_nan());
    }
}
