//! The dialects of the cloud services, over what a fake model says.

use http::Method;
use llmsrv_engine::fake::{Answer, FakeOptions};
use serde_json::{Value, json};

use crate::host::{Host, host, host_with, saying, settings};

const CALL: &str = r#"<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#;

/// One server-sent event: its name and its data.
pub(crate) type Event = (String, Value);

/// Asks for a stream; returns its events, `[DONE]` as a text.
pub(crate) async fn events(host: &Host, path: &str, mut body: Value) -> Vec<Event> {
    body["stream"] = json!(true);
    let response = host.send(Method::POST, path, &[], body.to_string()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let bytes = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap();
    let text = String::from_utf8(bytes.to_bytes().to_vec()).unwrap();
    assert!(text.ends_with("\n\n"), "{text}");
    let event = |block: &str| {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data: ").unwrap();
        let data = serde_json::from_str(data).unwrap_or_else(|_| json!(data));
        (field("event: ").unwrap_or_default().to_owned(), data)
    };
    text.trim_end().split("\n\n").map(event).collect()
}

pub(crate) fn user(model: &str) -> Value {
    json!({"model": model, "max_tokens": 200, "messages": [{"role": "user", "content": "x"}]})
}

fn with_tools(mut body: Value) -> Value {
    body["tools"] = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]);
    body
}

#[tokio::test]
async fn a_chat_completion_is_whole() {
    let host = saying("Yes.");
    let (status, answer) = host.post("/v1/chat/completions", user("plain")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(
        answer["choices"],
        json!([{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}])
    );
    let usage = &answer["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(
        count("total_tokens"),
        count("prompt_tokens") + count("completion_tokens")
    );
    assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
}

#[tokio::test]
async fn a_chat_stream_has_the_order_that_clients_expect() {
    let host = saying("<think>hm</think>Yes.");
    let mut body = user("thinker");
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&host, "/v1/chat/completions", body).await;
    let data: Vec<&Value> = events.iter().map(|(_, data)| data).collect();
    assert!(events.iter().all(|(name, _)| name.is_empty()));
    let (done, chunks) = data.split_last().unwrap();
    assert_eq!(**done, json!("[DONE]"));
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert!(usage["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
    let (finish, chunks) = chunks.split_last().unwrap();
    assert_eq!(
        finish["choices"],
        json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    );
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let join = |field: &str| -> String {
        let texts = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"][field]);
        texts.filter_map(Value::as_str).collect()
    };
    assert_eq!(
        (join("reasoning"), join("content")),
        ("hm".into(), "Yes.".into())
    );
    for chunk in data.iter().filter(|chunk| chunk.is_object()) {
        assert_eq!(chunk["id"], data[0]["id"]);
        assert_eq!(chunk["created"], data[0]["created"]);
        assert_eq!(chunk["object"], "chat.completion.chunk");
    }
}

#[tokio::test]
async fn calls_are_whole_and_their_arguments_text() {
    let host = saying(CALL);
    let body = with_tools(user("caller"));
    let (_, answer) = host.post("/v1/chat/completions", body.clone()).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        call["function"],
        json!({"name": "add", "arguments": "{\"a\":1}"})
    );

    let events = events(&host, "/v1/chat/completions", body).await;
    let calls: Vec<&Value> = events
        .iter()
        .filter_map(|(_, data)| data["choices"][0]["delta"]["tool_calls"].as_array())
        .flatten()
        .collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0]["index"], &calls[0]["function"]["arguments"]),
        (&json!(0), &json!("{\"a\":1}"))
    );
}

/// Renders the prompt of a request of another dialect by what reaches the model.
async fn prompt_tokens(host: &Host, path: &str, body: Value) -> u64 {
    let (status, answer) = host.post(path, body).await;
    assert_eq!(status, 200, "{answer}");
    let usage = &answer["usage"];
    let count = usage["prompt_tokens"]
        .as_u64()
        .or(usage["input_tokens"].as_u64());
    count.unwrap()
}

#[tokio::test]
async fn the_same_conversation_is_the_same_prompt_in_every_dialect() {
    let host = host();
    let native = json!({"model": "caller", "stream": false, "options": {"num_predict": 1}, "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "2", "tool_name": "add", "tool_call_id": "call_1"},
    ]});
    let (_, answer) = host.post("/api/chat", native).await;
    let expected = answer["prompt_eval_count"].as_u64().unwrap();
    let openai = json!({"model": "caller", "max_tokens": 1, "messages": [
        {"role": "developer", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "content": "2", "tool_call_id": "call_1"},
    ]});
    let anthropic = json!({"model": "caller", "max_tokens": 1, "system": [{"type": "text", "text": "S"}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "unheard_of"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "2"}]}]},
    ]});
    let responses = json!({"model": "caller", "max_output_tokens": 1, "instructions": "S", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{\"a\":1}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
    ]});
    let (status, count) = host
        .post("/v1/messages/count_tokens", anthropic.clone())
        .await;
    assert_eq!((status, count), (200, json!({"input_tokens": expected})));
    for (path, body) in [
        ("/v1/chat/completions", openai),
        ("/v1/messages", anthropic),
        ("/v1/responses", responses),
    ] {
        assert_eq!(prompt_tokens(&host, path, body).await, expected, "{path}");
    }
}

#[tokio::test]
async fn a_completion_goes_through_the_template() {
    let host = saying("Yes.");
    let body = json!({"model": "plain", "prompt": ["x"], "logprobs": 1, "echo": true});
    let (status, answer) = host.post("/v1/completions", body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    assert_eq!(
        (&answer["object"], &choice["text"], &choice["finish_reason"]),
        (&json!("text_completion"), &json!("xYes."), &json!("stop"))
    );
    let logprobs = &choice["logprobs"];
    assert_eq!(
        logprobs["tokens"].as_array().unwrap().len(),
        logprobs["text_offset"].as_array().unwrap().len()
    );
    let events = events(
        &host,
        "/v1/completions",
        json!({"model": "plain", "prompt": "x", "stream_options": {"include_usage": true}}),
    )
    .await;
    assert_eq!(events.last().unwrap().1, json!("[DONE]"));
    let texts: String = events
        .iter()
        .filter_map(|(_, data)| data["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(texts, "Yes.");
}

#[tokio::test]
async fn a_message_is_made_of_blocks() {
    let host = saying("<think>hm</think>Yes.");
    let mut body = user("thinker");
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 100});
    let (status, answer) = host.post("/v1/messages", body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "Yes."}
        ])
    );
    assert_eq!(answer["stop_reason"], "end_turn");
    let id = answer["id"].as_str().unwrap().strip_prefix("msg_").unwrap();
    assert_eq!(id.len(), 24);

    let events = events(&host, "/v1/messages", body).await;
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    let block = [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ];
    let expected: Vec<&str> = [
        &["message_start"][..],
        &block,
        &block,
        &["message_delta", "message_stop"],
    ]
    .concat();
    assert_eq!(names, expected);
    for (name, data) in &events {
        assert_eq!(data["type"], json!(name));
    }
    let indexes: Vec<u64> = events
        .iter()
        .filter(|(name, _)| name == "content_block_start")
        .map(|(_, data)| data["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indexes, [0, 1]);
    // The AI SDK throws away thinking that nobody signed.
    let signed = json!({"type": "signature_delta", "signature": ""});
    let deltas = events
        .iter()
        .map(|(_, data)| (&data["index"], &data["delta"]));
    let of_thinking: Vec<&Value> = deltas
        .filter_map(|(index, delta)| (*index == 0 && !delta.is_null()).then_some(delta))
        .collect();
    assert_eq!(of_thinking.last(), Some(&&signed));
}

/// What reaches the model of a conversation in the dialect of Anthropic, as the number of its tokens.
async fn counted(host: &Host, content: Value) -> Value {
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": content}]});
    let (status, count) = host.post("/v1/messages/count_tokens", body).await;
    assert_eq!(status, 200, "{count}");
    count["input_tokens"].clone()
}

#[tokio::test]
async fn documents_and_results_of_searches_are_read() {
    let host = host();
    let text = json!({"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "alpha beta"}});
    let parts = json!({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "T"}, {"type": "text", "text": "alpha beta"}]}});
    let found =
        json!({"type": "search_result", "title": "T", "source": "alpha beta", "content": []});
    let expected = counted(&host, json!("T\nalpha beta\nx")).await;
    for block in [text, parts, found] {
        let content = json!([block, {"type": "text", "text": "x"}]);
        assert_eq!(counted(&host, content).await, expected, "{block}");
    }
    let result =
        |content: Value| json!([{"type": "tool_result", "tool_use_id": "c", "content": content}]);
    let document = json!({"type": "document", "source": {"type": "text", "data": "alpha beta"}});
    assert_eq!(
        counted(&host, result(json!([document]))).await,
        counted(&host, result(json!("alpha beta"))).await
    );
    // What cannot be read is said, and does not refuse what comes after it.
    let pdf = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}});
    let told = counted(&host, json!([pdf, {"type": "text", "text": "x"}])).await;
    assert!(told.as_u64() > counted(&host, json!("x")).await.as_u64());
}

#[tokio::test]
async fn a_message_calls_tools_and_stops_where_it_is_told() {
    let host = saying(CALL);
    let mut body = user("caller");
    body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]);
    let (_, answer) = host.post("/v1/messages", body.clone()).await;
    let block = &answer["content"][0];
    assert_eq!(
        (
            &block["type"],
            &block["name"],
            &block["input"],
            &answer["stop_reason"]
        ),
        (
            &json!("tool_use"),
            &json!("add"),
            &json!({"a": 1}),
            &json!("tool_use")
        )
    );
    let events = events(&host, "/v1/messages", body).await;
    let partial: String = events
        .iter()
        .filter_map(|(_, data)| data["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(partial, "{\"a\":1}");

    let host = saying("one two three");
    let mut body = user("plain");
    body["stop_sequences"] = json!(["two"]);
    let (_, answer) = host.post("/v1/messages", body).await;
    assert_eq!(
        (&answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("stop_sequence"), &json!("two"))
    );
    let mut body = user("plain");
    body["max_tokens"] = json!(1);
    let (_, answer) = host.post("/v1/messages", body).await;
    assert_eq!(answer["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn a_response_and_its_events_tell_the_same() {
    let host = saying("<think>hm</think>Yes.");
    let body = json!({"model": "thinker", "input": "x"});
    let (status, whole) = host.post("/v1/responses", body.clone()).await;
    assert_eq!(status, 200, "{whole}");
    assert_eq!(
        (&whole["object"], &whole["status"], &whole["text"]),
        (
            &json!("response"),
            &json!("completed"),
            &json!({"format": {"type": "text"}})
        )
    );
    let kinds: Vec<&Value> = whole["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(kinds, ["reasoning", "message"]);
    assert_eq!(whole["output"][1]["content"][0]["text"], "Yes.");

    let events = events(&host, "/v1/responses", body).await;
    for (number, (name, data)) in events.iter().enumerate() {
        assert_eq!(data["sequence_number"], json!(number));
        assert_eq!(data["type"], json!(name));
    }
    let mut names: Vec<&str> = events
        .iter()
        .map(|(name, _)| name.strip_prefix("response.").unwrap())
        .collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed"
        ]
    );
    let last = &events.last().unwrap().1["response"];
    let texts = |response: &Value| {
        json!([
            response["output"][0]["summary"],
            response["output"][1]["content"],
            response["usage"]["output_tokens"]
        ])
    };
    assert_eq!(texts(last), texts(&whole));
}

#[tokio::test]
async fn a_response_calls_tools_of_a_namespace_and_says_when_it_is_cut() {
    let host = saying(r#"<tool_call>{"name":"math.add","arguments":{"a":1}}</tool_call>"#);
    let body = json!({"model": "caller", "input": "x", "tools": [
        {"type": "namespace", "name": "math", "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}]}
    ]});
    let events = events(&host, "/v1/responses", body).await;
    let item = &events.last().unwrap().1["response"]["output"][0];
    assert_eq!(
        (
            &item["type"],
            &item["namespace"],
            &item["name"],
            &item["arguments"]
        ),
        (
            &json!("function_call"),
            &json!("math"),
            &json!("add"),
            &json!("{\"a\":1}")
        )
    );
    for (name, event) in &events {
        if name == "response.output_item.added" {
            assert_eq!(
                (&event["item"]["namespace"], &event["item"]["name"]),
                (&json!("math"), &json!("add"))
            );
        }
    }
    // Sent back, it is the call of the tool that the model was shown.
    let whole = json!({"type": "function_call", "call_id": item["call_id"], "name": "math.add", "arguments": item["arguments"]});
    let mut prompts = Vec::new();
    for call in [item, &whole] {
        let input = json!([{"role": "user", "content": "x"}, call, {"type": "function_call_output", "call_id": item["call_id"], "output": "2"}]);
        let body = json!({"model": "caller", "max_output_tokens": 1, "input": input});
        prompts.push(prompt_tokens(&host, "/v1/responses", body).await);
    }
    assert_eq!(prompts[0], prompts[1]);
    let body = json!({"model": "caller", "input": "x", "max_output_tokens": 1});
    let (_, cut) = host.post("/v1/responses", body).await;
    assert_eq!(
        (&cut["status"], &cut["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

/// The AI SDK sends the second turn so, and programs with the OpenAI SDK continue a conversation by the other way.
#[tokio::test]
async fn a_conversation_goes_on_from_what_is_kept_of_it() {
    let host = saying("<think>hm</think>Yes.");
    let user = |text: &str| json!({"role": "user", "content": text});
    let mut first = json!({"model": "thinker", "input": "x"});
    let streamed = events(&host, "/v1/responses", first.clone()).await;
    let streamed = &streamed.last().unwrap().1["response"];
    let (_, whole) = host.post("/v1/responses", first.clone()).await;
    for response in [streamed, &whole] {
        assert_eq!(response["store"], json!(true));
        let output = response["output"].as_array().unwrap();
        let ask =
            |input: Value| json!({"model": "thinker", "max_output_tokens": 1, "input": input});
        let mut all = vec![user("x")];
        all.extend(output.iter().cloned());
        all.push(user("y"));
        let expected = prompt_tokens(&host, "/v1/responses", ask(json!(all))).await;

        let mut references = vec![user("x")];
        references.extend(
            output
                .iter()
                .map(|item| json!({"type": "item_reference", "id": item["id"]})),
        );
        references.push(user("y"));
        let found = prompt_tokens(&host, "/v1/responses", ask(json!(references))).await;
        assert_eq!(found, expected, "references");

        let mut next = ask(json!("y"));
        next["previous_response_id"] = response["id"].clone();
        let found = prompt_tokens(&host, "/v1/responses", next).await;
        assert_eq!(found, expected, "the response before");

        let twice = json!({"type": "item_reference", "id": output[0]["id"]});
        let (status, _) = host.post("/v1/responses", ask(json!([twice, twice]))).await;
        assert_eq!(status, 400);
    }
    first["store"] = json!(false);
    let (_, unkept) = host.post("/v1/responses", first.clone()).await;
    first["previous_response_id"] = unkept["id"].clone();
    assert_eq!(host.post("/v1/responses", first).await.0, 400);
}

#[tokio::test]
async fn a_wish_for_effort_refuses_no_model() {
    let host = saying("Yes.");
    for (path, members) in [
        (
            "/v1/responses",
            json!({"input": "x", "reasoning": {"effort": "high"}}),
        ),
        ("/v1/chat/completions", json!({"reasoning_effort": "high"})),
        (
            "/v1/chat/completions",
            json!({"reasoning": {"effort": "high"}}),
        ),
        (
            "/v1/chat/completions",
            json!({"chat_template_kwargs": {"reasoning_effort": "high"}}),
        ),
        (
            "/v1/messages",
            json!({"output_config": {"effort": "high"}, "thinking": {"type": "adaptive"}}),
        ),
    ] {
        let mut body = user("plain");
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        assert_eq!(host.post(path, body).await.0, 200, "{path} {members}");
    }
    let mut body = user("plain");
    body["think"] = json!(true);
    assert_eq!(host.post("/v1/chat/completions", body).await.0, 400);
}

#[tokio::test]
async fn a_failure_in_a_stream_is_an_event_of_its_dialect() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Text("alpha beta gamma".into()),
        fail_on: Some("beta".into()),
        ..FakeOptions::default()
    });
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/responses",
    ] {
        let mut body = user("plain");
        body["prompt"] = json!("x");
        body["input"] = json!("x");
        let events = events(&host, path, body).await;
        let (_, last) = events.last().unwrap();
        assert!(last["error"]["message"].is_string(), "{path}: {last}");
        if path == "/v1/responses" {
            let (name, failed) = &events[events.len() - 2];
            let response = &failed["response"];
            assert_eq!(
                (name.as_str(), &response["status"]),
                ("response.failed", &json!("failed"))
            );
            assert_eq!(response["error"]["message"], last["error"]["message"]);
        }
        assert!(
            events.iter().all(|(_, data)| *data != json!("[DONE]")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn refusals_are_worded_by_family() {
    let host = host();
    let openai = |text: &str, kind: &str| json!({"error": {"message": text, "type": kind, "param": null, "code": null}});
    let missing = "model 'nope' not found";
    for (path, body, status, expected) in [
        (
            "/v1/chat/completions",
            json!({"model": "nope", "messages": [{"role": "user", "content": "x"}]}),
            404,
            openai(missing, "not_found_error"),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}]}),
            400,
            openai("model is required", "invalid_request_error"),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "plain", "messages": []}),
            400,
            openai("[] is too short - 'messages'", "invalid_request_error"),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "plain", "messages": [{"role": "user"}]}),
            400,
            openai(
                "invalid message content type: <nil>",
                "invalid_request_error",
            ),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "plain", "messages": [{"role": "user", "content": [{"type": "x"}]}]}),
            400,
            openai("invalid message format", "invalid_request_error"),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "plain", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y.png"}]}]}),
            400,
            openai(
                "image URLs are not currently supported, please use base64 encoded data instead",
                "invalid_request_error",
            ),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "plain", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:text/plain,x"}}]}]}),
            400,
            openai("invalid image input", "invalid_request_error"),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "plain", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}),
            400,
            openai("invalid tool call arguments", "invalid_request_error"),
        ),
        (
            "/v1/completions",
            json!({"model": "nope", "prompt": "x"}),
            404,
            openai(missing, "not_found_error"),
        ),
        (
            "/v1/responses",
            json!({"model": "nope", "input": "x"}),
            404,
            openai(missing, "not_found_error"),
        ),
    ] {
        let (got, answer) = host.post(path, body.clone()).await;
        assert_eq!((got, answer), (status, expected), "{path} {body}");
    }
    for (body, status, kind, text) in [
        (
            json!({"model": "nope", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}),
            404,
            "not_found_error",
            missing,
        ),
        (
            json!({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}),
            400,
            "invalid_request_error",
            "model is required",
        ),
        (
            json!({"model": "plain", "messages": [{"role": "user", "content": "x"}]}),
            400,
            "invalid_request_error",
            "max_tokens is required and must be positive",
        ),
        (
            json!({"model": "plain", "max_tokens": 1}),
            400,
            "invalid_request_error",
            "messages is required",
        ),
        (
            json!({"model": "plain", "max_tokens": 1, "messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "x"}]}]}),
            400,
            "invalid_request_error",
            "tool_use needs id and name",
        ),
    ] {
        let (got, answer) = host.post("/v1/messages", body.clone()).await;
        assert_eq!(got, status, "{body}");
        assert_eq!(
            (&answer["type"], &answer["error"]),
            (&json!("error"), &json!({"type": kind, "message": text})),
            "{body}"
        );
    }
}

#[tokio::test]
async fn more_refusals_say_what_to_do() {
    let host = host();
    let chat = |members: Value| {
        let mut body = user("plain");
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        body
    };
    for (members, part) in [
        (json!({"n": 0}), "n must be between 1 and 32"),
        (
            json!({"reasoning_effort": "huge"}),
            "invalid reasoning effort",
        ),
        (json!({"tool_choice": "required"}), "tools to choose from"),
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}),
            "not among the tools",
        ),
        (json!({"top_logprobs": 21}), "between 0 and 20"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias"),
        (
            json!({"response_format": {"type": "json_schema"}}),
            "json_schema.schema",
        ),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"tools": [{"type": "custom"}]}), "custom"),
    ] {
        let (status, answer) = host
            .post("/v1/chat/completions", chat(members.clone()))
            .await;
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && text.contains(part),
            "{members}: {status} {answer}"
        );
    }
    for (members, part) in [
        (
            json!({"previous_response_id": "resp_1"}),
            "resp_1 is not kept",
        ),
        (
            json!({"conversation": "conv_1"}),
            "conversation is not supported",
        ),
        (json!({"background": true}), "background"),
        (json!({"input": []}), "input is required"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "\"store\": false",
        ),
        (
            json!({"input": [{"type": "item_reference"}]}),
            "item_reference needs an id",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}),
            "input_file",
        ),
    ] {
        let (status, answer) = host
            .post("/v1/responses", {
                let mut body = json!({"model": "plain", "input": "x"});
                body.as_object_mut()
                    .unwrap()
                    .extend(members.as_object().unwrap().clone());
                body
            })
            .await;
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && text.contains(part),
            "{members}: {status} {answer}"
        );
    }
}

#[tokio::test]
async fn models_are_listed_and_shown_by_any_name() {
    let host = host();
    let list = host.get("/v1/models").await;
    assert_eq!(list["object"], "list");
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|model| model["id"].as_str())
        .collect();
    assert!(ids.contains(&"plain:latest"), "{ids:?}");
    let (status, _) = host
        .post(
            "/api/copy",
            json!({"source": "plain", "destination": "me/mine:one"}),
        )
        .await;
    assert_eq!(status, 200);
    for path in ["/v1/models/me/mine:one", "/v1/models/me%2Fmine:one"] {
        let model = host.get(path).await;
        assert_eq!(
            (&model["id"], &model["object"], &model["owned_by"]),
            (&json!("me/mine:one"), &json!("model"), &json!("me")),
            "{path}"
        );
    }
    let (status, text) = host.text(Method::GET, "/v1/models/nope", "").await;
    assert_eq!(status, 404);
    assert!(text.contains("not_found_error"), "{text}");
}

#[tokio::test]
async fn compressed_bodies_are_read() {
    let host = saying("Yes.");
    let body = user("plain").to_string();
    let packed = {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = zstd::encode_all(body.as_bytes(), 1).unwrap();
    for (encoding, packed) in [("gzip", packed), ("zstd", zstd)] {
        let headers = [("content-encoding", encoding)];
        let response = host
            .send(Method::POST, "/v1/chat/completions", &headers, packed)
            .await;
        assert_eq!(response.status(), 200, "{encoding}");
    }
}
