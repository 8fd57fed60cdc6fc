//! The embedded model against a float32 forward pass that was written independently.

use std::{fs, path::Path};

use crate::tiny::{argmax, plan};
use llmsrv_engine::{ActivationPrecision, BlockId, LoadOptions, Loaded};
use llmsrv_tokenizer::Special;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    stop_ids: Vec<u32>,
    cases: Vec<ReferenceCase>,
}

#[derive(Deserialize)]
struct ReferenceCase {
    name: String,
    prompt: String,
    prompt_ids: Vec<u32>,
    top5_next: Vec<(u32, f32)>,
    greedy_ids: Vec<u32>,
    min_top1_top2_gap: f32,
}

/// Largest error of a logit as a share of the largest logit, with exact arithmetic.
const TOLERANCE: f32 = 1e-3;
/// The same with activations of 8 bits.
const FAST_TOLERANCE: f32 = 3e-2;
/// Below this gap of the best two logits, another order of additions may choose differently.
const CLEAR_GAP: f32 = 0.3;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn load(path: &Path, device: &str, kv_cache_type: &str) -> Loaded {
    load_as(path, device, kv_cache_type, ActivationPrecision::F32)
}

fn load_as(
    path: &Path,
    device: &str,
    kv_cache_type: &str,
    activation_precision: ActivationPrecision,
) -> Loaded {
    let options = LoadOptions {
        kv_cache_type: kv_cache_type.into(),
        n_threads: 2,
        device: device.into(),
        activation_precision,
        ..LoadOptions::default()
    };
    llmsrv_models::load(path, &options).unwrap()
}

/// Checks prompt ids, the five best next tokens and their logits, and the greedy continuation.
/// Returns a summary.
fn check(
    mut loaded: Loaded,
    reference: &str,
    max_new: usize,
    tolerance: f32,
    label: &str,
) -> String {
    let reference: Reference = serde_json::from_str(reference).unwrap();
    let model = &mut *loaded.model;
    let n_vocab = model.spec().vocab_size;
    let n_blocks = 256usize.div_ceil(model.spec().block_size);
    model.reserve_blocks(n_blocks).unwrap();
    let blocks: Vec<BlockId> = (0..n_blocks as u32).map(BlockId).collect();
    let mut logits = vec![0.0; n_vocab];
    let (mut worst, mut n_equal, mut unequal) = (0.0f32, 0, Vec::new());
    for case in &reference.cases {
        let ids = loaded.tokenizer.encode(&case.prompt, Special::Parse);
        assert_eq!(ids, case.prompt_ids, "{label} {}", case.name);
        model
            .forward(&plan(&ids, 0, &blocks, false), &mut logits)
            .unwrap();
        let mut order: Vec<u32> = (0..n_vocab as u32).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        let scale = logits
            .iter()
            .fold(0.0, |max: f32, logit| max.max(logit.abs()));
        for (rank, (id, logit)) in case.top5_next.iter().enumerate() {
            let found = logits[*id as usize];
            let error = (found - logit).abs() / scale;
            worst = worst.max(error);
            assert!(error < tolerance, "{label} {}: {found} {logit}", case.name);
            let ours = logits[order[rank] as usize];
            assert!(
                order[rank] == *id || (ours - found).abs() < tolerance * scale,
                "{label} {}: rank {rank}",
                case.name
            );
        }
        let mut generated = Vec::new();
        let mut position = ids.len();
        while generated.len() < case.greedy_ids.len().min(max_new) {
            let token = argmax(&logits) as u32;
            generated.push(token);
            if reference.stop_ids.contains(&token) {
                break;
            }
            model
                .forward(&plan(&[token], position, &blocks, false), &mut logits)
                .unwrap();
            position += 1;
        }
        let expected = &case.greedy_ids[..case.greedy_ids.len().min(max_new)];
        if generated == expected {
            n_equal += 1;
        } else {
            unequal.push((case.name.as_str(), case.min_top1_top2_gap));
            assert!(case.min_top1_top2_gap < CLEAR_GAP, "{label} {}", case.name);
        }
    }
    format!(
        "{label}: largest relative error {worst:.2e}, {n_equal} of {} continuations equal, \
         others: {unequal:?}",
        reference.cases.len()
    )
}

#[test]
fn embedded_model_agrees_with_the_reference() {
    let path = root().join("assets/embedded/model.gguf");
    let reference = include_str!("../fixtures/Q8_0.json");
    for (device, kv_type, max_new) in [("cpu", "f32", 48), ("cpu", "f16", 48), ("candle", "f32", 4)]
    {
        let label = format!("Q8_0 {device} {kv_type}");
        let loaded = load(&path, device, kv_type);
        println!("{}", check(loaded, reference, max_new, TOLERANCE, &label));
    }
}

/// What the program does with this model unless told otherwise: the same tokens after every prompt.
#[test]
fn the_default_arithmetic_agrees_with_the_reference() {
    let path = root().join("assets/embedded/model.gguf");
    let reference = include_str!("../fixtures/Q8_0.json");
    for kv_type in ["f32", "f16"] {
        let label = format!("Q8_0 default {kv_type}");
        let loaded = load_as(
            &path,
            "cpu",
            kv_type,
            LoadOptions::default().activation_precision,
        );
        let summary = check(loaded, reference, 48, TOLERANCE, &label);
        println!("{summary}");
        assert!(summary.contains("21 of 21"), "{summary}");
    }
}

/// Activations of 8 bits cost about two in a hundred, and nearly always choose the same tokens.
#[test]
fn fast_arithmetic_agrees_with_the_reference() {
    let path = root().join("assets/embedded/model.gguf");
    let reference = include_str!("../fixtures/Q8_0.json");
    for kv_type in ["f32", "f16", "bf16"] {
        let label = format!("Q8_0 fast {kv_type}");
        let loaded = load_as(&path, "cpu", kv_type, ActivationPrecision::Int8);
        println!("{}", check(loaded, reference, 48, FAST_TOLERANCE, &label));
    }
}

#[test]
fn f16_model_agrees_with_the_reference() {
    let path = root().join("../shared/model/llmsrv-tiny-code-F16.gguf");
    if !path.exists() {
        println!("NOT TESTED: the F16 file is not beside the repository ({path:?})");
        return;
    }
    let reference = include_str!("../fixtures/F16.json");
    for kv_type in ["f32", "f16"] {
        let label = format!("F16 cpu {kv_type}");
        let loaded = load(&path, "cpu", kv_type);
        println!("{}", check(loaded, reference, 48, TOLERANCE, &label));
    }
}

/// The other quantisations of the same model run, and mostly say the same.
#[test]
fn other_quantisations_stay_close() {
    for name in ["Q6_K", "Q4_K_M", "Q4_0"] {
        let path = root().join(format!("../shared/model/llmsrv-tiny-code-{name}.gguf"));
        if !path.exists() {
            println!("NOT TESTED: no {name} file beside the repository ({path:?})");
            continue;
        }
        for activation_precision in [
            ActivationPrecision::F32,
            ActivationPrecision::Int16,
            ActivationPrecision::Int8,
        ] {
            let loaded = load_as(&path, "cpu", "f16", activation_precision);
            let n_equal = n_equal(loaded, include_str!("../fixtures/F16.json"));
            println!("{name} {activation_precision:?}: {n_equal} of 21 next tokens equal");
            assert!(n_equal >= 17, "{name} {activation_precision:?}: {n_equal}");
        }
    }
}

/// A cache of few bits loses little.
#[test]
fn quantised_caches_stay_close() {
    let path = root().join("assets/embedded/model.gguf");
    for (kv_type, least) in [("bf16", 21), ("q8_0", 20), ("q4_0", 15)] {
        let loaded = load(&path, "cpu", kv_type);
        let n_equal = n_equal(loaded, include_str!("../fixtures/Q8_0.json"));
        println!("{kv_type} cache: {n_equal} of 21 next tokens equal");
        assert!(n_equal >= least, "{kv_type}: {n_equal}");
    }
}

/// Counts the prompts after which the best next token is that of the reference.
fn n_equal(loaded: Loaded, reference: &str) -> usize {
    let logits = all_logits(loaded, reference);
    let reference: Reference = serde_json::from_str(reference).unwrap();
    let pairs = reference.cases.iter().zip(&logits);
    pairs
        .filter(|(case, logits)| argmax(logits) as u32 == case.top5_next[0].0)
        .count()
}

/// Computes the logits after each prompt.
fn all_logits(mut loaded: Loaded, reference: &str) -> Vec<Vec<f32>> {
    let reference: Reference = serde_json::from_str(reference).unwrap();
    let model = &mut *loaded.model;
    let logits = reference.cases.iter().map(|case| {
        let mut logits = vec![0.0; model.spec().vocab_size];
        let n_blocks = case.prompt_ids.len().div_ceil(model.spec().block_size);
        model.reserve_blocks(n_blocks).unwrap();
        let blocks: Vec<BlockId> = (0..n_blocks as u32).map(BlockId).collect();
        let step = plan(&case.prompt_ids, 0, &blocks, false);
        model.forward(&step, &mut logits).unwrap();
        logits
    });
    logits.collect()
}

/// That of the embedded model is made with it, in assets/embedded/train.
#[test]
fn the_f16_fixture_is_the_one_beside_the_file() {
    match fs::read_to_string(root().join("../shared/model/reference/F16.json")) {
        Ok(original) => assert_eq!(original, include_str!("../fixtures/F16.json")),
        Err(_) => println!("NOT TESTED: F16.json is not beside the repository"),
    }
}
