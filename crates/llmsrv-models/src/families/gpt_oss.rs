//! gpt-oss: attention with sinks, windows on every other layer, experts with biases and a clamped gate.

use super::{base, set_windows};
use crate::{
    arch::{Activation, ArchConfig},
    rope::RopeStyle,
    source::{Result, Source},
};

/// gpt-oss. The weights of the chosen experts are the softmax of their scores alone, which is the same as
/// that of all scores made to sum to one.
pub(super) fn gpt_oss(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.sinks = true;
    arch.feed_forward_norm = "post_attention_norm";
    arch.activation = Activation::ClampedSwiglu;
    let window = source.count("attention.sliding_window")?;
    set_windows(&mut arch, source, window, 2)?;
    Ok(arch)
}
