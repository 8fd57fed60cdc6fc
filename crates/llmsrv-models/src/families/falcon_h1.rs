//! Falcon H1: attention and a selective scan side by side in every layer
//! (<https://arxiv.org/abs/2507.22448>). The multipliers of the published models are in the weights.

use super::{base_with, mamba};
use crate::{
    arch::{ArchConfig, Mixer},
    rope::RopeStyle,
    source::{Result, Source},
};

/// Falcon H1.
pub(super) fn falcon_h1(source: &Source) -> Result<ArchConfig> {
    let scan = mamba::scan(source)?;
    let mixer = Mixer::AttentionAndScan(scan);
    base_with(source, RopeStyle::HalfSplit, &|_, _| mixer)
}
