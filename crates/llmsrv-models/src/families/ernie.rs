//! ERNIE 4.5 with experts.

use super::{base, dense, set_experts, small_count};
use crate::{
    arch::{ArchConfig, FeedForwardConfig, SharedExpert},
    rope::RopeStyle,
    source::{Result, Source},
};

/// ERNIE 4.5 with experts: behind the first layers every so many has some, and mostly a network beside them.
pub(super) fn ernie_moe(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    let n_layers = arch.layers.len();
    let step = small_count(source, "interleave_moe_layer_step", 1..=n_layers)?;
    let networks = dense(source, n_layers)?;
    for (idx, (layer, network)) in arch.layers.iter_mut().zip(networks).enumerate() {
        let has_experts = matches!(layer.feed_forward, FeedForwardConfig::Experts(_));
        if has_experts && !(idx + 1).is_multiple_of(step) {
            layer.feed_forward = network;
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
