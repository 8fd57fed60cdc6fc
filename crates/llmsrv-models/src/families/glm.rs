//! GLM: the generation of 2024 with fused matrices, that of 2025 with norms on both sides of each part, and
//! the one with experts.

use super::{base, qwen::set_axes_behind, set_fused, set_gating, set_shared};
use crate::{
    arch::{ArchConfig, Gating, QkNorm},
    rope::RopeStyle,
    source::{Result, Source},
};

/// GLM 4 of 2024 and ChatGLM 3: Llama with gate and up in one tensor.
pub(super) fn chatglm(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    set_fused(&mut arch);
    Ok(arch)
}

/// GLM 4, and the language part of models that see. Of the pairs of a head of those the first ones turn by
/// time, those behind by height, the last by width; their matrices are ordered for halves.
pub(crate) fn glm4(source: &Source) -> Result<ArchConfig> {
    let style = if source.has_key("rope.dimension_sections") {
        RopeStyle::HalfSplit
    } else {
        RopeStyle::Interleaved
    };
    let mut arch = base(source, style)?;
    set_axes_behind(&mut arch, source)?;
    arch.post_norm = true;
    if !source.has("blk.0.ffn_gate.weight") {
        set_fused(&mut arch);
    }
    Ok(arch)
}

/// GLM 4.5 to 4.7: experts chosen by sigmoids behind some dense layers. The large ones norm queries and keys.
pub(super) fn glm4moe(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.feed_forward_norm = "post_attention_norm";
    if source.has("blk.0.attn_q_norm.weight") {
        arch.qk_norm = Some(QkNorm::Head);
    }
    set_gating(&mut arch, source, Gating::Sigmoid, false)?;
    set_shared(&mut arch, source)?;
    Ok(arch)
}
