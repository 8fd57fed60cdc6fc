//! LFM 2: mostly convolutions over the last rows, and some attention; in some models experts behind the first
//! layers.

use super::{base_with, gating, set_experts, small_count};
use crate::{
    arch::{ArchConfig, FeedForwardConfig, Gating, Mixer, QkNorm},
    rope::RopeStyle,
    source::{Result, Source},
};

/// LFM 2 and 2.5. Layers without key heads convolve.
pub(super) fn lfm2(source: &Source) -> Result<ArchConfig> {
    let taps = small_count(source, "shortconv.l_cache", 2..=MOST_TAPS)?;
    let width = source.count("embedding_length")?;
    let mut arch = base_with(
        source,
        RopeStyle::HalfSplit,
        &|_, n_kv_heads| match n_kv_heads {
            0 => Mixer::ShortConv { taps, width },
            _ => Mixer::Attention,
        },
    )?;
    arch.qk_norm = Some(QkNorm::Head);
    if source.has("token_embd_norm.weight") {
        arch.output_norm = "token_embd_norm";
    }
    let gating = gating(source, Gating::Sigmoid)?;
    set_experts(&mut arch, |experts| {
        experts.gating = gating;
        experts.normalize = true;
    });
    let window = source.optional_count("attention.sliding_window")?;
    // Some files name the width before it was rounded.
    let hidden = source.n_rows("blk.0.ffn_gate.weight");
    for layer in &mut arch.layers {
        layer.window = window.filter(|_| layer.stores_kv);
        if let (FeedForwardConfig::Dense { width, .. }, Some(hidden)) =
            (&mut layer.feed_forward, hidden)
        {
            *width = hidden;
        }
    }
    Ok(arch)
}

/// Far above every published model.
const MOST_TAPS: usize = 64;
