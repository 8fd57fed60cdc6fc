//! Tiny encoders with random weights, one or more for each architecture, made from a table.

use llmsrv_gguf::{Metadata, TensorType};

use crate::tiny::{File, FileTensor, Random, VOCAB, encode};

/// A tiny encoder.
#[derive(Clone, Copy)]
pub(crate) struct EncoderCase {
    /// Name of the test and of the file with the expected vectors.
    pub(crate) name: &'static str,
    /// `general.architecture`.
    pub(crate) architecture: &'static str,
    /// `tokenizer.ggml.model`.
    pub(crate) tokenizer: &'static str,
    /// The number of `pooling_type`; 0 = not in the file.
    pub(crate) pooling: u32,
    pub(crate) n_heads: usize,
    pub(crate) n_types: usize,
    pub(crate) fused_qkv: bool,
    /// Of all products.
    pub(crate) bias: bool,
    pub(crate) qk_norm: bool,
    pub(crate) second_norm: bool,
    pub(crate) network: Shape,
    /// Scores of the head and whether it has a hidden layer.
    pub(crate) head: Option<(usize, bool)>,
    pub(crate) dtype: TensorType,
}

/// The feed-forward part.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Plain,
    GatedMlp,
    /// Gate and up are one tensor.
    FusedGate,
    /// Six experts in layers 1 and 3, two for each row.
    Experts,
}

const BERT: EncoderCase = EncoderCase {
    name: "bert",
    architecture: "bert",
    tokenizer: "bert",
    pooling: 1,
    n_heads: 4,
    n_types: 2,
    fused_qkv: false,
    bias: true,
    qk_norm: false,
    second_norm: false,
    network: Shape::Plain,
    head: None,
    dtype: TensorType::F32,
};

const XLM_ROBERTA: EncoderCase = EncoderCase {
    name: "xlm_roberta",
    tokenizer: "t5",
    pooling: 2,
    n_types: 1,
    ..BERT
};

const NOMIC: EncoderCase = EncoderCase {
    name: "nomic_bert",
    architecture: "nomic-bert",
    fused_qkv: true,
    bias: false,
    network: Shape::GatedMlp,
    ..BERT
};

const JINA: EncoderCase = EncoderCase {
    name: "jina_bert_v2",
    architecture: "jina-bert-v2",
    network: Shape::FusedGate,
    ..BERT
};

/// The tiny encoders that are compared with another program.
pub(crate) const ENCODERS: &[EncoderCase] = &[
    BERT,
    EncoderCase {
        name: "bert_last",
        pooling: 3,
        fused_qkv: true,
        ..BERT
    },
    EncoderCase {
        name: "bert_f16",
        dtype: TensorType::F16,
        ..BERT
    },
    XLM_ROBERTA,
    EncoderCase {
        name: "xlm_roberta_rank",
        pooling: 4,
        head: Some((1, true)),
        ..XLM_ROBERTA
    },
    EncoderCase {
        name: "xlm_roberta_rank_plain",
        pooling: 4,
        head: Some((3, false)),
        ..XLM_ROBERTA
    },
    NOMIC,
    EncoderCase {
        name: "nomic_bert_moe",
        architecture: "nomic-bert-moe",
        tokenizer: "t5",
        n_types: 1,
        bias: true,
        network: Shape::Experts,
        ..NOMIC
    },
    JINA,
    EncoderCase {
        name: "jina_bert_v3",
        architecture: "jina-bert-v3",
        tokenizer: "t5",
        n_types: 1,
        fused_qkv: true,
        ..BERT
    },
    EncoderCase {
        name: "jina_bert_v2_code",
        n_heads: 8,
        qk_norm: true,
        second_norm: true,
        network: Shape::GatedMlp,
        ..JINA
    },
];

const WIDTH: usize = 64;
const HIDDEN: usize = 96;
const CONTEXT: usize = 128;
const LAYERS: usize = 4;
const EXPERTS: usize = 6;
/// Of adapters.
const RANK: u64 = 3;

impl EncoderCase {
    /// Makes the parts of the file.
    pub(crate) fn file(&self) -> File {
        let tensors = self.tensors().into_iter().map(|(name, shape)| {
            let vector = shape.len() == 1
                || ["gate_inp", "position", "token_types"]
                    .iter()
                    .any(|part| name.contains(part));
            let dtype = if vector { TensorType::F32 } else { self.dtype };
            let values = self.values(&name, &shape);
            FileTensor {
                bytes: encode(dtype, &values),
                name,
                shape,
                dtype,
            }
        });
        File {
            tensors: tensors.collect(),
            metadata: self.metadata(),
        }
    }

    /// Makes an adapter for one task, of the matrices and of the rows of tokens.
    pub(crate) fn adapter(&self) -> File {
        let mut metadata = Metadata::new();
        metadata.set("general.type", "adapter");
        metadata.set("general.architecture", self.architecture);
        metadata.set("adapter.type", "lora");
        metadata.set("adapter.lora.alpha", 6.0f32);
        let mut tensors = Vec::new();
        for (name, shape) in self.tensors() {
            let [n_cols, n_rows] = shape[..] else {
                continue;
            };
            let (down, up) = match name.as_str() {
                "token_types.weight" => continue,
                // The other way round: a row for each token comes first.
                "token_embd.weight" => (RANK, n_cols),
                _ => (n_cols, n_rows),
            };
            let of_rows = if name == "token_embd.weight" {
                n_rows
            } else {
                RANK
            };
            for (part, shape) in [("a", [down, of_rows]), ("b", [RANK, up])] {
                let name = format!("{name}.lora_{part}");
                let values = self.values(&name, &shape);
                tensors.push(FileTensor {
                    bytes: encode(TensorType::F32, &values),
                    name,
                    shape: shape.to_vec(),
                    dtype: TensorType::F32,
                });
            }
        }
        File { metadata, tensors }
    }

    /// Returns inputs of several lengths, one as long as a batch of steps is not.
    pub(crate) fn inputs(&self) -> Vec<Vec<u32>> {
        let mut random = Random::new(self.name);
        [40, 7, 1, 90]
            .iter()
            .map(|n| (0..*n).map(|_| random.next() as u32 % 90).collect())
            .collect()
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", self.architecture);
        metadata.set("general.name", "tiny");
        let key = |key: &str| format!("{}.{key}", self.architecture);
        metadata.set(key("block_count"), LAYERS as u32);
        metadata.set(key("context_length"), CONTEXT as u32);
        metadata.set(key("embedding_length"), WIDTH as u32);
        metadata.set(key("feed_forward_length"), HIDDEN as u32);
        metadata.set(key("attention.head_count"), self.n_heads as u32);
        metadata.set(key("attention.layer_norm_epsilon"), 1e-5f32);
        metadata.set(key("attention.causal"), false);
        if self.architecture.starts_with("nomic") || self.architecture == "jina-bert-v3" {
            metadata.set(key("rope.freq_base"), 1000.0f32);
        }
        if self.network == Shape::Experts {
            metadata.set(key("moe_every_n_layers"), 2u32);
            metadata.set(key("expert_count"), EXPERTS as u32);
            metadata.set(key("expert_used_count"), 2u32);
        }
        if let Some((n, _)) = self.head {
            let labels: Vec<String> = (0..n).map(|label| format!("label {label}")).collect();
            metadata.set(key("classifier.output_labels"), labels);
        }
        if self.pooling > 0 {
            metadata.set(key("pooling_type"), self.pooling);
        }
        let letters = ('!'..='~').map(|letter| letter.to_string());
        let mut tokens: Vec<String> = letters.collect();
        let mut kinds = vec![1i32; VOCAB];
        metadata.set("tokenizer.ggml.model", self.tokenizer);
        metadata.set("tokenizer.ggml.token_type_count", self.n_types as u32);
        let specials = if self.tokenizer == "bert" {
            tokens = tokens
                .iter()
                .map(|token| format!("\u{2581}{token}"))
                .collect();
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        } else {
            ["<pad>", "<unk>", "<s>", "</s>"]
        };
        for (id, special) in specials.into_iter().enumerate() {
            tokens[id] = special.into();
            kinds[id] = if id == 1 { 2 } else { 3 };
        }
        tokens.extend(["\u{2581}".into(), "ab".into()]);
        metadata.set("tokenizer.ggml.tokens", tokens);
        metadata.set("tokenizer.ggml.token_type", kinds);
        metadata.set("tokenizer.ggml.scores", vec![-1.0f32; VOCAB]);
        let ids = [
            ("padding", 0u32),
            ("unknown", 1),
            ("bos", 2),
            ("cls", 2),
            ("eos", 3),
            ("seperator", 3),
        ];
        for (role, id) in ids {
            metadata.set(format!("tokenizer.ggml.{role}_token_id"), id);
        }
        metadata.set("tokenizer.ggml.add_bos_token", true);
        metadata.set("tokenizer.ggml.add_eos_token", true);
        metadata
    }

    /// Names and shapes, row length first.
    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        let mut list: Vec<(String, Vec<usize>)> = Vec::new();
        let mut add = |name: String, shape: &[usize]| list.push((name, shape.to_vec()));
        add("token_embd.weight".into(), &[WIDTH, VOCAB]);
        add("token_types.weight".into(), &[WIDTH, self.n_types]);
        if self.architecture == "bert" {
            add("position_embd.weight".into(), &[WIDTH, CONTEXT]);
        }
        add("token_embd_norm.weight".into(), &[WIDTH]);
        add("token_embd_norm.bias".into(), &[WIDTH]);
        match self.head {
            Some((n, true)) => {
                add("cls.weight".into(), &[WIDTH, WIDTH]);
                add("cls.bias".into(), &[WIDTH]);
                add("cls.output.weight".into(), &[WIDTH, n]);
                add("cls.output.bias".into(), &[n]);
            }
            Some((n, false)) => {
                add("cls.output.weight".into(), &[WIDTH, n]);
                add("cls.output.bias".into(), &[n]);
            }
            None => {}
        }
        for layer in 0..LAYERS {
            let mut add = |name: &str, shape: &[usize]| add(format!("blk.{layer}.{name}"), shape);
            let mut linear = |name: &str, shape: [usize; 2], bias: bool| {
                add(&format!("{name}.weight"), &shape);
                if bias {
                    add(&format!("{name}.bias"), &shape[1..]);
                }
            };
            if self.fused_qkv {
                linear("attn_qkv", [WIDTH, 3 * WIDTH], self.bias);
            } else {
                for name in ["attn_q", "attn_k", "attn_v"] {
                    linear(name, [WIDTH, WIDTH], self.bias);
                }
            }
            linear("attn_output", [WIDTH, WIDTH], self.bias);
            match self.network {
                Shape::Experts if layer % 2 == 1 => {}
                Shape::Plain | Shape::Experts => {
                    linear("ffn_up", [WIDTH, HIDDEN], self.bias);
                    linear("ffn_down", [HIDDEN, WIDTH], self.bias);
                }
                Shape::GatedMlp => {
                    linear("ffn_gate", [WIDTH, HIDDEN], false);
                    linear("ffn_up", [WIDTH, HIDDEN], false);
                    linear("ffn_down", [HIDDEN, WIDTH], self.bias);
                }
                Shape::FusedGate => {
                    linear("ffn_up", [WIDTH, 2 * HIDDEN], false);
                    linear("ffn_down", [HIDDEN, WIDTH], self.bias);
                }
            }
            if self.network == Shape::Experts && layer % 2 == 1 {
                add("ffn_gate_inp.weight", &[WIDTH, EXPERTS]);
                add("ffn_up_exps.weight", &[WIDTH, HIDDEN, EXPERTS]);
                add("ffn_down_exps.weight", &[HIDDEN, WIDTH, EXPERTS]);
            }
            let mut norms = vec!["attn_output_norm", "layer_output_norm"];
            if self.qk_norm {
                norms.extend(["attn_q_norm", "attn_k_norm"]);
            }
            if self.second_norm {
                norms.push("attn_norm_2");
            }
            for name in norms {
                add(&format!("{name}.weight"), &[WIDTH]);
                add(&format!("{name}.bias"), &[WIDTH]);
            }
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
            name if name.ends_with("lora_b") => (0.0, 0.3),
            "token_types.weight" | "position_embd.weight" => (0.0, 0.5),
            name if name.contains("norm") && name.ends_with("weight") => (1.0, 0.4),
            name if name.ends_with("bias") => (0.0, 0.3),
            // Scores that differ, so that attention is not a plain average.
            name if name.contains("attn_q.") || name.contains("attn_k.") => {
                (0.0, 3.0 / (shape[0] as f32).sqrt())
            }
            _ => (0.0, 1.7 / (shape[0] as f32).sqrt()),
        };
        (0..len).map(|_| middle + spread * random.unit()).collect()
    }
}
