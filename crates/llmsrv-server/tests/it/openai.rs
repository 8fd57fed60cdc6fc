//! `/v1/chat/completions`, `/v1/completions` and `/v1/responses`: what requests say and answers hold.

use std::collections::HashSet;

use base64::Engine as _;
use http::Method;
use llmsrv_engine::fake::{Answer, FakeOptions};
use serde_json::{Value, json};

use crate::{
    dialects::{events, user},
    host::{Host, host, host_with, saying, settings},
};

const CALL: &str = r#"<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>"#;

/// A request with more members.
fn with(mut body: Value, members: Value) -> Value {
    let Value::Object(members) = members else {
        return body;
    };
    body.as_object_mut().unwrap().extend(members);
    body
}

async fn ok(host: &Host, path: &str, body: Value) -> Value {
    let (status, answer) = host.post(path, body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn chat(host: &Host, members: Value) -> Value {
    ok(host, "/v1/chat/completions", with(user("plain"), members)).await
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[tokio::test]
async fn a_completion_has_every_member() {
    let host = saying("Yes.");
    let (one, two) = (chat(&host, json!({})).await, chat(&host, json!({})).await);
    assert_ne!(one["id"], two["id"]);
    let members: Vec<&String> = one.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        [
            "id",
            "object",
            "created",
            "model",
            "system_fingerprint",
            "choices",
            "usage"
        ]
    );
    assert_eq!(one["system_fingerprint"], "fp_ollama");
    assert_eq!(one["model"], "plain", "as the client sent it");
    let now = jiff::Timestamp::now().as_second();
    assert!((now - 60..=now).contains(&one["created"].as_i64().unwrap()));
    // Asked again, the prompt is known but for its last token, and all of it is counted.
    let usage = &two["usage"];
    assert_eq!(usage["prompt_tokens"], one["usage"]["prompt_tokens"]);
    assert!(
        usage["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
            > 0
    );
}

#[tokio::test]
async fn members_without_effect_do_no_harm() {
    let host = saying("Yes.");
    let members = json!({"n": 1, "user": "u", "store": true, "metadata": {"a": "b"}, "service_tier": "auto", "parallel_tool_calls": true,
        "safety_identifier": "x", "prompt_cache_key": "k", "verbosity": "low", "logit_bias": {}, "tools": [], "tool_choice": "none"});
    assert_eq!(content(&chat(&host, members).await), "Yes.");
    let headers = [
        ("authorization", "Bearer ollama"),
        ("openai-beta", "assistants=v2"),
        ("x-stainless-os", "Linux"),
    ];
    let body = user("plain").to_string();
    let response = host
        .send(Method::POST, "/v1/chat/completions", &headers, body)
        .await;
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn limits_of_an_answer() {
    let host = saying("one two three");
    for (members, text, reason) in [
        (json!({"max_tokens": 3}), "one", "length"),
        (json!({"max_completion_tokens": 3}), "one", "length"),
        (
            json!({"max_tokens": 7, "max_completion_tokens": 3}),
            "one",
            "length",
        ),
        (json!({"max_tokens": null}), "one two three", "stop"),
        (json!({"max_tokens": -1}), "one two three", "stop"),
        (json!({"stop": "two"}), "one ", "stop"),
        (json!({"stop": ["three", "two"]}), "one ", "stop"),
    ] {
        let mut members = members;
        members["model"] = json!("plain");
        members["messages"] = json!([{"role": "user", "content": "x"}]);
        let answer = ok(&host, "/v1/chat/completions", members.clone()).await;
        let choice = &answer["choices"][0];
        assert_eq!(content(&answer), text, "{members}");
        assert_eq!(choice["finish_reason"], reason, "{members}");
    }
}

#[tokio::test]
async fn our_own_options_are_understood_here_too() {
    let host = saying("ok");
    let long = json!([{"role": "user", "content": "word ".repeat(200)}]);
    for members in [
        json!({"options": {"num_ctx": 100}}),
        json!({"num_ctx": 100}),
    ] {
        let cut = with(members, json!({"messages": long, "truncate": true}));
        let answer = chat(&host, cut).await;
        let usage = &answer["usage"];
        assert!(usage["prompt_tokens"].as_u64().unwrap() < 100, "{answer}");
        assert!(
            usage["prompt_truncated"].as_u64().unwrap() > 100,
            "{answer}"
        );
    }
    chat(&host, json!({"keep_alive": -1})).await;
    let ps = host.get("/api/ps").await;
    assert!(ps["models"][0]["expires_at"].as_str().unwrap() > "2200");
}

#[tokio::test]
async fn top_n_sigma_stands_beside_the_members_too() {
    let host = random();
    for (members, n_texts) in [
        (json!({}), 3),
        (json!({"top_n_sigma": -1}), 3),
        // So few deviations leave the best token alone.
        (json!({"top_n_sigma": 1e-6}), 1),
        (json!({"options": {"top_n_sigma": 1e-6}}), 1),
    ] {
        let mut texts = HashSet::new();
        for seed in 0..3 {
            let free =
                json!({"seed": seed, "temperature": 2, "max_tokens": 20, "logit_bias": no_end()});
            let answer = chat(&host, with(free, members.clone())).await;
            texts.insert(content(&answer).to_owned());
        }
        assert_eq!(texts.len(), n_texts, "{members}: {texts:?}");
    }
}

/// A host whose model thinks as it is told and says how.
async fn minded() -> Host {
    let levels = ["off", "low", "medium", "high", "max"];
    let rules = levels.map(|level| (format!("<{level}>"), format!("I think {level}")));
    let host = host_with(settings(), move || FakeOptions {
        answer: Answer::Rules(rules.to_vec()),
        ..FakeOptions::default()
    });
    let template = "{{ if .Think }}<{{ .ThinkLevel }}>{{ else }}<off>{{ end }}{{ range .Messages }}{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}{{ end }}";
    let body = json!({"model": "minded", "from": "plain", "template": template, "stream": false});
    assert_eq!(host.post("/api/create", body).await.0, 200);
    host
}

#[tokio::test]
async fn every_word_for_effort_is_known() {
    let host = minded().await;
    for (word, level) in [
        ("none", "off"),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("max", "max"),
        ("xhigh", "max"),
        ("ultra", "max"),
    ] {
        let expected = format!("I think {level}");
        for members in [
            json!({"reasoning_effort": word}),
            json!({"reasoning": {"effort": word}}),
        ] {
            let answer = ok(&host, "/v1/chat/completions", with(user("minded"), members)).await;
            assert_eq!(content(&answer), expected, "{word}");
        }
        let body = json!({"model": "minded", "input": "x", "reasoning": {"effort": word}});
        let answer = ok(&host, "/v1/responses", body).await;
        assert_eq!(
            answer["output"][0]["content"][0]["text"], expected,
            "{word}"
        );
        let body = with(
            user("minded"),
            json!({"output_config": {"effort": word}, "thinking": {"type": "enabled", "budget_tokens": 1000}}),
        );
        let answer = ok(&host, "/v1/messages", body).await;
        assert_eq!(answer["content"][0]["text"], expected, "{word}");
    }
    let asked = json!({"enable_thinking": true, "reasoning_effort": "low"});
    for (kwargs, level) in [
        (json!({"enable_thinking": false}), "off"),
        (json!({"thinking": false, "reasoning_effort": "low"}), "off"),
        (asked, "low"),
        (
            json!({"thinking": "yes", "reasoning_effort": "very"}),
            "medium",
        ),
    ] {
        let body = with(user("minded"), json!({"chat_template_kwargs": kwargs}));
        let answer = ok(&host, "/v1/chat/completions", body).await;
        assert_eq!(content(&answer), format!("I think {level}"), "{kwargs}");
    }
    // The answer has no place for it.
    let body = json!({"model": "minded", "prompt": "x"});
    let answer = ok(&host, "/v1/completions", body).await;
    assert_eq!(answer["choices"][0]["text"], "I think off");
    for (thinking, level) in [
        (json!(null), "off"),
        (json!({"type": "disabled"}), "off"),
        (json!({"type": "enabled", "budget_tokens": 1}), "medium"),
    ] {
        let effort = if thinking.is_null() {
            json!("high")
        } else {
            json!(null)
        };
        let output = json!({"thinking": thinking, "output_config": {"effort": effort}});
        let body = with(user("minded"), output);
        let answer = ok(&host, "/v1/messages", body).await;
        assert_eq!(answer["content"][0]["text"], format!("I think {level}"));
    }
    for (path, members) in [
        ("/v1/chat/completions", json!({"reasoning_effort": "huge"})),
        (
            "/v1/responses",
            json!({"input": "x", "reasoning": {"effort": "huge"}}),
        ),
        ("/v1/messages", json!({"output_config": {"effort": "huge"}})),
    ] {
        let (status, _) = host.post(path, with(user("minded"), members)).await;
        assert_eq!(status, 400, "{path}");
    }
}

#[tokio::test]
async fn thinking_has_a_member_of_its_own() {
    let host = saying("<think>hm</think>Yes.");
    let body = with(user("thinker"), json!({"stream_options": {}}));
    let answer = ok(&host, "/v1/chat/completions", body.clone()).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(
        *message,
        json!({"role": "assistant", "content": "Yes.", "reasoning": "hm", "reasoning_content": "hm"})
    );
    let events = events(&host, "/v1/chat/completions", body).await;
    let usage = events.iter().filter(|(_, data)| !data["usage"].is_null());
    assert_eq!(usage.count(), 0, "nobody asked for it");
    let before_end = &events[..events.len() - 2];
    for (_, chunk) in before_end {
        assert_eq!(chunk["choices"][0]["finish_reason"], Value::Null);
    }
}

#[tokio::test]
async fn a_stream_of_calls_ends_with_its_reason() {
    let host = saying(CALL);
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]);
    let body = with(user("caller"), json!({"tools": tools}));
    let events = events(&host, "/v1/chat/completions", body).await;
    let n_events = events.len();
    let choice = |at: usize| &events[at].1["choices"][0];
    assert_eq!(events[n_events - 1].1, "[DONE]");
    assert_eq!(choice(n_events - 2)["finish_reason"], "tool_calls");
    assert_eq!(choice(n_events - 2)["delta"], json!({}));
    let call = &choice(n_events - 3)["delta"]["tool_calls"][0];
    let id = call["id"].as_str().unwrap().strip_prefix("call_").unwrap();
    assert!(
        id.len() == 8
            && id
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    );
    assert_eq!(call["type"], "function");
    // Cut off, it is no call and the reason is the limit.
    let body = with(user("caller"), json!({"tools": tools, "max_tokens": 20}));
    let answer = ok(&host, "/v1/chat/completions", body).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn an_error_before_the_first_byte_has_its_status_even_when_streaming() {
    let host = host_with(settings(), || FakeOptions {
        fail_on: Some("oops".into()),
        ..FakeOptions::default()
    });
    for (path, members) in [
        ("/v1/chat/completions", json!({})),
        ("/v1/completions", json!({"prompt": "oops"})),
        ("/v1/responses", json!({"input": "oops"})),
        ("/v1/messages", json!({})),
        ("/api/generate", json!({"prompt": "oops"})),
        ("/api/chat", json!({})),
    ] {
        let failing = json!({"messages": [{"role": "user", "content": "oops"}], "stream": true});
        for (model, status) in [("plain", 500), ("nope", 404)] {
            let body = with(with(user(model), failing.clone()), members.clone());
            let response = host.send(Method::POST, path, &[], body.to_string()).await;
            assert_eq!(response.status(), status, "{path} {model}");
            let kind = &response.headers()["content-type"];
            assert_eq!(kind, "application/json; charset=utf-8", "{path}");
        }
    }
}

#[tokio::test]
async fn probabilities_stand_beside_their_choice() {
    let host = saying("Yes");
    let answer = chat(&host, json!({"logprobs": true, "top_logprobs": 2})).await;
    let tokens = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    let text: String = tokens
        .iter()
        .map(|t| t["token"].as_str().unwrap())
        .take(3)
        .collect();
    assert_eq!(text, "Yes");
    assert_eq!(tokens[0]["bytes"], json!([89]));
    assert_eq!(tokens[0]["top_logprobs"].as_array().unwrap().len(), 2);
    let none = chat(&host, json!({})).await;
    assert!(none["choices"][0].get("logprobs").is_none());
    // A bias changes what is said: `Y` is token 89.
    let biased = chat(&host, json!({"logit_bias": {"89": -100}})).await;
    assert!(!content(&biased).starts_with('Y'), "{biased}");
}

#[tokio::test]
async fn formats_bind_answers_in_every_dialect() {
    let host = saying("I will not.");
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    let object = ok(
        &host,
        "/v1/chat/completions",
        with(user("plain"), json!({"response_format": {"type": "json_object"}, "max_tokens": 60, "temperature": 0, "stop": "}"})),
    )
    .await;
    assert!(content(&object).trim_start().starts_with('{'), "{object}");
    let chat_format = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
    let flat = json!({"type": "json_schema", "name": "n", "schema": schema});
    for (path, members, at) in [
        (
            "/v1/chat/completions",
            json!({"response_format": chat_format}),
            "/choices/0/message/content",
        ),
        (
            "/v1/responses",
            json!({"input": "x", "text": {"format": flat}}),
            "/output/0/content/0/text",
        ),
        (
            "/v1/messages",
            json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
            "/content/0/text",
        ),
    ] {
        let answer = ok(&host, path, with(user("plain"), members)).await;
        let text = answer.pointer(at).unwrap().as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{path}: {text}"));
        assert!(value["a"] == 1 || value["a"] == 2, "{path}: {value}");
    }
}

#[tokio::test]
async fn images_come_as_data() {
    let host = host_with(settings(), || FakeOptions {
        image_rows: 16,
        ..FakeOptions::default()
    });
    let data = base64::engine::general_purpose::STANDARD.encode("image of a cat");
    let tokens = async |picture: Option<Value>| {
        let text = json!({"type": "text", "text": "what?"});
        let parts: Vec<Value> = [text].into_iter().chain(picture).collect();
        let answer = chat(
            &host,
            json!({"messages": [{"role": "user", "content": parts}]}),
        )
        .await;
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let without = tokens(None).await;
    for kind in ["image/jpeg", "image/jpg", "image/png", "image/webp", ""] {
        let url = format!("data:{kind};base64,{data}");
        for part in [
            json!({"type": "image_url", "image_url": url}),
            json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}}),
        ] {
            assert_eq!(tokens(Some(part)).await, without + 18, "{kind}");
        }
    }
    for (url, text) in [
        (
            "http://x/y.png",
            "image URLs are not currently supported, please use base64 encoded data instead",
        ),
        ("data:text/plain;base64,eA==", "invalid image input"),
        ("data:image/png;base64,a$b", "invalid image input"),
        ("nonsense", "invalid image input"),
    ] {
        let message = json!({"role": "user", "content": [{"type": "image_url", "image_url": url}]});
        let body = json!({"model": "plain", "messages": [message]});
        let (status, answer) = host.post("/v1/chat/completions", body).await;
        assert_eq!(
            (status, &answer["error"]["message"]),
            (400, &json!(text)),
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_text_completion_counts_in_every_chunk() {
    let host = saying("Yes.");
    let body = json!({"model": "plain", "prompt": "x", "max_tokens": 2, "stream_options": {"include_usage": true}});
    let events = events(&host, "/v1/completions", body.clone()).await;
    let (last, before) = events[..events.len() - 1].split_last().unwrap();
    assert_eq!(last.1["choices"], json!([]));
    assert_eq!(last.1["usage"]["completion_tokens"], 2);
    let (end, pieces) = before.split_last().unwrap();
    assert_eq!(end.1["choices"][0]["finish_reason"], "length");
    for (_, piece) in pieces {
        assert_eq!(piece["object"], "text_completion");
        assert_eq!(piece["usage"]["total_tokens"], 0);
        assert_eq!(piece["choices"][0]["finish_reason"], Value::Null);
    }
    let whole = ok(&host, "/v1/completions", body).await;
    assert!(whole["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(whole["choices"][0]["text"], "Ye");
    for (members, status) in [
        (json!({"prompt": ["a", "b"]}), 400),
        (json!({"prompt": 5}), 400),
        (json!({"logprobs": 21}), 400),
        (json!({"n": 0}), 400),
        (json!({"best_of": 0}), 400),
        (json!({"suffix": "y"}), 400),
        (json!({"model": "filler", "suffix": "y"}), 200),
    ] {
        let body = with(json!({"model": "plain", "prompt": "x"}), members);
        assert_eq!(
            host.post("/v1/completions", body.clone()).await.0,
            status,
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_response_has_every_member() {
    let host = saying("Yes.");
    let body = json!({"model": "plain", "input": "x", "instructions": "Be brief.", "metadata": {"k": "v"}, "top_p": 0.5,
        "max_output_tokens": 50, "truncation": "auto", "user": "u", "store": true, "include": []});
    let answer = ok(&host, "/v1/responses", body).await;
    for (member, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("model", json!("plain")),
        ("error", json!(null)),
        ("incomplete_details", json!(null)),
        ("instructions", json!("Be brief.")),
        ("max_output_tokens", json!(50)),
        ("parallel_tool_calls", json!(true)),
        ("previous_response_id", json!(null)),
        ("store", json!(true)),
        ("temperature", json!(1.0)),
        ("top_p", json!(0.5)),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("truncation", json!("auto")),
        ("metadata", json!({"k": "v"})),
    ] {
        assert_eq!(answer[member], value, "{member}");
    }
    assert!(answer["id"].as_str().unwrap().starts_with("resp_"));
    assert!(answer["created_at"].is_i64() && answer["completed_at"].is_i64());
    let usage = &answer["usage"];
    let count = |at: &str| usage.pointer(at).unwrap().as_u64().unwrap();
    assert_eq!(
        count("/total_tokens"),
        count("/input_tokens") + count("/output_tokens")
    );
    count("/input_tokens_details/cached_tokens");
    count("/output_tokens_details/reasoning_tokens");
    let message = &answer["output"][0];
    assert_eq!(
        message["content"],
        json!([{"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}])
    );
    assert_eq!(
        (&message["role"], &message["status"]),
        (&json!("assistant"), &json!("completed"))
    );
}

#[tokio::test]
async fn calls_of_a_response_have_their_events() {
    let host = saying(CALL);
    let body = json!({"model": "caller", "input": "x", "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}, {"type": "web_search"}]});
    let events = events(&host, "/v1/responses", body).await;
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    assert_eq!(events[0].1["response"]["status"], "in_progress");
    assert_eq!(events[3].1["delta"], "{\"a\":1}");
    let item = &events[5].1["item"];
    assert_eq!(
        (&item["type"], &item["name"]),
        (&json!("function_call"), &json!("add"))
    );
    assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
}

#[tokio::test]
async fn what_came_of_a_response_can_be_sent_back() {
    let host = saying("<think>hm</think>Yes.");
    let first = ok(
        &host,
        "/v1/responses",
        json!({"model": "thinker", "input": "x"}),
    )
    .await;
    let reasoning = &first["output"][0];
    assert_eq!(reasoning["encrypted_content"], "hm");
    assert_eq!(
        reasoning["summary"],
        json!([{"type": "summary_text", "text": "hm"}])
    );
    let mut input = vec![json!({"role": "user", "content": "x"})];
    input.extend(first["output"].as_array().unwrap().iter().cloned());
    input.push(json!({"type": "web_search_call", "id": "w"}));
    input.push(json!({"role": "user", "content": "y"}));
    let again = ok(
        &host,
        "/v1/responses",
        json!({"model": "thinker", "input": input, "max_output_tokens": 1}),
    )
    .await;
    let native = json!({"model": "thinker", "stream": false, "options": {"num_predict": 1}, "messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": "Yes.", "thinking": "hm"}, {"role": "user", "content": "y"}]});
    let (_, native) = host.post("/api/chat", native).await;
    assert_eq!(again["usage"]["input_tokens"], native["prompt_eval_count"]);
}

#[tokio::test]
async fn a_long_conversation_is_refused_unless_it_may_be_cut() {
    let host = saying("ok");
    let long = "word ".repeat(200);
    for (truncation, status) in [
        (json!(null), 400),
        (json!("disabled"), 400),
        (json!("auto"), 200),
    ] {
        let body =
            json!({"model": "plain", "input": long, "num_ctx": 100, "truncation": truncation});
        assert_eq!(
            host.post("/v1/responses", body).await.0,
            status,
            "{truncation}"
        );
    }
    let packed = zstd::encode_all(&br#"{"model":"plain","input":"x"}"#[..], 1).unwrap();
    let headers = [("content-encoding", "zstd")];
    let response = host
        .send(Method::POST, "/v1/responses", &headers, packed)
        .await;
    assert_eq!(response.status(), 200);
}

/// Nothing is dropped silently, and the refusal has the words that clients of each dialect look for
/// and those that say what to do.
#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused_in_the_words_of_the_dialect() {
    let host = saying("ok");
    let long = "word ".repeat(200);
    let messages = json!([{"role": "user", "content": long}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": long})),
        ("/v1/responses", json!({"input": long})),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 5}),
        ),
    ] {
        for stream in [false, true] {
            let body = with(
                body.clone(),
                json!({"model": "plain", "num_ctx": 100, "stream": stream}),
            );
            let (status, answer) = host.post(path, body).await;
            assert_eq!(status, 400, "{path}: {answer}");
            let error = &answer["error"];
            assert_eq!(error["type"], "invalid_request_error", "{path}: {answer}");
            let text = error["message"].as_str().unwrap();
            if path == "/v1/messages" {
                let begin = "prompt is too long: 10";
                assert!(
                    text.starts_with(begin) && text.contains(" tokens > 100 maximum"),
                    "{text}"
                );
            } else {
                assert_eq!(error["code"], "context_length_exceeded");
                assert!(
                    text.contains("maximum context length is 100 tokens"),
                    "{text}"
                );
            }
            for word in ["num_ctx", "LLMSRV_CONTEXT_LENGTH", "\"truncate\": true"] {
                assert!(text.contains(word), "{path}: {text}");
            }
        }
        let cut = match path {
            "/v1/responses" => json!({"truncation": "auto"}),
            _ => json!({"truncate": true}),
        };
        let body = with(body, with(json!({"model": "plain", "num_ctx": 100}), cut));
        let answer = ok(&host, path, body).await;
        assert!(
            answer["usage"]["prompt_truncated"].as_u64().unwrap() > 900,
            "{answer}"
        );
    }
}

/// Keeps the fake model from ending.
fn no_end() -> Value {
    json!({"256": -100, "257": -100, "258": -100})
}

/// A host whose model says something else with each seed.
fn random() -> Host {
    host_with(settings(), || FakeOptions {
        answer: Answer::Random,
        ..FakeOptions::default()
    })
}

#[tokio::test]
async fn several_answers_share_their_prompt() {
    let host = random();
    let ask = |members: Value| {
        let messages = json!([{"role": "user", "content": "Some words of a prompt. ".repeat(8)}]);
        let body = json!({"model": "plain", "messages": messages, "max_tokens": 12, "seed": 7, "logit_bias": no_end()});
        with(body, members)
    };
    let path = "/v1/chat/completions";
    let all = ok(&host, path, ask(json!({"n": 3}))).await;
    let texts: Vec<&Value> = (0..3)
        .map(|idx| {
            assert_eq!(all["choices"][idx]["index"], idx);
            &all["choices"][idx]["message"]["content"]
        })
        .collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{all}");
    assert_eq!(all["choices"].as_array().unwrap().len(), 3);
    assert_eq!(all["usage"]["completion_tokens"], 36);

    // Each is what a request of its own says with the next seed; one prompt is counted, and computed but
    // for a block that the first answer may still be writing.
    let n_prompt = all["usage"]["prompt_tokens"].as_u64().unwrap();
    let (_, metrics) = host.text(Method::GET, "/metrics", "").await;
    let block_size = FakeOptions::default().block_size as u64;
    let hits = "llmsrv_prefix_cache_hit_tokens_total{model=\"plain:latest\"} ";
    let hits = metrics.lines().find_map(|line| line.strip_prefix(hits));
    assert!(
        hits.unwrap().parse::<u64>().unwrap() >= 2 * (n_prompt - block_size),
        "{hits:?}"
    );
    for (idx, text) in texts.iter().enumerate() {
        let one = ok(&host, path, ask(json!({"seed": 7 + idx}))).await;
        assert_eq!(one["choices"][0]["message"]["content"], **text);
        assert_eq!(one["usage"]["prompt_tokens"], n_prompt);
    }

    // As a stream, each piece says to which answer it belongs.
    let members = json!({"n": 3, "stream": true, "stream_options": {"include_usage": true}});
    let (_, stream) = host
        .text(Method::POST, path, ask(members).to_string())
        .await;
    let (mut said, mut reasons) = (vec![String::new(); 3], [0; 3]);
    let mut usage = Value::Null;
    for line in stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
    {
        let Ok(chunk) = serde_json::from_str::<Value>(line) else {
            assert_eq!(line, "[DONE]");
            continue;
        };
        usage = chunk["usage"].clone();
        for choice in chunk["choices"].as_array().unwrap() {
            let idx = choice["index"].as_u64().unwrap() as usize;
            said[idx] += choice["delta"]["content"].as_str().unwrap_or_default();
            reasons[idx] += usize::from(choice["finish_reason"] == "length");
        }
    }
    assert_eq!(said.iter().collect::<Vec<_>>(), texts);
    assert_eq!(reasons, [1; 3]);
    assert_eq!(usage["completion_tokens"], 36);
    assert_eq!(stream.matches("[DONE]").count(), 1);
}

#[tokio::test]
async fn of_several_answers_the_most_probable_are_given() {
    let host = random();
    let ask = |members: Value| {
        let body = json!({"model": "plain", "prompt": "x", "max_tokens": 8, "seed": 3, "logit_bias": no_end()});
        with(body, members)
    };
    let path = "/v1/completions";
    let all = ok(&host, path, ask(json!({"n": 4, "logprobs": 0}))).await;
    let mut all: Vec<(f64, &str)> = all["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| {
            let values = choice["logprobs"]["token_logprobs"].as_array().unwrap();
            let sum: f64 = values.iter().map(|value| value.as_f64().unwrap()).sum();
            (sum / values.len() as f64, choice["text"].as_str().unwrap())
        })
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let best = ok(&host, path, ask(json!({"n": 2, "best_of": 4}))).await;
    let choices = best["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    for (idx, choice) in choices.iter().enumerate() {
        assert_eq!(
            (&choice["index"], &choice["text"]),
            (&json!(idx), &json!(all[idx].1))
        );
        assert_eq!(choice["logprobs"], Value::Null, "nobody asked for them");
    }
    assert_eq!(
        best["usage"]["completion_tokens"], 32,
        "all that was computed"
    );
    for (members, part) in [
        (
            json!({"n": 2, "best_of": 1}),
            "best_of must be between n and 32",
        ),
        (json!({"best_of": 33}), "best_of must be between n and 32"),
        (json!({"best_of": 2, "stream": true}), "cannot be streamed"),
        (json!({"n": 33}), "n must be between 1 and 32"),
    ] {
        let (status, answer) = host.post(path, ask(members)).await;
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(status == 400 && text.contains(part), "{answer}");
    }
}

#[tokio::test]
async fn there_is_no_content_beside_calls_alone() {
    let host = saying("<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>");
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]);
    let body = with(user("caller"), json!({"tools": tools}));
    let answer = ok(&host, "/v1/chat/completions", body).await;
    let message = &answer["choices"][0]["message"];
    assert!(message["tool_calls"].is_array(), "{answer}");
    assert_eq!(message.get("content"), Some(&Value::Null));
}

#[tokio::test]
async fn ids_are_never_the_same() {
    let host = host();
    for (path, at) in [
        ("/v1/chat/completions", "id"),
        ("/v1/completions", "id"),
        ("/v1/responses", "id"),
        ("/v1/messages", "id"),
    ] {
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..5 {
            let body = with(user("plain"), json!({"prompt": "x", "input": "x"}));
            let answer = ok(&host, path, body).await;
            assert!(
                ids.insert(answer[at].as_str().unwrap().to_owned()),
                "{path}"
            );
        }
    }
}

/// Loading is over; the first step takes longer than clients like to hear nothing.
#[tokio::test]
async fn a_stream_that_has_nothing_to_say_yet_is_kept_awake() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Text(String::new()),
        step_delay: std::time::Duration::from_millis(15_300),
        ..FakeOptions::default()
    });
    let ask = async |path: &str, members: Value| {
        let body = with(user("plain"), with(members, json!({"stream": true})));
        host.text(Method::POST, path, body.to_string()).await.1
    };
    let (chat, message, response, native) = tokio::join!(
        ask("/v1/chat/completions", json!({})),
        ask("/v1/messages", json!({})),
        ask("/v1/responses", json!({"input": "x"})),
        ask("/api/chat", json!({})),
    );
    for (path, events) in [("chat", chat), ("messages", message)] {
        assert!(events.contains(": ping\n\n"), "{path}: {events}");
    }
    // Codex counts events: the first one that says so, and one for each wait.
    let n_events = response.matches("event: response.in_progress\n").count();
    assert!(n_events >= 2, "{response}");
    assert!(!response.contains(": ping"), "{response}");
    // Lines have no comments.
    for line in native.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}
