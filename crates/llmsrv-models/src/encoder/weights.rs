//! The weights of an encoder: which tensors a configuration needs, and of what shape.

use llmsrv_engine::Pooling;

use super::config::{EncoderConfig, Positions};
use crate::{
    adapter::{Adapter, RowFactors},
    arch::{Activation, ExpertsConfig},
    errors::device,
    head::Head,
    linear::{Linear, linear_ref},
    loader::Loader,
    ops::{ExpertNetwork, ExpertNetworks, Holder},
    parts::Part,
    source::{FileMatrix, Result, Source, invalid},
    weights::Norm,
};

/// All weights of an encoder on the device of `O`.
pub(crate) struct EncoderWeights<O: Holder> {
    /// One row for each token.
    pub tokens: FileMatrix,
    /// What adapters add to those.
    pub token_parts: Vec<RowPart<O>>,
    /// One row for each type of token.
    pub types: Option<FileMatrix>,
    /// What adapters add to those.
    pub type_parts: Vec<RowPart<O>>,
    /// One row for each position.
    pub positions: Option<FileMatrix>,
    /// Norm of the sum of those.
    pub norm: Norm<O>,
    /// The layers, first to last.
    pub layers: Vec<EncoderLayer<O>>,
    /// Makes scores of a row.
    pub head: Option<Head<O>>,
}

/// `scale * up * row`, which an adapter adds to rows that are looked up.
pub(crate) struct RowPart<O: Holder> {
    /// One short row for each row of the table.
    pub rows: FileMatrix,
    /// From those to the rows of the table.
    pub up: O::Matrix,
    /// Factor of the product.
    pub scale: f32,
}

/// The weights of one layer.
pub(crate) struct EncoderLayer<O: Holder> {
    /// To the queries of all heads.
    pub query: Linear<O>,
    /// To the keys of all heads.
    pub key: Linear<O>,
    /// To the values of all heads.
    pub value: Linear<O>,
    /// Norm of the queries.
    pub query_norm: Option<Norm<O>>,
    /// Norm of the keys.
    pub key_norm: Option<Norm<O>>,
    /// From all heads back to the residual stream.
    pub attention_output: Linear<O>,
    /// Norm of the sum after attention.
    pub attention_norm: Norm<O>,
    /// Norm of the sum of that and the layer's input.
    pub second_norm: Option<Norm<O>>,
    /// The second part of the layer.
    pub network: Network<O>,
    /// Norm of the sum after the second part.
    pub output_norm: Norm<O>,
}

/// The feed-forward part of a layer.
pub(crate) enum Network<O: Holder> {
    /// `down(activation(up(x)))`.
    Plain(Plain<O>),
    /// `down(activation(gate(x)) * up(x))`.
    GatedMlp {
        gate: Linear<O>,
        up: Linear<O>,
        down: Linear<O>,
    },
    /// Several plain ones, chosen for each row.
    Experts {
        config: ExpertsConfig,
        router: O::Matrix,
        experts: Vec<Plain<O>>,
        /// The same, where rows choose on a device.
        on_device: Option<O::Experts>,
    },
}

/// A network without gate.
pub(crate) struct Plain<O: Holder> {
    /// To what is activated.
    pub up: Linear<O>,
    /// Back to the residual stream.
    pub down: Linear<O>,
}

impl<O: Holder> EncoderWeights<O> {
    /// Finds all weights that `config` needs. `n_vocab` is the number of tokens.
    pub(crate) fn load(
        source: &Source,
        adapters: &[Adapter],
        config: &EncoderConfig,
        n_vocab: usize,
        ops: &mut O,
    ) -> Result<EncoderWeights<O>> {
        let width = config.width;
        let mut loader = Loader {
            source,
            adapters,
            config,
            ops,
        };
        let layers = (0..config.n_layers).map(|idx| loader.layer(idx));
        let layers = layers.collect::<Result<_, _>>()?;
        loader.ops.begin_part(Part::Input);
        let types = "token_types.weight";
        let n_types = source.n_rows(types).unwrap_or(1);
        let type_parts = loader.row_parts(|adapter| adapter.table(types, n_types, width))?;
        let token_parts = loader.row_parts(|adapter| adapter.embedding(n_vocab, width))?;
        let types = source
            .has(types)
            .then(|| source.matrix(types, n_types, width));
        let positions = (config.positions == Positions::Table)
            .then(|| source.table("position_embd.weight", config.context_length, width));
        let norm = loader.norm("token_embd_norm", width)?;
        loader.ops.begin_part(Part::Output);
        let head = Head::classifier(source, width, loader.ops)?;
        if config.pooling == Pooling::Rank && head.is_none() {
            return Err(invalid("tensor cls.output.weight is missing".into()));
        }
        let weights = EncoderWeights {
            tokens: source.table("token_embd.weight", n_vocab, width)?,
            token_parts,
            types: types.transpose()?,
            type_parts,
            positions: positions.transpose()?,
            norm,
            layers,
            head: head.filter(|_| config.pooling == Pooling::Rank),
        };
        source.check_all_used()?;
        for adapter in adapters {
            adapter.check_all_used()?;
        }
        Ok(weights)
    }

    /// Returns the number of token types that have a meaning.
    pub(crate) fn n_types(&self) -> usize {
        self.types.as_ref().map_or(0, |types| types.n_rows)
    }
}

impl<O: Holder> Loader<'_, O, EncoderConfig> {
    fn layer(&mut self, idx: usize) -> Result<EncoderLayer<O>> {
        let width = self.config.width;
        let name = |part: &str| format!("blk.{idx}.{part}");
        self.ops.begin_part(Part::Layer(idx));
        let [query, key, value] = if self.source.has(&name("attn_qkv.weight")) {
            self.stacked(&name("attn_qkv"), [width; 3], width)?
        } else {
            [
                self.linear(&name("attn_q"), width, width)?,
                self.linear(&name("attn_k"), width, width)?,
                self.linear(&name("attn_v"), width, width)?,
            ]
        };
        Ok(EncoderLayer {
            query,
            key,
            value,
            query_norm: self.optional_norm(&name("attn_q_norm"))?,
            key_norm: self.optional_norm(&name("attn_k_norm"))?,
            attention_output: self.linear(&name("attn_output"), width, width)?,
            attention_norm: self.norm(&name("attn_output_norm"), width)?,
            second_norm: self.optional_norm(&name("attn_norm_2"))?,
            network: self.network(idx)?,
            output_norm: self.norm(&name("layer_output_norm"), width)?,
        })
    }

    fn network(&mut self, idx: usize) -> Result<Network<O>> {
        let (width, hidden) = (self.config.width, self.config.hidden);
        let name = |part: &str| format!("blk.{idx}.{part}");
        if let Some(config) = self.config.experts_of(idx) {
            let n = config.n_experts;
            let router = self.source.matrix(&name("ffn_gate_inp.weight"), n, width)?;
            let ups = self
                .source
                .matrices(&name("ffn_up_exps.weight"), n, hidden, width)?;
            let downs = self
                .source
                .matrices(&name("ffn_down_exps.weight"), n, width, hidden)?;
            let (ups, downs) = (self.stack(ups)?, self.stack(downs)?);
            let experts = ups.into_iter().zip(downs);
            let experts: Vec<Plain<O>> = experts.map(|(up, down)| Plain { up, down }).collect();
            let refs = experts.iter().map(|expert| ExpertNetwork {
                gate: None,
                up: linear_ref(&expert.up),
                down: linear_ref(&expert.down),
            });
            let refs = ExpertNetworks {
                config: &config,
                activation: Activation::Gelu,
                selection_bias: None,
                scales: None,
                networks: refs.collect(),
            };
            let on_device = self.ops.experts(&refs).map_err(device)?;
            return Ok(Network::Experts {
                config,
                router: self.upload(router)?,
                experts,
                on_device,
            });
        }
        let down = self.linear(&name("ffn_down"), width, hidden)?;
        if self.source.has(&name("ffn_gate.weight")) {
            let gate = self.linear(&name("ffn_gate"), hidden, width)?;
            let up = self.linear(&name("ffn_up"), hidden, width)?;
            return Ok(Network::GatedMlp { gate, up, down });
        }
        // Twice as many rows are a gate above the rest.
        if self.source.n_rows(&name("ffn_up.weight")) == Some(2 * hidden) {
            let [gate, up] = self.stacked(&name("ffn_up"), [hidden; 2], width)?;
            return Ok(Network::GatedMlp { gate, up, down });
        }
        let up = self.linear(&name("ffn_up"), hidden, width)?;
        Ok(Network::Plain(Plain { up, down }))
    }

    /// Loads what adapters add to the rows of a table.
    fn row_parts(
        &mut self,
        factors: impl Fn(&Adapter) -> Result<Option<RowFactors>>,
    ) -> Result<Vec<RowPart<O>>> {
        let mut parts = Vec::new();
        for adapter in self.adapters {
            if let Some(factors) = factors(adapter)? {
                parts.push(RowPart {
                    rows: factors.rows,
                    up: self.upload(factors.up)?,
                    scale: factors.scale,
                });
            }
        }
        Ok(parts)
    }

    /// Takes a matrix of each expert.
    fn stack(&mut self, matrices: Vec<FileMatrix>) -> Result<Vec<Linear<O>>> {
        let matrices = matrices.into_iter().map(|matrix| (matrix, None));
        let made = self.ops.stack(matrices.collect()).map_err(device)?;
        let experts = made.into_iter().map(|(matrix, bias)| Linear {
            matrix,
            bias,
            low_rank: Vec::new(),
        });
        Ok(experts.collect())
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<Norm<O>> {
        let weight = self.source.vector(&format!("{name}.weight"), len)?;
        let bias = self.source.optional_vector(&format!("{name}.bias"), len)?;
        Ok(Norm {
            weight: self.ops.vector(weight).map_err(device)?,
            bias: self.bias(bias)?,
        })
    }

    fn optional_norm(&mut self, name: &str) -> Result<Option<Norm<O>>> {
        let norm = self
            .source
            .has(&format!("{name}.weight"))
            .then(|| self.norm(name, self.config.width));
        norm.transpose()
    }
}
