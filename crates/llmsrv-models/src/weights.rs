//! The weights of a decoder: which tensors a configuration needs, and of what shape.
//!
//! Everything is checked here, so that the forward pass cannot meet a wrong shape. Tensors that
//! hold several matrices one above the other are cut into their rows, which copies nothing.

use std::{iter::repeat_with, ops::Range, slice::from_ref, time::Duration};

use llmsrv_engine::{LoadError, ModelError, Pooling};

use crate::{
    adapter::Adapter,
    arch::{
        ArchConfig, DeltaNetConfig, ExpertsConfig, ExpertsInput, FeedForwardConfig, LatentConfig,
        LayerConfig, Mixer as MixerConfig, NormKind, QkNorm, ScanConfig,
    },
    head::Head,
    ops::Ops,
    source::{FileMatrix, Source, invalid},
};

/// All weights of a model on the device of `O`.
pub(crate) struct Weights<O: Ops> {
    /// One row for each token.
    pub embedding: FileMatrix,
    /// The layers, first to last.
    pub layers: Vec<LayerWeights<O>>,
    /// Norm of the rows of `embedding`.
    pub embedding_norm: Option<Norm<O>>,
    /// One row for each position.
    pub positions: Option<FileMatrix>,
    /// Norm of the rows that `output` reads.
    pub output_norm: Norm<O>,
    /// From the last layer to logits; often the embedding again. `None` where there are none.
    pub output: Option<Linear<O>>,
    /// What every layer takes from the token by itself.
    pub per_layer: Option<PerLayer<O>>,
    /// Between one residual stream and several.
    pub streams: Option<Streams<O>>,
    /// What vectors of texts are made with, beyond the last norm.
    pub head: Option<Head<O>>,
}

/// Between one residual stream and several.
pub(crate) struct Streams<O: Ops> {
    /// From the embedding to each stream but the first.
    pub spread: Vec<O::Matrix>,
    /// From each stream but the first to what is summed at the end.
    pub gather: Vec<O::Matrix>,
}

/// How a layer works on several residual streams.
pub(crate) struct LayerStreams<O: Ops> {
    /// Weight of the norm before the router.
    pub router_norm: O::Vector,
    /// To one number for each stream.
    pub router: O::Matrix,
    /// `[stream][from stream][number]`: how streams are predicted from each other.
    pub predict: Vec<f32>,
    /// `[stream][number]`: how much streams are corrected.
    pub correct: Vec<f32>,
    /// Multiplies the columns of the first stream before it meets the second embedding.
    pub scale: O::Vector,
    /// To few elements, beside attention.
    pub down: O::Matrix,
    /// From those back.
    pub up: O::Matrix,
    /// Weight of the norm of that.
    pub low_norm: O::Vector,
}

/// The second embedding of a token: a part for each layer.
pub(crate) struct PerLayer<O: Ops> {
    /// One row for each token, one part after another.
    pub table: FileMatrix,
    /// From the first embedding to as much.
    pub projection: O::Matrix,
    /// Weight of the norm of each part of the projection.
    pub norm: O::Vector,
}

/// How a layer takes in its part of the second embedding.
pub(crate) struct LayerInput<O: Ops> {
    /// From the residual stream to what multiplies it.
    pub gate: O::Matrix,
    /// Back to the residual stream.
    pub projection: O::Matrix,
    /// Weight of the norm before it is added.
    pub norm: O::Vector,
}

/// A norm of the residual stream.
pub(crate) struct Norm<O: Ops> {
    /// Multiplies what was normed.
    pub weight: O::Vector,
    /// Added after the multiplication.
    pub bias: Option<O::Vector>,
}

/// A matrix and perhaps a bias.
pub(crate) struct Linear<O: Ops> {
    /// One row for each output.
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
    /// Factor of the product of both.
    pub scale: f32,
}

/// The weights of one layer.
pub(crate) struct LayerWeights<O: Ops> {
    /// Norm before the first part.
    pub attention_norm: Option<Norm<O>>,
    /// The first part of the layer: mostly one, and how it gets back to the residual stream.
    pub mixers: Vec<(Mixer<O>, Linear<O>)>,
    /// Weight of the norm after the mixer.
    pub attention_post_norm: Option<O::Vector>,
    /// Norm before the feed-forward part.
    pub feed_forward_norm: Option<Norm<O>>,
    /// The second part of the layer.
    pub feed_forward: FeedForward<O>,
    /// Weight of the norm after the feed-forward part.
    pub feed_forward_post_norm: Option<O::Vector>,
    /// A part of the token's second embedding.
    pub input: Option<LayerInput<O>>,
    /// How it works on several residual streams.
    pub streams: Option<LayerStreams<O>>,
    /// Multiplies the residual stream at the end.
    pub output_scale: Option<f32>,
}

/// A first part of a layer.
pub(crate) enum Mixer<O: Ops> {
    /// Attention.
    Attention(Box<AttentionWeights<O>>),
    /// Latent attention.
    Latent(Box<LatentWeights<O>>),
    /// A convolution over the last rows.
    ShortConv(ShortConvWeights<O>),
    /// A gated delta net.
    DeltaNet(Box<DeltaNetWeights<O>>),
    /// A selective scan.
    Scan(Box<ScanWeights<O>>),
}

/// Attention, but for its output.
pub(crate) struct AttentionWeights<O: Ops> {
    /// To the queries of all heads.
    pub query: Linear<O>,
    /// To what multiplies the results of all heads.
    pub gate: Option<Linear<O>>,
    /// To the keys of all heads, where the layer stores some.
    pub key: Option<Linear<O>>,
    /// To the values of all heads; without it they are the keys before their norm.
    pub value: Option<Linear<O>>,
    /// Of the queries.
    pub query_norm: Option<O::Vector>,
    /// Of the keys.
    pub key_norm: Option<O::Vector>,
    /// Of the values of a head: ones.
    pub value_norm: Option<O::Vector>,
    /// The score of each head that has no key.
    pub sinks: Option<O::Vector>,
    /// Of what all heads give.
    pub sub_norm: Option<O::Vector>,
}

/// Latent attention, but for its output. What makes keys of the shared row is applied to the queries, and what
/// makes values of it to the sum over positions.
pub(crate) struct LatentWeights<O: Ops> {
    /// Its sizes.
    pub config: LatentConfig,
    /// To few elements and their norm, of which queries are made.
    pub query_down: Option<(Linear<O>, O::Vector)>,
    /// To the elements of all queries that are not rotated.
    pub query: Linear<O>,
    /// To those that are.
    pub query_rotated: Linear<O>,
    /// To the shared row.
    pub shared: Linear<O>,
    /// To its elements that are rotated.
    pub shared_rotated: Linear<O>,
    /// Of the shared row.
    pub norm: O::Vector,
    /// For each head: from its query to one that meets the shared row.
    pub keys: Vec<O::Matrix>,
    /// For each head: from the shared row to what it gives.
    pub values: Vec<O::Matrix>,
}

/// A convolution between two gates, but for its output.
pub(crate) struct ShortConvWeights<O: Ops> {
    /// To what multiplies the input.
    pub before: Linear<O>,
    /// To what multiplies the result.
    pub after: Linear<O>,
    /// To the input of the convolution.
    pub input: Linear<O>,
    /// `[taps][width]`.
    pub kernel: O::Vector,
}

/// A gated delta net, but for its output.
pub(crate) struct DeltaNetWeights<O: Ops> {
    /// Its sizes.
    pub config: DeltaNetConfig,
    /// To queries, keys and values, one after the other.
    pub qkv: Linear<O>,
    /// To what multiplies the results of all heads.
    pub gate: Linear<O>,
    /// To how much each value head forgets.
    pub alpha: Linear<O>,
    /// To how much each value head learns.
    pub beta: Linear<O>,
    /// `[taps][queries, keys and values]`.
    pub kernel: O::Vector,
    /// How fast each value head forgets; below 0.
    pub decay: O::Vector,
    /// Added to `alpha`.
    pub decay_bias: O::Vector,
    /// Of the result of a head.
    pub norm: O::Vector,
}

/// A selective scan, but for its output.
pub(crate) struct ScanWeights<O: Ops> {
    /// Its sizes.
    pub config: ScanConfig,
    /// To what multiplies the results of all heads.
    pub gate: Linear<O>,
    /// To the heads, what groups write, and what they read.
    pub input: Linear<O>,
    /// To the step of each head.
    pub steps: Linear<O>,
    /// `[taps][heads, written and read]`.
    pub kernel: O::Vector,
    /// Added to what is convolved.
    pub kernel_bias: Option<O::Vector>,
    /// How fast each head forgets; below 0.
    pub decay: O::Vector,
    /// Added to the steps.
    pub step_bias: O::Vector,
    /// How much of its input each head adds to its result.
    pub skip: O::Vector,
    /// Of the results of the heads of each group.
    pub norm: Option<O::Vector>,
}

/// The feed-forward part of a layer.
pub(crate) enum FeedForward<O: Ops> {
    /// There is none.
    None,
    /// One network.
    Dense(Mlp<O>),
    /// Several, chosen for each row.
    Experts(Box<Experts<O>>),
}

/// A mixture of experts.
pub(crate) struct Experts<O: Ops> {
    /// How many there are, and how a row chooses.
    pub config: ExpertsConfig,
    /// To one score for each expert.
    pub router: Linear<O>,
    /// Added to the probability of each expert where rows choose, not where they weigh.
    pub selection_bias: Option<Vec<f32>>,
    /// One network for each expert.
    pub networks: Vec<Mlp<O>>,
    /// To what the networks read, and back from what they give, where that is narrower than the residual
    /// stream.
    pub latent: Option<(Linear<O>, Linear<O>)>,
    /// Multiplies what an expert gives.
    pub scales: Option<Vec<f32>>,
    /// The network of all rows, and its gate.
    pub shared: Option<(Mlp<O>, Option<O::Matrix>)>,
    /// What runs beside them.
    pub beside: Option<Beside<O>>,
    /// What they have where they read the residual stream before their layer.
    pub early: Option<Early<O>>,
}

/// Of experts that read the residual stream before their layer.
pub(crate) struct Early<O: Ops> {
    /// Norm of what they read.
    pub norm: Norm<O>,
    /// Reads what the layer's second norm gives.
    pub beside: Mlp<O>,
}

/// A network on the residual stream, beside experts that then have norms of their own.
pub(crate) struct Beside<O: Ops> {
    /// Reads what the layer's norm gives.
    pub network: Mlp<O>,
    /// Weight of the norm after the network.
    pub post_norm: O::Vector,
    /// Weight of the norm before the router.
    pub router_norm: O::Vector,
    /// Weight of the norm before the experts.
    pub experts_norm: O::Vector,
    /// Weight of the norm after the experts.
    pub experts_post_norm: O::Vector,
}

/// `down(activation(gate(x)) * up(x))`, or `down(activation(up(x)))`.
pub(crate) struct Mlp<O: Ops> {
    /// To what is activated, where that is not `up`.
    pub gate: Option<Linear<O>>,
    /// To what it is multiplied with.
    pub up: Linear<O>,
    /// Of what `down` reads.
    pub sub_norm: Option<O::Vector>,
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
        let per_layer = loader.per_layer(n_vocab)?;
        let streams = loader.streams()?;
        let head = match arch.pooling {
            Some(Pooling::Rank) => Some(Head::judge(source, &output, loader.ops)?),
            _ => Head::projections(source, arch.width, loader.ops)?,
        };
        let logits = !arch.bidirectional;
        let output = logits.then(|| {
            Ok::<_, LoadError>(Linear {
                matrix: loader.upload(output)?,
                bias: loader.bias(output_bias)?,
                low_rank: loader.low_rank(
                    "output.weight",
                    n_vocab,
                    arch.width,
                    from_ref(&(0..n_vocab)),
                )?,
            })
        });
        let output = output.transpose()?;
        let weights = Weights {
            embedding,
            layers,
            embedding_norm: arch
                .embedding_norm
                .then(|| loader.residual_norm("token_embd_norm"))
                .transpose()?,
            positions: arch
                .position_table
                .then(|| source.table("position_embd.weight", arch.context_length, arch.width))
                .transpose()?,
            output_norm: loader.residual_norm(arch.output_norm)?,
            output,
            per_layer,
            head,
            streams,
        };
        source.check_all_used()?;
        for adapter in adapters {
            adapter.check_all_used()?;
        }
        Ok(weights)
    }
}

/// To queries and their gates, and to keys and values.
struct Projections<O: Ops> {
    query: Linear<O>,
    gate: Option<Linear<O>>,
    key: Option<Linear<O>>,
    value: Option<Linear<O>>,
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
        let config = arch
            .layers
            .get(idx)
            .ok_or_else(|| invalid(format!("layer {idx} is missing")))?;
        let mut mixers = Vec::new();
        if matches!(
            config.mixer,
            MixerConfig::Attention | MixerConfig::AttentionAndScan(_)
        ) {
            let weights = self.attention(config, &name)?;
            let width = config.query_width();
            let output = self.linear(&name("attn_output"), arch.width, width)?;
            mixers.push((Mixer::Attention(Box::new(weights)), output));
        }
        match &config.mixer {
            MixerConfig::None | MixerConfig::Attention => {}
            MixerConfig::Latent(latent) => {
                let weights = self.latent(config.n_heads, *latent, &name)?;
                let width = config.n_heads.saturating_mul(latent.value_dim);
                let output = self.linear(&name("attn_output"), arch.width, width)?;
                mixers.push((Mixer::Latent(Box::new(weights)), output));
            }
            MixerConfig::ShortConv { taps, width } => {
                let weights = self.short_conv(*taps, *width, &name)?;
                let output = self.linear(&name("shortconv.out_proj"), arch.width, *width)?;
                mixers.push((Mixer::ShortConv(weights), output));
            }
            MixerConfig::DeltaNet(net) => {
                let weights = self.delta_net(*net, &name)?;
                let width = net.value_width();
                let output = self.linear(&name("ssm_out"), arch.width, width)?;
                mixers.push((Mixer::DeltaNet(Box::new(weights)), output));
            }
            MixerConfig::Scan(scan) | MixerConfig::AttentionAndScan(scan) => {
                let weights = self.scan(*scan, &name)?;
                let output = self.linear(&name("ssm_out"), arch.width, scan.width())?;
                mixers.push((Mixer::Scan(Box::new(weights)), output));
            }
        }
        let attention_norm = name(arch.attention_norm);
        // The first layer reads rows that are normed already.
        let bare = idx == 0 && arch.embedding_norm;
        let bare = bare && !self.source.has(&format!("{attention_norm}.weight"));
        let mixes = config.mixer != MixerConfig::None && !bare;
        let feeds = config.feed_forward != FeedForwardConfig::None;
        Ok(LayerWeights {
            attention_norm: self.pre_norm(mixes, &attention_norm)?,
            mixers,
            attention_post_norm: self
                .norm_if(arch.post_norm, &name("post_attention_norm.weight"))?,
            feed_forward_norm: self.pre_norm(feeds, &name(arch.feed_forward_norm))?,
            feed_forward: self.feed_forward(config, &name)?,
            feed_forward_post_norm: self.norm_if(arch.post_norm, &name("post_ffw_norm.weight"))?,
            input: self.layer_input(&name)?,
            streams: self.layer_streams(&name)?,
            output_scale: self
                .source
                .optional_vector(&name("layer_output_scale.weight"), 1)?
                .and_then(|scale| scale.first().copied()),
        })
    }

    /// Loads attention, but for its output.
    fn attention(
        &mut self,
        config: &LayerConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<AttentionWeights<O>, LoadError> {
        let arch = self.arch;
        let qk_norm = |heads_width| match arch.qk_norm {
            None | Some(QkNorm::Plain) => None,
            Some(QkNorm::Head | QkNorm::Rotated) => Some(config.head_dim),
            Some(QkNorm::Row) => Some(heads_width),
        };
        let Projections {
            query,
            gate,
            key,
            value,
        } = self.projections(config, name)?;
        let key_norm = if config.stores_kv {
            qk_norm(config.kv_width())
        } else {
            self.ignore(&name("attn_k_norm.weight"));
            None
        };
        let ones = arch.value_norm && config.stores_kv;
        let ones = ones.then(|| self.ops.vector(vec![1.0; config.head_dim]));
        let is_plain = arch.qk_norm == Some(QkNorm::Plain) && config.rope.is_some();
        let mut norm = |part, len: Option<usize>| match len {
            Some(len) => self.norm(&name(part), len).map(Some),
            None if is_plain => {
                let ones = self.ops.vector(vec![1.0; config.head_dim]);
                ones.map(Some).map_err(device)
            }
            None => Ok(None),
        };
        let (query_norm, key_norm) = if arch.qk_norm == Some(QkNorm::Rotated) {
            let [of_query, of_key] = self.rotated_norms(config.head_dim, name)?;
            (Some(of_query), Some(of_key))
        } else {
            (
                norm("attn_q_norm.weight", qk_norm(config.query_width()))?,
                norm("attn_k_norm.weight", key_norm)?,
            )
        };
        Ok(AttentionWeights {
            query,
            gate,
            key,
            value,
            query_norm,
            key_norm,
            value_norm: ones.transpose().map_err(device)?,
            sinks: arch
                .sinks
                .then(|| self.norm(&name("attn_sinks.weight"), config.n_heads))
                .transpose()?,
            sub_norm: self.sub_norm(&name("attn_sub_norm.weight"), config.query_width())?,
        })
    }

    /// Loads the norms of queries and keys that are normed after they are rotated. A rotation changes no
    /// root mean square, so keys are normed before it, without weights. In query times key each pair of
    /// elements has the product of both weights, which the query gets after it is rotated.
    fn rotated_norms(
        &mut self,
        head_dim: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<[O::Vector; 2], LoadError> {
        let mut weights = self.source.vector(&name("attn_q_norm.weight"), head_dim)?;
        let of_keys = self.source.vector(&name("attn_k_norm.weight"), head_dim)?;
        for (weight, of_key) in weights.iter_mut().zip(of_keys) {
            *weight *= of_key;
        }
        let weights = self.ops.vector(weights).map_err(device)?;
        let ones = self.ops.vector(vec![1.0; head_dim]).map_err(device)?;
        Ok([weights, ones])
    }

    /// Loads latent attention, but for its output.
    fn latent(
        &mut self,
        n_heads: usize,
        config: LatentConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<LatentWeights<O>, LoadError> {
        let LatentConfig {
            rank,
            key_dim,
            value_dim,
            ..
        } = config;
        let width = self.arch.width;
        let (query_down, query_name, query_input) = match config.query_rank {
            None => (None, name("attn_q"), width),
            Some(rank) => {
                let down = self.linear(&name("attn_q_a"), rank, width)?;
                let norm = self.norm(&name("attn_q_a_norm.weight"), rank)?;
                (Some((down, norm)), name("attn_q_b"), rank)
            }
        };
        // In each head first what is not rotated.
        let dim = config.query_dim();
        let of = |from: usize, to: usize| -> Vec<Range<usize>> {
            let rows = |head: usize| head * dim + from..head * dim + to;
            (0..n_heads).map(rows).collect()
        };
        // The file bounds the number of heads before rows are listed for each.
        let n_rows = n_heads.saturating_mul(dim);
        let full = format!("{query_name}.weight");
        self.source.matrix(&full, n_rows, query_input)?;
        let parts = [&of(0, key_dim)[..], &of(key_dim, dim)[..]];
        let [query, query_rotated] = self.cut(&query_name, n_rows, query_input, parts)?;
        let heights = [rank, config.n_rotated];
        let [shared, shared_rotated] = self.stacked(&name("attn_kv_a_mqa"), heights)?;
        let both = name("attn_kv_b.weight");
        let (keys, values) = if self.source.has(&both) {
            // In each head the rows of its keys, then those of its values.
            let dim = key_dim + value_dim;
            let n_rows = n_heads.saturating_mul(dim);
            let all = self.source.matrix(&both, n_rows, rank)?;
            let keys = (0..n_heads).map(|head| all.rows(head * dim..head * dim + key_dim));
            let keys = keys.map(|rows| rows.transposed());
            let values = (0..n_heads).map(|head| all.rows(head * dim + key_dim..(head + 1) * dim));
            (keys.collect::<Result<Vec<_>, _>>()?, values.collect())
        } else {
            let keys = &name("attn_k_b.weight");
            let values = &name("attn_v_b.weight");
            (
                self.source.matrices(keys, n_heads, rank, key_dim)?,
                self.source.matrices(values, n_heads, value_dim, rank)?,
            )
        };
        let mut upload = |matrices: Vec<FileMatrix>| {
            let matrices = matrices.into_iter().map(|matrix| self.upload(matrix));
            matrices.collect::<Result<Vec<_>, _>>()
        };
        Ok(LatentWeights {
            config,
            query_down,
            query,
            query_rotated,
            shared,
            shared_rotated,
            keys: upload(keys)?,
            values: upload(values)?,
            norm: self.norm(&name("attn_kv_a_norm.weight"), rank)?,
        })
    }

    /// Loads a convolution between two gates, but for its output.
    fn short_conv(
        &mut self,
        taps: usize,
        width: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<ShortConvWeights<O>, LoadError> {
        let [before, after, input] = self.stacked(&name("shortconv.in_proj"), [width; 3])?;
        Ok(ShortConvWeights {
            before,
            after,
            input,
            kernel: self.kernel(&name("shortconv.conv.weight"), taps, width)?,
        })
    }

    /// Loads a gated delta net, but for its output.
    fn delta_net(
        &mut self,
        config: DeltaNetConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<DeltaNetWeights<O>, LoadError> {
        let (n_heads, key_heads) = (config.n_value_heads, config.n_key_heads);
        let (keys, values) = (config.key_width(), config.value_width());
        let dim = config.head_dim;
        let group = n_heads / key_heads;
        let width = self.arch.width;
        let (qkv, gate) = if self.source.has(&name("ssm_in.weight")) {
            // The parts of one key head after those of another.
            let part = dim * (2 + 2 * group);
            let of = |at: usize, n: usize| {
                let rows = move |head: usize| head * part + at * dim..head * part + (at + n) * dim;
                (0..key_heads).map(rows)
            };
            let qkv: Vec<_> = of(0, 1).chain(of(1, 1)).chain(of(2, group)).collect();
            let gate: Vec<_> = of(2 + group, group).collect();
            let parts = [&qkv[..], &gate[..]];
            let [qkv, gate] = self.cut(&name("ssm_in"), 2 * (keys + values), width, parts)?;
            (qkv, gate)
        } else {
            let qkv = self.linear(&name("attn_qkv"), config.conv_width(), width)?;
            (qkv, self.linear(&name("attn_gate"), values, width)?)
        };
        let (beta, alpha) = if self.source.has(&name("ssm_ba.weight")) {
            let of = |at: usize| -> Vec<Range<usize>> {
                let rows = |head: usize| (2 * head + at) * group..(2 * head + at + 1) * group;
                (0..key_heads).map(rows).collect()
            };
            let (beta, alpha) = (of(0), of(1));
            let [beta, alpha] = self.cut(&name("ssm_ba"), 2 * n_heads, width, [&beta, &alpha])?;
            (beta, alpha)
        } else {
            let beta = self.linear(&name("ssm_beta"), n_heads, width)?;
            (beta, self.linear(&name("ssm_alpha"), n_heads, width)?)
        };
        // Files of the public library leave out the ending.
        let bias = ["ssm_dt.bias", "ssm_dt"].map(name);
        let bias = bias.iter().find(|name| self.source.has(name));
        let bias = bias.map_or_else(|| name("ssm_dt.bias"), String::clone);
        Ok(DeltaNetWeights {
            config,
            qkv,
            gate,
            alpha,
            beta,
            kernel: self.kernel(&name("ssm_conv1d.weight"), config.taps, config.conv_width())?,
            decay: self.norm(&name("ssm_a"), n_heads)?,
            decay_bias: self.norm(&bias, n_heads)?,
            norm: self.norm(&name("ssm_norm.weight"), dim)?,
        })
    }

    /// Loads a selective scan, but for its output.
    fn scan(
        &mut self,
        config: ScanConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<ScanWeights<O>, LoadError> {
        let (width, conv_width) = (config.width(), config.conv_width());
        let heights = [width, conv_width, config.n_heads];
        let [gate, input, steps] = self.stacked(&name("ssm_in"), heights)?;
        let bias = self
            .source
            .optional_vector(&name("ssm_conv1d.bias"), conv_width)?;
        let decay = self.source.grid(&name("ssm_a"), 1, config.n_heads)?;
        let skip = self.source.grid(&name("ssm_d"), 1, config.n_heads)?;
        let norm = name("ssm_norm.weight");
        let groups = config.n_groups;
        let norm = self.source.has(&norm).then(|| {
            let values = self.source.grid(&norm, width / groups, groups)?;
            self.ops.vector(values).map_err(device)
        });
        Ok(ScanWeights {
            config,
            gate,
            input,
            steps,
            kernel: self.kernel(&name("ssm_conv1d.weight"), config.taps, conv_width)?,
            kernel_bias: self.bias(bias)?,
            decay: self.ops.vector(decay).map_err(device)?,
            step_bias: self.norm(&name("ssm_dt.bias"), config.n_heads)?,
            skip: self.ops.vector(skip).map_err(device)?,
            norm: norm.transpose()?,
        })
    }

    /// Loads the weights of a convolution: in the file a row for each channel, here one for each tap.
    fn kernel(&mut self, name: &str, taps: usize, width: usize) -> Result<O::Vector, LoadError> {
        let by_channel = self.source.grid(name, taps, width)?;
        let mut by_tap = vec![0.0; by_channel.len()];
        for (channel, weights) in by_channel.chunks_exact(taps).enumerate() {
            for (weight, row) in weights.iter().zip(by_tap.chunks_exact_mut(width)) {
                if let Some(place) = row.get_mut(channel) {
                    *place = *weight;
                }
            }
        }
        self.ops.vector(by_tap).map_err(device)
    }

    /// Loads the products that make queries and, where the layer stores them, keys and values.
    fn projections(
        &mut self,
        config: &LayerConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Projections<O>, LoadError> {
        let width = self.arch.width;
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        if self.source.has(&name("attn_qkv.weight")) {
            let heights = [query_width, kv_width, kv_width];
            let [query, key, value] = self.stacked(&name("attn_qkv"), heights)?;
            let stored = config.stores_kv.then_some((key, value));
            let (key, value) = stored.unzip();
            return Ok(Projections {
                query,
                gate: None,
                key,
                value,
            });
        }
        let (query, gate) = if self.arch.output_gate {
            // In each head the query, then its gate.
            let dim = config.head_dim;
            // The file bounds the number of heads before rows are listed for each.
            let full = name("attn_q.weight");
            let n_rows = query_width.saturating_mul(2);
            self.source.matrix(&full, n_rows, width)?;
            let of = |at: usize| -> Vec<Range<usize>> {
                let rows = |head: usize| (2 * head + at) * dim..(2 * head + at + 1) * dim;
                (0..config.n_heads).map(rows).collect()
            };
            let parts = [&of(0)[..], &of(1)[..]];
            let [query, gate] = self.cut(&name("attn_q"), n_rows, width, parts)?;
            (query, Some(gate))
        } else {
            (self.linear(&name("attn_q"), query_width, width)?, None)
        };
        if !config.stores_kv {
            // Files may have them all the same.
            self.ignore(&name("attn_k.weight"));
            self.ignore(&name("attn_v.weight"));
            return Ok(Projections {
                query,
                gate,
                key: None,
                value: None,
            });
        }
        let key = self.linear(&name("attn_k"), kv_width, width)?;
        // Only where values are normed apart can they be the keys.
        let value = if self.arch.value_norm && !self.source.has(&name("attn_v.weight")) {
            None
        } else {
            Some(self.linear(&name("attn_v"), kv_width, width)?)
        };
        Ok(Projections {
            query,
            gate,
            key: Some(key),
            value,
        })
    }

    /// Loads the second embedding.
    fn per_layer(&mut self, n_vocab: usize) -> Result<Option<PerLayer<O>>, LoadError> {
        let Some(part) = self.arch.per_layer_input else {
            return Ok(None);
        };
        let all = part.saturating_mul(self.arch.layers.len());
        let name = "per_layer_token_embd.weight";
        let table = self.source.table(name, n_vocab, all)?;
        let name = "per_layer_model_proj.weight";
        let projection = self.source.matrix(name, all, self.arch.width)?;
        Ok(Some(PerLayer {
            table,
            projection: self.upload(projection)?,
            norm: self.norm("per_layer_proj_norm.weight", part)?,
        }))
    }

    /// Loads what is between one residual stream and several.
    fn streams(&mut self) -> Result<Option<Streams<O>>, LoadError> {
        let Some(streams) = self.arch.streams else {
            return Ok(None);
        };
        let width = self.arch.width;
        let mut matrices = |name| {
            let all = self.source.matrices(name, streams.n - 1, width, width)?;
            let all = all.into_iter().map(|matrix| self.upload(matrix));
            all.collect::<Result<Vec<_>, _>>()
        };
        Ok(Some(Streams {
            spread: matrices("altup_proj.weight")?,
            gather: matrices("altup_unembd_proj.weight")?,
        }))
    }

    /// Loads how a layer works on several residual streams. The router reads what its norm gives divided by
    /// the width.
    fn layer_streams(
        &mut self,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Option<LayerStreams<O>>, LoadError> {
        let Some(streams) = self.arch.streams else {
            return Ok(None);
        };
        let (n, rank, width) = (streams.n, streams.rank, self.arch.width);
        let mut router_norm = self
            .source
            .vector(&name("altup_router_norm.weight"), width)?;
        for weight in &mut router_norm {
            *weight /= width as f32;
        }
        let matrix = |part: &str, n_rows, n_cols| self.source.matrix(&name(part), n_rows, n_cols);
        let router = matrix("altup_router.weight", n, width)?;
        let down = matrix("laurel_l.weight", rank, width)?;
        let up = matrix("laurel_r.weight", width, rank)?;
        let grid = |part: &str, n_rows| self.source.grid(&name(part), n, n_rows);
        Ok(Some(LayerStreams {
            predict: grid("altup_predict_coef.weight", n * n)?,
            correct: grid("altup_correct_coef.weight", n)?,
            router_norm: self.ops.vector(router_norm).map_err(device)?,
            router: self.upload(router)?,
            scale: self.norm(&name("altup_correct_scale.weight"), width)?,
            down: self.upload(down)?,
            up: self.upload(up)?,
            low_norm: self.norm(&name("laurel_post_norm.weight"), width)?,
        }))
    }

    /// Loads how a layer takes in its part of the second embedding.
    fn layer_input(
        &mut self,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Option<LayerInput<O>>, LoadError> {
        let Some(part) = self.arch.per_layer_input else {
            return Ok(None);
        };
        let width = self.arch.width;
        let gate = self.source.matrix(&name("inp_gate.weight"), part, width)?;
        let projection = self.source.matrix(&name("proj.weight"), width, part)?;
        Ok(Some(LayerInput {
            gate: self.upload(gate)?,
            projection: self.upload(projection)?,
            norm: self.norm(&name("post_norm.weight"), width)?,
        }))
    }

    fn feed_forward(
        &mut self,
        layer: &LayerConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<FeedForward<O>, LoadError> {
        let arch = self.arch;
        let config = match layer.feed_forward {
            FeedForwardConfig::None => return Ok(FeedForward::None),
            FeedForwardConfig::Dense {
                width,
                fused_gate_up: true,
            } => {
                let [gate, up] = self.stacked(&name("ffn_up"), [width, width])?;
                let down = self.linear(&name("ffn_down"), arch.width, width)?;
                return Ok(FeedForward::Dense(Mlp {
                    gate: Some(gate),
                    up,
                    sub_norm: None,
                    down,
                }));
            }
            FeedForwardConfig::Plain { width } => {
                return Ok(FeedForward::Dense(self.network(name, "", width, false)?));
            }
            FeedForwardConfig::Dense { width, .. } => {
                return Ok(FeedForward::Dense(self.network(name, "", width, true)?));
            }
            FeedForwardConfig::Experts(config) => config,
        };
        let (n, width) = (config.n_experts, config.width);
        let router = self.linear(&name("ffn_gate_inp"), n, arch.width)?;
        // What the experts read and give.
        let outer = config.latent.unwrap_or(arch.width);
        let latent = match config.latent {
            None => None,
            Some(latent) => Some((
                self.linear(&name("ffn_latent_down"), latent, arch.width)?,
                self.linear(&name("ffn_latent_up"), arch.width, latent)?,
            )),
        };
        let both = "ffn_gate_up_exps.weight";
        let (gates, ups) = if !config.gated {
            let ups = self.stack(&name("ffn_up_exps"), true, [n, width, outer])?;
            (Vec::new(), ups)
        } else if self.source.has(&name(both)) {
            let all = self
                .source
                .scaled_matrices(&name(both), n, 2 * width, outer)?;
            let halves = |rows: Range<usize>| all.iter().map(move |both| both.rows(rows.clone()));
            let gates = halves(0..width).map(|gate| self.expert(gate, None));
            let gates = gates.collect::<Result<Vec<_>, _>>()?;
            let ups = halves(width..2 * width).map(|up| self.expert(up, None));
            (gates, ups.collect::<Result<Vec<_>, _>>()?)
        } else {
            (
                self.stack(&name("ffn_gate_exps"), true, [n, width, outer])?,
                self.stack(&name("ffn_up_exps"), true, [n, width, outer])?,
            )
        };
        // What they give is multiplied with their scale and weight at once.
        let downs = self.stack(&name("ffn_down_exps"), false, [n, outer, width])?;
        let gates = gates.into_iter().map(Some).chain(repeat_with(|| None));
        let networks = ups
            .into_iter()
            .zip(downs)
            .zip(gates)
            .map(|((up, down), gate)| Mlp {
                gate,
                up,
                sub_norm: None,
                down,
            })
            .collect();
        let shared = match config.shared {
            None => None,
            Some(shared) => {
                let network = self.network(name, "_shexp", shared.width, config.gated)?;
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
        let early = match config.reads {
            ExpertsInput::Usual | ExpertsInput::RoutedBefore => None,
            ExpertsInput::Before { beside } => Some(Early {
                norm: self.residual_norm(&name("ffn_norm_exps"))?,
                beside: self.network(name, "", beside, true)?,
            }),
        };
        let beside = match config.beside {
            None => None,
            Some(width) => Some(self.beside(name, width)?),
        };
        Ok(FeedForward::Experts(Box::new(Experts {
            config,
            router,
            selection_bias: self.source.optional_vector(&name("exp_probs_b.bias"), n)?,
            networks,
            latent,
            scales: self
                .source
                .optional_vector(&name("ffn_down_exps.scale"), n)?,
            shared,
            beside,
            early,
        })))
    }

    /// Loads the network beside experts. The router reads the residual stream divided by its mean square
    /// and by the root of its width.
    fn beside(
        &mut self,
        name: &dyn Fn(&str) -> String,
        hidden: usize,
    ) -> Result<Beside<O>, LoadError> {
        let width = self.arch.width;
        let mut router = self.source.vector(&name("ffn_gate_inp.scale"), width)?;
        for weight in &mut router {
            *weight /= (width as f32).sqrt();
        }
        Ok(Beside {
            network: self.network(name, "", hidden, true)?,
            post_norm: self.norm(&name("post_ffw_norm_1.weight"), width)?,
            router_norm: self.ops.vector(router).map_err(device)?,
            experts_norm: self.norm(&name("pre_ffw_norm_2.weight"), width)?,
            experts_post_norm: self.norm(&name("post_ffw_norm_2.weight"), width)?,
        })
    }

    /// Loads `name.weight`, a matrix for each expert, and, if there are some, `name.bias` and, where that is
    /// wanted, `name.scale`.
    fn stack(
        &mut self,
        name: &str,
        scaled: bool,
        [n, n_rows, n_cols]: [usize; 3],
    ) -> Result<Vec<Linear<O>>, LoadError> {
        let full = format!("{name}.weight");
        let matrices = if scaled {
            self.source.scaled_matrices(&full, n, n_rows, n_cols)?
        } else {
            self.source.matrices(&full, n, n_rows, n_cols)?
        };
        let biases = self
            .source
            .optional_rows(&format!("{name}.bias"), n, n_rows)?;
        let mut biases = biases.into_iter().flatten();
        let experts = matrices
            .into_iter()
            .map(|matrix| self.expert(matrix, biases.next()));
        experts.collect()
    }

    fn expert(
        &mut self,
        matrix: FileMatrix,
        bias: Option<Vec<f32>>,
    ) -> Result<Linear<O>, LoadError> {
        Ok(Linear {
            matrix: self.upload(matrix)?,
            bias: self.bias(bias)?,
            low_rank: Vec::new(),
        })
    }

    /// Says that a tensor has a meaning, but none here.
    fn ignore(&self, name: &str) {
        self.source.ignore(name);
    }

    fn network(
        &mut self,
        name: &dyn Fn(&str) -> String,
        suffix: &str,
        width: usize,
        gated: bool,
    ) -> Result<Mlp<O>, LoadError> {
        let part = |part: &str| name(&format!("ffn_{part}{suffix}"));
        let gate = gated.then(|| self.linear(&part("gate"), width, self.arch.width));
        Ok(Mlp {
            gate: gate.transpose()?,
            up: self.linear(&part("up"), width, self.arch.width)?,
            sub_norm: self.sub_norm(&format!("{}.weight", part("sub_norm")), width)?,
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
            low_rank: self.low_rank(
                &format!("{name}.weight"),
                n_rows,
                n_cols,
                from_ref(&(0..n_rows)),
            )?,
        })
    }

    /// Loads one tensor as matrices that lie one above the other.
    fn stacked<const N: usize>(
        &mut self,
        name: &str,
        heights: [usize; N],
    ) -> Result<[Linear<O>; N], LoadError> {
        let n_rows = heights.iter().sum();
        let mut start = 0;
        let parts = heights.map(|height| {
            let rows = start..start + height;
            start = rows.end;
            [rows]
        });
        let parts = parts.each_ref().map(|part| &part[..]);
        self.cut(name, n_rows, self.arch.width, parts)
    }

    /// Loads one tensor as matrices, each of which is made of some stretches of its rows.
    fn cut<const N: usize>(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        parts: [&[Range<usize>]; N],
    ) -> Result<[Linear<O>; N], LoadError> {
        let full = format!("{name}.weight");
        let all = self.source.matrix(&full, n_rows, n_cols)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        let parts = parts.map(|stretches| {
            let bias = bias.as_ref().map(|bias| {
                let rows = stretches.iter().filter_map(|rows| bias.get(rows.clone()));
                rows.flatten().copied().collect()
            });
            Ok(Linear {
                matrix: self.upload(all.stretches(stretches))?,
                bias: self.bias(bias)?,
                low_rank: self.low_rank(&full, n_rows, n_cols, stretches)?,
            })
        });
        let parts: Vec<Linear<O>> = parts.into_iter().collect::<Result<_, LoadError>>()?;
        parts
            .try_into()
            .map_err(|_| invalid(format!("tensor {full} cannot be cut")))
    }

    /// Loads what adapters add to some rows of the matrix `name`.
    fn low_rank(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        rows: &[Range<usize>],
    ) -> Result<Vec<LowRank<O>>, LoadError> {
        let mut parts = Vec::new();
        for adapter in self.adapters {
            if let Some(found) = adapter.factors(name, n_rows, n_cols)? {
                parts.push(LowRank {
                    down: self.upload(found.down)?,
                    up: self.upload(found.up.stretches(rows))?,
                    scale: found.scale,
                });
            }
        }
        Ok(parts)
    }

    /// Loads the norm before the last matrix of a part of a layer, where there is one.
    fn sub_norm(&mut self, name: &str, len: usize) -> Result<Option<O::Vector>, LoadError> {
        let norm = self.arch.sub_norms.then(|| self.norm(name, len));
        norm.transpose()
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<O::Vector, LoadError> {
        let values = self.source.vector(name, len)?;
        self.ops.vector(values).map_err(device)
    }

    /// Loads a norm of the residual stream.
    fn residual_norm(&mut self, name: &str) -> Result<Norm<O>, LoadError> {
        let width = self.arch.width;
        // Files of Falcon H1 leave out the ending.
        let full = format!("{name}.weight");
        let full = if self.source.has(name) && !self.source.has(&full) {
            name
        } else {
            &full
        };
        let bias = match self.arch.norm {
            NormKind::Rms => None,
            NormKind::Layer => self
                .source
                .optional_vector(&format!("{name}.bias"), width)?,
        };
        Ok(Norm {
            weight: self.norm(full, width)?,
            bias: self.bias(bias)?,
        })
    }

    /// Loads the norm before a part of a layer, where there are both.
    fn pre_norm(&mut self, has_part: bool, name: &str) -> Result<Option<Norm<O>>, LoadError> {
        let wanted = has_part && self.arch.pre_norm;
        let norm = wanted.then(|| self.residual_norm(name));
        norm.transpose()
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
pub(crate) fn device(error: ModelError) -> LoadError {
    match error {
        ModelError::DeviceLost(reason) => lost(reason),
        error => LoadError::Unsupported(error.to_string()),
    }
}

/// The device went while the model was loaded. Who starts its process knows when to try again.
pub(crate) fn lost(reason: String) -> LoadError {
    LoadError::DeviceLost {
        reason,
        retry_after: Duration::ZERO,
    }
}
