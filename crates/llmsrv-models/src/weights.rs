//! The weights of a decoder: which tensors a configuration needs, and of what shape.
//!
//! Everything is checked here, so that the forward pass cannot meet a wrong shape. Tensors that
//! hold several matrices one above the other are cut into their rows, which copies nothing.

mod layer;
mod mixers;
mod mlp;

use std::slice::from_ref;

use llmsrv_engine::{LoadError, Pooling};

use crate::{
    adapter::Adapter,
    arch::{ArchConfig, DeltaNetConfig, ExpertsConfig, LatentConfig, ScanConfig},
    head::Head,
    linear::Linear,
    loader::Loader,
    ops::Holder,
    parts::Part,
    source::{FileMatrix, Result, Source},
};

/// All weights of a model on the device of `O`.
pub(crate) struct Weights<O: Holder> {
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
pub(crate) struct Streams<O: Holder> {
    /// From the embedding to each stream but the first.
    pub spread: Vec<O::Matrix>,
    /// From each stream but the first to what is summed at the end.
    pub gather: Vec<O::Matrix>,
}

/// How a layer works on several residual streams.
pub(crate) struct LayerStreams<O: Holder> {
    /// Weight of the norm before the router.
    pub router_norm: O::Vector,
    /// To one number for each stream.
    pub router: O::Matrix,
    /// As [`Ops::stream_factors`](crate::ops::Ops::stream_factors) takes them, `[stream][from stream]`: how streams are
    /// predicted from each other.
    pub predict: O::Vector,
    /// The same for what streams are corrected with, `[stream][itself, the result of the layer, the first stream]`.
    pub correct: O::Vector,
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
pub(crate) struct PerLayer<O: Holder> {
    /// One row for each token, one part after another.
    pub table: FileMatrix,
    /// From the first embedding to as much.
    pub projection: O::Matrix,
    /// Weight of the norm of each part of the projection.
    pub norm: O::Vector,
}

/// How a layer takes in its part of the second embedding.
pub(crate) struct LayerInput<O: Holder> {
    /// From the residual stream to what multiplies it.
    pub gate: O::Matrix,
    /// Back to the residual stream.
    pub projection: O::Matrix,
    /// Weight of the norm before it is added.
    pub norm: O::Vector,
}

/// A norm of the residual stream.
pub(crate) struct Norm<O: Holder> {
    /// Multiplies what was normed.
    pub weight: O::Vector,
    /// Added after the multiplication.
    pub bias: Option<O::Vector>,
}

/// The weights of one layer.
pub(crate) struct LayerWeights<O: Holder> {
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
pub(crate) enum Mixer<O: Holder> {
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
pub(crate) struct AttentionWeights<O: Holder> {
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
pub(crate) struct LatentWeights<O: Holder> {
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
pub(crate) struct ShortConvWeights<O: Holder> {
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
pub(crate) struct DeltaNetWeights<O: Holder> {
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
pub(crate) struct ScanWeights<O: Holder> {
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
pub(crate) enum FeedForward<O: Holder> {
    /// There is none.
    None,
    /// One network.
    Dense(Mlp<O>),
    /// Several, chosen for each row.
    Experts(Box<Experts<O>>),
}

/// A mixture of experts.
pub(crate) struct Experts<O: Holder> {
    /// How many there are, and how a row chooses.
    pub config: ExpertsConfig,
    /// The layer they belong to.
    pub layer: usize,
    /// To one score for each expert.
    pub router: Linear<O>,
    /// Added to the probability of each expert where rows choose, not where they weigh.
    pub selection_bias: Option<Vec<f32>>,
    /// One network for each expert.
    pub networks: Vec<Mlp<O>>,
    /// The same, where rows choose on a device.
    pub on_device: Option<O::Experts>,
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
pub(crate) struct Early<O: Holder> {
    /// Norm of what they read.
    pub norm: Norm<O>,
    /// Reads what the layer's second norm gives.
    pub beside: Mlp<O>,
}

/// A network on the residual stream, beside experts that then have norms of their own.
pub(crate) struct Beside<O: Holder> {
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
pub(crate) struct Mlp<O: Holder> {
    /// To what is activated, where that is not `up`.
    pub gate: Option<Linear<O>>,
    /// To what it is multiplied with.
    pub up: Linear<O>,
    /// Of what `down` reads.
    pub sub_norm: Option<O::Vector>,
    /// Back to the residual stream.
    pub down: Linear<O>,
}

impl<O: Holder> Weights<O> {
    /// Finds all weights that `arch` needs. `n_vocab` is the number of tokens.
    pub(crate) fn load(
        source: &Source,
        adapters: &[Adapter],
        arch: &ArchConfig,
        n_vocab: usize,
        ops: &mut O,
    ) -> Result<Weights<O>> {
        let mut loader = Loader {
            source,
            adapters,
            config: arch,
            ops,
        };
        let layers = (0..arch.layers.len()).map(|idx| loader.layer(idx));
        let layers = layers.collect::<Result<_, _>>()?;
        loader.ops.begin_part(Part::Input);
        let embedding = source.table("token_embd.weight", n_vocab, arch.width)?;
        let output = if source.has("output.weight") {
            source.table("output.weight", n_vocab, arch.width)?
        } else {
            embedding.clone()
        };
        let output_bias = source.optional_vector("output.bias", n_vocab)?;
        let per_layer = loader.per_layer(n_vocab)?;
        let streams = loader.streams()?;
        let embedding_norm = arch
            .embedding_norm
            .then(|| loader.residual_norm("token_embd_norm"))
            .transpose()?;
        loader.ops.begin_part(Part::Output);
        let head = match arch.pooling {
            Some(Pooling::Rank) if arch.bidirectional => {
                let shape = (arch.width, arch.norm_eps);
                Some(Head::normed_classifier(source, shape, loader.ops)?)
            }
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
            embedding_norm,
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
