//! `SmallThinker`: experts that are chosen before attention, so that they can be fetched while it runs
//! (<https://arxiv.org/abs/2507.20984>).

use super::{base, set_experts, set_gating};
use crate::{
    arch::{Activation, ArchConfig, ExpertsInput, Gating},
    rope::RopeStyle,
    source::{Result, Source},
};

/// `SmallThinker`. Where there is a window, every fourth layer sees everything and encodes no positions, the
/// first among them.
pub(super) fn small_thinker(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.activation = Activation::Relu;
    set_gating(&mut arch, source, Gating::Softmax, true)?;
    set_experts(&mut arch, |experts| {
        experts.reads = ExpertsInput::RoutedBefore;
    });
    if let Some(window) = source.optional_count("attention.sliding_window")? {
        for (idx, layer) in arch.layers.iter_mut().enumerate() {
            if idx.is_multiple_of(4) {
                layer.rope = None;
            } else {
                layer.window = Some(window);
            }
        }
    }
    Ok(arch)
}
