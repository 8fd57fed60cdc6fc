//! The architectures this program knows: one row each, a name in the file and how its metadata
//! becomes an [`ArchConfig`].
//!
//! A new family that is a variant of the decoder is one function and one row. Names and meaning of
//! the keys: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod gemma;
mod glm;
mod granite;
mod llama;
mod olmo;
mod phi;
mod qwen;
mod smollm;

use llmsrv_engine::LoadError;

use crate::{
    arch::{Activation, ArchConfig, ExpertsConfig, FeedForwardConfig, LayerConfig},
    encoder,
    rope::{RopeSettings, RopeStyle, Scaling, Yarn},
    source::{Source, invalid},
};

/// Fills the hyperparameters from the metadata of a file.
type Family = fn(&Source) -> Result<ArchConfig, LoadError>;

/// `general.architecture` and the function that reads it.
const FAMILIES: [(&str, Family); 22] = [
    ("ernie4_5", llama::llama),
    ("gemma", gemma::gemma),
    ("gemma2", gemma::gemma2),
    ("gemma3", gemma::gemma3),
    ("glm4", glm::glm4),
    ("granite", granite::granite),
    ("granitemoe", granite::granite),
    ("internlm2", llama::llama),
    ("llama", llama::llama),
    ("mistral3", llama::mistral3),
    ("olmo2", olmo::olmo2),
    ("olmoe", olmo::olmoe),
    ("phi3", phi::phi3),
    ("qwen2", qwen::qwen2),
    ("qwen25vl", qwen::qwen2),
    ("qwen2moe", qwen::qwen2moe),
    ("qwen2vl", qwen::qwen2),
    ("qwen3", qwen::qwen3),
    ("qwen3moe", qwen::qwen3),
    ("qwen3vl", qwen::qwen3),
    ("qwen3vlmoe", qwen::qwen3),
    ("smollm3", smollm::smollm3),
];

/// Far above every published model; bounds what is computed before the tensors are checked.
const LARGEST_HEAD: usize = 1 << 14;

/// Returns the names of the known decoders, sorted.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// Reads the hyperparameters of a file of `architecture`.
pub(crate) fn read(architecture: &str, source: &Source) -> Result<ArchConfig, LoadError> {
    let Some((_, family)) = FAMILIES.iter().find(|(name, _)| *name == architecture) else {
        let known: Vec<&str> = architectures().chain(encoder::architectures()).collect();
        return Err(LoadError::Unsupported(format!(
            "architecture {architecture:?} (known: {})",
            known.join(", ")
        )));
    };
    family(source)
}

/// Reads what all families share and leaves the rest as in Llama.
fn base(source: &Source, style: RopeStyle) -> Result<ArchConfig, LoadError> {
    let n_layers = source.count("block_count")?;
    // Each layer has tensors of its own, so a larger count is a lie that would cost memory.
    if n_layers > source.n_tensors() {
        let key = source.full("block_count");
        return Err(invalid(format!(
            "{key} is {n_layers}, more than the tensors of the file"
        )));
    }
    let width = source.count("embedding_length")?;
    let n_heads = source.count("attention.head_count")?;
    let n_kv_heads = source
        .optional_count("attention.head_count_kv")?
        .unwrap_or(n_heads);
    if !n_heads.is_multiple_of(n_kv_heads) {
        let key = source.full("attention.head_count_kv");
        return Err(invalid(format!(
            "{key} is {n_kv_heads}, which does not divide {n_heads} heads"
        )));
    }
    let head_dim = match source.optional_count("attention.key_length")? {
        Some(head_dim) => head_dim,
        None if width >= n_heads => width / n_heads,
        None => {
            let key = source.full("attention.head_count");
            return Err(invalid(format!("{key} is {n_heads}, more than {width}")));
        }
    };
    if head_dim > LARGEST_HEAD {
        let key = source.full("attention.key_length");
        return Err(invalid(format!("{key} is {head_dim}, which is too large")));
    }
    let value_dim = source.optional_count("attention.value_length")?;
    if value_dim.is_some_and(|value_dim| value_dim != head_dim) {
        let message = "keys and values of different length".to_owned();
        return Err(LoadError::Unsupported(message));
    }
    let context_length = source.count("context_length")?;
    let rope = rope(source, style, head_dim, context_length)?.build();
    Ok(ArchConfig {
        context_length,
        width,
        n_heads,
        n_kv_heads,
        head_dim,
        norm_eps: source
            .positive("attention.layer_norm_rms_epsilon")?
            .unwrap_or(1e-6),
        pre_norm: true,
        post_norm: false,
        qk_norm: None,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        attention_softcap: None,
        query_temperature: None,
        logit_scale: 1.0,
        logit_softcap: None,
        activation: Activation::Silu,
        feed_forward: feed_forward(source)?,
        ropes: vec![rope],
        layers: vec![
            LayerConfig {
                rope: Some(0),
                window: None
            };
            n_layers
        ],
    })
}

/// Reads the feed-forward part: experts if the file has some, else one network.
fn feed_forward(source: &Source) -> Result<FeedForwardConfig, LoadError> {
    let Some(n_experts) = source.optional_count("expert_count")? else {
        return Ok(FeedForwardConfig::Dense {
            width: source.count("feed_forward_length")?,
            fused_gate_up: false,
        });
    };
    let n_used = source.count("expert_used_count")?;
    if n_used > n_experts {
        let key = source.full("expert_used_count");
        return Err(invalid(format!("{key} is {n_used} of {n_experts} experts")));
    }
    // Where the key is missing, `feed_forward_length` may be that of a dense sibling.
    let width = match source.optional_count("expert_feed_forward_length")? {
        Some(width) => width,
        None => match source.n_rows("blk.0.ffn_up_exps.weight") {
            Some(width) => width,
            None => source.count("feed_forward_length")?,
        },
    };
    Ok(FeedForwardConfig::Experts(ExpertsConfig {
        n_experts,
        n_used,
        width,
        normalize: source.flag("norm_top_k_prob").unwrap_or(true),
        weight_scale: source.positive("expert_weights_scale")?.unwrap_or(1.0),
        shared: None,
    }))
}

/// Reads the rotation of the layers that see the whole context.
pub(crate) fn rope(
    source: &Source,
    style: RopeStyle,
    head_dim: usize,
    context_length: usize,
) -> Result<RopeSettings, LoadError> {
    let n_rotated = source
        .optional_count("rope.dimension_count")?
        .unwrap_or(head_dim);
    if n_rotated > head_dim || !n_rotated.is_multiple_of(2) {
        let key = source.full("rope.dimension_count");
        return Err(invalid(format!(
            "{key} is {n_rotated} in heads of {head_dim}"
        )));
    }
    let original_context = source
        .optional_count("rope.scaling.original_context_length")?
        .unwrap_or(context_length);
    let factor = match source.positive("rope.scaling.factor")? {
        Some(factor) => factor,
        None => source.positive("rope.scale_linear")?.unwrap_or(1.0),
    };
    let scaling = match source.text("rope.scaling.type").unwrap_or("linear") {
        "none" => Scaling::Linear(1.0),
        "" | "linear" | "longrope" => Scaling::Linear(factor),
        "yarn" => Scaling::Yarn(Yarn {
            factor,
            original_context,
            beta_fast: source
                .first_positive(&["rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"])?
                .unwrap_or(32.0),
            beta_slow: source
                .first_positive(&["rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"])?
                .unwrap_or(1.0),
            extrapolation: source
                .first_positive(&[
                    "rope.scaling.yarn_ext_factor",
                    "rope.scaling.extrapolation_factor",
                ])?
                .unwrap_or(1.0),
            log_multiplier: source
                .first_positive(&[
                    "rope.scaling.yarn_log_multiplier",
                    "rope.scaling.mscale_all_dim",
                ])?
                .unwrap_or(0.0),
        }),
        other => {
            let key = source.full("rope.scaling.type");
            return Err(LoadError::Unsupported(format!("{key} is {other:?}")));
        }
    };
    // LongRoPE has two lists. Keys stay in the cache as they were rotated, so one list must serve
    // all positions: the one that reaches to the end of the context.
    let list = if context_length > original_context {
        "rope_factors_long.weight"
    } else {
        "rope_factors_short.weight"
    };
    let divisors = match source.optional_vector("rope_freqs.weight", n_rotated / 2)? {
        Some(divisors) => Some(divisors),
        None => source.optional_vector(list, n_rotated / 2)?,
    };
    Ok(RopeSettings {
        style,
        n_rotated,
        base: source.positive("rope.freq_base")?.unwrap_or(10_000.0),
        scaling,
        divisors,
        magnitude: source.positive("rope.scaling.attn_factor")?.unwrap_or(1.0),
    })
}

/// Gives a sliding window to the layers that the file lists, or else to all but the last of every
/// `period` layers (the file may name another period).
fn set_windows(
    arch: &mut ArchConfig,
    source: &Source,
    window: usize,
    period: usize,
) -> Result<(), LoadError> {
    let key = "attention.sliding_window_pattern";
    let listed = source.flags(key);
    if let Some(list) = &listed
        && list.len() < arch.layers.len()
    {
        let (key, n) = (source.full(key), arch.layers.len());
        return Err(invalid(format!(
            "{key} has {} entries for {n} layers",
            list.len()
        )));
    }
    let period = match listed {
        Some(_) => period,
        None => source.optional_count(key)?.unwrap_or(period),
    };
    for (idx, layer) in arch.layers.iter_mut().enumerate() {
        let slides = match &listed {
            Some(list) => list.get(idx).copied().unwrap_or(false),
            None => idx % period < period - 1,
        };
        layer.window = slides.then_some(window);
    }
    Ok(())
}
