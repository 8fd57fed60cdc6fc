//! Nemotron H, Nemotron Nano 2 and Nemotron 3: layers of one part, which is a selective scan, attention, or a
//! network or experts (<https://arxiv.org/abs/2504.03624>). Positions are not encoded.

use super::{base_with, mamba, n_layers, set_experts, set_plain};
use crate::{
    arch::{Activation, ArchConfig, FeedForwardConfig, Gating, Mixer, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source},
};

/// All of them. Layers with hidden elements are networks or experts; of the others those without key heads
/// scan.
pub(super) fn nemotron_h(source: &Source) -> Result<ArchConfig> {
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
    let shared = source.optional_count("expert_shared_feed_forward_length")?;
    let shared = shared.map(|width| SharedExpert {
        width,
        gated: false,
    });
    let normalize = source.flag("expert_weights_norm").unwrap_or(false);
    // Files of the public library have no key for it.
    let first = (0..arch.layers.len()).find(|idx| is_network(*idx));
    let latent = first.and_then(|idx| source.n_rows(&format!("blk.{idx}.ffn_latent_down.weight")));
    set_experts(&mut arch, |experts| {
        experts.gating = Gating::Sigmoid;
        experts.normalize = normalize;
        experts.gated = false;
        experts.shared = shared;
        experts.latent = latent;
    });
    for layer in &mut arch.layers {
        layer.rope = None;
        if layer.mixer != Mixer::None {
            layer.feed_forward = FeedForwardConfig::None;
        }
    }
    Ok(arch)
}
