//! Llama, what is stored under that name (Mistral, Mixtral, TinyLlama, SmolLM 2 and many more), and
//! families that differ in nothing but their name.

use llmsrv_engine::LoadError;

use super::{base, base_with, see_both_sides, set_plain};
use crate::{
    arch::{Activation, ArchConfig, LayerConfig, Mixer, Temperature},
    rope::RopeStyle,
    source::{Result, Source, invalid},
};

/// Llama 1 to 3, InternLM 2, dense ERNIE 4.5; experts make it Mixtral.
pub(super) fn llama(source: &Source) -> Result<ArchConfig> {
    base(source, RopeStyle::Interleaved)
}

/// Llama Embed Nemotron: Llama whose tokens see those after them, too (<https://arxiv.org/abs/2511.07025>).
pub(super) fn embed(source: &Source) -> Result<ArchConfig> {
    let mut arch = llama(source)?;
    see_both_sides(&mut arch, source)?;
    Ok(arch)
}

/// Llama Nemotron Super and Ultra, from which a search took parts (<https://arxiv.org/abs/2411.19146>): layers without
/// key heads do not attend, and those without hidden elements have no network.
pub(super) fn deci(source: &Source) -> Result<ArchConfig> {
    let arch = base_with(
        source,
        RopeStyle::Interleaved,
        &|_, n_kv_heads| match n_kv_heads {
            0 => Mixer::None,
            _ => Mixer::Attention,
        },
    )?;
    let is_linear = |layer: &LayerConfig| layer.mixer == Mixer::None && layer.n_heads > 0;
    match arch.layers.iter().position(is_linear) {
        None => Ok(arch),
        Some(idx) => Err(LoadError::Unsupported(format!(
            "layer {idx} has a matrix in place of attention"
        ))),
    }
}

/// Ministral 3: queries are sharpened with the distance from the start.
pub(super) fn mistral3(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    let keys = ["attention.temperature_scale", "rope.scaling_beta"];
    if let Some(scale) = source.first_positive(&keys)? {
        let span = source
            .optional_count("rope.scaling.original_context_length")?
            .ok_or_else(|| {
                let key = source.full("rope.scaling.original_context_length");
                invalid(format!("{key} is missing"))
            })?;
        arch.query_temperature = Some(Temperature {
            scale,
            span,
            offset: 0,
            unrotated: false,
        });
    }
    Ok(arch)
}

/// Seed OSS: the norm before the feed-forward part has another name. Its biases are found in the file.
pub(super) fn seed_oss(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.feed_forward_norm = "post_attention_norm";
    Ok(arch)
}

/// AFM of Arcee: networks have no gate.
pub(super) fn arcee(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    set_plain(&mut arch);
    arch.activation = Activation::ReluSquared;
    Ok(arch)
}
