//! Decoders of the first years: layer norms, mostly networks without a gate, and often both parts of a
//! layer beside each other. Their biases are found in the file.

use super::{base, set_plain, set_windows};
use crate::{
    arch::{Activation, ArchConfig, NormKind},
    rope::RopeStyle,
    source::{Result, Source},
};

/// What all of them have.
fn classic(source: &Source, style: RopeStyle) -> Result<ArchConfig> {
    let mut arch = base(source, style)?;
    arch.norm = NormKind::Layer;
    arch.norm_eps = source
        .positive("attention.layer_norm_epsilon")?
        .unwrap_or(1e-5);
    arch.activation = Activation::Gelu;
    Ok(arch)
}

/// GPT 2 and StarCoder 1: positions are rows of a table.
pub(super) fn gpt2(source: &Source) -> Result<ArchConfig> {
    let mut arch = classic(source, RopeStyle::HalfSplit)?;
    set_plain(&mut arch);
    arch.position_table = true;
    for layer in &mut arch.layers {
        layer.rope = None;
    }
    Ok(arch)
}

/// StarCoder 2.
pub(super) fn starcoder2(source: &Source) -> Result<ArchConfig> {
    let mut arch = classic(source, RopeStyle::HalfSplit)?;
    set_plain(&mut arch);
    Ok(arch)
}

/// GPT-NeoX and Pythia.
pub(super) fn gptneox(source: &Source) -> Result<ArchConfig> {
    let mut arch = starcoder2(source)?;
    arch.parallel = source.flag("use_parallel_residual").unwrap_or(true);
    Ok(arch)
}

/// Phi 1 and 2: both parts read what one norm gives.
pub(super) fn phi2(source: &Source) -> Result<ArchConfig> {
    let mut arch = starcoder2(source)?;
    arch.parallel = true;
    arch.feed_forward_norm = arch.attention_norm;
    Ok(arch)
}

/// Falcon 1: large ones have a norm of its own for attention.
pub(super) fn falcon(source: &Source) -> Result<ArchConfig> {
    let mut arch = phi2(source)?;
    if source.has("blk.0.attn_norm_2.weight") {
        arch.attention_norm = "attn_norm_2";
    }
    Ok(arch)
}

/// Nemotron and Minitron. The files store norm weights with the 1 of `1 + w` added.
pub(super) fn nemotron(source: &Source) -> Result<ArchConfig> {
    let mut arch = starcoder2(source)?;
    arch.activation = Activation::ReluSquared;
    Ok(arch)
}

/// StableLM 1 and 2: gated; without a second norm the parts stand beside each other.
pub(super) fn stablelm(source: &Source) -> Result<ArchConfig> {
    let mut arch = classic(source, RopeStyle::HalfSplit)?;
    arch.activation = Activation::Silu;
    if !source.has("blk.0.ffn_norm.weight") {
        arch.parallel = true;
        arch.feed_forward_norm = arch.attention_norm;
    }
    Ok(arch)
}

/// Command R.
pub(super) fn command_r(source: &Source) -> Result<ArchConfig> {
    let mut arch = classic(source, RopeStyle::Interleaved)?;
    arch.activation = Activation::Silu;
    arch.parallel = true;
    arch.feed_forward_norm = arch.attention_norm;
    arch.logit_scale = source.positive("logit_scale")?.unwrap_or(1.0);
    Ok(arch)
}

/// Command R7B and Command A: three of four layers have a window, and only those encode positions.
pub(super) fn cohere2(source: &Source) -> Result<ArchConfig> {
    let mut arch = command_r(source)?;
    let window = source.count("attention.sliding_window")?;
    set_windows(&mut arch, source, window, 4)?;
    for layer in &mut arch.layers {
        if layer.window.is_none() {
            layer.rope = None;
        }
    }
    Ok(arch)
}
