//! MiniCPM: Llama with scaled embeddings, parts of layers and logits, so that what was learned about training
//! a narrow model holds for a wide one (<https://arxiv.org/abs/2404.06395>).

use super::base;
use crate::{
    arch::ArchConfig,
    rope::RopeStyle,
    source::{Result, Source},
};

/// MiniCPM 1B and 2B. Where a file has none of the keys, the factors are those that both were published with.
pub(super) fn minicpm(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    let residual = SCALE_DEPTH / (arch.layers.len() as f32).sqrt();
    let logits = arch.width as f32 / BASE_WIDTH;
    arch.embedding_scale = source.positive("embedding_scale")?.unwrap_or(SCALE_EMB);
    arch.residual_scale = source.positive("residual_scale")?.unwrap_or(residual);
    // The file holds the divisor. Where it does not, llama.cpp multiplies by what the published model divides by.
    arch.logit_scale = 1.0 / source.positive("logit_scale")?.unwrap_or(logits);
    Ok(arch)
}

/// `scale_emb` of both published configurations.
const SCALE_EMB: f32 = 12.0;
/// `scale_depth`.
const SCALE_DEPTH: f32 = 1.4;
/// `dim_model_base`: the width of the model whose logits are taken as they come.
const BASE_WIDTH: f32 = 256.0;
