//! Vectors of encoders and decoders against llama.cpp, and against candle's tensors.

use std::{fs, path::Path};

use llmsrv_engine::{
    ActivationPrecision, Adapter, EngineOptions, LoadError, LoadOptions, Loaded, Pooling, spawn,
};
use llmsrv_gguf::{Metadata, TensorType};
use llmsrv_tokenizer::Special;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    tiny::{CASES, Case, EMBEDDERS, File, Random, difference, fingerprint},
    tiny_encoder::{ENCODERS, EncoderCase},
};

/// What `fixtures/make_embeddings.py` writes.
#[derive(Deserialize)]
struct Expected {
    fingerprint: String,
    vectors: Vec<Vec<f32>>,
}

/// What `fixtures/make_embeddings.py` reads.
#[derive(Serialize)]
struct Inputs {
    inputs: Vec<Vec<u32>>,
}

/// llama.cpp reads GELU from a table of f16 values.
const TOLERANCE: f32 = 2e-3;

/// Decoders and their pooling; 0 = not in the file.
const DECODERS: [(&str, u32); 5] = [
    ("llama", 0),
    ("qwen3", 3),
    ("qwen2", 1),
    ("gemma3", 2),
    // Without keys and values.
    ("mamba2", 1),
];

/// An encoder whose tasks are adapters, and an adapter.
pub(crate) const ADAPTED: &str = "jina_bert_v3";

fn load(bytes: &[u8], device: &str) -> Result<Loaded, LoadError> {
    load_with(bytes, &[], device)
}

/// Loads a model with adapters: files and strengths.
fn load_with(bytes: &[u8], adapters: &[(Vec<u8>, f32)], device: &str) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    let adapters = adapters.iter().enumerate().map(|(idx, (bytes, scale))| {
        let path = folder.path().join(format!("adapter-{idx}.gguf"));
        fs::write(&path, bytes).unwrap();
        Adapter {
            path,
            scale: *scale,
        }
    });
    let options = LoadOptions {
        kv_cache_type: "f32".into(),
        n_threads: 2,
        device: device.into(),
        adapters: adapters.collect(),
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options)
}

pub(crate) fn encoder(name: &str) -> EncoderCase {
    *ENCODERS.iter().find(|case| case.name == name).unwrap()
}

/// Every model with its inputs.
pub(crate) fn files() -> Vec<(String, File, Vec<Vec<u32>>)> {
    let encoders = ENCODERS
        .iter()
        .map(|case| (case.name.to_owned(), case.file(), case.inputs()));
    let decoders = DECODERS.iter().map(|(name, pooling)| {
        let case = CASES.iter().find(|case| case.name == *name).unwrap();
        let mut file = case.file();
        if *pooling > 0 {
            let key = format!("{}.pooling_type", case.architecture);
            file.metadata.set(key, *pooling);
        }
        (format!("decoder_{name}"), file, case.prompts().to_vec())
    });
    let others = EMBEDDERS
        .iter()
        .map(|case| (case.name.to_owned(), case.file(), case.prompts().to_vec()));
    encoders.chain(decoders).chain(others).collect()
}

fn expected(name: &str) -> Expected {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/embeddings")
        .join(format!("{name}.json"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn embedder(name: &str) -> Case {
    *EMBEDDERS.iter().find(|case| case.name == name).unwrap()
}

/// Computes all inputs together.
pub(crate) fn vectors(loaded: Loaded, inputs: &[Vec<u32>], step_tokens: usize) -> Vec<Vec<f32>> {
    let options = EngineOptions {
        step_tokens,
        ..EngineOptions::default()
    };
    let handle = spawn(loaded, options);
    let vectors = handle.embed(inputs.to_vec()).unwrap();
    vectors.blocking_wait().unwrap()
}

#[test]
fn all_vectors_agree_with_llama_cpp() {
    let mut worst = (0.0, String::new(), "");
    for (name, file, inputs) in files() {
        let bytes = file.bytes();
        let expected = expected(&name);
        let found = format!("{:016x}", fingerprint(&bytes));
        assert_eq!(found, expected.fingerprint, "{name}: make it again");
        assert_eq!(expected.vectors.len(), inputs.len());
        for device in ["cpu", "candle"] {
            let loaded = load(&bytes, device).unwrap_or_else(|error| panic!("{name}: {error}"));
            for (found, expected) in vectors(loaded, &inputs, 512).iter().zip(&expected.vectors) {
                let (found, expected) = (&as_theirs(found, expected), expected);
                let difference = difference(found, expected);
                assert!(
                    difference <= TOLERANCE,
                    "{name} {device}: differs by {difference}"
                );
                if difference > worst.0 {
                    worst = (difference, name.clone(), device);
                }
            }
        }
    }
    println!("largest difference: {worst:?}");
}

/// What an encoder does for one task.
#[test]
fn adapted_vectors_agree_with_llama_cpp() {
    let case = encoder(ADAPTED);
    let (model, adapter) = (case.file().bytes(), case.adapter().bytes());
    let expected = expected(&format!("{ADAPTED}_adapted"));
    let found = format!("{:016x}", fingerprint(&adapter));
    assert_eq!(found, expected.fingerprint, "make it again");
    let inputs = case.inputs();
    for device in ["cpu", "candle"] {
        let with = |scale| {
            let loaded = load_with(&model, &[(adapter.clone(), scale)], device);
            vectors(loaded.unwrap(), &inputs, 512)
        };
        for (found, expected) in with(1.0).iter().zip(&expected.vectors) {
            let difference = difference(found, expected);
            assert!(difference <= TOLERANCE, "{device}: differs by {difference}");
        }
        let plain = vectors(load(&model, device).unwrap(), &inputs, 512);
        for ((without, plain), adapted) in with(0.0).iter().zip(&plain).zip(&expected.vectors) {
            assert!(difference(without, plain) < 1e-6);
            assert!(difference(plain, adapted) > 0.1);
        }
    }
}

/// The table of token types is changed like a matrix, not like that of tokens.
#[test]
fn an_adapter_changes_token_types() {
    let case = encoder(ADAPTED);
    let mut file = case.file();
    let row = &mut file.tensor("token_types.weight").bytes;
    let (scale, mut down) = (0.5f32, Vec::new());
    for value in row.chunks_exact_mut(4) {
        let number = f32::from_le_bytes((&*value).try_into().unwrap());
        let added = (number * 7.0).sin();
        value.copy_from_slice(&(number + scale * 2.0 * added).to_le_bytes());
        down.extend(added.to_le_bytes());
    }
    let mut adapter = case.adapter();
    adapter.metadata.set("adapter.lora.alpha", 1.0f32);
    adapter.tensors.truncate(2);
    for (tensor, (part, shape, bytes)) in adapter.tensors.iter_mut().zip([
        ("a", [64, 1], down),
        ("b", [1, 1], 2.0f32.to_le_bytes().to_vec()),
    ]) {
        tensor.name = format!("token_types.weight.lora_{part}");
        tensor.shape = shape.to_vec();
        tensor.bytes = bytes;
    }
    let inputs = case.inputs();
    let expected = vectors(load(&file.bytes(), "cpu").unwrap(), &inputs, 512);
    let adapters = [(adapter.bytes(), scale)];
    let found = load_with(&case.file().bytes(), &adapters, "cpu").unwrap();
    for (found, expected) in vectors(found, &inputs, 512).iter().zip(&expected) {
        assert!(difference(found, expected) < 1e-5);
    }
}

#[test]
fn adapters_of_encoders_that_lie_are_refused_in_one_line() {
    let case = encoder(ADAPTED);
    let refuse = |change: &dyn Fn(&mut File), expected: &str| {
        let mut adapter = case.adapter();
        change(&mut adapter);
        let model = case.file().bytes();
        let loaded = load_with(&model, &[(adapter.bytes(), 1.0)], "cpu");
        assert_eq!(loaded.map(|_| ()).unwrap_err().to_string(), expected);
    };
    refuse(
        &|file| file.metadata.set("general.architecture", "bert"),
        "unsupported model: the adapter is not for jina-bert-v3 models",
    );
    let reshape = |file: &mut File, name: &str, shape: [u64; 2]| {
        let tensor = file.tensor(name);
        tensor.shape = shape.to_vec();
        tensor.bytes.resize((4 * shape[0] * shape[1]) as usize, 0);
    };
    refuse(
        &|file| reshape(file, "token_embd.weight.lora_a", [3, 95]),
        "invalid model file: tensor token_embd.weight.lora_a has shape [3, 95], not [3, 96]",
    );
    refuse(
        &|file| reshape(file, "token_embd.weight.lora_b", [2, 96]),
        "invalid model file: tensor token_embd.weight.lora_b has shape [2, 96], not [3, 64]",
    );
    refuse(
        &|file| {
            file.tensors
                .retain(|t| t.name != "token_embd.weight.lora_b");
        },
        "invalid model file: tensor token_embd.weight.lora_b is missing",
    );
    refuse(
        &|file| reshape(file, "blk.0.attn_qkv.weight.lora_b", [2, 288]),
        "invalid model file: tensor blk.0.attn_qkv.weight.lora_b has shape [2, 288], not [3, 192]",
    );
    refuse(
        &|file| file.tensor("blk.1.ffn_up.weight.lora_a").name = "blk.9.x.lora_a".into(),
        "invalid model file: tensor blk.1.ffn_up.weight.lora_a is missing",
    );
}

/// llama.cpp gives the probabilities of "yes" and "no"; here a judge gives the difference of their logits.
fn as_theirs(found: &[f32], expected: &[f32]) -> Vec<f32> {
    match (found, expected) {
        ([score], [_, _]) => [*score, -score].map(|x| 1.0 / (1.0 + (-x).exp())).to_vec(),
        _ => found.to_vec(),
    }
}

#[test]
fn every_encoder_has_a_case() {
    let cases = ENCODERS.iter().map(|case| case.architecture);
    let cases = cases.chain(EMBEDDERS.iter().map(|case| case.architecture));
    let cases: Vec<&str> = cases.collect();
    for architecture in llmsrv_models::encoders() {
        assert!(cases.contains(&architecture), "{architecture}");
    }
}

/// Rows of the output stand in for a classifier that a file lacks, and labels say which score is which.
#[test]
fn a_judge_is_the_difference_of_yes_and_no() {
    let score = |change: &dyn Fn(&mut File)| {
        let mut file = embedder("qwen3_rank").file();
        change(&mut file);
        let loaded = load(&file.bytes(), "cpu").unwrap();
        let spec = loaded.model.spec().embedding.unwrap();
        assert_eq!(
            (spec.width, spec.pooling, spec.bidirectional),
            (1, Pooling::Rank, false)
        );
        vectors(loaded, &[vec![5, 7, 11, 2]], 512)[0][0]
    };
    let expected = score(&|_| {});
    assert!(expected.abs() > 1e-3);
    let labels = |labels: [&'static str; 2]| {
        move |file: &mut File| {
            let key = "qwen3.classifier.output_labels";
            file.metadata.set(key, labels.to_vec());
        }
    };
    assert_eq!(score(&labels(["no", "yes"])), -expected);
    // Tokens 40 and 41 are "yes" and "no", with the rows of the classifier.
    let lacking = score(&|file| {
        let head = file.tensor("cls.output.weight").bytes.clone();
        file.tensors
            .retain(|tensor| tensor.name != "cls.output.weight");
        let row = head.len() / 2;
        file.tensor("token_embd.weight").bytes[40 * row..42 * row].copy_from_slice(&head);
        let mut tokens: Vec<String> = ('!'..='~').map(|letter| letter.to_string()).collect();
        tokens.extend(["ab".into(), "<end>".into()]);
        (tokens[40], tokens[41]) = ("yes".into(), "no".into());
        file.metadata.set("tokenizer.ggml.tokens", tokens);
    });
    assert_eq!(lacking, expected);
    // One score is what it is.
    let one = score(&|file| {
        let head = file.tensor("cls.output.weight");
        let row = head.bytes.len() / 2;
        let second = head.bytes.split_off(row);
        for (first, second) in head.bytes.chunks_exact_mut(4).zip(second.chunks_exact(4)) {
            let [a, b] = [&*first, second].map(|x| f32::from_le_bytes(x.try_into().unwrap()));
            first.copy_from_slice(&(a - b).to_le_bytes());
        }
        head.shape = vec![64, 1];
    });
    assert!((one - expected).abs() < 1e-4 * expected.abs().max(1.0));
}

/// The public library has the same model under the name of its sibling.
#[test]
fn the_library_calls_embedding_gemma_gemma3() {
    let case = embedder("gemma_embedding_dense");
    let inputs = case.prompts();
    let expected = vectors(load(&case.bytes(), "cpu").unwrap(), &inputs, 512);
    let mut file = case.file();
    let keys = file.metadata.iter();
    let keys = keys.map(|(key, value)| {
        let key = key.replace("gemma-embedding.", "gemma3.");
        (key.replace("dense_", "unknown_"), value.clone())
    });
    let keys: Vec<_> = keys.collect();
    file.metadata = Metadata::new();
    for (key, value) in keys {
        file.metadata.set(key, value);
    }
    file.metadata.set("general.architecture", "gemma3");
    for (ours, theirs) in [
        ("dense_2.weight", "dense.0.weight"),
        ("dense_3.weight", "dense.1.weight"),
        ("output_norm.weight", "norm.weight"),
    ] {
        file.tensor(ours).name = theirs.into();
    }
    let found = vectors(load(&file.bytes(), "cpu").unwrap(), &inputs, 512);
    assert_eq!(found, expected);
}

/// A bidirectional decoder says that it makes no text.
#[test]
fn an_encoder_of_decoder_layers_says_what_it_is() {
    let loaded = load(&embedder("gemma_embedding").file().bytes(), "cpu").unwrap();
    let spec = loaded.model.spec().clone();
    let embedding = spec.embedding.unwrap();
    assert_eq!(
        (embedding.width, embedding.pooling, embedding.bidirectional),
        (64, Pooling::Mean, true)
    );
    assert!(!spec.generates() && spec.kv_block_bytes == 0 && spec.state_bytes == 0);
}

#[test]
fn cpu_and_candle_agree() {
    for (name, file, inputs) in files() {
        let bytes = file.bytes();
        let cpu = vectors(load(&bytes, "cpu").unwrap(), &inputs, 512);
        let candle = vectors(load(&bytes, "candle").unwrap(), &inputs, 512);
        for (cpu, candle) in cpu.iter().zip(&candle) {
            let difference = difference(cpu, candle);
            assert!(difference < 1e-4, "{name}: {difference}");
        }
    }
}

/// Rerankers that llama.cpp's converter made name no pooling.
#[test]
fn a_classifier_of_one_score_ranks() {
    let ranks = |file: File| {
        let loaded = load(&file.bytes(), "cpu").unwrap();
        let embedding = loaded.model.spec().embedding.unwrap();
        let inputs = [vec![2, 10, 11, 3, 12, 13, 3], vec![2, 40, 3]];
        let is_rank = embedding.pooling == Pooling::Rank;
        (is_rank, vectors(loaded, &inputs, 512))
    };
    let silent = |name: &str| {
        let case = EncoderCase {
            pooling: 0,
            ..encoder(name)
        };
        case.file()
    };
    let expected = ranks(encoder("xlm_roberta_rank").file());
    assert!(expected.0 && expected.1[0].len() == 1);
    assert_eq!(ranks(silent("xlm_roberta_rank")), expected);
    // A hidden layer alone, or several scores, may be of anything.
    let without = |mut file: File, parts: &[&str]| {
        file.tensors
            .retain(|tensor| !parts.contains(&tensor.name.as_str()));
        file
    };
    let output = ["cls.output.weight", "cls.output.bias"];
    assert!(!ranks(without(silent("xlm_roberta_rank"), &output)).0);
    assert!(!ranks(silent("xlm_roberta_rank_plain")).0);
    // One score without a layer between, stored as a vector.
    let mut file = without(silent("xlm_roberta_rank"), &["cls.weight", "cls.bias"]);
    file.tensor("cls.output.weight").shape = vec![64];
    assert!(ranks(file).0);
    let mut file = embedder("modern_bert_rank").file();
    let expected = ranks(file.clone());
    assert!(expected.0);
    file.metadata.set("modern-bert.pooling_type", 0u32);
    assert_eq!(ranks(file.clone()), expected);
    file.metadata
        .set("modern-bert.classifier.pooling_type", 1u32);
    assert_eq!(ranks(file), expected);
}

/// In a cross-encoder for pairs, what follows the separator has the other token type.
#[test]
fn the_second_text_of_a_pair_has_its_own_type() {
    let pairs = EncoderCase {
        pooling: 4,
        head: Some((1, true)),
        ..encoder("bert")
    };
    let score = |file: File, input: &[u32]| {
        vectors(load(&file.bytes(), "cpu").unwrap(), &[input.to_vec()], 512)[0][0]
    };
    let equal_types = || {
        let mut file = pairs.file();
        let types = &mut file.tensor("token_types.weight").bytes;
        let half = types.len() / 2;
        types.copy_within(..half, half);
        file
    };
    let pair = [2, 10, 11, 3, 12, 13, 3];
    let alone = [2, 10, 11, 12, 13];
    assert!((score(pairs.file(), &pair) - score(equal_types(), &pair)).abs() > 1e-3);
    assert_eq!(
        score(pairs.file(), &alone).to_bits(),
        score(equal_types(), &alone).to_bits()
    );
    // Not where vectors are compared: there a text may hold a separator, and is still one text.
    let mean = encoder("bert");
    let mut same = mean.file();
    let types = &mut same.tensor("token_types.weight").bytes;
    let half = types.len() / 2;
    types.copy_within(..half, half);
    assert_eq!(
        score(mean.file(), &pair).to_bits(),
        score(same, &pair).to_bits()
    );
}

#[test]
fn an_encoder_says_what_it_is() {
    let loaded = load(&encoder("xlm_roberta_rank_plain").file().bytes(), "cpu").unwrap();
    let spec = loaded.model.spec().clone();
    let embedding = spec.embedding.unwrap();
    assert_eq!(
        (embedding.width, embedding.pooling, embedding.bidirectional),
        (3, Pooling::Rank, true)
    );
    assert!(!spec.generates() && spec.kv_block_bytes == 0);
    let ids = loaded.tokenizer.encode("*+", Special::ParseAndAdd);
    assert_eq!((ids.first(), ids.last()), (Some(&2), Some(&3)));
    // A file that names no pooling.
    let case = EncoderCase {
        pooling: 0,
        ..encoder("bert")
    };
    let loaded = load(&case.file().bytes(), "cpu").unwrap();
    assert_eq!(
        loaded.model.spec().embedding.unwrap().pooling,
        Pooling::Mean
    );
}

#[test]
fn embedders_that_lie_are_refused_in_one_line() {
    let refuse = |name: &str, change: &dyn Fn(&mut File), expected: &str| {
        let mut file = embedder(name).file();
        change(&mut file);
        let error = load(&file.bytes(), "cpu").map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    refuse(
        "gemma_embedding",
        &|file| file.metadata.set("gemma-embedding.attention.causal", true),
        "unsupported model: an encoder whose tokens see only what was before them",
    );
    refuse(
        "gemma_embedding",
        &|file| file.metadata.set("gemma-embedding.pooling_type", 7u32),
        "unsupported model: gemma-embedding.pooling_type is 7",
    );
    refuse(
        "modern_bert",
        &|file| file.metadata.set("modern-bert.pooling_type", 4u32),
        "invalid model file: tensor cls.output.weight is missing",
    );
    refuse(
        "modern_bert_rank",
        &|file| {
            let key = "modern-bert.classifier.pooling_type";
            file.metadata.set(key, 3u32);
        },
        "unsupported model: modern-bert.classifier.pooling_type is 3",
    );
    refuse(
        "modern_bert_rank",
        &|file| file.tensor("cls.norm.weight").shape = vec![32, 2],
        "invalid model file: tensor cls.norm.weight has shape [32, 2], not [64]",
    );
    refuse(
        "llama_embed",
        &|file| file.metadata.set("llama-embed.attention.causal", true),
        "unsupported model: an encoder whose tokens see only what was before them",
    );
    refuse(
        "qwen2_both_sides",
        &|file| file.metadata.set("qwen2.pooling_type", 4u32),
        "unsupported model: qwen2 models that rank pairs",
    );
    refuse(
        "modern_bert",
        &|file| {
            file.metadata.set("modern-bert.hidden_activation", "swish");
        },
        "unsupported model: modern-bert.hidden_activation is \"swish\"",
    );
    refuse(
        "modern_bert",
        &|file| {
            let name = "blk.1.attn_norm.weight";
            file.tensors.retain(|tensor| tensor.name != name);
        },
        "invalid model file: tensor blk.1.attn_norm.weight is missing",
    );
    refuse(
        "modern_bert_silu",
        &|file| {
            let key = "modern-bert.attention.sliding_window_pattern";
            file.metadata.set(key, vec![true, false]);
        },
        "invalid model file: modern-bert.attention.sliding_window_pattern has 2 entries for 5 layers",
    );
    refuse(
        "gemma_embedding_dense",
        &|file| file.tensor("dense_3.weight").shape.reverse(),
        "invalid model file: tensor dense_3.weight has shape [64, 160], not [160, 160]",
    );
    refuse(
        "gemma_embedding_dense",
        &|file| file.tensor("dense_2.weight").name = "dense_4.weight".into(),
        "invalid model file: tensor dense_3.weight has shape [160, 64], not [64, 64]",
    );
    refuse(
        "eurobert",
        &|file| file.metadata.set("eurobert.attention.causal", true),
        "unsupported model: an encoder whose tokens see only what was before them",
    );
    refuse(
        "eurobert",
        &|file| file.metadata.set("eurobert.attention.head_count_kv", 3u32),
        "invalid model file: eurobert.attention.head_count_kv is 3, which does not divide 4 heads",
    );
    refuse(
        "qwen3_rank",
        &|file| file.tensor("cls.output.weight").shape.reverse(),
        "invalid model file: tensor cls.output.weight has shape [2, 64], not [64, 64]",
    );
    refuse(
        "qwen3_rank",
        &|file| {
            file.tensors
                .retain(|tensor| tensor.name != "cls.output.weight");
        },
        "invalid model file: tensor cls.output.weight is missing",
    );
}

#[test]
fn files_that_lie_are_refused_in_one_line() {
    let refuse = |change: &dyn Fn(&mut File), expected: &str| {
        let mut file = encoder("bert").file();
        change(&mut file);
        let error = load(&file.bytes(), "cpu")
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    };
    let set = |key: &'static str, value: u32| move |file: &mut File| file.metadata.set(key, value);
    refuse(
        &set("bert.block_count", 999),
        "bert.block_count is 999, more than the tensors of the file",
    );
    refuse(
        &set("bert.attention.head_count", 7),
        "bert.attention.head_count is 7, which does not divide 64",
    );
    refuse(&set("bert.attention.head_count_kv", 2), "fewer key heads");
    refuse(&set("bert.pooling_type", 9), "bert.pooling_type is 9");
    refuse(
        &set("bert.pooling_type", 4),
        "tensor cls.output.weight is missing",
    );
    refuse(
        &set("bert.context_length", 500),
        "tensor position_embd.weight has shape",
    );
    refuse(
        &set("bert.feed_forward_length", 100),
        "tensor blk.0.ffn_down.weight has shape",
    );
    refuse(
        &|file| file.metadata.set("bert.attention.causal", true),
        "tokens see only what was before",
    );
    refuse(
        &|file| {
            file.tensors
                .retain(|t| t.name != "blk.2.layer_output_norm.weight");
        },
        "tensor blk.2.layer_output_norm.weight is missing",
    );
    refuse(
        &|file| file.tensor("blk.1.attn_q.bias").name = "blk.1.attn_x.bias".into(),
        "tensor blk.1.attn_x.bias has no meaning in architecture bert",
    );
    let mut moe = encoder("nomic_bert_moe").file();
    moe.metadata.set("nomic-bert-moe.expert_used_count", 7u32);
    let error = load(&moe.bytes(), "cpu")
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("is 7 of 6 experts"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// A vector does not depend, by a single bit, on what it is computed beside, nor on the size of steps.
    #[test]
    fn a_vector_is_what_it_is_alone(
        which in 0..ENCODERS.len() + DECODERS.len() + EMBEDDERS.len(),
        lengths in prop::collection::vec(1usize..70, 1..6),
        step_tokens in 1usize..150,
        seed: u32,
    ) {
        let (name, file, _) = files().swap_remove(which);
        let bytes = file.bytes();
        let mut random = Random::new(&seed.to_string());
        let inputs: Vec<Vec<u32>> = lengths
            .iter()
            .map(|n| (0..*n).map(|_| random.next() as u32 % 90).collect())
            .collect();
        let together = vectors(load(&bytes, "cpu").unwrap(), &inputs, step_tokens);
        for (input, together) in inputs.iter().zip(&together) {
            let alone = vectors(load(&bytes, "cpu").unwrap(), std::slice::from_ref(input), 512);
            prop_assert_eq!(&alone[0], together, "{}", name);
        }
    }
}

#[test]
#[ignore = "writes the input of fixtures/make_embeddings.py"]
fn write_embedding_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny-embeddings");
    fs::create_dir_all(&folder).unwrap();
    for (name, file, inputs) in files() {
        fs::write(folder.join(format!("{name}.gguf")), file.bytes()).unwrap();
        let inputs = serde_json::to_string(&Inputs { inputs }).unwrap();
        fs::write(folder.join(format!("{name}.inputs.json")), inputs).unwrap();
    }
    let adapter = encoder(ADAPTED).adapter().bytes();
    fs::write(folder.join(format!("{ADAPTED}.lora")), adapter).unwrap();
    println!("{}", folder.display());
}

/// Weights of whole numbers meet activations of bytes, those of a floating point more digits.
#[test]
fn an_encoder_is_computed_as_finely_as_its_weights_are() {
    let bytes = ActivationPrecision::Int8;
    for (dtype, finest) in [
        (TensorType::Q8_0, bytes),
        (TensorType::Q4_0, bytes),
        (TensorType::BF16, ActivationPrecision::Int16),
    ] {
        let case = EncoderCase {
            dtype,
            ..encoder("bert")
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        fs::write(&path, case.file().bytes()).unwrap();
        let found = [ActivationPrecision::Auto, bytes, ActivationPrecision::Int16].map(
            |activation_precision| {
                let options = LoadOptions {
                    device: "cpu".into(),
                    activation_precision,
                    ..LoadOptions::default()
                };
                let loaded = llmsrv_models::load(&path, &options).unwrap();
                vectors(loaded, &case.inputs(), 512)
            },
        );
        let [default, in_bytes, fine] = found;
        assert_ne!(in_bytes, fine, "{dtype}");
        let expected = if finest == bytes { in_bytes } else { fine };
        assert_eq!(default, expected, "{dtype}");
    }
}
