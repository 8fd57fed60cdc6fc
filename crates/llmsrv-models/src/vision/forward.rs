//! The forward pass of an encoder, top to bottom: a vision transformer
//! (<https://arxiv.org/abs/2010.11929>) and its projector.
//!
//! Products, norms, attention and activations are operations of [`Ops`]. What only moves rows (squares of
//! patches side by side, the order of lines) or averages them is done on plain rows between them.
//!
//! Shapes in comments: `n` patches (and perhaps the class), `w` width of a row.

use std::{iter::repeat_n, ops::Range};

use llmsrv_engine::{ActivationPrecision, LoadError, ModelError, StepPlan};

use super::{
    config::{Config, Pairs, Turn},
    tiling::Tiling,
    weights::{
        Layer, Linear, MERGER_EPS, Merger, Positions, Projector, RESAMPLER_HEAD, Resampler, Weights,
    },
};
use crate::{
    arch::{Activation, NormKind},
    errors::device,
    ops::{BidirectionalAttention, Input, Ops, cpu::CpuOps},
    rope::{Places, Rope, RopeStyle},
    source::Source,
    weights::Norm,
};

/// An encoder whose weights are read when the first image comes: texts need neither the time nor the memory.
pub(super) struct Encoder<O: Ops> {
    config: Config,
    source: Source,
    out_width: usize,
    ops: O,
    weights: Option<Weights<O>>,
}

impl<O: Ops> Encoder<O> {
    /// Prepares an encoder; a row of its projector has `out_width` elements.
    ///
    /// # Errors
    /// As [`Weights::load`].
    pub(super) fn new(
        source: Source,
        config: Config,
        out_width: usize,
        ops: O,
    ) -> Result<Encoder<O>, LoadError> {
        // Exact arithmetic leaves all matrices in the file, so this checks them and takes no memory.
        let mut checking = CpuOps::without_cache(1, ActivationPrecision::F32).map_err(device)?;
        Weights::load(&source, &config, out_width, &mut checking)?;
        Ok(Encoder {
            config,
            source,
            out_width,
            ops,
            weights: None,
        })
    }

    /// Gives back memory that is kept for the next view.
    pub(super) fn release_memory(&mut self) {
        self.ops.release_memory();
    }

    /// Computes the rows of an image from its patches, `[n_rows * out_width]`.
    pub(super) fn encode(
        &mut self,
        patches: &[f32],
        tiling: &Tiling,
    ) -> Result<Vec<f32>, ModelError> {
        let Encoder {
            config,
            source,
            out_width,
            ops,
            weights,
        } = self;
        let weights = match weights {
            Some(weights) => weights,
            none => {
                let loaded = Weights::load(source, config, *out_width, ops);
                none.insert(loaded.map_err(|error| ModelError::Compute(error.to_string()))?)
            }
        };
        let mut pass = Pass {
            config,
            weights,
            ops,
            tiling,
        };
        let (x, further) = pass.transform(patches)?;
        let mut parts = vec![pass.project(x)?];
        for rows in &further {
            parts.push(pass.in_order(rows));
        }
        let rows = Rows::side_by_side(&parts);
        Ok(pass.in_lines(rows).values)
    }
}

/// Rows as plain numbers.
struct Rows {
    values: Vec<f32>,
    width: usize,
}

impl Rows {
    fn n(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    fn row(&self, row: usize) -> &[f32] {
        let start = row * self.width;
        let row = self.values.get(start..start + self.width);
        row.unwrap_or_default()
    }

    /// Makes a row of each `n` rows that follow each other.
    fn joined(self, n: usize) -> Rows {
        Rows {
            width: self.width * n,
            values: self.values,
        }
    }

    fn side_by_side(parts: &[Rows]) -> Rows {
        let n = parts.first().map_or(0, Rows::n);
        let rows = (0..n).flat_map(|row| parts.iter().flat_map(move |part| part.row(row)));
        Rows {
            values: rows.copied().collect(),
            width: parts.iter().map(|part| part.width).sum(),
        }
    }
}

/// One view on its way.
struct Pass<'a, O: Ops> {
    config: &'a Config,
    weights: &'a Weights<O>,
    ops: &'a mut O,
    tiling: &'a Tiling,
}

impl<O: Ops> Pass<'_, O> {
    /// Runs all layers; returns the patches, and further elements of the rows by layers on the way.
    fn transform(&mut self, patches: &[f32]) -> Result<(O::Tensor, Vec<Rows>), ModelError> {
        let (config, weights, tiling) = (self.config, self.weights, self.tiling);
        let n_patches = tiling.patches.len();
        let mut x = self.ops.plain_rows(patches, 3 * config.patch_size.pow(2))?;
        let mut patch_norms = weights.patch_norms.iter().flatten();
        let mut patch_norm = |pass: &mut Self, x: O::Tensor| match patch_norms.next() {
            Some(weights) => pass.normed(&x, weights, NormKind::Layer, PATCH_NORM_EPS),
            None => Ok(x),
        };
        x = patch_norm(self, x)?;
        x = self.linear(x, &weights.patch)?; // [n, w]
        x = patch_norm(self, x)?;
        x = self.with_positions(x)?;
        x = patch_norm(self, x)?;
        let n_before = usize::from(weights.class.is_some());
        if let Some(class) = &weights.class {
            let mut all = class.clone();
            all.resize((n_before + n_patches) * config.width, 0.0);
            let all = self.ops.plain_rows(&all, config.width)?;
            let places: Vec<u32> = (n_before as u32..).take(n_patches).collect();
            x = self.ops.add_to_rows(all, &places, &x)?;
        }
        if let Some(weights) = &weights.pre_norm {
            x = self.norm(&x, weights)?;
        }
        let angles = match config.turn {
            Some(turn) => {
                let rope = rope(turn, config.width / config.n_heads);
                let places = places(turn, tiling, n_before);
                Some(self.ops.angles(&rope, Places::of(&places))?)
            }
            None => None,
        };
        let all = 0..n_before + n_patches;
        let whole = [(all.clone(), all)];
        let windows = tiling.windows.iter();
        let windows: Vec<_> = windows.map(|rows| (rows.clone(), rows.clone())).collect();
        let mut further = Vec::new();
        for (idx, layer) in weights.layers.iter().enumerate() {
            let spans = match &config.windows {
                Some(windows_of) if windows_of.layers.get(idx) == Some(&true) => &windows[..],
                _ => &whole,
            };
            let attended = self.attention(&x, layer, angles.as_ref(), spans)?;
            let post_norm = layer.attention_post_norm.as_ref();
            let scale = layer.attention_scale.as_ref();
            x = self.residual(x, attended, &layer.output, post_norm, scale)?;
            let hidden = self.hidden(&x, layer)?;
            let post_norm = layer.feed_forward_post_norm.as_ref();
            let scale = layer.feed_forward_scale.as_ref();
            x = self.residual(x, hidden, &layer.down, post_norm, scale)?;
            if let Some(merger) = &layer.deepstack {
                let rows = self.take(&x, config.width)?;
                further.push(self.merged(rows, merger)?);
            }
        }
        if let Some(weights) = &weights.post_norm {
            x = self.norm(&x, weights)?;
        }
        // The class has done its work.
        if n_before > 0 {
            let patches: Vec<u32> = (n_before as u32..).take(n_patches).collect();
            x = self.ops.gather_rows(&x, &patches)?;
        }
        Ok((x, further))
    }

    /// Adds what tells patches apart.
    fn with_positions(&mut self, x: O::Tensor) -> Result<O::Tensor, ModelError> {
        let tiling = self.tiling;
        let places = tiling.patches.iter();
        match &self.weights.positions {
            Positions::No => Ok(x),
            Positions::Nearest { table, side } => {
                let (lines, columns) = (tiling.sides.height, tiling.sides.width);
                let nearest = |at: usize, n: usize| at * side / n.max(1);
                let rows = places.map(|&(line, column)| {
                    (nearest(line, lines) * side + nearest(column, columns)) as u32
                });
                let rows = self.ops.embed(table, &rows.collect::<Vec<_>>(), 1.0)?;
                self.ops.add(x, &rows, 1.0)
            }
            Positions::Stretched { table, side } => {
                let mut x = x;
                for (rows, weights) in stretched(*side, tiling) {
                    let rows = self.ops.embed(table, &rows, 1.0)?;
                    let rows = self.ops.scale_rows(rows, &weights)?;
                    x = self.ops.add(x, &rows, 1.0)?;
                }
                Ok(x)
            }
            Positions::ByAxis { columns, lines } => {
                let (line, column): (Vec<u32>, Vec<u32>) =
                    places.map(|(y, x)| (*y as u32, *x as u32)).unzip();
                let rows = self.ops.embed(columns, &column, 1.0)?;
                let x = self.ops.add(x, &rows, 1.0)?;
                let rows = self.ops.embed(lines, &line, 1.0)?;
                self.ops.add(x, &rows, 1.0)
            }
        }
    }

    /// Lets every row attend to all rows of its window; returns what the heads give.
    fn attention(
        &mut self,
        x: &O::Tensor,
        layer: &Layer<O>,
        angles: Option<&O::Angles>,
        spans: &[(Range<usize>, Range<usize>)],
    ) -> Result<O::Tensor, ModelError> {
        let config = self.config;
        let head_dim = config.width / config.n_heads;
        let of = [&layer.query, &layer.key, &layer.value];
        let [mut query, mut key, mut value] = self.normed_linears(x, &layer.attention_norm, of)?;
        if let Some(weights) = &layer.query_norm {
            query = self.norm(&query, weights)?;
        }
        if let Some(weights) = &layer.key_norm {
            key = self.norm(&key, weights)?;
        }
        if let Some(angles) = angles {
            query = self.ops.rotate(query, angles, head_dim)?;
            key = self.ops.rotate(key, angles, head_dim)?;
        }
        if let Some(ones) = &self.weights.value_norm {
            value = self.ops.rms_norm(&value, ones, config.eps)?;
        }
        let attention = BidirectionalAttention {
            n_heads: config.n_heads,
            n_kv_heads: config.n_heads,
            head_dim,
            scale: config.scale as f32,
            slopes: None,
            reach: None,
        };
        self.ops
            .attend_bidirectional(&query, &key, &value, spans, &attention)
    }

    /// Computes what a feed-forward network has between its matrices.
    fn hidden(&mut self, x: &O::Tensor, layer: &Layer<O>) -> Result<O::Tensor, ModelError> {
        let activation = self.config.activation;
        let Some(gate) = &layer.gate else {
            let [hidden] = self.normed_linears(x, &layer.feed_forward_norm, [&layer.up])?;
            return self.ops.activate(hidden, activation);
        };
        let (eps, norm) = (self.config.eps, &layer.feed_forward_norm);
        if let (Some(gate), Some(up)) = (gate.unbounded(), layer.up.unbounded()) {
            let held;
            let input = match self.config.norm {
                NormKind::Rms => Input::Normed {
                    x,
                    weight: &norm.weight,
                    eps,
                },
                NormKind::Layer => {
                    held = self.norm(x, norm)?;
                    Input::Rows(&held)
                }
            };
            return self.ops.gated_linear(input, gate, up, activation);
        }
        let [gate, up] = self.normed_linears(x, norm, [gate, &layer.up])?;
        self.ops.gated(gate, &up, activation)
    }

    /// Adds the product of `input` with a matrix, normed or scaled, to the residual stream.
    fn residual(
        &mut self,
        x: O::Tensor,
        input: O::Tensor,
        weights: &Linear<O>,
        post_norm: Option<&Norm<O>>,
        scale: Option<&O::Vector>,
    ) -> Result<O::Tensor, ModelError> {
        if let (Some(matrix), None, None) = (weights.unbounded(), post_norm, scale) {
            return self.ops.add_linear(x, Input::Rows(&input), matrix, 1.0);
        }
        let mut delta = self.linear(input, weights)?;
        if let Some(weights) = post_norm {
            delta = self.norm(&delta, weights)?;
        }
        if let Some(scale) = scale {
            delta = self.ops.scale_columns(&delta, scale)?;
        }
        self.ops.add(x, &delta, 1.0)
    }

    fn project(&mut self, x: O::Tensor) -> Result<Rows, ModelError> {
        let (config, weights) = (self.config, self.weights);
        let width = config.width;
        match &weights.projector {
            Projector::Mlp(first, second) => {
                let x = self.linear(x, first)?;
                let mut x = self.ops.activate(x, Activation::Gelu)?;
                if let Some(second) = second {
                    x = self.linear(x, second)?;
                }
                self.take(&x, self.weights.out_width)
            }
            Projector::Merger(merger) => {
                let rows = self.take(&x, width)?;
                let rows = self.merged(rows, merger)?;
                Ok(self.in_order(&rows))
            }
            Projector::Pixtral {
                merger,
                first,
                second,
            } => {
                let mut rows = x;
                if let Some((weights, matrix)) = merger {
                    rows = self.norm(&rows, weights)?;
                    rows = self.unfolded(&rows)?;
                    rows = self.linear(rows, matrix)?;
                }
                rows = self.linear(rows, first)?;
                rows = self.ops.activate(rows, Activation::ExactGelu)?;
                rows = self.linear(rows, second)?;
                let rows = self.take(&rows, self.weights.out_width)?;
                Ok(self.in_order(&rows))
            }
            Projector::Glm(glm) => {
                let rows = self.unfolded(&x)?;
                let rows = self.linear(rows, &glm.merger)?;
                let rows = self.linear(rows, &glm.matrix)?;
                let rows = self.normed(&rows, &glm.norm, NormKind::Layer, MERGER_EPS)?;
                let rows = self.ops.activate(rows, Activation::ExactGelu)?;
                let [gate, up] = self.linears(Input::Rows(&rows), [&glm.gate, &glm.up])?;
                let hidden = self.ops.gated(gate, &up, Activation::Silu)?;
                let rows = self.linear(hidden, &glm.down)?;
                let rows = self.take(&rows, self.weights.out_width)?;
                Ok(self.in_order(&rows))
            }
            Projector::Resampler(resampler) => self.resampled(x, resampler),
            Projector::Gemma3 { norm, matrix } => {
                let rows = self.take(&x, width)?;
                let pooled = self.averages(&rows);
                let pooled = self.ops.plain_rows(&pooled.values, width)?;
                let input = Input::Normed {
                    x: &pooled,
                    weight: norm,
                    eps: config.eps,
                };
                let [rows] = self.ops.linears(input, [(matrix, None)])?;
                self.take(&rows, self.weights.out_width)
            }
            Projector::Normed(ones, matrix) => {
                let rows = self.ops.rms_norm(&x, ones, config.eps)?;
                let rows = self.linear(rows, matrix)?;
                self.take(&rows, self.weights.out_width)
            }
            Projector::Gemma4 {
                standard,
                ones,
                matrix,
            } => {
                let rows = self.take(&x, width)?;
                // The patches of a row follow each other.
                let n_merged = config.merge.pow(2);
                let mut pooled = mean_of_stretches(&rows, n_merged);
                let factor = (width as f32).sqrt();
                for row in pooled.chunks_exact_mut(width.max(1)) {
                    for element in row.iter_mut() {
                        *element *= factor;
                    }
                    let standard = standard
                        .iter()
                        .flat_map(|[bias, scale]| bias.iter().zip(scale));
                    for (element, (bias, scale)) in row.iter_mut().zip(standard) {
                        *element = (*element - bias) * scale;
                    }
                }
                let rows = self.ops.plain_rows(&pooled, width)?;
                let rows = self.ops.rms_norm(&rows, ones, config.eps)?;
                let rows = self.linear(rows, matrix)?;
                let rows = self.take(&rows, self.weights.out_width)?;
                Ok(self.in_order(&rows))
            }
        }
    }

    /// Lets queries look at the patches.
    fn resampled(&mut self, x: O::Tensor, weights: &Resampler<O>) -> Result<Rows, ModelError> {
        let eps = self.config.eps;
        let n_queries = self.config.n_queries;
        let width = weights.queries.len() / n_queries.max(1);
        let x = self.linear(x, &weights.matrix)?;
        let values = self.normed(&x, &weights.norm, NormKind::Layer, eps)?;
        let places = self.ops.plain_rows(&sines(self.tiling, width), width)?;
        let keys = self.ops.add(places, &values, 1.0)?;
        let queries = self.ops.plain_rows(&weights.queries, width)?;
        let queries = self.normed(&queries, &weights.query_norm, NormKind::Layer, eps)?;
        let query = self.linear(queries, &weights.query)?;
        let key = self.linear(keys, &weights.key)?;
        let value = self.linear(values, &weights.value)?;
        let n_heads = width / RESAMPLER_HEAD;
        let attention = BidirectionalAttention {
            n_heads,
            n_kv_heads: n_heads,
            head_dim: RESAMPLER_HEAD,
            scale: 1.0 / (RESAMPLER_HEAD as f32).sqrt(),
            slopes: None,
            reach: None,
        };
        let spans = [(0..n_queries, 0..self.tiling.patches.len())];
        let rows = self
            .ops
            .attend_bidirectional(&query, &key, &value, &spans, &attention)?;
        let rows = self.linear(rows, &weights.output)?;
        let rows = self.normed(&rows, &weights.post_norm, NormKind::Layer, eps)?;
        let rows = self.linear(rows, &weights.last)?;
        self.take(&rows, self.weights.out_width)
    }

    /// Makes a row of each square of patches, which follow each other.
    fn merged(&mut self, rows: Rows, merger: &Merger<O>) -> Result<Rows, ModelError> {
        let rows = rows.joined(self.config.merge.pow(2));
        let mut x = self.ops.plain_rows(&rows.values, rows.width)?;
        if let Some((weights, eps)) = &merger.norm {
            x = self.normed(&x, weights, NormKind::Layer, *eps)?;
        }
        for (idx, matrix) in merger.matrices.iter().enumerate() {
            if idx > 0 {
                x = self.ops.activate(x, Activation::ExactGelu)?;
            }
            x = self.linear(x, matrix)?;
        }
        self.take(&x, self.weights.out_width)
    }

    /// Makes a row of each square of patches, element by element: the first of all patches, then the
    /// second of all.
    fn unfolded(&mut self, x: &O::Tensor) -> Result<O::Tensor, ModelError> {
        let (width, n_merged) = (self.config.width, self.config.merge.pow(2));
        let rows = self.take(x, width)?;
        let squares = rows.values.chunks_exact(n_merged * width);
        let values = squares.flat_map(|square| {
            let element = move |idx| square.iter().skip(idx).step_by(width).copied();
            (0..width).flat_map(element)
        });
        self.ops
            .plain_rows(&values.collect::<Vec<f32>>(), n_merged * width)
    }

    /// Ends each line of rows but the last with a break, if the encoder has one.
    fn in_lines(&self, rows: Rows) -> Rows {
        let Some(line_break) = &self.weights.line_break else {
            return rows;
        };
        let line = self.tiling.sides.width / self.config.merge * rows.width;
        let lines: Vec<&[f32]> = rows.values.chunks(line.max(1)).collect();
        Rows {
            values: lines.join(&line_break[..]),
            width: rows.width,
        }
    }

    /// Brings rows from the order of windows into that of lines.
    fn in_order(&self, rows: &Rows) -> Rows {
        let ordered = self.tiling.order.iter().map(|row| rows.row(*row as usize));
        Rows {
            values: ordered.flatten().copied().collect(),
            width: rows.width,
        }
    }

    /// Averages squares of `merge` times `merge` patches; patches beyond the last square are left.
    fn averages(&self, rows: &Rows) -> Rows {
        let (merge, side) = (self.config.merge, self.tiling.sides.width);
        let n = side / merge;
        let mut values = vec![0.0; n * n * rows.width];
        let squares = values.chunks_exact_mut(rows.width.max(1)).enumerate();
        for (square, sum) in squares {
            let (top, left) = (square / n * merge, square % n * merge);
            for patch in
                (0..merge * merge).map(|idx| (top + idx / merge) * side + left + idx % merge)
            {
                for (sum, element) in sum.iter_mut().zip(rows.row(patch)) {
                    *sum += element;
                }
            }
            for sum in sum {
                *sum /= (merge * merge) as f32;
            }
        }
        Rows {
            values,
            width: rows.width,
        }
    }

    fn linear(&mut self, x: O::Tensor, weights: &Linear<O>) -> Result<O::Tensor, ModelError> {
        let [product] = self.linears(Input::Rows(&x), [weights])?;
        Ok(product)
    }

    /// Computes products with the norm of the same rows.
    fn normed_linears<const N: usize>(
        &mut self,
        x: &O::Tensor,
        norm: &Norm<O>,
        weights: [&Linear<O>; N],
    ) -> Result<[O::Tensor; N], ModelError> {
        match self.config.norm {
            NormKind::Rms => {
                let input = Input::Normed {
                    x,
                    weight: &norm.weight,
                    eps: self.config.eps,
                };
                self.linears(input, weights)
            }
            NormKind::Layer => {
                let x = self.norm(x, norm)?;
                self.linears(Input::Rows(&x), weights)
            }
        }
    }

    /// Computes products of the same rows, together if none of them is bounded.
    fn linears<const N: usize>(
        &mut self,
        input: Input<'_, O>,
        weights: [&Linear<O>; N],
    ) -> Result<[O::Tensor; N], ModelError> {
        if weights.iter().all(|weights| weights.bounds.is_none()) {
            let matrices = weights.map(|weights| (&weights.matrix, weights.bias.as_ref()));
            return self.ops.linears(input, matrices);
        }
        let normed = self.ops.normed(input)?;
        let x = normed.as_ref().unwrap_or(input.rows());
        let mut products = Vec::with_capacity(N);
        for weights in weights {
            let matrix = (&weights.matrix, weights.bias.as_ref());
            let [product] = match weights.bounds {
                None => self.ops.linears(Input::Rows(x), [matrix])?,
                Some(bounds) => {
                    let all: Vec<u32> = (0..self.ops.n_rows(x) as u32).collect();
                    let x = self.ops.gather_rows(x, &all)?;
                    let x = self.ops.clamp(x, bounds.input)?;
                    let [product] = self.ops.linears(Input::Rows(&x), [matrix])?;
                    [self.ops.clamp(product, bounds.output)?]
                }
            };
            products.push(product);
        }
        let products = products.try_into();
        products.map_err(|_| ModelError::Compute("a product is missing".into()))
    }

    fn norm(&mut self, x: &O::Tensor, weights: &Norm<O>) -> Result<O::Tensor, ModelError> {
        self.normed(x, weights, self.config.norm, self.config.eps)
    }

    fn normed(
        &mut self,
        x: &O::Tensor,
        weights: &Norm<O>,
        kind: NormKind,
        eps: f32,
    ) -> Result<O::Tensor, ModelError> {
        match kind {
            NormKind::Rms => self.ops.rms_norm(x, &weights.weight, eps),
            NormKind::Layer => self
                .ops
                .layer_norm(x, &weights.weight, weights.bias.as_ref(), eps),
        }
    }

    /// Makes plain rows of a tensor.
    fn take(&mut self, x: &O::Tensor, width: usize) -> Result<Rows, ModelError> {
        let mut values = vec![0.0; self.ops.n_rows(x) * width];
        self.ops.read(x, &mut values)?;
        Ok(Rows { values, width })
    }
}

/// Averages each `n` rows that follow each other.
fn mean_of_stretches(rows: &Rows, n: usize) -> Vec<f32> {
    let width = rows.width;
    let stretches = rows.values.chunks_exact((n * width).max(1));
    let means = stretches.flat_map(|stretch| {
        let mean = move |idx: usize| {
            let elements = stretch.iter().skip(idx).step_by(width);
            elements.sum::<f32>() / n as f32
        };
        (0..width).map(mean)
    });
    means.collect()
}

/// Stretches a grid of `side` times `side` rows over an image, corner on corner: for each patch the four rows
/// around it and their weights.
fn stretched(side: usize, tiling: &Tiling) -> [(Vec<u32>, Vec<f32>); 4] {
    let along = |at: usize, n: usize| {
        let place = at as f64 * (side - 1) as f64 / (n.max(2) - 1) as f64;
        let before = (place as usize).min(side - 1);
        (before, (before + 1).min(side - 1), place - before as f64)
    };
    let mut parts: [(Vec<u32>, Vec<f32>); 4] = Default::default();
    for &(line, column) in &tiling.patches {
        let (above, below, down) = along(line, tiling.sides.height);
        let (left, right, over) = along(column, tiling.sides.width);
        let around = [
            (above, left, (1.0 - down) * (1.0 - over)),
            (above, right, (1.0 - down) * over),
            (below, left, down * (1.0 - over)),
            (below, right, down * over),
        ];
        for ((rows, weights), (y, x, weight)) in parts.iter_mut().zip(around) {
            rows.push((y * side + x) as u32);
            weights.push(weight as f32);
        }
    }
    parts
}

/// Returns what tells the patches apart for queries, `[n, width]`: sines, then cosines, of their column
/// times `width / 4` frequencies, then those of their line (<https://arxiv.org/abs/1706.03762>, 3.5).
fn sines(tiling: &Tiling, width: usize) -> Vec<f32> {
    let n_each = width / 4;
    let mut values = Vec::with_capacity(tiling.patches.len() * width);
    for &(line, column) in &tiling.patches {
        for place in [column, line] {
            for function in [f64::sin, f64::cos] {
                let frequencies =
                    (0..n_each).map(|idx| 10_000_f64.powf(-(idx as f64) / n_each as f64));
                values.extend(frequencies.map(|speed| function(place as f64 * speed) as f32));
            }
        }
    }
    values
}

/// Returns the rotation of heads by the line and the column of their patch, as [`Turn`] says. Pairs that lie a
/// quarter of a head apart in the file lie half a head apart here.
fn rope(turn: Turn, head_dim: usize) -> Rope {
    let n_each = head_dim / 4;
    let frequencies = |offset: f64| {
        let exponent = move |pair: usize| -(pair as f64 + offset) / n_each.max(1) as f64;
        (0..n_each).map(move |pair| turn.base.powf(exponent(pair)) as f32)
    };
    let [first, second] = if turn.columns_first {
        [COLUMN, LINE]
    } else {
        [LINE, COLUMN]
    };
    Rope {
        style: match turn.pairs {
            Pairs::Neighbours => RopeStyle::Interleaved,
            Pairs::HalfApart | Pairs::QuarterApart => RopeStyle::HalfSplit,
        },
        frequencies: frequencies(0.0)
            .chain(frequencies(if turn.between { 0.5 } else { 0.0 }))
            .collect(),
        axes: repeat_n(first, n_each)
            .chain(repeat_n(second, n_each))
            .collect(),
        magnitude: 1.0,
    }
}

/// Returns a plan that says where the patches are; rows before them do not turn.
fn places(turn: Turn, tiling: &Tiling, n_before: usize) -> StepPlan {
    let place = |&(line, column): &(usize, usize)| {
        let mut place = [0; 3];
        (place[LINE], place[COLUMN]) = ((turn.from + line) as u32, (turn.from + column) as u32);
        place
    };
    let patches = tiling.patches.iter().map(place);
    let coordinates: Vec<[u32; 3]> = repeat_n([0; 3], n_before).chain(patches).collect();
    StepPlan {
        positions: vec![0; coordinates.len()],
        coordinates,
        ..StepPlan::default()
    }
}

/// Coordinates of a row, behind its time.
const LINE: usize = 1;
const COLUMN: usize = 2;
/// Added to the variance in norms of patches, which no file says.
const PATCH_NORM_EPS: f32 = 1e-5;
