//! Llama 3.2 Vision (<https://arxiv.org/abs/2407.21783>) without its eyes: Llama with layers in between that do
//! nothing but look at an image.

use super::{base_with, n_layers};
use crate::{
    arch::{ArchConfig, FeedForwardConfig, Mixer},
    rope::RopeStyle,
    source::{Result, Source, invalid},
};

/// Llama 3.2 Vision, text only: where no image is given, the published model leaves out the layers that look at
/// one.
pub(super) fn mllama(source: &Source) -> Result<ArchConfig> {
    let n_layers = n_layers(source)?;
    let key = "attention.cross_attention_layers";
    let mut looks = vec![false; n_layers];
    for layer in source.integers(key).unwrap_or_default() {
        let idx = usize::try_from(layer).ok();
        let Some(looks) = idx.and_then(|idx| looks.get_mut(idx)) else {
            let key = source.full(key);
            return Err(invalid(format!(
                "{key} has layer {layer} of {n_layers} layers"
            )));
        };
        *looks = true;
    }
    let looks_at_image = |idx: usize| looks.get(idx).copied().unwrap_or(false);
    let mixer = |idx, _| {
        if looks_at_image(idx) {
            Mixer::None
        } else {
            Mixer::Attention
        }
    };
    let mut arch = base_with(source, RopeStyle::Interleaved, &mixer)?;
    for (idx, layer) in arch.layers.iter_mut().enumerate() {
        if looks_at_image(idx) {
            layer.feed_forward = FeedForwardConfig::None;
            source.ignore_layer(idx);
        }
    }
    // The token that stands for an image can be read, not written: it is the last one.
    let n_written = source.n_rows("output.weight").filter(|n| *n > 0);
    arch.n_unwritten = usize::from(n_written == source.n_tokens().checked_sub(1));
    Ok(arch)
}
