//! The exponential function, for lanes.

use crate::tier::fma;

/// Returns `exp(x)` within 2 units in the last place, for `x` up to 88; larger ones count as 88.
/// Below -87, where the result would lose digits, it is 0. Not a number stays so.
///
/// `exp(x) = 2^n * exp(r)` with a whole `n` and `|r| <= ln(2) / 2`; the polynomial for `exp(r)` is that of
/// Cephes' `expf` (<https://www.netlib.org/cephes/>). `exp(0)` is exactly 1.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "it takes the instructions of its caller"
)]
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

/// 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;
/// The first digits of ln(2); products with whole numbers up to 2^9 are exact.
const LN_2_HIGH: f32 = 0.693_359_375;
/// The rest of ln(2).
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// The polynomial of `(exp(r) - 1 - r) / r^2`, highest power first.
const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    5.000_000_1e-1,
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
        assert_eq!(exp::<true>(f32::INFINITY), exp::<true>(88.0));
        assert!(exp::<true>(f32::NAN).is_nan());
    }
}
