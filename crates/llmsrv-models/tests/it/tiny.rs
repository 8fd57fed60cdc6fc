//! Tiny models with random weights, one or more for each family, made from a table.
//!
//! The bytes of a file depend on nothing but its row in [`CASES`], so that expected logits of
//! another program can be kept beside the tests.

use std::path::PathBuf;

use llmsrv_engine::{BlockId, Model, Span, SpanState, StateId, StepPlan};
use llmsrv_gguf::{Metadata, TensorType, Writer};

/// Tokens in the vocabulary of every tiny model.
pub(crate) const VOCAB: usize = 96;

/// A tiny model.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Name of the test and of the file with the expected logits.
    pub(crate) name: &'static str,
    /// `general.architecture`.
    pub(crate) architecture: &'static str,
    /// Keys behind `<architecture>.`.
    pub(crate) keys: &'static [(&'static str, Key)],
    /// What the file is made of.
    pub(crate) parts: Parts,
}

/// What a file is made of.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<FileTensor>,
}

/// A tensor of a file.
#[derive(Clone)]
pub(crate) struct FileTensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: TensorType,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut writer = Writer::new(self.metadata);
        for tensor in self.tensors {
            let FileTensor {
                name,
                shape,
                dtype,
                bytes,
            } = tensor;
            writer.tensor(&name, &shape, dtype, bytes).unwrap();
        }
        writer.to_bytes().unwrap()
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut FileTensor {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name);
        found.unwrap()
    }
}

/// A value of the metadata.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    U(u32),
    F(f32),
    S(&'static str),
    B(bool),
    Bools(&'static [bool]),
    Us(&'static [u32]),
    Ss(&'static [&'static str]),
}

/// Sizes and the choice of tensors.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) n_layers: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) hidden: usize,
    pub(crate) tied: bool,
    pub(crate) fused_qkv: bool,
    pub(crate) fused_gate_up: bool,
    pub(crate) pre_norm: bool,
    pub(crate) post_norm: bool,
    pub(crate) qk_norm: QkNorm,
    /// Of query, key and value.
    pub(crate) qkv_bias: bool,
    /// Of everything else that may have one.
    pub(crate) other_bias: bool,
    /// Number of experts; 0 = none.
    pub(crate) n_experts: usize,
    /// Hidden elements of the shared expert; 0 = none.
    pub(crate) shared: usize,
    pub(crate) shared_gate: bool,
    /// Norms of the residual stream have biases; the key of their epsilon is that of layer norms.
    pub(crate) layer_norm: Option<bool>,
    /// Networks have no gate.
    pub(crate) plain: bool,
    /// The logits have a bias.
    pub(crate) output_bias: bool,
    /// Rows of the table of positions; 0 = none.
    pub(crate) positions: usize,
    /// Name of the norm before attention, beside `attn_norm`.
    pub(crate) first_norm: &'static str,
    /// Attention has sinks.
    pub(crate) sinks: bool,
    /// Experts are chosen by probabilities that have a bias.
    pub(crate) selection_bias: bool,
    /// Router and experts have biases.
    pub(crate) expert_bias: bool,
    /// Gate and up of the experts are one tensor.
    pub(crate) fused_experts: bool,
    /// A network runs beside the experts: its hidden elements; 0 = none.
    pub(crate) beside: usize,
    /// Experts read the layer's input with a norm of its own, beside a network as wide as the residual stream.
    pub(crate) early_experts: bool,
    /// What attention and networks give is normed before their last matrix.
    pub(crate) sub_norms: bool,
    /// Name of the norm before the feed-forward part.
    pub(crate) second_norm: &'static str,
    /// Elements and number of the key heads of every other layer, from the first on, which have a window;
    /// 0 elements = as in the others.
    pub(crate) local: (usize, usize),
    /// Layers at the end that store no keys and values.
    pub(crate) n_shared: usize,
    /// These layers have twice the hidden elements.
    pub(crate) wide_shared: bool,
    /// Layers without a window take their values from the keys.
    pub(crate) values_are_keys: bool,
    /// Elements of the second embedding for each layer; 0 = none.
    pub(crate) per_layer: usize,
    /// Layers end with a factor.
    pub(crate) layer_scale: bool,
    /// Lists of divisors of the rotation, `head_dim / 2` long.
    pub(crate) divisors: &'static [&'static str],
    /// Layers that convolve in place of attention.
    pub(crate) convolves: &'static [bool],
    /// Layers that have a gated delta net in place of attention, but every fourth.
    pub(crate) delta_nets: Option<DeltaNets>,
    /// Layers that scan in place of attention, with so many heads and elements kept of each.
    pub(crate) scans: (&'static [bool], usize, usize),
    /// Layers that scan attend as well, and the norm before their second part has no ending.
    pub(crate) both: bool,
    /// Where there are some, layers have one part: these a network, others what is said above.
    pub(crate) networks: &'static [bool],
    /// Elements that experts read and give; 0 = those of the residual stream.
    pub(crate) narrow_experts: usize,
    /// Token embeddings are normed; the first layer has no norm before attention.
    pub(crate) embedding_norm: bool,
    /// Elements between the two projections of a vector; 0 = none.
    pub(crate) dense: usize,
    /// Scores that a classifier gives; 0 = none.
    pub(crate) scores: usize,
    /// It has a hidden layer with a norm, and biases.
    pub(crate) deep_scores: bool,
    /// The heads and hidden elements of each layer are those that keys list; where there are none, so is that part.
    pub(crate) pruned: bool,
    /// Four residual streams, and elements of the product of low rank beside attention; 0 = one stream.
    pub(crate) streams: usize,
    /// Heads share one row of each position.
    pub(crate) latent: Option<Latent>,
    /// Heads and elements of an indexer that picks positions; 0 = none.
    pub(crate) indexer: (usize, usize),
    /// Matrices have scales beside them.
    pub(crate) scales: bool,
    /// Type of the matrices.
    pub(crate) dtype: TensorType,
}

/// Latent attention: sizes, and the tensors that programs write.
#[derive(Clone, Copy)]
pub(crate) struct Latent {
    /// Elements on the way to the queries; 0 = none.
    pub(crate) query_rank: usize,
    pub(crate) rank: usize,
    pub(crate) rotated: usize,
    pub(crate) key: usize,
    pub(crate) value: usize,
    /// What makes keys and values is one tensor.
    pub(crate) one_tensor: bool,
}

/// Gated delta nets: sizes, and the tensors that programs write.
#[derive(Clone, Copy)]
pub(crate) struct DeltaNets {
    pub(crate) n_keys: usize,
    pub(crate) n_values: usize,
    pub(crate) dim: usize,
    /// What makes queries, keys, values and gates is one tensor.
    pub(crate) one_input: bool,
    /// What makes alpha and beta is one tensor.
    pub(crate) one_gate: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum QkNorm {
    None,
    Head,
    Row,
}

const PLAIN: Parts = Parts {
    n_layers: 3,
    width: 64,
    n_heads: 4,
    n_kv_heads: 2,
    head_dim: 16,
    hidden: 96,
    tied: false,
    fused_qkv: false,
    fused_gate_up: false,
    pre_norm: true,
    post_norm: false,
    qk_norm: QkNorm::None,
    qkv_bias: false,
    other_bias: false,
    n_experts: 0,
    shared: 0,
    shared_gate: false,
    layer_norm: None,
    plain: false,
    output_bias: false,
    positions: 0,
    first_norm: "attn_norm",
    sinks: false,
    selection_bias: false,
    expert_bias: false,
    fused_experts: false,
    beside: 0,
    early_experts: false,
    sub_norms: false,
    second_norm: "ffn_norm",
    local: (0, 0),
    n_shared: 0,
    wide_shared: false,
    values_are_keys: false,
    per_layer: 0,
    layer_scale: false,
    divisors: &[],
    convolves: &[],
    delta_nets: None,
    scans: (&[], 0, 0),
    both: false,
    networks: &[],
    narrow_experts: 0,
    embedding_norm: false,
    dense: 0,
    scores: 0,
    deep_scores: false,
    pruned: false,
    streams: 0,
    latent: None,
    indexer: (0, 0),
    scales: false,
    dtype: TensorType::F32,
};

const EXPERTS: Parts = Parts {
    n_experts: 6,
    hidden: 48,
    ..PLAIN
};

/// With layer norms, and networks without a gate.
const CLASSIC: Parts = Parts {
    layer_norm: Some(true),
    plain: true,
    ..PLAIN
};

const GEMMA: Parts = Parts {
    head_dim: 32,
    tied: true,
    ..PLAIN
};

const MODERN_BERT: Parts = Parts {
    n_layers: 5,
    n_kv_heads: 4,
    tied: true,
    layer_norm: Some(false),
    fused_qkv: true,
    fused_gate_up: true,
    embedding_norm: true,
    ..PLAIN
};

const DELTA: Parts = Parts {
    n_layers: 5,
    n_kv_heads: 1,
    qk_norm: QkNorm::Head,
    second_norm: "post_attention_norm",
    delta_nets: Some(DeltaNets {
        n_keys: 2,
        n_values: 4,
        dim: 16,
        one_input: false,
        one_gate: false,
    }),
    ..PLAIN
};

const DELTA_EXPERTS: Parts = Parts {
    n_experts: 6,
    hidden: 48,
    shared: 40,
    shared_gate: true,
    ..DELTA
};

use Key::{B, Bools, F, S, Ss, U, Us};

/// Of the layout that the first files of DeepSeek V2 have.
const LITE: &[(&str, Key)] = &[
    ("attention.head_count_kv", U(4)),
    ("attention.key_length", U(24)),
    ("attention.value_length", U(16)),
    ("attention.q_lora_rank", U(0)),
    ("attention.kv_lora_rank", U(24)),
    ("rope.dimension_count", U(8)),
    ("rope.scaling.type", S("yarn")),
    ("rope.scaling.factor", F(40.0)),
    ("rope.scaling.original_context_length", U(16)),
    ("rope.scaling.yarn_log_multiplier", F(0.0707)),
    ("feed_forward_length", U(80)),
    ("leading_dense_block_count", U(1)),
    ("expert_used_count", U(2)),
    ("expert_feed_forward_length", U(24)),
    ("expert_shared_count", U(2)),
    ("expert_weights_scale", F(1.0)),
];

/// The tiny models that are compared with another program.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "llama",
        architecture: "llama",
        keys: &[],
        parts: PLAIN,
    },
    Case {
        name: "llama4",
        architecture: "llama4",
        keys: &[
            ("rope.freq_base", F(500_000.0)),
            ("interleave_moe_layer_step", U(2)),
            ("feed_forward_length", U(96)),
            ("expert_used_count", U(1)),
            ("expert_feed_forward_length", U(48)),
        ],
        parts: Parts {
            n_layers: 5,
            shared: 48,
            divisors: &["rope_freqs.weight"],
            ..EXPERTS
        },
    },
    Case {
        name: "llama_tied_biased",
        architecture: "llama",
        keys: &[("rope.freq_base", F(500_000.0))],
        parts: Parts {
            tied: true,
            qkv_bias: true,
            other_bias: true,
            n_kv_heads: 1,
            ..PLAIN
        },
    },
    Case {
        name: "llama_fused",
        architecture: "llama",
        keys: &[],
        parts: Parts {
            fused_qkv: true,
            ..PLAIN
        },
    },
    Case {
        name: "llama3_frequencies",
        architecture: "llama",
        keys: &[("rope.freq_base", F(500_000.0))],
        parts: Parts {
            divisors: &["rope_freqs.weight"],
            n_kv_heads: 4,
            ..PLAIN
        },
    },
    Case {
        name: "llama_linear",
        architecture: "llama",
        keys: &[
            ("rope.scaling.type", S("linear")),
            ("rope.scaling.factor", F(4.0)),
        ],
        parts: PLAIN,
    },
    Case {
        name: "llama_yarn",
        architecture: "llama",
        keys: &[
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(8.0)),
            ("rope.scaling.original_context_length", U(1500)),
        ],
        parts: PLAIN,
    },
    Case {
        name: "mixtral",
        architecture: "llama",
        keys: &[("expert_used_count", U(2))],
        parts: EXPERTS,
    },
    Case {
        name: "mllama",
        architecture: "mllama",
        keys: &[
            ("rope.freq_base", F(500_000.0)),
            ("rope.dimension_count", U(16)),
            ("attention.cross_attention_layers", Us(&[1, 3])),
            ("vision.block_count", U(2)),
        ],
        parts: Parts {
            n_layers: 5,
            ..PLAIN
        },
    },
    Case {
        name: "mistral3",
        architecture: "mistral3",
        keys: &[
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(16.0)),
            ("rope.scaling.original_context_length", U(8)),
            ("rope.scaling.yarn_beta_fast", F(16.0)),
            ("rope.scaling.yarn_beta_slow", F(2.0)),
            ("rope.scaling.yarn_log_multiplier", F(0.7)),
            ("attention.temperature_scale", F(0.1)),
        ],
        parts: PLAIN,
    },
    Case {
        name: "qwen2",
        architecture: "qwen2",
        keys: &[("rope.freq_base", F(1_000_000.0))],
        parts: Parts {
            qkv_bias: true,
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "qwen2_yarn",
        architecture: "qwen2",
        keys: &[
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(4.0)),
            ("rope.scaling.original_context_length", U(32)),
            ("rope.scaling.attn_factor", F(1.25)),
        ],
        parts: Parts {
            qkv_bias: true,
            ..PLAIN
        },
    },
    Case {
        name: "qwen2moe",
        architecture: "qwen2moe",
        keys: &[
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_feed_forward_length", U(80)),
        ],
        parts: Parts {
            qkv_bias: true,
            shared: 80,
            shared_gate: true,
            ..EXPERTS
        },
    },
    Case {
        name: "qwen3",
        architecture: "qwen3",
        keys: &[("rope.freq_base", F(1_000_000.0))],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "qwen3moe",
        architecture: "qwen3moe",
        keys: &[
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
        ],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            ..EXPERTS
        },
    },
    Case {
        name: "gemma",
        architecture: "gemma",
        keys: &[],
        parts: Parts {
            n_kv_heads: 1,
            ..GEMMA
        },
    },
    Case {
        name: "gemma2",
        architecture: "gemma2",
        keys: &[
            ("attention.sliding_window", U(7)),
            ("attn_logit_softcapping", F(8.0)),
            ("final_logit_softcapping", F(12.0)),
        ],
        parts: Parts {
            n_layers: 4,
            post_norm: true,
            ..GEMMA
        },
    },
    Case {
        name: "gemma3",
        architecture: "gemma3",
        keys: &[
            ("attention.sliding_window", U(12)),
            ("rope.freq_base", F(1_000_000.0)),
            ("rope.scaling.type", S("linear")),
            ("rope.scaling.factor", F(8.0)),
        ],
        parts: Parts {
            n_layers: 7,
            post_norm: true,
            qk_norm: QkNorm::Head,
            ..GEMMA
        },
    },
    Case {
        name: "gemma3_listed",
        architecture: "gemma3",
        keys: &[
            ("attention.sliding_window", U(9)),
            (
                "attention.sliding_window_pattern",
                Bools(&[false, true, true]),
            ),
            ("rope.freq_base", F(50_000.0)),
            ("rope.freq_base_swa", F(5_000.0)),
        ],
        parts: Parts {
            post_norm: true,
            qk_norm: QkNorm::Head,
            ..GEMMA
        },
    },
    Case {
        name: "gemma3n",
        architecture: "gemma3n",
        keys: &[
            ("attention.sliding_window", U(6)),
            ("attention.shared_kv_layers", U(5)),
            ("embedding_length_per_layer_input", U(256)),
            ("altup.num_inputs", U(4)),
            ("altup.active_idx", U(0)),
            ("rope.freq_base", F(1_000_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
        ],
        parts: Parts {
            n_layers: 25,
            width: 32,
            n_heads: 2,
            n_kv_heads: 1,
            head_dim: 16,
            hidden: 512,
            post_norm: true,
            qk_norm: QkNorm::Head,
            n_shared: 5,
            per_layer: 256,
            streams: 64,
            ..GEMMA
        },
    },
    Case {
        name: "gemma4",
        architecture: "gemma4",
        keys: &[
            ("attention.sliding_window", U(9)),
            (
                "attention.sliding_window_pattern",
                Bools(&[true, false, true, false, true, false, true, false]),
            ),
            ("attention.shared_kv_layers", U(4)),
            ("attention.key_length_swa", U(16)),
            ("attention.value_length_swa", U(16)),
            ("embedding_length_per_layer_input", U(32)),
            (
                "feed_forward_length",
                Us(&[96, 96, 96, 96, 192, 192, 192, 192]),
            ),
            ("rope.freq_base", F(1_000_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("rope.dimension_count", U(32)),
            ("rope.dimension_count_swa", U(16)),
            ("final_logit_softcapping", F(30.0)),
        ],
        parts: Parts {
            n_layers: 8,
            n_kv_heads: 1,
            post_norm: true,
            qk_norm: QkNorm::Head,
            local: (16, 1),
            n_shared: 4,
            wide_shared: true,
            per_layer: 32,
            layer_scale: true,
            divisors: &["rope_freqs.weight"],
            ..GEMMA
        },
    },
    Case {
        name: "gemma4_experts",
        architecture: "gemma4",
        keys: &[
            ("attention.sliding_window", U(6)),
            (
                "attention.sliding_window_pattern",
                Bools(&[true, false, true, false]),
            ),
            ("attention.head_count_kv", Us(&[2, 1, 2, 1])),
            ("attention.key_length_swa", U(16)),
            ("attention.value_length_swa", U(16)),
            ("embedding_length_per_layer_input", U(0)),
            ("feed_forward_length", U(80)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("rope.freq_base", F(1_000_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("rope.dimension_count", U(32)),
            ("rope.dimension_count_swa", U(16)),
        ],
        parts: Parts {
            n_layers: 4,
            n_kv_heads: 1,
            post_norm: true,
            qk_norm: QkNorm::Head,
            local: (16, 2),
            values_are_keys: true,
            n_experts: 6,
            hidden: 48,
            fused_experts: true,
            beside: 80,
            layer_scale: true,
            divisors: &["rope_freqs.weight"],
            ..GEMMA
        },
    },
    Case {
        name: "gpt_oss",
        architecture: "gpt-oss",
        keys: &[
            ("attention.sliding_window", U(7)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(48)),
            ("rope.freq_base", F(150_000.0)),
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(32.0)),
            ("rope.scaling.original_context_length", U(16)),
        ],
        parts: Parts {
            n_layers: 4,
            qkv_bias: true,
            other_bias: true,
            expert_bias: true,
            sinks: true,
            second_norm: "post_attention_norm",
            ..EXPERTS
        },
    },
    Case {
        name: "phi3",
        architecture: "phi3",
        keys: &[("rope.dimension_count", U(16))],
        parts: Parts {
            fused_qkv: true,
            fused_gate_up: true,
            ..PLAIN
        },
    },
    Case {
        name: "phi3_long",
        architecture: "phi3",
        keys: &[
            ("rope.dimension_count", U(16)),
            ("rope.scaling.type", S("longrope")),
            ("rope.scaling.original_context_length", U(64)),
            ("rope.scaling.attn_factor", F(1.19)),
        ],
        parts: Parts {
            fused_qkv: true,
            fused_gate_up: true,
            divisors: &["rope_factors_long.weight", "rope_factors_short.weight"],
            ..PLAIN
        },
    },
    Case {
        name: "phi3_short",
        architecture: "phi3",
        keys: &[
            ("rope.dimension_count", U(16)),
            ("rope.scaling.original_context_length", U(512)),
        ],
        parts: Parts {
            fused_qkv: true,
            fused_gate_up: true,
            tied: true,
            divisors: &["rope_factors_long.weight", "rope_factors_short.weight"],
            ..PLAIN
        },
    },
    Case {
        name: "phi3_partial",
        architecture: "phi3",
        keys: &[("rope.dimension_count", U(12))],
        parts: Parts {
            fused_qkv: true,
            fused_gate_up: true,
            ..PLAIN
        },
    },
    Case {
        name: "granite",
        architecture: "granite",
        keys: &[
            ("embedding_scale", F(6.0)),
            ("residual_scale", F(0.22)),
            ("attention.scale", F(0.1)),
            ("logit_scale", F(4.0)),
        ],
        parts: Parts {
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "granite_nope",
        architecture: "granite",
        keys: &[
            ("logit_scale", F(2.0)),
            ("rope.scaling.finetuned", B(false)),
        ],
        parts: PLAIN,
    },
    Case {
        name: "granitemoe",
        architecture: "granitemoe",
        keys: &[
            ("embedding_scale", F(6.0)),
            ("residual_scale", F(0.3)),
            ("attention.scale", F(0.2)),
            ("logit_scale", F(3.0)),
            ("expert_used_count", U(3)),
            ("expert_shared_feed_forward_length", U(40)),
        ],
        parts: Parts {
            shared: 40,
            ..EXPERTS
        },
    },
    Case {
        name: "minicpm",
        architecture: "minicpm",
        keys: &[
            ("embedding_scale", F(9.0)),
            ("residual_scale", F(0.6)),
            ("logit_scale", F(3.0)),
        ],
        parts: PLAIN,
    },
    // At this width logits are divided by 1. At others llama.cpp multiplies them where the key is missing.
    Case {
        name: "minicpm_first_files",
        architecture: "minicpm",
        keys: &[],
        parts: Parts {
            width: 256,
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "smollm3",
        architecture: "smollm3",
        keys: &[("rope.freq_base", F(2_000_000.0))],
        parts: Parts {
            n_layers: 5,
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "olmo2",
        architecture: "olmo2",
        keys: &[],
        parts: Parts {
            pre_norm: false,
            post_norm: true,
            qk_norm: QkNorm::Row,
            ..PLAIN
        },
    },
    Case {
        name: "olmo3",
        architecture: "olmo2",
        keys: &[
            ("attention.sliding_window", U(6)),
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.attn_factor", F(1.3)),
            ("rope.scaling.factor", F(8.0)),
            ("rope.scaling.original_context_length", U(64)),
        ],
        parts: Parts {
            n_layers: 4,
            pre_norm: false,
            post_norm: true,
            qk_norm: QkNorm::Row,
            ..PLAIN
        },
    },
    Case {
        name: "glm4",
        architecture: "glm4",
        keys: &[("rope.dimension_count", U(8))],
        parts: Parts {
            post_norm: true,
            qkv_bias: true,
            fused_gate_up: true,
            ..PLAIN
        },
    },
    Case {
        name: "glm4_sections",
        architecture: "glm4",
        keys: &[("rope.dimension_sections", Us(&[2, 3, 3, 0]))],
        parts: Parts {
            post_norm: true,
            qkv_bias: true,
            fused_gate_up: true,
            ..PLAIN
        },
    },
    Case {
        name: "internlm2",
        architecture: "internlm2",
        keys: &[],
        parts: PLAIN,
    },
    Case {
        name: "ernie4_5",
        architecture: "ernie4_5",
        keys: &[],
        parts: Parts {
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "llama_scales",
        architecture: "llama",
        keys: &[],
        parts: Parts {
            scales: true,
            ..PLAIN
        },
    },
    Case {
        name: "qwen3moe_scales",
        architecture: "qwen3moe",
        keys: &[
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
        ],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            scales: true,
            ..EXPERTS
        },
    },
    Case {
        name: "arcee",
        architecture: "arcee",
        keys: &[("rope.freq_base", F(500_000.0))],
        parts: Parts {
            plain: true,
            divisors: &["rope_freqs.weight"],
            ..PLAIN
        },
    },
    Case {
        name: "arctic",
        architecture: "arctic",
        keys: &[("rope.freq_base", F(50_000.0)), ("expert_used_count", U(2))],
        parts: Parts {
            early_experts: true,
            ..EXPERTS
        },
    },
    Case {
        name: "bitnet",
        architecture: "bitnet",
        keys: &[
            ("rope.scaling.type", S("linear")),
            ("rope.scaling.factor", F(1.0)),
        ],
        parts: Parts {
            tied: true,
            sub_norms: true,
            scales: true,
            ..PLAIN
        },
    },
    Case {
        name: "bitnet_b158",
        architecture: "bitnet-b1.58",
        keys: &[("rope.freq_base", F(500_000.0))],
        parts: Parts {
            tied: true,
            sub_norms: true,
            ..PLAIN
        },
    },
    Case {
        name: "dbrx",
        architecture: "dbrx",
        keys: &[
            ("attention.clamp_kqv", F(1.5)),
            ("rope.freq_base", F(500_000.0)),
            ("expert_used_count", U(3)),
        ],
        parts: Parts {
            fused_qkv: true,
            layer_norm: Some(false),
            second_norm: "attn_output_norm",
            ..EXPERTS
        },
    },
    Case {
        name: "deepseek2_ocr",
        architecture: "deepseek2-ocr",
        keys: &[
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(2)),
        ],
        parts: Parts {
            n_kv_heads: 4,
            hidden: 24,
            shared: 48,
            ..EXPERTS
        },
    },
    Case {
        name: "phimoe",
        architecture: "phimoe",
        keys: &[
            ("attention.layer_norm_rms_epsilon", F(1e-5)),
            ("expert_used_count", U(2)),
        ],
        parts: Parts {
            layer_norm: Some(true),
            qkv_bias: true,
            other_bias: true,
            output_bias: true,
            ..EXPERTS
        },
    },
    Case {
        name: "smallthinker",
        architecture: "smallthinker",
        keys: &[
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_gating_func", U(2)),
        ],
        parts: Parts {
            head_dim: 32,
            tied: true,
            ..EXPERTS
        },
    },
    Case {
        name: "smallthinker_window",
        architecture: "smallthinker",
        keys: &[
            // The window of all published models, and what llama.cpp takes whatever the file says.
            ("attention.sliding_window", U(4096)),
            ("rope.freq_base", F(1_500_000.0)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(48)),
            ("expert_gating_func", U(1)),
        ],
        parts: Parts {
            n_layers: 6,
            head_dim: 32,
            ..EXPERTS
        },
    },
    Case {
        name: "deepseek",
        architecture: "deepseek",
        keys: &[
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(2)),
            ("expert_weights_scale", F(1.0)),
        ],
        parts: Parts {
            n_kv_heads: 4,
            hidden: 24,
            shared: 48,
            ..EXPERTS
        },
    },
    Case {
        name: "dots1",
        architecture: "dots1",
        keys: &[
            ("rope.freq_base", F(10_000_000.0)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(2)),
            ("expert_gating_func", U(2)),
            ("expert_weights_norm", B(true)),
            ("expert_weights_scale", F(2.5)),
        ],
        parts: Parts {
            n_kv_heads: 4,
            head_dim: 32,
            qk_norm: QkNorm::Head,
            hidden: 24,
            shared: 48,
            selection_bias: true,
            ..EXPERTS
        },
    },
    Case {
        name: "bailingmoe2",
        architecture: "bailingmoe2",
        keys: &[
            ("rope.freq_base", F(600_000.0)),
            ("rope.dimension_count", U(8)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(3)),
            ("expert_group_count", U(4)),
            ("expert_group_used_count", U(2)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(2)),
            ("expert_shared_feed_forward_length", U(20)),
            ("expert_gating_func", U(2)),
            ("expert_weights_norm", B(true)),
            ("expert_weights_scale", F(2.5)),
        ],
        parts: Parts {
            fused_qkv: true,
            qk_norm: QkNorm::Head,
            n_experts: 8,
            hidden: 24,
            shared: 40,
            selection_bias: true,
            ..PLAIN
        },
    },
    // Layers with other numbers of heads and hidden elements, without one of the parts, and without both.
    Case {
        name: "deci",
        architecture: "deci",
        keys: &[
            ("rope.freq_base", F(500_000.0)),
            ("attention.head_count", Us(&[4, 0, 4, 0, 4])),
            ("attention.head_count_kv", Us(&[2, 0, 1, 0, 4])),
            ("feed_forward_length", Us(&[96, 64, 32, 0, 96])),
        ],
        parts: Parts {
            n_layers: 5,
            divisors: &["rope_freqs.weight"],
            pruned: true,
            ..PLAIN
        },
    },
    Case {
        name: "mistral4",
        architecture: "mistral4",
        keys: &[
            ("attention.head_count_kv", U(1)),
            ("attention.key_length", U(40)),
            ("attention.value_length", U(32)),
            ("attention.key_length_mla", U(24)),
            ("attention.value_length_mla", U(20)),
            ("attention.q_lora_rank", U(48)),
            ("attention.kv_lora_rank", U(32)),
            ("attention.temperature_scale", F(0.1)),
            ("attention.temperature_length", U(16)),
            ("rope.dimension_count", U(8)),
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(16.0)),
            ("rope.scaling.original_context_length", U(16)),
            ("rope.scaling.yarn_beta_fast", F(16.0)),
            ("rope.scaling.yarn_beta_slow", F(2.0)),
            ("rope.scaling.yarn_log_multiplier", F(0.1)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(1)),
            ("expert_gating_func", U(1)),
            ("expert_weights_norm", B(true)),
        ],
        parts: Parts {
            hidden: 24,
            shared: 24,
            fused_experts: true,
            latent: Some(Latent {
                query_rank: 48,
                rank: 32,
                rotated: 8,
                key: 16,
                value: 20,
                one_tensor: false,
            }),
            ..EXPERTS
        },
    },
    Case {
        name: "ernie4_5_moe",
        architecture: "ernie4_5-moe",
        keys: &[
            ("rope.freq_base", F(500_000.0)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("interleave_moe_layer_step", U(1)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_feed_forward_length", U(40)),
            ("expert_shared_count", U(2)),
        ],
        parts: Parts {
            n_layers: 4,
            shared: 40,
            selection_bias: true,
            tied: true,
            ..EXPERTS
        },
    },
    Case {
        name: "hunyuan_dense",
        architecture: "hunyuan-dense",
        keys: &[("rope.freq_base", F(11_158_840.0))],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "hunyuan_moe",
        architecture: "hunyuan-moe",
        keys: &[
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_feed_forward_length", U(40)),
        ],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            shared: 40,
            ..EXPERTS
        },
    },
    Case {
        name: "qwen2vl",
        architecture: "qwen2vl",
        keys: &[("rope.dimension_sections", Us(&[2, 3, 3, 0]))],
        parts: Parts {
            qkv_bias: true,
            ..PLAIN
        },
    },
    Case {
        name: "qwen3vl",
        architecture: "qwen3vl",
        keys: &[("rope.dimension_sections", Us(&[6, 5, 5, 0]))],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            ..PLAIN
        },
    },
    Case {
        name: "qwen3vlmoe",
        architecture: "qwen3vlmoe",
        keys: &[
            ("rope.dimension_sections", Us(&[6, 5, 5, 0])),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
        ],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            ..EXPERTS
        },
    },
    Case {
        name: "phi2",
        architecture: "phi2",
        keys: &[("rope.dimension_count", U(8))],
        parts: Parts {
            n_kv_heads: 4,
            other_bias: true,
            qkv_bias: true,
            output_bias: true,
            second_norm: "attn_norm",
            ..CLASSIC
        },
    },
    Case {
        name: "starcoder2",
        architecture: "starcoder2",
        keys: &[("rope.freq_base", F(100_000.0))],
        parts: Parts {
            qkv_bias: true,
            other_bias: true,
            tied: true,
            ..CLASSIC
        },
    },
    Case {
        name: "gpt2",
        architecture: "gpt2",
        keys: &[],
        parts: Parts {
            n_kv_heads: 4,
            fused_qkv: true,
            qkv_bias: true,
            other_bias: true,
            tied: true,
            positions: 512,
            ..CLASSIC
        },
    },
    Case {
        name: "starcoder",
        architecture: "starcoder",
        keys: &[],
        parts: Parts {
            n_kv_heads: 1,
            fused_qkv: true,
            qkv_bias: true,
            other_bias: true,
            positions: 512,
            ..CLASSIC
        },
    },
    Case {
        name: "gptneox",
        architecture: "gptneox",
        keys: &[
            ("use_parallel_residual", B(true)),
            ("rope.dimension_count", U(4)),
        ],
        parts: Parts {
            n_kv_heads: 4,
            fused_qkv: true,
            qkv_bias: true,
            other_bias: true,
            ..CLASSIC
        },
    },
    Case {
        name: "gptneox_sequential",
        architecture: "gptneox",
        keys: &[("use_parallel_residual", B(false))],
        parts: Parts {
            n_kv_heads: 4,
            fused_qkv: true,
            qkv_bias: true,
            other_bias: true,
            ..CLASSIC
        },
    },
    Case {
        name: "falcon",
        architecture: "falcon",
        keys: &[],
        parts: Parts {
            n_kv_heads: 1,
            fused_qkv: true,
            second_norm: "attn_norm",
            ..CLASSIC
        },
    },
    Case {
        name: "falcon_large",
        architecture: "falcon",
        keys: &[],
        parts: Parts {
            fused_qkv: true,
            tied: true,
            first_norm: "attn_norm_2",
            second_norm: "attn_norm",
            ..CLASSIC
        },
    },
    Case {
        name: "nemotron",
        architecture: "nemotron",
        keys: &[("rope.dimension_count", U(8))],
        parts: CLASSIC,
    },
    Case {
        name: "stablelm",
        architecture: "stablelm",
        keys: &[
            ("rope.dimension_count", U(4)),
            ("use_parallel_residual", B(false)),
        ],
        parts: Parts {
            qkv_bias: true,
            plain: false,
            ..CLASSIC
        },
    },
    Case {
        name: "stablelm_parallel",
        architecture: "stablelm",
        keys: &[
            ("rope.dimension_count", U(4)),
            ("use_parallel_residual", B(true)),
        ],
        parts: Parts {
            plain: false,
            second_norm: "attn_norm",
            ..CLASSIC
        },
    },
    Case {
        name: "command_r",
        architecture: "command-r",
        keys: &[
            ("logit_scale", F(0.0625)),
            ("rope.freq_base", F(8_000_000.0)),
        ],
        parts: Parts {
            plain: false,
            tied: true,
            layer_norm: Some(false),
            second_norm: "attn_norm",
            ..CLASSIC
        },
    },
    Case {
        name: "glm4moe",
        architecture: "glm4moe",
        keys: &[
            ("rope.dimension_count", U(8)),
            ("rope.freq_base", F(1_000_000.0)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(1)),
            ("expert_gating_func", U(2)),
            ("expert_weights_norm", B(true)),
            ("expert_weights_scale", F(1.5)),
        ],
        parts: Parts {
            n_layers: 4,
            qkv_bias: true,
            second_norm: "post_attention_norm",
            hidden: 24,
            shared: 24,
            selection_bias: true,
            ..EXPERTS
        },
    },
    Case {
        name: "glm4moe_large",
        architecture: "glm4moe",
        keys: &[
            ("rope.dimension_count", U(16)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(2)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(16)),
            ("expert_shared_count", U(2)),
            ("expert_weights_norm", B(false)),
        ],
        parts: Parts {
            n_layers: 4,
            head_dim: 32,
            qkv_bias: true,
            qk_norm: QkNorm::Head,
            second_norm: "post_attention_norm",
            hidden: 16,
            shared: 32,
            selection_bias: true,
            ..EXPERTS
        },
    },
    Case {
        name: "minimax_m2",
        architecture: "minimax-m2",
        keys: &[
            ("rope.dimension_count", U(8)),
            ("rope.freq_base", F(5_000_000.0)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_gating_func", U(2)),
        ],
        parts: Parts {
            qk_norm: QkNorm::Row,
            selection_bias: true,
            ..EXPERTS
        },
    },
    Case {
        name: "deepseek2",
        architecture: "deepseek2",
        keys: &[
            ("attention.head_count_kv", U(1)),
            ("attention.key_length", U(40)),
            ("attention.value_length", U(32)),
            ("attention.key_length_mla", U(24)),
            ("attention.value_length_mla", U(20)),
            ("attention.q_lora_rank", U(48)),
            ("attention.kv_lora_rank", U(32)),
            ("rope.dimension_count", U(8)),
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(40.0)),
            ("rope.scaling.original_context_length", U(16)),
            ("rope.scaling.yarn_log_multiplier", F(0.1)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(1)),
            ("expert_group_count", U(4)),
            ("expert_group_used_count", U(2)),
            ("expert_gating_func", U(2)),
            ("expert_weights_norm", B(true)),
            ("expert_weights_scale", F(2.5)),
        ],
        parts: Parts {
            n_experts: 8,
            hidden: 24,
            shared: 24,
            selection_bias: true,
            latent: Some(Latent {
                query_rank: 48,
                rank: 32,
                rotated: 8,
                key: 16,
                value: 20,
                one_tensor: false,
            }),
            ..PLAIN
        },
    },
    Case {
        name: "deepseek32",
        architecture: "deepseek32",
        keys: &[
            ("attention.head_count_kv", U(1)),
            ("attention.key_length", U(40)),
            ("attention.value_length", U(32)),
            ("attention.key_length_mla", U(24)),
            ("attention.value_length_mla", U(20)),
            ("attention.q_lora_rank", U(48)),
            ("attention.kv_lora_rank", U(32)),
            ("attention.indexer.head_count", U(2)),
            ("attention.indexer.key_length", U(64)),
            ("attention.indexer.top_k", U(128)),
            ("rope.dimension_count", U(8)),
            ("rope.scaling.type", S("yarn")),
            ("rope.scaling.factor", F(40.0)),
            ("rope.scaling.original_context_length", U(16)),
            ("rope.scaling.yarn_log_multiplier", F(0.1)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(24)),
            ("expert_shared_count", U(1)),
            ("expert_group_count", U(4)),
            ("expert_group_used_count", U(2)),
            ("expert_gating_func", U(2)),
            ("expert_weights_norm", B(true)),
            ("expert_weights_scale", F(2.5)),
        ],
        parts: Parts {
            n_experts: 8,
            hidden: 24,
            shared: 24,
            selection_bias: true,
            indexer: (2, 64),
            latent: Some(Latent {
                query_rank: 48,
                rank: 32,
                rotated: 8,
                key: 16,
                value: 20,
                one_tensor: false,
            }),
            ..PLAIN
        },
    },
    Case {
        name: "deepseek2_lite",
        architecture: "deepseek2",
        keys: LITE,
        parts: Parts {
            n_experts: 6,
            hidden: 24,
            shared: 48,
            latent: Some(Latent {
                query_rank: 0,
                rank: 24,
                rotated: 8,
                key: 16,
                value: 16,
                one_tensor: true,
            }),
            ..PLAIN
        },
    },
    Case {
        name: "deepseek2_temperature",
        architecture: "deepseek2",
        keys: &[
            ("attention.head_count_kv", U(1)),
            ("attention.key_length", U(32)),
            ("attention.value_length", U(24)),
            ("attention.key_length_mla", U(24)),
            ("attention.value_length_mla", U(16)),
            ("attention.q_lora_rank", U(0)),
            ("attention.kv_lora_rank", U(24)),
            ("attention.temperature_scale", F(0.3)),
            ("attention.temperature_length", U(8)),
            ("rope.dimension_count", U(8)),
            ("leading_dense_block_count", U(3)),
            ("expert_used_count", U(3)),
            ("expert_shared_count", U(1)),
            ("expert_feed_forward_length", U(24)),
        ],
        parts: Parts {
            n_experts: 6,
            tied: true,
            latent: Some(Latent {
                query_rank: 0,
                rank: 24,
                rotated: 8,
                key: 16,
                value: 16,
                one_tensor: false,
            }),
            ..PLAIN
        },
    },
    Case {
        name: "chatglm",
        architecture: "chatglm",
        keys: &[("rope.dimension_count", U(8))],
        parts: Parts {
            fused_qkv: true,
            qkv_bias: true,
            fused_gate_up: true,
            ..PLAIN
        },
    },
    Case {
        name: "cohere2",
        architecture: "cohere2",
        keys: &[
            ("logit_scale", F(0.25)),
            ("attention.sliding_window", U(6)),
            ("rope.freq_base", F(50_000.0)),
        ],
        parts: Parts {
            n_layers: 5,
            plain: false,
            tied: true,
            layer_norm: Some(false),
            second_norm: "attn_norm",
            ..CLASSIC
        },
    },
    Case {
        name: "seed_oss",
        architecture: "seed_oss",
        keys: &[("rope.freq_base", F(10_000_000.0))],
        parts: Parts {
            head_dim: 32,
            qkv_bias: true,
            second_norm: "post_attention_norm",
            ..PLAIN
        },
    },
    Case {
        name: "exaone",
        architecture: "exaone",
        keys: &[],
        parts: Parts {
            tied: true,
            divisors: &["rope_freqs.weight"],
            ..PLAIN
        },
    },
    Case {
        name: "exaone4",
        architecture: "exaone4",
        keys: &[("rope.freq_base", F(1_000_000.0))],
        parts: Parts {
            pre_norm: false,
            post_norm: true,
            qk_norm: QkNorm::Head,
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "exaone4_windows",
        architecture: "exaone4",
        keys: &[("attention.sliding_window", U(6))],
        parts: Parts {
            n_layers: 64,
            width: 32,
            n_heads: 2,
            n_kv_heads: 1,
            hidden: 32,
            pre_norm: false,
            post_norm: true,
            qk_norm: QkNorm::Head,
            ..PLAIN
        },
    },
    Case {
        name: "olmoe",
        architecture: "olmoe",
        keys: &[("expert_used_count", U(2))],
        parts: Parts {
            qk_norm: QkNorm::Row,
            n_kv_heads: 4,
            ..EXPERTS
        },
    },
    Case {
        name: "granitehybrid",
        architecture: "granitehybrid",
        keys: &[
            ("embedding_scale", F(6.0)),
            ("residual_scale", F(0.3)),
            ("attention.scale", F(0.2)),
            ("logit_scale", F(3.0)),
            ("rope.scaling.finetuned", B(false)),
            ("attention.head_count_kv", Us(&[0, 2, 0, 0])),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(1)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(128)),
            ("expert_used_count", U(3)),
            ("expert_shared_feed_forward_length", U(40)),
        ],
        parts: Parts {
            n_layers: 4,
            shared: 40,
            scans: (&[true, false, true, true], 4, 16),
            ..EXPERTS
        },
    },
    Case {
        name: "mamba2",
        architecture: "mamba2",
        keys: &[
            ("attention.head_count", U(0)),
            ("attention.head_count_kv", U(0)),
            ("feed_forward_length", U(0)),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(128)),
        ],
        parts: Parts {
            hidden: 0,
            tied: true,
            second_norm: "attn_norm",
            scans: (&[true; 3], 4, 16),
            ..PLAIN
        },
    },
    Case {
        name: "nemotron_h",
        architecture: "nemotron_h",
        keys: &[
            ("attention.layer_norm_epsilon", F(1e-5)),
            ("attention.head_count_kv", Us(&[0, 0, 2, 0, 0])),
            ("feed_forward_length", Us(&[0, 96, 0, 0, 96])),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(128)),
        ],
        parts: Parts {
            n_layers: 5,
            head_dim: 32,
            plain: true,
            other_bias: true,
            second_norm: "attn_norm",
            scans: (&[true, false, false, true, false], 4, 16),
            networks: &[false, true, false, false, true],
            ..PLAIN
        },
    },
    Case {
        name: "nemotron_h_moe",
        architecture: "nemotron_h_moe",
        keys: &[
            ("attention.layer_norm_epsilon", F(1e-5)),
            ("attention.head_count_kv", Us(&[0, 0, 2, 0])),
            ("feed_forward_length", Us(&[0, 48, 0, 48])),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(128)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_count", U(1)),
            ("expert_shared_feed_forward_length", U(80)),
            ("expert_group_count", U(1)),
            ("expert_weights_norm", B(true)),
            ("expert_weights_scale", F(2.5)),
        ],
        parts: Parts {
            n_layers: 4,
            head_dim: 32,
            plain: true,
            second_norm: "attn_norm",
            shared: 80,
            selection_bias: true,
            scans: (&[true], 4, 16),
            networks: &[false, true, false, true],
            ..EXPERTS
        },
    },
    Case {
        name: "nemotron_h_moe_latent",
        architecture: "nemotron_h_moe",
        keys: &[
            ("attention.layer_norm_epsilon", F(1e-5)),
            ("attention.head_count_kv", Us(&[0, 0, 2])),
            ("feed_forward_length", Us(&[0, 48, 0])),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(1)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(128)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_count", U(1)),
            ("expert_shared_feed_forward_length", U(80)),
            ("expert_weights_norm", B(false)),
            ("expert_weights_scale", F(1.25)),
            ("moe_latent_size", U(32)),
        ],
        parts: Parts {
            plain: true,
            second_norm: "attn_norm",
            shared: 80,
            selection_bias: true,
            scans: (&[true], 4, 16),
            networks: &[false, true, false],
            narrow_experts: 32,
            ..EXPERTS
        },
    },
    Case {
        name: "falcon_h1",
        architecture: "falcon-h1",
        keys: &[
            ("rope.freq_base", F(1e11)),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(128)),
        ],
        parts: Parts {
            head_dim: 32,
            scans: (&[true; 3], 4, 16),
            both: true,
            ..PLAIN
        },
    },
    Case {
        name: "lfm2",
        architecture: "lfm2",
        keys: &[
            ("shortconv.l_cache", U(3)),
            ("attention.head_count_kv", Us(&[0, 0, 2, 0, 2, 0])),
            ("rope.freq_base", F(1_000_000.0)),
        ],
        parts: Parts {
            n_layers: 6,
            tied: true,
            qk_norm: QkNorm::Head,
            convolves: &[true, true, false, true, false, true],
            ..PLAIN
        },
    },
    Case {
        name: "lfm2moe",
        architecture: "lfm2moe",
        keys: &[
            ("shortconv.l_cache", U(3)),
            ("attention.head_count_kv", Us(&[0, 0, 2, 0])),
            ("rope.freq_base", F(1_000_000.0)),
            ("feed_forward_length", U(80)),
            ("leading_dense_block_count", U(2)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_gating_func", U(2)),
        ],
        parts: Parts {
            n_layers: 4,
            tied: true,
            qk_norm: QkNorm::Head,
            convolves: &[true, true, false, true],
            selection_bias: true,
            ..EXPERTS
        },
    },
    Case {
        name: "qwen35",
        architecture: "qwen35",
        keys: &[
            ("rope.dimension_count", U(8)),
            ("rope.dimension_sections", Us(&[2, 1, 1, 0])),
            ("rope.freq_base", F(10_000_000.0)),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(32)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(6)),
            ("ssm.inner_size", U(192)),
            ("full_attention_interval", U(4)),
        ],
        parts: Parts {
            tied: true,
            delta_nets: Some(DeltaNets {
                n_keys: 2,
                n_values: 6,
                dim: 32,
                one_input: false,
                one_gate: false,
            }),
            ..DELTA
        },
    },
    Case {
        name: "qwen35moe",
        architecture: "qwen35moe",
        keys: &[
            ("rope.dimension_count", U(8)),
            ("rope.dimension_sections", Us(&[2, 1, 1, 0])),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(64)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_feed_forward_length", U(40)),
        ],
        parts: DELTA_EXPERTS,
    },
    Case {
        name: "qwen3next",
        architecture: "qwen3next",
        keys: &[
            ("rope.dimension_count", U(8)),
            ("ssm.conv_kernel", U(4)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(4)),
            ("ssm.inner_size", U(64)),
            ("expert_used_count", U(3)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_feed_forward_length", U(40)),
        ],
        parts: Parts {
            delta_nets: Some(DeltaNets {
                n_keys: 2,
                n_values: 4,
                dim: 16,
                one_input: false,
                one_gate: true,
            }),
            ..DELTA_EXPERTS
        },
    },
    Case {
        name: "qwen3next_first",
        architecture: "qwen3next",
        keys: &[
            ("rope.dimension_count", U(8)),
            ("ssm.conv_kernel", U(3)),
            ("ssm.state_size", U(16)),
            ("ssm.group_count", U(2)),
            ("ssm.time_step_rank", U(6)),
            ("ssm.inner_size", U(96)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(48)),
            ("expert_shared_feed_forward_length", U(40)),
        ],
        parts: Parts {
            delta_nets: Some(DeltaNets {
                n_keys: 2,
                n_values: 6,
                dim: 16,
                one_input: true,
                one_gate: true,
            }),
            ..DELTA_EXPERTS
        },
    },
];

/// Models that make vectors or scores of texts, beside [`CASES`], which make them, too.
pub(crate) const EMBEDDERS: &[Case] = &[
    Case {
        name: "eurobert",
        architecture: "eurobert",
        keys: &[
            ("attention.causal", B(false)),
            ("rope.freq_base", F(250_000.0)),
            ("rope.scaling.type", S("none")),
            ("pooling_type", U(3)),
        ],
        parts: Parts {
            tied: true,
            ..PLAIN
        },
    },
    Case {
        name: "gemma_embedding",
        architecture: "gemma-embedding",
        keys: &[
            ("attention.sliding_window", U(12)),
            ("rope.freq_base", F(1_000_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("pooling_type", U(1)),
        ],
        parts: Parts {
            n_layers: 7,
            post_norm: true,
            qk_norm: QkNorm::Head,
            ..GEMMA
        },
    },
    Case {
        name: "gemma_embedding_dense",
        architecture: "gemma-embedding",
        keys: &[
            ("attention.sliding_window", U(7)),
            (
                "attention.sliding_window_pattern",
                Bools(&[true, false, true]),
            ),
            ("rope.freq_base", F(1_000_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("pooling_type", U(1)),
            ("dense_2_feat_in", U(64)),
            ("dense_2_feat_out", U(160)),
            ("dense_3_feat_in", U(160)),
            ("dense_3_feat_out", U(64)),
        ],
        parts: Parts {
            post_norm: true,
            qk_norm: QkNorm::Head,
            dense: 160,
            ..GEMMA
        },
    },
    Case {
        name: "modern_bert",
        architecture: "modern-bert",
        keys: &[
            ("attention.causal", B(false)),
            ("attention.sliding_window", U(8)),
            ("attention.sliding_window_pattern", U(3)),
            ("rope.freq_base", F(160_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("rope.scaling.type", S("none")),
            ("pooling_type", U(2)),
        ],
        parts: MODERN_BERT,
    },
    Case {
        name: "modern_bert_silu",
        architecture: "modern-bert",
        keys: &[
            ("attention.causal", B(false)),
            ("attention.sliding_window", U(9)),
            (
                "attention.sliding_window_pattern",
                Bools(&[true, true, false, true, true]),
            ),
            ("rope.freq_base", F(80_000.0)),
            ("hidden_activation", S("silu")),
            ("pooling_type", U(1)),
        ],
        parts: MODERN_BERT,
    },
    Case {
        name: "modern_bert_rank",
        architecture: "modern-bert",
        keys: &[
            ("attention.causal", B(false)),
            ("attention.sliding_window", U(8)),
            ("rope.freq_base", F(160_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("pooling_type", U(4)),
        ],
        parts: Parts {
            scores: 1,
            deep_scores: true,
            ..MODERN_BERT
        },
    },
    Case {
        name: "modern_bert_rank_first",
        architecture: "modern-bert",
        keys: &[
            ("attention.causal", B(false)),
            ("attention.sliding_window", U(8)),
            ("rope.freq_base", F(160_000.0)),
            ("rope.freq_base_swa", F(10_000.0)),
            ("classifier.pooling_type", U(2)),
            ("pooling_type", U(4)),
        ],
        parts: Parts {
            scores: 1,
            deep_scores: true,
            ..MODERN_BERT
        },
    },
    Case {
        name: "llama_embed",
        architecture: "llama-embed",
        keys: &[
            ("attention.causal", B(false)),
            ("rope.freq_base", F(500_000.0)),
            ("pooling_type", U(1)),
        ],
        parts: Parts {
            divisors: &["rope_freqs.weight"],
            ..PLAIN
        },
    },
    Case {
        name: "qwen2_both_sides",
        architecture: "qwen2",
        keys: &[
            ("attention.causal", B(false)),
            ("rope.freq_base", F(1_000_000.0)),
            ("pooling_type", U(3)),
        ],
        parts: Parts {
            qkv_bias: true,
            ..PLAIN
        },
    },
    Case {
        name: "qwen3_rank",
        architecture: "qwen3",
        keys: &[
            ("pooling_type", U(4)),
            ("classifier.output_labels", Ss(&["yes", "no"])),
        ],
        parts: Parts {
            head_dim: 32,
            qk_norm: QkNorm::Head,
            tied: true,
            scores: 2,
            ..PLAIN
        },
    },
];

/// A model whose rows are long enough for every quantised type.
pub(crate) fn wide(dtype: TensorType) -> Case {
    Case {
        name: "wide",
        architecture: "llama",
        keys: &[("expert_used_count", U(2))],
        parts: Parts {
            n_layers: 2,
            width: 256,
            head_dim: 64,
            hidden: 256,
            n_experts: 3,
            dtype,
            ..PLAIN
        },
    }
}

/// A model with latent attention whose rows are long enough for types with blocks of 32.
pub(crate) fn wide_latent(dtype: TensorType) -> Case {
    let lite = CASES.iter().find(|case| case.name == "deepseek2_lite");
    let lite = lite.unwrap();
    Case {
        name: "wide_latent",
        keys: &[
            ("attention.head_count_kv", U(4)),
            ("attention.key_length", U(96)),
            ("attention.value_length", U(32)),
            ("attention.kv_lora_rank", U(64)),
            ("rope.dimension_count", U(32)),
            ("feed_forward_length", U(64)),
            ("leading_dense_block_count", U(1)),
            ("expert_used_count", U(2)),
            ("expert_feed_forward_length", U(32)),
            ("expert_shared_count", U(2)),
        ],
        parts: Parts {
            hidden: 32,
            shared: 64,
            latent: Some(Latent {
                query_rank: 0,
                rank: 64,
                rotated: 32,
                key: 64,
                value: 32,
                one_tensor: true,
            }),
            dtype,
            ..lite.parts
        },
        ..*lite
    }
}

impl Case {
    /// Makes the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.file().bytes()
    }

    /// Makes the parts of the file.
    pub(crate) fn file(&self) -> File {
        let tensors = self.tensors().into_iter().map(|(name, shape)| {
            let vector = shape.len() == 1 || name.contains("gate_inp") || name.ends_with("bias");
            let dtype = if vector {
                TensorType::F32
            } else {
                self.parts.dtype
            };
            let values = self.values(&name, &shape);
            FileTensor {
                bytes: encode(dtype, &values),
                name,
                shape,
                dtype,
            }
        });
        File {
            metadata: self.metadata(),
            tensors: tensors.collect(),
        }
    }

    /// Writes the file into `folder`.
    pub(crate) fn write(&self, folder: &std::path::Path) -> PathBuf {
        let path = folder.join(format!("{}.gguf", self.name));
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }

    /// Returns two prompts: one longer than all windows, one short.
    pub(crate) fn prompts(&self) -> [Vec<u32>; 2] {
        let mut random = Random::new(self.name);
        [40, 7].map(|n| (0..n).map(|_| random.next() as u32 % 90).collect())
    }

    fn metadata(&self) -> Metadata {
        let parts = &self.parts;
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", self.architecture);
        metadata.set("general.name", "tiny");
        let mut set = |key: &str, value: Key| {
            let key = format!("{}.{key}", self.architecture);
            match value {
                Key::U(value) => metadata.set(&key, value),
                Key::F(value) => metadata.set(&key, value),
                Key::S(value) => metadata.set(&key, value),
                Key::B(value) => metadata.set(&key, value),
                Key::Bools(value) => metadata.set(&key, value.to_vec()),
                Key::Us(value) => metadata.set(&key, value.to_vec()),
                Key::Ss(value) => metadata.set(&key, value.to_vec()),
            }
        };
        set("block_count", U(parts.n_layers as u32));
        set("context_length", U(512));
        set("embedding_length", U(parts.width as u32));
        set("feed_forward_length", U(parts.hidden as u32));
        set("attention.head_count", U(parts.n_heads as u32));
        set("attention.head_count_kv", U(parts.n_kv_heads as u32));
        if parts.layer_norm.is_some() {
            set("attention.layer_norm_epsilon", F(1e-5));
        } else {
            set("attention.layer_norm_rms_epsilon", F(1e-5));
        }
        if parts.head_dim * parts.n_heads != parts.width {
            set("attention.key_length", U(parts.head_dim as u32));
            set("attention.value_length", U(parts.head_dim as u32));
        }
        if parts.n_experts > 0 {
            set("expert_count", U(parts.n_experts as u32));
        }
        for (key, value) in self.keys {
            set(key, *value);
        }
        let letters = ('!'..='~').map(|letter| letter.to_string());
        let mut tokens: Vec<String> = letters.chain(["ab".into(), "<end>".into()]).collect();
        let mut kinds = vec![1i32; VOCAB];
        if !self.crossed().is_empty() {
            tokens.push("<image>".into());
            kinds.push(3);
        }
        kinds[VOCAB - 1] = 3;
        metadata.set("tokenizer.ggml.model", "gpt2");
        metadata.set("tokenizer.ggml.pre", "gpt-2");
        metadata.set("tokenizer.ggml.tokens", tokens);
        metadata.set("tokenizer.ggml.token_type", kinds);
        metadata.set("tokenizer.ggml.merges", vec!["a b".to_owned()]);
        metadata.set("tokenizer.ggml.eos_token_id", VOCAB as u32 - 1);
        metadata.set("tokenizer.ggml.add_bos_token", false);
        metadata
    }

    /// Returns a key that is a number of things.
    fn count(&self, key: &str) -> Option<usize> {
        let (_, value) = self.keys.iter().find(|(name, _)| *name == key)?;
        match value {
            U(count) => Some(*count as usize),
            _ => None,
        }
    }

    /// Returns a key that is a list.
    fn listed(&self, key: &str) -> Option<&'static [u32]> {
        let mut keys = self.keys.iter();
        match keys.find(|(name, _)| *name == key) {
            Some((_, Us(list))) => Some(list),
            _ => None,
        }
    }

    /// Returns the layers that look at an image.
    fn crossed(&self) -> &'static [u32] {
        let layers = self.listed("attention.cross_attention_layers");
        layers.unwrap_or_default()
    }

    /// Names and shapes, row length first.
    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let parts = &self.parts;
        let (width, hidden, vocab) = (parts.width, parts.hidden, VOCAB);
        let mut list: Vec<(String, Vec<usize>)> = Vec::new();
        let mut add = |name: &str, shape: &[usize]| list.push((name.to_owned(), shape.to_vec()));
        let crossed = self.crossed();
        let n_further = if crossed.is_empty() { 0 } else { 8 };
        add("token_embd.weight", &[width, vocab + n_further]);
        if !crossed.is_empty() {
            add("v.patch_embd.weight", &[14, 14, 3, width]);
            add("mm.0.weight", &[width, width]);
        }
        let has_bias = parts.layer_norm == Some(true);
        let convolves = !parts.convolves.is_empty();
        let last_norm = if convolves {
            "token_embd_norm"
        } else {
            "output_norm"
        };
        add(&format!("{last_norm}.weight"), &[width]);
        if has_bias {
            add("output_norm.bias", &[width]);
        }
        if parts.embedding_norm {
            add("token_embd_norm.weight", &[width]);
        }
        if parts.dense > 0 {
            add("dense_2.weight", &[width, parts.dense]);
            add("dense_3.weight", &[parts.dense, width]);
        }
        if parts.scores > 0 {
            add("cls.output.weight", &[width, parts.scores]);
        }
        if parts.deep_scores {
            add("cls.output.bias", &[parts.scores]);
            add("cls.weight", &[width, width]);
            add("cls.norm.weight", &[width]);
        }
        if parts.positions > 0 {
            add("position_embd.weight", &[width, parts.positions]);
        }
        if !parts.tied {
            add("output.weight", &[width, vocab]);
            if parts.output_bias {
                add("output.bias", &[vocab]);
            }
        }
        for name in parts.divisors {
            let n_rotated = self
                .keys
                .iter()
                .find(|(key, _)| *key == "rope.dimension_count");
            let n_rotated = match n_rotated {
                Some((_, U(n))) => *n as usize,
                _ => parts.head_dim,
            };
            add(name, &[n_rotated / 2]);
        }
        if parts.per_layer > 0 {
            let all = parts.per_layer * parts.n_layers;
            add("per_layer_token_embd.weight", &[all, vocab]);
            add("per_layer_model_proj.weight", &[width, all]);
            add("per_layer_proj_norm.weight", &[parts.per_layer]);
        }
        if parts.streams > 0 {
            add("altup_proj.weight", &[width, width, 3]);
            add("altup_unembd_proj.weight", &[width, width, 3]);
        }
        for layer in 0..parts.n_layers {
            let is_local = parts.local.0 > 0 && layer % 2 == 0;
            let (head_dim, n_kv_heads) = if is_local {
                parts.local
            } else {
                (parts.head_dim, parts.n_kv_heads)
            };
            let of_layer = |key: &str, usual| match self.listed(key) {
                Some(list) if parts.pruned => list[layer] as usize,
                _ => usual,
            };
            let n_heads = of_layer("attention.head_count", parts.n_heads);
            let n_kv_heads = of_layer("attention.head_count_kv", n_kv_heads);
            let hidden = of_layer("feed_forward_length", hidden);
            let (query, kv) = (n_heads * head_dim, n_kv_heads * head_dim);
            let shares = layer + parts.n_shared >= parts.n_layers;
            // Those of Gemma 3n have what makes keys and values, though nobody reads it.
            let lacks_kv = parts.n_shared > 0 && shares && parts.streams == 0;
            let hidden = if shares && parts.wide_shared {
                2 * hidden
            } else {
                hidden
            };
            let mut add = |name: &str, shape: &[usize]| add(&format!("blk.{layer}.{name}"), shape);
            if parts.pre_norm {
                let mut names = vec!["attn_norm", parts.first_norm, parts.second_norm];
                names.sort_unstable();
                names.dedup();
                for name in names {
                    if name == "attn_norm" && layer == 0 && parts.embedding_norm {
                        continue;
                    }
                    let n_of_part = if name == "attn_norm" { n_heads } else { hidden };
                    if parts.pruned && n_of_part == 0 {
                        continue;
                    }
                    let ending = match name {
                        "ffn_norm" if parts.both => "",
                        _ => ".weight",
                    };
                    add(&format!("{name}{ending}"), &[width]);
                    if has_bias {
                        add(&format!("{name}.bias"), &[width]);
                    }
                }
            }
            if parts.sinks {
                add("attn_sinks.weight", &[parts.n_heads]);
            }
            if parts.per_layer > 0 {
                add("inp_gate.weight", &[width, parts.per_layer]);
                add("proj.weight", &[parts.per_layer, width]);
                add("post_norm.weight", &[width]);
            }
            if parts.streams > 0 {
                let (n, rank) = (4, parts.streams);
                add("altup_router.weight", &[width, n]);
                add("altup_router_norm.weight", &[width]);
                add("altup_predict_coef.weight", &[n, n * n]);
                add("altup_correct_coef.weight", &[n, n]);
                add("altup_correct_scale.weight", &[width]);
                add("laurel_l.weight", &[width, rank]);
                add("laurel_r.weight", &[rank, width]);
                add("laurel_post_norm.weight", &[width]);
            }
            if parts.layer_scale {
                add("layer_output_scale.weight", &[1]);
            }
            if parts.post_norm {
                add("post_attention_norm.weight", &[width]);
                add("post_ffw_norm.weight", &[width]);
            }
            let taps = self
                .count("ssm.conv_kernel")
                .or(self.count("shortconv.l_cache"));
            let is_network = parts.networks.get(layer) == Some(&true);
            let scans = parts.scans.0.get(layer) == Some(&true);
            let convolves = parts.convolves.get(layer) == Some(&true);
            let has_net = parts.delta_nets.filter(|_| (layer + 1) % 4 != 0);
            if let Some(net) = has_net {
                let taps = taps.unwrap();
                let (keys, values) = (net.n_keys * net.dim, net.n_values * net.dim);
                if net.one_input {
                    add("ssm_in.weight", &[width, 2 * keys + 2 * values]);
                } else {
                    add("attn_qkv.weight", &[width, 2 * keys + values]);
                    add("attn_gate.weight", &[width, values]);
                }
                if net.one_gate {
                    add("ssm_ba.weight", &[width, 2 * net.n_values]);
                } else {
                    add("ssm_beta.weight", &[width, net.n_values]);
                    add("ssm_alpha.weight", &[width, net.n_values]);
                }
                add("ssm_conv1d.weight", &[taps, 2 * keys + values]);
                add("ssm_dt.bias", &[net.n_values]);
                add("ssm_a", &[net.n_values]);
                add("ssm_norm.weight", &[net.dim]);
                add("ssm_out.weight", &[values, width]);
            }
            if scans {
                let (_, n_heads, n_kept) = parts.scans;
                let groups = self.count("ssm.group_count").unwrap();
                let (inner, conv) = (2 * width, 2 * width + 2 * groups * n_kept);
                add("ssm_in.weight", &[width, inner + conv + n_heads]);
                add("ssm_conv1d.weight", &[taps.unwrap(), conv]);
                add("ssm_conv1d.bias", &[conv]);
                add("ssm_dt.bias", &[n_heads]);
                add("ssm_a", &[1, n_heads]);
                add("ssm_d", &[1, n_heads]);
                add("ssm_norm.weight", &[inner / groups, groups]);
                add("ssm_out.weight", &[inner, width]);
            }
            if let Some(latent) = parts.latent {
                let n = parts.n_heads;
                let (query, both) = (latent.key + latent.rotated, latent.key + latent.value);
                if latent.query_rank > 0 {
                    add("attn_q_a.weight", &[width, latent.query_rank]);
                    add("attn_q_a_norm.weight", &[latent.query_rank]);
                    add("attn_q_b.weight", &[latent.query_rank, n * query]);
                } else {
                    add("attn_q.weight", &[width, n * query]);
                }
                let stored = latent.rank + latent.rotated;
                add("attn_kv_a_mqa.weight", &[width, stored]);
                add("attn_kv_a_norm.weight", &[latent.rank]);
                if latent.one_tensor {
                    add("attn_kv_b.weight", &[latent.rank, n * both]);
                } else {
                    add("attn_k_b.weight", &[latent.key, latent.rank, n]);
                    add("attn_v_b.weight", &[latent.rank, latent.value, n]);
                }
                add("attn_output.weight", &[n * latent.value, width]);
                let (heads, dim) = parts.indexer;
                if heads > 0 {
                    add("indexer.k_norm.weight", &[dim]);
                    add("indexer.k_norm.bias", &[dim]);
                    add("indexer.proj.weight", &[width, heads]);
                    add("indexer.attn_k.weight", &[width, dim]);
                    add("indexer.attn_q_b.weight", &[latent.query_rank, heads * dim]);
                }
            }
            if convolves {
                add("shortconv.in_proj.weight", &[width, 3 * width]);
                add("shortconv.conv.weight", &[taps.unwrap(), width]);
                add("shortconv.out_proj.weight", &[width, width]);
            }
            let is_crossed = crossed.contains(&(layer as u32));
            if is_crossed {
                for (name, shape) in [
                    ("cross_attn_q_proj.weight", &[width, query][..]),
                    ("cross_attn_k_proj.weight", &[width, kv]),
                    ("cross_attn_v_proj.weight", &[width, kv]),
                    ("cross_attn_o_proj.weight", &[query, width]),
                    ("cross_attn_q_norm.weight", &[head_dim]),
                    ("cross_attn_k_norm.weight", &[head_dim]),
                    ("cross_attn_attn_gate", &[1]),
                    ("cross_attn_mlp_gate", &[1]),
                ] {
                    add(name, shape);
                }
            }
            let something_else = n_heads == 0
                || is_crossed
                || is_network
                || has_net.is_some()
                || scans
                || convolves
                || parts.latent.is_some();
            if parts.both || !something_else {
                if parts.fused_qkv {
                    add("attn_qkv.weight", &[width, query + 2 * kv]);
                    if parts.qkv_bias {
                        add("attn_qkv.bias", &[query + 2 * kv]);
                    }
                } else {
                    for (name, rows) in [
                        (
                            "attn_q",
                            if parts.delta_nets.is_some() {
                                2 * query
                            } else {
                                query
                            },
                        ),
                        ("attn_k", kv),
                        ("attn_v", kv),
                    ] {
                        let values = name == "attn_v" && parts.values_are_keys && !is_local;
                        if values || lacks_kv && name != "attn_q" {
                            continue;
                        }
                        add(&format!("{name}.weight"), &[width, rows]);
                        if parts.qkv_bias {
                            add(&format!("{name}.bias"), &[rows]);
                        }
                    }
                }
                match parts.qk_norm {
                    QkNorm::None => {}
                    QkNorm::Head => {
                        add("attn_q_norm.weight", &[head_dim]);
                        if !lacks_kv {
                            add("attn_k_norm.weight", &[head_dim]);
                        }
                    }
                    QkNorm::Row => {
                        add("attn_q_norm.weight", &[query]);
                        add("attn_k_norm.weight", &[kv]);
                    }
                }
                if parts.sub_norms {
                    add("attn_sub_norm.weight", &[query]);
                    add("ffn_sub_norm.weight", &[hidden]);
                }
                add("attn_output.weight", &[query, width]);
                if parts.other_bias {
                    add("attn_output.bias", &[width]);
                }
            }
            if hidden == 0 || !(parts.networks.is_empty() || is_network) {
                continue;
            }
            let n_dense = self.count("leading_dense_block_count").unwrap_or(0);
            let step = self.count("interleave_moe_layer_step").unwrap_or(1);
            let is_dense = layer < n_dense || !(layer + 1).is_multiple_of(step);
            if parts.n_experts > 0 && !is_dense {
                let n = parts.n_experts;
                if parts.selection_bias {
                    add("exp_probs_b.bias", &[n]);
                }
                add("ffn_gate_inp.weight", &[width, n]);
                let outer = match parts.narrow_experts {
                    0 => width,
                    narrow => {
                        add("ffn_latent_down.weight", &[width, narrow]);
                        add("ffn_latent_up.weight", &[narrow, width]);
                        narrow
                    }
                };
                if parts.fused_experts {
                    add("ffn_gate_up_exps.weight", &[width, 2 * hidden, n]);
                } else {
                    if !parts.plain {
                        add("ffn_gate_exps.weight", &[outer, hidden, n]);
                    }
                    add("ffn_up_exps.weight", &[outer, hidden, n]);
                }
                add("ffn_down_exps.weight", &[hidden, outer, n]);
                if parts.expert_bias {
                    add("ffn_gate_inp.bias", &[n]);
                    add("ffn_gate_exps.bias", &[hidden, n]);
                    add("ffn_up_exps.bias", &[hidden, n]);
                    add("ffn_down_exps.bias", &[width, n]);
                }
                if parts.beside > 0 {
                    add("ffn_gate.weight", &[width, parts.beside]);
                    add("ffn_up.weight", &[width, parts.beside]);
                    add("ffn_down.weight", &[parts.beside, width]);
                    add("ffn_gate_inp.scale", &[width]);
                    add("ffn_down_exps.scale", &[n]);
                    for name in ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
                        add(&format!("{name}.weight"), &[width]);
                    }
                }
                if parts.early_experts {
                    add("ffn_norm_exps.weight", &[width]);
                    for name in ["ffn_gate", "ffn_up", "ffn_down"] {
                        add(&format!("{name}.weight"), &[width, width]);
                    }
                }
                if parts.shared > 0 {
                    if !parts.plain {
                        add("ffn_gate_shexp.weight", &[width, parts.shared]);
                    }
                    add("ffn_up_shexp.weight", &[width, parts.shared]);
                    add("ffn_down_shexp.weight", &[parts.shared, width]);
                }
                if parts.shared_gate {
                    add("ffn_gate_inp_shexp.weight", &[width]);
                }
            } else if parts.fused_gate_up {
                add("ffn_up.weight", &[width, 2 * hidden]);
                add("ffn_down.weight", &[hidden, width]);
            } else {
                let hidden = match self.count("feed_forward_length") {
                    Some(dense) if parts.n_experts > 0 => dense,
                    _ => hidden,
                };
                for (name, shape) in [
                    ("ffn_gate", [width, if parts.plain { 0 } else { hidden }]),
                    ("ffn_up", [width, hidden]),
                    ("ffn_down", [hidden, width]),
                ] {
                    if shape[1] == 0 {
                        continue;
                    }
                    add(&format!("{name}.weight"), &shape);
                    if parts.other_bias {
                        add(&format!("{name}.bias"), &shape[1..]);
                    }
                }
            }
        }
        if parts.scales {
            let scales = list.iter().filter_map(|(name, shape)| {
                let stem = name.strip_suffix(".weight")?;
                let is_matrix = name.starts_with("blk.") && !name.contains("gate_inp");
                match shape[..] {
                    [_, _] if is_matrix => Some((format!("{stem}.scale"), vec![1])),
                    [_, _, n] => Some((format!("{stem}.scale"), vec![n])),
                    _ => None,
                }
            });
            let scales: Vec<_> = scales.collect();
            list.extend(scales);
        }
        let as_u64 = |(name, shape): (String, Vec<usize>)| {
            (name, shape.into_iter().map(|dim| dim as u64).collect())
        };
        list.into_iter().map(as_u64).collect()
    }

    /// Random values of a size that keeps activations near one.
    fn values(&self, name: &str, shape: &[u64]) -> Vec<f32> {
        let mut random = Random::new(&format!("{} {name}", self.name));
        let len: u64 = shape.iter().product();
        let (middle, spread) = match name {
            "token_embd.weight" => (0.0, 1.0),
            name if name.starts_with("rope_") => (3.0, 2.0),
            // So many layers would make roundings large.
            name if self.parts.streams > 0
                && (name.contains("post_") || name.contains("attn_q_")) =>
            {
                (0.2, 0.15)
            }
            // Numbers of streams between -1 and 1, and streams that stay of one size.
            name if name.contains("altup_router.") => (0.0, 3.0),
            name if name.contains("altup_predict") => (0.0, 0.3),
            name if name.ends_with("ssm_a") => (-0.9, 0.8),
            name if name.ends_with("norm.bias") => (0.0, 0.3),
            name if name.contains("norm") || name.contains("scale") => (1.0, 0.4),
            name if name.contains("sinks") => (0.0, 2.0),
            name if name.ends_with("bias") => (0.0, 0.3),
            // Scores that differ, so that attention is not a plain average.
            name if name.contains("attn_q.") || name.contains("attn_k.") => {
                (0.0, 4.0 / (shape[0] as f32).sqrt())
            }
            _ => (0.0, 1.7 / (shape[0] as f32).sqrt()),
        };
        (0..len).map(|_| middle + spread * random.unit()).collect()
    }
}

/// Packs values; types that nothing packs get random blocks of about the same size.
pub(crate) fn encode(dtype: TensorType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() / dtype.block_len() * dtype.block_bytes()];
    if llmsrv_kernels::quantize(dtype, values, &mut bytes).is_err() {
        let mut random = Random::new(dtype.name());
        bytes.fill_with(|| random.next() as u8);
        let scales = BLOCK_SCALES.iter().find(|row| row.0 == dtype);
        let scales = scales.map_or(&[][..], |row| row.1);
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            match dtype {
                // Its scale is a power of two: 2^(byte - 127).
                TensorType::MXFP4 => block[0] = 122,
                // From 1/32 to 1/16: three bits of mantissa stay random.
                TensorType::NVFP4 => block[..4].iter_mut().for_each(|d| *d = *d & 7 | 2 << 3),
                // Four bits of a half-precision number in each of four words.
                TensorType::IQ1_M => {
                    for (at, four_bits) in [(51, 0), (53, 4), (55, 2)] {
                        block[at] = block[at] & 15 | four_bits << 4;
                    }
                }
                TensorType::Q8_K => block[..4].copy_from_slice(&1.4e-3_f32.to_le_bytes()),
                _ => {}
            }
            for (at, scale) in scales {
                // A half-precision number whose lower bits stay random.
                let [low, high] = half::f16::from_f32(*scale).to_le_bytes();
                (block[*at], block[at + 1]) = (low ^ (block[*at] & 0x1f), high);
            }
        }
    }
    bytes
}

/// Where the scales of a block lie (offset in bytes), and what makes weights of about 0.1.
const BLOCK_SCALES: [(TensorType, &[(usize, f32)]); 17] = [
    (TensorType::Q2_K, &[(80, 4e-3), (82, 6e-3)]),
    (TensorType::Q3_K, &[(108, 1e-3)]),
    (TensorType::Q4_K, &[(0, 2e-4), (2, 1.5e-3)]),
    (TensorType::Q5_K, &[(0, 1e-4), (2, 1.5e-3)]),
    (TensorType::Q6_K, &[(208, 3e-5)]),
    (TensorType::IQ4_NL, &[(0, 1e-3)]),
    (TensorType::IQ4_XS, &[(0, 4e-5)]),
    (TensorType::IQ1_S, &[(0, 1.5e-2)]),
    (TensorType::IQ2_XXS, &[(0, 2e-3)]),
    (TensorType::IQ2_XS, &[(0, 2e-3)]),
    (TensorType::IQ2_S, &[(0, 2e-3)]),
    (TensorType::IQ3_XXS, &[(0, 8e-4)]),
    (TensorType::IQ3_S, &[(0, 7e-4)]),
    (TensorType::TQ1_0, &[(52, 0.1)]),
    (TensorType::TQ2_0, &[(64, 0.08)]),
    (TensorType::Q1_0, &[(0, 0.1)]),
    (TensorType::Q2_0, &[(0, 0.08)]),
];

/// A xorshift generator: <https://www.jstatsoft.org/article/view/v008i14>.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: &str) -> Random {
        Random(fingerprint(seed.as_bytes()) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    /// Returns a number from -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() % (1 << 24)) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// FNV-1a of 64 bits.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Makes a plan for one sequence.
pub(crate) fn plan(tokens: &[u32], start: usize, blocks: &[BlockId], all_logits: bool) -> StepPlan {
    let rows = tokens.len() as u32;
    StepPlan {
        tokens: tokens.to_vec(),
        positions: (start as u32..).take(tokens.len()).collect(),
        ends: (start as u32 + 1..).take(tokens.len()).collect(),
        coordinates: Vec::new(),
        images: Vec::new(),
        spans: vec![Span {
            rows: 0..tokens.len(),
            start: start as u32,
            blocks: blocks.to_vec(),
            tail: None,
            state: None,
        }],
        logit_rows: if all_logits {
            (0..rows).collect()
        } else {
            vec![rows - 1]
        },
    }
}

/// Gives the first sequence of a plan a recurrent state, if the model keeps one.
pub(crate) fn with_state(model: &mut dyn Model, mut plan: StepPlan) -> StepPlan {
    if model.spec().state_bytes > 0 {
        model.reserve_states(1).unwrap();
        plan.spans[0].state = Some(SpanState::new(StateId(0)));
    }
    plan
}

/// Computes the logits of all positions of a prompt in one step.
pub(crate) fn all_logits(model: &mut dyn Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let spec = model.spec().clone();
    let n_blocks = tokens.len().div_ceil(spec.block_size);
    model.reserve_blocks(n_blocks).unwrap();
    let blocks: Vec<BlockId> = (0..n_blocks as u32).map(BlockId).collect();
    let mut logits = vec![0.0; tokens.len() * spec.vocab_size];
    let plan = with_state(model, plan(tokens, 0, &blocks, true));
    model.forward(&plan, &mut logits).unwrap();
    logits
        .chunks(spec.vocab_size)
        .map(<[f32]>::to_vec)
        .collect()
}

/// The largest difference of two rows, relative to the largest value of the second.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1e-6, |max: f32, x| max.max(x.abs()));
    let worst = found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |max: f32, x| {
            if x.is_nan() {
                f32::INFINITY
            } else {
                max.max(x)
            }
        });
    worst / largest
}

/// Index of the largest value.
pub(crate) fn argmax(row: &[f32]) -> usize {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.unwrap().0
}
