//! Llama 4: attention in chunks but for every fourth layer, which does not encode positions, and experts that
//! read their input times their weight.

use super::{base, dense, rope, small_count};
use crate::{
    arch::{ArchConfig, FeedForwardConfig, Gating, QkNorm, SharedExpert, Temperature},
    rope::RopeStyle,
    source::{Result, Source},
};

/// Llama 4 Scout and Maverick, their language part. The latter, with 128 experts, does not norm queries and
/// keys, which files of the public library say. Few say what chunks are, and none what temperatures are.
pub(super) fn llama4(source: &Source) -> Result<ArchConfig> {
    let style = RopeStyle::Interleaved;
    let mut arch = base(source, style)?;
    let n_experts = source.optional_count("expert_count")?;
    let norms = source.flag("use_qk_norm");
    let norms = norms.unwrap_or(n_experts != Some(EXPERTS_OF_MAVERICK));
    arch.qk_norm = norms.then_some(QkNorm::Plain);
    let key = "attention.sliding_window";
    let chunk = match source.optional_count(key)? {
        None if source.has_key(key) => None,
        _ => Some(
            source
                .optional_count("attention.chunk_size")?
                .unwrap_or(SPAN),
        ),
    };
    if let Some(base) = source.positive("rope.freq_base_swa")? {
        let head_dim = arch.layers.first().map_or(0, |layer| layer.head_dim);
        let mut rotation = rope(source, style, head_dim, arch.context_length)?;
        rotation.base = base;
        arch.ropes = vec![rotation.build()];
    }
    if chunk.is_some() {
        arch.query_temperature = Some(Temperature {
            scale: 0.1,
            span: SPAN,
            offset: 1,
            unrotated: true,
        });
        for (idx, layer) in arch.layers.iter_mut().enumerate() {
            if (idx + 1).is_multiple_of(PERIOD) {
                layer.rope = None;
            } else {
                layer.chunk = chunk;
            }
        }
    }
    set_networks(&mut arch, source)?;
    Ok(arch)
}

/// Every so many layers have experts.
fn set_networks(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    let n_layers = arch.layers.len();
    let step = small_count(source, "interleave_moe_layer_step", 1..=n_layers)?;
    let networks = dense(source, n_layers)?;
    for (idx, (layer, mut network)) in arch.layers.iter_mut().zip(networks).enumerate() {
        // In files of the public library the key is that of experts.
        let rows = source.n_rows(&format!("blk.{idx}.ffn_up.weight"));
        if let (FeedForwardConfig::Dense { width, .. }, Some(rows)) = (&mut network, rows) {
            *width = rows;
        }
        let FeedForwardConfig::Experts(experts) = &mut layer.feed_forward else {
            continue;
        };
        experts.gating = Gating::Sigmoid;
        experts.normalize = false;
        experts.weigh_input = true;
        experts.shared = Some(SharedExpert {
            width: experts.width,
            gated: false,
        });
        if !(idx + 1).is_multiple_of(step) {
            layer.feed_forward = network;
        }
    }
    Ok(())
}

const EXPERTS_OF_MAVERICK: usize = 128;
/// Positions of a chunk, and of equal temperature.
const SPAN: usize = 8192;
/// The last of so many layers sees everything and does not encode positions.
const PERIOD: usize = 4;
