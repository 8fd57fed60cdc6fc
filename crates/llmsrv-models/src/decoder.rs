//! The forward pass of every decoder, top to bottom.
//!
//! What differs between families is data in [`ArchConfig`]; what differs between devices is
//! behind [`Ops`]. Shapes in comments: `n` rows of the step, `w` width of the residual stream.

mod streams;

use std::f32::consts::FRAC_1_SQRT_2;

use llmsrv_engine::{ModelError, Span, StepPlan};
use smallvec::SmallVec;

use crate::{
    arch::{
        Activation, ArchConfig, Classifier, ExpertsInput, LatentConfig, LayerConfig, NormKind,
        QkNorm, Temperature,
    },
    linear::{Linear, activated_linear, add_linear, gated_linear, grouped_linear, linear, linears},
    ops::{Attention, BidirectionalAttention, DeltaRule, Input, Ops, SelectiveScan},
    parts::Part,
    rope::Places,
    routing::Choices,
    weights::{
        AttentionWeights, DeltaNetWeights, Experts, FeedForward, LatentWeights, Mixer, Mlp, Norm,
        ScanWeights, ShortConvWeights, Weights,
    },
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
    let output = weights.output.as_ref().ok_or(ModelError::NoText)?;
    let x = linear(ops, &x, output)?; // [logit rows, vocabulary]
    ops.read(&x, logits)?;
    let (scale, cap) = (arch.logit_scale, arch.logit_softcap);
    for logit in logits.iter_mut() {
        *logit *= scale;
        if let Some(cap) = cap {
            *logit = cap * (*logit / cap).tanh();
        }
    }
    if !arch.suppressed.is_empty() {
        let n_rows = plan.logit_rows.len().max(1);
        for row in logits.chunks_exact_mut((logits.len() / n_rows).max(1)) {
            for token in &arch.suppressed {
                if let Some(logit) = row.get_mut(*token as usize) {
                    *logit = NEVER;
                }
            }
        }
    }
    Ok(())
}

/// As [`forward`], but writes what the logits would be made of, or what the head of the model makes of
/// that: `[wanted rows, w]`, or as many elements as the head gives.
pub(crate) fn embed<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
    rows: &mut [f32],
) -> Result<(), ModelError> {
    let x = match arch.classifier {
        Some(Classifier::Mean) => means(arch, weights, ops, plan)?,
        Some(Classifier::First) | None => hidden(arch, weights, ops, plan)?,
    };
    match (x, &weights.head) {
        (None, _) => Ok(()),
        (Some(x), None) => ops.read(&x, rows),
        (Some(x), Some(head)) => head.read(ops, x, rows),
    }
}

/// As [`hidden`], but each wanted row is the mean of all rows of its text.
fn means<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
) -> Result<Option<O::Tensor>, ModelError> {
    let n_rows = plan.tokens.len();
    let all = StepPlan {
        logit_rows: (0..n_rows as u32).collect(),
        ..plan.clone()
    };
    let Some(x) = hidden(arch, weights, ops, &all)? else {
        return Ok(None);
    };
    let mut values = vec![0.0; n_rows * arch.width];
    ops.read(&x, &mut values)?;
    let mut means = vec![0.0; plan.logit_rows.len() * arch.width];
    for (row, mean) in plan
        .logit_rows
        .iter()
        .zip(means.chunks_exact_mut(arch.width))
    {
        let mut spans = plan.spans.iter().map(|span| &span.rows);
        let Some(rows) = spans.find(|rows| rows.contains(&(*row as usize))) else {
            continue;
        };
        let share = 1.0 / rows.len() as f32;
        let of_text = values.chunks_exact(arch.width).skip(rows.start);
        for own in of_text.take(rows.len()) {
            for (sum, value) in mean.iter_mut().zip(own) {
                *sum += share * value;
            }
        }
    }
    ops.plain_rows(&means, arch.width).map(Some)
}

/// Runs all layers; returns the wanted rows after the last norm, if any are wanted.
fn hidden<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
) -> Result<Option<O::Tensor>, ModelError> {
    ops.begin_step(plan)?;

    // [n, w]
    let mut x = ops.embed(&weights.embedding, &plan.tokens, arch.embedding_scale)?;
    // Images come in the decoder's own scale.
    for rows in &plan.images {
        for (row, from) in rows.rows.clone().zip(rows.first..) {
            let own = rows.image.row(from).get(..arch.width);
            x = ops.scatter_rows(x, row, own.unwrap_or_default())?;
        }
    }
    if let Some(norm) = &weights.embedding_norm {
        x = normed_rows(arch, ops, &x, Some(norm))?;
    }
    if let Some(table) = &weights.positions {
        let positions = ops.embed(table, &plan.positions, 1.0)?;
        x = ops.add(x, &positions, 1.0)?;
    }
    let mut inputs = per_layer_inputs(arch, weights, ops, plan, &x)?; // [n, layers * part]
    if let Some(streams) = &weights.streams {
        return streams::hidden(arch, (weights, streams), ops, plan, (x, inputs));
    }
    let mut rotations = Rotations::new(arch, ops, plan)?;

    let last_storing = arch.last_storing();
    // The rows that are left once no keys and values are stored any more.
    let mut wanted: Option<StepPlan> = None;
    for (idx, (config, layer)) in arch.layers.iter().zip(&weights.layers).enumerate() {
        let now = wanted.as_ref().unwrap_or(plan);
        if let Some(there) = ops.copy_to(Part::Layer(idx), &x)? {
            x = there;
        }
        let mut early = match &layer.feed_forward {
            FeedForward::Experts(experts) => before_layer(arch, ops, &x, experts)?,
            FeedForward::None | FeedForward::Dense(_) => None,
        };
        // What the rows know of each other.
        let mut held = None;
        let input = normed(arch, ops, &x, layer.attention_norm.as_ref(), &mut held)?;
        let is_last = idx == last_storing;
        // Nothing after the last keys and values, or the last state, matters for rows without logits.
        let ends = is_last && plan.logit_rows.is_empty();
        let eps = arch.norm_eps;
        let mut mixed = SmallVec::<[_; 2]>::new();
        for (mixer, output) in &layer.mixers {
            let rows = match mixer {
                Mixer::Attention(weights) => {
                    let rows = (input, ends);
                    attention(arch, ops, rows, (config, weights), &rotations, now)?
                }
                Mixer::Latent(weights) => {
                    let rows = (input, ends);
                    latent(arch, ops, rows, (config, weights), &rotations, now)?
                }
                Mixer::ShortConv(weights) => Some(short_conv(ops, input, idx, weights, now)?),
                Mixer::DeltaNet(weights) => Some(delta_net(ops, eps, input, idx, weights, now)?),
                Mixer::Scan(weights) => Some(scan(ops, eps, input, idx, weights, now)?),
            };
            mixed.extend(rows.map(|rows| (rows, output)));
        }
        drop(held);
        if ends {
            ops.end_step()?;
            return Ok(None);
        }
        if is_last && plan.logit_rows.len() < plan.tokens.len() {
            for (rows, _) in &mut mixed {
                *rows = ops.gather_rows(rows, &plan.logit_rows)?;
            }
            x = ops.gather_rows(&x, &plan.logit_rows)?;
            if let Some(all) = early {
                early = Some(ops.gather_rows(&all, &plan.logit_rows)?);
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
        // What the second part reads, before the first one changes it.
        let mut before = None;
        if arch.parallel {
            let norm = layer.feed_forward_norm.as_ref();
            before = Some(normed_rows(arch, ops, &x, norm)?);
        }
        let post_norm = layer.attention_post_norm.as_ref();
        // What the second part reads, if adding made that too.
        let mut ready = None;
        let next = match (&layer.feed_forward_norm, arch.norm) {
            (Some(norm), NormKind::Rms) if !arch.parallel => Some(&norm.weight),
            _ => None,
        };
        for (rows, output) in mixed {
            let input = Input::Rows(&rows);
            (x, ready) = residual_add(arch, ops, x, input, (output, post_norm, next))?;
        }

        // Feed-forward.
        let post_norm = layer.feed_forward_post_norm.as_ref();
        match &layer.feed_forward {
            FeedForward::None => {}
            FeedForward::Dense(network) => {
                let mut held = None;
                let norm = layer.feed_forward_norm.as_ref();
                let input = match before.as_ref().or(ready.as_ref()) {
                    Some(rows) => Input::Rows(rows),
                    None => normed(arch, ops, &x, norm, &mut held)?,
                };
                let hidden = hidden_of(arch, ops, input, network)?;
                let hidden = Input::Rows(&hidden);
                (x, _) = residual_add(arch, ops, x, hidden, (&network.down, post_norm, None))?;
            }
            FeedForward::Experts(experts) => {
                let input = match before.or(ready) {
                    Some(rows) => rows,
                    None => normed_rows(arch, ops, &x, layer.feed_forward_norm.as_ref())?,
                };
                let delta = experts_of(arch, ops, (&x, early), &input, experts)?;
                x = match post_norm {
                    Some(weight) => {
                        let scale = arch.residual_scale;
                        ops.add_normed(x, (&delta, weight), eps, scale, None)?.0
                    }
                    None => ops.add(x, &delta, arch.residual_scale)?,
                };
            }
        }

        if let (Some(weights), Some(all), Some(part)) =
            (&layer.input, &inputs, arch.per_layer_input)
        {
            let of_layer = ops.columns(all, idx * part, part)?; // [n, part]
            let gate = ops.linear(&x, &weights.gate, None)?;
            let hidden = ops.gated(gate, &of_layer, arch.activation)?;
            let delta = ops.linear(&hidden, &weights.projection, None)?; // [n, w]
            (x, _) = ops.add_normed(x, (&delta, &weights.norm), eps, 1.0, None)?;
        }
        if let Some(scale) = layer.output_scale {
            x = scaled(ops, x, scale)?;
        }
        // Those layers are before the last one, so all rows are still there.
        if idx < arch.deepstack {
            x = with_further_parts(arch, ops, x, idx + 1, plan)?;
        }
    }

    normed_rows(arch, ops, &x, Some(&weights.output_norm)).map(Some)
}

/// Adds part number `part` of the rows of images to their rows of the residual stream.
fn with_further_parts<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    mut x: O::Tensor,
    part: usize,
    plan: &StepPlan,
) -> Result<O::Tensor, ModelError> {
    let columns = part * arch.width..(part + 1) * arch.width;
    for rows in &plan.images {
        let from = rows.first..rows.first + rows.rows.len();
        let parts = from.filter_map(|row| rows.image.row(row).get(columns.clone()));
        let values: Vec<f32> = parts.flatten().copied().collect();
        let places: Vec<u32> = rows.rows.clone().map(|row| row as u32).collect();
        // Rows of the right shape, of which nothing stays.
        let added = ops.gather_rows(&x, &places)?;
        let added = ops.scatter_rows(added, 0, &values)?;
        x = ops.add_to_rows(x, &places, &added)?;
    }
    Ok(x)
}

/// What the positions of rows do to them.
struct Rotations<O: Ops> {
    /// Cosines and sines of each of [`ArchConfig::ropes`].
    angles: SmallVec<[O::Angles; 4]>,
    /// Factors of the queries.
    temperatures: Option<Vec<f32>>,
}

impl<O: Ops> Rotations<O> {
    fn new(arch: &ArchConfig, ops: &mut O, plan: &StepPlan) -> Result<Rotations<O>, ModelError> {
        let places = Places::of(plan);
        let angles = arch.ropes.iter().map(|rope| ops.angles(rope, places));
        let angles = angles.collect::<Result<_, _>>()?;
        let temperatures = arch.query_temperature.map(|temperature| {
            let Temperature { span, offset, .. } = temperature;
            let positions = plan.positions.iter();
            let steps = positions.map(|p| (*p as usize + offset) / span);
            let factor = |step: usize| 1.0 + temperature.scale * (1.0 + step as f32).ln();
            steps.map(factor).collect()
        });
        Ok(Rotations {
            angles,
            temperatures,
        })
    }
}

/// Returns the plan of the rows with logits alone: they attend to what is stored, and store nothing.
fn wanted_rows(plan: &StepPlan) -> StepPlan {
    let mut left = StepPlan::default();
    let mut wanted = plan.logit_rows.iter().map(|row| *row as usize).peekable();
    for span in &plan.spans {
        while let Some(first) = wanted.next_if(|row| *row < span.rows.end) {
            let mut end = first + 1;
            while wanted
                .next_if(|row| *row == end && *row < span.rows.end)
                .is_some()
            {
                end += 1;
            }
            let at = left.tokens.len();
            for row in first..end {
                left.tokens.extend(plan.tokens.get(row));
                left.positions.extend(plan.positions.get(row));
                left.ends.extend(plan.ends.get(row));
                left.coordinates.extend(plan.coordinates.get(row));
            }
            left.spans.push(Span {
                rows: at..left.tokens.len(),
                start: span.start + (first - span.rows.start) as u32,
                blocks: span.blocks.clone(),
                tail: None,
                state: None,
            });
        }
    }
    left.logit_rows = (0..left.tokens.len() as u32).collect();
    left
}

/// Computes what all layers take from the tokens by themselves, one part after another.
fn per_layer_inputs<O: Ops>(
    arch: &ArchConfig,
    weights: &Weights<O>,
    ops: &mut O,
    plan: &StepPlan,
    x: &O::Tensor,
) -> Result<Option<O::Tensor>, ModelError> {
    let (Some(weights), Some(part)) = (&weights.per_layer, arch.per_layer_input) else {
        return Ok(None);
    };
    // The rows of images have no token.
    let mut tokens = plan.tokens.clone();
    for image in &plan.images {
        if let Some(tokens) = tokens.get_mut(image.rows.clone()) {
            tokens.fill(0);
        }
    }
    let of_token = ops.embed(&weights.table, &tokens, (part as f32).sqrt())?;
    let projected = ops.linear(x, &weights.projection, None)?;
    let projected = scaled(ops, projected, 1.0 / (arch.width as f32).sqrt())?;
    let projected = ops.rms_norm(&projected, &weights.norm, arch.norm_eps)?;
    let sum = ops.add(projected, &of_token, 1.0)?;
    scaled(ops, sum, FRAC_1_SQRT_2).map(Some)
}

fn scaled<O: Ops>(ops: &mut O, x: O::Tensor, factor: f32) -> Result<O::Tensor, ModelError> {
    let factors = vec![factor; ops.n_rows(&x)];
    ops.scale_rows(x, &factors)
}

/// Stores the keys and values of a layer and returns what its heads give, `[n, heads * head_dim]`; `None`
/// where nobody wants that (`ends`).
fn attention<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    (input, ends): (Input<'_, O>, bool),
    (config, weights): (&LayerConfig, &AttentionWeights<O>),
    rotations: &Rotations<O>,
    plan: &StepPlan,
) -> Result<Option<O::Tensor>, ModelError> {
    // [n, heads * head_dim], twice [n, kv_heads * head_dim]
    let Projected {
        mut query,
        gate,
        mut stored,
    } = project(arch, ops, input, weights)?;
    if let Some(bound) = arch.clamp.map(|bound| [-bound, bound]) {
        query = ops.clamp(query, bound)?;
        stored = match stored {
            Some((key, value)) => Some((ops.clamp(key, bound)?, ops.clamp(value, bound)?)),
            None => None,
        };
    }
    let angles = config.rope.and_then(|rope| rotations.angles.get(rope));
    match stored {
        Some((key, value)) if !arch.bidirectional => {
            query = ops.rotate_and_append(config, query, (key, &value), angles, plan)?;
            stored = None;
        }
        kept => {
            stored = kept;
            if let Some(angles) = angles {
                query = ops.rotate(query, angles, config.head_dim)?;
            }
        }
    }
    if ends {
        return Ok(None);
    }
    if let (Some(weight), Some(QkNorm::Rotated)) = (&weights.query_norm, arch.qk_norm) {
        query = ops.rms_norm(&query, weight, arch.norm_eps)?;
    }
    let everywhere = arch.query_temperature.is_some_and(|t| !t.unrotated);
    if let Some(factors) = &rotations.temperatures
        && (everywhere || angles.is_none())
    {
        query = ops.scale_rows(query, factors)?;
    }
    if let Some((mut key, value)) = stored {
        if let Some(angles) = angles {
            key = ops.rotate(key, angles, config.head_dim)?;
        }
        let attention = BidirectionalAttention {
            n_heads: config.n_heads,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: arch.attention_scale,
            slopes: None,
            reach: config.window,
        };
        let spans = plan
            .spans
            .iter()
            .map(|span| (span.rows.clone(), span.rows.clone()));
        let spans: Vec<_> = spans.collect();
        let attended = ops.attend_bidirectional(&query, &key, &value, &spans, &attention)?;
        return Ok(Some(attended));
    }
    let attention = Attention::of(arch, config);
    let sinks = weights.sinks.as_ref();
    let mut attended = ops.attend(config.kv_layer, &query, sinks, plan, &attention)?;
    if let Some(gate) = gate {
        attended = ops.gated(gate, &attended, Activation::Sigmoid)?;
    }
    if let Some(weight) = &weights.sub_norm {
        attended = ops.rms_norm(&attended, weight, arch.norm_eps)?;
    }
    Ok(Some(attended))
}

/// As [`attention`], where all heads share one row of each position: queries are brought to meet it, and what
/// they sum of it becomes the values of their heads, `[n, heads * value_dim]`.
fn latent<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    (input, ends): (Input<'_, O>, bool),
    (config, weights): (&LayerConfig, &LatentWeights<O>),
    rotations: &Rotations<O>,
    plan: &StepPlan,
) -> Result<Option<O::Tensor>, ModelError> {
    let LatentConfig {
        rank,
        n_rotated,
        key_dim,
        ..
    } = weights.config;
    let (of_query, rotated) = (&weights.query, &weights.query_rotated);
    let of_shared = [&weights.shared, &weights.shared_rotated];
    // [n, heads * key_dim], [n, heads * n_rotated], [n, rank], [n, n_rotated]
    let (query, rotated, shared, first) = if let Some((down, norm)) = &weights.query_down {
        let [low, shared, first] = linears(ops, input, [down, of_shared[0], of_shared[1]])?;
        let low = Input::Normed {
            x: &low,
            weight: norm,
            eps: arch.norm_eps,
        };
        let [query, rotated] = linears(ops, low, [of_query, rotated])?;
        (query, rotated, shared, first)
    } else {
        let parts = [of_query, rotated, of_shared[0], of_shared[1]];
        let [query, rotated, shared, first] = linears(ops, input, parts)?;
        (query, rotated, shared, first)
    };
    let shared = ops.rms_norm(&shared, &weights.norm, arch.norm_eps)?;
    let stored = [first, shared];
    let angles = config.rope.and_then(|rope| rotations.angles.get(rope));
    // Of the values, heads read what is behind the rotated elements.
    let (key, value) = (ops.join(&stored)?, ops.join(&stored)?);
    ops.append_kv(config, key, angles, &value, plan)?;
    if ends {
        return Ok(None);
    }
    let mut parts = Vec::with_capacity(2 * config.n_heads);
    for (head, matrix) in weights.keys.iter().enumerate() {
        parts.push(ops.columns(&rotated, head * n_rotated, n_rotated)?);
        let query = ops.columns(&query, head * key_dim, key_dim)?;
        parts.push(ops.linear(&query, matrix, None)?);
    }
    let mut query = ops.join(&parts)?; // [n, heads * (n_rotated + rank)]
    if let Some(angles) = angles {
        query = ops.rotate(query, angles, config.head_dim)?;
    }
    if let Some(factors) = &rotations.temperatures {
        query = ops.scale_rows(query, factors)?;
    }
    let attention = Attention::of(arch, config);
    let summed = ops.attend(config.kv_layer, &query, None, plan, &attention)?;
    let mut parts = Vec::with_capacity(config.n_heads);
    for (head, matrix) in weights.values.iter().enumerate() {
        let shared = ops.columns(&summed, head * config.head_dim + n_rotated, rank)?;
        parts.push(ops.linear(&shared, matrix, None)?);
    }
    ops.join(&parts).map(Some)
}

/// Computes a convolution between two gates, `[n, w]`.
fn short_conv<O: Ops>(
    ops: &mut O,
    input: Input<'_, O>,
    layer: usize,
    weights: &ShortConvWeights<O>,
    plan: &StepPlan,
) -> Result<O::Tensor, ModelError> {
    let [before, after, x] = linears(
        ops,
        input,
        [&weights.before, &weights.after, &weights.input],
    )?;
    let x = ops.gated(before, &x, Activation::Identity)?;
    let x = ops.short_conv(layer, &x, (&weights.kernel, None), false, plan)?;
    ops.gated(after, &x, Activation::Identity)
}

/// Computes what the heads of a gated delta net give, `[n, value heads * head_dim]`.
fn delta_net<O: Ops>(
    ops: &mut O,
    eps: f32,
    input: Input<'_, O>,
    layer: usize,
    weights: &DeltaNetWeights<O>,
    plan: &StepPlan,
) -> Result<O::Tensor, ModelError> {
    let parts = [&weights.qkv, &weights.gate, &weights.alpha, &weights.beta];
    let [qkv, gate, alpha, beta] = linears(ops, input, parts)?;
    let qkv = ops.short_conv(layer, &qkv, (&weights.kernel, None), true, plan)?;
    let rule = DeltaRule {
        net: &weights.config,
        decay: &weights.decay,
        decay_bias: &weights.decay_bias,
        eps,
    };
    let y = ops.delta_rule(layer, &qkv, (&alpha, &beta), &rule, plan)?;
    let y = ops.rms_norm(&y, &weights.norm, eps)?;
    ops.gated(gate, &y, Activation::Silu)
}

/// Computes what the heads of a selective scan give, `[n, heads * head_dim]`.
fn scan<O: Ops>(
    ops: &mut O,
    eps: f32,
    input: Input<'_, O>,
    layer: usize,
    weights: &ScanWeights<O>,
    plan: &StepPlan,
) -> Result<O::Tensor, ModelError> {
    let parts = [&weights.gate, &weights.input, &weights.steps];
    let [gate, x, steps] = linears(ops, input, parts)?;
    let kernel = (&weights.kernel, weights.kernel_bias.as_ref());
    let x = ops.short_conv(layer, &x, kernel, true, plan)?;
    let scan = SelectiveScan {
        config: &weights.config,
        decay: &weights.decay,
        step_bias: &weights.step_bias,
        skip: &weights.skip,
    };
    let y = ops.selective_scan(layer, &x, &steps, &scan, plan)?;
    let y = ops.gated(gate, &y, Activation::Silu)?;
    match (&weights.norm, weights.config.n_groups) {
        (None, _) => Ok(y),
        (Some(norm), 1) => ops.rms_norm(&y, norm, eps),
        (Some(norm), n_groups) => ops.grouped_norm(&y, norm, n_groups, eps),
    }
}

/// What a layer multiplies its input to.
struct Projected<O: Ops> {
    query: O::Tensor,
    /// Multiplies what the heads give.
    gate: Option<O::Tensor>,
    /// Keys and values that are to be stored.
    stored: Option<(O::Tensor, O::Tensor)>,
}

/// Computes the queries of a layer and, where it stores them, keys and values, normed but for queries whose norm
/// comes after their rotation.
fn project<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    input: Input<'_, O>,
    weights: &AttentionWeights<O>,
) -> Result<Projected<O>, ModelError> {
    let eps = arch.norm_eps;
    let is_late = arch.qk_norm == Some(QkNorm::Rotated);
    let query_norm = weights.query_norm.as_ref().filter(|_| !is_late);
    let mut gate = None;
    let (query, key, value) = match (&weights.key, &weights.value) {
        (None, _) => {
            let [query] = linears(ops, input, [&weights.query])?;
            let [query] = ops.rms_norms([(query, query_norm)], eps)?;
            return Ok(Projected {
                query,
                gate,
                stored: None,
            });
        }
        (Some(key), Some(value)) => {
            let (query, key, value) = if let Some(of_gate) = &weights.gate {
                let parts = [&weights.query, of_gate, key, value];
                let [query, made, key, value] = linears(ops, input, parts)?;
                gate = Some(made);
                (query, key, value)
            } else {
                let [query, key, value] = linears(ops, input, [&weights.query, key, value])?;
                (query, key, value)
            };
            (query, key, Some(value))
        }
        (Some(key), None) => {
            let [query, key] = linears(ops, input, [&weights.query, key])?;
            (query, key, None)
        }
    };
    let (value, value_norm) = match (value, &weights.value_norm) {
        (Some(value), norm) => (value, norm.as_ref()),
        // Keys, before their norm.
        (None, Some(ones)) => (ops.rms_norm(&key, ones, eps)?, None),
        (None, None) => return Err(ModelError::Compute("a layer has no values".into())),
    };
    let parts = [
        (query, query_norm),
        (key, weights.key_norm.as_ref()),
        (value, value_norm),
    ];
    let [query, key, value] = ops.rms_norms(parts, eps)?;
    Ok(Projected {
        query,
        gate,
        stored: Some((key, value)),
    })
}

/// Returns what a part of a layer reads: the residual stream, normed if there is a norm for that. What
/// must be computed for it is `held`.
fn normed<'a, O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &'a O::Tensor,
    norm: Option<&'a Norm<O>>,
    held: &'a mut Option<O::Tensor>,
) -> Result<Input<'a, O>, ModelError> {
    let eps = arch.norm_eps;
    Ok(match (norm, arch.norm) {
        (None, _) => Input::Rows(x),
        (Some(Norm { weight, .. }), NormKind::Rms) => Input::Normed { x, weight, eps },
        (Some(norm), NormKind::Layer) => {
            let rows = ops.layer_norm(x, &norm.weight, norm.bias.as_ref(), eps)?;
            Input::Rows(held.insert(rows))
        }
    })
}

/// As [`normed`], with rows of its own.
fn normed_rows<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    norm: Option<&Norm<O>>,
) -> Result<O::Tensor, ModelError> {
    match (norm, arch.norm) {
        (None, _) => {
            let all: Vec<u32> = (0..ops.n_rows(x) as u32).collect();
            ops.gather_rows(x, &all)
        }
        (Some(norm), NormKind::Rms) => ops.rms_norm(x, &norm.weight, arch.norm_eps),
        (Some(norm), NormKind::Layer) => {
            ops.layer_norm(x, &norm.weight, norm.bias.as_ref(), arch.norm_eps)
        }
    }
}

/// Adds what a part of a layer gives to the residual stream. The norm of that with the weight `next` comes with it where
/// the device has made it on the way.
fn residual_add<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: O::Tensor,
    input: Input<'_, O>,
    (weights, post_norm, next): (&Linear<O>, Option<&O::Vector>, Option<&O::Vector>),
) -> Result<(O::Tensor, Option<O::Tensor>), ModelError> {
    let scale = arch.residual_scale;
    if let Some(weight) = post_norm {
        let [delta] = linears(ops, input, [weights])?; // [n, w]
        return ops.add_normed(x, (&delta, weight), arch.norm_eps, scale, next);
    }
    Ok((add_linear(ops, x, input, weights, scale)?, None))
}

/// Computes a network.
fn network<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    network: &Mlp<O>,
) -> Result<O::Tensor, ModelError> {
    let hidden = hidden_of(arch, ops, Input::Rows(x), network)?;
    linear(ops, &hidden, &network.down)
}

/// As [`network`], of several ones, each with rows of its own.
fn networks<'a, O: Ops + 'a>(
    arch: &ArchConfig,
    ops: &mut O,
    work: impl Iterator<Item = (&'a O::Tensor, &'a Mlp<O>)> + Clone,
) -> Result<Vec<O::Tensor>, ModelError> {
    let hidden = if work.clone().all(|(_, network)| network.gate.is_some()) {
        let gated = work.clone().map(|(x, network)| {
            let gate = network.gate.as_ref().map(|gate| (gate, arch.activation));
            (x, &network.up, gate)
        });
        grouped_linear(ops, gated)?
    } else {
        let each = work.clone();
        let each = each.map(|(x, network)| activated(arch, ops, Input::Rows(x), network));
        each.collect::<Result<Vec<_>, _>>()?
    };
    let mut normed = Vec::with_capacity(hidden.len());
    for (hidden, (_, network)) in hidden.into_iter().zip(work.clone()) {
        normed.push(match &network.sub_norm {
            Some(weight) => ops.rms_norm(&hidden, weight, arch.norm_eps)?,
            None => hidden,
        });
    }
    let down = normed
        .iter()
        .zip(work)
        .map(|(hidden, (_, network))| (hidden, &network.down, None));
    grouped_linear(ops, down)
}

/// Computes what a network has between its matrices.
fn hidden_of<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    input: Input<'_, O>,
    network: &Mlp<O>,
) -> Result<O::Tensor, ModelError> {
    let hidden = activated(arch, ops, input, network)?;
    match &network.sub_norm {
        Some(weight) => ops.rms_norm(&hidden, weight, arch.norm_eps),
        None => Ok(hidden),
    }
}

/// As [`hidden_of`], before its norm.
fn activated<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    input: Input<'_, O>,
    network: &Mlp<O>,
) -> Result<O::Tensor, ModelError> {
    let Mlp { gate, up, .. } = network;
    let Some(gate) = gate else {
        return activated_linear(ops, input, up, arch.activation);
    };
    gated_linear(ops, input, (gate, up), arch.activation)
}

/// Computes what experts need of the residual stream before their layer, if they do: scores, or what they
/// read.
fn before_layer<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    experts: &Experts<O>,
) -> Result<Option<O::Tensor>, ModelError> {
    match (experts.config.reads, &experts.early) {
        (ExpertsInput::Usual, _) => Ok(None),
        (ExpertsInput::RoutedBefore, _) => linear(ops, x, &experts.router).map(Some),
        (ExpertsInput::Before { .. }, early) => {
            let norm = early.as_ref().map(|early| &early.norm);
            normed_rows(arch, ops, x, norm).map(Some)
        }
    }
}

/// Computes what a mixture of experts gives, with all that runs beside it. `input` is the residual stream
/// `x` after the norm of the layer, `early` what [`before_layer`] gave.
fn experts_of<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    (x, early): (&O::Tensor, Option<O::Tensor>),
    input: &O::Tensor,
    experts: &Experts<O>,
) -> Result<O::Tensor, ModelError> {
    let eps = arch.norm_eps;
    if let (Some(weights), Some(early)) = (&experts.early, &early) {
        let scores = linear(ops, early, &experts.router)?; // [n, experts]
        let delta = moe(arch, ops, early, &scores, experts)?;
        let common = network(arch, ops, input, &weights.beside)?;
        return ops.add(delta, &common, 1.0);
    }
    if let Some(beside) = &experts.beside {
        let common = network(arch, ops, input, &beside.network)?;
        let common = ops.rms_norm(&common, &beside.post_norm, eps)?;
        let routed = ops.rms_norm(x, &beside.router_norm, eps)?;
        let scores = linear(ops, &routed, &experts.router)?; // [n, experts]
        let input = ops.rms_norm(x, &beside.experts_norm, eps)?;
        let delta = moe(arch, ops, &input, &scores, experts)?;
        let delta = ops.rms_norm(&delta, &beside.experts_post_norm, eps)?;
        return ops.add(delta, &common, 1.0);
    }
    let scores = match early {
        Some(scores) => scores,
        None => linear(ops, input, &experts.router)?,
    }; // [n, experts]
    let mut delta = match &experts.latent {
        None => moe(arch, ops, input, &scores, experts)?,
        Some((down, up)) => {
            let narrow = linear(ops, input, down)?;
            let sum = moe(arch, ops, &narrow, &scores, experts)?;
            linear(ops, &sum, up)?
        }
    };
    if let Some((weights, gate)) = &experts.shared {
        let mut common = network(arch, ops, input, weights)?;
        if let Some(gate) = gate {
            let gate = ops.linear(input, gate, None)?; // [n, 1]
            common = ops.sigmoid_gate(common, &gate)?;
        }
        delta = ops.add(delta, &common, 1.0)?;
    }
    Ok(delta)
}

/// Sends every row through its experts. Experts run in ascending order, each over the rows that
/// chose it, so the sum of a row does not depend on the other rows.
fn moe<O: Ops>(
    arch: &ArchConfig,
    ops: &mut O,
    x: &O::Tensor,
    scores: &O::Tensor,
    experts: &Experts<O>,
) -> Result<O::Tensor, ModelError> {
    if let Some(on_device) = &experts.on_device {
        return ops.mixture(x, scores, on_device);
    }
    let config = &experts.config;
    let n_rows = ops.n_rows(x);
    let mut host_scores = vec![0.0; n_rows * config.n_experts];
    ops.read(scores, &mut host_scores)?;
    let choices = Choices::new(&host_scores, experts.selection_bias.as_deref(), config);
    let there = ops.copy_to(Part::Experts(experts.layer), x)?;
    let x = there.as_ref().unwrap_or(x);
    let mut sum = ops.zeros(x)?;
    let mut chosen = (experts.networks.iter().enumerate())
        .map(|(expert, network)| (expert, network, choices.of(expert)))
        .filter(|(_, _, (rows, _))| !rows.is_empty())
        .peekable();
    while chosen.peek().is_some() {
        let mut batch = Vec::new();
        let mut n_left = n_rows.max(TOGETHER);
        while let Some((expert, network, (rows, factors))) =
            chosen.next_if(|(_, _, (rows, _))| batch.is_empty() || rows.len() <= n_left)
        {
            n_left = n_left.saturating_sub(rows.len());
            // An expert that all rows chose reads them as they are.
            let input = match (rows.len() < n_rows, config.weigh_input) {
                (false, false) => None,
                (true, false) => Some(ops.gather_rows(x, rows)?),
                (_, true) => {
                    let input = ops.gather_rows(x, rows)?;
                    Some(ops.scale_rows(input, factors)?)
                }
            };
            batch.push((expert, network, rows, factors, input));
        }
        let work = batch
            .iter()
            .map(|(_, network, _, _, input)| (input.as_ref().unwrap_or(x), *network));
        let outputs = networks(arch, ops, work)?;
        for ((expert, _, rows, factors, _), mut output) in batch.into_iter().zip(outputs) {
            let scale = experts.scales.as_ref().and_then(|list| list.get(expert));
            if let Some(scale) = scale {
                output = scaled(ops, output, *scale)?;
            }
            if !config.weigh_input {
                output = ops.scale_rows(output, factors)?;
            }
            sum = ops.add_to_rows(sum, rows, &output)?;
        }
    }
    let back = ops.copy_to(Part::Layer(experts.layer), &sum)?;
    Ok(back.unwrap_or(sum))
}

/// Rows of experts that are computed together, if the step has fewer: threads wait for each other once for all of them,
/// and what lies between the matrices of so few rows stays in a cache.
const TOGETHER: usize = 32;

/// The logit of a token that is never predicted: of no weight in any softmax, and still a number.
const NEVER: f32 = -1e30;
