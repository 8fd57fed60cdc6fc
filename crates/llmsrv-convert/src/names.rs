//! From the name of a tensor in a checkpoint to its place in a model file.

use crate::families::{EXPERT_LISTS, EXPERTS, Family, INNER, NORMS_BEFORE, NORMS_BEHIND, OUTER};

/// Where a tensor of a checkpoint goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It becomes the tensor of this name.
    Whole(String),
    /// It becomes one matrix of the stack of this name.
    Expert {
        /// Name of the stack.
        name: String,
        /// Number of the matrix.
        index: usize,
    },
    /// It is not part of the language model, or can be computed.
    Nowhere,
    /// It may be part of the model, but no name in a file says so.
    Unknown,
}

/// Returns the place of a tensor.
pub(crate) fn place(name: &str, family: &Family) -> Place {
    let inner = PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    if FOREIGN.iter().any(|prefix| inner.starts_with(prefix))
        || name.ends_with("rotary_emb.inv_freq")
    {
        return Place::Nowhere;
    }
    let Some((stem, suffix)) = inner
        .rsplit_once('.')
        .filter(|(_, suffix)| SUFFIXES.contains(suffix))
    else {
        return Place::Unknown;
    };
    let of_layer = LAYERS.iter().find_map(|prefix| stem.strip_prefix(prefix));
    let Some(of_layer) = of_layer else {
        return match lookup(OUTER, stem) {
            Some(name) => Place::Whole(format!("{name}.{suffix}")),
            None => Place::Unknown,
        };
    };
    let Some((layer, part)) = of_layer.split_once('.') else {
        return Place::Unknown;
    };
    let Ok(layer) = layer.parse::<u32>() else {
        return Place::Unknown;
    };
    let norms = if family.norms_behind {
        NORMS_BEHIND
    } else {
        NORMS_BEFORE
    };
    if let Some(name) = lookup(norms, part).or_else(|| lookup(INNER, part)) {
        return Place::Whole(format!("blk.{layer}.{name}.{suffix}"));
    }
    let expert = EXPERT_LISTS
        .iter()
        .find_map(|list| part.strip_prefix(list))
        .and_then(|rest| rest.split_once('.'))
        .and_then(|(index, part)| Some((index.parse().ok()?, lookup(EXPERTS, part)?)));
    match expert {
        Some((index, name)) if suffix == "weight" => Place::Expert {
            name: format!("blk.{layer}.{name}.weight"),
            index,
        },
        _ => Place::Unknown,
    }
}

fn lookup(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    let row = table.iter().find(|(theirs, _)| *theirs == name);
    row.map(|(_, ours)| *ours)
}

/// What stands before the names of the language model, longest first.
const PREFIXES: &[&str] = &[
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.",
    "bert.",
];
/// What stands before the number of a layer.
const LAYERS: &[&str] = &["layers.", "encoder.layer."];
const SUFFIXES: &[&str] = &["weight", "bias"];
/// What the names of encoders for images begin with, of the heads that a BERT was trained with, and of numbers in order.
const FOREIGN: &[&str] = &[
    "vision_tower.",
    "multi_modal_projector.",
    "pooler.",
    "cls.",
    "embeddings.position_ids",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::find;

    #[test]
    fn names_find_their_places() {
        let whole = |name: &str| Place::Whole(name.into());
        let llama = find("LlamaForCausalLM").unwrap();
        let gemma = find("Gemma3ForCausalLM").unwrap();
        let cases = [
            (
                "model.embed_tokens.weight",
                llama,
                whole("token_embd.weight"),
            ),
            ("lm_head.weight", llama, whole("output.weight")),
            ("model.norm.weight", llama, whole("output_norm.weight")),
            (
                "model.layers.7.self_attn.q_proj.bias",
                llama,
                whole("blk.7.attn_q.bias"),
            ),
            (
                "model.layers.7.post_attention_layernorm.weight",
                llama,
                whole("blk.7.ffn_norm.weight"),
            ),
            (
                "language_model.model.layers.7.post_attention_layernorm.weight",
                gemma,
                whole("blk.7.post_attention_norm.weight"),
            ),
            (
                "model.layers.1.block_sparse_moe.experts.12.w2.weight",
                llama,
                Place::Expert {
                    name: "blk.1.ffn_down_exps.weight".into(),
                    index: 12,
                },
            ),
            ("vision_tower.x.weight", gemma, Place::Nowhere),
            (
                "model.layers.0.self_attn.rotary_emb.inv_freq",
                llama,
                Place::Nowhere,
            ),
            (
                "model.layers.0.self_attn.q_proj.weight_scale",
                llama,
                Place::Unknown,
            ),
            (
                "model.layers.x.self_attn.q_proj.weight",
                llama,
                Place::Unknown,
            ),
            ("weight", llama, Place::Unknown),
        ];
        for (name, family, expected) in cases {
            assert_eq!(place(name, family), expected, "{name}");
        }
    }
}
