//! What every endpoint has in common: which paths there are, and what a request may look like.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::host::{Host, host, saying};

/// Endpoints that take a model, with the rest of a sound request.
fn endpoints() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "x"}]);
    vec![
        ("/api/generate", json!({"prompt": "x", "stream": false})),
        ("/api/chat", json!({"messages": messages, "stream": false})),
        ("/api/show", json!({})),
        ("/api/embed", json!({"input": "x"})),
        ("/api/embeddings", json!({"prompt": "x"})),
        ("/api/rerank", json!({"query": "x", "documents": ["y"]})),
        ("/api/tokenize", json!({"content": "x"})),
        ("/api/detokenize", json!({"tokens": [1]})),
        ("/v1/chat/completions", json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": "x"})),
        ("/v1/embeddings", json!({"input": "x"})),
        ("/v1/rerank", json!({"query": "x", "documents": ["y"]})),
        ("/v1/responses", json!({"input": "x"})),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 5}),
        ),
        ("/v1/messages/count_tokens", json!({"messages": messages})),
    ]
}

/// Those that only manage models.
const MANAGING: &[&str] = &["/api/pull", "/api/push", "/api/create", "/api/copy"];

/// The text of an error, wherever its dialect puts it.
fn error_text(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"));
    let error = &body["error"];
    let text = error.as_str().or(error["message"].as_str());
    text.unwrap_or_else(|| panic!("{body}")).to_owned()
}

async fn post(host: &Host, path: &str, body: &str) -> (u16, String) {
    host.text(Method::POST, path, body.to_owned()).await
}

#[tokio::test]
async fn every_path_knows_its_methods() {
    let host = host();
    for (path, _) in endpoints() {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let got = host.text(method.clone(), path, "").await;
            let expected = (405, "405 method not allowed".to_owned());
            assert_eq!(got, expected, "{method} {path}");
        }
    }
    for (method, path) in [
        (Method::POST, "/"),
        (Method::POST, "/api/version"),
        (Method::POST, "/api/tags"),
        (Method::POST, "/api/ps"),
        (Method::POST, "/api/status"),
        (Method::GET, "/api/pull"),
        (Method::GET, "/api/push"),
        (Method::GET, "/api/create"),
        (Method::GET, "/api/copy"),
        (Method::POST, "/api/delete"),
        (Method::GET, "/api/delete"),
        (Method::GET, "/api/me"),
        (Method::PUT, "/api/blobs/sha256:00"),
        (Method::POST, "/v1/models"),
        (Method::DELETE, "/v1/models/x"),
    ] {
        assert_eq!(
            host.text(method.clone(), path, "").await.0,
            405,
            "{method} {path}"
        );
    }
    for path in ["/api", "/v1", "/api/nope", "/v1/nope", "/API/TAGS"] {
        for method in [Method::GET, Method::POST] {
            let got = host.text(method.clone(), path, "").await;
            let expected = (404, "404 page not found".to_owned());
            assert_eq!(got, expected, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn what_only_a_cloud_has_is_refused_in_known_words() {
    let host = host();
    assert_eq!(
        host.post("/api/me", json!({})).await,
        (401, json!({"error": "unauthorized"}))
    );
    for path in [
        "/api/signout",
        "/api/experimental/web_search",
        "/api/experimental/web_fetch",
    ] {
        let (status, answer) = host.post(path, json!({"query": "x"})).await;
        assert!(status == 403 && answer["error"].is_string(), "{answer}");
    }
    let none = host.get("/api/experimental/model-recommendations").await;
    assert_eq!(none, json!({"recommendations": []}));
}

#[tokio::test]
async fn no_endpoint_looks_at_the_content_type() {
    let host = host();
    let all = endpoints().into_iter();
    let managing = MANAGING.iter().map(|path| (*path, json!({})));
    for (path, mut body) in all.chain(managing) {
        body["model"] = json!("no such model!");
        let body = body.to_string();
        let with_json = [("content-type", "application/json")];
        let expected = host
            .send(Method::POST, path, &with_json, body.clone())
            .await
            .status();
        for kind in [
            "application/x-www-form-urlencoded",
            "text/plain;charset=UTF-8",
            "",
            "nonsense",
        ] {
            let header = [("content-type", kind)];
            let headers = if kind.is_empty() {
                &[][..]
            } else {
                &header[..]
            };
            let response = host.send(Method::POST, path, headers, body.clone()).await;
            assert_eq!(response.status(), expected, "{path} {kind:?}");
            assert_ne!(response.status(), 415, "{path} {kind:?}");
        }
    }
}

#[tokio::test]
async fn every_endpoint_refuses_bodies_that_are_none() {
    let host = host();
    let managing = MANAGING.iter().map(|path| (*path, json!({})));
    for (path, mut rest) in endpoints().into_iter().chain(managing) {
        for empty in ["", " \n"] {
            let (status, body) = post(&host, path, empty).await;
            let got = (status, error_text(&body));
            assert_eq!(got, (400, "missing request body".into()), "{path}");
        }
        for broken in ["{", "[]", "\"x\"", "nonsense", "{\"model\":}"] {
            let (status, body) = post(&host, path, broken).await;
            let text = error_text(&body);
            assert!(
                status == 400 && text.starts_with("invalid request body"),
                "{path} {broken}: {status} {text}"
            );
        }
        let member = if path == "/api/copy" {
            "source"
        } else {
            "model"
        };
        rest[member] = json!(5);
        let (status, body) = post(&host, path, &rest.to_string()).await;
        let expected = format!("{member} must be a string");
        assert_eq!((status, error_text(&body)), (400, expected), "{path}");
    }
    let (status, body) = host.text(Method::DELETE, "/api/delete", "").await;
    let got = (status, error_text(&body));
    assert_eq!(got, (400, "missing request body".into()));
}

#[tokio::test]
async fn every_endpoint_says_which_model_it_lacks() {
    let host = host();
    for (path, body) in endpoints() {
        for absent in [json!(null), json!("")] {
            let mut body = body.clone();
            body["model"] = absent;
            let (status, text) = post(&host, path, &body.to_string()).await;
            let got = (status, error_text(&text));
            assert_eq!(got, (400, "model is required".into()), "{path}");
        }
        for bad in ["a b", "a/", "a:", "a@sha256:00", "-x", "../x", "a/b/c/d/e"] {
            let mut body = body.clone();
            body["model"] = json!(bad);
            let (status, text) = post(&host, path, &body.to_string()).await;
            let got = (status, error_text(&text));
            assert_eq!(got, (400, "invalid model name".into()), "{path} {bad}");
        }
        // As in the cloud's catalogue: nothing here runs elsewhere.
        for unknown in ["Nope", "me/nope:7b", "plain:cloud", "plain:7b-cloud"] {
            let mut body = body.clone();
            body["model"] = json!(unknown);
            let (status, text) = post(&host, path, &body.to_string()).await;
            let expected = match path {
                "/api/show" if unknown == "Nope" => "model 'Nope:latest' not found".to_owned(),
                path if path.contains("embed") || path.contains("rerank") => {
                    format!("model \"{unknown}\" not found, try pulling it first")
                }
                _ => format!("model '{unknown}' not found"),
            };
            assert_eq!((status, error_text(&text)), (404, expected), "{path}");
        }
    }
    for path in ["/api/pull", "/api/push", "/api/create"] {
        for absent in [json!({}), json!({"model": ""}), json!({"name": null})] {
            let got = host.post(path, absent).await;
            assert_eq!(got, (400, json!({"error": "model is required"})), "{path}");
        }
        let got = host.post(path, json!({"name": "a b", "from": "x"})).await;
        assert_eq!(got, (400, json!({"error": "invalid model name"})), "{path}");
    }
}

#[tokio::test]
async fn old_and_new_names_of_the_model_work() {
    let host = saying("ok");
    for (path, body) in endpoints() {
        // These dialects never had the older name.
        if path.starts_with("/v1/messages") || path == "/v1/responses" || path.contains("rerank") {
            continue;
        }
        for member in ["model", "name", "MODEL"] {
            let mut body = body.clone();
            body[member] = json!("plain:latest");
            let (status, text) = post(&host, path, &body.to_string()).await;
            assert_eq!(status, 200, "{path} {member}: {text}");
        }
    }
    for member in ["model", "name"] {
        let (status, _) = host
            .post(
                "/api/create",
                json!({member: "made", "from": "plain", "stream": false}),
            )
            .await;
        assert_eq!(status, 200, "create by {member}");
        let body = json!({member: "made"}).to_string();
        let done = host.text(Method::DELETE, "/api/delete", body).await;
        assert_eq!(done, (200, String::new()), "delete by {member}");
    }
}

#[tokio::test]
async fn members_may_be_null_unknown_or_written_otherwise() {
    let host = saying("ok");
    for (path, body) in endpoints() {
        if path.contains("rerank") {
            continue;
        }
        let mut members: Vec<String> = body
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{}:{value}", json!(name.to_uppercase())))
            .collect();
        members.push(r#""Model":"plain""#.into());
        for absent in ["options", "keep_alive", "format", "tools", "stop", "think"] {
            members.push(format!("\"{absent}\":null"));
        }
        members.push(r#""width":5,"height":5,"steps":1,"made_up":{"a":[1]}"#.into());
        let body = format!(" {{{}}} and more", members.join(","));
        let (status, text) = post(&host, path, &body).await;
        assert_eq!(status, 200, "{path} {body}: {text}");
    }
}

#[tokio::test]
async fn bodies_may_be_larger_than_two_megabytes() {
    let host = saying("ok");
    let large = "x".repeat(3 << 20);
    for (path, mut body) in [
        ("/api/generate", json!({"prompt": "x", "stream": false})),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}]}),
        ),
        ("/api/embed", json!({"input": "x"})),
    ] {
        body["model"] = json!("plain");
        body["unknown"] = json!(large);
        let (status, text) = post(&host, path, &body.to_string()).await;
        assert_eq!(status, 200, "{path}: {text}");
    }
}

#[tokio::test]
async fn answers_stream_by_default_where_clients_expect_it() {
    let host = saying("ok");
    for (path, mut body) in endpoints() {
        body.as_object_mut().unwrap().remove("stream");
        body["model"] = json!("plain");
        if path.contains("rerank") {
            continue;
        }
        let response = host.send(Method::POST, path, &[], body.to_string()).await;
        assert_eq!(response.status(), 200, "{path}");
        let expected = if ["/api/generate", "/api/chat"].contains(&path) {
            "application/x-ndjson"
        } else {
            "application/json; charset=utf-8"
        };
        assert_eq!(response.headers()["content-type"], expected, "{path}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&text).unwrap();
        for line in text.lines() {
            // Clients parse every line: none is empty.
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line.is_object(), "{path}: {text}");
        }
    }
}
