//! What distinguishes one decoder from another, as plain data.
//!
//! A family fills an [`ArchConfig`] from the metadata of a file; `weights` and `decoder` read it
//! and never ask which family it was.

use std::ops::Range;

use llmsrv_engine::Pooling;

use crate::rope::Rope;

/// Positions in one KV block.
pub(crate) const BLOCK_SIZE: usize = llmsrv_kernels::KV_BLOCK;

/// The hyperparameters of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArchConfig {
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Elements of a row of the residual stream.
    pub width: usize,
    /// Tokens see those after them, too: inputs are computed whole, nothing is stored, and there are no
    /// logits.
    pub bidirectional: bool,
    /// How the rows of a text become one vector; `None` = the file does not say.
    pub pooling: Option<Pooling>,
    /// What a classifier of pairs reads, where tokens see those after them; `None` = there is none.
    pub classifier: Option<Classifier>,
    /// What the norms of the residual stream do.
    pub norm: NormKind,
    /// Added to the mean square, or the variance, in every norm.
    pub norm_eps: f32,
    /// Both parts of a layer read the residual stream as it was before the layer.
    pub parallel: bool,
    /// Each head's queries come with a gate, whose sigmoid multiplies what the head gives.
    pub output_gate: bool,
    /// Name of the norm after the last layer.
    pub output_norm: &'static str,
    /// Token embeddings are normed, and the first layer may have no norm of its own.
    pub embedding_norm: bool,
    /// Positions are rows of a table, which are added to the token embeddings.
    pub position_table: bool,
    /// Name of the norm before attention.
    pub attention_norm: &'static str,
    /// Each part of a layer normalises its input.
    pub pre_norm: bool,
    /// Each part of a layer normalises its output.
    pub post_norm: bool,
    /// Name of the norm before the feed-forward part.
    pub feed_forward_norm: &'static str,
    /// Norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// The values of each head are normalised, without weights.
    pub value_norm: bool,
    /// Queries, keys and values are brought to at most this far from 0.
    pub clamp: Option<f32>,
    /// What the heads of a layer give is normed before its last matrix, and so is what its network gives.
    pub sub_norms: bool,
    /// In each head one score more takes part in the softmax, and has no value.
    pub sinks: bool,
    /// Multiplies the token embeddings.
    pub embedding_scale: f32,
    /// Multiplies what a part of a layer adds to the residual stream.
    pub residual_scale: f32,
    /// Multiplies query times key.
    pub attention_scale: f32,
    /// Bounds query times key: `cap * tanh(score / cap)`.
    pub attention_softcap: Option<f32>,
    /// Sharpens the queries of far positions.
    pub query_temperature: Option<Temperature>,
    /// Multiplies the logits.
    pub logit_scale: f32,
    /// Bounds the logits: `cap * tanh(logit / cap)`.
    pub logit_softcap: Option<f32>,
    /// Applied to the gate of a feed-forward network.
    pub activation: Activation,
    /// As many further parts of the rows of images are added to the residual stream, one after each of
    /// the first layers.
    pub deepstack: usize,
    /// Elements that each layer takes from a second embedding of the token.
    pub per_layer_input: Option<usize>,
    /// Several residual streams, of which layers work on the first.
    pub streams: Option<StreamsConfig>,
    /// Tokens that are never predicted.
    pub suppressed: Vec<u32>,
    /// Tokens at the end of the vocabulary that have no logits.
    pub n_unwritten: usize,
    /// The rotations that layers choose from.
    pub ropes: Vec<Rope>,
    /// What differs between layers.
    pub layers: Vec<LayerConfig>,
}

impl ArchConfig {
    /// Returns the layers that store keys and values, in the order of the cache: heads and elements of
    /// a head.
    pub(crate) fn kv_shapes(&self) -> Vec<(usize, usize)> {
        let stores = |layer: &&LayerConfig| layer.stores_kv && !self.bidirectional;
        let stores = self.layers.iter().filter(stores);
        stores
            .map(|layer| (layer.n_kv_heads, layer.head_dim))
            .collect()
    }

    /// Returns whether its layers can be computed where tokens see those after them: all attend, each to keys
    /// and values of its own, and do nothing to scores and results that whole inputs do not know.
    pub(crate) fn may_see_both_sides(&self) -> bool {
        let is_usual = |layer: &LayerConfig| {
            layer.mixer == Mixer::Attention && layer.stores_kv && layer.chunk.is_none()
        };
        let is_plain = !self.output_gate && !self.sub_norms && !self.sinks;
        is_plain
            && self.attention_softcap.is_none()
            && self.streams.is_none()
            && self.layers.iter().all(is_usual)
    }

    /// Returns whether rows are rotated by their height and width, too.
    pub(crate) fn rotates_by_place(&self) -> bool {
        let mut axes = self.ropes.iter().flat_map(|rope| &rope.axes);
        axes.any(|axis| *axis > 0)
    }

    /// Returns whether rows of an image see those behind them in any layer.
    pub(crate) fn sees_whole_images(&self) -> bool {
        self.layers.iter().any(|layer| layer.whole_images)
    }

    /// Returns the last layer that stores keys and values, or changes a state: behind it rows whose logits
    /// nobody wants do not matter.
    pub(crate) fn last_storing(&self) -> usize {
        let stores = |layer: &LayerConfig| layer.stores_kv || layer.mixer.state_len() > 0;
        self.layers.iter().rposition(stores).unwrap_or(0)
    }

    /// Returns where the state of each layer lies within that of a sequence; empty for layers without.
    pub(crate) fn state_ranges(&self) -> Vec<Range<usize>> {
        self.state_ranges_of(|_| true)
    }

    /// As [`ArchConfig::state_ranges`], of some layers: the others have none.
    pub(crate) fn state_ranges_of(&self, is_there: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
        let mut start = 0;
        let ranges = self.layers.iter().enumerate().map(|(idx, layer)| {
            let len = if is_there(idx) {
                layer.mixer.state_len()
            } else {
                0
            };
            let range = start..start + len;
            start = range.end;
            range
        });
        ranges.collect()
    }
}

/// Residual streams beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamsConfig {
    /// Number of streams.
    pub n: usize,
    /// Elements of the product of low rank beside attention.
    pub rank: usize,
}

/// What differs between the layers of one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerConfig {
    /// The first part. What follows, up to the second part, is of attention.
    pub mixer: Mixer,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The place in the cache of the keys and values that it attends to.
    pub kv_layer: usize,
    /// It computes them itself; else an earlier layer stored them.
    pub stores_kv: bool,
    /// Index into [`ArchConfig::ropes`]; `None` = positions are not encoded.
    pub rope: Option<usize>,
    /// A query sees this many positions, its own included; `None` = all before it. Where tokens see those
    /// after them, it sees this many on either side.
    pub window: Option<usize>,
    /// Positions are cut into stretches of this length, and a query sees those of its own only.
    pub chunk: Option<usize>,
    /// Rows of an image see all rows of it, those behind them too.
    pub whole_images: bool,
    /// The second part of the layer.
    pub feed_forward: FeedForwardConfig,
    /// Its gate lets through what is more than so many standard deviations above the mean.
    pub gate_cutoff: Option<f32>,
}

impl LayerConfig {
    /// Elements of the keys (or values) of one position.
    pub(crate) fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Elements of the widest rows that the first part computes.
    pub(crate) fn mixer_width(&self) -> usize {
        let of_state = match self.mixer {
            Mixer::None | Mixer::Attention | Mixer::Latent(_) => 0,
            Mixer::ShortConv { width, .. } => width,
            Mixer::DeltaNet(net) => net.conv_width(),
            Mixer::Scan(scan) | Mixer::AttentionAndScan(scan) => scan.conv_width(),
        };
        self.query_width().max(self.kv_width()).max(of_state)
    }

    /// Elements of the queries of one position.
    pub(crate) fn query_width(&self) -> usize {
        self.n_heads * self.head_dim
    }
}

/// How the rows of a sequence come to know of each other in a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mixer {
    /// Not at all: the layer has the second part only.
    None,
    /// By keys and values that are stored.
    Attention,
    /// By keys that are stored, of which values are made.
    Latent(LatentConfig),
    /// By a convolution over the last rows, between two gates.
    ShortConv {
        /// Rows that a result is made of.
        taps: usize,
        /// Elements of a row.
        width: usize,
    },
    /// By a state that a delta rule changes, behind a convolution.
    DeltaNet(DeltaNetConfig),
    /// By a state that a selective scan changes, behind a convolution (Mamba 2).
    Scan(ScanConfig),
    /// By keys and values, and by such a state: both read the same rows, and both are added.
    AttentionAndScan(ScanConfig),
}

/// The sizes of latent attention: all heads share one row of each position, from which each makes its keys
/// and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatentConfig {
    /// Elements on the way to the queries; `None` = they are made at once.
    pub query_rank: Option<usize>,
    /// Elements of the shared row, without those that are rotated.
    pub rank: usize,
    /// Elements of a query, and of the shared row, that are rotated.
    pub n_rotated: usize,
    /// Elements of a query that are not.
    pub key_dim: usize,
    /// Elements that a head gives.
    pub value_dim: usize,
}

impl LatentConfig {
    /// Elements of what is stored for a position: the rotated ones, then the shared row.
    pub(crate) fn stored_dim(&self) -> usize {
        self.n_rotated + self.rank
    }

    /// Elements of a query.
    pub(crate) fn query_dim(&self) -> usize {
        self.key_dim + self.n_rotated
    }
}

/// The sizes of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanConfig {
    /// Rows that the convolution sees.
    pub taps: usize,
    /// Heads.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What is kept of each element.
    pub state_dim: usize,
    /// Groups of heads that share what is written and read; divides `n_heads`.
    pub n_groups: usize,
}

impl ScanConfig {
    /// Elements of all heads.
    pub(crate) fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Elements of a row that is convolved: the heads, and what groups write and read.
    pub(crate) fn conv_width(&self) -> usize {
        self.width() + 2 * self.n_groups * self.state_dim
    }

    /// Elements of the state of the convolution, which comes first.
    pub(crate) fn conv_len(&self) -> usize {
        (self.taps - 1) * self.conv_width()
    }

    /// Elements of the state of the scan.
    pub(crate) fn scan_len(&self) -> usize {
        self.width() * self.state_dim
    }
}

/// The sizes of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeltaNetConfig {
    /// Rows that the convolution sees.
    pub taps: usize,
    /// Heads of queries and keys; divides `n_value_heads`.
    pub n_key_heads: usize,
    /// Heads of values.
    pub n_value_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Value heads `h, h + n_key_heads, …` belong to key head `h`; else consecutive ones do.
    pub interleaved: bool,
}

impl Mixer {
    /// Returns whether a layer may store keys and values.
    pub(crate) fn attends(&self) -> bool {
        matches!(
            self,
            Mixer::Attention | Mixer::Latent(_) | Mixer::AttentionAndScan(_)
        )
    }

    /// Returns the elements of the state of a sequence in a layer.
    pub(crate) fn state_len(&self) -> usize {
        match self {
            Mixer::None | Mixer::Attention | Mixer::Latent(_) => 0,
            Mixer::ShortConv { taps, width } => (taps - 1) * width,
            Mixer::DeltaNet(net) => net.conv_len() + net.rule_len(),
            Mixer::Scan(scan) | Mixer::AttentionAndScan(scan) => scan.conv_len() + scan.scan_len(),
        }
    }
}

impl DeltaNetConfig {
    /// Elements of the queries (or keys) of a row.
    pub(crate) fn key_width(&self) -> usize {
        self.n_key_heads * self.head_dim
    }

    /// Elements of the values of a row.
    pub(crate) fn value_width(&self) -> usize {
        self.n_value_heads * self.head_dim
    }

    /// Elements of a row that is convolved: queries, keys and values.
    pub(crate) fn conv_width(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Elements of the state of the convolution, which comes first.
    pub(crate) fn conv_len(&self) -> usize {
        (self.taps - 1) * self.conv_width()
    }

    /// Elements of the state of the delta rule.
    pub(crate) fn rule_len(&self) -> usize {
        self.value_width() * self.head_dim
    }
}

/// What a classifier reads of the last rows of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classifier {
    /// The first one.
    First,
    /// Their mean.
    Mean,
}

/// What a norm does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// Divides it by its root mean square.
    Rms,
    /// Moves it to the mean 0 and the variance 1.
    Layer,
}

/// Over which elements queries and keys are normalised, mostly before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// Those of each head by themselves.
    Head,
    /// All heads of a row together.
    Row,
    /// Those of each head by themselves, without weights, in layers that encode positions.
    Plain,
    /// Those of each head by themselves, after they are rotated.
    Rotated,
}

/// Multiplies the query of position `p` with `1 + scale * ln(1 + floor((p + offset) / span))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Temperature {
    /// How much the queries of far positions grow; 0 = not at all.
    pub scale: f32,
    /// Positions of equal temperature.
    pub span: usize,
    /// Added to the position.
    pub offset: usize,
    /// Only in layers that do not encode positions.
    pub unrotated: bool,
}

/// The non-linear function of a gated product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    Gelu,
    /// GELU itself.
    ExactGelu,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// `x * sigmoid(1.702 x)` of a gate of at most 7; it multiplies one more than an up of -7 to 7.
    ClampedSwiglu,
    /// `x`, or 0 where that is negative.
    Relu,
    /// The square of `x`, or 0 where that is negative.
    ReluSquared,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x` itself.
    Identity,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeedForwardConfig {
    /// There is none.
    None,
    /// One gated network.
    Dense {
        /// Hidden elements.
        width: usize,
        /// Gate and up are the halves of one tensor.
        fused_gate_up: bool,
    },
    /// One network without a gate.
    Plain {
        /// Hidden elements.
        width: usize,
    },
    /// Many networks, of which each row takes some.
    Experts(ExpertsConfig),
}

impl FeedForwardConfig {
    /// Returns the experts, if there are some.
    pub(crate) fn experts(&self) -> Option<&ExpertsConfig> {
        match self {
            FeedForwardConfig::Experts(experts) => Some(experts),
            FeedForwardConfig::None
            | FeedForwardConfig::Dense { .. }
            | FeedForwardConfig::Plain { .. } => None,
        }
    }

    /// Hidden elements of the widest network.
    pub(crate) fn hidden(&self) -> usize {
        match self {
            FeedForwardConfig::None => 0,
            FeedForwardConfig::Dense { width, .. } | FeedForwardConfig::Plain { width } => *width,
            FeedForwardConfig::Experts(experts) => {
                let early = match experts.reads {
                    ExpertsInput::Before { beside } => beside,
                    ExpertsInput::Usual | ExpertsInput::RoutedBefore => 0,
                };
                let shared = experts.shared.map_or(0, |shared| shared.width);
                let beside = experts.beside.unwrap_or(0);
                experts.width.max(shared).max(beside).max(early)
            }
        }
    }
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertsConfig {
    /// Number of experts.
    pub n_experts: usize,
    /// Experts that a row takes.
    pub n_used: usize,
    /// Hidden elements of an expert.
    pub width: usize,
    /// Experts, and the shared one, have gates.
    pub gated: bool,
    /// Elements that experts read and give, where those are fewer than of the residual stream.
    pub latent: Option<usize>,
    /// What rows choose by, and what experts read.
    pub reads: ExpertsInput,
    /// How scores become probabilities.
    pub gating: Gating,
    /// Experts come in groups, of which a row first chooses some.
    pub groups: Option<ExpertGroups>,
    /// The weights of the experts of a row are made to sum to one.
    pub normalize: bool,
    /// Factor of the weights of the experts, after they were made to sum to one.
    pub weight_scale: f32,
    /// The weights multiply what experts read, not what they give.
    pub weigh_input: bool,
    /// A network that every row takes.
    pub shared: Option<SharedExpert>,
    /// Hidden elements of a network that runs beside the experts on the residual stream, with norms of
    /// its own.
    pub beside: Option<usize>,
}

/// How the scores of experts become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gating {
    /// The softmax over all experts.
    Softmax,
    /// Each by itself.
    Sigmoid,
    /// One expert after the other: the best of those that are left counts as much as its part in the softmax
    /// over those of about the same score (SparseMixer, <https://arxiv.org/abs/2409.12136>).
    SparseMixer,
}

/// What the rows of a layer choose their experts by, and what experts read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertsInput {
    /// What the second part of a layer reads.
    Usual,
    /// The same, but rows choose by the residual stream before the layer, which is not normed for that.
    RoutedBefore,
    /// The residual stream before the layer, with a norm of its own. Beside them a network of so many hidden
    /// elements reads what the second part of a layer reads.
    Before {
        /// Hidden elements of that network.
        beside: usize,
    },
}

/// Groups of experts that lie beside each other. A group is worth as much as its two best experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpertGroups {
    /// Number of groups; divides the number of experts.
    pub n: usize,
    /// Groups that a row chooses from; they hold at least as many experts as it takes.
    pub n_used: usize,
}

/// The expert that every row takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedExpert {
    /// Hidden elements.
    pub width: usize,
    /// A learned sigmoid gate multiplies the result.
    pub gated: bool,
}
