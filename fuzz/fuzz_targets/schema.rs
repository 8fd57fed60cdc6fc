//! Any bytes as the schema, the regular expression or the grammar of an answer: it is followed for a
//! few tokens, or refused in one line, and soon.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use llmsrv_engine::{
    EngineOptions, GenRequest, GrammarSpec, Handle, SamplingParams, SubmitError,
    fake::{self, Answer, FakeOptions},
    spawn,
};

static ENGINE: LazyLock<Handle> = LazyLock::new(|| {
    let model = FakeOptions {
        answer: Answer::Random,
        ..FakeOptions::default()
    };
    spawn(fake::loaded(model), EngineOptions::default())
});

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    let grammar = match kind {
        "schema" | "strict" => {
            let Ok(schema) = serde_json::from_str(text) else {
                return;
            };
            if kind == "strict" {
                GrammarSpec::StrictJsonSchema(schema)
            } else {
                GrammarSpec::JsonSchema(schema)
            }
        }
        "regex" => GrammarSpec::Regex(text.to_owned()),
        "lark" => GrammarSpec::Lark(text.to_owned()),
        _ => return,
    };
    let request = GenRequest {
        tokens: vec![1],
        images: Vec::new(),
        params: SamplingParams::default(),
        num_ctx: 64,
        max_tokens: Some(16),
        stop: Vec::new(),
        num_keep: 0,
        shift: false,
        grammar: Some(grammar),
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
    };
    match ENGINE.submit(request) {
        Ok(mut generation) => while generation.blocking_next().is_some() {},
        Err(SubmitError::Grammar(text)) => assert!(!text.contains('\n'), "{text}"),
        Err(error) => panic!("{error}"),
    }
});
