//! Decoders with several residual streams beside each other (AltUp, <https://arxiv.org/abs/2301.13310>).
//!
//! A layer predicts all streams from all, runs its parts on the first one, and corrects all by what came
//! out. Beside attention runs a product of low rank (LAuReL, <https://arxiv.org/abs/2411.07501>).

use std::f32::consts::FRAC_1_SQRT_2;

use llmsrv_engine::{ModelError, StepPlan};

use super::{Rotations, attention, hidden_of, normed_rows, wanted_rows};
use crate::{
    arch::{ArchConfig, LayerConfig},
    linear::{linear, linears},
    ops::{Input, Ops},
    weights::{FeedForward, LayerInput, LayerStreams, Mixer, Mlp, Streams, Weights},
};

/// As [`super::hidden`], from the embeddings `x` on; `inputs` are what layers take from the tokens by
/// themselves.
pub(super) fn hidden<O: Ops>(
    arch: &ArchConfig,
    (weights, streams): (&Weights<O>, &Streams<O>),
    ops: &mut O,
    plan: &StepPlan,
    (x, mut inputs): (O::Tensor, Option<O::Tensor>),
) -> Result<Option<O::Tensor>, ModelError> {
    let mut rotations = Rotations::new(arch, ops, plan)?;
    let n_streams = streams.spread.len() + 1;
    let mut all = vec![x]; // each [n, w]
    for matrix in &streams.spread {
        let stream = ops.linear(&all[0], matrix, None)?;
        let factors = like(ops, arch.width, &all[0], &stream)?;
        all.push(ops.scale_rows(stream, &factors)?);
    }

    let last_storing = arch.last_storing();
    let mut wanted: Option<StepPlan> = None;
    for (idx, (config, layer)) in arch.layers.iter().zip(&weights.layers).enumerate() {
        let now = wanted.as_ref().unwrap_or(plan);
        let (
            [(Mixer::Attention(of_attention), output)],
            FeedForward::Dense(network),
            Some(of_streams),
        ) = (&layer.mixers[..], &layer.feed_forward, &layer.streams)
        else {
            return Err(ModelError::Compute("a layer without its streams".into()));
        };
        all = predicted(arch, ops, &all, of_streams)?;
        let mut input = normed_rows(arch, ops, &all[0], layer.attention_norm.as_ref())?;
        let is_last = idx == last_storing;
        let ends = is_last && plan.logit_rows.is_empty();
        let rows = (Input::Rows(&input), ends);
        let attended = attention(arch, ops, rows, (config, of_attention), &rotations, now)?;
        let Some(mut attended) = attended.filter(|_| !ends) else {
            ops.end_step()?;
            return Ok(None);
        };
        if is_last && plan.logit_rows.len() < plan.tokens.len() {
            for rows in all.iter_mut().chain([&mut attended, &mut input]) {
                *rows = ops.gather_rows(rows, &plan.logit_rows)?;
            }
            if let Some(all) = &inputs {
                inputs = Some(ops.gather_rows(all, &plan.logit_rows)?);
            }
            if idx + 1 < arch.layers.len() {
                let left = wanted_rows(plan);
                ops.begin_step(&left)?;
                rotations = Rotations::new(arch, ops, &left)?;
                wanted = Some(left);
            }
        }
        let attended = linear(ops, &attended, output)?;
        let attended = normed(arch, ops, attended, layer.attention_post_norm.as_ref())?;
        let low = ops.linear(&input, &of_streams.down, None)?; // [n, rank]
        let low = ops.linear(&low, &of_streams.up, None)?;
        let low = ops.rms_norm(&low, &of_streams.low_norm, arch.norm_eps)?;
        let parts = [attended, input, low];
        let parts = [&parts[0], &all[0], &parts[1], &parts[2]];
        let x = ops.weighted_sum(&parts, &vec![FRAC_1_SQRT_2; 4 * ops.n_rows(&all[0])])?;

        let input = normed_rows(arch, ops, &x, layer.feed_forward_norm.as_ref())?;
        let delta = feed_forward(arch, ops, &input, network, config)?;
        let delta = normed(arch, ops, delta, layer.feed_forward_post_norm.as_ref())?;
        let x = ops.add(delta, &x, 1.0)?;
        all = corrected(arch, ops, &all, &x, of_streams)?;

        if let (Some(of_input), Some(tokens), Some(part)) =
            (&layer.input, &inputs, arch.per_layer_input)
        {
            let of_layer = ops.columns(tokens, idx * part, part)?; // [n, part]
            let delta = from_token(arch, ops, (&all[0], &of_layer), of_input, of_streams)?;
            let mut changed = Vec::with_capacity(n_streams);
            for (stream, x) in all.into_iter().enumerate() {
                changed.push(if stream == 0 {
                    x
                } else {
                    ops.add(x, &delta, 1.0)?
                });
            }
            all = changed;
        }
    }

    let share = 1.0 / n_streams as f32;
    let n_rows = ops.n_rows(&all[0]);
    let mut factors = vec![share; n_rows * n_streams];
    for (stream, matrix) in (1..).zip(&streams.gather) {
        let x = ops.linear(&all[stream], matrix, None)?;
        let sizes = like(ops, arch.width, &all[0], &x)?;
        for (row, size) in factors.chunks_exact_mut(n_streams).zip(sizes) {
            if let Some(factor) = row.get_mut(stream) {
                *factor = share * size;
            }
        }
        all[stream] = x;
    }
    let all: Vec<&O::Tensor> = all.iter().collect();
    let x = ops.weighted_sum(&all, &factors)?;
    normed_rows(arch, ops, &x, Some(&weights.output_norm)).map(Some)
}

/// Predicts all streams at the end of a layer from all of them.
fn predicted<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    all: &[O::Tensor],
    weights: &LayerStreams<O>,
) -> Result<Vec<O::Tensor>, ModelError> {
    let n = all.len();
    let routed = routed(arch, ops, &all[0], n, weights)?; // [n, streams]
    let parts: Vec<&O::Tensor> = all.iter().collect();
    let streams = weights.predict.chunks_exact(n * n).enumerate();
    let streams = streams.map(|(stream, coefficients)| {
        let of_row = |routed: &[f32]| -> Vec<f32> {
            let sums = coefficients.chunks_exact(n).map(|row| dot(row, routed));
            let own = (0..n).map(|from| f32::from(u8::from(from == stream)));
            sums.zip(own).map(|(sum, own)| sum + own).collect()
        };
        let factors: Vec<f32> = routed.chunks_exact(n).flat_map(of_row).collect();
        ops.weighted_sum(&parts, &factors)
    });
    streams.collect()
}

/// Adds to all predicted streams, each with a factor of its own, by how much the layer's result `x` differs
/// from what was predicted of the first one.
fn corrected<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    all: &[O::Tensor],
    x: &O::Tensor,
    weights: &LayerStreams<O>,
) -> Result<Vec<O::Tensor>, ModelError> {
    let n = all.len();
    let routed = routed(arch, ops, x, n, weights)?;
    let streams = all.iter().zip(weights.correct.chunks_exact(n));
    let streams = streams.map(|(stream, coefficients)| {
        let of_row = |routed: &[f32]| {
            let factor = 1.0 + dot(coefficients, routed);
            [1.0, factor, -factor]
        };
        let factors: Vec<f32> = routed.chunks_exact(n).flat_map(of_row).collect();
        ops.weighted_sum(&[stream, x, &all[0]], &factors)
    });
    streams.collect()
}

/// Computes how much each stream matters in each row, -1 to 1: `[n, streams]`.
fn routed<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    n_streams: usize,
    weights: &LayerStreams<O>,
) -> Result<Vec<f32>, ModelError> {
    let normed = ops.rms_norm(x, &weights.router_norm, arch.norm_eps)?;
    let scores = ops.linear(&normed, &weights.router, None)?;
    let mut routed = vec![0.0; ops.n_rows(&scores) * n_streams];
    ops.read(&scores, &mut routed)?;
    for score in &mut routed {
        *score = score.tanh();
    }
    Ok(routed)
}

/// Computes a gated network, of which some layers let only the peaks of the gate through.
fn feed_forward<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    input: &O::Tensor,
    network: &Mlp<O>,
    config: &LayerConfig,
) -> Result<O::Tensor, ModelError> {
    let input = Input::Rows(input);
    let hidden = match (config.gate_cutoff, &network.gate) {
        (Some(cutoff), Some(gate)) => {
            let [gate, up] = linears(ops, input, [gate, &network.up])?;
            let gate = ops.peaks(gate, cutoff)?;
            ops.gated(gate, &up, arch.activation)?
        }
        _ => hidden_of(arch, ops, input, network)?,
    };
    linear(ops, &hidden, &network.down)
}

/// Computes what a layer takes from the tokens by themselves, by what is in the first stream.
fn from_token<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    (x, of_layer): (&O::Tensor, &O::Tensor),
    weights: &LayerInput<O>,
    streams: &LayerStreams<O>,
) -> Result<O::Tensor, ModelError> {
    let scaled = ops.scale_columns(x, &streams.scale)?;
    let gate = ops.linear(&scaled, &weights.gate, None)?;
    let hidden = ops.gated(gate, of_layer, arch.activation)?;
    let delta = ops.linear(&hidden, &weights.projection, None)?;
    ops.rms_norm(&delta, &weights.norm, arch.norm_eps)
}

/// Returns the factors that make the rows of `x` as long as those of `model`.
fn like<O: Ops>(
    ops: &mut O,
    width: usize,
    model: &O::Tensor,
    x: &O::Tensor,
) -> Result<Vec<f32>, ModelError> {
    let mut lengths = |x: &O::Tensor| {
        let mut rows = vec![0.0; ops.n_rows(x) * width];
        ops.read(x, &mut rows)?;
        let squares = rows.chunks_exact(width);
        let squares = squares.map(|row| row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum());
        Ok(squares.map(f64::sqrt).collect::<Vec<f64>>())
    };
    let (wanted, found) = (lengths(model)?, lengths(x)?);
    let factors = wanted.into_iter().zip(found);
    let factors = factors.map(|(wanted, found)| (wanted / found.max(SHORTEST)) as f32);
    Ok(factors.collect())
}

fn normed<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: O::Tensor,
    weight: Option<&O::Vector>,
) -> Result<O::Tensor, ModelError> {
    match weight {
        Some(weight) => ops.rms_norm(&x, weight, arch.norm_eps),
        None => Ok(x),
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Keeps a row of zeros from dividing by zero.
const SHORTEST: f64 = 1e-30;
