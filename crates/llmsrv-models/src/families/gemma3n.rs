//! Gemma 3n: four residual streams, an embedding of each token for every layer, and layers at the end that
//! attend to what earlier ones stored.

use llmsrv_engine::LoadError;

use super::{base, gemma4::share_last, rope, set_windows, small_count};
use crate::{
    arch::{Activation, ArchConfig, QkNorm, StreamsConfig},
    rope::{RopeStyle, Scaling},
    source::{Result, Source, invalid},
};

/// Gemma 3n, its language part. Norm weights are stored as they are used.
pub(super) fn gemma3n(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    arch.embedding_scale = (arch.width as f32).sqrt();
    arch.activation = Activation::Gelu;
    arch.post_norm = true;
    arch.qk_norm = Some(QkNorm::Head);
    arch.value_norm = true;
    arch.attention_scale = 1.0;
    let cap = source.positive("final_logit_softcapping")?;
    arch.logit_softcap = cap.or(Some(LOGIT_CAP));
    let part = source.optional_count("embedding_length_per_layer_input")?;
    arch.per_layer_input = part.or(Some(PART));
    let n = match source.optional_count("altup.num_inputs")? {
        None => STREAMS,
        Some(_) => small_count(source, "altup.num_inputs", 2..=MOST_STREAMS)?,
    };
    if source.optional_count("altup.active_idx")?.is_some() {
        let key = source.full("altup.active_idx");
        return Err(LoadError::Unsupported(format!("{key} is not 0")));
    }
    let rank = source.n_rows("blk.0.laurel_l.weight");
    let rank = rank.ok_or_else(|| invalid("tensor blk.0.laurel_l.weight is missing".into()))?;
    arch.streams = Some(StreamsConfig { n, rank });
    set_rotations(&mut arch, source)?;
    let n_layers = arch.layers.len();
    let n_shared = source.optional_count("attention.shared_kv_layers")?;
    match n_shared.unwrap_or(n_layers.saturating_sub(STORING_LAYERS)) {
        0 => {}
        n_shared => share_last(&mut arch, source, n_shared)?,
    }
    set_cutoffs(&mut arch, source)?;
    Ok(arch)
}

/// Layers with a window have a rotation of their own.
fn set_rotations(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    let window = source.count("attention.sliding_window")?;
    set_windows(arch, source, window, 5)?;
    let head_dim = arch.layers.first().map_or(0, |layer| layer.head_dim);
    let mut rotation = rope(source, RopeStyle::HalfSplit, head_dim, arch.context_length)?;
    rotation.base = source.positive("rope.freq_base")?.unwrap_or(1_000_000.0);
    let global = rotation.build();
    let keys = [
        "rope.freq_base_swa",
        "rope.local.freq_base",
        "rope.freq_base_local",
    ];
    rotation.base = source.first_positive(&keys)?.unwrap_or(10_000.0);
    rotation.scaling = Scaling::Linear(1.0);
    arch.ropes = vec![global, rotation.build()];
    for layer in &mut arch.layers {
        layer.rope = Some(usize::from(layer.window.is_some()));
    }
    Ok(())
}

/// Some layers let only the peaks of their gate through: those that the file lists with a number above 0, or
/// the first ones.
fn set_cutoffs(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    let key = "activation_sparsity_scale";
    let n_layers = arch.layers.len();
    let listed = source.numbers(key);
    if let Some(list) = &listed
        && list.len() < n_layers
    {
        let (key, n) = (source.full(key), list.len());
        return Err(invalid(format!(
            "{key} has {n} entries for {n_layers} layers"
        )));
    }
    for (idx, layer) in arch.layers.iter_mut().enumerate() {
        let cutoff = match &listed {
            Some(list) => list.get(idx).copied(),
            None => (idx < SPARSE_LAYERS).then_some(CUTOFF),
        };
        layer.gate_cutoff = cutoff.filter(|cutoff| cutoff.is_finite() && *cutoff > 0.0);
    }
    Ok(())
}

/// What all published models have; their files do not say all of it.
const LOGIT_CAP: f32 = 30.0;
const PART: usize = 256;
const STREAMS: usize = 4;
const STORING_LAYERS: usize = 20;
const SPARSE_LAYERS: usize = 10;
/// 95 of 100 elements of a normal distribution lie below.
const CUTOFF: f32 = 1.644_853_6;
/// Far above every published model.
const MOST_STREAMS: usize = 16;
