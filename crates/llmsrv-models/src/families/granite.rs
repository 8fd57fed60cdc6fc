//! Granite 3 and 4 without state-space layers: Llama with four multipliers, dense or with experts.

use llmsrv_engine::LoadError;

use super::{base, set_experts};
use crate::{
    arch::{ArchConfig, SharedExpert},
    rope::RopeStyle,
    source::{Source, invalid},
};

/// Granite.
pub(super) fn granite(source: &Source) -> Result<ArchConfig, LoadError> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    arch.embedding_scale = source.positive("embedding_scale")?.unwrap_or(1.0);
    arch.residual_scale = source.positive("residual_scale")?.unwrap_or(1.0);
    if let Some(scale) = source.positive("attention.scale")? {
        arch.attention_scale = scale;
    }
    // The file holds the divisor.
    arch.logit_scale = 1.0
        / source.positive("logit_scale")?.ok_or_else(|| {
            let key = source.full("logit_scale");
            invalid(format!("{key} is missing"))
        })?;
    // Granite says with this key whether positions are encoded at all.
    if source.flag("rope.scaling.finetuned") == Some(false) {
        for layer in &mut arch.layers {
            layer.rope = None;
        }
    }
    let width = source.optional_count("expert_shared_feed_forward_length")?;
    let shared = width.map(|width| SharedExpert {
        width,
        gated: false,
    });
    set_experts(&mut arch, |experts| experts.shared = shared);
    Ok(arch)
}
