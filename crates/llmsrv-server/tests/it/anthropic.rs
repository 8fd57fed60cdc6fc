//! `/v1/messages`: what requests say and answers hold.

use base64::Engine as _;
use http::Method;
use llmsrv_engine::fake::{Answer, FakeOptions};
use serde_json::{Value, json};

use crate::{
    dialects::{events, user},
    host::{Host, host, host_with, saying, settings},
};

const TOOLS: &str = r#"[{"name": "add", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]"#;

fn with(mut body: Value, members: Value) -> Value {
    let Value::Object(members) = members else {
        return body;
    };
    body.as_object_mut().unwrap().extend(members);
    body
}

async fn ok(host: &Host, body: Value) -> Value {
    let (status, answer) = host.post("/v1/messages", body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn a_message_has_every_member() {
    let answer = ok(&saying("Yes."), user("plain")).await;
    let members: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        [
            "id",
            "type",
            "role",
            "model",
            "content",
            "stop_reason",
            "stop_sequence",
            "usage"
        ]
    );
    assert_eq!(answer["type"], "message");
    assert_eq!(answer["role"], "assistant");
    assert_eq!(answer["model"], "plain");
    assert_eq!(answer["stop_sequence"], Value::Null);
    assert_eq!(answer["usage"]["output_tokens"], 5);
    assert!(answer["usage"]["input_tokens"].as_u64().unwrap() > 0);
    // Nothing said is an empty list.
    let silent = ok(&saying(""), user("plain")).await;
    assert_eq!(silent["content"], json!([]));
}

#[tokio::test]
async fn a_stream_tells_the_tokens_at_both_ends() {
    let host = saying("Yes.");
    let whole = ok(&host, user("plain")).await;
    let events = events(&host, "/v1/messages", user("plain")).await;
    let (name, start) = &events[0];
    assert_eq!(name, "message_start");
    let message = &start["message"];
    assert_eq!(message["content"], json!([]));
    assert_eq!(message["stop_reason"], Value::Null);
    assert_eq!(
        message["usage"]["input_tokens"],
        whole["usage"]["input_tokens"]
    );
    let (name, delta) = &events[events.len() - 2];
    assert_eq!(name, "message_delta");
    assert_eq!(
        delta["delta"],
        json!({"stop_reason": "end_turn", "stop_sequence": null})
    );
    assert_eq!(delta["usage"], whole["usage"]);
}

#[tokio::test]
async fn a_call_in_a_stream_is_a_block_of_its_own() {
    let host = saying(r#"Wait.<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#);
    let tools: Value = serde_json::from_str(TOOLS).unwrap();
    let events = events(
        &host,
        "/v1/messages",
        with(user("caller"), json!({"tools": tools})),
    )
    .await;
    let starts: Vec<(&Value, &Value)> = events
        .iter()
        .filter(|(name, _)| name == "content_block_start")
        .map(|(_, data)| (&data["index"], &data["content_block"]["type"]))
        .collect();
    assert_eq!(
        starts,
        [(&json!(0), &json!("text")), (&json!(1), &json!("tool_use"))]
    );
    let open = events
        .iter()
        .filter_map(|(_, data)| data["content_block"].as_object())
        .find(|block| block["type"] == "tool_use")
        .unwrap();
    assert_eq!(open["input"], json!({}));
    assert!(open["id"].as_str().unwrap().starts_with("call_"));
    let delta = &events[events.len() - 2].1["delta"];
    assert_eq!(delta["stop_reason"], "tool_use");
}

#[tokio::test]
async fn a_model_that_cannot_think_answers_without() {
    let host = saying("Yes.");
    for thinking in [
        json!({"type": "enabled", "budget_tokens": 1024}),
        json!({"type": "adaptive"}),
        json!({"type": "disabled"}),
    ] {
        let answer = ok(&host, with(user("plain"), json!({"thinking": thinking}))).await;
        assert_eq!(answer["content"], json!([{"type": "text", "text": "Yes."}]));
    }
    let (status, _) = host
        .post(
            "/v1/messages",
            with(user("plain"), json!({"thinking": {"type": "x"}})),
        )
        .await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn headers_of_the_service_change_nothing() {
    let headers = [
        ("x-api-key", "dummy"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "x,y"),
        ("anthropic-dangerous-direct-browser-access", "true"),
    ];
    let response = saying("Yes.")
        .send(
            Method::POST,
            "/v1/messages",
            &headers,
            user("plain").to_string(),
        )
        .await;
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn system_and_content_are_texts_or_blocks() {
    let host = host();
    let blocks = |text: &str| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    let count = async |system: Value, content: Value| {
        let body = json!({"model": "plain", "max_tokens": 1, "system": system, "messages": [{"role": "user", "content": content}]});
        ok(&host, body).await["usage"]["input_tokens"].clone()
    };
    let plain = count(json!("S"), json!("q")).await;
    assert_eq!(count(blocks("S"), json!("q")).await, plain);
    assert_eq!(count(json!("S"), blocks("q")).await, plain);
    let two = json!([{"type": "text", "text": "q"}, {"type": "made_up"}, {"type": "thinking", "thinking": ""}]);
    assert_eq!(count(json!("S"), two).await, plain);
    assert!(count(json!(null), json!("q")).await.as_u64() < plain.as_u64());
    // What Claude Code writes for the accounts of Anthropic is no part of the prompt.
    let accounted = json!([
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.e77; cc_entrypoint=cli;"},
        {"type": "text", "text": "S"},
    ]);
    assert_eq!(count(accounted, json!("q")).await, plain);
    for (content, text) in [
        (
            json!(5),
            "messages: content must be a string or a list of blocks",
        ),
        (json!(null), "messages: content is required"),
        (json!(["x"]), "messages: a block must be an object"),
        (
            json!([{"type": "image", "source": {"type": "url", "url": "http://x"}}]),
            "an image needs a source of type \"base64\" with its data",
        ),
    ] {
        let body = json!({"model": "plain", "max_tokens": 1, "messages": [{"role": "user", "content": content}]});
        let (status, answer) = host.post("/v1/messages", body).await;
        assert_eq!((status, &answer["error"]["message"]), (400, &json!(text)));
    }
}

#[tokio::test]
async fn results_of_tools_hold_texts_and_images() {
    let host = host_with(settings(), || FakeOptions {
        image_rows: 16,
        answer: Answer::Text("ok".into()),
        ..FakeOptions::default()
    });
    let data = base64::engine::general_purpose::STANDARD.encode("image of a cat");
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    let count = async |content: Value| {
        let body = json!({"model": "caller", "max_tokens": 1, "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": content}]},
        ]});
        ok(&host, body).await["usage"]["input_tokens"]
            .as_u64()
            .unwrap()
    };
    let text = count(json!("seen")).await;
    assert_eq!(count(json!([{"type": "text", "text": "seen"}])).await, text);
    let with_picture = count(json!([{"type": "text", "text": "seen"}, picture])).await;
    assert_eq!(with_picture, text + 18);
}

#[tokio::test]
async fn the_choice_of_tools_is_kept() {
    let host = saying("I would rather talk.");
    let tools: Value = serde_json::from_str(TOOLS).unwrap();
    for (choice, calls) in [
        (json!(null), false),
        (json!({"type": "auto"}), false),
        (json!({"type": "none"}), false),
        (
            json!({"type": "any", "disable_parallel_tool_use": true}),
            true,
        ),
        (
            json!({"type": "tool", "name": "add", "disable_parallel_tool_use": true}),
            true,
        ),
    ] {
        let body = with(
            user("caller"),
            json!({"tools": tools, "tool_choice": choice, "temperature": 0}),
        );
        let answer = ok(&host, body).await;
        assert_eq!(
            answer["stop_reason"] == "tool_use",
            calls,
            "{choice}: {answer}"
        );
        assert_eq!(
            answer["content"][0]["type"] == "tool_use",
            calls,
            "{choice}"
        );
    }
    for choice in [
        json!({"type": "tool", "name": "other"}),
        json!({"type": "all"}),
    ] {
        let body = with(
            user("caller"),
            json!({"tools": tools, "tool_choice": choice}),
        );
        assert_eq!(host.post("/v1/messages", body).await.0, 400, "{choice}");
    }
}

#[tokio::test]
async fn tokens_are_counted_without_running_anything() {
    let host = host_with(settings(), || FakeOptions {
        fail_on: Some("q".into()),
        ..FakeOptions::default()
    });
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": "q"}]});
    let (status, counted) = host.post("/v1/messages/count_tokens", body).await;
    assert_eq!((status, counted), (200, json!({"input_tokens": 20})));
    let (status, error) = host
        .post("/v1/messages/count_tokens", json!({"model": "plain"}))
        .await;
    assert_eq!(
        (status, &error["error"]["message"]),
        (400, &json!("messages is required"))
    );
}
