//! dots.llm1 and Ling 2: experts chosen by sigmoids behind some dense layers, and queries and keys with norms.

use super::{base, set_experts, set_gating, set_shared};
use crate::{
    arch::{ArchConfig, Gating, QkNorm, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source},
};

/// dots.llm1.
pub(super) fn dots1(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Head);
    set_gating(&mut arch, source, Gating::Sigmoid, false)?;
    set_shared(&mut arch, source)?;
    Ok(arch)
}

/// Ling 2 and Ring 2 (<https://arxiv.org/abs/2510.22115>). Shared experts may have a width of their own.
pub(super) fn bailing_moe2(source: &Source) -> Result<ArchConfig> {
    let mut arch = dots1(source)?;
    let width = source.optional_count("expert_shared_feed_forward_length")?;
    let n = source.optional_count("expert_shared_count")?;
    if let (Some(width), Some(n)) = (width, n) {
        let width = width.saturating_mul(n);
        set_experts(&mut arch, |experts| {
            experts.shared = Some(SharedExpert {
                width,
                gated: false,
            });
        });
    }
    Ok(arch)
}
