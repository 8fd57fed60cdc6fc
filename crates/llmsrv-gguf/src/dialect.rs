//! Model files of the public library call some architectures, keys and tensors by names of their own.
//!
//! [`Header::translate`] gives them the names that everything else is written for: one table, applied
//! when a model is loaded. Commands that show or copy a file see it as it is.

use std::collections::HashSet;

use crate::{Array, Header, Metadata, Value};

/// One dialect.
struct Dialect {
    /// `general.architecture` of the file.
    written: &'static str,
    /// A tensor that says which files of that architecture speak it; `None` = all.
    marker: Option<&'static str>,
    /// What it is read as.
    read: &'static str,
    /// Keys behind the architecture, and their usual names.
    keys: &'static [(&'static str, &'static str)],
    /// Keys behind the architecture that the files leave out, and what they mean by that.
    implied: &'static [(&'static str, Implied)],
    /// Tensors of a block, and their usual names.
    tensors: &'static [(&'static str, &'static str)],
    /// Tensors outside of blocks, and their usual names.
    globals: &'static [(&'static str, &'static str)],
    /// `tokenizer.ggml.pre`, which the files leave out.
    pre: Option<&'static str>,
}

/// The value of a key that is not there.
enum Implied {
    Text(&'static str),
    Same(&'static str),
}

const PLAIN: Dialect = renamed("", "");

/// One in which the architecture alone has another name.
const fn renamed(written: &'static str, read: &'static str) -> Dialect {
    Dialect {
        written,
        marker: None,
        read,
        keys: &[],
        implied: &[],
        tensors: &[],
        globals: &[],
        pre: None,
    }
}

/// Every dialect.
const DIALECTS: &[Dialect] = &[
    Dialect {
        written: "gptoss",
        read: "gpt-oss",
        implied: &[("rope.scaling.type", Implied::Text("yarn"))],
        tensors: &[
            ("attn_out.weight", "attn_output.weight"),
            ("attn_out.bias", "attn_output.bias"),
            ("attn_sinks", "attn_sinks.weight"),
            ("ffn_norm.weight", "post_attention_norm.weight"),
        ],
        pre: Some("gpt-4o"),
        ..PLAIN
    },
    Dialect {
        written: "glmocr",
        read: "glm4",
        keys: &[("rope.mrope_section", "rope.dimension_sections")],
        implied: &[(
            "rope.dimension_count",
            Implied::Same("attention.key_length"),
        )],
        tensors: &[
            ("attn_out.weight", "attn_output.weight"),
            ("post_attn_norm.weight", "post_attention_norm.weight"),
            ("post_ffn_norm.weight", "post_ffw_norm.weight"),
        ],
        globals: &[
            ("v.patch_embd_0.weight", "v.patch_embd.weight"),
            ("v.patch_embd_1.weight", "v.patch_embd.weight.1"),
        ],
        pre: Some("chatglm-bpe"),
        ..PLAIN
    },
    Dialect {
        written: "glm4moelite",
        read: "deepseek2",
        // These are the sizes of what is stored, and those without the ending the sizes of heads.
        keys: &[
            ("attention.key_length_mla", "attention.key_length_stored"),
            (
                "attention.value_length_mla",
                "attention.value_length_stored",
            ),
        ],
        pre: Some("glm4"),
        ..PLAIN
    },
    // The library's converter names the splitters of a few tokenizers alone.
    Dialect {
        pre: Some("deepseek-v3"),
        ..renamed("deepseekocr", "deepseek2-ocr")
    },
    Dialect {
        pre: Some("llama4"),
        ..renamed("llama4", "llama4")
    },
    Dialect {
        pre: Some("tekken"),
        ..renamed("mistral3", "mistral3")
    },
    renamed("bitnet-25", "bitnet-b1.58"),
    renamed("olmo3", "olmo2"),
    Dialect {
        written: "qwen25vl",
        read: "qwen2vl",
        keys: &[("rope.mrope_section", "rope.dimension_sections")],
        globals: &[
            ("v.patch_embd_0.weight", "v.patch_embd.weight"),
            ("v.patch_embd_1.weight", "v.patch_embd.weight.1"),
            ("v.merger.ln_q.weight", "v.post_ln.weight"),
            ("v.merger.mlp.0.weight", "mm.0.weight"),
            ("v.merger.mlp.0.bias", "mm.0.bias"),
            ("v.merger.mlp.2.weight", "mm.2.weight"),
            ("v.merger.mlp.2.bias", "mm.2.bias"),
        ],
        ..PLAIN
    },
    Dialect {
        written: "gemma3",
        marker: Some("dense.0.weight"),
        read: "gemma-embedding",
        globals: &[
            ("dense.0.weight", "dense_2.weight"),
            ("dense.1.weight", "dense_3.weight"),
            ("norm.weight", "output_norm.weight"),
        ],
        ..PLAIN
    },
    Dialect {
        written: "nemotron_h_moe",
        read: "nemotron_h_moe",
        tensors: LATENT,
        ..PLAIN
    },
    Dialect {
        written: "nemotron_h_omni",
        read: "nemotron_h_moe",
        tensors: LATENT,
        ..PLAIN
    },
    Dialect {
        written: "gemma4",
        read: "gemma4",
        tensors: &[("ffn_gate_inp.per_expert_scale", "ffn_down_exps.scale")],
        ..PLAIN
    },
];

/// How experts that are narrower than the residual stream reach it.
const LATENT: &[(&str, &str)] = &[
    ("ffn_latent_in.weight", "ffn_latent_down.weight"),
    ("ffn_latent_out.weight", "ffn_latent_up.weight"),
];

/// Architectures whose library files have more tokens than rows of the embedding.
const LONG_VOCABULARIES: [&str; 3] = ["gemma3", "gemma3n", "gemma4"];

impl Header {
    /// Gives architecture, keys and tensors the names that everything else uses. A file that has them
    /// already stays as it is.
    pub fn translate(&mut self) {
        let written = self.metadata.architecture().unwrap_or_default().to_owned();
        let speaks = |dialect: &&Dialect| {
            let marked = dialect
                .marker
                .is_none_or(|name| self.tensor(name).is_some());
            dialect.written == written && marked
        };
        if let Some(dialect) = DIALECTS.iter().find(speaks) {
            self.apply(dialect);
        }
        if LONG_VOCABULARIES.contains(&written.as_str()) {
            self.cut_vocabulary();
        }
        if written == "llama" {
            self.name_old_llama3();
        }
        if written == "gemma4" && self.metadata.str(MODEL) == Some("llama") {
            self.metadata.set(MODEL, "gemma4");
        }
    }

    fn apply(&mut self, dialect: &Dialect) {
        let metadata = &mut self.metadata;
        let prefix = format!("{}.", dialect.written);
        metadata.rename(|key| {
            let rest = key.strip_prefix(&prefix)?;
            let renamed = dialect.keys.iter().find(|(from, _)| *from == rest);
            let rest = renamed.map_or(rest, |(_, to)| to);
            Some(format!("{}.{rest}", dialect.read))
        });
        metadata.set("general.architecture", dialect.read);
        for (key, implied) in dialect.implied {
            let full = |key: &str| format!("{}.{key}", dialect.read);
            let value = match implied {
                Implied::Text(text) => Some(Value::from(*text)),
                Implied::Same(other) => metadata.get(&full(other)).cloned(),
            };
            if let (None, Some(value)) = (metadata.get(&full(key)), value) {
                metadata.set(full(key), value);
            }
        }
        if let Some(pre) = dialect.pre
            && matches!(metadata.str(PRE), None | Some("" | "default"))
        {
            metadata.set(PRE, pre);
        }
        self.rename_tensors(dialect);
    }

    fn rename_tensors(&mut self, dialect: &Dialect) {
        if dialect.tensors.is_empty() && dialect.globals.is_empty() {
            return;
        }
        let mut taken: HashSet<String> = self.tensors.iter().map(|t| t.name.clone()).collect();
        let usual = |names: &[(&'static str, &'static str)], name: &str| {
            let found = names.iter().find(|(from, _)| *from == name);
            found.map(|(_, to)| *to)
        };
        for tensor in &mut self.tensors {
            let renamed = match block_and_part(&tensor.name) {
                Some((block, part)) => {
                    usual(dialect.tensors, part).map(|to| format!("{block}.{to}"))
                }
                None => usual(dialect.globals, &tensor.name).map(str::to_owned),
            };
            let Some(renamed) = renamed else {
                continue;
            };
            if taken.insert(renamed.clone()) {
                tensor.name = renamed;
            }
        }
    }

    /// Cuts the vocabulary to the rows of the embedding: a token without a row can never be used.
    fn cut_vocabulary(&mut self) {
        let tables = ["token_embd.weight", "per_layer_token_embd.weight"];
        let rows = tables.iter().filter_map(|name| {
            let tensor = self.tensor(name)?;
            usize::try_from(tensor.n_rows()).ok()
        });
        let Some(rows) = rows.min() else {
            return;
        };
        for key in [TOKENS, "tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
            if let Some(array) = self.metadata.array_mut(key) {
                array.truncate(rows);
            }
        }
    }

    /// The first files of Llama 3 say neither how its text is split nor which token ends a turn.
    fn name_old_llama3(&mut self) {
        let metadata = &mut self.metadata;
        let ends_turns = metadata
            .strings(TOKENS)
            .and_then(|tokens| tokens.get(LLAMA3_EOT as usize))
            == Some(b"<|eot_id|>");
        if ends_turns && matches!(metadata.str(PRE), None | Some("" | "default")) {
            metadata.set(PRE, "llama-bpe");
            if metadata.get(EOT).is_none() {
                metadata.set(EOT, LLAMA3_EOT);
            }
        }
    }
}

/// Cuts `blk.7.attn_q.weight` into `blk.7` and the rest.
fn block_and_part(name: &str) -> Option<(&str, &str)> {
    let number = name.strip_prefix("blk.")?;
    let at = name.len() - number.len() + number.find('.')?;
    Some((&name[..at], &name[at + 1..]))
}

impl Metadata {
    /// Renames keys; a new name that is taken leaves the key as it is.
    fn rename(&mut self, renamed: impl Fn(&str) -> Option<String>) {
        let keys: Vec<String> = self.iter().map(|(key, _)| key.to_owned()).collect();
        for key in keys {
            if let Some(to) = renamed(&key) {
                self.rename_key(&key, to);
            }
        }
    }
}

impl Array {
    /// Keeps the first elements.
    fn truncate(&mut self, len: usize) {
        match self {
            Array::U8(values) => values.truncate(len),
            Array::I8(values) => values.truncate(len),
            Array::U16(values) => values.truncate(len),
            Array::I16(values) => values.truncate(len),
            Array::U32(values) => values.truncate(len),
            Array::I32(values) => values.truncate(len),
            Array::F32(values) => values.truncate(len),
            Array::Bool(values) => values.truncate(len),
            Array::Strings(values) => values.truncate(len),
            Array::Nested(values) => values.truncate(len),
            Array::U64(values) => values.truncate(len),
            Array::I64(values) => values.truncate(len),
            Array::F64(values) => values.truncate(len),
        }
    }
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const EOT: &str = "tokenizer.ggml.eot_token_id";
const LLAMA3_EOT: u32 = 128_009;
