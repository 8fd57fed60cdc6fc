//! Vectors and rankings: `docs/contracts/http-api.md` 1.2, 1.5 and 1.13.

use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use http::Method;
use http_body_util::BodyExt as _;
use llmsrv_engine::{EmbeddingSpec, Pooling, fake::FakeOptions};
use llmsrv_gguf::{Metadata, Writer};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::host::{Host, embedding, host, host_with, settings};

fn embedder() -> Host {
    embedding(|| FakeOptions::embedding_only(Pooling::Mean))
}

fn reranker() -> Host {
    embedding(|| FakeOptions::embedding_only(Pooling::Rank))
}

fn floats(vector: &Value) -> Vec<f64> {
    let values = vector.as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap()).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[tokio::test]
async fn a_vector_for_each_input() {
    let host = embedder();
    let (status, one) = host
        .post("/api/embed", json!({"model": "embedder", "input": "abc"}))
        .await;
    assert_eq!(status, 200, "{one}");
    assert_eq!(one["model"], "embedder");
    assert_eq!(one["prompt_eval_count"], 3);
    assert!(one["total_duration"].as_u64().unwrap() >= one["load_duration"].as_u64().unwrap());
    assert!(one.get("prompt_truncated").is_none());
    let body = json!({"model": "embedder:latest", "input": ["xy", "abc", "xy"]});
    let (_, many) = host.post("/api/embed", body).await;
    assert_eq!(many["model"], "embedder:latest", "as the client sent it");
    assert_eq!(many["prompt_eval_count"], 7);
    let rows = many["embeddings"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1], one["embeddings"][0]);
    assert_eq!(rows[0], rows[2]);
    assert_ne!(rows[0], rows[1]);
    for row in rows {
        assert_eq!(row.as_array().unwrap().len(), 8);
        assert!((length(&floats(row)) - 1.0).abs() < 1e-6);
    }
    let ps = host.get("/api/ps").await;
    assert_eq!(ps["models"][0]["name"], "embedder:latest");
}

#[tokio::test]
async fn fewer_dimensions_are_cut_and_normalised_again() {
    let host = embedder();
    let ask = |dimensions: i64| {
        host.post(
            "/api/embed",
            json!({"model": "embedder", "input": "abc", "dimensions": dimensions}),
        )
    };
    let whole = floats(&ask(0).await.1["embeddings"][0]);
    assert_eq!(whole, floats(&ask(8).await.1["embeddings"][0]));
    assert_eq!(whole, floats(&ask(100).await.1["embeddings"][0]));
    assert_eq!(whole, floats(&ask(-1).await.1["embeddings"][0]));
    let cut = floats(&ask(3).await.1["embeddings"][0]);
    assert_eq!(cut.len(), 3);
    assert!((length(&cut) - 1.0).abs() < 1e-6);
    for (cut, whole3) in cut.iter().zip(&whole) {
        assert!((cut - whole3 / length(&whole[..3])).abs() < 1e-6);
    }
}

#[tokio::test]
async fn the_older_form_is_not_normalised() {
    let host = embedder();
    let body = json!({"model": "embedder", "prompt": "abc"});
    let (status, old) = host.post("/api/embeddings", body).await;
    assert_eq!(status, 200);
    assert_eq!(old.as_object().unwrap().len(), 1);
    let old = floats(&old["embedding"]);
    assert!((length(&old) - 1.0).abs() > 1e-3);
    let (_, new) = host
        .post("/api/embed", json!({"model": "embedder", "input": "abc"}))
        .await;
    for (new, old_value) in floats(&new["embeddings"][0]).iter().zip(&old) {
        assert!((new - old_value / length(&old)).abs() < 1e-6);
    }
}

#[tokio::test]
async fn without_input_the_model_is_loaded_or_unloaded() {
    let host = embedder();
    for (path, body, expected) in [
        (
            "/api/embed",
            json!({}),
            json!({"model": "embedder", "embeddings": []}),
        ),
        (
            "/api/embed",
            json!({"input": ""}),
            json!({"model": "embedder", "embeddings": []}),
        ),
        (
            "/api/embed",
            json!({"input": []}),
            json!({"model": "embedder", "embeddings": []}),
        ),
        (
            "/api/embed",
            json!({"input": null}),
            json!({"model": "embedder", "embeddings": []}),
        ),
        (
            "/api/embeddings",
            json!({"prompt": ""}),
            json!({"embedding": []}),
        ),
        ("/api/embeddings", json!({}), json!({"embedding": []})),
    ] {
        let mut body = body;
        body["model"] = json!("embedder");
        assert_eq!(
            host.post(path, body.clone()).await,
            (200, expected),
            "{body}"
        );
        let ps = host.get("/api/ps").await;
        assert_eq!(ps["models"].as_array().unwrap().len(), 1);
        body["keep_alive"] = json!(0);
        assert_eq!(host.post(path, body).await.0, 200);
        assert_eq!(host.get("/api/ps").await["models"], json!([]));
    }
}

#[tokio::test]
async fn a_model_for_text_embeds_too() {
    let host = host();
    let (status, answer) = host
        .post(
            "/api/embed",
            json!({"model": "plain", "input": ["abc", "abd"]}),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["embeddings"].as_array().unwrap().len(), 2);
    assert_ne!(answer["embeddings"][0], answer["embeddings"][1]);
}

#[tokio::test]
async fn refusals() {
    let host = embedding(|| FakeOptions {
        nan_on: Some("nan".into()),
        fail_on: Some("fail".into()),
        context_length: 64,
        ..FakeOptions::embedding_only(Pooling::Mean)
    });
    let long = "x".repeat(65);
    for (path, body, status, text) in [
        (
            "/api/embed",
            json!({"input": "a"}),
            400,
            "model is required",
        ),
        (
            "/api/embeddings",
            json!({"prompt": "a"}),
            400,
            "model is required",
        ),
        (
            "/api/embed",
            json!({"model": "bad name!"}),
            400,
            "invalid model name",
        ),
        (
            "/api/embeddings",
            json!({"model": "a/b/c/d/e"}),
            400,
            "invalid model name",
        ),
        (
            "/api/embed",
            json!({"model": "none", "input": "a"}),
            404,
            "model \"none\" not found, try pulling it first",
        ),
        (
            "/api/embeddings",
            json!({"model": "None:x", "prompt": "a"}),
            404,
            "model \"None:x\" not found, try pulling it first",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": 1}),
            400,
            "invalid input type",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": {"a": 1}}),
            400,
            "invalid input type",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": ["a", 1]}),
            400,
            "invalid input type",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": [1, 2]}),
            400,
            "invalid input type",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": long, "truncate": false}),
            400,
            "the input length exceeds the context length",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": "x", "options": {"num_ctx": "many"}}),
            400,
            "option \"num_ctx\" must be of type integer",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": "x", "keep_alive": "5x"}),
            400,
            "time: unknown unit \"x\" in duration \"5x\"",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": "x", "keep_alive": true}),
            400,
            "Unsupported type: 'bool'",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": ["a", "nan"]}),
            400,
            "embedding contains NaN or Inf values",
        ),
        (
            "/api/embeddings",
            json!({"model": "embedder", "prompt": "nan"}),
            400,
            "embedding contains NaN or Inf values",
        ),
        (
            "/api/embed",
            json!({"model": "embedder", "input": "fail"}),
            500,
            "computation failed: the fake model was told to fail",
        ),
        (
            "/api/generate",
            json!({"model": "embedder", "prompt": "a"}),
            400,
            "\"embedder\" does not support generate",
        ),
        (
            "/api/chat",
            json!({"model": "embedder", "messages": [{"role": "user", "content": "a"}]}),
            400,
            "\"embedder\" does not support chat",
        ),
        (
            "/api/rerank",
            json!({"model": "embedder", "query": "a", "documents": ["a"]}),
            400,
            "\"embedder\" does not support rerank: it has no ranking head; use a reranker model, or compare the vectors of /v1/embeddings",
        ),
    ] {
        let (found, answer) = host.post(path, body.clone()).await;
        assert_eq!(
            (found, &answer),
            (status, &json!({"error": text})),
            "{path} {body}"
        );
    }
    for path in ["/api/embed", "/api/embeddings", "/api/rerank"] {
        assert_eq!(
            host.text(Method::POST, path, "").await,
            (400, r#"{"error":"missing request body"}"#.into())
        );
        assert_eq!(host.text(Method::POST, path, "{").await.0, 400);
    }
}

#[tokio::test]
async fn a_model_that_does_not_embed_says_so() {
    let host = host_with(settings(), || FakeOptions {
        embedding: None,
        ..FakeOptions::default()
    });
    let (status, answer) = host
        .post("/api/embed", json!({"model": "plain", "input": "a"}))
        .await;
    assert_eq!(
        (status, answer),
        (
            400,
            json!({"error": "\"plain\" does not support embeddings"})
        )
    );
}

#[tokio::test]
async fn what_is_too_long_keeps_its_head() {
    let host = embedding(|| FakeOptions {
        context_length: 16,
        ..FakeOptions::embedding_only(Pooling::Mean)
    });
    let head = "abcdefghijklmnop";
    let embed = |input: String, options: Value| {
        host.post(
            "/api/embed",
            json!({"model": "embedder", "input": input, "options": options}),
        )
    };
    let (_, whole) = embed(head.into(), json!({})).await;
    assert_eq!(whole["prompt_eval_count"], 16);
    let (status, cut) = embed(format!("{head} and more"), json!({})).await;
    assert_eq!(status, 200, "{cut}");
    assert_eq!(cut["embeddings"], whole["embeddings"]);
    assert_eq!(
        (&cut["prompt_eval_count"], &cut["prompt_truncated"]),
        (&json!(16), &json!(9))
    );
    let (_, smaller) = embed(head.into(), json!({"num_ctx": 5})).await;
    let (_, five) = embed("abcde".into(), json!({})).await;
    assert_eq!(smaller["embeddings"], five["embeddings"]);
    assert_eq!(smaller["prompt_truncated"], 11);
}

#[tokio::test]
async fn the_context_of_texts_is_that_of_the_model() {
    let long = "x".repeat(5000);
    for (options, n_tokens) in [
        (
            FakeOptions {
                context_length: 8192,
                ..FakeOptions::embedding_only(Pooling::Mean)
            },
            5000,
        ),
        (
            FakeOptions {
                context_length: 8192,
                ..FakeOptions::default()
            },
            5000,
        ),
        (FakeOptions::default(), 4096),
    ] {
        let host = host_with(settings(), move || options.clone());
        let body = json!({"model": "plain", "input": long});
        let (status, answer) = host.post("/api/embed", body).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["prompt_eval_count"], n_tokens);
        assert_eq!(answer.get("prompt_truncated").is_some(), n_tokens < 5000);
    }
}

#[tokio::test]
async fn a_text_far_beyond_the_context_is_cut_before_it_is_read() {
    let host = embedding(|| FakeOptions {
        context_length: 16,
        ..FakeOptions::embedding_only(Pooling::Mean)
    });
    let head = "abcdefghijklmnop";
    let ask = |input: String, truncate: bool| {
        let body = json!({"model": "embedder", "input": input, "truncate": truncate});
        host.post("/api/embed", body)
    };
    let (_, whole) = ask(head.into(), true).await;
    let long = head.to_owned() + &"ü".repeat(1 << 20);
    let (status, cut) = ask(long.clone(), true).await;
    assert_eq!(status, 200, "{cut}");
    assert_eq!(cut["embeddings"], whole["embeddings"]);
    let n_truncated = cut["prompt_truncated"].as_u64().unwrap();
    assert!(
        (500_000..600_000).contains(&n_truncated),
        "about: {n_truncated}"
    );
    let (status, refused) = ask(long, false).await;
    assert_eq!(status, 400, "{refused}");
}

#[tokio::test]
async fn openai_embeddings_are_floats_or_base64() {
    let host = embedder();
    let ask = |mut body: Value| {
        body["model"] = json!("embedder");
        host.post("/v1/embeddings", body)
    };
    let (status, answer) = ask(json!({"input": ["abc", "de"]})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["object"], "list");
    assert_eq!(answer["model"], "embedder");
    assert_eq!(
        answer["usage"],
        json!({"prompt_tokens": 5, "total_tokens": 5})
    );
    for index in 0..2 {
        assert_eq!(answer["data"][index]["object"], "embedding");
        assert_eq!(answer["data"][index]["index"], index);
    }
    let vector = floats(&answer["data"][0]["embedding"]);
    assert!((length(&vector) - 1.0).abs() < 1e-6);

    let (_, coded) = ask(json!({"input": "abc", "encoding_format": "base64"})).await;
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(coded["data"][0]["embedding"].as_str().unwrap())
        .unwrap();
    let decoded: Vec<f64> = bytes
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()).into())
        .collect();
    assert_eq!(decoded.len(), 8);
    for (a, b) in decoded.iter().zip(&vector) {
        assert!((a - b).abs() < 1e-7);
    }

    // An empty text is a text.
    let (status, empty) = ask(json!({"input": ""})).await;
    let (_, listed) = ask(json!({"input": [""]})).await;
    assert_eq!(status, 200, "{empty}");
    assert_eq!(empty["data"].as_array().unwrap().len(), 1, "{empty}");
    assert_eq!(empty["data"], listed["data"]);

    // Tokens instead of text; each byte is a token of the fake model.
    let (_, tokens) = ask(json!({"input": [97, 98, 99]})).await;
    assert_eq!(
        tokens["data"][0]["embedding"],
        answer["data"][0]["embedding"]
    );
    let (_, lists) = ask(json!({"input": [[97, 98, 99], [100, 101]]})).await;
    assert_eq!(lists["data"], answer["data"]);
    let (_, short) = ask(json!({"input": "abc", "dimensions": 2})).await;
    assert_eq!(short["data"][0]["embedding"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn openai_errors() {
    let host = embedder();
    for (path, body, status, kind, text) in [
        (
            "/v1/embeddings",
            json!({"model": "embedder"}),
            400,
            "invalid_request_error",
            "invalid input",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": null}),
            400,
            "invalid_request_error",
            "invalid input",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": []}),
            400,
            "invalid_request_error",
            "invalid input",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": 7}),
            400,
            "invalid_request_error",
            "invalid input type",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": [[]]}),
            400,
            "invalid_request_error",
            "invalid input type",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": [1, "a"]}),
            400,
            "invalid_request_error",
            "invalid input type",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": [-1]}),
            400,
            "invalid_request_error",
            "invalid input type",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": [99999]}),
            400,
            "invalid_request_error",
            "token 99999 is not in the vocabulary",
        ),
        (
            "/v1/embeddings",
            json!({"model": "embedder", "input": "a", "encoding_format": "hex"}),
            400,
            "invalid_request_error",
            "Invalid value for 'encoding_format' = hex. Supported values: ['float', 'base64'].",
        ),
        (
            "/v1/embeddings",
            json!({"input": "a"}),
            400,
            "invalid_request_error",
            "model is required",
        ),
        (
            "/v1/embeddings",
            json!({"model": "none", "input": "a"}),
            404,
            "not_found_error",
            "model \"none\" not found, try pulling it first",
        ),
        (
            "/v1/embeddings",
            json!({"model": "broken", "input": "a"}),
            500,
            "api_error",
            "cannot read model 'broken:latest': other error",
        ),
        (
            "/v1/rerank",
            json!({"model": "embedder", "query": "a"}),
            400,
            "invalid_request_error",
            "documents is required",
        ),
        (
            "/v1/rerank",
            json!({"model": "none", "query": "a", "documents": ["b"]}),
            404,
            "not_found_error",
            "model \"none\" not found, try pulling it first",
        ),
    ] {
        let (found, answer) = host.post(path, body.clone()).await;
        let expected =
            json!({"error": {"message": text, "type": kind, "param": null, "code": null}});
        assert_eq!((found, answer), (status, expected), "{body}");
    }
}

/// The fake's score: how many letters of the query are in the document.
#[tokio::test]
async fn documents_are_ordered_by_relevance() {
    let host = reranker();
    let documents = json!(["xyz", {"text": "abc"}, "bxx", "cba"]);
    let ask = |path: &'static str, more: Value| {
        let mut body = json!({"model": "embedder", "query": "abc", "documents": documents.clone()});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        host.post(path, body)
    };
    for path in ["/api/rerank", "/v1/rerank"] {
        let (status, answer) = ask(path, json!({})).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["model"], "embedder");
        let results = answer["results"].as_array().unwrap();
        let order: Vec<u64> = results
            .iter()
            .map(|r| r["index"].as_u64().unwrap())
            .collect();
        assert_eq!(order, [1, 3, 2, 0], "equal scores keep their order");
        assert!(
            results
                .iter()
                .all(|result| result.get("document").is_none())
        );
        let scores: Vec<f64> = results
            .iter()
            .map(|result| result["relevance_score"].as_f64().unwrap())
            .collect();
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
        assert!((scores[0] - 1.0 / (1.0 + (-3.0f64).exp())).abs() < 1e-6);
        // Four pairs of three letters, a mark and the document.
        assert_eq!(
            answer["usage"],
            json!({"prompt_tokens": 28, "total_tokens": 28})
        );
    }
    let (_, best) = ask(
        "/v1/rerank",
        json!({"top_n": 2, "return_documents": true, "raw_scores": true}),
    )
    .await;
    assert_eq!(
        best["results"],
        json!([
            {"index": 1, "relevance_score": 3.0, "document": {"text": "abc"}},
            {"index": 3, "relevance_score": 3.0, "document": {"text": "cba"}},
        ])
    );
    for (more, text) in [
        (json!({"query": ""}), "query is required"),
        (json!({"query": null}), "query is required"),
        (json!({"query": 1}), "query must be a string"),
        (json!({"documents": null}), "documents is required"),
        (json!({"documents": "abc"}), "documents must be a list"),
        (
            json!({"documents": ["a", 1]}),
            "documents must be a list of strings or of objects with a text",
        ),
        (
            json!({"documents": [{"title": "a"}]}),
            "documents must be a list of strings or of objects with a text",
        ),
        (json!({"top_n": 0}), "top_n must be at least 1"),
        (
            json!({"options": {"num_ctx": 4}}),
            "the query leaves no room for a document in the context length",
        ),
        (
            json!({"options": {"num_ctx": 6}, "truncate": false}),
            "the input length exceeds the context length",
        ),
    ] {
        let (status, answer) = ask("/api/rerank", more.clone()).await;
        assert_eq!((status, answer), (400, json!({"error": text})), "{more}");
    }
    let (status, cut) = ask("/api/rerank", json!({"options": {"num_ctx": 6}})).await;
    assert_eq!((status, &cut["usage"]["prompt_tokens"]), (200, &json!(24)));
    assert_eq!(
        ask("/api/rerank", json!({"documents": []})).await.1["results"],
        json!([])
    );
    let (status, refused) = host
        .post("/api/embed", json!({"model": "embedder", "input": "a"}))
        .await;
    assert_eq!(
        (status, refused),
        (
            400,
            json!({"error": "\"embedder\" is a reranker and does not support embeddings; use /v1/rerank"})
        )
    );
}

/// A decoder that ranks pairs is asked with a prompt: that of its file, or the published one.
#[tokio::test]
async fn a_model_that_judges_is_asked_as_it_was_trained() {
    let asked = "only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
                 <Instruct>: Given a web search query, retrieve relevant passages that answer the query\n\
                 <Query>: cat?\n<Document>: dog<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let host = embedding(|| FakeOptions {
        embedding: Some(EmbeddingSpec {
            width: 1,
            pooling: Pooling::Rank,
            bidirectional: false,
        }),
        // The fake fails where it sees exactly this.
        fail_on: Some(asked.into()),
        ..FakeOptions::default()
    });
    let ask = |model: &'static str, document: &'static str, num_ctx: u32| {
        let options = json!({"num_ctx": num_ctx});
        let body =
            json!({"model": model, "query": "cat?", "documents": [document], "options": options});
        host.post("/v1/rerank", body)
    };
    assert_eq!(ask("embedder", "dog", 1000).await.0, 500);
    let (status, answer) = ask("embedder", "dots", 1000).await;
    assert_eq!(status, 200, "{answer}");
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "qwen3");
    metadata.set("qwen3.pooling_type", 4u32);
    let prompt = "Q {query} D {document}<|im_end|>";
    metadata.set("tokenizer.chat_template.rerank", prompt);
    host.put("own", &Writer::new(metadata).to_bytes().unwrap());
    // Each byte is a token, and so is the mark at the end; in the document it is text.
    let used = |answer: Value| answer["usage"]["prompt_tokens"].clone();
    assert_eq!(used(ask("own", "dog", 1000).await.1), 13);
    assert_eq!(used(ask("own", "<|im_end|>", 1000).await.1), 20);
    assert_eq!(used(ask("own", "a long document", 16).await.1), 16);
    let (status, answer) = ask("own", "dog", 10).await;
    let text = "the query leaves no room for a document in the context length";
    assert_eq!((status, &answer["error"]["message"]), (400, &json!(text)));
}

#[tokio::test]
async fn too_many_inputs_and_too_large_bodies_are_refused() {
    let host = embedder();
    let body = json!({"model": "embedder", "input": vec!["a"; (1 << 16) + 1]});
    let (status, answer) = host.post("/api/embed", body).await;
    assert_eq!(
        (status, answer),
        (
            400,
            json!({"error": "65537 inputs are too many for one request; send at most 65536 at a time"})
        )
    );
    let host = reranker();
    let body =
        json!({"model": "embedder", "query": "q".repeat(4000), "documents": vec!["d"; 5000]});
    let (status, answer) = host.post("/api/rerank", body).await;
    assert_eq!(
        (status, answer),
        (
            400,
            json!({"error": "the inputs have more than 16777216 tokens; send fewer at a time"})
        )
    );
    let large = format!(
        r#"{{"model":"embedder","input":"{}"}}"#,
        "x".repeat(33 << 20)
    );
    assert_eq!(host.text(Method::POST, "/api/embed", large).await.0, 413);
}

/// A client that leaves takes its work with it: the model is free for the next one at once.
#[tokio::test]
async fn leaving_cancels_the_work() {
    let host = embedding(|| FakeOptions {
        step_delay: Duration::from_millis(20),
        ..FakeOptions::embedding_only(Pooling::Mean)
    });
    let text = "x".repeat(500);
    let body = json!({"model": "embedder", "input": vec![text; 1000]});
    // Alone it would take 20 seconds.
    let abandoned = tokio::time::timeout(
        Duration::from_millis(500),
        host.send(
            Method::POST,
            "/api/embed",
            &[],
            Body::from(body.to_string()),
        ),
    );
    assert!(abandoned.await.is_err());
    let next = host.post("/api/embed", json!({"model": "embedder", "input": "a"}));
    let (status, _) = tokio::time::timeout(Duration::from_secs(5), next)
        .await
        .unwrap();
    assert_eq!(status, 200);
}

#[tokio::test]
async fn answers_have_their_content_type() {
    let host = embedder();
    for path in ["/api/embed", "/v1/embeddings"] {
        let body = json!({"model": "embedder", "input": "a"}).to_string();
        // As curl sends it.
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let response = host.send(Method::POST, path, &headers, body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.headers()["content-type"],
            "application/json; charset=utf-8"
        );
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the inputs: a vector for each, the one it has alone.
    #[test]
    fn a_vector_does_not_depend_on_its_neighbours(inputs in prop::collection::vec("\\PC{0,20}", 1..8)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let host = embedder();
            let (status, all) = host.post("/api/embed", json!({"model": "embedder", "input": inputs})).await;
            prop_assert_eq!(status, 200, "{}", all);
            for (idx, input) in inputs.iter().enumerate() {
                let (_, one) = host.post("/api/embed", json!({"model": "embedder", "input": [input]})).await;
                prop_assert_eq!(&all["embeddings"][idx], &one["embeddings"][0]);
            }
            Ok(())
        })?;
    }
}
