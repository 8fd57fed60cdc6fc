//! Gemma 1 to 3 and `EmbeddingGemma`: scaled embeddings, GELU; from 2 on norms around every part and
//! sliding windows.
//!
//! The files store norm weights with the 1 of Gemma's `1 + w` added.

use super::{base, rope, see_both_sides, set_windows};
use crate::{
    arch::{Activation, ArchConfig, QkNorm},
    rope::{RopeStyle, Scaling},
    source::{Result, Source},
};

/// Gemma 1.
pub(super) fn gemma(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.embedding_scale = (arch.width as f32).sqrt();
    arch.activation = Activation::Gelu;
    Ok(arch)
}

/// Gemma 2: every other layer has a window, scores and logits are capped.
pub(super) fn gemma2(source: &Source) -> Result<ArchConfig> {
    let mut arch = gemma(source)?;
    arch.post_norm = true;
    arch.attention_softcap = source
        .positive("attn_logit_softcapping")?
        .or(Some(ATTENTION_CAP));
    arch.logit_softcap = source
        .positive("final_logit_softcapping")?
        .or(Some(LOGIT_CAP));
    scale_by_width(&mut arch, LAYERS_OF_GEMMA2_27B);
    let window = source
        .optional_count("attention.sliding_window")?
        .unwrap_or(4096);
    set_windows(&mut arch, source, window, 2)?;
    Ok(arch)
}

/// Gemma 3: five of six layers have a window and a rotation of their own.
pub(crate) fn gemma3(source: &Source) -> Result<ArchConfig> {
    let mut arch = gemma(source)?;
    arch.post_norm = true;
    arch.qk_norm = Some(QkNorm::Head);
    arch.logit_softcap = source.positive("final_logit_softcapping")?;
    scale_by_width(&mut arch, LAYERS_OF_GEMMA3_27B);
    for layer in &mut arch.layers {
        layer.whole_images = true;
    }
    let Some(window) = source.optional_count("attention.sliding_window")? else {
        return Ok(arch);
    };
    set_windows(&mut arch, source, window, 6)?;

    let settings = || {
        rope(
            source,
            RopeStyle::HalfSplit,
            arch.layers.first().map_or(0, |layer| layer.head_dim),
            arch.context_length,
        )
    };
    let mut global = settings()?;
    global.base = source
        .first_positive(&["rope.freq_base", "rope.global.freq_base"])?
        .unwrap_or(1_000_000.0);
    let mut local = settings()?;
    local.base = source
        .first_positive(&["rope.freq_base_swa", "rope.local.freq_base"])?
        .unwrap_or(10_000.0);
    local.scaling = Scaling::Linear(1.0);

    // The first files of these sizes lack the factor, or have a cap that the model does not.
    match arch.layers.len() {
        LAYERS_OF_GEMMA3_4B | LAYERS_OF_GEMMA3_12B | LAYERS_OF_GEMMA3_27B
            if global.scaling == Scaling::Linear(1.0) =>
        {
            global.scaling = Scaling::Linear(8.0);
        }
        LAYERS_OF_GEMMA3_1B => arch.logit_softcap = None,
        _ => {}
    }

    arch.ropes = vec![global.build(), local.build()];
    for layer in &mut arch.layers {
        layer.rope = Some(usize::from(layer.window.is_some()));
    }
    Ok(arch)
}

/// `EmbeddingGemma`: Gemma 3 in which tokens see those after them, too, in windows as far as before them
/// (<https://arxiv.org/abs/2509.20354>).
pub(super) fn embedding(source: &Source) -> Result<ArchConfig> {
    let mut arch = gemma3(source)?;
    see_both_sides(&mut arch, source)?;
    Ok(arch)
}

/// The 27 B models scale scores by the width for each head, not by the length of a head. No key
/// says so; the number of layers identifies them.
fn scale_by_width(arch: &mut ArchConfig, n_layers: usize) {
    if arch.layers.len() == n_layers {
        let n_heads = arch.layers.first().map_or(1, |layer| layer.n_heads);
        arch.attention_scale = 1.0 / ((arch.width / n_heads) as f32).sqrt();
    }
}

const ATTENTION_CAP: f32 = 50.0;
const LOGIT_CAP: f32 = 30.0;
const LAYERS_OF_GEMMA2_27B: usize = 46;
const LAYERS_OF_GEMMA3_1B: usize = 26;
const LAYERS_OF_GEMMA3_4B: usize = 34;
const LAYERS_OF_GEMMA3_12B: usize = 48;
const LAYERS_OF_GEMMA3_27B: usize = 62;
