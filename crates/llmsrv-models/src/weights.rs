//! The weights of a decoder: which tensors a configuration needs, and of what shape.
//!
//! Everything is checked here, so that the forward pass cannot meet a wrong shape. Tensors that
//! hold several matrices one above the other are cut into their rows, which copies nothing.

use std::ops::Range;

use llmsrv_engine::{LoadError, ModelError};

use crate::{
    adapter::Adapter,
    arch::{ArchConfig, ExpertsConfig, FeedForwardConfig, QkNorm},
    ops::Ops,
    source::{FileMatrix, Source, invalid},
};

/// All weights of a model on the device of `O`.
pub(crate) struct Weights<O: Ops> {
    /// One row for each token.
    pub embedding: FileMatrix,
    /// The layers, first to last.
    pub layers: Vec<LayerWeights<O>>,
    /// Before `output`.
    pub output_norm: O::Vector,
    /// From the last layer to logits; often the embedding again.
    pub output: Linear<O>,
}

/// A matrix and perhaps a bias.
pub(crate) struct Linear<O: Ops> {
    /// Rows are outputs.
    pub matrix: O::Matrix,
    /// Added to the product.
    pub bias: Option<O::Vector>,
    /// What adapters add to the matrix.
    pub low_rank: Vec<LowRank<O>>,
}

/// `scale * up * down`, which an adapter adds to a matrix.
pub(crate) struct LowRank<O: Ops> {
    /// From the input to few numbers.
    pub down: O::Matrix,
    /// From those to the output.
    pub up: O::Matrix,
    /// Strength.
    pub scale: f32,
}

/// One layer.
pub(crate) struct LayerWeights<O: Ops> {
    /// Before attention.
    pub attention_norm: Option<O::Vector>,
    /// To the queries of all heads.
    pub query: Linear<O>,
    /// To the keys of all heads.
    pub key: Linear<O>,
    /// To the values of all heads.
    pub value: Linear<O>,
    /// Of the queries.
    pub query_norm: Option<O::Vector>,
    /// Of the keys.
    pub key_norm: Option<O::Vector>,
    /// From all heads back to the residual stream.
    pub attention_output: Linear<O>,
    /// After attention.
    pub attention_post_norm: Option<O::Vector>,
    /// Before the feed-forward part.
    pub feed_forward_norm: Option<O::Vector>,
    /// The second part of the layer.
    pub feed_forward: FeedForward<O>,
    /// After the feed-forward part.
    pub feed_forward_post_norm: Option<O::Vector>,
}

/// The feed-forward part of a layer.
pub(crate) enum FeedForward<O: Ops> {
    /// One network.
    Dense(Gated<O>),
    /// Several, chosen for each row.
    Experts {
        /// The choice and its weights.
        config: ExpertsConfig,
        /// To one score for each expert.
        router: O::Matrix,
        /// The networks.
        experts: Vec<Gated<O>>,
        /// The network of all rows, and its gate.
        shared: Option<(Gated<O>, Option<O::Matrix>)>,
    },
}

/// `down(activation(gate(x)) * up(x))`.
pub(crate) struct Gated<O: Ops> {
    /// To what is activated.
    pub gate: Linear<O>,
    /// To what it is multiplied with.
    pub up: Linear<O>,
    /// Back to the residual stream.
    pub down: Linear<O>,
}

impl<O: Ops> Weights<O> {
    /// Finds all weights that `arch` needs. `n_vocab` is the number of tokens.
    pub(crate) fn load(
        source: &Source,
        adapters: &[Adapter],
        arch: &ArchConfig,
        n_vocab: usize,
        ops: &mut O,
    ) -> Result<Weights<O>, LoadError> {
        let mut loader = Loader {
            source,
            adapters,
            arch,
            ops,
        };
        let layers = (0..arch.layers.len()).map(|idx| loader.layer(idx));
        let layers = layers.collect::<Result<_, _>>()?;
        let embedding = source.table("token_embd.weight", n_vocab, arch.width)?;
        let output = if source.has("output.weight") {
            source.table("output.weight", n_vocab, arch.width)?
        } else {
            embedding.clone()
        };
        let output_bias = source.optional_vector("output.bias", n_vocab)?;
        let weights = Weights {
            embedding,
            layers,
            output_norm: loader.norm("output_norm.weight", arch.width)?,
            output: Linear {
                matrix: loader.upload(output)?,
                bias: loader.bias(output_bias)?,
                low_rank: loader.low_rank("output.weight", n_vocab, arch.width, 0..n_vocab)?,
            },
        };
        source.check_all_used()?;
        for adapter in adapters {
            adapter.check_all_used()?;
        }
        Ok(weights)
    }
}

struct Loader<'a, O: Ops> {
    source: &'a Source,
    adapters: &'a [Adapter],
    arch: &'a ArchConfig,
    ops: &'a mut O,
}

impl<O: Ops> Loader<'_, O> {
    fn layer(&mut self, idx: usize) -> Result<LayerWeights<O>, LoadError> {
        let arch = self.arch;
        let name = |part: &str| format!("blk.{idx}.{part}");
        let (query_width, kv_width) = (arch.query_width(), arch.kv_width());
        let qk_norm = |heads_width| match arch.qk_norm {
            None => None,
            Some(QkNorm::Head) => Some(arch.head_dim),
            Some(QkNorm::Row) => Some(heads_width),
        };
        let [query, key, value] = if self.source.has(&name("attn_qkv.weight")) {
            self.stacked(&name("attn_qkv"), [query_width, kv_width, kv_width])?
        } else {
            [
                self.linear(&name("attn_q"), query_width, arch.width)?,
                self.linear(&name("attn_k"), kv_width, arch.width)?,
                self.linear(&name("attn_v"), kv_width, arch.width)?,
            ]
        };
        Ok(LayerWeights {
            attention_norm: self.norm_if(arch.pre_norm, &name("attn_norm.weight"))?,
            query,
            key,
            value,
            query_norm: qk_norm(query_width)
                .map(|len| self.norm(&name("attn_q_norm.weight"), len))
                .transpose()?,
            key_norm: qk_norm(kv_width)
                .map(|len| self.norm(&name("attn_k_norm.weight"), len))
                .transpose()?,
            attention_output: self.linear(&name("attn_output"), arch.width, query_width)?,
            attention_post_norm: self
                .norm_if(arch.post_norm, &name("post_attention_norm.weight"))?,
            feed_forward_norm: self.norm_if(arch.pre_norm, &name("ffn_norm.weight"))?,
            feed_forward: self.feed_forward(&name)?,
            feed_forward_post_norm: self.norm_if(arch.post_norm, &name("post_ffw_norm.weight"))?,
        })
    }

    fn feed_forward(&mut self, name: &dyn Fn(&str) -> String) -> Result<FeedForward<O>, LoadError> {
        let arch = self.arch;
        let config = match arch.feed_forward {
            FeedForwardConfig::Dense {
                width,
                fused_gate_up: true,
            } => {
                let [gate, up] = self.stacked(&name("ffn_up"), [width, width])?;
                let down = self.linear(&name("ffn_down"), arch.width, width)?;
                return Ok(FeedForward::Dense(Gated { gate, up, down }));
            }
            FeedForwardConfig::Dense { width, .. } => {
                return Ok(FeedForward::Dense(self.gated(name, "", width)?));
            }
            FeedForwardConfig::Experts(config) => config,
        };
        let (n, width) = (config.n_experts, config.width);
        let router = self
            .source
            .matrix(&name("ffn_gate_inp.weight"), n, arch.width)?;
        let mut stack = |part: &str, n_rows, n_cols| {
            let matrices = self
                .source
                .matrices(&name(part), n, n_rows, n_cols)?
                .into_iter()
                .map(|matrix| {
                    Ok(Linear {
                        matrix: self.ops.matrix(matrix).map_err(device)?,
                        bias: None,
                        low_rank: Vec::new(),
                    })
                });
            matrices.collect::<Result<Vec<Linear<O>>, LoadError>>()
        };
        let gates = stack("ffn_gate_exps.weight", width, arch.width)?;
        let ups = stack("ffn_up_exps.weight", width, arch.width)?;
        let downs = stack("ffn_down_exps.weight", arch.width, width)?;
        let experts = gates
            .into_iter()
            .zip(ups)
            .zip(downs)
            .map(|((gate, up), down)| Gated { gate, up, down })
            .collect();
        let shared = match config.shared {
            None => None,
            Some(shared) => {
                let network = self.gated(name, "_shexp", shared.width)?;
                let gate = if shared.gated {
                    let name = name("ffn_gate_inp_shexp.weight");
                    let gate = self.source.matrix(&name, 1, arch.width)?;
                    Some(self.upload(gate)?)
                } else {
                    None
                };
                Some((network, gate))
            }
        };
        Ok(FeedForward::Experts {
            config,
            router: self.upload(router)?,
            experts,
            shared,
        })
    }

    fn gated(
        &mut self,
        name: &dyn Fn(&str) -> String,
        suffix: &str,
        width: usize,
    ) -> Result<Gated<O>, LoadError> {
        let part = |part: &str| name(&format!("ffn_{part}{suffix}"));
        Ok(Gated {
            gate: self.linear(&part("gate"), width, self.arch.width)?,
            up: self.linear(&part("up"), width, self.arch.width)?,
            down: self.linear(&part("down"), self.arch.width, width)?,
        })
    }

    /// Loads `name.weight` and, if there is one, `name.bias`.
    fn linear(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<Linear<O>, LoadError> {
        let matrix = self
            .source
            .matrix(&format!("{name}.weight"), n_rows, n_cols)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        Ok(Linear {
            matrix: self.upload(matrix)?,
            bias: self.bias(bias)?,
            low_rank: self.low_rank(&format!("{name}.weight"), n_rows, n_cols, 0..n_rows)?,
        })
    }

    /// Loads one tensor as matrices that lie one above the other.
    fn stacked<const N: usize>(
        &mut self,
        name: &str,
        heights: [usize; N],
    ) -> Result<[Linear<O>; N], LoadError> {
        let n_rows = heights.iter().sum();
        let stack = self
            .source
            .matrix(&format!("{name}.weight"), n_rows, self.arch.width)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        let mut start = 0;
        let parts = heights.map(|height| {
            let rows = start..start + height;
            start = rows.end;
            let bias = bias.as_ref().and_then(|bias| bias.get(rows.clone()));
            let full = format!("{name}.weight");
            Ok(Linear {
                matrix: self.upload(stack.rows(rows.clone()))?,
                bias: self.bias(bias.map(<[f32]>::to_vec))?,
                low_rank: self.low_rank(&full, n_rows, self.arch.width, rows)?,
            })
        });
        let parts: Vec<Linear<O>> = parts.into_iter().collect::<Result<_, LoadError>>()?;
        parts
            .try_into()
            .map_err(|_| invalid(format!("tensor {name}.weight cannot be cut")))
    }

    /// Loads what adapters add to some rows of the matrix `name`.
    fn low_rank(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        rows: Range<usize>,
    ) -> Result<Vec<LowRank<O>>, LoadError> {
        let mut parts = Vec::new();
        for adapter in self.adapters {
            if let Some(found) = adapter.factors(name, n_rows, n_cols)? {
                parts.push(LowRank {
                    down: self.upload(found.down)?,
                    up: self.upload(found.up.rows(rows.clone()))?,
                    scale: found.scale,
                });
            }
        }
        Ok(parts)
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<O::Vector, LoadError> {
        let values = self.source.vector(name, len)?;
        self.ops.vector(values).map_err(device)
    }

    fn norm_if(&mut self, wanted: bool, name: &str) -> Result<Option<O::Vector>, LoadError> {
        let norm = wanted.then(|| self.norm(name, self.arch.width));
        norm.transpose()
    }

    fn bias(&mut self, values: Option<Vec<f32>>) -> Result<Option<O::Vector>, LoadError> {
        let bias = values.map(|values| self.ops.vector(values));
        bias.transpose().map_err(device)
    }

    fn upload(&mut self, matrix: FileMatrix) -> Result<O::Matrix, LoadError> {
        self.ops.matrix(matrix).map_err(device)
    }
}

/// A device that cannot take the weights, which is no fault of the file.
fn device(error: ModelError) -> LoadError {
    LoadError::Unsupported(error.to_string())
}
