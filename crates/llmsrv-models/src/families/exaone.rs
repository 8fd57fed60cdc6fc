//! EXAONE 3 and 4.

use super::{base, set_windows};
use crate::{
    arch::{ArchConfig, QkNorm},
    rope::RopeStyle,
    source::{Result, Source},
};

/// EXAONE 3: Llama with rotations of halves.
pub(super) fn exaone(source: &Source) -> Result<ArchConfig> {
    base(source, RopeStyle::HalfSplit)
}

/// EXAONE 4: norms behind the parts only. The large one has windows on three of four layers, and only
/// those encode positions.
pub(super) fn exaone4(source: &Source) -> Result<ArchConfig> {
    let mut arch = exaone(source)?;
    arch.pre_norm = false;
    arch.post_norm = true;
    arch.qk_norm = Some(QkNorm::Head);
    if arch.layers.len() == LAYERS_OF_32B {
        let window = source.optional_count("attention.sliding_window")?;
        set_windows(&mut arch, source, window.unwrap_or(4096), 4)?;
        for layer in &mut arch.layers {
            if layer.window.is_none() {
                layer.rope = None;
            }
        }
    }
    Ok(arch)
}

const LAYERS_OF_32B: usize = 64;
