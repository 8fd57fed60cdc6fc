//! Converting a published BERT: its vectors are those of the published arithmetic, written down here a second time.

use std::collections::BTreeMap;

use half::bf16;
use llmsrv_convert::{Error, convert_model};
use llmsrv_engine::{EngineOptions, spawn};
use llmsrv_gguf::GgufFile;
use llmsrv_tokenizer::Special;
use serde_json::{Value, json};

use crate::published::{Upload, options, safetensors, weights};

const WIDTH: usize = 32;
const HIDDEN: usize = 64;
const N_HEADS: usize = 4;
const N_LAYERS: usize = 2;
const VOCABULARY: [&str; 11] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", ",", "embed", "##ding",
];
const TEXT: &str = "Héllo, Worlds embedding zzz";
const TOKENS: [usize; 9] = [2, 5, 8, 6, 7, 9, 10, 1, 3];

/// Names, shapes and middles of the tensors.
fn tensors() -> Vec<(String, Vec<usize>, f32)> {
    let mut all = Vec::new();
    let mut linear = |name: String, rows: usize, columns: usize| {
        all.push((format!("{name}.weight"), vec![rows, columns], 0.0));
        all.push((format!("{name}.bias"), vec![rows], 0.0));
    };
    for layer in 0..N_LAYERS {
        let at = format!("encoder.layer.{layer}");
        for part in ["query", "key", "value"] {
            linear(format!("{at}.attention.self.{part}"), WIDTH, WIDTH);
        }
        linear(format!("{at}.attention.output.dense"), WIDTH, WIDTH);
        linear(format!("{at}.intermediate.dense"), HIDDEN, WIDTH);
        linear(format!("{at}.output.dense"), WIDTH, HIDDEN);
    }
    linear("pooler.dense".into(), WIDTH, WIDTH);
    for (name, rows) in [
        ("word", VOCABULARY.len()),
        ("position", 16),
        ("token_type", 2),
    ] {
        let name = format!("embeddings.{name}_embeddings.weight");
        all.push((name, vec![rows, WIDTH], 0.0));
    }
    let of_layers = (0..N_LAYERS).flat_map(|layer| {
        ["attention.output", "output"].map(|part| format!("encoder.layer.{layer}.{part}"))
    });
    for name in of_layers.chain(["embeddings".to_owned()]) {
        all.push((format!("{name}.LayerNorm.weight"), vec![WIDTH], 1.0));
        all.push((format!("{name}.LayerNorm.bias"), vec![WIDTH], 0.0));
    }
    all
}

fn upload(prefix: &str, pooling: &Value) -> Upload {
    let mut upload = Upload::new();
    let config = json!({
        "architectures": ["BertModel"], "hidden_size": WIDTH, "intermediate_size": HIDDEN,
        "num_attention_heads": N_HEADS, "num_hidden_layers": N_LAYERS, "max_position_embeddings": 16,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "vocab_size": VOCABULARY.len(),
    });
    upload.add("config.json", config.to_string());
    let tensors = tensors().into_iter().map(|(name, shape, middle)| {
        let data = weights("bert", &name, &shape, middle);
        (format!("{prefix}{name}"), shape, data)
    });
    upload.add(
        "model.safetensors",
        safetensors(&tensors.collect::<Vec<_>>()),
    );
    let vocabulary: BTreeMap<_, _> = VOCABULARY.iter().zip(0..).collect();
    let added = VOCABULARY.iter().take(5).enumerate();
    let added = added.map(|(id, text)| json!({"id": id, "content": text, "special": true}));
    let definition = json!({
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary},
        "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null},
        "added_tokens": added.collect::<Vec<_>>(),
    });
    upload.add("tokenizer.json", definition.to_string());
    upload.add("1_Pooling/config.json", pooling.to_string());
    upload
}

fn convert(upload: &Upload) -> Result<(), Error> {
    let mut progress = |_, _| std::ops::ControlFlow::Continue(());
    convert_model(&upload.files, &upload.destination(), None, &mut progress)
}

/// The rows of the last layer (<https://arxiv.org/abs/1810.04805>), in f64.
fn rows() -> Vec<Vec<f64>> {
    let all: BTreeMap<String, Vec<f64>> = tensors()
        .into_iter()
        .map(|(name, shape, middle)| {
            let bytes = weights("bert", &name, &shape, middle);
            let values = bytes.as_chunks().0.iter();
            let values = values.map(|bytes| f64::from(bf16::from_le_bytes(*bytes)));
            (name, values.collect())
        })
        .collect();
    let table = |name: &str, row: usize| {
        let values = &all[&format!("embeddings.{name}_embeddings.weight")];
        &values[row * WIDTH..(row + 1) * WIDTH]
    };
    let linear = |name: String, x: &[f64]| -> Vec<f64> {
        let rows = all[&format!("{name}.weight")].chunks(x.len());
        let dot = |row: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        let bias = &all[&format!("{name}.bias")];
        rows.zip(bias).map(|(row, bias)| dot(row) + bias).collect()
    };
    let norm = |name: String, x: &[f64]| -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let weight = &all[&format!("{name}.LayerNorm.weight")];
        let bias = &all[&format!("{name}.LayerNorm.bias")];
        let scaled = x.iter().map(|x| (x - mean) / (variance + 1e-12).sqrt());
        let ended = scaled.zip(weight).zip(bias);
        ended.map(|((x, weight), bias)| x * weight + bias).collect()
    };
    let add = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };

    let mut x: Vec<Vec<f64>> = TOKENS
        .iter()
        .enumerate()
        .map(|(position, token)| {
            let sum = add(table("word", *token), table("position", position));
            norm("embeddings".into(), &add(&sum, table("token_type", 0)))
        })
        .collect();
    for layer in 0..N_LAYERS {
        let at = format!("encoder.layer.{layer}");
        let [queries, keys, values] = ["query", "key", "value"].map(|part| {
            let rows = x.iter();
            let rows = rows.map(|x| linear(format!("{at}.attention.self.{part}"), x));
            rows.collect::<Vec<_>>()
        });
        x = x
            .iter()
            .zip(&queries)
            .map(|(x, query)| {
                let attended = attend(query, &keys, &values);
                let delta = linear(format!("{at}.attention.output.dense"), &attended);
                let x = norm(format!("{at}.attention.output"), &add(&delta, x));
                let mut hidden = linear(format!("{at}.intermediate.dense"), &x);
                for x in &mut hidden {
                    *x *= 0.5 * (1.0 + erf(*x / 2_f64.sqrt()));
                }
                let delta = linear(format!("{at}.output.dense"), &hidden);
                norm(format!("{at}.output"), &add(&delta, &x))
            })
            .collect();
    }
    x
}

fn attend(query: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
    let dim = WIDTH / N_HEADS;
    let mut out = vec![0.0; WIDTH];
    for head in (0..WIDTH).step_by(dim) {
        let of_head = head..head + dim;
        let scores = keys.iter().map(|key| {
            let pairs = query[of_head.clone()].iter().zip(&key[of_head.clone()]);
            let score: f64 = pairs.map(|(a, b)| a * b).sum();
            (score / (dim as f64).sqrt()).exp()
        });
        let scores: Vec<f64> = scores.collect();
        let sum: f64 = scores.iter().sum();
        for (score, value) in scores.iter().zip(values) {
            for idx in of_head.clone() {
                out[idx] += score / sum * value[idx];
            }
        }
    }
    out
}

/// By its series, which is exact enough for small arguments.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..120_i32 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

#[test]
fn a_converted_bert_makes_the_vectors_of_the_published_one() {
    let rows = rows();
    let mean = (0..WIDTH).map(|idx| rows.iter().map(|row| row[idx]).sum::<f64>());
    let mean: Vec<f64> = mean.map(|sum| sum / rows.len() as f64).collect();
    let cases = [
        ("", "pooling_mode_mean_tokens", &mean),
        ("bert.", "pooling_mode_cls_token", &rows[0]),
        ("", "pooling_mode_lasttoken", &rows[TOKENS.len() - 1]),
    ];
    for (prefix, pooling, expected) in cases {
        let upload = upload(
            prefix,
            &json!({"pooling_mode_max_tokens": false, pooling: true}),
        );
        convert(&upload).unwrap();
        let loaded = llmsrv_models::load(&upload.destination(), &options()).unwrap();
        let tokens = loaded.tokenizer.encode(TEXT, Special::ParseAndAdd);
        assert_eq!(tokens, TOKENS.map(|token| token as u32));
        let vectors = spawn(loaded, EngineOptions::default()).embed(vec![tokens]);
        let vectors = vectors.unwrap().blocking_wait().unwrap();
        for (found, expected) in vectors[0].iter().zip(expected) {
            // The GELU is the approximation with tanh here, as in llama.cpp.
            let off = (f64::from(*found) - expected).abs();
            assert!(off < 5e-3, "{pooling}: {found} {expected}");
        }
    }
}

#[test]
fn a_decoder_that_makes_vectors_says_how() {
    let mut upload = crate::published::upload("qwen3", &crate::published::fixture().cases["qwen3"]);
    let pooling = json!({"pooling_mode_lasttoken": true});
    upload.add("1_Pooling/config.json", pooling.to_string());
    convert(&upload).unwrap();
    let file = GgufFile::open(&upload.destination()).unwrap();
    assert_eq!(file.metadata().u32("qwen3.pooling_type"), Some(3));
}

#[test]
fn what_makes_other_vectors_is_refused() {
    let pooling = json!({"pooling_mode_max_tokens": true});
    let error = convert(&upload("", &pooling)).unwrap_err().to_string();
    assert!(error.contains("neither mean, first nor last"), "{error}");
    let mut upload = upload("", &json!({"pooling_mode_mean_tokens": true}));
    let definition =
        json!({"model": {"type": "WordPiece", "vocab": {"a": 0}}, "normalizer": {"type": "NFC"}});
    upload.add("tokenizer.json", definition.to_string());
    let error = convert(&upload).unwrap_err().to_string();
    assert!(error.contains("not that of BERT"), "{error}");
}
