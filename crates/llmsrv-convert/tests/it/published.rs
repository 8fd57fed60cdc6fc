//! Tiny published models: the files that their owners would upload.

use std::{collections::BTreeMap, fs, path::PathBuf};

use half::bf16;
use llmsrv_engine::{BlockId, LoadOptions, Loaded, Span, StepPlan};
use safetensors::{Dtype, tensor::TensorView};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What `make_models.py` wrote.
#[derive(Deserialize)]
pub(crate) struct Fixture {
    pub(crate) prompt: Vec<u32>,
    pub(crate) lora: Value,
    pub(crate) cases: BTreeMap<String, Case>,
}

/// A model and what it says.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) config: Map<String, Value>,
    /// Name, shape, middle of the values.
    pub(crate) tensors: Vec<(String, Vec<usize>, f32)>,
    pub(crate) logits: Vec<f32>,
    pub(crate) logits_with_lora: Option<Vec<f32>>,
}

pub(crate) fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../fixtures/models.json")).unwrap()
}

/// The weights of a tensor, which follow from its name as in `make_models.py`.
pub(crate) fn weights(case: &str, name: &str, shape: &[usize], middle: f32) -> Vec<u8> {
    let seed = format!("{case} {name}");
    let mut state = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    state |= 1;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 16) % (1 << 24)) as f32 / (1 << 23) as f32 - 1.0
    };
    let spread = match shape {
        [_] => 0.4,
        _ if name.contains("embed_tokens") => 1.0,
        [.., row] => 2.5 / (*row as f32).sqrt(),
        [] => 0.0,
    };
    (0..shape.iter().product())
        .flat_map(|_| bf16::from_f32(middle + spread * unit()).to_le_bytes())
        .collect()
}

/// A safetensors file of BF16 tensors.
pub(crate) fn safetensors(tensors: &[(String, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    safetensors_of(Dtype::BF16, tensors)
}

/// A safetensors file of tensors of one type.
pub(crate) fn safetensors_of(dtype: Dtype, tensors: &[(String, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, shape, data)| {
        let view = TensorView::new(dtype, shape.clone(), data).unwrap();
        (name.as_str(), view)
    });
    safetensors::serialize(views, None).unwrap()
}

/// Files in a folder, under their names.
pub(crate) struct Upload {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) files: Vec<(String, PathBuf)>,
    n_added: usize,
}

impl Upload {
    pub(crate) fn new() -> Upload {
        Upload {
            folder: tempfile::tempdir().unwrap(),
            files: Vec::new(),
            n_added: 0,
        }
    }

    /// Adds a file; where it lies does not show its name.
    pub(crate) fn add(&mut self, name: &str, content: impl AsRef<[u8]>) {
        self.files.retain(|(other, _)| other != name);
        self.n_added += 1;
        let path = self.folder.path().join(format!("blob{}", self.n_added));
        fs::write(&path, content).unwrap();
        self.files.push((name.to_owned(), path));
    }

    pub(crate) fn destination(&self) -> PathBuf {
        self.folder.path().join("made")
    }
}

/// The upload of a model: weights in two files, and a tokenizer of one of the two kinds.
pub(crate) fn upload(name: &str, case: &Case) -> Upload {
    let mut upload = Upload::new();
    upload.add(
        "config.json",
        Value::Object(case.config.clone()).to_string(),
    );
    let tensors: Vec<_> = case
        .tensors
        .iter()
        .map(|(tensor, shape, middle)| {
            let data = weights(name, tensor, shape, *middle);
            (tensor.clone(), shape.clone(), data)
        })
        .collect();
    let (first, second) = tensors.split_at(tensors.len() / 2);
    let parts = [
        ("model-00001-of-00002.safetensors", first),
        ("model-00002-of-00002.safetensors", second),
    ];
    let mut index = Map::new();
    for (file, tensors) in parts {
        upload.add(file, safetensors(tensors));
        index.extend(
            tensors
                .iter()
                .map(|(tensor, _, _)| (tensor.clone(), json!(file))),
        );
    }
    upload.add(
        "model.safetensors.index.json",
        json!({"weight_map": index}).to_string(),
    );
    if name.starts_with("gemma") || name == "llama" {
        upload.add("tokenizer.model", sentencepiece());
        let settings = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true,
            "added_tokens_decoder": {"299": {"content": "<|im_end|>", "special": true}},
            "chat_template": "{{ messages[0].content }}"});
        upload.add("tokenizer_config.json", settings.to_string());
    } else {
        upload.add("tokenizer.json", definition().to_string());
        let settings = json!({"bos_token": null, "eos_token": "<|end|>",
            "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]});
        upload.add("tokenizer_config.json", settings.to_string());
        upload.add(
            "generation_config.json",
            json!({"eos_token_id": [298, 299]}).to_string(),
        );
    }
    // The same model in the form of the authors' own library is not used.
    upload.add("consolidated.safetensors", "damaged");
    upload.add("original/tokenizer.model", "damaged");
    upload
}

/// Pieces: three with a role, all bytes, some letters and what they merge to.
pub(crate) fn sentencepiece() -> Vec<u8> {
    fn field(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
        out.push(tag << 3 | 2);
        let mut len = content.len();
        while len >= 128 {
            out.push(len as u8 | 128);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend_from_slice(content);
    }
    let mut pieces: Vec<(String, f32, u8)> = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
        .map(|(text, kind)| (text.to_owned(), 0.0, kind))
        .to_vec();
    pieces.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)));
    for (rank, text) in ["he", "ll", "hell", "hello", "▁hello"].iter().enumerate() {
        pieces.push(((*text).to_owned(), -(rank as f32), 1));
    }
    for text in ["▁", "h", "e", "l", "o"] {
        pieces.push((text.to_owned(), -100.0, 1));
    }
    let mut model = Vec::new();
    for (text, score, kind) in pieces {
        let mut piece = Vec::new();
        field(&mut piece, 1, text.as_bytes());
        piece.push(2 << 3 | 5);
        piece.extend_from_slice(&score.to_le_bytes());
        piece.extend_from_slice(&[3 << 3, kind]);
        field(&mut model, 1, &piece);
    }
    field(&mut model, 2, &[3 << 3, 2]); // Merges pairs.
    field(&mut model, 3, &[3 << 3, 1]); // Puts a space in front.
    model
}

/// A byte-level tokenizer that cuts words as Llama 3 does.
pub(crate) fn definition() -> Value {
    let visible = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut spare = 256..;
    let spelling = (0..256).map(|byte| {
        let code = if visible(byte) {
            byte
        } else {
            spare.next().unwrap()
        };
        char::from_u32(code).unwrap().to_string()
    });
    let mut tokens: Vec<String> = spelling.collect();
    let merges = [
        ["h", "e"],
        ["l", "l"],
        ["he", "ll"],
        ["hell", "o"],
        ["Ġ", "hello"],
    ];
    tokens.extend(merges.iter().map(|[a, b]| format!("{a}{b}")));
    let vocab: Map<String, Value> = tokens
        .into_iter()
        .zip(0..)
        .map(|(text, id)| (text, json!(id)))
        .collect();
    json!({
        "added_tokens": [
            {"id": 298, "content": "<|end|>", "special": true},
            {"id": 297, "content": "<tool>", "special": false},
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
        "model": {"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges},
    })
}

/// Loads a model for exact arithmetic.
pub(crate) fn options() -> LoadOptions {
    LoadOptions {
        kv_cache_type: "f32".into(),
        n_threads: 1,
        device: "cpu".into(),
        // What is lost here is lost by converting, not by computing.
        activation_precision: llmsrv_engine::ActivationPrecision::F32,
        ..LoadOptions::default()
    }
}

/// Computes the logits behind the last token.
pub(crate) fn logits(loaded: &mut Loaded, tokens: &[u32]) -> Vec<f32> {
    let model = &mut *loaded.model;
    let mut logits = vec![0.0; model.spec().vocab_size];
    model.reserve_blocks(1).unwrap();
    let plan = StepPlan {
        tokens: tokens.to_vec(),
        positions: (0..tokens.len() as u32).collect(),
        ends: (1..=tokens.len() as u32).collect(),
        coordinates: Vec::new(),
        images: Vec::new(),
        spans: vec![Span {
            rows: 0..tokens.len(),
            start: 0,
            blocks: vec![BlockId(0)],
            tail: None,
            state: None,
        }],
        logit_rows: vec![tokens.len() as u32 - 1],
    };
    model.forward(&plan, &mut logits).unwrap();
    logits
}

/// The largest difference, relative to the largest value.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    worst.fold(0.0_f32, |worst, x| {
        if x.is_nan() {
            f32::INFINITY
        } else {
            worst.max(x)
        }
    }) / largest
}
