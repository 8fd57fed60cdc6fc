//! MiniMax M2: experts in every layer, chosen by sigmoids.

use super::{base, set_gating};
use crate::{
    arch::{ArchConfig, Gating, QkNorm},
    rope::RopeStyle,
    source::{Result, Source},
};

/// MiniMax M2. Queries and keys are normed over all heads, and some elements of a head are rotated.
pub(super) fn minimax_m2(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.qk_norm = Some(QkNorm::Row);
    set_gating(&mut arch, source, Gating::Sigmoid, true)?;
    Ok(arch)
}
