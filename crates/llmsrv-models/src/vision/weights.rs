//! The weights of an encoder: which tensors a configuration needs, and of what shape.

use candle_core::{Device, Tensor};
use llmsrv_engine::LoadError;

use super::config::{BREAK, BREAK_TOKEN, Config, Kind, Location, QUERIES, Sizing};
use crate::source::{FileMatrix, Source, invalid};

/// All weights of an encoder.
pub(super) struct Weights {
    /// From the pixels of a patch to a row.
    pub patch: Linear,
    /// Norms of the pixels, of what that gives, and of that with its position.
    pub patch_norms: Option<[Norm; 3]>,
    /// Goes before the patches, in encoders that were trained to classify.
    pub class: Option<Tensor>,
    /// What tells patches apart, beside rotations.
    pub positions: Positions,
    /// Norm before the layers.
    pub pre_norm: Option<Norm>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// Norm after the layers.
    pub post_norm: Option<Norm>,
    /// To the decoder's embeddings.
    pub projector: Projector,
    /// Row between lines of rows.
    pub line_break: Option<Tensor>,
}

/// Rows that are added to those of patches.
pub(super) enum Positions {
    /// None.
    No,
    /// Those of a square grid of `side` times `side`, the nearest one from above and the left: in a square
    /// image of as many patches one for each.
    Nearest { table: Tensor, side: usize },
    /// Those of a square grid of `side` times `side`, stretched over the image.
    Stretched { table: Tensor, side: usize },
    /// One for each column, and one for each line.
    ByAxis { columns: Tensor, lines: Tensor },
}

/// The weights of one layer.
pub(super) struct Layer {
    pub attention_norm: Norm,
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    /// Norms of each head of queries and keys, or of all heads together.
    pub query_norm: Option<Norm>,
    pub key_norm: Option<Norm>,
    pub output: Linear,
    /// Norm of what attention gives.
    pub attention_post_norm: Option<Norm>,
    /// Factors of that.
    pub attention_scale: Option<Tensor>,
    pub feed_forward_norm: Norm,
    pub gate: Option<Linear>,
    pub up: Linear,
    pub down: Linear,
    /// Norm of what the feed-forward network gives.
    pub feed_forward_post_norm: Option<Norm>,
    /// Factors of that.
    pub feed_forward_scale: Option<Tensor>,
    /// What makes further elements of the rows of its output.
    pub deepstack: Option<Merger>,
}

/// Makes a row of `merge` times `merge` patches side by side.
pub(super) struct Merger {
    /// Norm of all that is side by side, and what it adds to the variance.
    pub norm: Option<(Norm, f32)>,
    /// Matrices, GELU between them.
    pub matrices: Vec<Linear>,
}

/// What comes after the transformer.
pub(super) enum Projector {
    /// One or two matrices, GELU after the first.
    Mlp(Linear, Option<Linear>),
    /// Patches side by side, normed by themselves before.
    Merger(Merger),
    /// A norm of patches and a matrix from a square of them, if there are squares; then two matrices,
    /// GELU between.
    Pixtral {
        /// The norm and the matrix.
        merger: Option<(Norm, Linear)>,
        /// To the width of the decoder.
        first: Linear,
        /// From there.
        second: Linear,
    },
    /// A matrix from a square of patches and another, a norm, GELU, and a gated network.
    Glm {
        /// From a square of patches, element by element.
        merger: Linear,
        /// From there.
        matrix: Linear,
        /// Before GELU.
        norm: Norm,
        /// The network.
        gate: Linear,
        up: Linear,
        down: Linear,
    },
    /// The weight of an RMS norm, then a matrix that is stored transposed.
    Gemma3 {
        /// Weight of the norm of the averages.
        norm: Tensor,
        /// One row for each input.
        matrix: Matrix,
    },
    /// Queries that attend to what a matrix and a norm make of patches, a norm and a matrix.
    Resampler {
        /// The queries, `[n_queries, out_width]`.
        queries: Tensor,
        /// Their norm.
        query_norm: Norm,
        /// From a patch to its keys and values.
        matrix: Linear,
        /// Behind it.
        norm: Norm,
        /// Attention has these, as in a layer.
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear,
        /// Behind it.
        post_norm: Norm,
        /// To the decoder's embeddings.
        last: Linear,
    },
    /// An RMS norm without weights, then a matrix.
    Normed(Linear),
    /// The same behind averages of patches; before it perhaps what is subtracted from the averages,
    /// and what they are multiplied with.
    Gemma4 {
        /// What is subtracted, and the factors.
        standard: Option<[Tensor; 2]>,
        /// To the width of the decoder.
        matrix: Linear,
    },
}

/// The weights of a norm.
pub(super) struct Norm {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

/// A matrix and perhaps a bias.
pub(super) struct Linear {
    pub matrix: Matrix,
    pub bias: Option<Tensor>,
    /// What its input and the product are clamped to.
    pub bounds: Option<Bounds>,
}

/// Least and most of the elements that a matrix is multiplied with, and of those of the product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub input: [f32; 2],
    pub output: [f32; 2],
}

/// A matrix on its device or, for the CPU, in the file.
pub(super) enum Matrix {
    InFile(FileMatrix),
    Ready(Tensor),
}

impl Matrix {
    /// Returns the values as f32, `[rows, columns]`.
    pub(super) fn values(&self) -> candle_core::Result<Tensor> {
        match self {
            Matrix::Ready(values) => Ok(values.clone()),
            Matrix::InFile(file) => unpacked(file, &Device::Cpu),
        }
    }
}

fn unpacked(file: &FileMatrix, device: &Device) -> candle_core::Result<Tensor> {
    let mut values = vec![0.0; file.n_rows * file.n_cols];
    llmsrv_kernels::dequantize(file.dtype(), file.bytes(), &mut values)
        .map_err(candle_core::Error::wrap)?;
    Tensor::from_vec(values, (file.n_rows, file.n_cols), device)
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

impl Weights {
    /// Finds all weights that `config` needs; a row of the projector has `out_width` elements.
    pub(super) fn load(
        source: &Source,
        config: &Config,
        out_width: usize,
        device: &Device,
    ) -> Result<Weights, LoadError> {
        let names = match config.location {
            Location::Mmproj => &MMPROJ,
            Location::Decoder => match config.kind {
                Kind::Gemma3 => &WITHIN,
                Kind::Qwen3 => &WITHIN_QWEN3,
                Kind::Pixtral => &WITHIN_MISTRAL,
                Kind::Mlp
                | Kind::Qwen2
                | Kind::Qwen25
                | Kind::Gemma4
                | Kind::Glm
                | Kind::MiniCpm
                | Kind::Idefics3
                | Kind::InternVl
                | Kind::Llama4
                | Kind::Gemma4Unified => &MMPROJ,
            },
        };
        let loader = Loader {
            names,
            source,
            config,
            device,
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
        let mut class = loader.optional("v.class_embd", width)?;
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
        let patch_norms = match config.kind {
            Kind::Gemma4Unified => {
                let n_pixels = 3 * config.patch_size.pow(2);
                Some([
                    loader.norm_of("v.patch_norm.1", n_pixels)?,
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
            layers: layers.collect::<Result<_, _>>()?,
            post_norm: match config.kind {
                Kind::Glm => Some(loader.norm(names.post_norm)?),
                _ => loader.optional_norm(names.post_norm)?,
            },
            projector: loader.projector(out_width)?,
            line_break: loader.line_break(out_width)?,
        })
    }
}

struct Loader<'a> {
    names: &'static Names,
    source: &'a Source,
    config: &'a Config,
    device: &'a Device,
}

impl Loader<'_> {
    /// Returns the matrix from the pixels of a patch. Models that read films have one for each of two
    /// frames; both frames of a still image are the same, so their sum does.
    fn patch_matrix(&self) -> Result<Matrix, LoadError> {
        let (patch, width) = (self.config.patch_size, self.config.width);
        let shape = [patch, patch, 3, width];
        let name = format!("{}.weight", self.names.patch);
        // Both frames may lie in one tensor, those of each colour beside each other.
        if self.names.patch == WITHIN_QWEN3.patch {
            let all = self.source.folded(&name, &[patch, patch, 2, 3 * width])?;
            let sum = unpacked(&all, self.device).and_then(|all| {
                let frames = all.reshape((3 * width, 2, patch * patch))?;
                frames.sum(1)?.reshape((width, 3 * patch * patch))
            });
            return sum.map(Matrix::Ready).map_err(failed);
        }
        if matches!(self.config.kind, Kind::Llama4 | Kind::Gemma4Unified) {
            let matrix = self.source.matrix(&name, width, 3 * patch * patch)?;
            return self.location(matrix);
        }
        let first = self.source.folded(&name, &shape)?;
        if !self.config.kind.has_grid() {
            return self.location(first);
        }
        let second = self.source.folded(&format!("{name}.1"), &shape)?;
        let both = [first, second].map(|frame| unpacked(&frame, self.device));
        let [first, second] = both;
        let sum = first.and_then(|first| first + second?);
        sum.map(Matrix::Ready).map_err(failed)
    }

    /// Returns one position for each of `side` times `side` patches. That of the class, which is the first
    /// one, in Llama 4 the last one, is added to it.
    fn positions(&self, side: usize, class: &mut Option<Tensor>) -> Result<Positions, LoadError> {
        let n_rows = side * side + usize::from(class.is_some());
        let is_last = self.config.kind == Kind::Llama4;
        let table = self
            .source
            .matrix(self.names.positions, n_rows, self.config.width)?;
        let table = unpacked(&table, self.device).map_err(failed)?;
        if let Some(row) = class {
            let place = if is_last { side * side } else { 0 };
            let position = table.get(place).map_err(failed)?;
            *row = (&*row + position).map_err(failed)?;
        }
        let first = if is_last { 0 } else { n_rows - side * side };
        let table = table.narrow(0, first, side * side).map_err(failed)?;
        Ok(Positions::Nearest { table, side })
    }

    /// Returns a square grid of positions, and how many are on a side.
    fn square_grid(&self) -> Result<(Tensor, usize), LoadError> {
        let name = self.names.positions;
        let n_rows = self.source.n_rows(name).unwrap_or(0);
        let side = n_rows.isqrt();
        if side == 0 || side * side != n_rows {
            return Err(invalid(format!(
                "tensor {name} is no square grid: {n_rows} rows"
            )));
        }
        let table = self.source.matrix(name, n_rows, self.config.width)?;
        Ok((unpacked(&table, self.device).map_err(failed)?, side))
    }

    /// Returns the rows of at least `n` columns and as many lines.
    fn by_axis(&self, n: usize) -> Result<Positions, LoadError> {
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
        // What images cannot reach stays in the file.
        let table = |table: &FileMatrix| unpacked(&table.rows(0..n), self.device).map_err(failed);
        Ok(Positions::ByAxis {
            columns: table(columns)?,
            lines: table(lines)?,
        })
    }

    /// Reads what bounds the elements before and after a matrix: numbers beside it, or those of all
    /// matrices in one tensor, seven for each layer and that of the projector.
    fn bounds(&self, name: &str) -> Result<Option<Bounds>, LoadError> {
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

    fn packed_bounds(&self, name: &str) -> Result<Option<[f32; 4]>, LoadError> {
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
    fn query_key_value(&self, idx: usize) -> Result<[Linear; 3], LoadError> {
        let width = self.config.width;
        let name = format!("v.blk.{idx}.attn_qkv");
        if !self.source.has(&format!("{name}.weight")) {
            let part = |part: &str| self.linear(&format!("v.blk.{idx}.{part}"), width, width);
            return Ok([part("attn_q")?, part("attn_k")?, part("attn_v")?]);
        }
        let all = self
            .source
            .matrix(&format!("{name}.weight"), 3 * width, width)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), 3 * width)?;
        let part = |number: usize| -> Result<Linear, LoadError> {
            let rows = number * width..(number + 1) * width;
            let bias = bias.as_ref().and_then(|bias| bias.get(rows.clone()));
            Ok(Linear {
                matrix: self.location(all.rows(rows))?,
                bias: bias.map(|bias| self.vector(bias.to_vec())).transpose()?,
                bounds: None,
            })
        };
        Ok([part(0)?, part(1)?, part(2)?])
    }

    /// Returns what makes further elements of the rows, if the layer does.
    fn deepstack(&self, idx: usize, out_width: usize) -> Result<Option<Merger>, LoadError> {
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

    fn merger(&self, [first, second]: [&str; 2], out_width: usize) -> Result<Merger, LoadError> {
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

    fn layer(&self, idx: usize, out_width: usize) -> Result<Layer, LoadError> {
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
            gate: match self.config.kind {
                Kind::Qwen25 | Kind::Gemma4 | Kind::Pixtral | Kind::Glm => {
                    Some(self.linear(&name("ffn_gate"), hidden, width)?)
                }
                Kind::Mlp
                | Kind::Gemma3
                | Kind::Qwen2
                | Kind::Qwen3
                | Kind::MiniCpm
                | Kind::Idefics3
                | Kind::InternVl
                | Kind::Llama4
                | Kind::Gemma4Unified => None,
            },
            up: self.linear(&name(up), hidden, width)?,
            down: self.linear(&name(down), width, hidden)?,
            feed_forward_post_norm: self.optional_norm(&name("ffn_post_norm"))?,
            feed_forward_scale: self.optional(&name("ls2.weight"), width)?,
            deepstack: self.deepstack(idx, out_width)?,
        })
    }

    /// Returns the row between lines, which is the embedding of a token.
    fn line_break(&self, out_width: usize) -> Result<Option<Tensor>, LoadError> {
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
        self.vector(values).map(Some)
    }

    fn projector(&self, out_width: usize) -> Result<Projector, LoadError> {
        let (source, width) = (self.source, self.config.width);
        match self.config.kind {
            Kind::MiniCpm => {
                if !out_width.is_multiple_of(RESAMPLER_HEAD) {
                    return Err(invalid(format!("a resampler of {out_width} elements")));
                }
                let part = |name: &str| self.linear(name, out_width, out_width);
                let queries = source.matrix(QUERIES, self.config.n_queries, out_width)?;
                Ok(Projector::Resampler {
                    queries: unpacked(&queries, self.device).map_err(failed)?,
                    query_norm: self.norm_of("resampler.ln_q", out_width)?,
                    matrix: self.linear("resampler.kv", out_width, width)?,
                    norm: self.norm_of("resampler.ln_kv", out_width)?,
                    query: part("resampler.attn.q")?,
                    key: part("resampler.attn.k")?,
                    value: part("resampler.attn.v")?,
                    output: part("resampler.attn.out")?,
                    post_norm: self.norm_of("resampler.ln_post", out_width)?,
                    last: part("resampler.proj")?,
                })
            }
            Kind::Gemma3 => Ok(Projector::Gemma3 {
                norm: self.vector(source.vector(self.names.pooled_norm, width)?)?,
                matrix: self.location(source.matrix(self.names.projection, width, out_width)?)?,
            }),
            Kind::Gemma4 => {
                let bias = self.optional("v.std_bias", width)?;
                let scale = self.optional("v.std_scale", width)?;
                Ok(Projector::Gemma4 {
                    standard: bias.zip(scale).map(<[Tensor; 2]>::from),
                    matrix: self.linear("mm.input_projection", out_width, width)?,
                })
            }
            Kind::Gemma4Unified => {
                let matrix = self.linear("mm.input_projection", out_width, width)?;
                Ok(Projector::Normed(matrix))
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
                merger.norm = Some((self.norm_of("mm.0", merged)?, MERGER_EPS));
                Ok(Projector::Merger(merger))
            }
            Kind::Glm => {
                let merge = self.config.merge;
                let name = "mm.patch_merger";
                let shape = [merge, merge, width, out_width];
                let squares = source.folded(&format!("{name}.weight"), &shape)?;
                let hidden = source.n_rows("mm.gate.weight").unwrap_or(0);
                Ok(Projector::Glm {
                    merger: Linear {
                        matrix: self.location(squares)?,
                        bias: self.optional(&format!("{name}.bias"), out_width)?,
                        bounds: None,
                    },
                    matrix: self.linear("mm.model.fc", out_width, out_width)?,
                    norm: self.norm_of("mm.post_norm", out_width)?,
                    gate: self.linear("mm.gate", hidden, out_width)?,
                    up: self.linear("mm.up", hidden, out_width)?,
                    down: self.linear("mm.down", out_width, hidden)?,
                })
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

    fn linear(&self, name: &str, n_rows: usize, n_cols: usize) -> Result<Linear, LoadError> {
        let matrix = self
            .source
            .matrix(&format!("{name}.weight"), n_rows, n_cols)?;
        Ok(Linear {
            matrix: self.location(matrix)?,
            bias: self.optional(&format!("{name}.bias"), n_rows)?,
            bounds: self.bounds(name)?,
        })
    }

    fn norm(&self, name: &str) -> Result<Norm, LoadError> {
        self.norm_of(name, self.config.width)
    }

    fn norm_of(&self, name: &str, width: usize) -> Result<Norm, LoadError> {
        let norm = self.optional_norm_of(name, width)?;
        norm.ok_or_else(|| invalid(format!("tensor {name}.weight is missing")))
    }

    /// Returns the norm of each head of queries or keys, in encoders that have one.
    fn head_norm(&self, name: &str) -> Result<Option<Norm>, LoadError> {
        let head_dim = self.config.width / self.config.n_heads;
        match self.config.kind {
            Kind::Glm | Kind::Gemma4 => self.norm_of(name, head_dim).map(Some),
            Kind::InternVl => self.optional_norm(name),
            _ => Ok(None),
        }
    }

    fn optional_norm(&self, name: &str) -> Result<Option<Norm>, LoadError> {
        self.optional_norm_of(name, self.config.width)
    }

    fn optional_norm_of(&self, name: &str, width: usize) -> Result<Option<Norm>, LoadError> {
        let Some(weight) = self.optional(&format!("{name}.weight"), width)? else {
            return Ok(None);
        };
        let bias = self.optional(&format!("{name}.bias"), width)?;
        Ok(Some(Norm { weight, bias }))
    }

    fn optional(&self, name: &str, len: usize) -> Result<Option<Tensor>, LoadError> {
        let values = self.source.optional_vector(name, len)?;
        values.map(|values| self.vector(values)).transpose()
    }

    fn vector(&self, values: Vec<f32>) -> Result<Tensor, LoadError> {
        let len = values.len();
        Tensor::from_vec(values, len, self.device).map_err(failed)
    }

    fn location(&self, matrix: FileMatrix) -> Result<Matrix, LoadError> {
        if self.device.is_cpu() {
            return Ok(Matrix::InFile(matrix));
        }
        let values = unpacked(&matrix, self.device).map_err(failed)?;
        Ok(Matrix::Ready(values))
    }
}

/// Elements of a head in the attention of a resampler.
pub(super) const RESAMPLER_HEAD: usize = 128;

/// Added to the variance in the norm of a projector, which no file says.
pub(super) const MERGER_EPS: f32 = 1e-5;

/// A device that cannot take the weights, which is no fault of the file.
fn failed(error: candle_core::Error) -> LoadError {
    LoadError::Unsupported(error.to_string())
}
