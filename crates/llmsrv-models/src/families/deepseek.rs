//! DeepSeek: many small experts, and from V2 on latent attention; and others of their build.
//! <https://arxiv.org/abs/2405.04434>

use super::{
    LARGEST_HEAD, base, base_with, rope, set_experts, set_gating, set_shared, small_count,
};
use crate::{
    arch::{ArchConfig, Gating, LatentConfig, Mixer, Temperature},
    rope::{RopeStyle, Scaling},
    source::{Result, Source, invalid},
};

/// DeepSeek MoE, the first of them: plain attention, and weights of experts that are left as they are.
pub(super) fn deepseek(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::Interleaved)?;
    set_experts(&mut arch, |experts| experts.normalize = false);
    set_shared(&mut arch, source)?;
    Ok(arch)
}

/// The decoder of DeepSeek OCR: plain attention, and the experts of DeepSeek 2.
pub(super) fn ocr(source: &Source) -> Result<ArchConfig> {
    let mut arch = base(source, RopeStyle::HalfSplit)?;
    set_gating(&mut arch, source, Gating::Softmax, false)?;
    set_shared(&mut arch, source)?;
    Ok(arch)
}

/// DeepSeek 2. Newer files say the sizes of heads apart from those of what is stored (`_mla`); in older ones
/// the usual keys are those of heads.
pub(super) fn deepseek2(source: &Source) -> Result<ArchConfig> {
    let style = RopeStyle::Interleaved;
    let n_rotated = small_count(source, "rope.dimension_count", 1..=LARGEST_HEAD)?;
    let of_keys = ["attention.key_length_mla", "attention.key_length"];
    let query_dim = first_count(source, of_keys)?;
    if n_rotated >= query_dim {
        let key = source.full("rope.dimension_count");
        return Err(invalid(format!(
            "{key} is {n_rotated} in heads of {query_dim}"
        )));
    }
    let of_values = ["attention.value_length_mla", "attention.value_length"];
    let latent = LatentConfig {
        query_rank: if source.has("blk.0.attn_q_a.weight") {
            Some(source.count("attention.q_lora_rank")?)
        } else {
            None
        },
        rank: small_count(source, "attention.kv_lora_rank", 1..=LARGEST_HEAD)?,
        n_rotated,
        key_dim: query_dim - n_rotated,
        value_dim: first_count(source, of_values)?,
    };
    let mut arch = base_with(source, style, &|_, _| Mixer::Latent(latent))?;
    for layer in &mut arch.layers {
        layer.n_kv_heads = 1;
        layer.head_dim = latent.stored_dim();
    }
    let mut rotation = rope(source, style, query_dim, arch.context_length)?;
    let growth = match &mut rotation.scaling {
        Scaling::Linear(_) => 1.0,
        Scaling::Yarn(yarn) => {
            // The file has a tenth of the multiplier of the logarithm.
            let multiplier = yarn.log_multiplier * 10.0;
            if multiplier > 0.0 {
                // What grows are the scores; the rotated elements keep their magnitude.
                yarn.log_multiplier = 1.0;
            }
            1.0 + 0.1 * multiplier * yarn.factor.max(1.0).ln()
        }
    };
    let rotation = rotation.build();
    let scale = rotation.magnitude * growth;
    arch.attention_scale = scale * scale / (query_dim as f32).sqrt();
    arch.ropes = vec![rotation];
    if let Some(scale) = source.positive("attention.temperature_scale")? {
        let span = source.count("attention.temperature_length")?;
        arch.query_temperature = Some(Temperature {
            scale,
            span,
            offset: 0,
            unrotated: false,
        });
    }
    set_routing(&mut arch, source)?;
    Ok(arch)
}

/// DeepSeek V3.2: DeepSeek 2 whose queries see the positions that an indexer picks, as many as the file says.
/// Where there are no more than that, each sees all of them, so the indexer has nothing to do: the context
/// is cut to so many, and attention is as in DeepSeek 2.
pub(super) fn deepseek32(source: &Source) -> Result<ArchConfig> {
    let mut arch = deepseek2(source)?;
    let n_picked = source.count("attention.indexer.top_k")?;
    arch.context_length = arch.context_length.min(n_picked);
    for idx in 0..arch.layers.len() {
        for tensor in INDEXER {
            source.ignore(&format!("blk.{idx}.indexer.{tensor}"));
        }
    }
    Ok(arch)
}

/// Files of DeepSeek V2 do not say how experts are chosen, and neither do the first of GLM 4.7 Flash.
fn set_routing(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    let n_tokens = source.n_rows("token_embd.weight");
    let is_glm = matches!(arch.layers.len(), 47 | 48) && n_tokens == Some(TOKENS_OF_GLM);
    let default = if is_glm {
        Gating::Sigmoid
    } else {
        Gating::Softmax
    };
    set_gating(arch, source, default, false)?;
    set_shared(arch, source)
}

/// Reads the elements of a head from the first of two keys that is there.
fn first_count(source: &Source, [first, second]: [&str; 2]) -> Result<usize> {
    let key = match source.optional_count(first)? {
        Some(_) => first,
        None => second,
    };
    small_count(source, key, 1..=LARGEST_HEAD)
}

const INDEXER: [&str; 5] = [
    "k_norm.weight",
    "k_norm.bias",
    "proj.weight",
    "attn_k.weight",
    "attn_q_b.weight",
];
const TOKENS_OF_GLM: usize = 154_880;
