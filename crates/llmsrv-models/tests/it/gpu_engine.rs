//! The engine on models that a GPU computes: company, a prefix cache, drafts and grammars change no bit.

use llmsrv_engine::{
    EngineOptions, Event, FinishReason, GenRequest, Generation, GrammarSpec, Handle, LoadOptions,
    Loaded, Offload, SamplingParams, Speculation, TokenInfo, spawn,
};

use crate::{
    equivalence::SOFTWARE,
    tiny::{CASES, Case, Random},
};

/// Loads a case with its last layers on a GPU, or all.
fn load(case: &Case, n_layers: Option<usize>) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions {
        device: "vulkan".into(),
        gpu: SOFTWARE,
        n_threads: 1,
        offload: Offload {
            n_layers,
            ..Offload::default()
        },
        ..LoadOptions::default()
    };
    llmsrv_models::load(&case.write(folder.path()), &options).unwrap()
}

/// What a request gave.
#[derive(Debug, PartialEq)]
struct Answer {
    text: String,
    /// With their probabilities.
    tokens: Vec<TokenInfo>,
    reason: FinishReason,
    context: Vec<u32>,
}

fn answer(mut generation: Generation) -> Answer {
    let (mut text, mut tokens) = (String::new(), Vec::new());
    loop {
        match generation.blocking_next() {
            Some(Event::Text {
                text: more,
                tokens: said,
            }) => {
                text += &more;
                tokens.extend(said);
            }
            Some(Event::Done(finish)) => {
                return Answer {
                    text,
                    tokens,
                    reason: finish.reason,
                    context: finish.context,
                };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Requests whose prompts begin alike, some with a format, some drawn at random.
fn requests(case: &Case) -> Vec<GenRequest> {
    let mut random = Random::new(case.name);
    let mut tokens = |n: usize| -> Vec<u32> { (0..n).map(|_| random.next() as u32 % 90).collect() };
    let beginnings = [tokens(70), tokens(35)];
    let formats = [
        None,
        Some(GrammarSpec::JsonSchema(serde_json::json!({
            "type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2,
        }))),
        Some(GrammarSpec::Regex("(yes|no)-[0-9]{3}".into())),
    ];
    let requests = (0..9).map(|n| {
        let format = formats[n % 3].clone();
        let end = tokens(n % 4);
        GenRequest {
            tokens: [&beginnings[n % 2][..], &end].concat(),
            images: Vec::new(),
            params: SamplingParams {
                temperature: if n % 4 == 1 { 1.0 } else { 0.0 },
                seed: Some(n as u64),
                ..SamplingParams::default()
            },
            num_ctx: 512,
            max_tokens: Some(if format.is_some() { 60 } else { 12 }),
            stop: Vec::new(),
            num_keep: 0,
            shift: true,
            grammar: format,
            grammar_after: None,
            grammar_unless: None,
            logprobs: Some(1),
        }
    });
    requests.collect()
}

fn check(name: &str, n_layers: Option<usize>, drafts: bool) {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let requests = requests(case);
    let plain = EngineOptions {
        max_sequences: 1,
        prefix_cache: false,
        speculation: Speculation::Off,
        ..EngineOptions::default()
    };
    let alone = spawn(load(case, n_layers), plain);
    let ask = |engine: &Handle, request: &GenRequest| engine.submit(request.clone()).unwrap();
    let expected: Vec<Answer> = requests
        .iter()
        .map(|request| answer(ask(&alone, request)))
        .collect();
    assert_eq!(alone.stats().prefix_hit_tokens, 0);
    for (request, answer) in requests.iter().zip(&expected) {
        let is_right = match request.grammar {
            None => true,
            Some(GrammarSpec::Regex(_)) => {
                answer.text.starts_with("yes-") || answer.text.starts_with("no-")
            }
            Some(_) => serde_json::from_str::<Vec<bool>>(&answer.text).is_ok(),
        };
        assert!(is_right, "{name}: {answer:?}");
    }

    let options = EngineOptions {
        max_sequences: 4,
        // Prompts are computed in pieces, beside answers.
        step_tokens: 24,
        speculation: if drafts {
            Speculation::Always(3)
        } else {
            Speculation::Off
        },
        ..EngineOptions::default()
    };
    let mut loaded = load(case, n_layers);
    if drafts {
        // One that is nearly always right.
        loaded.draft = Some(load(case, None).model);
    }
    let together = spawn(loaded, options);
    // When they come again their prompts are in the cache.
    for round in 0..2 {
        let running: Vec<Generation> = requests
            .iter()
            .map(|request| ask(&together, request))
            .collect();
        for ((n, generation), expected) in running.into_iter().enumerate().zip(&expected) {
            assert_eq!(answer(generation), *expected, "{name}: {n}, round {round}");
        }
    }
    let stats = together.stats();
    assert!(stats.prefix_hit_tokens > 9 * 32, "{name}: {stats:?}");
    if drafts {
        assert!(stats.accepted_tokens > 20, "{name}: {stats:?}");
    }
}

#[test]
fn company_changes_no_bit_of_a_dense_model() {
    check("llama", None, true);
}

#[test]
fn company_changes_no_bit_of_a_model_with_windows() {
    check("gemma3_listed", None, true);
}

#[test]
fn company_changes_no_bit_of_a_mixture_of_experts_in_two_places() {
    check("qwen3moe", Some(2), true);
}

#[test]
fn company_changes_no_bit_of_a_model_with_states() {
    check("lfm2", None, false);
}
