//! SmolLM 3: Llama in which every fourth layer does not encode positions.

use super::base;
use crate::{
    arch::ArchConfig,
    rope::RopeStyle,
    source::{Result, Source},
};

/// SmolLM 3. No key says which layers go without positions.
pub(super) fn smollm3(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    for layer in arch.layers.iter_mut().skip(3).step_by(4) {
        layer.rope = None;
    }
    Ok(arch)
}
