//! The weights of an encoder: which tensors a configuration needs, and of what shape.

use std::ops::Range;

use llmsrv_engine::LoadError;
use llmsrv_gguf::TensorType;

use super::config::{BREAK, BREAK_TOKEN, Config, Kind, Location, Pairs, QUERIES, Sizing};
use crate::{
    arch::NormKind,
    errors::device,
    ops::{LinearRef, Ops},
    source::{FileMatrix, Result, Source, invalid},
    weights::Norm,
};

/// All weights of an encoder on the device of `O`.
pub(super) struct Weights<O: Ops> {
    /// From the pixels of a patch to a row.
    pub patch: Linear<O>,
    /// Norms of the pixels, of what that gives, and of that with its position.
    pub patch_norms: Option<[Norm<O>; 3]>,
    /// Goes before the patches, in encoders that were trained to classify.
    pub class: Option<Vec<f32>>,
    /// What tells patches apart, beside rotations.
    pub positions: Positions,
    /// Norm before the layers.
    pub pre_norm: Option<Norm<O>>,
    /// The layers, first to last.
    pub layers: Vec<Layer<O>>,
    /// Norm after the layers.
    pub post_norm: Option<Norm<O>>,
    /// Ones, as the weight of the norm of values of a head, if these are normed.
    pub value_norm: Option<O::Vector>,
    /// Elements of a row of the result.
    pub out_width: usize,
    /// To the decoder's embeddings.
    pub projector: Projector<O>,
    /// Row between lines of rows.
    pub line_break: Option<Vec<f32>>,
}

/// Rows that are added to those of patches; they stay in the file.
pub(super) enum Positions {
    /// None.
    No,
    /// Those of a square grid of `side` times `side`, the nearest one from above and the left: in a square
    /// image of as many patches one for each.
    Nearest { table: FileMatrix, side: usize },
    /// Those of a square grid of `side` times `side`, stretched over the image.
    Stretched { table: FileMatrix, side: usize },
    /// One for each column, and one for each line.
    ByAxis {
        columns: FileMatrix,
        lines: FileMatrix,
    },
}

/// The weights of one layer.
pub(super) struct Layer<O: Ops> {
    pub attention_norm: Norm<O>,
    pub query: Linear<O>,
    pub key: Linear<O>,
    pub value: Linear<O>,
    /// Norms of each head of queries and keys, or of all heads together.
    pub query_norm: Option<Norm<O>>,
    pub key_norm: Option<Norm<O>>,
    pub output: Linear<O>,
    /// Norm of what attention gives.
    pub attention_post_norm: Option<Norm<O>>,
    /// Factors of that.
    pub attention_scale: Option<O::Vector>,
    pub feed_forward_norm: Norm<O>,
    pub gate: Option<Linear<O>>,
    pub up: Linear<O>,
    pub down: Linear<O>,
    /// Norm of what the feed-forward network gives.
    pub feed_forward_post_norm: Option<Norm<O>>,
    /// Factors of that.
    pub feed_forward_scale: Option<O::Vector>,
    /// What makes further elements of the rows of its output.
    pub deepstack: Option<Merger<O>>,
}

/// Makes a row of `merge` times `merge` patches side by side.
pub(super) struct Merger<O: Ops> {
    /// Norm of all that is side by side, and what it adds to the variance.
    pub norm: Option<(Norm<O>, f32)>,
    /// Matrices, GELU between them.
    pub matrices: Vec<Linear<O>>,
}

/// What comes after the transformer.
pub(super) enum Projector<O: Ops> {
    /// One or two matrices, GELU after the first.
    Mlp(Linear<O>, Option<Linear<O>>),
    /// Patches side by side, normed by themselves before.
    Merger(Merger<O>),
    /// A norm of patches and a matrix from a square of them, if there are squares; then two matrices,
    /// GELU between.
    Pixtral {
        /// The norm and the matrix.
        merger: Option<(Norm<O>, Linear<O>)>,
        /// To the width of the decoder.
        first: Linear<O>,
        /// From there.
        second: Linear<O>,
    },
    /// A matrix from a square of patches and another, a norm, GELU, and a gated network.
    Glm(Box<Glm<O>>),
    /// The weight of an RMS norm, then a matrix.
    Gemma3 {
        /// Weight of the norm of the averages.
        norm: O::Vector,
        /// To the width of the decoder.
        matrix: O::Matrix,
    },
    /// Queries that attend to what a matrix and a norm make of patches, a norm and a matrix.
    Resampler(Box<Resampler<O>>),
    /// An RMS norm, whose weights are ones, then a matrix.
    Normed(O::Vector, Linear<O>),
    /// The same behind averages of patches; before it perhaps what is subtracted from the averages,
    /// and what they are multiplied with.
    Gemma4 {
        /// What is subtracted, and the factors.
        standard: Option<[Vec<f32>; 2]>,
        /// Weights of the norm: ones.
        ones: O::Vector,
        /// To the width of the decoder.
        matrix: Linear<O>,
    },
}

/// [`Projector::Glm`].
pub(super) struct Glm<O: Ops> {
    /// From a square of patches, element by element.
    pub merger: Linear<O>,
    /// From there.
    pub matrix: Linear<O>,
    /// Before GELU.
    pub norm: Norm<O>,
    /// The network.
    pub gate: Linear<O>,
    pub up: Linear<O>,
    pub down: Linear<O>,
}

/// [`Projector::Resampler`].
pub(super) struct Resampler<O: Ops> {
    /// The queries, `[n_queries, out_width]`.
    pub queries: Vec<f32>,
    /// Their norm.
    pub query_norm: Norm<O>,
    /// From a patch to its keys and values.
    pub matrix: Linear<O>,
    /// Behind it.
    pub norm: Norm<O>,
    /// Attention has these, as in a layer.
    pub query: Linear<O>,
    pub key: Linear<O>,
    pub value: Linear<O>,
    pub output: Linear<O>,
    /// Behind it.
    pub post_norm: Norm<O>,
    /// To the decoder's embeddings.
    pub last: Linear<O>,
}

/// A matrix and perhaps a bias.
pub(super) struct Linear<O: Ops> {
    pub matrix: O::Matrix,
    pub bias: Option<O::Vector>,
    /// What its input and the product are clamped to.
    pub bounds: Option<Bounds>,
}

impl<O: Ops> Linear<O> {
    /// The matrix and the bias, as operations take them; `None` if there are bounds, which they do not know.
    pub(super) fn unbounded(&self) -> Option<LinearRef<'_, O>> {
        match self.bounds {
            None => Some((&self.matrix, self.bias.as_ref())),
            Some(_) => None,
        }
    }
}

/// Least and most of the elements that a matrix is multiplied with, and of those of the product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub input: [f32; 2],
    pub output: [f32; 2],
}

/// Names of tensors, where they differ. A layer's come after `v.blk.<n>.`.
struct Names {
    patch: &'static str,
    positions: &'static str,
    pre_norm: &'static str,
    post_norm: &'static str,
    attention_norm: &'static str,
    output: &'static str,
    feed_forward_norm: &'static str,
    up: &'static str,
    down: &'static str,
    pooled_norm: &'static str,
    projection: &'static str,
    /// The two matrices of a merger.
    merger: [&'static str; 2],
    /// Norm and matrix from a square of patches, and the two matrices behind.
    squares: [&'static str; 2],
    behind: [&'static str; 2],
}

const MMPROJ: Names = Names {
    patch: "v.patch_embd",
    positions: "v.position_embd.weight",
    pre_norm: "v.pre_ln",
    post_norm: "v.post_ln",
    attention_norm: "ln1",
    output: "attn_out",
    feed_forward_norm: "ln2",
    up: "ffn_up",
    down: "ffn_down",
    pooled_norm: "mm.soft_emb_norm.weight",
    projection: "mm.input_projection.weight",
    merger: ["mm.0", "mm.2"],
    squares: ["mm.input_norm", "mm.patch_merger"],
    behind: ["mm.1", "mm.2"],
};

const WITHIN: Names = Names {
    patch: "v.patch_embedding",
    positions: "v.position_embedding.weight",
    post_norm: "v.post_layernorm",
    attention_norm: "layer_norm1",
    output: "attn_output",
    feed_forward_norm: "layer_norm2",
    up: "mlp.fc1",
    down: "mlp.fc2",
    pooled_norm: "mm.mm_soft_emb_norm.weight",
    projection: "mm.mm_input_projection.weight",
    ..MMPROJ
};

/// In the files of Qwen 3 VL and 3.5.
const WITHIN_QWEN3: Names = Names {
    patch: "v.patch_embed",
    positions: "v.pos_embed.weight",
    post_norm: "v.merger.norm",
    attention_norm: "norm1",
    feed_forward_norm: "norm2",
    up: "mlp.linear_fc1",
    down: "mlp.linear_fc2",
    merger: ["v.merger.linear_fc1", "v.merger.linear_fc2"],
    ..MMPROJ
};

/// In the files of Mistral Small 3.1 and Ministral 3.
const WITHIN_MISTRAL: Names = Names {
    patch: "v.patch_conv",
    pre_norm: "v.encoder_norm",
    attention_norm: "attn_norm",
    output: "attn_output",
    feed_forward_norm: "ffn_norm",
    squares: ["mm.norm", "mm.patch_merger.merging_layer"],
    behind: ["mm.linear_1", "mm.linear_2"],
    ..MMPROJ
};

impl<O: Ops> Weights<O> {
    /// Finds all weights that `config` needs; a row of the projector has `out_width` elements.
    pub(super) fn load(
        source: &Source,
        config: &Config,
        out_width: usize,
        ops: &mut O,
    ) -> Result<Weights<O>> {
        let names = match config.location {
            Location::Mmproj => &MMPROJ,
            Location::Decoder => match config.kind {
                Kind::Gemma3 => &WITHIN,
                Kind::Qwen3 => &WITHIN_QWEN3,
                Kind::Pixtral => &WITHIN_MISTRAL,
                _ => &MMPROJ,
            },
        };
        let mut loader = Loader {
            names,
            source,
            config,
            ops,
        };
        let width = config.width;
        let patch = Linear {
            matrix: loader.patch_matrix()?,
            bias: loader.optional(&format!("{}.bias", names.patch), width)?,
            bounds: None,
        };
        if config.kind == Kind::Glm && source.has(names.positions) {
            let message = "an encoder with a grid of positions that is stretched by cubics";
            return Err(LoadError::Unsupported(message.into()));
        }
        let mut class = source.optional_vector("v.class_embd", width)?;
        let positions = match config.sizing {
            Sizing::Own { .. } if config.kind == Kind::Qwen3 => {
                let (table, side) = loader.square_grid()?;
                Positions::Stretched { table, side }
            }
            Sizing::Own { .. } | Sizing::Longest { .. } => Positions::No,
            Sizing::Filled { most_rows } => loader.by_axis(most_rows * config.merge)?,
            Sizing::Square(_) if config.kind == Kind::MiniCpm => {
                let (table, side) = loader.square_grid()?;
                Positions::Nearest { table, side }
            }
            Sizing::Square(side) => {
                let side = side / config.patch_size;
                loader.positions(side, &mut class)?
            }
        };
        let layers = (0..config.n_layers).map(|idx| loader.layer(idx, out_width));
        let layers = layers.collect::<Result<_, _>>()?;
        let ones = config.value_norm.then(|| vec![1.0; width / config.n_heads]);
        let value_norm = ones.map(|ones| loader.vector(ones));
        let patch_norms = match config.kind {
            Kind::Gemma4Unified => {
                let n_pixels = 3 * config.patch_size.pow(2);
                Some([
                    loader.layer_norm("v.patch_norm.1", n_pixels)?,
                    loader.norm("v.patch_norm.2")?,
                    loader.norm("v.patch_norm.3")?,
                ])
            }
            _ => None,
        };
        Ok(Weights {
            patch,
            patch_norms,
            class,
            positions,
            pre_norm: match config.kind {
                Kind::Pixtral => Some(loader.norm(names.pre_norm)?),
                _ => loader.optional_norm(names.pre_norm)?,
            },
            layers,
            post_norm: match config.kind {
                Kind::Glm => Some(loader.norm(names.post_norm)?),
                _ => loader.optional_norm(names.post_norm)?,
            },
            value_norm: value_norm.transpose()?,
            out_width,
            projector: loader.projector(out_width)?,
            line_break: loader.line_break(out_width)?,
        })
    }
}

struct Loader<'a, O: Ops> {
    names: &'static Names,
    source: &'a Source,
    config: &'a Config,
    ops: &'a mut O,
}

impl<O: Ops> Loader<'_, O> {
    /// Returns the matrix from the pixels of a patch. Models that read films have one for each of two
    /// frames; both frames of a still image are the same, so their sum does.
    fn patch_matrix(&mut self) -> Result<O::Matrix> {
        let (patch, width) = (self.config.patch_size, self.config.width);
        let n_pixels = patch * patch;
        let name = format!("{}.weight", self.names.patch);
        // Both frames may lie in one tensor, those of each colour beside each other.
        if self.names.patch == WITHIN_QWEN3.patch {
            let all = self.source.folded(&name, &[patch, patch, 2, 3 * width])?;
            let frames = all.values();
            let colours = frames.chunks_exact(2 * n_pixels);
            let sum = colours.flat_map(|both| {
                let (first, second) = both.split_at(n_pixels);
                first.iter().zip(second).map(|(a, b)| a + b)
            });
            let sum = all.of_values(&sum.collect::<Vec<f32>>(), width, TensorType::F32)?;
            return self.upload(sum);
        }
        if matches!(self.config.kind, Kind::Llama4 | Kind::Gemma4Unified) {
            let matrix = self.source.matrix(&name, width, 3 * n_pixels)?;
            return self.upload(matrix);
        }
        let shape = [patch, patch, 3, width];
        let first = self.source.folded(&name, &shape)?;
        if !self.config.kind.has_grid() {
            return self.upload(first);
        }
        let second = self.source.folded(&format!("{name}.1"), &shape)?;
        let pairs = first.values().into_iter().zip(second.values());
        let sum: Vec<f32> = pairs.map(|(a, b)| a + b).collect();
        let sum = first.of_values(&sum, width, TensorType::F32)?;
        self.upload(sum)
    }

    /// Returns one position for each of `side` times `side` patches. That of the class, which is the first
    /// one, in Llama 4 the last one, is added to it.
    fn positions(&self, side: usize, class: &mut Option<Vec<f32>>) -> Result<Positions> {
        let n_rows = side * side + usize::from(class.is_some());
        let is_last = self.config.kind == Kind::Llama4;
        let table = self
            .source
            .matrix(self.names.positions, n_rows, self.config.width)?;
        if let Some(row) = class {
            let mut position = vec![0.0; row.len()];
            table.read_row(if is_last { side * side } else { 0 }, &mut position);
            for (element, position) in row.iter_mut().zip(position) {
                *element += position;
            }
        }
        let first = if is_last { 0 } else { n_rows - side * side };
        let table = table.rows(first..first + side * side);
        Ok(Positions::Nearest { table, side })
    }

    /// Returns a square grid of positions, and how many are on a side.
    fn square_grid(&self) -> Result<(FileMatrix, usize)> {
        let name = self.names.positions;
        let n_rows = self.source.n_rows(name).unwrap_or(0);
        let side = n_rows.isqrt();
        if side == 0 || side * side != n_rows {
            return Err(invalid(format!(
                "tensor {name} is no square grid: {n_rows} rows"
            )));
        }
        let table = self.source.matrix(name, n_rows, self.config.width)?;
        Ok((table, side))
    }

    /// Returns the rows of at least `n` columns and as many lines.
    fn by_axis(&self, n: usize) -> Result<Positions> {
        let name = self.names.positions;
        let n_rows = self.source.n_rows(name).unwrap_or(0);
        if n_rows < n {
            return Err(invalid(format!(
                "tensor {name} has {n_rows} rows, and an image may have {n} columns"
            )));
        }
        let tables = self.source.matrices(name, 2, n_rows, self.config.width)?;
        let [columns, lines] = tables.as_slice() else {
            return Err(invalid(format!("tensor {name} is not one of two matrices")));
        };
        Ok(Positions::ByAxis {
            columns: columns.clone(),
            lines: lines.clone(),
        })
    }

    /// Reads what bounds the elements before and after a matrix: numbers beside it, or those of all
    /// matrices in one tensor, seven for each layer and that of the projector.
    fn bounds(&self, name: &str) -> Result<Option<Bounds>> {
        if self.config.kind != Kind::Gemma4 {
            return Ok(None);
        }
        let mut numbers = [
            f32::NEG_INFINITY,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::INFINITY,
        ];
        let mut found = false;
        let parts = ["input_min", "input_max", "output_min", "output_max"];
        for (part, number) in parts.iter().zip(&mut numbers) {
            let beside = self.source.optional_vector(&format!("{name}.{part}"), 1)?;
            if let Some([value]) = beside.as_deref() {
                (*number, found) = (*value, true);
            }
        }
        if !found && let Some(packed) = self.packed_bounds(name)? {
            (numbers, found) = (packed, true);
        }
        let [from, to, least, most] = numbers;
        if !(from <= to && least <= most) {
            return Err(invalid(format!(
                "{name} takes {from} to {to} and gives {least} to {most}"
            )));
        }
        Ok(found.then_some(Bounds {
            input: [from, to],
            output: [least, most],
        }))
    }

    fn packed_bounds(&self, name: &str) -> Result<Option<[f32; 4]>> {
        let parts = [
            "attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up", "ffn_down",
        ];
        let n = parts.len();
        let len = (self.config.n_layers * n + 1) * 4;
        let Some(all) = self.source.optional_vector("v.clamp_data", len)? else {
            return Ok(None);
        };
        let place = match name
            .strip_prefix("v.blk.")
            .and_then(|name| name.split_once('.'))
        {
            None => Some(self.config.n_layers * n),
            Some((layer, part)) => {
                let part = parts.iter().position(|known| *known == part);
                layer
                    .parse::<usize>()
                    .ok()
                    .zip(part)
                    .map(|(layer, part)| layer * n + part)
            }
        };
        Ok(place.and_then(|place| all.as_chunks::<4>().0.get(place).copied()))
    }

    /// Returns the matrices of queries, keys and values, which may be one.
    fn query_key_value(&mut self, idx: usize) -> Result<[Linear<O>; 3]> {
        let width = self.config.width;
        let part = |part: &str| format!("v.blk.{idx}.{part}");
        let all = part("attn_qkv");
        let is_one = self.source.has(&format!("{all}.weight"));
        let named = |number: usize| match (is_one, number) {
            (true, _) => (all.clone(), 3 * width, number * width),
            (false, 0) => (part("attn_q"), width, 0),
            (false, 1) => (part("attn_k"), width, 0),
            (false, _) => (part("attn_v"), width, 0),
        };
        let mut load = |number: usize| -> Result<Linear<O>> {
            let (name, n_rows, first) = named(number);
            let rows = first..first + width;
            // Values do not turn.
            let rows = if number < 2 {
                self.pairs_halves_apart(rows)
            } else {
                Vec::from([rows])
            };
            let matrix = self
                .source
                .matrix(&format!("{name}.weight"), n_rows, width)?;
            let bias = self
                .source
                .optional_vector(&format!("{name}.bias"), n_rows)?;
            let bias = bias.map(|bias| self.vector(pick(&bias, &rows)));
            let bounds = if is_one { None } else { self.bounds(&name)? };
            Ok(Linear {
                matrix: self.upload(matrix.stretches(&rows))?,
                bias: bias.transpose()?,
                bounds,
            })
        };
        Ok([load(0)?, load(1)?, load(2)?])
    }

    /// Returns the elements of heads in an order in which those that turn together lie half a head apart, if
    /// they lie a quarter apart in the file. Queries and keys meet in any order that is the same.
    fn pairs_halves_apart(&self, elements: Range<usize>) -> Vec<Range<usize>> {
        let turn = self.config.turn;
        if turn.is_none_or(|turn| turn.pairs != Pairs::QuarterApart) {
            return Vec::from([elements]);
        }
        let head_dim = self.config.width / self.config.n_heads;
        let quarter = head_dim / 4;
        let heads = elements.step_by(head_dim.max(1));
        let quarters = heads.flat_map(|head| [0, 2, 1, 3].map(|idx| head + idx * quarter));
        quarters.map(|first| first..first + quarter).collect()
    }

    /// Returns what makes further elements of the rows, if the layer does.
    fn deepstack(&mut self, idx: usize, out_width: usize) -> Result<Option<Merger<O>>> {
        let layers = &self.config.deepstack;
        let Some(number) = layers.iter().position(|layer| *layer == idx) else {
            return Ok(None);
        };
        let (name, [first, second]) = match self.config.location {
            Location::Mmproj => (format!("v.deepstack.{idx}"), ["fc1", "fc2"]),
            Location::Decoder => {
                let name = format!("v.deepstack_merger.{number}");
                (name, ["linear_fc1", "linear_fc2"])
            }
        };
        let merged = self.config.merge.pow(2) * self.config.width;
        let part = |part: &str| format!("{name}.{part}");
        let norm = part("norm");
        let matrices = [part(first), part(second)];
        let weight = self.source.vector(&format!("{norm}.weight"), merged)?;
        let mut merger = self.merger([&matrices[0], &matrices[1]], out_width)?;
        let norm = Norm {
            weight: self.vector(weight)?,
            bias: self.optional(&format!("{norm}.bias"), merged)?,
        };
        merger.norm = Some((norm, self.config.eps));
        Ok(Some(merger))
    }

    fn merger(&mut self, [first, second]: [&str; 2], out_width: usize) -> Result<Merger<O>> {
        let merged = self.config.merge.pow(2) * self.config.width;
        let hidden = self.source.n_rows(&format!("{first}.weight")).unwrap_or(0);
        Ok(Merger {
            norm: None,
            matrices: vec![
                self.linear(first, hidden, merged)?,
                self.linear(second, out_width, hidden)?,
            ],
        })
    }

    fn layer(&mut self, idx: usize, out_width: usize) -> Result<Layer<O>> {
        let (names, width, hidden) = (self.names, self.config.width, self.config.hidden);
        let name = |part: &str| format!("v.blk.{idx}.{part}");
        // Files of the first converters have these two names exchanged.
        let down_weight = name(&format!("{}.weight", names.down));
        let exchanged = self.source.row_length(&down_weight) == Some(width);
        let (up, down) = if exchanged {
            (names.down, names.up)
        } else {
            (names.up, names.down)
        };
        let [query, key, value] = self.query_key_value(idx)?;
        Ok(Layer {
            attention_norm: self.norm(&name(names.attention_norm))?,
            query,
            key,
            value,
            query_norm: self.head_norm(&name("attn_q_norm"))?,
            key_norm: self.head_norm(&name("attn_k_norm"))?,
            output: self.linear(&name(names.output), width, width)?,
            attention_post_norm: self.optional_norm(&name("attn_post_norm"))?,
            attention_scale: self.optional(&name("ls1.weight"), width)?,
            feed_forward_norm: self.norm(&name(names.feed_forward_norm))?,
            gate: if self.config.kind.is_recent() {
                Some(self.linear(&name("ffn_gate"), hidden, width)?)
            } else {
                None
            },
            up: self.linear(&name(up), hidden, width)?,
            down: self.linear(&name(down), width, hidden)?,
            feed_forward_post_norm: self.optional_norm(&name("ffn_post_norm"))?,
            feed_forward_scale: self.optional(&name("ls2.weight"), width)?,
            deepstack: self.deepstack(idx, out_width)?,
        })
    }

    /// Returns the row between lines, which is the embedding of a token.
    fn line_break(&self, out_width: usize) -> Result<Option<Vec<f32>>> {
        let source = self.source;
        if !self.config.has_breaks {
            return Ok(None);
        }
        let values = match (self.config.location, source.token(BREAK_TOKEN)) {
            (Location::Decoder, Some(token)) => {
                let name = "token_embd.weight";
                let n_rows = source.n_rows(name).unwrap_or(0);
                let table = source.matrix(name, n_rows, out_width)?;
                let mut values = vec![0.0; out_width];
                table.read_row(token, &mut values);
                values
            }
            _ => source.vector(BREAK, out_width)?,
        };
        Ok(Some(values))
    }

    fn projector(&mut self, out_width: usize) -> Result<Projector<O>> {
        let (source, width) = (self.source, self.config.width);
        match self.config.kind {
            Kind::MiniCpm => {
                if !out_width.is_multiple_of(RESAMPLER_HEAD) {
                    return Err(invalid(format!("a resampler of {out_width} elements")));
                }
                let queries = source.matrix(QUERIES, self.config.n_queries, out_width)?;
                let mut part = |name: &str| self.linear(name, out_width, out_width);
                let attention = [
                    part("resampler.attn.q")?,
                    part("resampler.attn.k")?,
                    part("resampler.attn.v")?,
                    part("resampler.attn.out")?,
                ];
                let last = part("resampler.proj")?;
                let [query, key, value, output] = attention;
                let mut norm = |name: &str| self.layer_norm(name, out_width);
                let query_norm = norm("resampler.ln_q")?;
                let of_rows = norm("resampler.ln_kv")?;
                let post_norm = norm("resampler.ln_post")?;
                Ok(Projector::Resampler(Box::new(Resampler {
                    queries: queries.values(),
                    query_norm,
                    matrix: self.linear("resampler.kv", out_width, width)?,
                    norm: of_rows,
                    query,
                    key,
                    value,
                    output,
                    post_norm,
                    last,
                })))
            }
            Kind::Gemma3 => {
                // It has a row for each input.
                let matrix = source.matrix(self.names.projection, width, out_width)?;
                Ok(Projector::Gemma3 {
                    norm: self.vector(source.vector(self.names.pooled_norm, width)?)?,
                    matrix: self.upload(matrix.transposed()?)?,
                })
            }
            Kind::Gemma4 => {
                let bias = source.optional_vector("v.std_bias", width)?;
                let scale = source.optional_vector("v.std_scale", width)?;
                Ok(Projector::Gemma4 {
                    standard: bias.zip(scale).map(<[Vec<f32>; 2]>::from),
                    ones: self.vector(vec![1.0; width])?,
                    matrix: self.linear("mm.input_projection", out_width, width)?,
                })
            }
            Kind::Gemma4Unified => {
                let matrix = self.linear("mm.input_projection", out_width, width)?;
                Ok(Projector::Normed(self.vector(vec![1.0; width])?, matrix))
            }
            Kind::Qwen2 | Kind::Qwen25 | Kind::Qwen3 => {
                let merger = self.merger(self.names.merger, out_width)?;
                Ok(Projector::Merger(merger))
            }
            Kind::Idefics3 => {
                let merged = self.config.merge.pow(2) * width;
                Ok(Projector::Merger(Merger {
                    norm: None,
                    matrices: vec![self.linear("mm.model.fc", out_width, merged)?],
                }))
            }
            Kind::Llama4 => {
                let merged = self.config.merge.pow(2) * width;
                let names = ["mm.model.mlp.1", "mm.model.mlp.2"];
                let [hidden, last] =
                    names.map(|name| source.n_rows(&format!("{name}.weight")).unwrap_or(0));
                let [first, second] = names;
                Ok(Projector::Merger(Merger {
                    norm: None,
                    matrices: vec![
                        self.linear(first, hidden, merged)?,
                        self.linear(second, last, hidden)?,
                        self.linear("mm.model.fc", out_width, last)?,
                    ],
                }))
            }
            Kind::InternVl => {
                let merged = self.config.merge.pow(2) * width;
                let mut merger = self.merger(["mm.1", "mm.3"], out_width)?;
                merger.norm = Some((self.layer_norm("mm.0", merged)?, MERGER_EPS));
                Ok(Projector::Merger(merger))
            }
            Kind::Glm => {
                let merge = self.config.merge;
                let name = "mm.patch_merger";
                let shape = [merge, merge, width, out_width];
                let squares = source.folded(&format!("{name}.weight"), &shape)?;
                let hidden = source.n_rows("mm.gate.weight").unwrap_or(0);
                Ok(Projector::Glm(Box::new(Glm {
                    merger: Linear {
                        matrix: self.upload(squares)?,
                        bias: self.optional(&format!("{name}.bias"), out_width)?,
                        bounds: None,
                    },
                    matrix: self.linear("mm.model.fc", out_width, out_width)?,
                    norm: self.layer_norm("mm.post_norm", out_width)?,
                    gate: self.linear("mm.gate", hidden, out_width)?,
                    up: self.linear("mm.up", hidden, out_width)?,
                    down: self.linear("mm.down", out_width, hidden)?,
                })))
            }
            Kind::Pixtral => {
                let n_merged = self.config.merge.pow(2);
                let [norm, matrix] = self.names.squares;
                let merger = if n_merged > 1 || source.has(&format!("{matrix}.weight")) {
                    let matrix = self.linear(matrix, width, n_merged * width)?;
                    Some((self.norm(norm)?, matrix))
                } else {
                    None
                };
                let [first, second] = self.names.behind;
                Ok(Projector::Pixtral {
                    merger,
                    first: self.linear(first, out_width, width)?,
                    second: self.linear(second, out_width, out_width)?,
                })
            }
            // Only the projector of LLaVA has these two and nothing between.
            Kind::Mlp if source.has("mm.1.weight") || source.has("mm.3.weight") => {
                let message = "a projector of more than two matrices";
                Err(LoadError::Unsupported(message.into()))
            }
            Kind::Mlp if source.has("mm.2.weight") => {
                let hidden = source.n_rows("mm.0.weight").unwrap_or(0);
                let first = self.linear("mm.0", hidden, width)?;
                let second = self.linear("mm.2", out_width, hidden)?;
                Ok(Projector::Mlp(first, Some(second)))
            }
            Kind::Mlp => Ok(Projector::Mlp(self.linear("mm.0", out_width, width)?, None)),
        }
    }

    fn linear(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<Linear<O>> {
        let matrix = self
            .source
            .matrix(&format!("{name}.weight"), n_rows, n_cols)?;
        Ok(Linear {
            matrix: self.upload(matrix)?,
            bias: self.optional(&format!("{name}.bias"), n_rows)?,
            bounds: self.bounds(name)?,
        })
    }

    fn norm(&mut self, name: &str) -> Result<Norm<O>> {
        let norm = self.optional_norm(name)?;
        norm.ok_or_else(|| missing(name))
    }

    fn optional_norm(&mut self, name: &str) -> Result<Option<Norm<O>>> {
        self.norm_of(name, self.config.width, self.config.norm)
    }

    /// Returns a norm to the mean 0 and the variance 1, of a row of any width.
    fn layer_norm(&mut self, name: &str, width: usize) -> Result<Norm<O>> {
        let norm = self.norm_of(name, width, NormKind::Layer)?;
        norm.ok_or_else(|| missing(name))
    }

    fn norm_of(&mut self, name: &str, width: usize, kind: NormKind) -> Result<Option<Norm<O>>> {
        let Some(weight) = self.optional(&format!("{name}.weight"), width)? else {
            return Ok(None);
        };
        let bias = format!("{name}.bias");
        if kind == NormKind::Rms && self.source.has(&bias) {
            let message = format!("tensor {bias}: norms by the root mean square have none");
            return Err(LoadError::Unsupported(message));
        }
        let bias = self.optional(&bias, width)?;
        Ok(Some(Norm { weight, bias }))
    }

    /// Returns the norm of each head of queries or keys, in encoders that have one.
    fn head_norm(&mut self, name: &str) -> Result<Option<Norm<O>>> {
        let head_dim = self.config.width / self.config.n_heads;
        match self.config.kind {
            Kind::Glm | Kind::Gemma4 => {
                let order = self.pairs_halves_apart(0..head_dim);
                let weight = self.source.vector(&format!("{name}.weight"), head_dim)?;
                Ok(Some(Norm {
                    weight: self.vector(pick(&weight, &order))?,
                    bias: None,
                }))
            }
            Kind::InternVl => self.optional_norm(name),
            _ => Ok(None),
        }
    }

    fn optional(&mut self, name: &str, len: usize) -> Result<Option<O::Vector>> {
        let values = self.source.optional_vector(name, len)?;
        values.map(|values| self.vector(values)).transpose()
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<O::Vector> {
        self.ops.vector(values).map_err(device)
    }

    fn upload(&mut self, matrix: FileMatrix) -> Result<O::Matrix> {
        self.ops.matrix(matrix).map_err(device)
    }
}

/// Returns stretches of values, one after the other.
fn pick(values: &[f32], stretches: &[Range<usize>]) -> Vec<f32> {
    let parts = stretches.iter().filter_map(|part| values.get(part.clone()));
    parts.flatten().copied().collect()
}

fn missing(name: &str) -> LoadError {
    invalid(format!("tensor {name}.weight is missing"))
}

/// Elements of a head in the attention of a resampler.
pub(super) const RESAMPLER_HEAD: usize = 128;

/// Added to the variance in the norm of a projector, which no file says.
pub(super) const MERGER_EPS: f32 = 1e-5;
