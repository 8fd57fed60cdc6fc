//! DBRX: experts, layer norms without biases, and queries, keys and values that are bounded.

use super::{base, set_experts};
use crate::{
    arch::{ArchConfig, NormKind},
    rope::RopeStyle,
    source::{Result, Source},
};

/// DBRX.
pub(super) fn dbrx(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.norm = NormKind::Layer;
    arch.norm_eps = source
        .positive("attention.layer_norm_epsilon")?
        .unwrap_or(1e-5);
    arch.feed_forward_norm = "attn_output_norm";
    arch.clamp = source.positive("attention.clamp_kqv")?;
    set_experts(&mut arch, |experts| experts.normalize = true);
    Ok(arch)
}
