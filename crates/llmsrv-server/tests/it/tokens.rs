//! Text to tokens and back.

use http::Method;
use llmsrv_engine::fake::FakeOptions;
use serde_json::json;

use crate::host::{host, host_with, settings};

#[tokio::test]
async fn a_loaded_model_lends_its_vocabulary() {
    let host = host();
    host.post("/api/generate", json!({"model": "plain"})).await;
    let text = "<|im_start|>hé";
    for member in ["content", "prompt"] {
        let body = json!({"model": "plain", member: text, "with_pieces": true});
        let (status, answer) = host.post("/api/tokenize", body).await;
        assert_eq!(
            (status, answer),
            (
                200,
                json!({"tokens": [257, 104, 195, 169], "pieces": ["<|im_start|>", "h", [195], [169]]})
            )
        );
    }
    let body = json!({"model": "plain", "tokens": [257, 104, 195, 169]});
    assert_eq!(
        host.post("/api/detokenize", body).await,
        (200, json!({"content": text}))
    );
    let (_, answer) = host
        .post("/api/tokenize", json!({"model": "plain", "content": ""}))
        .await;
    assert_eq!(answer, json!({"tokens": []}));
}

#[tokio::test]
async fn a_model_need_not_be_loaded() {
    let host = host_with(settings(), || -> FakeOptions {
        panic!("nothing is loaded")
    });
    for keep_alive in [json!(null), json!(0), json!("1m"), json!(-1)] {
        let body = json!({"model": "Plain", "content": "face", "keep_alive": keep_alive});
        assert_eq!(
            host.post("/api/tokenize", body).await,
            (200, json!({"tokens": [5, 0, 2, 4]}))
        );
        let body = json!({"name": "plain", "tokens": [5, 0.0, 2, 4], "keep_alive": keep_alive});
        assert_eq!(
            host.post("/api/detokenize", body).await.0,
            400,
            "0.0 is no id"
        );
        let body = json!({"name": "plain", "tokens": [5, 0, 2, 4], "keep_alive": keep_alive});
        assert_eq!(
            host.post("/api/detokenize", body).await,
            (200, json!({"content": "face"}))
        );
    }
    assert_eq!(host.loaded().await, Vec::<String>::new());
}

#[tokio::test]
async fn keep_alive_holds_for_a_loaded_model() {
    let host = host();
    host.post("/api/generate", json!({"model": "plain"})).await;
    let body = json!({"model": "plain", "content": "x", "keep_alive": 0});
    assert_eq!(host.post("/api/tokenize", body).await.0, 200);
    assert_eq!(host.loaded().await, Vec::<String>::new());
}

#[tokio::test]
async fn refusals() {
    let host = host();
    for (path, body, status, text) in [
        ("tokenize", json!({}), 400, "model is required"),
        (
            "detokenize",
            json!({"tokens": []}),
            400,
            "model is required",
        ),
        (
            "tokenize",
            json!({"model": "a b", "content": ""}),
            400,
            "invalid model name",
        ),
        (
            "detokenize",
            json!({"model": "a b", "tokens": []}),
            400,
            "invalid model name",
        ),
        (
            "tokenize",
            json!({"model": "nope", "content": ""}),
            404,
            "model 'nope' not found",
        ),
        (
            "detokenize",
            json!({"model": "nope", "tokens": []}),
            404,
            "model 'nope' not found",
        ),
        (
            "tokenize",
            json!({"model": "plain"}),
            400,
            "content is required",
        ),
        (
            "detokenize",
            json!({"model": "plain"}),
            400,
            "tokens is required",
        ),
        (
            "tokenize",
            json!({"model": "plain", "content": 1}),
            400,
            "content must be a string",
        ),
        (
            "detokenize",
            json!({"model": "plain", "tokens": "x"}),
            400,
            "tokens must be a list",
        ),
        (
            "detokenize",
            json!({"model": "plain", "tokens": [6]}),
            400,
            "token 6 is not in the vocabulary",
        ),
        (
            "detokenize",
            json!({"model": "plain", "tokens": [-1]}),
            400,
            "token -1 is not in the vocabulary",
        ),
        (
            "tokenize",
            json!({"model": "plain", "content": "", "keep_alive": true}),
            400,
            "Unsupported type: 'bool'",
        ),
    ] {
        let got = host.post(&format!("/api/{path}"), body.clone()).await;
        assert_eq!(got, (status, json!({"error": text})), "{path} {body}");
    }
    for path in ["/api/tokenize", "/api/detokenize"] {
        assert_eq!(host.text(Method::POST, path, "").await.0, 400);
        assert_eq!(host.text(Method::GET, path, "").await.0, 405);
        assert_eq!(
            host.text(Method::POST, path, vec![b' '; 5 << 20]).await.0,
            413
        );
    }
}
