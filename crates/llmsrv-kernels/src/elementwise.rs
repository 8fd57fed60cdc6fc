//! Operations on single elements and on rows.

use crate::dot;

/// Divides each stretch of `weight.len()` elements of `x` by its root mean square and multiplies it
/// with `weight` (<https://arxiv.org/abs/1910.07467>).
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len().max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let scale = 1.0 / (dot(x, x) / width as f32 + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }
}

/// Moves each stretch of `weight.len()` elements of `x` to the mean 0 and the variance 1, multiplies it
/// with `weight` and adds `bias` (<https://arxiv.org/abs/1607.06450>).
pub fn layer_norm(x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    let width = weight.len().max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let mean = x.iter().sum::<f32>() / width as f32;
        for (out, x) in out.iter_mut().zip(x) {
            *out = x - mean;
        }
        let scale = 1.0 / (dot(out, out) / width as f32 + eps).sqrt();
        for (out, weight) in out.iter_mut().zip(weight) {
            *out *= scale * weight;
        }
        for (out, bias) in out.iter_mut().zip(bias.unwrap_or_default()) {
            *out += bias;
        }
    }
}

/// Adds `scale * y` to `x`.
pub fn add_scaled(x: &mut [f32], y: &[f32], scale: f32) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += scale * y;
    }
}

/// Replaces `gate` by `gate * sigmoid(gate) * up`.
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate * sigmoid(*gate) * up;
    }
}

/// Replaces `gate` by `gelu(gate) * up`, with the tanh approximation (<https://arxiv.org/abs/1606.08415>).
pub fn gelu_mul(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = gelu_of(*gate) * up;
    }
}

/// Replaces each element by its GELU, with the same approximation.
pub fn gelu(x: &mut [f32]) {
    for x in x {
        *x = gelu_of(*x);
    }
}

fn gelu_of(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// Returns `1 / (1 + exp(-x))`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// `2 i` and `2 i + 1`.
    Neighbours,
    /// `i` and `i + n`, where `n` is the number of pairs.
    Halves,
}

/// Rotates the first pairs of every head of one row (<https://arxiv.org/abs/2104.09864>). `cos` and
/// `sin` have one element for each pair; the rest of a head stays as it is.
pub fn rotate(row: &mut [f32], head_dim: usize, pairs: Pairs, cos: &[f32], sin: &[f32]) {
    let n_pairs = cos.len().min(sin.len());
    for head in row.chunks_exact_mut(head_dim.max(1)) {
        let Some(head) = head.get_mut(..2 * n_pairs) else {
            return;
        };
        match pairs {
            Pairs::Neighbours => {
                for (([a, b], cos), sin) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin)
                {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
            Pairs::Halves => {
                let (first, second) = head.split_at_mut(n_pairs);
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            silu_mul(&mut silu, &up);
            gelu_mul(&mut gated, &up);
            gelu(&mut plain);
            for i in 0..24 {
                let (x, up) = (f64::from(x[i]), f64::from(up[i]));
                prop_assert!(close(silu[i], x / (1.0 + (-x).exp()) * up));
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                prop_assert!(close(plain[i], 0.5 * x * (1.0 + inner.tanh())));
                prop_assert!(close(gated[i], 0.5 * x * (1.0 + inner.tanh()) * up));
            }
        }
    }

    #[test]
    fn pairs_turn_and_the_rest_stays() {
        let (cos, sin) = ([0.0, 1.0], [1.0, 0.0]);
        let mut row = [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        rotate(&mut row, 5, Pairs::Neighbours, &cos, &sin);
        assert_eq!(row, [-2.0, 1.0, 3.0, 4.0, 5.0, -2.0, 1.0, 3.0, 4.0, 5.0]);
        let mut row = [1.0, 2.0, 3.0, 4.0, 5.0];
        rotate(&mut row, 5, Pairs::Halves, &cos, &sin);
        assert_eq!(row, [-3.0, 2.0, 1.0, 4.0, 5.0]);
    }
}
