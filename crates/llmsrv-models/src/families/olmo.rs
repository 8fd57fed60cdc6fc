//! OLMo 2 and 3, OLMoE: queries and keys are normalised over all heads together.

use super::{base, rope, set_experts, set_windows};
use crate::{
    arch::{ArchConfig, QkNorm},
    rope::{RopeStyle, Scaling},
    source::{Result, Source},
};

/// OLMo 2 and 3: norms behind the parts only. OLMo 3 has windows on three of four layers, and
/// those do not take part in the stretching of the context.
pub(super) fn olmo2(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.pre_norm = false;
    arch.post_norm = true;
    arch.qk_norm = Some(QkNorm::Row);
    let Some(window) = source.optional_count("attention.sliding_window")? else {
        return Ok(arch);
    };
    set_windows(&mut arch, source, window, 4)?;
    let mut local = rope(
        source,
        RopeStyle::HalfSplit,
        arch.layers.first().map_or(0, |layer| layer.head_dim),
        arch.context_length,
    )?;
    local.scaling = Scaling::Linear(1.0);
    local.magnitude = 1.0;
    arch.ropes.push(local.build());
    for layer in &mut arch.layers {
        layer.rope = Some(usize::from(layer.window.is_some()));
    }
    Ok(arch)
}

/// OLMoE.
pub(super) fn olmoe(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Row);
    set_experts(&mut arch, |experts| experts.normalize = false);
    Ok(arch)
}
