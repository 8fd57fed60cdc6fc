//! Granite 3 and 4: Llama with four multipliers, dense or with experts, and in some models mostly
//! selective scans in place of attention.

use super::{base, base_with, mamba, set_experts};
use crate::{
    arch::{ArchConfig, Mixer, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source, invalid},
};

/// Granite.
pub(super) fn granite(source: &Source) -> Result<ArchConfig> {
    let arch = with_multipliers(base(source, RopeStyle::Interleaved)?, source)?;
    if source.positive("logit_scale")?.is_none() {
        let key = source.full("logit_scale");
        return Err(invalid(format!("{key} is missing")));
    }
    Ok(arch)
}

/// Granite 4 H, and Bamba, which has no multipliers: layers without key heads scan.
pub(super) fn hybrid(source: &Source) -> Result<ArchConfig> {
    let scan = mamba::scan(source)?;
    let style = RopeStyle::Interleaved;
    let arch = base_with(source, style, &|_, n_kv_heads| match n_kv_heads {
        0 => Mixer::Scan(scan),
        _ => Mixer::Attention,
    })?;
    with_multipliers(arch, source)
}

fn with_multipliers(mut arch: ArchConfig, source: &Source) -> Result<ArchConfig> {
    arch.embedding_scale = source.positive("embedding_scale")?.unwrap_or(1.0);
    arch.residual_scale = source.positive("residual_scale")?.unwrap_or(1.0);
    if let Some(scale) = source.positive("attention.scale")? {
        arch.attention_scale = scale;
    }
    // The file holds the divisor.
    arch.logit_scale = 1.0 / source.positive("logit_scale")?.unwrap_or(1.0);
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
