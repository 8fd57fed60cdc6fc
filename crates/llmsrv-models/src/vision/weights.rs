//! The weights of an encoder: which tensors a configuration needs, and of what shape.

use candle_core::{Device, Tensor};
use llmsrv_engine::LoadError;

use super::config::{Config, Kind, Location, Sizing};
use crate::source::{FileMatrix, Source, invalid};

/// All weights of an encoder.
pub(super) struct Weights {
    /// From the pixels of a patch to a row.
    pub patch: Linear,
    /// Goes before the patches, in encoders that were trained to classify.
    pub class: Option<Tensor>,
    /// One row for each position, the class first; `None` = only rotations tell patches apart.
    pub positions: Option<Tensor>,
    /// Norm before the layers.
    pub pre_norm: Option<Norm>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// Norm after the layers.
    pub post_norm: Option<Norm>,
    /// To the decoder's embeddings.
    pub projector: Projector,
}

/// The weights of one layer.
pub(super) struct Layer {
    pub attention_norm: Norm,
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    pub feed_forward_norm: Norm,
    pub gate: Option<Linear>,
    pub up: Linear,
    pub down: Linear,
}

/// What comes after the transformer.
pub(super) enum Projector {
    /// One or two matrices, GELU after the first.
    Mlp(Linear, Option<Linear>),
    /// Two matrices behind `merge` times `merge` patches side by side, GELU between.
    Merger(Linear, Linear),
    /// The weight of an RMS norm, then a matrix that is stored transposed.
    Gemma3 {
        /// Weight of the norm of the averages.
        norm: Tensor,
        /// One row for each input.
        matrix: Matrix,
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
    post_norm: &'static str,
    attention_norm: &'static str,
    output: &'static str,
    feed_forward_norm: &'static str,
    up: &'static str,
    down: &'static str,
    pooled_norm: &'static str,
    projection: &'static str,
}

const MMPROJ: Names = Names {
    patch: "v.patch_embd",
    positions: "v.position_embd.weight",
    post_norm: "v.post_ln",
    attention_norm: "ln1",
    output: "attn_out",
    feed_forward_norm: "ln2",
    up: "ffn_up",
    down: "ffn_down",
    pooled_norm: "mm.soft_emb_norm.weight",
    projection: "mm.input_projection.weight",
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
            Location::Decoder if config.kind == Kind::Gemma3 => &WITHIN,
            Location::Decoder => &MMPROJ,
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
        };
        let class = loader.optional("v.class_embd", width)?;
        let positions = match config.sizing {
            Sizing::Own { .. } => None,
            Sizing::Square(side) => {
                let n_patches = (side / config.patch_size).pow(2);
                let n_positions = n_patches + usize::from(class.is_some());
                let table = source.matrix(names.positions, n_positions, width)?;
                Some(unpacked(&table, device).map_err(failed)?)
            }
        };
        let layers = (0..config.n_layers).map(|idx| loader.layer(idx));
        Ok(Weights {
            patch,
            class,
            positions,
            pre_norm: loader.optional_norm("v.pre_ln")?,
            layers: layers.collect::<Result<_, _>>()?,
            post_norm: loader.optional_norm(names.post_norm)?,
            projector: loader.projector(out_width)?,
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

    fn layer(&self, idx: usize) -> Result<Layer, LoadError> {
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
        Ok(Layer {
            attention_norm: self.norm(&name(names.attention_norm))?,
            query: self.linear(&name("attn_q"), width, width)?,
            key: self.linear(&name("attn_k"), width, width)?,
            value: self.linear(&name("attn_v"), width, width)?,
            output: self.linear(&name(names.output), width, width)?,
            feed_forward_norm: self.norm(&name(names.feed_forward_norm))?,
            gate: match self.config.kind {
                Kind::Qwen25 => Some(self.linear(&name("ffn_gate"), hidden, width)?),
                Kind::Mlp | Kind::Gemma3 | Kind::Qwen2 => None,
            },
            up: self.linear(&name(up), hidden, width)?,
            down: self.linear(&name(down), width, hidden)?,
        })
    }

    fn projector(&self, out_width: usize) -> Result<Projector, LoadError> {
        let (source, width) = (self.source, self.config.width);
        match self.config.kind {
            Kind::Gemma3 => Ok(Projector::Gemma3 {
                norm: self.vector(source.vector(self.names.pooled_norm, width)?)?,
                matrix: self.location(source.matrix(self.names.projection, width, out_width)?)?,
            }),
            Kind::Qwen2 | Kind::Qwen25 => {
                let merged = self.config.merge.pow(2) * width;
                let hidden = source.n_rows("mm.0.weight").unwrap_or(0);
                Ok(Projector::Merger(
                    self.linear("mm.0", hidden, merged)?,
                    self.linear("mm.2", out_width, hidden)?,
                ))
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
        })
    }

    fn norm(&self, name: &str) -> Result<Norm, LoadError> {
        let norm = self.optional_norm(name)?;
        norm.ok_or_else(|| invalid(format!("tensor {name}.weight is missing")))
    }

    fn optional_norm(&self, name: &str) -> Result<Option<Norm>, LoadError> {
        let width = self.config.width;
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

/// A device that cannot take the weights, which is no fault of the file.
fn failed(error: candle_core::Error) -> LoadError {
    LoadError::Unsupported(error.to_string())
}
