//! What distinguishes one decoder from another, as plain data.
//!
//! A family fills an [`ArchConfig`] from the metadata of a file; `weights` and `decoder` read it
//! and never ask which family it was.

use crate::rope::Rope;

/// The hyperparameters of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArchConfig {
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Elements of a row of the residual stream.
    pub width: usize,
    /// Query heads of each layer.
    pub n_heads: usize,
    /// Key and value heads of each layer; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Added to the mean square in every RMS norm.
    pub norm_eps: f32,
    /// Each part of a layer normalises its input.
    pub pre_norm: bool,
    /// Each part of a layer normalises its output.
    pub post_norm: bool,
    /// Norm of queries and keys before they are rotated.
    pub qk_norm: Option<QkNorm>,
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
    /// The second part of each layer.
    pub feed_forward: FeedForwardConfig,
    /// The rotations that layers choose from.
    pub ropes: Vec<Rope>,
    /// What differs between layers.
    pub layers: Vec<LayerConfig>,
}

impl ArchConfig {
    /// Elements of the keys (or values) of one position in one layer.
    pub(crate) fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Elements of the queries of one position in one layer.
    pub(crate) fn query_width(&self) -> usize {
        self.n_heads * self.head_dim
    }
}

/// What differs between the layers of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerConfig {
    /// Index into [`ArchConfig::ropes`]; `None` = positions are not encoded.
    pub rope: Option<usize>,
    /// A query sees this many positions, its own included; `None` = all before it.
    pub window: Option<usize>,
}

/// Over which elements queries and keys are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// Each head alone.
    Head,
    /// All heads of a row together.
    Row,
}

/// Multiplies the query of position `p` with `1 + scale * ln(1 + floor(p / span))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Temperature {
    /// Strength.
    pub scale: f32,
    /// Positions of equal temperature.
    pub span: usize,
}

/// The non-linear function of a gated product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    Gelu,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FeedForwardConfig {
    /// One gated network.
    Dense {
        /// Hidden elements.
        width: usize,
        /// Gate and up are the halves of one tensor.
        fused_gate_up: bool,
    },
    /// Many gated networks, of which each row takes some.
    Experts(ExpertsConfig),
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
    /// The weights of the experts of a row are made to sum to one.
    pub normalize: bool,
    /// Multiplies the weights.
    pub weight_scale: f32,
    /// A network that every row takes.
    pub shared: Option<SharedExpert>,
}

/// The expert that every row takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedExpert {
    /// Hidden elements.
    pub width: usize,
    /// A learned sigmoid gate multiplies the result.
    pub gated: bool,
}
