//! Nemotron H and Nemotron Nano 2: layers of one part, which is a selective scan, attention or a network
//! (<https://arxiv.org/abs/2504.03624>). Positions are not encoded.

use llmsrv_engine::LoadError;

use super::{base_with, mamba, n_layers, set_plain};
use crate::{
    arch::{Activation, ArchConfig, FeedForwardConfig, Mixer},
    rope::RopeStyle,
    source::Source,
};

/// Nemotron H. Layers with hidden elements are networks; of the others those without key heads scan.
pub(super) fn nemotron_h(source: &Source) -> Result<ArchConfig, LoadError> {
    let scan = mamba::scan(source)?;
    let hidden = source.counts_or_none("feed_forward_length", n_layers(source)?)?;
    let hidden = hidden.unwrap_or_default();
    let is_network = |idx: usize| hidden.get(idx).is_some_and(|width| *width > 0);
    let mixer = |idx, n_kv_heads| match n_kv_heads {
        _ if is_network(idx) => Mixer::None,
        0 => Mixer::Scan(scan),
        _ => Mixer::Attention,
    };
    let mut arch = base_with(source, RopeStyle::HalfSplit, &mixer)?;
    arch.activation = Activation::ReluSquared;
    arch.feed_forward_norm = "attn_norm";
    let keys = [
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
    ];
    if let Some(eps) = source.first_positive(&keys)? {
        arch.norm_eps = eps;
    }
    if let Some(scale) = source.positive("attention.scale")? {
        arch.attention_scale = scale;
    }
    set_plain(&mut arch);
    for layer in &mut arch.layers {
        layer.rope = None;
        if layer.mixer != Mixer::None {
            layer.feed_forward = FeedForwardConfig::None;
        }
    }
    Ok(arch)
}
