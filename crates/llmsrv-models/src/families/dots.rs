//! dots.llm1: experts chosen by sigmoids behind some dense layers, and queries and keys with norms.

use super::{base, set_gating, set_shared};
use crate::{
    arch::{ArchConfig, Gating, QkNorm},
    rope::RopeStyle,
    source::{Result, Source},
};

/// dots.llm1.
pub(super) fn dots1(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Head);
    set_gating(&mut arch, source, Gating::Sigmoid, false)?;
    set_shared(&mut arch, source)?;
    Ok(arch)
}
