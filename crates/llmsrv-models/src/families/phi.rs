//! Phi 3 and 4: query, key and value in one tensor, gate and up in another, LongRoPE; and its sibling with experts.

use super::{base, set_experts, set_fused};
use crate::{
    arch::{ArchConfig, Gating, NormKind},
    rope::RopeStyle,
    source::{Result, Source},
};

/// Phi 3, 3.5 and 4. All layers have the same window, if there is one.
pub(super) fn phi3(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    set_fused(&mut arch);
    let window = source
        .optional_count("attention.sliding_window")?
        .filter(|window| *window < arch.context_length);
    for layer in &mut arch.layers {
        layer.window = window;
    }
    Ok(arch)
}

/// Phi 3.5 `MoE` and Phi tiny and mini `MoE`: layer norms (whose epsilon files call that of a root mean square),
/// and experts that are picked one after the other.
pub(super) fn phimoe(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.norm = NormKind::Layer;
    set_experts(&mut arch, |experts| experts.gating = Gating::SparseMixer);
    Ok(arch)
}
