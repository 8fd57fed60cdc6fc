//! The inner product, and the choice of the instructions it is compiled for.
//!
//! There is one source: [`lanes`] sums in as many independent lanes as the tier has registers for,
//! and the compiler makes vector instructions of it. A tier always adds in the same order.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "a function compiled for more instructions can only be called so"
    )
)]

use crate::Tier;

/// Returns the inner product of two vectors; elements beyond the shorter one count as zero.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    dot_at(Tier::best(), a, b)
}

/// As [`dot`], with the instructions of a tier, or of the plain one where the processor lacks them.
pub fn dot_at(tier: Tier, a: &[f32], b: &[f32]) -> f32 {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    #[cfg(target_arch = "x86_64")]
    match tier {
        Tier::Avx512 | Tier::Avx512Bf16 if tier.is_available() => {
            // SAFETY: the processor has the instructions, as just asked.
            return unsafe { dot_avx512(a, b) };
        }
        // SAFETY: as above.
        Tier::Avx2 if tier.is_available() => return unsafe { dot_avx2(a, b) },
        _ => {}
    }
    let _ = tier;
    lanes::<16, false>(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
fn dot_avx512(a: &[f32], b: &[f32]) -> f32 {
    lanes::<64, true>(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
    lanes::<32, true>(a, b)
}

#[inline(always)]
fn lanes<const LANES: usize, const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    let add = |sum: f32, a: f32, b: f32| {
        if FUSED {
            a.mul_add(b, sum)
        } else {
            sum + a * b
        }
    };
    let mut sums = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] = add(sums[lane], a[lane], b[lane]);
        }
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    a_rest
        .iter()
        .zip(b_rest)
        .fold(sums[0], |sum, (a, b)| add(sum, *a, *b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_tier_agrees_with_the_definition(pairs in prop::collection::vec((-9.0_f32..9.0, -9.0_f32..9.0), 0..400)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let exact: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let size: f64 = a.iter().zip(&b).map(|(a, b)| (f64::from(*a) * f64::from(*b)).abs()).sum();
            for tier in [Tier::Scalar].into_iter().chain(Tier::VECTORS) {
                let got = f64::from(dot_at(tier, &a, &b));
                prop_assert!((got - exact).abs() <= 1e-5 * size + 1e-9, "{tier:?}: {got} {exact}");
            }
        }
    }
}
