//! `EuroBERT` and Jina Embeddings 5 nano: Llama whose tokens see those after them, too
//! (<https://arxiv.org/abs/2503.05500>).

use super::{base, see_both_sides};
use crate::{
    arch::ArchConfig,
    rope::RopeStyle,
    source::{Result, Source},
};

/// `EuroBERT`.
pub(super) fn eurobert(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    see_both_sides(&mut arch, source)?;
    Ok(arch)
}
