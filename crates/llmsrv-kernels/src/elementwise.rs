//! Operations on single elements and on rows, on the caller's thread.
//!
//! Each is plain code that is compiled for every tier; sums run over 32 lanes in all of them, so the
//! results are the same bit for bit (but of an unfused scalar tier). None of them panics: where slices
//! differ in length, what goes beyond the shortest stays as it is.

use crate::{
    exp::exp,
    tier::{fma, tiered},
};

tiered! {
    /// Divides each stretch of `weight.len()` elements of `x` by its root mean square and multiplies it
    /// with `weight` (<https://arxiv.org/abs/1910.07467>). `x` and `out` are `[rows, weight.len()]`; what is
    /// no whole row in both of them is left out.
    pub fn rms_norm at rms_norm_at(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let width = weight.len().max(1);
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            let scale = rms_scale::<FUSED>(x, eps);
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                *out = x * scale * weight;
            }
        }
    }
}

tiered! {
    /// Moves each stretch of `weight.len()` elements of `x` to the mean 0 and the variance 1, multiplies it
    /// with `weight` and adds `bias`, which is as long (<https://arxiv.org/abs/1607.06450>). `x` and `out`
    /// are `[rows, weight.len()]`; what is no whole row in both of them is left out.
    pub fn layer_norm at layer_norm_at(x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
        let width = weight.len().max(1);
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            let mean = sum(x, |sum, x| sum + x) / width as f32;
            for (out, x) in out.iter_mut().zip(x) {
                *out = x - mean;
            }
            let square_sum = sum(out, |sum, x| fma::<FUSED>(x, x, sum));
            let scale = 1.0 / (square_sum / width as f32 + eps).sqrt();
            for (out, weight) in out.iter_mut().zip(weight) {
                *out *= scale * weight;
            }
            for (out, bias) in out.iter_mut().zip(bias.unwrap_or_default()) {
                *out += bias;
            }
        }
    }
}

tiered! {
    /// Adds `scale * y` to `x`, which is as long; of the longer one the rest is left out.
    pub fn add_scaled at add_scaled_at(x: &mut [f32], y: &[f32], scale: f32) {
        for (x, y) in x.iter_mut().zip(y) {
            *x = fma::<FUSED>(scale, *y, *x);
        }
    }
}

tiered! {
    /// Replaces `gate` by `gate * sigmoid(gate) * up`; `up` is as long, else the rest is left out.
    pub fn silu_mul at silu_mul_at(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = silu_of::<FUSED>(*gate) * up;
        }
    }
}

tiered! {
    /// Replaces `gate` by `sigmoid(gate) * up`.
    pub fn sigmoid_mul at sigmoid_mul_at(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = up / (1.0 + exp::<FUSED>(-*gate));
        }
    }
}

tiered! {
    /// Replaces `gate` by `gelu(gate) * up`, with the tanh approximation (<https://arxiv.org/abs/1606.08415>);
    /// `up` is as long, else the rest is left out.
    pub fn gelu_mul at gelu_mul_at(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = gelu_tanh::<FUSED>(*gate) * up;
        }
    }
}

tiered! {
    /// Replaces `gate` by `g * sigmoid(1.702 g) * (u + 1)`, where `g` is at most 7 and `u` is `up` from -7 to
    /// 7. `up` is as long, else the rest is left out.
    pub fn clamped_swiglu at clamped_swiglu_at(gate: &mut [f32], up: &[f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            let g = gate.min(CLAMP);
            *gate = g / (1.0 + exp::<FUSED>(-1.702 * g)) * (up.clamp(-CLAMP, CLAMP) + 1.0);
        }
    }
}

tiered! {
    /// Replaces each element by its GELU, with the tanh approximation of [`gelu_mul`].
    pub fn gelu at gelu_at(x: &mut [f32]) {
        for x in x {
            *x = gelu_tanh::<FUSED>(*x);
        }
    }
}

tiered! {
    /// Replaces each element by its GELU: `x` times the part of a normal distribution below `x`
    /// (<https://arxiv.org/abs/1606.08415>). The error function is that of Abramowitz and Stegun 7.1.26, which is
    /// within 1.5e-7.
    pub fn exact_gelu at exact_gelu_at(x: &mut [f32]) {
        for x in x {
            let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
            let t = 1.0 / fma::<FUSED>(OF_ERF[0], z, 1.0);
            let mut sum = OF_ERF[1];
            for factor in &OF_ERF[2..] {
                sum = fma::<FUSED>(sum, t, *factor);
            }
            // Half of what is further from the middle than `x`.
            let beyond = 0.5 * sum * t * exp::<FUSED>(-z * z);
            *x *= if *x < 0.0 { beyond } else { 1.0 - beyond };
        }
    }
}

tiered! {
    /// Replaces each element by `x * sigmoid(1.702 x)`.
    pub fn quick_gelu at quick_gelu_at(x: &mut [f32]) {
        for x in x {
            *x /= 1.0 + exp::<FUSED>(-1.702 * *x);
        }
    }
}

tiered! {
    /// Replaces each element by `x * sigmoid(x)`.
    pub fn silu at silu_at(x: &mut [f32]) {
        for x in x {
            *x = silu_of::<FUSED>(*x);
        }
    }
}

/// Returns `1 / (1 + exp(-x))`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns what a norm multiplies the elements of a row with, before its weights.
#[inline(always)]
pub(crate) fn rms_scale<const FUSED: bool>(x: &[f32], eps: f32) -> f32 {
    let square_sum = sum(x, |sum, x| fma::<FUSED>(x, x, sum));
    1.0 / (square_sum / x.len() as f32 + eps).sqrt()
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu_of<const FUSED: bool>(x: f32) -> f32 {
    x / (1.0 + exp::<FUSED>(-x))
}

/// `x / 2 * (1 + tanh(inner))`, which is `x * sigmoid(2 * inner)`.
#[inline(always)]
pub(crate) fn gelu_tanh<const FUSED: bool>(x: f32) -> f32 {
    let inner = TWICE_ROOT * (x + 0.044_715 * x * x * x);
    x / (1.0 + exp::<FUSED>(-inner))
}

/// Sums over 32 lanes, then the lanes in halves.
#[inline(always)]
fn sum(x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (groups, rest) = x.as_chunks::<LANES>();
    for group in groups {
        for (sum, x) in sums.iter_mut().zip(group) {
            *sum = add(*sum, *x);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum = add(*sum, *x);
    }
    let mut n = LANES;
    while n > 1 {
        n /= 2;
        for lane in 0..n {
            sums[lane] += sums[lane + n];
        }
    }
    sums[0]
}

/// What the error function is made of: first how fast it ends, then a polynomial from its highest power on.
const OF_ERF: [f32; 6] = [
    0.327_591_1,
    1.061_405_4,
    -1.453_152,
    1.421_413_7,
    -0.284_496_74,
    0.254_829_6,
];
/// Bounds what a clamped gate reads.
const CLAMP: f32 = 7.0;
/// Lanes of a sum.
const LANES: usize = 32;
/// 2 * sqrt(2 / pi).
const TWICE_ROOT: f32 = 1.595_769;

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `2 i` and `2 i + 1`.
    Interleaved,
    /// `i` and `i + n`, where `n` is the number of pairs.
    HalfSplit,
}

tiered! {
    /// Rotates the first pairs of every head of one row (<https://arxiv.org/abs/2104.09864>). `row` is
    /// `[n_heads, head_dim]`, `cos` and `sin` have one element for each pair; the rest of a head stays as it
    /// is. With more pairs than a head has nothing is rotated.
    pub fn rotate at rotate_at(row: &mut [f32], head_dim: usize, style: RopeStyle, cos: &[f32], sin: &[f32]) {
        let n_pairs = cos.len().min(sin.len());
        for head in row.chunks_exact_mut(head_dim.max(1)) {
            let Some(head) = head.get_mut(..2 * n_pairs) else {
                return;
            };
            match style {
                RopeStyle::Interleaved => {
                    for (([a, b], cos), sin) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin)
                    {
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
                RopeStyle::HalfSplit => {
                    let (first, second) = head.split_at_mut(n_pairs);
                    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Tier;

    fn close(a: f32, b: f64) -> bool {
        (f64::from(a) - b).abs() <= 1e-5 * b.abs().max(1.0)
    }

    proptest! {
        #[test]
        fn norms_and_activations_follow_their_formulas(x in prop::collection::vec(-8.0_f32..8.0, 24), eps in 1e-6_f32..1e-2) {
            let weight: Vec<f32> = (0..8).map(|i| 0.5 + i as f32 / 8.0).collect();
            let mut out = vec![0.0; 24];
            rms_norm(&x, &weight, eps, &mut out);
            for (stretch, out) in x.chunks(8).zip(out.chunks(8)) {
                let mean = stretch.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 8.0;
                for ((x, out), weight) in stretch.iter().zip(out).zip(&weight) {
                    prop_assert!(close(*out, f64::from(*x) / (mean + f64::from(eps)).sqrt() * f64::from(*weight)));
                }
            }
            let bias: Vec<f32> = (0..8).map(|i| i as f32 / 4.0 - 1.0).collect();
            layer_norm(&x, &weight, Some(&bias), eps, &mut out);
            for (stretch, out) in x.chunks(8).zip(out.chunks(8)) {
                let mean = stretch.iter().map(|x| f64::from(*x)).sum::<f64>() / 8.0;
                let variance = stretch.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / 8.0;
                for (i, (x, out)) in stretch.iter().zip(out).enumerate() {
                    let expected = (f64::from(*x) - mean) / (variance + f64::from(eps)).sqrt() * f64::from(weight[i]) + f64::from(bias[i]);
                    // A variance near 0 magnifies the rounding of the mean.
                    prop_assert!((f64::from(*out) - expected).abs() <= 1e-4 * expected.abs().max(1.0));
                }
            }
            let up: Vec<f32> = x.iter().rev().copied().collect();
            let (mut silu, mut gated, mut plain) = (x.clone(), x.clone(), x.clone());
            let mut clamped = x.clone();
            clamped_swiglu(&mut clamped, &up);
            silu_mul(&mut silu, &up);
            gelu_mul(&mut gated, &up);
            gelu(&mut plain);
            let (mut quick, mut of_itself) = (x.clone(), x.clone());
            quick_gelu(&mut quick);
            super::silu(&mut of_itself);
            for i in 0..24 {
                let (x, up) = (f64::from(x[i]), f64::from(up[i]));
                prop_assert!(close(silu[i], x / (1.0 + (-x).exp()) * up));
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                prop_assert!(close(plain[i], 0.5 * x * (1.0 + inner.tanh())));
                prop_assert!(close(quick[i], x / (1.0 + (-1.702 * x).exp())));
                prop_assert!(close(of_itself[i], x / (1.0 + (-x).exp())));
                prop_assert!(close(gated[i], 0.5 * x * (1.0 + inner.tanh()) * up));
                let g = x.min(7.0);
                let expected = g / (1.0 + (-1.702 * g).exp()) * (up.clamp(-7.0, 7.0) + 1.0);
                prop_assert!(close(clamped[i], expected));
            }
        }
    }

    #[test]
    fn all_tiers_give_the_same_bits() {
        let x: Vec<f32> = (0..3 * 77)
            .map(|i| ((i * 7919) % 2003) as f32 / 100.0 - 10.0)
            .collect();
        let (up, weight): (Vec<f32>, Vec<f32>) =
            (x.iter().rev().copied().collect(), x[..77].to_vec());
        let run = |tier| {
            let mut all = Vec::new();
            let mut out = vec![0.0; x.len()];
            rms_norm_at(tier, &x, &weight, 1e-5, &mut out);
            all.extend_from_slice(&out);
            layer_norm_at(tier, &x, &weight, Some(&up[..77]), 1e-5, &mut out);
            all.extend_from_slice(&out);
            add_scaled_at(tier, &mut out, &x, 0.3);
            silu_mul_at(tier, &mut out, &up);
            all.extend_from_slice(&out);
            gelu_mul_at(tier, &mut out, &up);
            gelu_at(tier, &mut out);
            for function in [exact_gelu_at, quick_gelu_at, silu_at] {
                let mut x = x.clone();
                function(tier, &mut x);
                all.extend_from_slice(&x);
            }
            for style in [RopeStyle::HalfSplit, RopeStyle::Interleaved] {
                rotate_at(tier, &mut out, 77, style, &x[..38], &up[..38]);
            }
            all.extend_from_slice(&out);
            all.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let available = |tier: &Tier| tier.is_available();
        let fused = Tier::VECTORS.into_iter().filter(available);
        let results: Vec<_> = fused.map(run).collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }

    /// By Python's `math.erf`.
    #[test]
    fn gelu_itself_is_that_of_the_error_function() {
        let mut x = [-6.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 6.0, 1e30, -1e30];
        exact_gelu(&mut x);
        let expected = [
            -5.919_526e-9,
            -4.049_694e-3,
            -0.158_655_25,
            -0.046_017_216,
            0.0,
            0.053_982_783,
            0.841_344_75,
            2.995_950_3,
            6.0,
            1e30,
            0.0,
        ];
        for (found, expected) in x.iter().zip(expected) {
            let off = (f64::from(*found) - expected).abs();
            assert!(off <= 4e-7 * f64::max(1.0, expected), "{found} {expected}");
        }
        let mut odd = [f32::NAN];
        exact_gelu(&mut odd);
        assert!(odd[0].is_nan());
    }

    #[test]
    fn large_arguments_do_not_break_activations() {
        for x in [-1e30, -1000.0, -100.0, -50.0, 50.0, 100.0, 1000.0, 1e30_f32] {
            let (mut silu, mut gelu) = ([x], [x]);
            silu_mul(&mut silu, &[1.0]);
            gelu_mul(&mut gelu, &[1.0]);
            let expected = x.max(0.0);
            assert!(
                (silu[0] - expected).abs() <= 1e-6 * expected.max(1.0),
                "{x}: {silu:?}"
            );
            assert!(
                (gelu[0] - expected).abs() <= 1e-6 * expected.max(1.0),
                "{x}: {gelu:?}"
            );
        }
    }

    #[test]
    fn pairs_turn_and_the_rest_stays() {
        let (cos, sin) = ([0.0, 1.0], [1.0, 0.0]);
        let mut row = [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        rotate(&mut row, 5, RopeStyle::Interleaved, &cos, &sin);
        assert_eq!(row, [-2.0, 1.0, 3.0, 4.0, 5.0, -2.0, 1.0, 3.0, 4.0, 5.0]);
        let mut row = [1.0, 2.0, 3.0, 4.0, 5.0];
        rotate(&mut row, 5, RopeStyle::HalfSplit, &cos, &sin);
        assert_eq!(row, [-3.0, 2.0, 1.0, 4.0, 5.0]);
    }
}
