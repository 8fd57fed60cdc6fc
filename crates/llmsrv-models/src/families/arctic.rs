//! Snowflake Arctic: a dense network in each layer, and beside it experts that read what the layer reads.

use super::{base, set_experts};
use crate::{
    arch::{ArchConfig, ExpertsInput},
    rope::RopeStyle,
    source::{Result, Source},
};

/// Snowflake Arctic. The dense network has as many hidden elements as the residual stream has elements.
pub(super) fn arctic(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    let beside = arch.width;
    set_experts(&mut arch, |experts| {
        experts.normalize = true;
        experts.reads = ExpertsInput::Before { beside };
    });
    Ok(arch)
}
