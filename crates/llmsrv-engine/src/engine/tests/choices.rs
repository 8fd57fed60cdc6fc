//! What a client may say about the choice of tokens: bias, seed, stop texts, all with a grammar, too.

use super::*;
use crate::GrammarSpec;

fn byte(text: &str) -> TokenId {
    TokenId::from(text.as_bytes()[0])
}

fn biased(answer: &str, grammar: Option<&str>, bias: &[(&str, f32)]) -> String {
    let request = GenRequest {
        grammar: grammar.map(|pattern| GrammarSpec::Regex(pattern.into())),
        params: SamplingParams {
            seed: Some(1),
            logit_bias: bias
                .iter()
                .map(|(text, bias)| (byte(text), *bias))
                .collect(),
            ..SamplingParams::default()
        },
        max_tokens: Some(4),
        ..request("go")
    };
    alone(&answering(answer), &request).text
}

#[test]
fn a_bias_bans_and_forces_tokens() {
    assert_eq!(biased("abc", None, &[]), "abc");
    assert!(!biased("abc", None, &[("b", -100.0)]).contains('b'));
    assert_eq!(biased("abc", None, &[("x", 100.0)]), "xxxx");
    // Bias that is no number is as none.
    assert_eq!(
        biased("abc", None, &[("x", f32::NAN), ("y", f32::INFINITY)]),
        "abc"
    );
    // Within a grammar it chooses among what is allowed.
    assert_eq!(biased("1111", Some("[12]{3}"), &[("1", -100.0)]), "222");
    assert_eq!(biased("1111", Some("[12]{3}"), &[("x", 100.0)]), "111");
    assert_eq!(biased("x", Some("[1]{3}"), &[("1", -100.0)]), "111");
    assert_eq!(biased("1111", Some("[12]{3}"), &[("2", 100.0)]), "222");
}

#[test]
fn a_stop_text_ends_an_answer_in_a_grammar() {
    let schema = serde_json::json!({"type": "string"});
    let request = GenRequest {
        grammar: Some(GrammarSpec::JsonSchema(schema)),
        stop: vec!["END".into()],
        ..request("go")
    };
    let output = alone(&answering("\"one END two\""), &request);
    assert_eq!(output.text, "\"one ");
    let finish = output.finish.unwrap();
    assert_eq!(finish.reason, FinishReason::Stop);
    assert_eq!(finish.stop_text.as_deref(), Some("END"));
}

/// The same seed gives the same text with a grammar and a bias, whoever else is served.
#[test]
fn a_seed_fixes_the_text_under_load() {
    let schema = serde_json::json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 12},
        "n": {"type": "integer", "minimum": 0, "maximum": 9999},
    }, "required": ["name", "n"], "additionalProperties": false});
    let one = |seed: u64| GenRequest {
        grammar: seed
            .is_multiple_of(2)
            .then(|| GrammarSpec::JsonSchema(schema.clone())),
        params: SamplingParams {
            seed: Some(seed),
            temperature: 5.0,
            top_n_sigma: if seed.is_multiple_of(3) { 2.0 } else { 0.0 },
            top_k: 0,
            top_p: 1.0,
            logit_bias: vec![(byte("\""), 10.0)],
            ..SamplingParams::default()
        },
        max_tokens: Some(400),
        logprobs: Some(1),
        ..request("go")
    };
    let fake = FakeOptions {
        answer: Answer::Random,
        ..FakeOptions::default()
    };
    let mut busy = engine(fake, EngineOptions::default());
    let mut running: Vec<_> = (0..12)
        .map(|seed| submit(&mut busy, &one(seed % 6)))
        .collect();
    finish_all(&mut busy);
    for (seed, events) in (0..).zip(&mut running) {
        let together = Output::read(events);
        let single = alone(&Answer::Random, &one(seed % 6));
        together.assert_same(&single);
        if seed % 2 == 0 {
            assert!(serde_json::from_str::<serde_json::Value>(&together.text).is_ok());
        }
    }
}
