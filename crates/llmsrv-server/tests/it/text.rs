//! What reaches the model and what comes back.

use http::Method;
use llmsrv_engine::fake::{Answer, FakeOptions};
use serde_json::{Value, json};

use crate::host::{Host, host, host_with, saying, settings};

/// Asks for a stream; returns its objects.
async fn lines(host: &Host, path: &str, body: &Value) -> Vec<Value> {
    let (status, text) = host.text(Method::POST, path, body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn own_system_and_messages_stand_before_those_of_the_request() {
    let host = host();
    let chat = |messages: Value| ("/api/chat", json!({"messages": messages}));
    let generate = |body: Value| ("/api/generate", body);
    for ((path, mut body), prompt) in [
        (
            chat(json!([{"role": "user", "content": "x"}])),
            "[system:Own.][user:q][assistant:a][user:x]",
        ),
        (
            chat(json!([{"role": "System", "content": "S"}, {"role": "user", "content": "x"}])),
            "[user:q][assistant:a][system:S][user:x]",
        ),
        (
            generate(json!({"prompt": "x"})),
            "[system:Own.][user:q][assistant:a][user:x]",
        ),
        (
            generate(json!({"prompt": "x", "system": "S"})),
            "[system:S][user:q][assistant:a][user:x]",
        ),
        (
            generate(json!({"prompt": "x", "context": [72, 105]})),
            "Hi[system:Own.][user:x]",
        ),
        (generate(json!({"prompt": "x", "raw": true})), "x"),
    ] {
        body["model"] = json!("speaker");
        body["_debug_render_only"] = json!(true);
        let (status, answer) = host.post(path, body.clone()).await;
        assert_eq!(status, 200, "{answer}");
        let shown = json!({"rendered_template": prompt, "image_count": 0});
        assert_eq!(answer["_debug_info"], shown, "{body}");
        assert_eq!(answer["done"], false);
    }
}

#[tokio::test]
async fn the_context_goes_out_and_comes_back() {
    let host = saying("Yes.");
    let (_, first) = host.ask(json!({"prompt": "one"})).await;
    let context = first["context"].as_array().unwrap().len();
    let (_, second) = host
        .ask(json!({"prompt": "two", "context": first["context"]}))
        .await;
    let counts = |answer: &Value| answer["prompt_eval_count"].as_u64().unwrap();
    assert_eq!(counts(&second), counts(&first) + context as u64);
    assert!(second["context"].as_array().unwrap().len() > context);
    let (_, raw) = host.ask(json!({"raw": true})).await;
    assert!(raw.get("context").is_none());
}

#[tokio::test]
async fn a_stream_splits_thinking_from_content() {
    let host = saying("<think>hm, so</think>\n\nYes.");
    for (path, place) in [("/api/generate", ""), ("/api/chat", "/message")] {
        let body = json!({"model": "thinker", "prompt": "x", "messages": [{"role": "user", "content": "x"}]});
        let lines = lines(&host, path, &body).await;
        let content = if place.is_empty() {
            "response"
        } else {
            "content"
        };
        let join = |field: &str| -> String {
            let texts = lines
                .iter()
                .map(|line| line.pointer(&format!("{place}/{field}")));
            texts.filter_map(|text| text?.as_str()).collect()
        };
        assert_eq!(
            (join("thinking"), join(content)),
            ("hm, so".into(), "Yes.".into())
        );
        for line in &lines {
            assert!(
                line.pointer(&format!("{place}/{content}")).is_some(),
                "{line}"
            );
        }
    }
}

#[tokio::test]
async fn calls_come_whole_and_before_the_end() {
    let host = saying(concat!(
        r#"<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#,
        r#"<tool_call>{"name":"add","arguments":{"a":2}}</tool_call>"#
    ));
    let tools = json!([{"type": "function", "function": {"name": "add"}}]);
    let body =
        json!({"model": "caller", "messages": [{"role": "user", "content": "x"}], "tools": tools});
    let lines = lines(&host, "/api/chat", &body).await;
    let (last, before) = lines.split_last().unwrap();
    let calls: Vec<&Value> = before
        .iter()
        .filter_map(|line| line["message"]["tool_calls"].as_array())
        .flatten()
        .collect();
    let told: Vec<Value> = calls
        .iter()
        .map(|call| {
            json!([
                call["function"]["index"],
                call["function"]["arguments"]["a"]
            ])
        })
        .collect();
    assert_eq!(told, [json!([0, 1]), json!([1, 2])]);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert!(last["message"].get("tool_calls").is_none());
    assert_eq!(
        (&last["done_reason"], &last["message"]),
        (&json!("stop"), &json!({"role": "assistant", "content": ""}))
    );
}

#[tokio::test]
async fn a_failure_in_the_stream_is_its_last_line() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Text("alpha beta gamma".into()),
        fail_on: Some("beta".into()),
        ..FakeOptions::default()
    });
    let body = json!({"model": "plain", "prompt": "x"});
    let lines = lines(&host, "/api/generate", &body).await;
    let (last, before) = lines.split_last().unwrap();
    assert!(!before.is_empty());
    assert!(before.iter().all(|line| line["done"] == false), "{lines:?}");
    assert!(
        last["error"].is_string() && last.get("done").is_none(),
        "{last}"
    );
}

#[tokio::test]
async fn the_format_binds_the_answer() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Random,
        ..FakeOptions::default()
    });
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": false});
    let (status, answer) = host.ask(json!({"format": schema})).await;
    assert_eq!(status, 200, "{answer}");
    let text = answer["response"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap();
    assert!(value["a"] == "x" || value["a"] == "y", "{text}");
    for format in [json!(5), json!(["json"]), json!({"type": "nonsense"})] {
        let (status, answer) = host.ask(json!({"format": format})).await;
        assert_eq!(status, 400, "{format}: {answer}");
    }
}
