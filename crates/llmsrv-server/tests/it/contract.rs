//! The native API over a fake model (`docs/contracts/http-api.md` 1): statuses, texts and shapes, as tables.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use llmsrv_engine::fake::{Answer, FakeOptions};
use llmsrv_server::Keys;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::host::{configured, host, host_with, keyed, saying, settings};

#[tokio::test]
async fn fixed_answers() {
    let host = host();
    for (method, path, status, text) in [
        (Method::GET, "/", 200, "Ollama is running"),
        (Method::HEAD, "/", 200, ""),
        (Method::GET, "/nope", 404, "404 page not found"),
        (Method::GET, "/api/generate", 405, "405 method not allowed"),
        (Method::HEAD, "/api/tags", 200, ""),
        (Method::GET, "/health", 200, r#"{"status":"ok"}"#),
        (
            Method::GET,
            "/api/status",
            200,
            r#"{"cloud":{"disabled":true,"source":"env"},"role":"admin"}"#,
        ),
    ] {
        assert_eq!(
            host.text(method.clone(), path, "").await,
            (status, text.to_owned()),
            "{method} {path}"
        );
    }
    for (method, status) in [(Method::GET, 301), (Method::POST, 307)] {
        let response = host.send(method, "/api/tags/?x=1", &[], "").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (status, &"/api/tags?x=1".parse().unwrap())
        );
    }
    assert_eq!(
        host.text(Method::GET, "//evil.example/", "").await.0,
        404,
        "never a redirect to another host"
    );
}

#[tokio::test]
async fn refusals_have_the_texts_that_clients_know() {
    let host = host();
    let long = "word ".repeat(5000);
    let messages = json!([{"role": "user", "content": "x"}]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let too_long = "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the context length in settings, or use a model with a longer context length";
    for (path, body, status, text) in [
        ("generate", json!({}), 400, "model is required"),
        ("chat", json!({}), 400, "model is required"),
        ("show", json!({}), 400, "model is required"),
        (
            "generate",
            json!({"model": "bad name!", "prompt": "x"}),
            400,
            "invalid model name",
        ),
        (
            "chat",
            json!({"model": "a/b/c/d/e"}),
            400,
            "invalid model name",
        ),
        (
            "show",
            json!({"model": "../../etc"}),
            400,
            "invalid model name",
        ),
        (
            "copy",
            json!({"source": "a b", "destination": "x"}),
            400,
            "source \"a b\" is invalid",
        ),
        (
            "copy",
            json!({"source": "plain", "destination": ""}),
            400,
            "destination \"\" is invalid",
        ),
        (
            "copy",
            json!({"source": "nope", "destination": "x"}),
            404,
            "model \"nope\" not found",
        ),
        (
            "generate",
            json!({"model": "Nope", "prompt": "x"}),
            404,
            "model 'Nope' not found",
        ),
        (
            "chat",
            json!({"model": "nope:7b", "messages": messages}),
            404,
            "model 'nope:7b' not found",
        ),
        (
            "show",
            json!({"name": "nope"}),
            404,
            "model 'nope:latest' not found",
        ),
        (
            "generate",
            json!({"model": "plain", "suffix": "y"}),
            400,
            "registry.ollama.ai/library/plain:latest does not support insert",
        ),
        (
            "chat",
            json!({"model": "plain", "messages": messages, "tools": tools}),
            400,
            "registry.ollama.ai/library/plain:latest does not support tools",
        ),
        (
            "chat",
            json!({"model": "plain", "messages": messages, "think": true}),
            400,
            "\"plain\" does not support thinking",
        ),
        (
            "chat",
            json!({"model": "plain", "think": "x"}),
            400,
            "invalid think value: \"x\" (must be \"high\", \"medium\", \"low\", \"max\", true, or false)",
        ),
        (
            "chat",
            json!({"model": "plain", "top_logprobs": 21}),
            400,
            "top_logprobs must be between 0 and 20",
        ),
        (
            "generate",
            json!({"model": "plain", "raw": true, "system": "s"}),
            400,
            "raw mode does not support template, system, or context",
        ),
        (
            "generate",
            json!({"model": "plain", "format": "yaml"}),
            400,
            "invalid format: \"yaml\"; expected \"json\" or a valid JSON Schema object",
        ),
        (
            "generate",
            json!({"model": "plain", "options": {"num_ctx": "9"}}),
            400,
            "option \"num_ctx\" must be of type integer",
        ),
        (
            "generate",
            json!({"model": "plain", "keep_alive": "5x"}),
            400,
            "time: unknown unit \"x\" in duration \"5x\"",
        ),
        (
            "generate",
            json!({"model": "plain", "keep_alive": true}),
            400,
            "Unsupported type: 'bool'",
        ),
        (
            "generate",
            json!({"model": "plain", "images": ["a$b="]}),
            400,
            "illegal base64 data at input byte 1",
        ),
        (
            "generate",
            json!({"model": "plain", "prompt": "x", "context": [9_999_999]}),
            400,
            "token 9999999 is not in the vocabulary",
        ),
        (
            "generate",
            json!({"model": "plain", "prompt": long, "truncate": false}),
            400,
            too_long,
        ),
    ] {
        let got = host.post(&format!("/api/{path}"), body.clone()).await;
        assert_eq!(got, (status, json!({"error": text})), "{path} {body}");
    }
    for (body, text) in [
        ("", "missing request body"),
        ("{", "invalid request body"),
        ("[]", "invalid request body"),
    ] {
        for path in ["/api/generate", "/api/chat", "/api/show", "/api/copy"] {
            let (status, answer) = host.text(Method::POST, path, body).await;
            assert!(
                status == 400 && answer.contains(text),
                "{path} {body}: {answer}"
            );
        }
    }
    for (body, status, text) in [
        (r#"{"model":"nope"}"#, 404, "model 'nope' not found"),
        ("{}", 400, "model is required"),
        (r#"{"name":"a b"}"#, 400, "name \"a b\" is invalid"),
    ] {
        let got = host.text(Method::DELETE, "/api/delete", body).await;
        assert_eq!(got, (status, json!({"error": text}).to_string()), "{body}");
    }
    let (status, answer) = host.ask(json!({"template": "{{ if }}"})).await;
    assert!(
        status == 400
            && answer["error"]
                .as_str()
                .unwrap()
                .starts_with("template error"),
        "{answer}"
    );
    assert_eq!(
        host.text(Method::POST, "/api/show", vec![b' '; 2 << 20])
            .await
            .0,
        413
    );
}

#[tokio::test]
async fn bodies_are_understood_with_patience() {
    let host = host();
    let body = r#"{"MODEL":"plain","Prompt":"hi","stream":false,"format":"","tools":[],"extra":{"a":1},"system":null,"options":{"mirostat":1,"num_predict":2.9}} trailing"#;
    let response = host
        .send(
            Method::POST,
            "/api/generate",
            &[("content-type", "application/x-www-form-urlencoded")],
            body,
        )
        .await;
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["content-type"]
        ),
        (200, &"application/json; charset=utf-8".parse().unwrap())
    );
    let answer: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(
        (&answer["eval_count"], &answer["done_reason"]),
        (&json!(2), &json!("length"))
    );
}

#[tokio::test]
async fn streams_and_whole_answers_say_the_same() {
    let host = saying("One two three.");
    for (path, part) in [
        ("/api/generate", "/response"),
        ("/api/chat", "/message/content"),
    ] {
        let mut body = json!({"model": "Plain", "prompt": "hi", "messages": [{"role": "USER", "content": "hi"}]});
        let (status, text) = host.text(Method::POST, path, body.to_string()).await;
        assert_eq!(status, 200, "{text}");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let text: String = lines
            .iter()
            .map(|line| line.pointer(part).unwrap().as_str().unwrap())
            .collect();
        assert_eq!(text, "One two three.");
        let (last, before) = lines.split_last().unwrap();
        assert!(
            before
                .iter()
                .all(|line| line["done"] == false && line.get("done_reason").is_none())
        );
        assert_eq!(
            (&last["done"], &last["done_reason"], &last["model"]),
            (&json!(true), &json!("stop"), &json!("Plain"))
        );
        assert_eq!(last.get("context").is_some(), path == "/api/generate");
        body["stream"] = json!(false);
        assert_eq!(
            host.post(path, body).await.1.pointer(part).unwrap(),
            "One two three."
        );
    }
}

#[tokio::test]
async fn empty_requests_load_and_unload() {
    let host = host();
    for (path, extra) in [("/api/generate", "response"), ("/api/chat", "message")] {
        let (status, loaded) = host.post(path, json!({"model": "plain"})).await;
        assert_eq!(
            (status, &loaded["done_reason"], &loaded["done"]),
            (200, &json!("load"), &json!(true))
        );
        assert!(loaded.get(extra).is_some());
        let ps = host.get("/api/ps").await;
        for field in [
            "name",
            "model",
            "size",
            "size_vram",
            "digest",
            "details",
            "expires_at",
            "context_length",
        ] {
            assert!(ps["models"][0].get(field).is_some(), "{field}: {ps}");
        }
        let (_, unloaded) = host
            .post(path, json!({"model": "plain", "keep_alive": 0}))
            .await;
        assert_eq!(unloaded["done_reason"], "unload");
        assert_eq!(host.get("/api/ps").await["models"], json!([]));
    }
    assert_eq!(
        host.post("/api/generate", json!({"model": "nope", "keep_alive": 0}))
            .await
            .0,
        404
    );

    host.ask(json!({"keep_alive": 0.05})).await;
    let gone = async {
        while host.get("/api/ps").await["models"] != json!([]) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .expect("an idle model leaves after its time");
}

#[tokio::test]
async fn prompts_are_rendered_as_the_rules_say() {
    let host = host();
    let user = |text: &str| json!({"role": "user", "content": text});
    for (path, mut body, prompt) in [
        (
            "/api/generate",
            json!({"model": "plain", "prompt": "hi", "system": "S"}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "/api/generate",
            json!({"model": "plain", "prompt": "hi", "raw": true}),
            "hi",
        ),
        (
            "/api/generate",
            json!({"model": "plain", "prompt": "hi", "template": "[{{ .Prompt }}]"}),
            "[hi]",
        ),
        (
            "/api/generate",
            json!({"model": "filler", "prompt": "a", "suffix": "b"}),
            "<pre>a<suf>b<mid>",
        ),
        (
            "/api/chat",
            json!({"model": "plain", "messages": [user("a"), user("b")]}),
            "<|im_start|>user\na\n\nb<|im_end|>\n<|im_start|>assistant\n",
        ),
    ] {
        body["_debug_render_only"] = json!(true);
        let (_, answer) = host.post(path, body.clone()).await;
        assert_eq!(answer["_debug_info"]["rendered_template"], prompt, "{body}");
    }
}

#[tokio::test]
async fn thinking_and_calls_are_told_apart() {
    let (_, answer) = saying("<think>hm</think>\n\nYes.")
        .ask(json!({"model": "thinker"}))
        .await;
    assert_eq!(
        (&answer["thinking"], &answer["response"]),
        (&json!("hm"), &json!("Yes.")),
        "{answer}"
    );

    let host = saying(r#"<tool_call>{"name":"add","arguments":{"b":2,"a":1}}</tool_call>"#);
    let tools = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]);
    let body = json!({"model": "caller", "messages": [{"role": "user", "content": "1+2"}], "tools": tools, "stream": false});
    let (_, answer) = host.post("/api/chat", body).await;
    let call = &answer["message"]["tool_calls"][0];
    assert_eq!(
        call["function"]["arguments"].to_string(),
        r#"{"b":2,"a":1}"#,
        "{answer}"
    );
    assert!(call["id"].as_str().unwrap().starts_with("call_"));
    assert_eq!(
        (&answer["done_reason"], &answer["message"]["content"]),
        (&json!("stop"), &json!(""))
    );
}

#[tokio::test]
async fn limits_stops_and_probabilities() {
    let host = saying("alpha beta gamma delta");
    for (options, text, reason) in [
        (json!({"num_predict": 0}), "", "length"),
        (json!({"num_predict": 1}), "a", "length"),
        (json!({"stop": "gamma"}), "alpha beta ", "stop"),
        (json!({}), "alpha beta gamma delta", "stop"),
    ] {
        let (_, answer) = host.ask(json!({"options": options})).await;
        assert_eq!(
            (&answer["response"], &answer["done_reason"]),
            (&json!(text), &json!(reason)),
            "{options}"
        );
    }
    let (_, scored) = host.ask(json!({"logprobs": true, "top_logprobs": 2})).await;
    assert_eq!(scored["logprobs"][0]["token"], "a");
    assert_eq!(
        scored["logprobs"][0]["top_logprobs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    let turns: Vec<Value> = (0..50)
        .map(|i| json!({"role": (["user", "assistant"][i % 2]), "content": "words ".repeat(10)}))
        .collect();
    let body =
        json!({"model": "plain", "messages": turns, "stream": false, "options": {"num_ctx": 500}});
    let (_, answer) = host.post("/api/chat", body).await;
    assert!(
        answer["prompt_truncated"].as_u64().unwrap() > 1000,
        "{answer}"
    );
    assert!(answer["prompt_eval_count"].as_u64().unwrap() <= 500);
}

#[tokio::test]
async fn a_full_queue_is_refused_and_the_others_are_answered() {
    let one = configured(|config| {
        config.num_parallel = 1;
        config.max_queue = 1;
    });
    let host = host_with(one, || FakeOptions {
        answer: Answer::Text("ok".into()),
        step_delay: Duration::from_millis(400),
        ..FakeOptions::default()
    });
    host.post("/api/generate", json!({"model": "plain"})).await;
    let ask = || {
        host.send(
            Method::POST,
            "/api/generate",
            &[],
            r#"{"model":"plain","prompt":"x","stream":false}"#,
        )
    };
    let responses = futures_util::future::join_all((0..6).map(|_| ask())).await;
    let (busy, answered): (Vec<_>, Vec<_>) = responses
        .into_iter()
        .partition(|response| response.status() == 503);
    assert_eq!((busy.len(), answered.len()), (4, 2), "one runs, one waits");
    for refused in busy {
        assert_eq!(refused.headers()["retry-after"], "1");
        let text = refused.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            &text[..],
            br#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#
        );
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let one = configured(|config| config.num_parallel = 1);
    let host = host_with(one, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(2),
        ..FakeOptions::default()
    });
    let mut body = host
        .send(
            Method::POST,
            "/api/generate",
            &[],
            r#"{"model":"plain","prompt":"x"}"#,
        )
        .await
        .into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    let next = host.ask(json!({"options": {"num_predict": 3}}));
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(20), next)
            .await
            .expect("the place is free")
            .0,
        200
    );
}

#[tokio::test]
async fn one_model_makes_room_for_another() {
    let host = host_with(
        configured(|config| config.max_loaded_models = 1),
        FakeOptions::default,
    );
    for name in ["plain", "thinker", "plain"] {
        assert_eq!(host.ask(json!({"model": name})).await.0, 200);
        let ps = host.get("/api/ps").await;
        assert_eq!(
            (
                ps["models"].as_array().unwrap().len(),
                &ps["models"][0]["name"]
            ),
            (1, &json!(format!("{name}:latest")))
        );
    }
}

#[tokio::test]
async fn failures_name_no_paths_and_do_not_last() {
    let host = host_with(settings(), || FakeOptions {
        panic_on: Some("boom".into()),
        fail_on: Some("oops".into()),
        ..FakeOptions::default()
    });
    for _ in 0..2 {
        let (status, answer) = host.ask(json!({"model": "broken"})).await;
        let text = answer["error"].as_str().unwrap();
        assert!(
            status == 500 && text.contains("'broken:latest'") && !text.contains('/'),
            "{answer}"
        );
    }
    for bad in ["oops", "boom", "boom"] {
        assert_eq!(host.ask(json!({"prompt": bad})).await.0, 500, "{bad}");
        assert_eq!(host.ask(json!({})).await.0, 200, "after {bad}");
    }
}

#[tokio::test]
async fn foreign_pages_hosts_and_strangers_are_refused() {
    let host = host();
    for (method, headers, status) in [
        (Method::GET, &[("origin", "https://evil.example")][..], 403),
        (Method::OPTIONS, &[("origin", "https://evil.example")], 403),
        (Method::GET, &[("origin", "http://localhost:3000")], 200),
        (Method::OPTIONS, &[("origin", "http://127.0.0.1:5173")], 204),
        (Method::OPTIONS, &[], 204),
    ] {
        let response = host.send(method.clone(), "/api/tags", headers, "").await;
        assert_eq!(response.status(), status, "{method} {headers:?}");
        if let (Some((_, origin)), true) = (headers.first(), status < 300) {
            assert_eq!(
                response.headers()["access-control-allow-origin"]
                    .to_str()
                    .unwrap(),
                *origin
            );
        }
        if status == 403 {
            assert!(
                response
                    .into_body()
                    .collect()
                    .await
                    .unwrap()
                    .to_bytes()
                    .is_empty()
            );
        }
    }
    for (name, status) in [
        ("evil.example:11434", 403),
        ("127.0.0.1:11434", 200),
        ("box.local", 403),
    ] {
        let request = Request::builder()
            .uri("/api/tags")
            .header("host", name)
            .body(Body::empty())
            .unwrap();
        assert_eq!(
            llmsrv_server::router(&host.app)
                .oneshot(request)
                .await
                .unwrap()
                .status(),
            status,
            "{name}"
        );
    }
    let locked = host_with(keyed(Keys::plain(["secret"])), FakeOptions::default);
    for (path, headers, status) in [
        ("/", &[][..], 200),
        ("/api/tags", &[], 401),
        ("/api/tags", &[("authorization", "Bearer wrong")], 401),
        ("/api/tags", &[("authorization", "Bearer secret")], 200),
        ("/api/tags", &[("x-api-key", "secret")], 200),
    ] {
        assert_eq!(
            locked.send(Method::GET, path, headers, "").await.status(),
            status,
            "{path} {headers:?}"
        );
    }
}

#[tokio::test]
async fn lists_and_details_have_what_strict_clients_read() {
    let host = host();
    let tags = host.get("/api/tags").await;
    let plain = tags["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["name"] == "plain:latest")
        .unwrap();
    assert_eq!(
        (&plain["model"], plain["digest"].as_str().unwrap().len()),
        (&json!("plain:latest"), 64)
    );
    assert!(plain["size"].is_u64() && plain["modified_at"].is_string());
    for (field, value) in [
        ("format", "gguf"),
        ("family", "llama"),
        ("parameter_size", "1B"),
        ("quantization_level", "F16"),
    ] {
        assert_eq!(plain["details"][field], value);
    }
    for (name, verbose, capabilities, n_tokens) in [
        ("plain", false, json!(["completion"]), 0),
        ("caller", true, json!(["completion", "tools"]), 6),
        ("thinker", false, json!(["completion", "thinking"]), 0),
        ("filler", false, json!(["completion", "insert"]), 0),
    ] {
        let (_, shown) = host
            .post("/api/show", json!({"model": name, "verbose": verbose}))
            .await;
        assert_eq!(shown["capabilities"], capabilities, "{name}");
        assert_eq!(
            shown["model_info"]["tokenizer.ggml.tokens"]
                .as_array()
                .unwrap()
                .len(),
            n_tokens
        );
        assert!(
            shown["parameters"]
                .as_str()
                .unwrap()
                .contains("stop                           \"<|im_end|>\"")
        );
        assert!(
            shown["modelfile"]
                .as_str()
                .unwrap()
                .contains(&format!("FROM {name}:latest"))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_body_is_answered_without_a_server_error(
        body in prop::collection::vec(any::<u8>(), 0..200),
        member in "(model|prompt|messages|options|format|keep_alive|think|tools|images|context|stream)",
        value in "(null|true|-1|0\\.5|\"\"|\"x\"|\\[\\]|\\[1\\]|\\[\\{\\}\\]|\\{\\}|1e999|99999999999999999999)",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let typed = format!("{{\"model\":\"nope\",\"prompt\":\"x\",\"{member}\":{value}}}");
        runtime.block_on(async {
            let host = host();
            for path in ["/api/generate", "/api/chat", "/api/show", "/api/copy"] {
                for body in [body.clone(), typed.clone().into_bytes()] {
                    let (status, text) = host.text(Method::POST, path, body).await;
                    assert!(status < 500, "{path} {typed}: {text}");
                }
            }
        });
    }
}
