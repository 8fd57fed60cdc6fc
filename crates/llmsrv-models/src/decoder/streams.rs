//! Decoders with several residual streams beside each other (AltUp, <https://arxiv.org/abs/2301.13310>).
//!
//! A layer predicts all streams from all, runs its parts on the first one, and corrects all by what came
//! out. Beside attention runs a product of low rank (LAuReL, <https://arxiv.org/abs/2411.07501>).

use std::f32::consts::FRAC_1_SQRT_2;

use llmsrv_engine::{ModelError, StepPlan};

use super::{Rotations, attention, hidden_of, normed_rows, scaled, wanted_rows};
use crate::{
    arch::{ArchConfig, LayerConfig},
    linear::{linear, linears},
    ops::{Input, Ops},
    parts::Part,
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
        let ratios = ops.length_ratios(&stream, &all[0])?;
        all.push(ops.weighted_sum(&[&stream], &ratios, 0)?);
    }

    let mut halves = halving(ops, plan.tokens.len())?;
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
        for stream in &mut all {
            if let Some(there) = ops.copy_to(Part::Layer(idx), stream)? {
                *stream = there;
            }
        }
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
            halves = halving(ops, plan.logit_rows.len())?;
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
        let x = ops.weighted_sum(&parts, &halves, 0)?;

        let input = normed_rows(arch, ops, &x, layer.feed_forward_norm.as_ref())?;
        let delta = feed_forward(arch, ops, &input, network, config)?;
        let x = match &layer.feed_forward_post_norm {
            Some(weight) => {
                ops.add_normed(x, (&delta, weight), arch.norm_eps, 1.0, None)?
                    .0
            }
            None => ops.add(x, &delta, 1.0)?,
        };
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
    let mut shares = vec![ops.plain_rows(&vec![share; ops.n_rows(&all[0])], 1)?];
    for (stream, matrix) in (1..).zip(&streams.gather) {
        all[stream] = ops.linear(&all[stream], matrix, None)?;
        let ratios = ops.length_ratios(&all[stream], &all[0])?;
        shares.push(scaled(ops, ratios, share)?);
    }
    let shares = ops.join(&shares)?; // [n, streams]
    let all: Vec<&O::Tensor> = all.iter().collect();
    let x = ops.weighted_sum(&all, &shares, 0)?;
    normed_rows(arch, ops, &x, Some(&weights.output_norm)).map(Some)
}

/// Predicts all streams at the end of a layer from all of them.
fn predicted<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    all: &[O::Tensor],
    weights: &LayerStreams<O>,
) -> Result<Vec<O::Tensor>, ModelError> {
    let scores = scores(arch, ops, &all[0], weights)?;
    let factors = ops.stream_factors(&scores, &weights.predict)?; // [n, streams * streams]
    let parts: Vec<&O::Tensor> = all.iter().collect();
    let streams = (0..all.len()).map(|stream| {
        let first = stream * all.len();
        ops.weighted_sum(&parts, &factors, first)
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
    let scores = scores(arch, ops, x, weights)?;
    let factors = ops.stream_factors(&scores, &weights.correct)?; // [n, 3 * streams]
    let streams = all.iter().enumerate();
    let streams = streams.map(|(idx, stream)| {
        let parts = [stream, x, &all[0]];
        ops.weighted_sum(&parts, &factors, parts.len() * idx)
    });
    streams.collect()
}

/// Scores each stream in each row: `[n, streams]`.
fn scores<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    weights: &LayerStreams<O>,
) -> Result<O::Tensor, ModelError> {
    let normed = ops.rms_norm(x, &weights.router_norm, arch.norm_eps)?;
    ops.linear(&normed, &weights.router, None)
}

/// Returns four factors for each row, each the root of a half.
fn halving<O: Ops>(ops: &mut O, n_rows: usize) -> Result<O::Tensor, ModelError> {
    ops.plain_rows(&vec![FRAC_1_SQRT_2; 4 * n_rows], 4)
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
