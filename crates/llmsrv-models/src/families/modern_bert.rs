//! `ModernBERT`: an encoder with rotations, windows on two of three layers, gated networks and no biases
//! (<https://arxiv.org/abs/2412.13663>).

use llmsrv_engine::{LoadError, Pooling};

use super::{base, rope, see_both_sides, set_fused, set_windows};
use crate::{
    arch::{Activation, ArchConfig, Classifier, NormKind},
    encoder,
    rope::RopeStyle,
    source::{Result, Source},
};

/// `ModernBERT` and its descendants. The first layer reads the embeddings, which are normed already.
pub(super) fn modern_bert(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.norm = NormKind::Layer;
    arch.norm_eps = source
        .positive("attention.layer_norm_epsilon")?
        .unwrap_or(1e-5);
    arch.embedding_norm = true;
    arch.activation = match source.text("hidden_activation") {
        None | Some("gelu") => Activation::Gelu,
        Some("silu") => Activation::Silu,
        Some(other) => {
            let key = source.full("hidden_activation");
            return Err(LoadError::Unsupported(format!("{key} is {other:?}")));
        }
    };
    set_fused(&mut arch);
    if let Some(window) = source.optional_count("attention.sliding_window")? {
        let key = "attention.sliding_window_pattern";
        if source.flags(key).is_some() {
            set_windows(&mut arch, source, window, 3)?;
        } else {
            // Every so many layers see everything, the first one among them.
            let period = source.optional_count(key)?.unwrap_or(3);
            for (idx, layer) in arch.layers.iter_mut().enumerate() {
                layer.window = Some(window).filter(|_| !idx.is_multiple_of(period));
            }
        }
        let head_dim = arch.layers.first().map_or(0, |layer| layer.head_dim);
        let mut local = rope(source, RopeStyle::HalfSplit, head_dim, arch.context_length)?;
        local.base = source.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
        arch.ropes.push(local.build());
        for layer in &mut arch.layers {
            layer.rope = Some(usize::from(layer.window.is_some()));
        }
    }
    if arch.pooling.is_none() && encoder::scores_pairs(source) {
        arch.pooling = Some(Pooling::Rank);
    }
    if arch.pooling == Some(Pooling::Rank) {
        arch.classifier = Some(classifier(source)?);
    }
    see_both_sides(&mut arch, source)?;
    Ok(arch)
}

/// Reads what the classifier reads: the mean where the file does not say.
fn classifier(source: &Source) -> Result<Classifier> {
    let key = "classifier.pooling_type";
    match source.optional_count(key)? {
        None | Some(1) => Ok(Classifier::Mean),
        Some(2) => Ok(Classifier::First),
        Some(other) => {
            let key = source.full(key);
            Err(LoadError::Unsupported(format!("{key} is {other}")))
        }
    }
}
