//! Models of other servers behind ours: one is played by a server of ours, the others misbehave.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, response::IntoResponse as _, routing::post};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use llmsrv_config::{Secret, UpstreamConfig};
use llmsrv_engine::{
    Pooling,
    fake::{Answer, FakeOptions},
};
use llmsrv_server::{Settings, Upstream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::host::{Host, embedding, host_with, saying, settings};

fn upstream(address: SocketAddr, remote: &str) -> Upstream {
    let settings = UpstreamConfig {
        name: format!("at{}", address.port()),
        url: format!("http://{address}/v1"),
        api_key: Some(Secret::new("sesame".into())),
        models: vec![("far".into(), remote.into())],
        weight: 1,
        parallel: 0,
        connect_timeout: Duration::from_secs(1),
        first_token_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_millis(500),
        health_interval: Duration::from_mins(1),
        health_path: "/models".into(),
        local_fallback: false,
    };
    Upstream::new(settings).unwrap()
}

fn front(upstreams: Vec<Upstream>) -> Host {
    let settings = Settings {
        upstreams,
        ..settings()
    };
    host_with(settings, || FakeOptions {
        answer: Answer::Text("from here".into()),
        ..FakeOptions::default()
    })
}

/// Serves a router on loopback for the rest of the test.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A server that streams these texts as they are, and then does what it is told.
async fn peer(texts: Vec<&'static str>, then: Then) -> SocketAddr {
    let answer = move || {
        let texts = texts.clone();
        async move {
            let said = stream::iter(texts).map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
            let last = stream::once(async move {
                match then {
                    Then::End => Ok(Bytes::new()),
                    Then::Break => {
                        // A body that has nothing to say now lets what it said before be sent.
                        tokio::task::yield_now().await;
                        Err(std::io::Error::other("cut"))
                    }
                    Then::Hang => std::future::pending().await,
                }
            });
            Body::from_stream(said.chain(last)).into_response()
        }
    };
    serve(Router::new().route("/v1/chat/completions", post(answer))).await
}

#[derive(Clone, Copy)]
enum Then {
    End,
    Break,
    Hang,
}

/// A server that refuses.
async fn refusing(status: u16) -> SocketAddr {
    let answer = move || async move {
        let status = StatusCode::from_u16(status).unwrap();
        (
            status,
            json!({"error": {"message": "not today"}}).to_string(),
        )
    };
    serve(Router::new().route("/v1/chat/completions", post(answer))).await
}

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

fn ask(stream: bool) -> Value {
    json!({"model": "far", "stream": stream, "messages": [{"role": "user", "content": "x"}]})
}

async fn lines(host: &Host) -> Vec<Value> {
    let (status, text) = host
        .text(Method::POST, "/api/chat", ask(true).to_string())
        .await;
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[tokio::test]
async fn a_server_of_ours_answers_in_every_dialect() {
    let back = saying("<think>hm</think>Yes.");
    let address = serve(llmsrv_server::router(&back.app)).await;
    let front = front(vec![upstream(address, "thinker")]);
    let (status, answer) = front.post("/api/chat", ask(false)).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        (
            &answer["message"]["content"],
            &answer["message"]["thinking"],
            &answer["done_reason"]
        ),
        (&json!("Yes."), &json!("hm"), &json!("stop"))
    );
    assert_eq!(answer["model"], "far");
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 0);
    assert!(answer["eval_count"].as_u64().unwrap() > 0);
    let (_, answer) = front.post("/v1/chat/completions", ask(false)).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Yes.");
    let mut body = ask(false);
    body["max_tokens"] = json!(100);
    body["thinking"] = json!({"type": "adaptive"});
    let (_, answer) = front.post("/v1/messages", body).await;
    assert_eq!(answer["content"][1]["text"], "Yes.");
    let (_, answer) = front
        .post("/v1/responses", json!({"model": "far", "input": "x"}))
        .await;
    assert_eq!(answer["output"][1]["content"][0]["text"], "Yes.");
    let (_, answer) = front
        .post(
            "/api/generate",
            json!({"model": "far", "prompt": "x", "stream": false}),
        )
        .await;
    assert_eq!(
        (&answer["response"], &answer["thinking"]),
        (&json!("Yes."), &json!("hm"))
    );
    let (_, loaded) = front.post("/api/generate", json!({"model": "far"})).await;
    assert_eq!(loaded["done_reason"], "load");
}

#[tokio::test]
async fn its_models_are_in_the_lists() {
    let front = front(vec![upstream(nobody().await, "x")]);
    let tags = front.get("/api/tags").await;
    let far = |list: &Value, key: &str| {
        let list = list.as_array().unwrap().clone();
        list.into_iter().find(|model| model[key] == "far:latest")
    };
    let entry = far(&tags["models"], "name").unwrap();
    assert_eq!(entry["details"]["format"], "upstream");
    assert!(far(&front.get("/v1/models").await["data"], "id").is_some());
    assert_eq!(front.get("/v1/models/far").await["id"], "far");
    let (status, shown) = front.post("/api/show", json!({"model": "far"})).await;
    assert_eq!(status, 200);
    assert!(shown["model_info"].is_object(), "{shown}");
}

#[tokio::test]
async fn calls_that_come_in_bits_are_given_whole() {
    const CALLS: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"add\",\"arguments\":\"\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1}\"}}]}}]}\n\n",
    );
    let address = peer(vec![CALLS, END], Then::End).await;
    let front = front(vec![upstream(address, "x")]);
    let (_, answer) = front.post("/api/chat", ask(false)).await;
    assert_eq!(
        answer["message"]["tool_calls"],
        json!([{"id": "c1", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}}])
    );
    let (_, answer) = front.post("/v1/chat/completions", ask(false)).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
}

/// What was said before the end came is of use.
#[tokio::test]
async fn calls_that_were_cut_are_left_out() {
    const CALL: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hm.\",\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"one\",\"arguments\":\"{}\"}},{\"index\":1,\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":\"}},{\"index\":2,\"function\":{\"name\":\"more\",\"arguments\":\"\"}}]}}]}\n\n";
    const CUT: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    let front_ = front(vec![upstream(peer(vec![CALL, CUT], Then::End).await, "x")]);
    let (status, answer) = front_.post("/api/chat", ask(false)).await;
    assert_eq!(status, 200, "{answer}");
    let calls = answer["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(
        (calls.len(), &calls[0]["function"]["name"]),
        (1, &json!("one"))
    );
    assert_eq!(
        (
            &answer["message"]["content"],
            &answer["done_reason"],
            &answer["eval_count"]
        ),
        (&json!("Hm."), &json!("length"), &json!(2))
    );
    // Whoever had the time to end should have ended the arguments.
    let front = front(vec![upstream(peer(vec![CALL, END], Then::End).await, "x")]);
    let (status, answer) = front.post("/api/chat", ask(false)).await;
    assert_eq!(status, 502, "{answer}");
}

#[tokio::test]
async fn plain_completions_have_their_probabilities_and_no_images() {
    let back = saying("Yes.");
    let address = serve(llmsrv_server::router(&back.app)).await;
    let front = front(vec![upstream(address, "plain")]);
    let body = |model: &str| json!({"model": model, "prompt": "x", "raw": true, "stream": false, "logprobs": true, "top_logprobs": 1});
    let (_, expected) = back.post("/api/generate", body("plain")).await;
    let (status, got) = front.post("/api/generate", body("far")).await;
    assert_eq!(status, 200, "{got}");
    let tokens = got["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), expected["logprobs"].as_array().unwrap().len());
    for (token, expected) in tokens.iter().zip(expected["logprobs"].as_array().unwrap()) {
        assert_eq!(token["token"], expected["token"]);
        assert!(token["logprob"].is_f64(), "{token}");
        let best = token["top_logprobs"].as_array().unwrap();
        assert_eq!((best.len(), &best[0]["token"]), (1, &token["token"]));
    }
    let mut seeing = body("far");
    seeing["images"] = json!(["iVBORw=="]);
    let (status, refused) = front.post("/api/generate", seeing).await;
    let text = refused["error"].as_str().unwrap();
    assert!(status == 400 && text.contains("images"), "{refused}");
}

/// No answer is better than one that says nothing.
#[tokio::test]
async fn an_answer_without_tokens_is_the_best_of_none() {
    const SAID: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"logprobs\":{\"content\":[{\"token\":\"Hello\",\"logprob\":-1.5}]}}]}\n\n";
    let n_asked = Arc::new(AtomicUsize::new(0));
    let answer = move || {
        let is_first = n_asked.fetch_add(1, Ordering::Relaxed) == 0;
        let said = if is_first {
            END.to_owned()
        } else {
            [SAID, END].concat()
        };
        async move { Body::from(said).into_response() }
    };
    let address = serve(Router::new().route("/v1/chat/completions", post(answer))).await;
    let front = front(vec![upstream(address, "x")]);
    let body = json!({"model": "far", "prompt": "x", "best_of": 2});
    let (status, answer) = front.post("/v1/completions", body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["text"], "Hello");
}

#[tokio::test]
async fn a_server_that_fails_at_once_is_passed_over() {
    let good = peer(vec![HELLO, END], Then::End).await;
    for bad in [
        nobody().await,
        refusing(500).await,
        refusing(401).await,
        refusing(404).await,
        refusing(429).await,
        peer(vec![], Then::Break).await,
        peer(vec![], Then::Hang).await,
        peer(
            vec!["data: {\"error\":{\"message\":\"no\"}}\n\n"],
            Then::End,
        )
        .await,
    ] {
        let mut first = upstream(bad, "x");
        first.settings.weight = 1000; // it is asked first
        let front = front(vec![first, upstream(good, "x")]);
        for _ in 0..2 {
            let (status, answer) = front.post("/api/chat", ask(false)).await;
            assert_eq!(
                (status, &answer["message"]["content"]),
                (200, &json!("Hello")),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_the_last_line() {
    for then in [Then::Break, Then::Hang, Then::End] {
        let bad = peer(vec![HELLO], then).await;
        let front = front(vec![upstream(bad, "x")]);
        let started = Instant::now();
        let lines = lines(&front).await;
        assert!(started.elapsed() < Duration::from_secs(10));
        let (last, before) = lines.split_last().unwrap();
        let said: String = before
            .iter()
            .filter_map(|line| line["message"]["content"].as_str())
            .collect();
        assert_eq!(said, "Hello");
        assert!(
            last["error"].as_str().unwrap().contains("upstream at"),
            "{last}"
        );
        let (status, answer) = front.post("/api/chat", ask(false)).await;
        assert!(status == 502 || status == 504, "{status} {answer}");
    }
    // A stream that is closed in order, but without a reason for its end, was given up.
    let given_up = peer(vec![HELLO, "data: [DONE]\n\n"], Then::End).await;
    let front = front(vec![upstream(given_up, "x")]);
    let (status, answer) = front.post("/api/chat", ask(false)).await;
    assert_eq!(status, 502, "{answer}");
}

#[tokio::test]
async fn when_nobody_answers_the_client_is_told_or_served_here() {
    for (bad, status) in [
        (nobody().await, 502),
        (refusing(503).await, 503),
        (peer(vec![], Then::Hang).await, 504),
    ] {
        let front = front(vec![upstream(bad, "x")]);
        let (got, answer) = front.post("/api/chat", ask(false)).await;
        assert_eq!(got, status, "{answer}");
        assert!(
            !answer["error"].as_str().unwrap().contains("127.0.0.1"),
            "{answer}"
        );
    }
    // A mistake of the client is no failure of the server.
    let front_ = front(vec![
        upstream(refusing(400).await, "x"),
        upstream(peer(vec![HELLO, END], Then::End).await, "x"),
    ]);
    let statuses = [
        front_.post("/api/chat", ask(false)).await.0,
        front_.post("/api/chat", ask(false)).await.0,
    ];
    assert!(statuses.contains(&400), "{statuses:?}");

    let away = UpstreamConfig {
        models: vec![("plain".into(), "x".into())],
        local_fallback: true,
        ..upstream(nobody().await, "x").settings
    };
    let front = front(vec![Upstream::new(away).unwrap()]);
    let mut body = ask(false);
    body["model"] = json!("plain");
    let (status, answer) = front.post("/api/chat", body).await;
    assert_eq!(
        (status, &answer["message"]["content"]),
        (200, &json!("from here")),
        "{answer}"
    );
}

/// Waits until something is so, but not for ever.
async fn until(is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), so)
        .await
        .expect("it never is so");
}

#[tokio::test]
async fn requests_are_shared_by_weight_and_limits_hold() {
    let counters: Vec<Arc<AtomicUsize>> = (0..2).map(|_| Arc::default()).collect();
    let mut upstreams = Vec::new();
    // Answers end when all questions are there.
    let (release, released) = tokio::sync::watch::channel(false);
    for counter in &counters {
        let (counter, released) = (counter.clone(), released.clone());
        let answer = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut released = released.clone();
            async move {
                let end = stream::once(async move {
                    released.wait_for(|released| *released).await.unwrap();
                    Ok::<_, Infallible>(Bytes::from(END))
                });
                let begin = stream::iter([Ok(Bytes::from(HELLO))]);
                Body::from_stream(begin.chain(end)).into_response()
            }
        };
        let address = serve(Router::new().route("/v1/chat/completions", post(answer))).await;
        upstreams.push(upstream(address, "x"));
    }
    upstreams[0].settings.weight = 3;
    let front = Arc::new(front(upstreams.clone()));
    let asks = (0..8).map(|_| {
        let front = front.clone();
        async move { front.post("/api/chat", ask(false)).await.0 }
    });
    let got = || {
        let counts = counters
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed));
        counts.collect::<Vec<usize>>()
    };
    let all = async {
        until(|| got().iter().sum::<usize>() == 8).await;
        release.send_replace(true);
    };
    let (statuses, ()) = tokio::join!(futures_util::future::join_all(asks), all);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(got(), [6, 2]);

    upstreams.truncate(1);
    upstreams[0].settings.parallel = 1;
    let front = Arc::new(self::front(upstreams));
    release.send_replace(false);
    let refused = AtomicUsize::new(0);
    let asks = (0..3).map(|_| async {
        let status = front.post("/api/chat", ask(false)).await.0;
        if status == 503 {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        status
    });
    let others = async {
        until(|| refused.load(Ordering::Relaxed) == 2).await;
        release.send_replace(true);
    };
    let (mut statuses, ()) = tokio::join!(futures_util::future::join_all(asks), others);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503, 503]);
}

#[tokio::test]
async fn a_stream_is_passed_on_as_it_comes_and_ends_with_its_client() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<&str>();
    let sender = Arc::new(sender);
    let dropped = sender.clone();
    let answer = move || {
        let guard = Guard(dropped.clone());
        async move {
            let bits = stream::unfold((0, guard), |(n, guard)| async move {
                if n > 0 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Some((Ok::<_, Infallible>(Bytes::from(HELLO)), (n + 1, guard)))
            });
            Body::from_stream(bits).into_response()
        }
    };
    let address = serve(Router::new().route("/v1/chat/completions", post(answer))).await;
    let front = front(vec![upstream(address, "x")]);
    let response = front
        .send(Method::POST, "/api/chat", &[], ask(true).to_string())
        .await;
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.ends_with(b"\n"));
    drop(body);
    let ended = tokio::time::timeout(Duration::from_secs(5), receiver.recv()).await;
    assert_eq!(ended.unwrap(), Some("dropped"));

    /// Tells when the stream behind us is given up.
    struct Guard(Arc<tokio::sync::mpsc::UnboundedSender<&'static str>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
}

#[tokio::test]
async fn the_key_is_sent_and_images_and_options_arrive() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let answer = move |headers: http::HeaderMap, body: String| async move {
        sender.send((headers, body)).unwrap();
        Body::from([HELLO, END].concat()).into_response()
    };
    let address = serve(Router::new().route("/v1/chat/completions", post(answer))).await;
    let front = front(vec![upstream(address, "org/Model")]);
    let mut body = ask(false);
    body["messages"][0]["images"] = json!(["iVBORw=="]);
    body["options"] = json!({"temperature": 0.5, "top_n_sigma": 1.5, "typical_p": 0.75, "num_predict": 9, "num_ctx": 100});
    body["format"] = json!({"type": "object"});
    let (status, answer) = front.post("/api/chat", body).await;
    assert_eq!(status, 200, "{answer}");
    let (headers, body) = receiver.recv().await.unwrap();
    assert_eq!(headers["authorization"], "Bearer sesame");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({
            "model": "org/Model",
            "stream": true,
            "stream_options": {"include_usage": true},
            "temperature": 0.5,
            "top_n_sigma": 1.5,
            "typical_p": 0.75,
            "max_tokens": 9,
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true}},
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
            ]}],
        })
    );
}

#[tokio::test]
async fn vectors_come_from_other_servers_too() {
    let back = embedding(|| FakeOptions::embedding_only(Pooling::Mean));
    let address = serve(llmsrv_server::router(&back.app)).await;
    let mut broken = upstream(peer(vec!["{\"data\":[]}"], Then::End).await, "x");
    broken.settings.weight = 1000; // it is asked first
    let front = front(vec![broken, upstream(address, "embedder")]);
    let body = |model: &str| json!({"model": model, "input": ["abc", "xy"]});
    for path in ["/api/embed", "/v1/embeddings"] {
        let (_, expected) = back.post(path, body("embedder")).await;
        let (status, got) = front.post(path, body("far")).await;
        assert_eq!(status, 200, "{got}");
        for key in ["embeddings", "data", "prompt_eval_count", "usage"] {
            assert_eq!(got[key], expected[key], "{path} {key}");
        }
    }
    // In tokens, and one text in the older form.
    let (_, expected) = back
        .post(
            "/v1/embeddings",
            json!({"model": "embedder", "input": [[97, 98]]}),
        )
        .await;
    let (_, got) = front
        .post(
            "/v1/embeddings",
            json!({"model": "far", "input": [[97, 98]]}),
        )
        .await;
    assert_eq!(got["data"], expected["data"]);
    let (_, one) = front
        .post("/api/embeddings", json!({"model": "far", "prompt": "abc"}))
        .await;
    assert_eq!(one["embedding"].as_array().unwrap().len(), 8);
    let rerank = json!({"model": "far", "query": "a", "documents": ["b"]});
    let (status, refused) = front.post("/v1/rerank", rerank).await;
    assert_eq!(status, 400, "{refused}");
}

#[tokio::test]
async fn servers_can_be_replaced_while_others_run() {
    let (one, other) = (
        peer(vec![HELLO, END], Then::End).await,
        peer(vec![HELLO, END], Then::Hang).await,
    );
    let front = front(vec![upstream(one, "x")]);
    let with = |upstreams| Settings {
        upstreams,
        ..settings()
    };
    front.app.reload(with(vec![]));
    let (status, _) = front.post("/api/chat", ask(false)).await;
    assert_eq!(status, 404);
    front
        .app
        .reload(with(vec![upstream(other, "x"), upstream(one, "x")]));
    let (status, answer) = front.post("/api/chat", ask(false)).await;
    assert_eq!(
        (status, &answer["message"]["content"]),
        (200, &json!("Hello"))
    );
}

#[tokio::test]
async fn their_tokens_are_counted() {
    let address = peer(vec![HELLO, END], Then::End).await;
    let front = front(vec![upstream(address, "x")]);
    // Whatever the client writes, the name is that of the settings.
    for name in ["far", "FAR:latest"] {
        let mut body = ask(false);
        body["model"] = json!(name);
        assert_eq!(front.post("/api/chat", body).await.0, 200);
    }
    let (_, text) = front.text(Method::GET, "/metrics", "").await;
    for line in [
        "llmsrv_prompt_tokens_total{model=\"far:latest\"} 14",
        "llmsrv_generated_tokens_total{model=\"far:latest\"} 4",
        "llmsrv_answers_total{outcome=\"done\"} 2",
        "llmsrv_time_to_first_token_seconds_count{model=\"far:latest\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
