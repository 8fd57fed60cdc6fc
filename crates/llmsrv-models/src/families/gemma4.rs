//! Gemma 4: two kinds of layers with heads of different sizes, the last layers attend to what earlier
//! ones stored, and small models give every layer an embedding of its own.

use super::{base, experts, head_dim, rope, set_windows};
use crate::{
    arch::{Activation, ArchConfig, FeedForwardConfig, QkNorm},
    rope::{RopeStyle, Scaling},
    source::{Result, Source, invalid},
};

/// Gemma 4. Norm weights are stored as they are used.
pub(super) fn gemma4(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.embedding_scale = (arch.width as f32).sqrt();
    arch.activation = Activation::Gelu;
    arch.post_norm = true;
    arch.qk_norm = Some(QkNorm::Head);
    arch.value_norm = true;
    arch.attention_scale = 1.0;
    arch.logit_softcap = source
        .positive("final_logit_softcapping")?
        .or(Some(LOGIT_CAP));
    arch.per_layer_input = source.optional_count("embedding_length_per_layer_input")?;
    arch.suppressed = source.suppressed_tokens();
    set_layers(&mut arch, source)?;
    share_kv(&mut arch, source)?;
    set_networks(&mut arch, source)?;
    Ok(arch)
}

/// Layers with a window have heads and a rotation of their own; the others rotate some of their pairs.
fn set_layers(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    let window = source.count("attention.sliding_window")?;
    set_windows(arch, source, window, 6)?;
    let full = arch.layers.first().map_or(0, |layer| layer.head_dim);
    let keys = ["attention.key_length_swa", "attention.value_length_swa"];
    let local = head_dim(source, keys, Some(full))?.unwrap_or(full);
    let mut rotation = rope(source, RopeStyle::HalfSplit, full, arch.context_length)?;
    rotation.base = source.positive("rope.freq_base")?.unwrap_or(1_000_000.0);
    let global = rotation.build();
    rotation.n_rotated = source
        .optional_count("rope.dimension_count_swa")?
        .unwrap_or(local);
    if rotation.n_rotated > local || !rotation.n_rotated.is_multiple_of(2) {
        let (key, n) = (source.full("rope.dimension_count_swa"), rotation.n_rotated);
        return Err(invalid(format!("{key} is {n} in heads of {local}")));
    }
    rotation.base = source.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
    rotation.scaling = Scaling::Linear(1.0);
    rotation.divisors = None;
    arch.ropes = vec![global, rotation.build()];
    for layer in &mut arch.layers {
        let slides = layer.window.is_some();
        layer.rope = Some(usize::from(slides));
        layer.head_dim = if slides { local } else { full };
        // Files do not say so. The published configurations have `use_bidirectional_attention` =
        // "vision" where layers have no input of their own, and null where they do; it is about
        // layers with a window.
        layer.whole_images = slides && arch.per_layer_input.is_none();
    }
    Ok(())
}

/// The last layers attend to what the last two layers before them stored: the one with a window to that
/// of the first, the others to that of the second.
fn share_kv(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    match source.optional_count(SHARED_LAYERS)? {
        Some(n_shared) => share_last(arch, source, n_shared),
        None => Ok(()),
    }
}

/// As [`share_kv`], where the number of those layers is known.
pub(super) fn share_last(arch: &mut ArchConfig, source: &Source, n_shared: usize) -> Result<()> {
    let n_layers = arch.layers.len();
    let n_storing = n_layers.saturating_sub(n_shared);
    if n_storing < 2 {
        let key = source.full(SHARED_LAYERS);
        return Err(invalid(format!("{key} is {n_shared} of {n_layers} layers")));
    }
    for idx in n_storing..n_layers {
        let slides = arch.layers.get(idx).is_some_and(|l| l.window.is_some());
        let from = if slides { n_storing - 2 } else { n_storing - 1 };
        let shape = arch
            .layers
            .get(from)
            .map(|layer| (layer.n_kv_heads, layer.head_dim));
        if let Some(layer) = arch.layers.get_mut(idx) {
            layer.stores_kv = false;
            layer.kv_layer = from;
            if shape != Some((layer.n_kv_heads, layer.head_dim)) {
                return Err(invalid(format!(
                    "layer {idx} attends to the keys of layer {from}, which are of another shape"
                )));
            }
        }
    }
    Ok(())
}

/// Layers with experts have a network beside them.
fn set_networks(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    let Some(mut experts) = experts(source)? else {
        return Ok(());
    };
    if source
        .optional_count("expert_feed_forward_length")?
        .is_none()
    {
        let rows = source.n_rows("blk.0.ffn_gate_up_exps.weight");
        experts.width = rows.map_or(experts.width, |rows| rows / 2);
    }
    let n_layers = arch.layers.len();
    let Some(widths) = source.counts("feed_forward_length", n_layers)? else {
        let key = source.full("feed_forward_length");
        return Err(invalid(format!("{key} is missing")));
    };
    for (idx, (layer, width)) in arch.layers.iter_mut().zip(widths).enumerate() {
        layer.feed_forward = if source.has(&format!("blk.{idx}.ffn_gate_inp.weight")) {
            experts.beside = Some(width);
            FeedForwardConfig::Experts(experts)
        } else {
            FeedForwardConfig::Dense {
                width,
                fused_gate_up: false,
            }
        };
    }
    Ok(())
}

const SHARED_LAYERS: &str = "attention.shared_kv_layers";
const LOGIT_CAP: f32 = 30.0;
