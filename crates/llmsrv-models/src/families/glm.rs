//! GLM 4: Llama with norms on both sides of each part, and gate and up in one tensor.

use llmsrv_engine::LoadError;

use super::base;
use crate::{
    arch::{ArchConfig, FeedForwardConfig},
    rope::RopeStyle,
    source::Source,
};

/// GLM 4.
pub(crate) fn glm4(source: &Source) -> Result<ArchConfig, LoadError> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    arch.post_norm = true;
    if let FeedForwardConfig::Dense { fused_gate_up, .. } = &mut arch.feed_forward {
        *fused_gate_up = true;
    }
    Ok(arch)
}
