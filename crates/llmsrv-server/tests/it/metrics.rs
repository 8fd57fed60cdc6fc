//! What operators see: `/metrics` and `/health`.

use http::Method;
use http_body_util::BodyExt as _;
use llmsrv_server::Keys;
use serde_json::json;

use crate::host::{Host, keyed, saying};

/// Returns the value of a line, 0 when it is not there.
async fn value(host: &Host, line: &str) -> f64 {
    let (status, text) = host.text(Method::GET, "/metrics", "").await;
    assert_eq!(status, 200);
    let found = text.lines().find_map(|have| have.strip_prefix(line));
    found.map_or(0.0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn everything_is_counted() {
    let host = saying("One two three.");
    let (_, answer) = host.ask(json!({})).await;
    let (_, again) = host.ask(json!({})).await;
    host.ask(json!({"model": "nope"})).await;
    host.text(Method::GET, "/no/such/path", "").await;
    let prompt = answer["prompt_eval_count"].as_f64().unwrap();
    let generated = answer["eval_count"].as_f64().unwrap() + again["eval_count"].as_f64().unwrap();
    let model = r#"{model="plain:latest"}"#;
    for (line, expected) in [
        (
            r#"llmsrv_http_requests_total{route="/api/generate",method="POST",status="200"}"#,
            2.0,
        ),
        (
            r#"llmsrv_http_requests_total{route="/api/generate",method="POST",status="404"}"#,
            1.0,
        ),
        (
            r#"llmsrv_http_requests_total{route="unknown",method="GET",status="404"}"#,
            1.0,
        ),
        (r#"llmsrv_answers_total{outcome="done"}"#, 2.0),
        (r#"llmsrv_model_loads_total{outcome="loaded"}"#, 1.0),
        ("llmsrv_model_load_seconds_count", 1.0),
        ("llmsrv_queue_wait_seconds_count", 2.0),
        ("llmsrv_models_loaded", 1.0),
        ("llmsrv_queue_length", 0.0),
        (
            &format!("llmsrv_time_to_first_token_seconds_count{model}"),
            2.0,
        ),
        (&format!("llmsrv_prompt_tokens_total{model}"), 2.0 * prompt),
        (&format!("llmsrv_generated_tokens_total{model}"), generated),
    ] {
        assert_eq!(value(&host, line).await, expected, "{line}");
    }
    for line in [
        &format!("llmsrv_prefix_cache_hit_tokens_total{model}"),
        &format!("llmsrv_model_kv_cache_bytes{model}"),
        &format!("llmsrv_inter_token_seconds_count{model}"),
        &format!("llmsrv_tokens_per_second_count{model}"),
        "llmsrv_models_memory_limit_bytes",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ] {
        assert!(value(&host, line).await > 0.0, "{line}");
    }
    // An unloaded model's figures stay counted, its memory does not.
    host.post("/api/generate", json!({"model": "plain", "keep_alive": 0}))
        .await;
    for (line, expected) in [
        (format!("llmsrv_generated_tokens_total{model}"), generated),
        (format!("llmsrv_model_kv_cache_bytes{model}"), 0.0),
        ("llmsrv_models_loaded".to_owned(), 0.0),
    ] {
        assert_eq!(value(&host, &line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_counted() {
    let host = saying("One two three.");
    let body = json!({"model": "plain", "prompt": "x"}).to_string();
    let mut stream = host
        .send(Method::POST, "/api/generate", &[], body)
        .await
        .into_body();
    stream.frame().await.unwrap().unwrap();
    drop(stream);
    assert_eq!(
        value(&host, r#"llmsrv_answers_total{outcome="cancelled"}"#).await,
        1.0
    );
}

#[tokio::test]
async fn no_text_of_a_client_becomes_a_label() {
    let host = saying("x");
    let odd = Method::from_bytes(b"EVILMETHOD").unwrap();
    host.text(odd, "/evil-path", "").await;
    host.ask(json!({"model": "evil-model"})).await;
    host.post("/api/tokenize", json!({"model": "evil-model"}))
        .await;
    let (_, text) = host.text(Method::GET, "/metrics", "").await;
    assert!(!text.to_lowercase().contains("evil"), "{text}");
    assert!(text.contains(r#"method="other""#), "{text}");
}

#[tokio::test]
async fn both_forms_of_the_text_are_spoken() {
    let host = saying("x");
    for (accept, kind) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ] {
        let response = host
            .send(Method::GET, "/metrics", &[("accept", accept)], "")
            .await;
        assert_eq!(response.headers()["content-type"], kind);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            text.ends_with(b"# EOF\n"),
            accept.starts_with("application")
        );
    }
    let locked = crate::host::host_with(keyed(Keys::plain(["secret"])), Default::default);
    assert_eq!(locked.text(Method::GET, "/metrics", "").await.0, 401);
    assert_eq!(locked.text(Method::GET, "/health", "").await.0, 200);
}
