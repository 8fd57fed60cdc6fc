//! What becomes of the results of a row panel for a column panel of tokens before they are written: while they are in
//! the first cache, this costs little; as operations of their own, it would read and write all of them again.

use super::Residual;
use crate::{
    Instructions,
    elementwise::{gelu_tanh, silu_of},
    tier::{SCALAR_IS_FUSED, fma},
};

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU, with the tanh approximation.
    Gelu,
}

/// The results of a row panel for a column panel of tokens, and what is to be done with them.
pub(super) struct RowPanel<'a> {
    /// For each token as many as the row panel has rows, and room behind them.
    pub(super) results: &'a mut [f32],
    /// Added to the results of each token, unless it is empty.
    pub(super) bias: &'a [f32],
    /// Multiplies the results with its activation of `gates`, which are as many.
    pub(super) gate: Option<Gate>,
    pub(super) gates: &'a mut [f32],
    /// Whether every other token is the residual of the one before, to which it is added first.
    pub(super) residual: Residual,
    /// Replaces the results, with their bias, by its values.
    pub(super) activation: Option<Gate>,
    /// Whether results are added, times this, to what is there.
    pub(super) add: Option<f32>,
    /// With residuals.
    pub(super) n_tokens: usize,
    /// Results of a token.
    pub(super) n_lanes: usize,
    /// Those of rows that there are.
    pub(super) n_rows: usize,
    /// Where those of the first token are written.
    pub(super) out: *mut f32,
    /// From one token to the next.
    pub(super) out_stride: usize,
}

/// Returns the function that finishes row panels. It wants a processor with the instructions, and room for
/// `n_rows` elements for each token.
pub(super) fn of_tier(tier: Instructions) -> unsafe fn(RowPanel<'_>) {
    match tier {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 | Instructions::Avx512Bf16 => {
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
            unsafe fn compiled(row_panel: RowPanel<'_>) {
                // SAFETY: the caller's promise.
                unsafe { finish::<true>(row_panel) }
            }
            compiled
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 | Instructions::AvxVnni => {
            #[target_feature(enable = "avx2,fma")]
            unsafe fn compiled(row_panel: RowPanel<'_>) {
                // SAFETY: the caller's promise.
                unsafe { finish::<true>(row_panel) }
            }
            compiled
        }
        _ => finish::<SCALAR_IS_FUSED>,
    }
}

#[inline(always)]
unsafe fn finish<const FUSED: bool>(mut row_panel: RowPanel<'_>) {
    let of_token = row_panel.n_lanes / LANES;
    if row_panel.residual == Residual::Kept {
        row_panel.n_tokens /= 2;
        add_residuals(row_panel.results, row_panel.n_tokens, of_token);
        if row_panel.gate.is_some() {
            add_residuals(row_panel.gates, row_panel.n_tokens, of_token);
        }
    }
    // Each step copies a vector before it changes it: that slices are different memory is not known here, so the
    // compiler would go through them element by element.
    let vectors = row_panel.results.as_chunks_mut::<LANES>().0;
    let vectors = &mut vectors[..row_panel.n_tokens * of_token];
    if !row_panel.bias.is_empty() {
        for token in vectors.chunks_exact_mut(of_token) {
            for (y, bias) in token.iter_mut().zip(row_panel.bias.chunks(LANES)) {
                match bias.as_array() {
                    Some(bias) => *y = add(*y, *bias),
                    // The last row panel may have fewer rows.
                    None => (y.iter_mut().zip(bias)).for_each(|(y, bias)| *y += bias),
                }
            }
        }
    }
    if let Some(gate) = row_panel.gate {
        let gates = row_panel.gates.as_chunks::<LANES>().0;
        for (y, gate_of_y) in vectors.iter_mut().zip(gates) {
            let mut product = activated::<FUSED>(gate, *gate_of_y);
            for (product, y) in product.iter_mut().zip(*y) {
                *product *= y;
            }
            *y = product;
        }
    }
    if let Some(activation) = row_panel.activation {
        for y in &mut *vectors {
            *y = activated::<FUSED>(activation, *y);
        }
    }
    let (n_whole, n_rest) = (row_panel.n_rows / LANES, row_panel.n_rows % LANES);
    for token in 0..row_panel.n_tokens {
        let y = &vectors[token * of_token..];
        // SAFETY: there is room for the rows of each token.
        let out = unsafe { row_panel.out.add(token * row_panel.out_stride) };
        for (at, y) in y[..n_whole].iter().enumerate() {
            // SAFETY: as above; this vector is before the last row.
            let out = unsafe { &mut *out.add(at * LANES).cast() };
            write::<FUSED>(out, *y, row_panel.add);
        }
        if n_rest > 0 {
            // SAFETY: as above; these are the last rows.
            let rest = unsafe { std::slice::from_raw_parts_mut(out.add(n_whole * LANES), n_rest) };
            let mut last = [0.0; LANES];
            last[..n_rest].copy_from_slice(rest);
            write::<FUSED>(&mut last, y[n_whole], row_panel.add);
            rest.copy_from_slice(&last[..n_rest]);
        }
    }
}

#[inline(always)]
fn add(mut a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}

/// Adds to the results of each token, which are `of_token` vectors, those of its residual behind it, and puts the sums
/// at the beginning.
#[inline(always)]
fn add_residuals(results: &mut [f32], n_tokens: usize, of_token: usize) {
    let vectors = results.as_chunks_mut::<LANES>().0;
    for token in 0..n_tokens {
        for at in 0..of_token {
            let rounded = 2 * token * of_token + at;
            vectors[token * of_token + at] = add(vectors[rounded], vectors[rounded + of_token]);
        }
    }
}

#[inline(always)]
fn activated<const FUSED: bool>(activation: Gate, mut x: [f32; LANES]) -> [f32; LANES] {
    match activation {
        Gate::Silu => {
            for x in &mut x {
                *x = silu_of::<FUSED>(*x);
            }
        }
        Gate::Gelu => {
            for x in &mut x {
                *x = gelu_tanh::<FUSED>(*x);
            }
        }
    }
    x
}

#[inline(always)]
fn write<const FUSED: bool>(out: &mut [f32; LANES], mut y: [f32; LANES], add: Option<f32>) {
    if let Some(scale) = add {
        for (y, before) in y.iter_mut().zip(*out) {
            *y = fma::<FUSED>(scale, *y, before);
        }
    }
    *out = y;
}

/// Lanes of a vector.
const LANES: usize = 16;
