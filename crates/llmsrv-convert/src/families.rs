//! The model families that can be converted, as data: one row each.
//!
//! A published model and a model file say the same with other names. Names of classes and keys are
//! those of the `transformers` library, names of tensors and keys in files those of the GGUF format.

use crate::Error;

/// How the models of a family become files.
#[derive(Debug)]
pub(crate) struct Family {
    /// Names in `architectures` of `config.json`.
    pub(crate) classes: &'static [&'static str],
    /// `general.architecture`.
    pub(crate) architecture: &'static str,
    /// Heads of queries and keys are stored so that neighbours rotate together.
    pub(crate) interleaved: bool,
    /// Added to the weights of norms, which the model applies as `1 + w`.
    pub(crate) norm_offset: f32,
    /// Parts of a layer have a norm behind them, so that names of norms mean other places.
    pub(crate) norms_behind: bool,
    /// Layers have a sliding window.
    pub(crate) windows: bool,
    /// Tokens see all of their text, and positions have rows of a table.
    pub(crate) is_encoder: bool,
    /// What keeps norms from dividing by zero: in the file, in `config.json`.
    pub(crate) norm_eps: (&'static str, &'static str),
    /// Values of `config.json` where it has none.
    pub(crate) defaults: &'static [(&'static str, f64)],
    /// More keys: in the file, in `config.json`.
    pub(crate) numbers: &'static [(&'static str, &'static str)],
}

/// Returns the family of a class.
pub(crate) fn find(class: &str) -> Result<&'static Family, Error> {
    let found = FAMILIES
        .iter()
        .find(|family| family.classes.contains(&class));
    found.ok_or_else(|| {
        let known: Vec<&str> = FAMILIES
            .iter()
            .flat_map(|family| family.classes)
            .copied()
            .collect();
        let class: String = class
            .chars()
            .take(60)
            .flat_map(char::escape_debug)
            .collect();
        Error::Unsupported(format!(
            "models of the class {class} cannot be converted (known: {})",
            known.join(", ")
        ))
    })
}

/// Returns the family of a model file.
pub(crate) fn of_architecture(architecture: &str) -> Result<&'static Family, Error> {
    let found = FAMILIES
        .iter()
        .find(|family| family.architecture == architecture);
    found.ok_or_else(|| {
        let name: String = architecture
            .chars()
            .take(60)
            .flat_map(char::escape_debug)
            .collect();
        Error::Unsupported(format!("adapters of {name} models cannot be converted"))
    })
}

const PLAIN: Family = Family {
    classes: &[],
    architecture: "",
    interleaved: false,
    norm_offset: 0.0,
    norms_behind: false,
    windows: false,
    is_encoder: false,
    norm_eps: ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    defaults: &[],
    numbers: &[],
};

const GEMMA: Family = Family {
    norm_offset: 1.0,
    defaults: &[("rms_norm_eps", 1e-6)],
    ..PLAIN
};

const GRANITE: Family = Family {
    interleaved: true,
    numbers: &[
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("attention.scale", "attention_multiplier"),
        ("logit_scale", "logits_scaling"),
    ],
    ..PLAIN
};

const FAMILIES: &[Family] = &[
    Family {
        classes: &[
            "LlamaForCausalLM",
            "LLaMAForCausalLM",
            "MistralForCausalLM",
            "MixtralForCausalLM",
        ],
        architecture: "llama",
        interleaved: true,
        ..PLAIN
    },
    Family {
        classes: &["Qwen2ForCausalLM"],
        architecture: "qwen2",
        ..PLAIN
    },
    Family {
        classes: &["Qwen3ForCausalLM"],
        architecture: "qwen3",
        ..PLAIN
    },
    Family {
        classes: &["Qwen3MoeForCausalLM"],
        architecture: "qwen3moe",
        ..PLAIN
    },
    Family {
        classes: &["GemmaForCausalLM"],
        architecture: "gemma",
        ..GEMMA
    },
    Family {
        classes: &["Gemma2ForCausalLM"],
        architecture: "gemma2",
        norms_behind: true,
        windows: true,
        numbers: &[
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        ..GEMMA
    },
    Family {
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        architecture: "gemma3",
        norms_behind: true,
        windows: true,
        // What the class itself assumes.
        defaults: &[
            ("rms_norm_eps", 1e-6),
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 4.0),
            ("head_dim", 256.0),
            ("max_position_embeddings", 131_072.0),
            ("rope_theta", 1_000_000.0),
        ],
        numbers: &[
            ("final_logit_softcapping", "final_logit_softcapping"),
            ("rope.freq_base_swa", "rope_local_base_freq"),
        ],
        ..GEMMA
    },
    Family {
        classes: &["Phi3ForCausalLM"],
        architecture: "phi3",
        windows: true,
        ..PLAIN
    },
    Family {
        classes: &["Olmo2ForCausalLM"],
        architecture: "olmo2",
        norms_behind: true,
        ..PLAIN
    },
    Family {
        classes: &["SmolLM3ForCausalLM"],
        architecture: "smollm3",
        interleaved: true,
        ..PLAIN
    },
    Family {
        classes: &["GraniteForCausalLM"],
        architecture: "granite",
        ..GRANITE
    },
    Family {
        classes: &["BertModel", "BertForMaskedLM"],
        architecture: "bert",
        is_encoder: true,
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        // What the class itself assumes.
        defaults: &[("layer_norm_eps", 1e-12)],
        ..PLAIN
    },
];

/// Counts that every family has: in the file, in `config.json`.
pub(crate) const COUNTS: &[(&str, &[&str])] = &[
    (
        "context_length",
        &["max_position_embeddings", "n_ctx", "max_sequence_length"],
    ),
    ("embedding_length", &["hidden_size"]),
    ("feed_forward_length", &["intermediate_size"]),
    ("attention.head_count", &["num_attention_heads"]),
    ("attention.key_length", &["head_dim"]),
    ("attention.value_length", &["head_dim"]),
    ("expert_count", &["num_local_experts", "num_experts"]),
    ("expert_used_count", &["num_experts_per_tok"]),
    ("expert_feed_forward_length", &["moe_intermediate_size"]),
];

/// Tensors outside of layers: in the checkpoint, in the file.
pub(crate) const OUTER: &[(&str, &str)] = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
];

/// Tensors of a layer: in the checkpoint, in the file.
pub(crate) const INNER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.gate", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// Norms of a layer whose parts have none behind them.
pub(crate) const NORMS_BEFORE: &[(&str, &str)] = &[("post_attention_layernorm", "ffn_norm")];

/// Norms of a layer whose parts have one behind them.
pub(crate) const NORMS_BEHIND: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Tensors of each expert of a layer, which the file stacks: after the number, in the file.
pub(crate) const EXPERTS: &[(&str, &str)] = &[
    ("gate_proj", "ffn_gate_exps"),
    ("up_proj", "ffn_up_exps"),
    ("down_proj", "ffn_down_exps"),
    ("w1", "ffn_gate_exps"),
    ("w3", "ffn_up_exps"),
    ("w2", "ffn_down_exps"),
];

/// What the layers of experts are called.
pub(crate) const EXPERT_LISTS: &[&str] = &["mlp.experts.", "block_sparse_moe.experts."];
