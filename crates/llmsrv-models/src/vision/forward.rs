//! The forward pass of an encoder, top to bottom: a vision transformer
//! (<https://arxiv.org/abs/2010.11929>) and its projector.
//!
//! Shapes in comments: `n` patches (and perhaps the class), `w` width of a row.

use std::ops::Range;

use candle_core::{D, Device, Result, Tensor};
use rayon::{ThreadPool, prelude::*};

use super::{
    config::{Activation, Config, Pairs, Turn},
    tiling::Tiling,
    weights::{
        Layer, Linear, MERGER_EPS, Merger, Norm, Positions, Projector, RESAMPLER_HEAD, Weights,
    },
};
use crate::arch::NormKind;

/// A loaded encoder.
pub(super) struct Encoder {
    pub config: Config,
    pub weights: Weights,
    pub device: Device,
    /// The threads of candle's arithmetic, which is parallel by rayon.
    pub pool: ThreadPool,
}

impl Encoder {
    /// Computes the rows of an image from its patches, `[n_rows * out_width]`.
    pub(super) fn encode(&self, patches: Vec<f32>, tiling: &Tiling) -> Result<Vec<f32>> {
        self.pool.install(|| {
            let (x, further) = self.transform(patches, tiling)?;
            let mut parts = vec![self.project(&x, tiling)?];
            for rows in &further {
                parts.push(self.in_order(rows, tiling)?);
            }
            let rows = self.in_lines(&Tensor::cat(&parts, 1)?, tiling)?;
            rows.flatten_all()?.to_vec1()
        })
    }

    /// Runs all layers; returns the patches, and further elements of the rows by layers on the way.
    fn transform(&self, patches: Vec<f32>, tiling: &Tiling) -> Result<(Tensor, Vec<Tensor>)> {
        let Encoder {
            config,
            weights,
            device,
            ..
        } = self;
        let n_patches = tiling.patches.len();
        let shape = (n_patches, 3 * config.patch_size.pow(2));
        let patches = Tensor::from_vec(patches, shape, device)?;
        let norms = weights.patch_norms.as_ref();
        let patch_norm = |x: Tensor, idx: usize| match norms {
            Some(norms) => normed(&x, &norms[idx], NormKind::Layer, PATCH_NORM_EPS),
            None => Ok(x),
        };
        let mut x = linear(&patch_norm(patches, 0)?, &weights.patch)?; // [n, w]
        x = patch_norm(x, 1)?;
        match &weights.positions {
            Positions::No => {}
            Positions::Nearest { table, side } => {
                let (lines, columns) = (tiling.sides.height, tiling.sides.width);
                let nearest = |at: usize, n: usize| at * side / n.max(1);
                let rows = tiling.patches.iter().map(|&(line, column)| {
                    (nearest(line, lines) * side + nearest(column, columns)) as u32
                });
                let rows = Tensor::from_vec(rows.collect(), n_patches, device)?;
                x = (x + table.index_select(&rows, 0)?)?;
            }
            Positions::Stretched { table, side } => x = (x + stretched(table, *side, tiling)?)?,
            Positions::ByAxis { columns, lines } => {
                let places = tiling.patches.iter();
                let (line, column): (Vec<u32>, Vec<u32>) =
                    places.map(|(y, x)| (*y as u32, *x as u32)).unzip();
                let rows = |table: &Tensor, at: Vec<u32>| {
                    table.index_select(&Tensor::from_vec(at, n_patches, device)?, 0)
                };
                x = ((x + rows(columns, column)?)? + rows(lines, line)?)?;
            }
        }
        x = patch_norm(x, 2)?;
        if let Some(class) = &weights.class {
            x = Tensor::cat(&[&class.unsqueeze(0)?, &x], 0)?;
        }
        if let Some(weights) = &weights.pre_norm {
            x = norm(&x, weights, config)?;
        }
        let head_dim = config.width / config.n_heads;
        let rotation = config
            .turn
            .map(|turn| Rotation::new(turn, head_dim, tiling, weights.class.is_some(), device));
        let rotation = rotation.transpose()?;
        let whole = 0..x.dim(0)?;
        let mut further = Vec::new();
        for (idx, layer) in weights.layers.iter().enumerate() {
            let windows = match &config.windows {
                Some(windows) if windows.layers.get(idx) == Some(&true) => &tiling.windows[..],
                _ => std::slice::from_ref(&whole),
            };
            let input = norm(&x, &layer.attention_norm, config)?;
            let mut attended = self.attention(&input, layer, rotation.as_ref(), windows)?;
            if let Some(weights) = &layer.attention_post_norm {
                attended = norm(&attended, weights, config)?;
            }
            if let Some(scale) = &layer.attention_scale {
                attended = attended.broadcast_mul(scale)?;
            }
            x = (x + attended)?;
            let input = norm(&x, &layer.feed_forward_norm, config)?;
            let mut hidden = linear(&input, &layer.up)?;
            hidden = match &layer.gate {
                Some(gate) => (activate(&linear(&input, gate)?, config.activation)? * hidden)?,
                None => activate(&hidden, config.activation)?,
            };
            let mut delta = linear(&hidden, &layer.down)?;
            if let Some(weights) = &layer.feed_forward_post_norm {
                delta = norm(&delta, weights, config)?;
            }
            if let Some(scale) = &layer.feed_forward_scale {
                delta = delta.broadcast_mul(scale)?;
            }
            x = (x + delta)?;
            if let Some(merger) = &layer.deepstack {
                further.push(self.merged(&x, merger)?);
            }
        }
        if let Some(weights) = &weights.post_norm {
            x = norm(&x, weights, config)?;
        }
        // The class has done its work.
        let n_before = usize::from(weights.class.is_some());
        Ok((x.narrow(0, n_before, n_patches)?, further))
    }

    /// Lets every row attend to all rows of its window.
    fn attention(
        &self,
        x: &Tensor,
        layer: &Layer,
        rotation: Option<&Rotation>,
        windows: &[Range<usize>],
    ) -> Result<Tensor> {
        let n_heads = self.config.n_heads;
        let (n, width) = x.dims2()?;
        let head_dim = width / n_heads;
        let heads = |weights: &Linear, weights_of_norm: Option<&Norm>| -> Result<Tensor> {
            let mut heads = linear(x, weights)?;
            // Of all heads together.
            let is_whole = |norm: &&Norm| norm.weight.elem_count() == width;
            if let Some(weights) = weights_of_norm.filter(is_whole) {
                heads = norm(&heads, weights, &self.config)?;
            }
            heads = heads.reshape((n, n_heads, head_dim))?;
            if let Some(weights) = weights_of_norm.filter(|norm| !is_whole(norm)) {
                heads = norm(&heads, weights, &self.config)?;
            }
            heads.transpose(0, 1)?.contiguous() // [heads, n, head_dim]
        };
        let rotated = |heads: Tensor| match rotation {
            Some(rotation) => rotation.turn(&heads),
            None => Ok(heads),
        };
        let query = heads(&layer.query, layer.query_norm.as_ref())?;
        let query = (rotated(query)? * self.config.scale)?;
        let key = heads(&layer.key, layer.key_norm.as_ref())?;
        let key = rotated(key)?.transpose(1, 2)?;
        let mut value = heads(&layer.value, None)?;
        if self.config.value_norm {
            value = over_root_mean_square(&value, self.config.eps)?;
        }
        let attended = if self.device.is_cpu() {
            self.attend_by_head(&query, &key, &value, windows)?
        } else {
            attend_within(&query, &key, &value, windows)?
        };
        let joined = attended
            .transpose(0, 1)?
            .contiguous()?
            .reshape((n, width))?;
        linear(&joined, &layer.output)
    }

    /// One head for each thread: candle's softmax on the CPU uses one alone.
    fn attend_by_head(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        windows: &[Range<usize>],
    ) -> Result<Tensor> {
        let shape = query.dims3()?;
        let (n_heads, n, head_dim) = shape;
        let mut out = vec![0.0; n_heads * n * head_dim];
        let failure = std::sync::Mutex::new(None);
        let heads = out.par_chunks_mut((n * head_dim).max(1)).enumerate();
        heads.for_each(|(head, out)| {
            let one = |tensor: &Tensor| tensor.narrow(0, head, 1);
            let attended = || {
                let [query, key, value] = [one(query)?, one(key)?, one(value)?];
                attend_within(&query, &key, &value, windows)?.flatten_all()
            };
            match attended().and_then(|attended| attended.to_vec1::<f32>()) {
                Ok(values) => out.copy_from_slice(&values),
                Err(error) => {
                    let mut failure = failure
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    *failure = Some(error);
                }
            }
        });
        let failure = failure
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match failure {
            Some(error) => Err(error),
            None => Tensor::from_vec(out, shape, &self.device),
        }
    }

    fn project(&self, x: &Tensor, tiling: &Tiling) -> Result<Tensor> {
        match &self.weights.projector {
            Projector::Mlp(first, None) => linear(x, first)?.gelu(),
            Projector::Mlp(first, Some(second)) => linear(&linear(x, first)?.gelu()?, second),
            Projector::Merger(merger) => self.in_order(&self.merged(x, merger)?, tiling),
            Projector::Pixtral {
                merger,
                first,
                second,
            } => {
                let rows = match merger {
                    Some((weights, matrix)) => {
                        let x = norm(x, weights, &self.config)?;
                        linear(&self.unfolded(&x)?, matrix)?
                    }
                    None => x.clone(),
                };
                let rows = linear(&linear(&rows, first)?.gelu_erf()?, second)?;
                self.in_order(&rows, tiling)
            }
            Projector::Glm {
                merger,
                matrix,
                norm: weights,
                gate,
                up,
                down,
            } => {
                let rows = linear(&linear(&self.unfolded(x)?, merger)?, matrix)?;
                let rows = normed(&rows, weights, NormKind::Layer, MERGER_EPS)?.gelu_erf()?;
                let hidden = (linear(&rows, gate)?.silu()? * linear(&rows, up)?)?;
                self.in_order(&linear(&hidden, down)?, tiling)
            }
            Projector::Resampler {
                queries,
                query_norm,
                matrix,
                norm: weights,
                query,
                key,
                value,
                output,
                post_norm,
                last,
            } => {
                let layer_norm = |x: &Tensor, weights: &Norm| {
                    normed(x, weights, NormKind::Layer, self.config.eps)
                };
                let (n_queries, width) = queries.dims2()?;
                let n_heads = width / RESAMPLER_HEAD;
                let head_dim = width / n_heads;
                let heads = |x: &Tensor, weights: &Linear| -> Result<Tensor> {
                    let heads = linear(x, weights)?.reshape(((), n_heads, head_dim))?;
                    heads.transpose(0, 1)?.contiguous() // [heads, rows, head_dim]
                };
                let values = layer_norm(&linear(x, matrix)?, weights)?;
                let keys = (&values + places(tiling, width, &self.device)?)?;
                let query = heads(&layer_norm(queries, query_norm)?, query)?;
                let query = (query / (head_dim as f64).sqrt())?;
                let key = heads(&keys, key)?.transpose(1, 2)?.contiguous()?;
                let attended = attend(&query, &key, &heads(&values, value)?)?;
                let joined = attended.transpose(0, 1)?.contiguous()?;
                let rows = linear(&joined.reshape((n_queries, width))?, output)?;
                linear(&layer_norm(&rows, post_norm)?, last)
            }
            Projector::Gemma3 {
                norm: weight,
                matrix,
            } => {
                let pooled = self.averages(x, tiling.sides.width)?;
                let normed = over_root_mean_square(&pooled, self.config.eps)?;
                normed.broadcast_mul(weight)?.matmul(&matrix.values()?)
            }
            Projector::Normed(matrix) => {
                linear(&over_root_mean_square(x, self.config.eps)?, matrix)
            }
            Projector::Gemma4 { standard, matrix } => {
                // The patches of a row follow each other.
                let (merge, width) = (self.config.merge, self.config.width);
                let mut rows = x.reshape(((), merge * merge, width))?.mean(1)?;
                rows = (rows * (width as f64).sqrt())?;
                if let Some([bias, scale]) = standard {
                    rows = rows.broadcast_sub(bias)?.broadcast_mul(scale)?;
                }
                let rows = over_root_mean_square(&rows, self.config.eps)?;
                self.in_order(&linear(&rows, matrix)?, tiling)
            }
        }
    }

    /// Makes a row of each square of patches, which follow each other.
    fn merged(&self, x: &Tensor, merger: &Merger) -> Result<Tensor> {
        let mut rows = x.reshape(((), self.config.merge.pow(2) * self.config.width))?;
        if let Some((weights, eps)) = &merger.norm {
            rows = normed(&rows, weights, NormKind::Layer, *eps)?;
        }
        for (idx, matrix) in merger.matrices.iter().enumerate() {
            if idx > 0 {
                rows = rows.gelu_erf()?;
            }
            rows = linear(&rows, matrix)?;
        }
        Ok(rows)
    }

    /// Makes a row of each square of patches, element by element: the first of all patches, then the
    /// second of all.
    fn unfolded(&self, x: &Tensor) -> Result<Tensor> {
        let (width, n_merged) = (self.config.width, self.config.merge.pow(2));
        let squares = x.reshape(((), n_merged, width))?.transpose(1, 2)?;
        squares.contiguous()?.reshape(((), n_merged * width))
    }

    /// Ends each line of rows but the last with a break, if the encoder has one.
    fn in_lines(&self, rows: &Tensor, tiling: &Tiling) -> Result<Tensor> {
        let Some(line_break) = &self.weights.line_break else {
            return Ok(rows.clone());
        };
        let width = tiling.sides.width / self.config.merge;
        let n_lines = tiling.sides.height / self.config.merge;
        let mut parts = Vec::with_capacity(2 * n_lines);
        for line in 0..n_lines {
            if line > 0 {
                parts.push(line_break.unsqueeze(0)?);
            }
            parts.push(rows.narrow(0, line * width, width)?);
        }
        Tensor::cat(&parts, 0)
    }

    /// Brings rows from the order of windows into that of lines.
    fn in_order(&self, rows: &Tensor, tiling: &Tiling) -> Result<Tensor> {
        let order = Tensor::from_slice(&tiling.order, tiling.order.len(), &self.device)?;
        rows.index_select(&order, 0)
    }

    /// Averages squares of `merge` times `merge` patches; patches beyond the last square are left.
    fn averages(&self, x: &Tensor, side: usize) -> Result<Tensor> {
        let (merge, width) = (self.config.merge, self.config.width);
        let n = side / merge;
        x.reshape((side, side, width))?
            .narrow(0, 0, n * merge)?
            .narrow(1, 0, n * merge)?
            .contiguous()?
            .reshape((n, merge, n, merge, width))?
            .mean((1, 3))?
            .reshape((n * n, width))
    }
}

/// Stretches a grid of `side` times `side` rows over an image, corner on corner, and returns what that
/// gives for each patch: weights of the four rows around it.
fn stretched(table: &Tensor, side: usize, tiling: &Tiling) -> Result<Tensor> {
    let along = |at: usize, n: usize| {
        let place = at as f64 * (side - 1) as f64 / (n.max(2) - 1) as f64;
        let before = (place as usize).min(side - 1);
        (before, (before + 1).min(side - 1), place - before as f64)
    };
    let n = tiling.patches.len();
    let mut rows: [Vec<u32>; 4] = Default::default();
    let mut weights: [Vec<f32>; 4] = Default::default();
    for &(line, column) in &tiling.patches {
        let (above, below, down) = along(line, tiling.sides.height);
        let (left, right, over) = along(column, tiling.sides.width);
        let around = [
            (above, left, (1.0 - down) * (1.0 - over)),
            (above, right, (1.0 - down) * over),
            (below, left, down * (1.0 - over)),
            (below, right, down * over),
        ];
        for (idx, (y, x, weight)) in around.into_iter().enumerate() {
            rows[idx].push((y * side + x) as u32);
            weights[idx].push(weight as f32);
        }
    }
    let device = table.device();
    let parts = rows.into_iter().zip(weights).map(|(rows, weights)| {
        let rows = table.index_select(&Tensor::from_vec(rows, n, device)?, 0)?;
        rows.broadcast_mul(&Tensor::from_vec(weights, (n, 1), device)?)
    });
    let mut sum: Option<Tensor> = None;
    for part in parts {
        let part = part?;
        sum = Some(match sum {
            Some(sum) => (sum + part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| candle_core::Error::Msg("an image without patches".into()))
}

/// Returns what tells the patches apart for queries, `[n, width]`: sines, then cosines, of their column
/// times `width / 4` frequencies, then those of their line (<https://arxiv.org/abs/1706.03762>, 3.5).
fn places(tiling: &Tiling, width: usize, device: &Device) -> Result<Tensor> {
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
    Tensor::from_vec(values, (tiling.patches.len(), 4 * n_each), device)
}

/// Turns pairs of elements of a head by the place of its patch, as [`Turn`] says.
struct Rotation {
    turn: Turn,
    /// `[n, head_dim / 2]`; the class does not turn.
    cos: Tensor,
    sin: Tensor,
}

impl Rotation {
    fn new(
        turn: Turn,
        head_dim: usize,
        tiling: &Tiling,
        has_class: bool,
        device: &Device,
    ) -> Result<Rotation> {
        let n_each = head_dim / 4;
        let angles = |place: usize, offset: f64| {
            let frequency = move |pair: usize| {
                turn.base
                    .powf(-(pair as f64 + offset) / n_each.max(1) as f64)
            };
            (0..n_each).map(move |pair| (turn.from + place) as f64 * frequency(pair))
        };
        let offset = if turn.between { 0.5 } else { 0.0 };
        let patches = tiling.patches.iter();
        let turned = patches.flat_map(|(line, column)| {
            let [first, second] = if turn.columns_first {
                [column, line]
            } else {
                [line, column]
            };
            angles(*first, 0.0).chain(angles(*second, offset))
        });
        let n_before = usize::from(has_class);
        let still = std::iter::repeat_n(0.0, n_before * 2 * n_each);
        let all: Vec<f64> = still.chain(turned).collect();
        let table = |function: fn(f64) -> f64| {
            let values: Vec<f32> = all.iter().map(|angle| function(*angle) as f32).collect();
            Tensor::from_vec(
                values,
                (n_before + tiling.patches.len(), 2 * n_each),
                device,
            )
        };
        Ok(Rotation {
            turn,
            cos: table(f64::cos)?,
            sin: table(f64::sin)?,
        })
    }

    /// Rotates heads, `[heads, n, head_dim]`.
    fn turn(&self, heads: &Tensor) -> Result<Tensor> {
        let (n_heads, n, head_dim) = heads.dims3()?;
        // Both elements of all pairs along an axis of their own.
        let (shape, axis) = match self.turn.pairs {
            Pairs::HalfApart => ((n_heads, n, 1, 2, head_dim / 2), 3),
            Pairs::Neighbours => ((n_heads, n, 1, head_dim / 2, 2), 4),
            Pairs::QuarterApart => ((n_heads, n, 2, 2, head_dim / 4), 3),
        };
        let pairs = heads.reshape(shape)?;
        let half = |idx: usize| {
            let half = pairs.narrow(axis, idx, 1)?;
            half.reshape((n_heads, n, head_dim / 2))
        };
        let (first, second) = (half(0)?, half(1)?);
        let new_first = (first.broadcast_mul(&self.cos)? - second.broadcast_mul(&self.sin)?)?;
        let new_second = (second.broadcast_mul(&self.cos)? + first.broadcast_mul(&self.sin)?)?;
        let shape = pairs.narrow(axis, 0, 1)?;
        let halves = [
            new_first.reshape(shape.shape())?,
            new_second.reshape(shape.shape())?,
        ];
        Tensor::cat(&halves, axis)?.reshape((n_heads, n, head_dim))
    }
}

/// Attends within windows, which follow each other.
fn attend_within(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    windows: &[Range<usize>],
) -> Result<Tensor> {
    let parts = windows.iter().map(|window| {
        let (start, n) = (window.start, window.len());
        attend(
            &query.narrow(1, start, n)?,
            &key.narrow(2, start, n)?.contiguous()?,
            &value.narrow(1, start, n)?.contiguous()?,
        )
    });
    Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 1)
}

/// Attends from all rows of `query` to all of `key` (transposed), some at a time to bound memory.
fn attend(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    let n = query.dim(1)?;
    let parts = (0..n).step_by(ROWS_AT_ONCE).map(|start| {
        let query = query.narrow(1, start, ROWS_AT_ONCE.min(n - start))?;
        let scores = query.contiguous()?.matmul(key)?; // [heads, rows, n]
        let exp = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let sum = exp.sum_keepdim(D::Minus1)?;
        exp.matmul(value)?.broadcast_div(&sum)
    });
    Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 1)
}

fn linear(x: &Tensor, weights: &Linear) -> Result<Tensor> {
    let bounded = |x: &Tensor, [least, most]: [f32; 2]| x.clamp(least, most);
    let input = weights.bounds.map(|bounds| bounded(x, bounds.input));
    let input = input.transpose()?;
    let x = input.as_ref().unwrap_or(x);
    let mut product = x.matmul(&weights.matrix.values()?.t()?)?;
    if let Some(bias) = &weights.bias {
        product = product.broadcast_add(bias)?;
    }
    match weights.bounds {
        Some(bounds) => bounded(&product, bounds.output),
        None => Ok(product),
    }
}

/// Divides each row by its root mean square.
fn over_root_mean_square(x: &Tensor, eps: f32) -> Result<Tensor> {
    let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean_square + f64::from(eps))?.sqrt()?)
}

fn norm(x: &Tensor, weights: &Norm, config: &Config) -> Result<Tensor> {
    normed(x, weights, config.norm, config.eps)
}

fn normed(x: &Tensor, weights: &Norm, kind: NormKind, eps: f32) -> Result<Tensor> {
    let centred = match kind {
        NormKind::Layer => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
        NormKind::Rms => x.clone(),
    };
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normed = centred
        .broadcast_div(&(variance + f64::from(eps))?.sqrt()?)?
        .broadcast_mul(&weights.weight)?;
    match &weights.bias {
        Some(bias) => normed.broadcast_add(bias),
        None => Ok(normed),
    }
}

fn activate(x: &Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::Gelu => x.gelu(),
        Activation::ExactGelu => x.gelu_erf(),
        Activation::Silu => x.silu(),
        Activation::QuickGelu => x / ((x * -1.702)?.exp()? + 1.0)?,
    }
}

const ROWS_AT_ONCE: usize = 256;
/// Added to the variance in norms of patches, which no file says.
const PATCH_NORM_EPS: f32 = 1e-5;
