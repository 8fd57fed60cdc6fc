//! GLM 4: Llama with norms on both sides of each part, and gate and up mostly in one tensor.

use llmsrv_engine::LoadError;

use super::{base, set_fused};
use crate::{arch::ArchConfig, rope::RopeStyle, source::Source};

/// GLM 4, and the language part of models that see, whose rotation has an angle for time, height and
/// width: for text the three are equal. Their matrices are ordered for halves.
pub(crate) fn glm4(source: &Source) -> Result<ArchConfig, LoadError> {
    let style = if source.has_key("rope.dimension_sections") {
        RopeStyle::HalfSplit
    } else {
        RopeStyle::Interleaved
    };
    let mut arch = base(source, style)?;
    arch.post_norm = true;
    if !source.has("blk.0.ffn_gate.weight") {
        set_fused(&mut arch);
    }
    Ok(arch)
}
