//! The main job: the embedded model answers over HTTP.

use serde_json::{Value, json};

use crate::util::Sandbox;

const REVERSE: &str = "Write a Python function that reverses a string.";

#[tokio::test]
async fn a_plain_curl_is_answered_with_code() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let body = format!(r#"{{"model":"default","prompt":"{REVERSE}","stream":false}}"#);
    let output = std::process::Command::new("curl")
        .args(["-sS", "-d", &body, &format!("{}/api/generate", server.url)])
        .output()
        .expect("curl is installed by the test command");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        answer["response"]
            .as_str()
            .unwrap()
            .contains("def reverse_string"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_answer_has_every_field_of_the_table() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let before = jiff::Timestamp::now();
    let answer = server
        .post(
            "/api/generate",
            &json!({"model": "default", "prompt": REVERSE, "stream": false}),
        )
        .await
        .ok();

    assert_eq!(answer["model"], "default");
    assert_eq!(answer["done"], true);
    assert_eq!(answer["done_reason"], "stop");
    let created = answer["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.contains('.'), "{created}");
    assert!(created.parse::<jiff::Timestamp>().unwrap() >= before);
    for field in [
        "total_duration",
        "load_duration",
        "prompt_eval_count",
        "prompt_eval_duration",
        "eval_count",
        "eval_duration",
    ] {
        assert!(answer[field].as_u64().unwrap() > 0, "{field}: {answer}");
    }
    let count =
        answer["prompt_eval_count"].as_u64().unwrap() + answer["eval_count"].as_u64().unwrap();
    let context = answer["context"].as_array().unwrap();
    assert!(
        (context.len() as u64).abs_diff(count) <= 1,
        "context {} of {count} tokens",
        context.len()
    );
    let parts: u64 = ["load_duration", "prompt_eval_duration", "eval_duration"]
        .iter()
        .map(|field| answer[field].as_u64().unwrap())
        .sum();
    assert!(
        parts <= answer["total_duration"].as_u64().unwrap(),
        "{answer}"
    );
}

#[tokio::test]
async fn a_stream_says_the_same_in_pieces() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let mut request = json!({"model": "default", "prompt": REVERSE, "options": {"temperature": 0}});
    let lines = server.stream("/api/generate", &request).await;
    request["stream"] = json!(false);
    let whole = server.post("/api/generate", &request).await.ok();

    assert!(lines.len() > 10, "{} lines", lines.len());
    let (last, pieces) = lines.split_last().unwrap();
    assert!(
        pieces
            .iter()
            .all(|line| line["done"] == false && line["model"] == "default")
    );
    assert_eq!(last["done"], true);
    assert_eq!(last["eval_count"], whole["eval_count"]);
    let text: String = lines
        .iter()
        .map(|line| line["response"].as_str().unwrap())
        .collect();
    assert_eq!(text, whole["response"].as_str().unwrap());
}

#[tokio::test]
async fn a_chat_holds_several_turns() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let mut messages: Vec<Value> = Vec::new();
    let mut prompt_tokens = 0;
    for (question, expected) in [
        ("Hello!", "built-in model"),
        ("What is Rust?", "compiled programming language"),
        ("Tell me a joke", "dark mode"),
    ] {
        messages.push(json!({"role": "user", "content": question}));
        let request = json!({"model": "default", "messages": messages, "stream": false, "options": {"temperature": 0}});
        let answer = server.post("/api/chat", &request).await.ok();
        assert_eq!(answer["message"]["role"], "assistant");
        let content = answer["message"]["content"].as_str().unwrap();
        assert!(!content.is_empty());
        // The model is far too small for reliable second turns; the first one it knows by heart.
        if messages.len() == 1 {
            assert!(content.contains(expected), "{question}: {content}");
        }
        let tokens = answer["prompt_eval_count"].as_u64().unwrap();
        assert!(
            tokens > prompt_tokens,
            "earlier turns are part of the prompt"
        );
        prompt_tokens = tokens;
        messages.push(answer["message"].clone());
    }
}

#[tokio::test]
async fn context_of_an_answer_continues_the_conversation() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let first = server
        .post(
            "/api/generate",
            &json!({"model": "default", "prompt": "Hello!", "stream": false}),
        )
        .await
        .ok();
    let second = server
        .post(
            "/api/generate",
            &json!({"model": "default", "prompt": "What is Rust?", "context": first["context"], "stream": false}),
        )
        .await
        .ok();
    let used = first["context"].as_array().unwrap().len() as u64;
    assert!(
        second["prompt_eval_count"].as_u64().unwrap() > used,
        "{second}"
    );
}

#[tokio::test]
async fn models_are_listed_shown_copied_and_deleted() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let tags = server.get("/api/tags").await.ok();
    let names: Vec<&str> = tags["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"default:latest"), "{names:?}");
    assert_eq!(
        names.len(),
        2,
        "the embedded model under its name and as default: {names:?}"
    );

    let shown = server
        .post("/api/show", &json!({"model": "default"}))
        .await
        .ok();
    assert_eq!(shown["details"]["family"], "llama");
    assert_eq!(shown["details"]["quantization_level"], "Q8_0");
    assert_eq!(shown["model_info"]["general.architecture"], "llama");
    assert!(
        shown["parameters"]
            .as_str()
            .unwrap()
            .contains("temperature"),
        "{shown}"
    );
    assert!(
        shown["capabilities"]
            .as_array()
            .unwrap()
            .contains(&json!("completion"))
    );

    let copied = server
        .post(
            "/api/copy",
            &json!({"source": "default", "destination": "mine"}),
        )
        .await;
    assert_eq!((copied.status, copied.text.as_str()), (200, ""));
    let delete = server
        .http
        .delete(format!("{}/api/delete", server.url))
        .body(r#"{"model":"mine"}"#);
    let deleted = crate::util::Reply::of(delete).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (200, ""));
    assert_eq!(
        server
            .post("/api/show", &json!({"model": "mine"}))
            .await
            .status,
        404
    );
    assert_eq!(
        server.get("/api/tags").await.ok()["models"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_loaded_model_is_in_ps_until_it_is_unloaded() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    assert_eq!(server.get("/api/ps").await.ok()["models"], json!([]));
    let load = server
        .post("/api/generate", &json!({"model": "default"}))
        .await
        .ok();
    assert_eq!(
        (&load["done_reason"], &load["done"]),
        (&json!("load"), &json!(true))
    );
    let ps = server.get("/api/ps").await.ok();
    assert_eq!(ps["models"].as_array().unwrap().len(), 1, "{ps}");
    assert!(ps["models"][0]["size"].as_u64().unwrap() > 1_000_000);
    let unload = server
        .post(
            "/api/generate",
            &json!({"model": "default", "keep_alive": 0}),
        )
        .await
        .ok();
    assert_eq!(unload["done_reason"], "unload");
    assert_eq!(server.get("/api/ps").await.ok()["models"], json!([]));
}

#[tokio::test]
async fn the_server_ends_cleanly_on_signals() {
    for signal in ["-TERM", "-INT"] {
        let sandbox = Sandbox::new();
        let server = sandbox.serve();
        server.get("/api/version").await.ok();
        assert_eq!(server.end(signal), 0, "{signal}");
    }
}

#[tokio::test]
async fn options_without_effect_are_named_in_a_header() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let options = json!({"temprature": 0, "mirostat": 1, "num_predict": 1, "num_gpu": 0});
    for stream in [false, true] {
        for (path, input) in [
            ("generate", ("prompt", json!("Hi"))),
            (
                "chat",
                ("messages", json!([{"role": "user", "content": "Hi"}])),
            ),
        ] {
            let mut body = json!({"model": "default", "options": options, "stream": stream});
            body[input.0] = input.1;
            let url = format!("{}/api/{path}", server.url);
            let answer = server.http.post(url).json(&body).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            let warnings = answer.headers().get_all("warning").iter();
            let mut warnings: Vec<_> = warnings.map(|value| value.to_str().unwrap()).collect();
            warnings.sort_unstable();
            assert_eq!(
                warnings,
                [
                    r#"299 llmsrv "the option \"mirostat\" has no effect any more""#,
                    r#"299 llmsrv "there is no option \"temprature\"""#,
                ]
            );
        }
    }
}

/// Schemas as libraries write them: every answer satisfies its schema, all of it but what the answer's
/// header names, also where there is little room for it.
#[tokio::test]
async fn answers_satisfy_the_schemas_of_libraries() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let rows: Vec<Value> = serde_json::from_str(include_str!("../clients/schemas.json")).unwrap();
    assert_eq!(rows.len(), 20);
    for (row, num_predict) in rows.iter().flat_map(|row| [(row, 1500), (row, 250)]) {
        let (name, mut schema) = (&row["name"], row["schema"].clone());
        let body = json!({
            "model": "default", "prompt": row["prompt"], "format": schema, "stream": false,
            "options": {"temperature": 0, "num_predict": num_predict},
        });
        let url = format!("{}/api/generate", server.url);
        let answer = server.http.post(url).json(&body).send().await.unwrap();
        let warnings: Vec<String> = answer
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect();
        let expected = row["unenforced"].as_array().cloned().unwrap_or_default();
        assert_eq!(warnings.len(), expected.len(), "{name}: {warnings:?}");
        let answer: Value = answer.json().await.unwrap();
        // Texts have no bound of their own, and a model of this size may not find their end: they
        // are closed then.
        let reason = &answer["done_reason"];
        assert!(reason == "stop" || reason == "length", "{name}: {answer}");
        let said: Value = serde_json::from_str(answer["response"].as_str().unwrap()).unwrap();
        if expected.contains(&json!("uniqueItems")) {
            schema["properties"]["more"]["uniqueItems"] = false.into();
        }
        if expected.contains(&json!("pattern")) {
            schema["properties"]["email"]["pattern"] = "@".into();
        }
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&schema)
            .unwrap();
        assert!(validator.is_valid(&said), "{name}: {said}");
    }
}
