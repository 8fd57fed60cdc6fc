//! Granite 3 and 4: Llama with four multipliers, dense or with experts, and in some models mostly
//! selective scans in place of attention.

use llmsrv_engine::LoadError;

use super::{base, base_with, set_experts, small_count};
use crate::{
    arch::{ArchConfig, Mixer, ScanConfig, SharedExpert},
    rope::RopeStyle,
    source::{Source, invalid},
};

/// Granite.
pub(super) fn granite(source: &Source) -> Result<ArchConfig, LoadError> {
    with_multipliers(base(source, RopeStyle::Interleaved)?, source)
}

/// Granite 4 H: layers without key heads scan.
pub(super) fn hybrid(source: &Source) -> Result<ArchConfig, LoadError> {
    let n_heads = small_count(source, "ssm.time_step_rank", 1..=MOST_HEADS)?;
    let width = source.count("ssm.inner_size")?;
    if !width.is_multiple_of(n_heads) || width / n_heads > LARGEST_HEAD {
        let key = source.full("ssm.inner_size");
        return Err(invalid(format!("{key} is {width} for {n_heads} heads")));
    }
    let scan = ScanConfig {
        taps: small_count(source, "ssm.conv_kernel", 2..=MOST_TAPS)?,
        n_heads,
        head_dim: width / n_heads,
        state_dim: small_count(source, "ssm.state_size", 1..=LARGEST_HEAD)?,
        n_groups: small_count(source, "ssm.group_count", 1..=n_heads)?,
    };
    if scan.n_groups > 1 {
        let (key, n) = (source.full("ssm.group_count"), scan.n_groups);
        return Err(LoadError::Unsupported(format!("{key} is {n}")));
    }
    let style = RopeStyle::Interleaved;
    let arch = base_with(source, style, &|_, n_kv_heads| match n_kv_heads {
        0 => Mixer::Scan(scan),
        _ => Mixer::Attention,
    })?;
    with_multipliers(arch, source)
}

fn with_multipliers(mut arch: ArchConfig, source: &Source) -> Result<ArchConfig, LoadError> {
    arch.embedding_scale = source.positive("embedding_scale")?.unwrap_or(1.0);
    arch.residual_scale = source.positive("residual_scale")?.unwrap_or(1.0);
    if let Some(scale) = source.positive("attention.scale")? {
        arch.attention_scale = scale;
    }
    // The file holds the divisor.
    arch.logit_scale = 1.0
        / source.positive("logit_scale")?.ok_or_else(|| {
            let key = source.full("logit_scale");
            invalid(format!("{key} is missing"))
        })?;
    // Granite says with this key whether positions are encoded at all.
    if source.flag("rope.scaling.finetuned") == Some(false) {
        for layer in &mut arch.layers {
            layer.rope = None;
        }
    }
    let width = source.optional_count("expert_shared_feed_forward_length")?;
    let shared = width.map(|width| SharedExpert {
        width,
        gated: false,
    });
    set_experts(&mut arch, |experts| experts.shared = shared);
    Ok(arch)
}

/// Far above every published model; they bound what a state takes before tensors are checked.
const MOST_TAPS: usize = 64;
const MOST_HEADS: usize = 1 << 10;
const LARGEST_HEAD: usize = 1 << 10;
