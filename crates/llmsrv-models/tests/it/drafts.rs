//! A real draft model changes no token.

use crate::tiny::{CASES, Case};
use llmsrv_engine::{
    EngineOptions, Event, GenRequest, LoadOptions, Loaded, SamplingParams, Speculation, Stats,
    TokenInfo, spawn,
};

fn load(case: &Case, kv_cache_type: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = case.write(folder.path());
    let options = LoadOptions {
        kv_cache_type: kv_cache_type.into(),
        n_threads: 1,
        device: "cpu".into(),
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options).unwrap()
}

/// Two answers in a chat: the second prompt is the first one, its answer, and more.
fn talk(loaded: Loaded, prompt: &[u32], temperature: f32) -> (Vec<TokenInfo>, Stats) {
    let options = EngineOptions {
        speculation: match loaded.draft {
            Some(_) => Speculation::Always(4),
            None => Speculation::Off,
        },
        ..EngineOptions::default()
    };
    let handle = spawn(loaded, options);
    let mut said: Vec<TokenInfo> = Vec::new();
    let mut tokens = prompt.to_vec();
    for _ in 0..2 {
        let request = GenRequest {
            tokens: tokens.clone(),
            images: Vec::new(),
            params: SamplingParams {
                temperature,
                seed: Some(7),
                repeat_penalty: 1.0,
                ..SamplingParams::default()
            },
            num_ctx: 512,
            max_tokens: Some(40),
            stop: Vec::new(),
            num_keep: 0,
            shift: true,
            grammar: None,
            grammar_after: None,
            grammar_unless: None,
            logprobs: Some(2),
        };
        let mut generation = handle.submit(request).unwrap();
        let mut context = loop {
            match generation.blocking_next() {
                Some(Event::Text { tokens, .. }) => said.extend(tokens),
                Some(Event::Done(finish)) => break finish.context,
                other => panic!("{other:?}"),
            }
        };
        context.extend(prompt);
        tokens = context;
    }
    (said, handle.stats())
}

#[test]
fn a_model_that_guesses_for_itself_is_right() {
    for case in CASES.iter().take(4) {
        let [long, short] = case.prompts();
        for kv_cache_type in ["f16", "bf16", "q8_0"] {
            let plain = talk(load(case, kv_cache_type), &long, 0.0);
            let mut pair = load(case, kv_cache_type);
            pair.draft = Some(load(case, kv_cache_type).model);
            let drafted = talk(pair, &long, 0.0);
            assert_eq!(drafted.0, plain.0, "{} {kv_cache_type}", case.name);
            let stats = drafted.1;
            // All but those after the last token.
            assert!(
                stats.drafted_tokens > 20 && stats.accepted_tokens + 8 >= stats.drafted_tokens,
                "{}: {stats:?}",
                case.name
            );
            assert!(stats.steps < plain.1.steps, "{}: {stats:?}", case.name);
        }
        let plain = talk(load(case, "f16"), &short, 0.9);
        let mut pair = load(case, "f16");
        pair.draft = Some(load(case, "q4_0").model);
        assert_eq!(talk(pair, &short, 0.9).0, plain.0, "{}", case.name);
    }
}

#[test]
fn a_model_that_guesses_for_another_one_changes_nothing() {
    for pair in CASES.windows(2).take(6) {
        let [big, small] = pair else { unreachable!() };
        let prompts = big.prompts();
        for temperature in [0.0, 1.0] {
            let plain = talk(load(big, "f16"), &prompts[1], temperature);
            let mut loaded = load(big, "f16");
            loaded.draft = Some(load(small, "f16").model);
            let drafted = talk(loaded, &prompts[1], temperature);
            assert_eq!(drafted.0, plain.0, "{} for {}", small.name, big.name);
            assert!(drafted.1.drafted_tokens > 0);
        }
    }
}
