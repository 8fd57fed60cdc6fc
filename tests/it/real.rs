//! Real models beside llama.cpp: how far the logits are apart, where greedy texts part, and tools and schemas with
//! a model that was trained for them. `tests/run --real` sets up what is needed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use llmsrv_engine::{
    ActivationPrecision, BlockId, LoadOptions, Loaded, Span, SpanState, StateId, StepPlan,
};
use llmsrv_tokenizer::Special;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::util::{Sandbox, Server};

/// What `tests/clients/real_logits.py` writes beside the logits.
#[derive(Deserialize)]
struct Expected {
    n_vocab: usize,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    text: String,
    tokens: Vec<u32>,
    greedy: Vec<u32>,
    margins: Vec<f32>,
}

/// Positions of a prompt whose logits are kept.
const N_LOGITS: usize = 8;

/// Arithmetic, and the largest means of Kullback-Leibler divergences, in nats: from the distribution of llama.cpp
/// with weights unpacked to f32, and from that of its usual arithmetic, which is itself some 0.007 from the first.
const BOUNDS: [(&str, ActivationPrecision, [f64; 2]); 2] = [
    ("auto", ActivationPrecision::Auto, [0.01, 0.01]),
    ("exact", ActivationPrecision::F32, [0.0001, 0.01]),
];

/// Greedy texts may part where llama.cpp's best token is at most so many nats ahead of its second: with 8-bit
/// activations on both sides, that has been 0.53.
const UNDECIDED: f32 = 0.75;

/// Where `tests/run --real` put models and what llama.cpp computes with them.
fn folder() -> PathBuf {
    let folder = std::env::var_os("TEST_REAL");
    folder
        .expect("TEST_REAL is set by `tests/run --real`")
        .into()
}

#[test]
#[ignore = "needs real models: tests/run --real"]
fn logits_and_greedy_texts_are_those_of_llama_cpp() {
    let named = std::env::var("TEST_REAL_MODELS").expect("TEST_REAL_MODELS is set, too");
    let models: Vec<&Path> = named.lines().map(Path::new).collect();
    assert!(!models.is_empty());
    for model in models {
        let stem = model.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(folder().join(format!("{stem}.json"))).unwrap();
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let read = |ending: &str| {
            let bytes = fs::read(folder().join(format!("{stem}.{ending}"))).unwrap();
            let numbers = bytes.chunks_exact(4);
            let numbers = numbers.map(|x| f32::from_le_bytes(x.try_into().unwrap()));
            numbers.collect::<Vec<f32>>()
        };
        let references = [read("unpacked.f32"), read("f32")];
        let [unpacked, usual] = references
            .each_ref()
            .map(|logits| logits.chunks(expected.n_vocab));
        let theirs: Vec<f64> = unpacked.zip(usual).map(|(a, b)| divergence(a, b)).collect();
        eprintln!("{stem}: llama.cpp itself is {:.5} nats off", mean(&theirs));
        for (arithmetic, precision, bounds) in BOUNDS {
            let options = LoadOptions {
                activation_precision: precision,
                ..LoadOptions::default()
            };
            let loaded = llmsrv_models::load(model, &options).unwrap();
            let found = measure(loaded, &expected, &references);
            let means = found.divergences.each_ref().map(|list| mean(list));
            eprintln!(
                "{stem}, {arithmetic}: {:.6} nats from llama.cpp in f32, {:.5} from llama.cpp, mean over {} positions; {} of {} greedy texts part within {} tokens",
                means[0],
                means[1],
                found.divergences[0].len(),
                found.n_parted,
                expected.prompts.len(),
                expected
                    .prompts
                    .iter()
                    .map(|prompt| prompt.greedy.len())
                    .max()
                    .unwrap(),
            );
            assert!(found.divergences[0].len() > 100);
            for (mean, bound) in means.into_iter().zip(bounds) {
                assert!(mean <= bound, "{stem}, {arithmetic}: {mean} nats");
            }
        }
    }
}

/// How far a model is from llama.cpp's.
#[derive(Default)]
struct Measured {
    /// Nats, one for each position, for each of the references.
    divergences: [Vec<f64>; 2],
    /// Texts of which a token is another one.
    n_parted: usize,
}

fn mean(list: &[f64]) -> f64 {
    list.iter().sum::<f64>() / list.len() as f64
}

/// Computes the logits of all positions behind each prompt, with llama.cpp's tokens before them.
fn measure(mut loaded: Loaded, expected: &Expected, references: &[Vec<f32>; 2]) -> Measured {
    let n_vocab = loaded.model.spec().vocab_size;
    assert_eq!(n_vocab, expected.n_vocab);
    let mut theirs = references.each_ref().map(|logits| logits.chunks(n_vocab));
    let mut measured = Measured::default();
    for prompt in &expected.prompts {
        let tokens = loaded.tokenizer.encode(&prompt.text, Special::ParseAndAdd);
        assert_eq!(tokens, prompt.tokens, "tokens of {:?}", prompt.text);
        let rows = logits_behind(&mut loaded, prompt);
        let mut has_parted = false;
        for (idx, row) in rows.chunks_exact(n_vocab).enumerate() {
            if idx < N_LOGITS {
                for (list, theirs) in measured.divergences.iter_mut().zip(&mut theirs) {
                    list.push(divergence(theirs.next().unwrap(), row));
                }
            }
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            // What follows behind another token is another text.
            if !has_parted && best.unwrap().0 as u32 != prompt.greedy[idx] {
                has_parted = true;
                measured.n_parted += 1;
                let margin = prompt.margins[idx];
                assert!(
                    margin <= UNDECIDED,
                    "another token {idx} behind {:?}, though llama.cpp's is {margin} nats ahead",
                    prompt.text
                );
            }
        }
    }
    assert!(theirs.iter_mut().all(|rows| rows.next().is_none()));
    measured
}

/// One row of logits for each of the tokens that llama.cpp continued with, in one step.
fn logits_behind(loaded: &mut Loaded, prompt: &Prompt) -> Vec<f32> {
    let spec = loaded.model.spec().clone();
    let mut tokens = prompt.tokens.clone();
    let first = tokens.len() - 1;
    tokens.extend(prompt.greedy.iter().take(prompt.greedy.len() - 1));
    let n_blocks = tokens.len().div_ceil(spec.block_size);
    loaded.model.reserve_blocks(n_blocks).unwrap();
    let has_state = spec.state_bytes > 0;
    if has_state {
        loaded.model.reserve_states(1).unwrap();
    }
    let n = tokens.len() as u32;
    let plan = StepPlan {
        positions: (0..n).collect(),
        ends: (1..=n).collect(),
        coordinates: Vec::new(),
        images: Vec::new(),
        spans: vec![Span {
            rows: 0..tokens.len(),
            start: 0,
            blocks: (0..n_blocks as u32).map(BlockId).collect(),
            tail: None,
            state: has_state.then(|| SpanState::new(StateId(0))),
        }],
        logit_rows: (first as u32..n).collect(),
        tokens,
    };
    let mut logits = vec![0.0; prompt.greedy.len() * spec.vocab_size];
    loaded.model.forward(&plan, &mut logits).unwrap();
    logits
}

/// The Kullback-Leibler divergence of the softmax of `found` from that of `reference`, in nats.
fn divergence(reference: &[f32], found: &[f32]) -> f64 {
    let (of_reference, of_found) = (log_sum(reference), log_sum(found));
    let terms = reference.iter().zip(found).map(|(reference, found)| {
        let p = f64::from(*reference) - of_reference;
        p.exp() * (p - (f64::from(*found) - of_found))
    });
    terms.sum()
}

/// The logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// Serves the model that was trained for chats.
fn serve(sandbox: &Sandbox) -> Server {
    let model = folder().join("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
    let modelfile = sandbox.path().join("Modelfile");
    fs::write(&modelfile, format!("FROM {}\n", model.display())).unwrap();
    let modelfile = modelfile.to_str().unwrap();
    sandbox.run(&["create", "real", "-f", modelfile]).ok();
    sandbox.serve()
}

fn weather() -> Value {
    json!([{
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the current weather in a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city"},
                },
                "required": ["city"],
            },
        },
    }])
}

#[tokio::test]
#[ignore = "needs real models: tests/run --real"]
async fn a_real_model_calls_a_tool() {
    let sandbox = Sandbox::new();
    let server = serve(&sandbox);
    let body = json!({
        "model": "real",
        "messages": [{"role": "user", "content": "What is the weather in Paris? Use the tool."}],
        "tools": weather(),
        "tool_choice": "required",
        "temperature": 0,
    });
    let answer = server.post("/v1/chat/completions", &body).await.ok();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "get_weather", "{answer}");
    let arguments = call["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!(
        arguments["city"].as_str().unwrap().contains("Paris"),
        "{answer}"
    );
}

#[tokio::test]
#[ignore = "needs real models: tests/run --real"]
async fn a_real_model_answers_in_a_schema() {
    let sandbox = Sandbox::new();
    let server = serve(&sandbox);
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "population": {"type": "integer", "minimum": 0},
            "continent": {"enum": ["Africa", "America", "Asia", "Europe", "Oceania"]},
        },
        "required": ["name", "population", "continent"],
        "additionalProperties": false,
    });
    let body = json!({
        "model": "real",
        "messages": [{"role": "user", "content": "Describe the city of Paris as JSON."}],
        "format": schema,
        "stream": false,
        "options": {"temperature": 0, "num_predict": 200},
    });
    let answer = server.post("/api/chat", &body).await.ok();
    let content = answer["message"]["content"].as_str().unwrap();
    let found: Value = serde_json::from_str(content).unwrap();
    assert!(jsonschema::is_valid(&schema, &found), "{found}");
    assert_eq!(found["continent"], "Europe");
    assert!(found["name"].as_str().unwrap().contains("Paris"));
}
