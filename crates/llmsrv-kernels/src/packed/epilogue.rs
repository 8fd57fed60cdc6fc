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
    /// For each token as many as the row panel has rows.
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
        Instructions::Avx2 => {
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
    if row_panel.residual == Residual::Kept {
        row_panel.results = add_residuals(row_panel.results, row_panel.n_lanes);
        if row_panel.gate.is_some() {
            row_panel.gates = add_residuals(row_panel.gates, row_panel.n_lanes);
        }
    }
    if !row_panel.bias.is_empty() {
        for results in row_panel.results.chunks_exact_mut(row_panel.n_lanes) {
            for (result, bias) in results.iter_mut().zip(row_panel.bias) {
                *result += bias;
            }
        }
    }
    if let Some(gate) = row_panel.gate {
        let results = row_panel.results.as_chunks_mut::<LANES>().0.iter_mut();
        for (results, gates) in results.zip(row_panel.gates.as_chunks::<LANES>().0) {
            let pairs = results.iter_mut().zip(gates);
            match gate {
                Gate::Silu => {
                    for (result, gate) in pairs {
                        *result *= silu_of::<FUSED>(*gate);
                    }
                }
                Gate::Gelu => {
                    for (result, gate) in pairs {
                        *result *= gelu_tanh::<FUSED>(*gate);
                    }
                }
            }
        }
    }
    if let Some(activation) = row_panel.activation {
        for results in row_panel.results.as_chunks_mut::<LANES>().0 {
            for result in results {
                *result = match activation {
                    Gate::Silu => silu_of::<FUSED>(*result),
                    Gate::Gelu => gelu_tanh::<FUSED>(*result),
                };
            }
        }
    }
    let tokens = row_panel
        .results
        .chunks_exact(row_panel.n_lanes)
        .enumerate();
    for (token, results) in tokens {
        // SAFETY: there is room for the rows of each token.
        let out = unsafe {
            let out = row_panel.out.add(token * row_panel.out_stride);
            std::slice::from_raw_parts_mut(out, row_panel.n_rows)
        };
        // Vectors, and what is left in the last row panel.
        let (whole, rest) = out.as_chunks_mut::<LANES>();
        let (of_whole, of_residual) = results.split_at(whole.len() * LANES);
        for (out, results) in whole.iter_mut().zip(of_whole.as_chunks::<LANES>().0) {
            write::<FUSED>(out, results, row_panel.add);
        }
        write::<FUSED>(rest, of_residual, row_panel.add);
    }
}

/// Adds to the `n` results of every other token those of the one behind it; returns the sums. A row panel has whole
/// vectors of rows.
#[inline(always)]
fn add_residuals(results: &mut [f32], n: usize) -> &mut [f32] {
    let vectors = results.as_chunks_mut::<LANES>().0;
    let (of_token, n_tokens) = (n / LANES, vectors.len() * LANES / n / 2);
    for token in 0..n_tokens {
        for at in 0..of_token {
            let sum = vectors[2 * token * of_token + at];
            let residual = vectors[(2 * token + 1) * of_token + at];
            let out = &mut vectors[token * of_token + at];
            for ((out, sum), residual) in out.iter_mut().zip(sum).zip(residual) {
                *out = sum + residual;
            }
        }
    }
    &mut results[..n_tokens * n]
}

#[inline(always)]
fn write<const FUSED: bool>(out: &mut [f32], results: &[f32], add: Option<f32>) {
    match add {
        Some(scale) => {
            for (out, result) in out.iter_mut().zip(results) {
                *out = fma::<FUSED>(scale, *result, *out);
            }
        }
        None => {
            for (out, result) in out.iter_mut().zip(results) {
                *out = *result;
            }
        }
    }
}

/// Lanes of a vector.
const LANES: usize = 16;
