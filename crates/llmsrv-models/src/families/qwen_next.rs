//! Qwen 3 Next, Qwen 3.5 and 3.6: gated delta nets, and attention with a gate in every fourth layer.

use super::{base_with, qwen::set_turning_axes, set_experts, small_count};
use crate::{
    arch::{ArchConfig, DeltaNetConfig, Mixer, QkNorm, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source, invalid},
};

/// Qwen 3.5 and 3.6, dense or with experts. Programs that write their files bring the value heads into
/// an order in which key heads take turns, unless the file says otherwise.
pub(super) fn qwen35(source: &Source) -> Result<ArchConfig> {
    let interleaved = source.flag("ssm.v_head_reordered").unwrap_or(true);
    let mut arch = with_delta_nets(source, interleaved)?;
    set_turning_axes(&mut arch, source)?;
    Ok(arch)
}

/// Qwen 3 Next and Qwen 3 Coder Next.
pub(super) fn qwen3next(source: &Source) -> Result<ArchConfig> {
    with_delta_nets(source, false)
}

fn with_delta_nets(source: &Source, interleaved: bool) -> Result<ArchConfig> {
    let net = DeltaNetConfig {
        taps: small_count(source, "ssm.conv_kernel", 2..=MOST_TAPS)?,
        n_key_heads: small_count(source, "ssm.group_count", 1..=MOST_HEADS)?,
        n_value_heads: small_count(source, "ssm.time_step_rank", 1..=MOST_HEADS)?,
        head_dim: small_count(source, "ssm.state_size", 1..=LARGEST_HEAD)?,
        interleaved,
    };
    if !net.n_value_heads.is_multiple_of(net.n_key_heads) {
        let (key, n) = (source.full("ssm.group_count"), net.n_key_heads);
        let n_heads = net.n_value_heads;
        return Err(invalid(format!(
            "{key} is {n}, which does not divide {n_heads} heads"
        )));
    }
    let width = source.count("ssm.inner_size")?;
    if width != net.value_width() {
        let (key, n) = (source.full("ssm.inner_size"), net.n_value_heads);
        return Err(invalid(format!(
            "{key} is {width} for {n} heads of {}",
            net.head_dim
        )));
    }
    let (n_layers, _) = source.n_layers()?;
    let key = "attention.recurrent_layers";
    let listed = source.flags(key);
    if let Some(list) = &listed
        && list.len() < n_layers
    {
        let (key, n) = (source.full(key), list.len());
        return Err(invalid(format!(
            "{key} has {n} entries for {n_layers} layers"
        )));
    }
    let period = source
        .optional_count("full_attention_interval")?
        .unwrap_or(4);
    let mut arch = base_with(source, RopeStyle::HalfSplit, &|idx, n_kv_heads| {
        let recurs = match &listed {
            Some(list) => list.get(idx).copied().unwrap_or(false),
            None => n_kv_heads == 0 || !(idx + 1).is_multiple_of(period),
        };
        if recurs {
            Mixer::DeltaNet(net)
        } else {
            Mixer::Attention
        }
    })?;
    arch.qk_norm = Some(QkNorm::Head);
    arch.output_gate = true;
    arch.feed_forward_norm = "post_attention_norm";
    let width = source.optional_count("expert_shared_feed_forward_length")?;
    let width = width.or_else(|| source.n_rows("blk.0.ffn_gate_shexp.weight"));
    let shared = width.map(|width| SharedExpert { width, gated: true });
    set_experts(&mut arch, |experts| experts.shared = shared);
    Ok(arch)
}

/// Far above every published model; they bound what a state takes before tensors are checked.
const MOST_TAPS: usize = 64;
const MOST_HEADS: usize = 1 << 10;
const LARGEST_HEAD: usize = 1 << 10;
