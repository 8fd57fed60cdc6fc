//! Load, memory and shutdown at the boundary: the real program, real sockets.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    many_clients::{leave_together, long_list, metric, stream_for},
    util::{Reply, Sandbox, Server},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stream_of_a_crowd_is_lost_and_memory_stays_flat() {
    let sandbox = Sandbox::new();
    // Contexts so short that the cache of prefixes is full soon: until then memory grows rightly.
    let short = [("LLMSRV_CONTEXT_LENGTH", "512")];
    let server = Arc::new(sandbox.serve_with(&["--parallel", "16"], &short));
    let time = Duration::from_secs(5);
    let sights = stream_for(&server, 64, time).await;
    assert!(sights.whole > 64 && sights.left > 0, "{sights:?}");
    assert_eq!(sights.refused, 0);
    let early = sights.most_resident(Duration::ZERO, time / 2);
    let late = sights.most_resident(time / 2, time * 2);
    assert!(late < early + (16 << 20), "{early} bytes became {late}");
    // A client may leave when its answer has just ended.
    let done = metric(&server, r#"answers_total{outcome="done"}"#).await as usize;
    let seen = sights.whole..=sights.whole + sights.left;
    assert!(seen.contains(&done), "{done} answers, {seen:?} seen");
    assert_eq!(metric(&server, r#"outcome="failed"}"#).await, 0.0);
}

#[tokio::test]
async fn nothing_is_computed_for_clients_who_left() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&["--parallel", "8"], &[]);
    let took = leave_together(&server, 8).await;
    // A tenth of a second is the goal on a machine with nothing else to do; see docs/performance/figures.md.
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(metric(&server, r#"outcome="cancelled"}"#).await, 8.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_turns_clients_away() {
    let sandbox = Sandbox::new();
    let server = Arc::new(sandbox.serve_with(&["--parallel", "1"], &[("LLMSRV_MAX_QUEUE", "4")]));
    server
        .post("/api/generate", &json!({"model": "default"}))
        .await
        .ok();
    let sights = stream_for(&server, 32, Duration::from_secs(1)).await;
    assert!(sights.refused > 0 && sights.whole > 0, "{sights:?}");
    assert_eq!(
        metric(&server, r#"refused_requests_total{reason="busy"}"#).await as usize,
        sights.refused
    );
}

/// Memory is counted to the byte, before loading and after.
#[tokio::test]
async fn a_model_is_loaded_into_exactly_the_memory_it_needs() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    server
        .post("/api/generate", &json!({"model": "default"}))
        .await
        .ok();
    let weights = metric(&server, "model_weights_bytes{").await;
    // The cache grows only for what runs, so after loading it is that of one context.
    let kv = metric(&server, "model_kv_cache_bytes{").await;
    let taken = metric(&server, "llmsrv_models_memory_bytes").await;
    assert!(
        weights > 1e6 && kv > 1e5 && taken == weights + kv,
        "{weights} {kv} {taken}"
    );
    for (less, status) in [(0, 200), (1, 500)] {
        let sandbox = Sandbox::new();
        let limit = (taken as u64 - less).to_string();
        let server = sandbox.serve_with(&[], &[("LLMSRV_MEMORY_LIMIT", &limit)]);
        let reply = server
            .post("/api/generate", &json!({"model": "default"}))
            .await;
        assert_eq!(reply.status, status, "{reply:?}");
        if status == 500 {
            assert!(
                reply.text.contains("requires more system memory"),
                "{reply:?}"
            );
        }
    }
}

/// Starts a stream that goes on for long; returns it after its first bytes.
async fn long_stream(server: &Server, n_tokens: usize) -> reqwest::Response {
    let body = json!({
        "model": "default", "prompt": "Count.", "raw": true, "format": long_list(),
        "options": {"num_predict": n_tokens},
    });
    let request = server.http.post(format!("{}/api/generate", server.url));
    let mut stream = request.body(body.to_string()).send().await.unwrap();
    stream.chunk().await.unwrap().unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_streams_end_and_takes_no_new_work() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &[("LLMSRV_GRACE", "60s")]);
    let mut stream = long_stream(&server, 300).await;
    let (url, http) = (server.url.clone(), server.http.clone());
    let ended = tokio::task::spawn_blocking(move || server.end("-TERM"));
    // New connections are refused, one that is there gets no more work.
    let refused = async {
        loop {
            match http.get(format!("{url}/health")).send().await {
                Err(_) => return,
                Ok(reply) if reply.status() == 503 => return,
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), refused)
        .await
        .expect("a server that stops takes no new work");
    let mut text = Vec::new();
    while let Some(bytes) = stream.chunk().await.unwrap() {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(text).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["done"], &last["done_reason"], &last["eval_count"]),
        (&json!(true), &json!("length"), &json!(300))
    );
    assert_eq!(ended.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_no_longer_than_its_grace() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &[("LLMSRV_GRACE", "300ms")]);
    let _stream = long_stream(&server, 100_000).await;
    let started = std::time::Instant::now();
    let code = tokio::task::spawn_blocking(move || server.end("-TERM")).await;
    assert_eq!(code.unwrap(), 0);
    let took = started.elapsed();
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_secs(20),
        "{took:?}"
    );
}

#[tokio::test]
async fn tokens_need_no_loaded_model() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let text = "Hello, world! <|im_start|> 日本";
    let answer = server
        .post(
            "/api/tokenize",
            &json!({"model": "default", "content": text, "with_pieces": true}),
        )
        .await
        .ok();
    let tokens = answer["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), answer["pieces"].as_array().unwrap().len());
    let back = server
        .post(
            "/api/detokenize",
            &json!({"model": "default", "tokens": tokens}),
        )
        .await
        .ok();
    assert_eq!(back["content"], text);
    assert_eq!(server.get("/api/ps").await.ok()["models"], json!([]));
    let reply = Reply::of(server.http.get(format!("{}/health", server.url))).await;
    assert_eq!(
        (reply.status, reply.text.as_str()),
        (200, r#"{"status":"ok"}"#)
    );
}
