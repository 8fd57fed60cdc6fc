//! HunYuan: queries and keys are normed after they are rotated.

use super::{base, set_experts};
use crate::{
    arch::{ArchConfig, QkNorm, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source},
};

/// The dense models. What stretches their context is part of the base of the rotation in the file.
pub(super) fn hunyuan_dense(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Rotated);
    Ok(arch)
}

/// Those with experts in every layer, and a network beside them: as wide as a dense one, unless the file
/// says otherwise.
pub(super) fn hunyuan_moe(source: &Source) -> Result<ArchConfig> {
    let mut arch = hunyuan_dense(source)?;
    let width = match source.optional_count("expert_shared_feed_forward_length")? {
        Some(width) => width,
        None => source.count("feed_forward_length")?,
    };
    let shared = SharedExpert {
        width,
        gated: false,
    };
    set_experts(&mut arch, |experts| experts.shared = Some(shared));
    Ok(arch)
}
