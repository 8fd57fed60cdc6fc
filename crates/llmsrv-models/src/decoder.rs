//! The forward pass of every decoder, top to bottom.
//!
//! What differs between families is data in [`ArchConfig`]; what differs between devices is
//! behind [`Ops`]. Shapes in comments: `n` rows of the step, `w` width of the residual stream.

use llmsrv_engine::{ModelError, StepPlan};

use crate::{
    arch::{ArchConfig, ExpertsConfig},
    ops::{Affine, Attention, Input, Ops},
    routing::Choices,
    weights::{FeedForward, Gated, Linear, Weights},
};

/// Computes one step: keys and values of all rows go to the KV cache, logits of the wanted rows to
/// `logits`. The plan has been checked.
pub(crate) fn forward<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
    logits: &mut [f32],
) -> Result<(), ModelError> {
    let Some(x) = hidden(arch, weights, ops, plan)? else {
        return Ok(());
    };
    let x = linear(ops, &x, &weights.output)?; // [logit rows, vocabulary]
    ops.read(&x, logits)?;
    let (scale, cap) = (arch.logit_scale, arch.logit_softcap);
    for logit in logits.iter_mut() {
        *logit *= scale;
        if let Some(cap) = cap {
            *logit = cap * (*logit / cap).tanh();
        }
    }
    Ok(())
}

/// As [`forward`], but writes what the logits would be made of: `[wanted rows, w]`.
pub(crate) fn embed<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
    rows: &mut [f32],
) -> Result<(), ModelError> {
    match hidden(arch, weights, ops, plan)? {
        Some(x) => ops.read(&x, rows),
        None => Ok(()),
    }
}

/// Runs all layers; returns the wanted rows after the last norm, if any are wanted.
fn hidden<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
) -> Result<Option<O::Tensor>, ModelError> {
    let angles = arch
        .ropes
        .iter()
        .map(|rope| ops.angles(rope, &plan.positions))
        .collect::<Result<Vec<_>, _>>()?;
    let temperatures: Option<Vec<f32>> = arch.query_temperature.map(|temperature| {
        let steps = plan
            .positions
            .iter()
            .map(|p| *p as usize / temperature.span);
        let factor = |step: usize| 1.0 + temperature.scale * (1.0 + step as f32).ln();
        steps.map(factor).collect()
    });

    // [n, w]
    let mut x = ops.embed(&weights.embedding, &plan.tokens, arch.embedding_scale)?;
    // Images come in the decoder's own scale.
    for rows in &plan.images {
        for (row, from) in rows.rows.clone().zip(rows.first..) {
            x = ops.put_rows(x, row, rows.image.row(from))?;
        }
    }

    for (idx, (config, layer)) in arch.layers.iter().zip(&weights.layers).enumerate() {
        // Attention.
        let input = normed(&x, layer.attention_norm.as_ref(), arch.norm_eps);
        // [n, heads * head_dim], twice [n, kv_heads * head_dim]
        let projections = [&layer.query, &layer.key, &layer.value];
        let [mut query, mut key, value] = linears(ops, input, projections)?;
        if let Some(weight) = &layer.query_norm {
            query = ops.rms_norm(&query, weight, arch.norm_eps)?;
        }
        if let Some(weight) = &layer.key_norm {
            key = ops.rms_norm(&key, weight, arch.norm_eps)?;
        }
        let angles = config.rope.and_then(|rope| angles.get(rope));
        if let Some(angles) = angles {
            query = ops.rotate(query, angles, arch.head_dim)?;
        }
        if let Some(factors) = &temperatures {
            query = ops.scale_rows(query, factors)?;
        }
        ops.append_kv(idx, key, angles, &value, plan)?;
        drop(value);

        // Nothing after the last keys and values matters for rows without logits.
        let is_last = idx + 1 == arch.layers.len();
        if is_last && plan.logit_rows.is_empty() {
            return Ok(None);
        }
        let attention = Attention {
            n_heads: arch.n_heads,
            n_kv_heads: arch.n_kv_heads,
            head_dim: arch.head_dim,
            scale: arch.attention_scale,
            softcap: arch.attention_softcap,
            window: config.window,
        };
        let mut attended = ops.attend(idx, &query, plan, &attention)?; // [n, heads * head_dim]
        drop(query);
        if is_last && plan.logit_rows.len() < plan.tokens.len() {
            attended = ops.take_rows(&attended, &plan.logit_rows)?;
            x = ops.take_rows(&x, &plan.logit_rows)?;
        }
        let attended = Input::Rows(&attended);
        let post_norm = layer.attention_post_norm.as_ref();
        x = add_output(arch, ops, x, attended, &layer.attention_output, post_norm)?;

        // Feed-forward.
        let post_norm = layer.feed_forward_post_norm.as_ref();
        match &layer.feed_forward {
            FeedForward::Dense(network) => {
                let input = normed(&x, layer.feed_forward_norm.as_ref(), arch.norm_eps);
                let hidden = hidden_of(arch, ops, input, network)?;
                let hidden = Input::Rows(&hidden);
                x = add_output(arch, ops, x, hidden, &network.down, post_norm)?;
            }
            FeedForward::Experts {
                config,
                router,
                experts,
                shared,
            } => {
                let weight = layer.feed_forward_norm.as_ref();
                let normed = weight.map(|weight| ops.rms_norm(&x, weight, arch.norm_eps));
                let normed = normed.transpose()?;
                let input = normed.as_ref().unwrap_or(&x);
                let scores = ops.linear(input, router, None)?; // [n, experts]
                let mut delta = mixture(arch, ops, input, &scores, config, experts)?;
                if let Some((network, gate)) = shared {
                    let mut common = gated(arch, ops, input, network)?;
                    if let Some(gate) = gate {
                        let gate = ops.linear(input, gate, None)?; // [n, 1]
                        common = ops.sigmoid_gate(common, &gate)?;
                    }
                    delta = ops.add(delta, &common, 1.0)?;
                }
                drop(normed);
                if let Some(weight) = post_norm {
                    delta = ops.rms_norm(&delta, weight, arch.norm_eps)?;
                }
                x = ops.add(x, &delta, arch.residual_scale)?;
            }
        }
    }

    ops.rms_norm(&x, &weights.output_norm, arch.norm_eps)
        .map(Some)
}

/// Returns what a part of a layer reads: the residual stream, normed if there is a weight for that.
fn normed<'a, O: Ops>(x: &'a O::Tensor, weight: Option<&'a O::Vector>, eps: f32) -> Input<'a, O> {
    match weight {
        Some(weight) => Input::Normed { x, weight, eps },
        None => Input::Rows(x),
    }
}

/// Adds what a part of a layer gives to the residual stream.
fn add_output<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    mut x: O::Tensor,
    input: Input<'_, O>,
    weights: &Linear<O>,
    post_norm: Option<&O::Vector>,
) -> Result<O::Tensor, ModelError> {
    if let Some(weight) = post_norm {
        let [delta] = linears(ops, input, [weights])?; // [n, w]
        let delta = ops.rms_norm(&delta, weight, arch.norm_eps)?;
        return ops.add(x, &delta, arch.residual_scale);
    }
    x = ops.add_linear(x, input, affine(weights), arch.residual_scale)?;
    add_low_rank(ops, x, input, weights, arch.residual_scale)
}

/// Computes a product with its bias.
pub(crate) fn linear<O: Ops>(
    ops: &mut O,
    x: &O::Tensor,
    weights: &Linear<O>,
) -> Result<O::Tensor, ModelError> {
    let [y] = linears(ops, Input::Rows(x), [weights])?;
    Ok(y)
}

/// Computes products of the same rows with their biases.
fn linears<O: Ops, const N: usize>(
    ops: &mut O,
    input: Input<'_, O>,
    weights: [&Linear<O>; N],
) -> Result<[O::Tensor; N], ModelError> {
    let products = ops.linears(input, weights.map(affine))?;
    let mut sums = Vec::with_capacity(N);
    for (y, weights) in products.into_iter().zip(weights) {
        sums.push(add_low_rank(ops, y, input, weights, 1.0)?);
    }
    let sums = sums.try_into();
    sums.map_err(|_| ModelError::Compute("a product is missing".into()))
}

fn affine<O: Ops>(weights: &Linear<O>) -> Affine<'_, O> {
    (&weights.matrix, weights.bias.as_ref())
}

/// Adds to a product, times `scale`, what adapters add to its matrix.
fn add_low_rank<O: Ops>(
    ops: &mut O,
    mut y: O::Tensor,
    input: Input<'_, O>,
    weights: &Linear<O>,
    scale: f32,
) -> Result<O::Tensor, ModelError> {
    for part in &weights.low_rank {
        let [inner] = ops.linears(input, [(&part.down, None)])?; // [n, rank]
        y = ops.add_linear(y, Input::Rows(&inner), (&part.up, None), scale * part.scale)?;
    }
    Ok(y)
}

fn gated<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    network: &Gated<O>,
) -> Result<O::Tensor, ModelError> {
    let hidden = hidden_of(arch, ops, Input::Rows(x), network)?;
    linear(ops, &hidden, &network.down)
}

/// Computes what a gated network has between its matrices.
fn hidden_of<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    input: Input<'_, O>,
    network: &Gated<O>,
) -> Result<O::Tensor, ModelError> {
    let Gated { gate, up, .. } = network;
    if gate.low_rank.is_empty() && up.low_rank.is_empty() {
        return ops.gated_linear(input, affine(gate), affine(up), arch.activation);
    }
    let [gate, up] = linears(ops, input, [gate, up])?;
    ops.gated(gate, &up, arch.activation)
}

/// Sends every row through its experts. Experts run in ascending order, each over the rows that
/// chose it, so the sum of a row does not depend on the other rows.
fn mixture<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    scores: &O::Tensor,
    config: &ExpertsConfig,
    experts: &[Gated<O>],
) -> Result<O::Tensor, ModelError> {
    let n_rows = ops.n_rows(x);
    let mut host_scores = vec![0.0; n_rows * config.n_experts];
    ops.read(scores, &mut host_scores)?;
    let choices = Choices::new(&host_scores, config);
    let mut sum = ops.zeros(n_rows, arch.width)?;
    for (expert, network) in experts.iter().enumerate() {
        let (rows, factors) = choices.of(expert);
        if rows.is_empty() {
            continue;
        }
        let input = ops.take_rows(x, rows)?;
        let output = gated(arch, ops, &input, network)?;
        let output = ops.scale_rows(output, factors)?;
        sum = ops.add_to_rows(sum, rows, &output)?;
    }
    Ok(sum)
}
