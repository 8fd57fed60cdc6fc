//! `BitNet`: Llama with weights of -1, 0 and 1, and two norms more in each layer
//! (<https://arxiv.org/abs/2402.17764>).

use super::base;
use crate::{
    arch::{Activation, ArchConfig},
    rope::RopeStyle,
    source::{Result, Source},
};

/// The first `BitNet` b1.58.
pub(super) fn bitnet(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.sub_norms = true;
    Ok(arch)
}

/// `BitNet` b1.58 2B4T and its descendants: gates are squared
/// (<https://arxiv.org/abs/2504.12285>).
pub(super) fn b158(source: &Source) -> Result<ArchConfig> {
    let mut arch = bitnet(source)?;
    arch.activation = Activation::ReluSquared;
    Ok(arch)
}
