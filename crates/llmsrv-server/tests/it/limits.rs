//! Contexts that are full, and bodies nobody foresaw.

use http::Method;
use llmsrv_engine::fake::{Answer, FakeOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::host::{host, host_with, saying, settings};

#[tokio::test]
async fn a_prompt_too_long_is_cut_or_refused() {
    let host = saying("ok");
    let text = "word ".repeat(100);
    for (path, extra, status) in [
        ("/api/generate", json!({}), 200),
        ("/api/chat", json!({}), 200),
        ("/api/generate", json!({"shift": false}), 400),
        ("/api/chat", json!({"shift": false}), 400),
        ("/api/chat", json!({"truncate": false}), 400),
        ("/api/generate", json!({"truncate": false}), 400),
    ] {
        let mut body = json!({"model": "plain", "stream": false, "prompt": text, "messages": [{"role": "user", "content": text}], "options": {"num_ctx": 100}});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let (got, answer) = host.post(path, body).await;
        assert_eq!(got, status, "{path} {extra}: {answer}");
        if status == 200 {
            let n_prompt = answer["prompt_eval_count"].as_u64().unwrap();
            assert!(n_prompt < 100, "{answer}");
            assert!(
                answer["prompt_truncated"].as_u64().unwrap() > 400,
                "{answer}"
            );
        }
    }
}

/// The model has a token for each byte, which nobody who did not look at the text would guess.
#[tokio::test]
async fn a_prompt_far_too_long_is_cut_or_refused_before_it_is_read() {
    let host = saying("ok");
    let text = "x".repeat(4 << 20);
    let messages = json!([
        {"role": "user", "content": text},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": text},
    ]);
    for path in [
        "/api/generate",
        "/api/chat",
        "/v1/chat/completions",
        "/v1/completions",
    ] {
        for truncate in [true, false] {
            let body = json!({
                "model": "plain", "stream": false, "prompt": text, "messages": messages,
                "options": {"num_ctx": 100}, "num_ctx": 100, "truncate": truncate,
            });
            let (status, answer) = host.post(path, body).await;
            assert_eq!(status == 200, truncate, "{path}: {answer}");
            if truncate {
                let usage = answer.get("usage").unwrap_or(&answer);
                let n_truncated = usage["prompt_truncated"].as_u64().unwrap();
                assert!(
                    (1 << 20..3 << 20).contains(&n_truncated),
                    "{path}: {answer}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_full_context_ends_the_answer_unless_it_may_shift() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Endless,
        ..FakeOptions::default()
    });
    let ask =
        |shift: bool| json!({"shift": shift, "options": {"num_ctx": 100, "num_predict": 200}});
    let (_, cut) = host.ask(ask(false)).await;
    let (_, shifted) = host.ask(ask(true)).await;
    assert_eq!(
        (&cut["done_reason"], &shifted["done_reason"]),
        (&json!("length"), &json!("length"))
    );
    assert!(cut["eval_count"].as_u64().unwrap() < 100, "{cut}");
    assert_eq!(shifted["eval_count"], 200);
    // A prompt that is to stay as a whole leaves room, too.
    let text = "word ".repeat(18);
    let keep =
        json!({"prompt": text, "options": {"num_ctx": 100, "num_predict": 200, "num_keep": -1}});
    let (_, kept) = host.ask(keep).await;
    assert_eq!(kept["eval_count"], 200, "{kept}");
}

/// Any JSON value, not deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z{}.\"\\\\ é]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("(role|content|type|function|name|x)", inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

const MEMBERS: &str = "(prompt|suffix|system|template|context|raw|format|images|messages|tools|options|keep_alive|think|truncate|shift|logprobs|top_logprobs|stream|_debug_render_only|verbose)";
const OPTIONS: &str = "(num_ctx|num_keep|seed|temperature|top_n_sigma|top_k|top_p|min_p|typical_p|repeat_last_n|repeat_penalty|presence_penalty|frequency_penalty|stop|num_gpu|use_mmap)";

#[test]
fn any_members_are_answered_without_a_server_error() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let host = host();
    let cases = (
        prop::collection::vec((MEMBERS, any_json()), 0..4),
        prop::collection::vec(
            (
                OPTIONS,
                prop_oneof![
                    any::<i64>().prop_map(Value::from),
                    any::<f64>().prop_map(Value::from),
                    any_json()
                ],
            ),
            0..3,
        ),
        "(plain|thinker|caller|filler|speaker)",
    );
    let config = ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |((members, options, model) in cases)| {
        let mut body = json!({"prompt": "x", "messages": [{"role": "user", "content": "x"}]});
        let mut all: serde_json::Map<String, Value> = options.into_iter().collect();
        all.insert("num_predict".into(), json!(2));
        body["options"] = Value::Object(all);
        for (name, value) in members {
            body[name] = value;
        }
        body["model"] = json!(model);
        for path in ["/api/generate", "/api/chat", "/api/show", "/api/copy"] {
            let (status, text) = runtime.block_on(host.text(Method::POST, path, body.to_string()));
            prop_assert!(status < 500 && !text.contains("\n{\"error\""), "{path} {body}: {status} {text}");
        }
    });
}
