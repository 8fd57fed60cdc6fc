//! What distinguishes one encoder from another, as plain data, read from the metadata of a file.
//!
//! Names and meaning of the keys: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use llmsrv_engine::{LoadError, Pooling};

use crate::{
    arch::{Activation, ExpertsConfig, ExpertsInput, Gating},
    rope::{Rope, RopeStyle, rope},
    source::{Result, Source, invalid},
};

/// The hyperparameters of an encoder. Every part of a layer normalises its output, after the residual
/// sum, as in BERT (<https://arxiv.org/abs/1810.04805>).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncoderConfig {
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Elements of a row of the residual stream.
    pub width: usize,
    /// Layers.
    pub n_layers: usize,
    /// Heads of queries, keys and values.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Hidden elements of a feed-forward network.
    pub hidden: usize,
    /// Added to the variance in every norm.
    pub norm_eps: f32,
    /// How the model knows where a token is.
    pub positions: Positions,
    /// Applied in the feed-forward networks.
    pub activation: Activation,
    /// Layers whose feed-forward part is a mixture of experts.
    pub experts: Option<EncoderExperts>,
    /// How the rows become one vector.
    pub pooling: Pooling,
}

/// How an encoder knows where a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Positions {
    /// A learned row for each position.
    Table,
    /// Queries and keys are rotated.
    Rotation(Rope),
    /// The score of each head falls with the distance.
    Slopes(Vec<f32>),
}

/// Experts in some layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EncoderExperts {
    /// How many there are, and how a row chooses.
    pub config: ExpertsConfig,
    /// Layers `1, 1 + every, 1 + 2 * every, ...` have experts.
    pub every: usize,
}

impl EncoderConfig {
    /// Returns the experts of a layer.
    pub(crate) fn experts_of(&self, layer: usize) -> Option<ExpertsConfig> {
        let experts = self.experts.filter(|experts| layer % experts.every == 1);
        experts.map(|experts| experts.config)
    }
}

/// Fills the hyperparameters from the metadata of a file.
type Family = fn(&Source) -> Result<EncoderConfig>;

/// `general.architecture` and the function that reads it.
const FAMILIES: [(&str, Family); 5] = [
    ("bert", bert),
    ("jina-bert-v2", jina_bert_v2),
    // Rotations; what is for one task are adapters (<https://arxiv.org/abs/2409.10173>).
    ("jina-bert-v3", rotated),
    ("nomic-bert", nomic_bert),
    ("nomic-bert-moe", nomic_bert_moe),
];

/// Returns the names of the known encoders, which make vectors of texts and nothing else, sorted.
pub(crate) fn architectures() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// Reads the hyperparameters of a file; `None` if its architecture is no encoder.
pub(crate) fn read(architecture: &str, source: &Source) -> Result<Option<EncoderConfig>> {
    let family = FAMILIES.iter().find(|(name, _)| *name == architecture);
    family.map(|(_, family)| family(source)).transpose()
}

/// Reads how the rows of a text become one vector. `None` = the file does not say, or names no
/// pooling.
pub(crate) fn pooling(source: &Source) -> Result<Option<Pooling>> {
    Ok(match source.optional_count("pooling_type")? {
        None => None,
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::Cls),
        Some(3) => Some(Pooling::Last),
        Some(4) => Some(Pooling::Rank),
        Some(other) => {
            let key = source.full("pooling_type");
            return Err(LoadError::Unsupported(format!("{key} is {other}")));
        }
    })
}

/// Reads whether a model ranks pairs without a word on it: it has a classifier of one score, as rerankers
/// have that llama.cpp's converter made.
pub(crate) fn scores_pairs(source: &Source) -> bool {
    // A matrix of one row may be stored as a vector.
    let n_rows = |name| {
        let is_there = source.has(name);
        is_there.then(|| source.n_rows(name).unwrap_or(1))
    };
    let n_scores = n_rows("cls.output.weight").or_else(|| n_rows("cls.weight"));
    n_scores == Some(1)
}

/// Reads what all encoders share and leaves the rest as in BERT.
fn base(source: &Source) -> Result<EncoderConfig> {
    let n_layers = source.count("block_count")?;
    // Each layer has tensors of its own, so a larger count is a lie that would cost memory.
    if n_layers > source.n_tensors() {
        let key = source.full("block_count");
        return Err(invalid(format!(
            "{key} is {n_layers}, more than the tensors of the file"
        )));
    }
    let (width, n_heads) = (
        source.count("embedding_length")?,
        source.count("attention.head_count")?,
    );
    if !width.is_multiple_of(n_heads) {
        let key = source.full("attention.head_count");
        return Err(invalid(format!(
            "{key} is {n_heads}, which does not divide {width}"
        )));
    }
    let n_kv_heads = source.optional_count("attention.head_count_kv")?;
    if n_kv_heads.is_some_and(|n| n != n_heads) {
        let message = "an encoder with fewer key heads than heads".to_owned();
        return Err(LoadError::Unsupported(message));
    }
    if source.flag("attention.causal") == Some(true) {
        let message = "an encoder whose tokens see only what was before them".to_owned();
        return Err(LoadError::Unsupported(message));
    }
    // Without a word on it a classifier ranks, and sentence encoders take the mean.
    let usual = if scores_pairs(source) {
        Pooling::Rank
    } else {
        Pooling::Mean
    };
    Ok(EncoderConfig {
        context_length: source.count("context_length")?,
        width,
        n_layers,
        n_heads,
        head_dim: width / n_heads,
        hidden: source.count("feed_forward_length")?,
        norm_eps: source
            .positive("attention.layer_norm_epsilon")?
            .unwrap_or(1e-12),
        positions: Positions::Table,
        activation: Activation::Gelu,
        experts: None,
        pooling: pooling(source)?.unwrap_or(usual),
    })
}

/// BERT, `RoBERTa`, XLM-RoBERTa and many models for sentences.
fn bert(source: &Source) -> Result<EncoderConfig> {
    base(source)
}

/// Jina Embeddings 2: ALiBi and gated networks (<https://arxiv.org/abs/2310.19923>).
fn jina_bert_v2(source: &Source) -> Result<EncoderConfig> {
    let mut config = base(source)?;
    config.positions = Positions::Slopes(slopes(config.n_heads));
    Ok(config)
}

/// Nomic Embed 1 and 1.5: rotation and gated networks (<https://arxiv.org/abs/2402.01613>).
fn nomic_bert(source: &Source) -> Result<EncoderConfig> {
    let mut config = rotated(source)?;
    config.activation = Activation::Silu;
    Ok(config)
}

/// Nomic Embed 2: rotation, and experts in every other layer (<https://arxiv.org/abs/2502.07972>).
fn nomic_bert_moe(source: &Source) -> Result<EncoderConfig> {
    let mut config = rotated(source)?;
    let Some(every) = source.optional_count("moe_every_n_layers")? else {
        return Ok(config);
    };
    let (n_experts, n_used) = (
        source.count("expert_count")?,
        source.count("expert_used_count")?,
    );
    if n_used > n_experts {
        let key = source.full("expert_used_count");
        return Err(invalid(format!("{key} is {n_used} of {n_experts} experts")));
    }
    config.experts = Some(EncoderExperts {
        config: ExpertsConfig {
            beside: None,
            n_experts,
            n_used,
            width: config.hidden,
            gating: Gating::Softmax,
            groups: None,
            gated: true,
            latent: None,
            reads: ExpertsInput::Usual,
            normalize: false,
            weight_scale: 1.0,
            weigh_input: false,
            shared: None,
        },
        every,
    });
    Ok(config)
}

fn rotated(source: &Source) -> Result<EncoderConfig> {
    let mut config = base(source)?;
    let (head_dim, context) = (config.head_dim, config.context_length);
    let rope = rope(source, RopeStyle::HalfSplit, head_dim, context)?.build();
    config.positions = Positions::Rotation(rope);
    Ok(config)
}

/// The slopes of ALiBi (<https://arxiv.org/abs/2108.12409>): a geometric series over the heads; what
/// is beyond a power of two takes the odd members of the next finer series.
fn slopes(n_heads: usize) -> Vec<f32> {
    let n_even = if n_heads == 0 {
        1
    } else {
        1 << n_heads.ilog2()
    };
    let ratio = (-LARGEST_BIAS / n_even as f32).exp2();
    let finer = (-LARGEST_BIAS / 2.0 / n_even as f32).exp2();
    let slope = |head: usize| {
        if head < n_even {
            ratio.powi(head as i32 + 1)
        } else {
            finer.powi(2 * (head - n_even) as i32 + 1)
        }
    };
    (0..n_heads).map(slope).collect()
}

const LARGEST_BIAS: f32 = 8.0;
