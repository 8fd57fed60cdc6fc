//! Qwen 2, 2.5 and 3, with and without experts, and the language part of those that see.
//!
//! The rotation of models that see has an angle for time, height and width; for text the three are
//! equal, which makes it the plain one.

use llmsrv_engine::LoadError;

use super::{base, set_experts};
use crate::{
    arch::{ArchConfig, QkNorm, SharedExpert},
    rope::RopeStyle,
    source::Source,
};

/// Qwen 2 and 2.5. Their biases are found in the file.
pub(super) fn qwen2(source: &Source) -> Result<ArchConfig, LoadError> {
    base(source, RopeStyle::HalfSplit)
}

/// Qwen 2 with experts, one of them shared by all rows.
pub(super) fn qwen2moe(source: &Source) -> Result<ArchConfig, LoadError> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    let width = match source.optional_count("expert_shared_feed_forward_length")? {
        Some(width) => width,
        None => source.count("feed_forward_length")?,
    };
    set_experts(&mut arch, |experts| {
        experts.normalize = false;
        experts.shared = Some(SharedExpert { width, gated: true });
    });
    Ok(arch)
}

/// Qwen 3, dense or with experts.
pub(super) fn qwen3(source: &Source) -> Result<ArchConfig, LoadError> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Head);
    Ok(arch)
}
