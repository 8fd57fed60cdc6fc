//! The forward pass of every encoder, top to bottom.
//!
//! Shapes in comments: `n` rows of the step, `w` width of the residual stream.

use llmsrv_engine::{ModelError, StepPlan};

use super::{
    config::{EncoderConfig, Positions},
    weights::{EncoderWeights, Network, Plain, RowPart},
};
use crate::{
    arch::{Activation, ExpertsConfig},
    linear::{activated_linear, add_linear, gated_linear, linear, linears},
    ops::{BidirectionalAttention, Input, Ops},
    parts::Part,
    rope::Places,
    routing::Choices,
    weights::Norm,
};

/// Computes whole inputs and writes the wanted rows to `out`: of the last layer, or their scores if
/// the model has a head. `types` are the token types of all rows. The plan has been checked.
pub(crate) fn forward<O: Ops>(
    config: &EncoderConfig,
    weights: &EncoderWeights<O>,
    ops: &mut O,
    plan: &StepPlan,
    types: &[u32],
    out: &mut [f32],
) -> Result<(), ModelError> {
    ops.begin_step(plan)?;
    let eps = config.norm_eps;
    let angles = match &config.positions {
        Positions::Rotation(rope) => Some(ops.angles(rope, Places::of(plan))?),
        Positions::Table | Positions::Slopes(_) => None,
    };
    let attention = BidirectionalAttention {
        n_heads: config.n_heads,
        n_kv_heads: config.n_heads,
        head_dim: config.head_dim,
        scale: 1.0 / (config.head_dim as f32).sqrt(),
        slopes: match &config.positions {
            Positions::Slopes(slopes) => Some(slopes),
            Positions::Table | Positions::Rotation(_) => None,
        },
        reach: None,
    };

    let spans = plan
        .spans
        .iter()
        .map(|span| (span.rows.clone(), span.rows.clone()));
    let spans: Vec<_> = spans.collect();
    // [n, w]
    let mut x = ops.embed(&weights.tokens, &plan.tokens, 1.0)?;
    x = add_row_parts(ops, x, &weights.token_parts, &plan.tokens)?;
    if let Some(table) = &weights.types {
        let rows = ops.embed(table, types, 1.0)?;
        x = ops.add(x, &rows, 1.0)?;
        x = add_row_parts(ops, x, &weights.type_parts, types)?;
    }
    if let Some(table) = &weights.positions {
        let positions = ops.embed(table, &plan.positions, 1.0)?;
        x = ops.add(x, &positions, 1.0)?;
    }
    x = norm(ops, &x, &weights.norm, eps)?;

    for (idx, layer) in weights.layers.iter().enumerate() {
        if let Some(there) = ops.copy_to(Part::Layer(idx), &x)? {
            x = there;
        }
        // Attention.
        let parts = [&layer.query, &layer.key, &layer.value];
        let [mut query, mut key, value] = linears(ops, Input::Rows(&x), parts)?;
        if let Some(weights) = &layer.query_norm {
            query = norm(ops, &query, weights, eps)?;
        }
        if let Some(weights) = &layer.key_norm {
            key = norm(ops, &key, weights, eps)?;
        }
        if let Some(angles) = &angles {
            query = ops.rotate(query, angles, config.head_dim)?;
            key = ops.rotate(key, angles, config.head_dim)?;
        }
        let mut attended = ops.attend_bidirectional(&query, &key, &value, &spans, &attention)?;
        drop((query, key, value));
        // After the last meeting of rows only the wanted ones matter.
        let is_last = idx + 1 == weights.layers.len();
        if is_last && plan.logit_rows.len() < plan.tokens.len() {
            attended = ops.gather_rows(&attended, &plan.logit_rows)?;
            x = ops.gather_rows(&x, &plan.logit_rows)?;
        }
        let attended = Input::Rows(&attended);
        let between = if let Some(weights) = &layer.second_norm {
            let [delta] = linears(ops, attended, [&layer.attention_output])?;
            let sum = ops.add(delta, &x, 1.0)?;
            let normed = norm(ops, &sum, &layer.attention_norm, eps)?;
            let sum = ops.add(normed, &x, 1.0)?;
            norm(ops, &sum, weights, eps)?
        } else {
            let sum = add_linear(ops, x, attended, &layer.attention_output, 1.0)?;
            norm(ops, &sum, &layer.attention_norm, eps)?
        };

        // Feed-forward.
        let sum = match &layer.network {
            Network::Plain(network) => {
                let hidden = hidden(ops, &between, network)?;
                add_linear(ops, between, Input::Rows(&hidden), &network.down, 1.0)?
            }
            Network::GatedMlp { gate, up, down } => {
                let hidden =
                    gated_linear(ops, Input::Rows(&between), (gate, up), config.activation)?;
                add_linear(ops, between, Input::Rows(&hidden), down, 1.0)?
            }
            Network::Experts {
                config: chosen,
                router,
                experts,
                on_device,
            } => {
                let scores = ops.linear(&between, router, None)?;
                let delta = match on_device {
                    Some(on_device) => ops.mixture(&between, &scores, on_device)?,
                    None => moe(ops, &between, &scores, chosen, experts)?,
                };
                ops.add(delta, &between, 1.0)?
            }
        };
        x = norm(ops, &sum, &layer.output_norm, eps)?;
    }

    match &weights.head {
        Some(head) => head.read(ops, x, out),
        None => ops.read(&x, out),
    }
}

/// Adds what adapters add to the rows of a table that were looked up.
fn add_row_parts<O: Ops>(
    ops: &mut O,
    mut x: O::Tensor,
    parts: &[RowPart<O>],
    indices: &[u32],
) -> Result<O::Tensor, ModelError> {
    for part in parts {
        let rows = ops.embed(&part.rows, indices, 1.0)?; // [n, rank]
        x = ops.add_linear(x, Input::Rows(&rows), (&part.up, None), part.scale)?;
    }
    Ok(x)
}

fn norm<O: Ops>(
    ops: &mut O,
    x: &O::Tensor,
    weights: &Norm<O>,
    eps: f32,
) -> Result<O::Tensor, ModelError> {
    ops.layer_norm(x, &weights.weight, weights.bias.as_ref(), eps)
}

/// Computes what a network has between its matrices.
fn hidden<O: Ops>(ops: &mut O, x: &O::Tensor, network: &Plain<O>) -> Result<O::Tensor, ModelError> {
    activated_linear(ops, Input::Rows(x), &network.up, Activation::Gelu)
}

/// Sends every row through its experts, in ascending order, so the sum of a row does not depend on
/// the other rows.
fn moe<O: Ops>(
    ops: &mut O,
    x: &O::Tensor,
    scores: &O::Tensor,
    config: &ExpertsConfig,
    experts: &[Plain<O>],
) -> Result<O::Tensor, ModelError> {
    let n_rows = ops.n_rows(x);
    let mut host_scores = vec![0.0; n_rows * config.n_experts];
    ops.read(scores, &mut host_scores)?;
    let choices = Choices::new(&host_scores, None, config);
    let mut sum = ops.zeros(x)?;
    for (expert, network) in experts.iter().enumerate() {
        let (rows, factors) = choices.of(expert);
        if rows.is_empty() {
            continue;
        }
        let input = ops.gather_rows(x, rows)?;
        let hidden = hidden(ops, &input, network)?;
        let output = linear(ops, &hidden, &network.down)?;
        let output = ops.scale_rows(output, factors)?;
        sum = ops.add_to_rows(sum, rows, &output)?;
    }
    Ok(sum)
}
