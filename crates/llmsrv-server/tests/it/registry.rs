//! Pull and push as clients of the server see them.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use llmsrv_engine::fake::FakeOptions;
use llmsrv_store::Digest;
use serde_json::{Value, json};

use crate::host::{Host, host_with, settings};

#[expect(dead_code, unreachable_pub, reason = "shared with another test crate")]
#[path = "../../../llmsrv-registry/tests/it/fake.rs"]
pub(crate) mod fake;
use fake::{Act, Fake};

/// A registry with the model `a/b:t`, whose weights have `size` bytes.
async fn registry(size: usize) -> Fake {
    registry_with(vec![7; size]).await
}

pub(crate) async fn registry_with(weights: Vec<u8>) -> Fake {
    let fake = Fake::start().await;
    let size = weights.len();
    let digest = Digest::of(&weights);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": size}],
    });
    fake.put("/v2/a/b/manifests/t", manifest.to_string());
    fake.put(format!("/v2/a/b/blobs/{digest}"), weights);
    fake
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn host() -> Host {
    host_with(settings(), FakeOptions::default)
}

#[tokio::test]
async fn a_pull_tells_each_step_and_ends_with_success() {
    let (fake, host) = (registry(300_000).await, host());
    let name = format!("{}/a/b:t", fake.host);
    // Old clients say `name`; credentials are ignored.
    let body = json!({"name": name, "insecure": true, "username": "u", "password": "p"});
    let (status, text) = host.text(Method::POST, "/api/pull", body.to_string()).await;
    assert_eq!(status, 200);
    let lines = lines(&text);
    let mut steps: Vec<&str> = lines
        .iter()
        .map(|line| line["status"].as_str().unwrap())
        .collect();
    steps.dedup();
    let digest = Digest::of(&vec![7_u8; 300_000]);
    let pulling = format!("pulling {}", &digest.hex()[..12]);
    assert_eq!(
        steps,
        [
            "pulling manifest",
            &pulling,
            "verifying sha256 digest",
            "writing manifest",
            "success"
        ]
    );
    assert_eq!(lines[0], json!({"status": "pulling manifest"}));
    assert_eq!(
        lines[1],
        json!({"status": pulling, "digest": digest.to_string(), "total": 300_000})
    );
    let last = lines
        .iter()
        .rfind(|line| line["digest"].is_string())
        .unwrap();
    assert_eq!(last["completed"], 300_000);
    assert_eq!(*lines.last().unwrap(), json!({"status": "success"}));
    let tags = host.get("/api/tags").await;
    assert!(
        tags["models"]
            .as_array()
            .unwrap()
            .iter()
            .any(|model| model["name"] == *name),
        "{tags}"
    );

    // And out again, under the same name, without a stream.
    fake.forget();
    let answer = host
        .post("/api/push", json!({"model": name, "stream": false}))
        .await;
    assert_eq!(answer, (200, json!({"status": "success"})));
    assert!(
        fake.log()
            .iter()
            .any(|seen| seen.method == "PUT" && seen.is_manifest())
    );
}

#[tokio::test]
async fn errors_have_a_status_before_the_stream_and_a_line_in_it() {
    let (fake, host) = (Fake::start().await, host());
    for (path, body, status, error) in [
        ("/api/pull", "", 400, "missing request body"),
        ("/api/pull", "{}", 400, "model is required"),
        ("/api/push", "{}", 400, "model is required"),
        (
            "/api/pull",
            r#"{"model":"../x"}"#,
            400,
            "invalid model name",
        ),
        ("/api/push", r#"{"model":"a b"}"#, 400, "invalid model name"),
        (
            "/api/pull",
            r#"{"model":"x","stream":"no"}"#,
            400,
            "stream must be a boolean",
        ),
    ] {
        let (got, text) = host.text(Method::POST, path, body).await;
        assert_eq!(
            (got, lines(&text)[0].clone()),
            (status, json!({"error": error})),
            "{path} {body}"
        );
    }
    let name = format!("{}/a/none", fake.host);
    let missing = json!({"error": "pull model manifest: file does not exist"});
    let answer = host
        .post("/api/pull", json!({"model": name, "stream": false}))
        .await;
    assert_eq!(answer, (500, missing.clone()));
    let (status, text) = host
        .text(
            Method::POST,
            "/api/pull",
            json!({"model": name}).to_string(),
        )
        .await;
    assert_eq!(
        (status, lines(&text)),
        (200, vec![json!({"status": "pulling manifest"}), missing])
    );
    let (_, text) = host
        .text(
            Method::POST,
            "/api/push",
            json!({"model": name}).to_string(),
        )
        .await;
    let lines = lines(&text);
    assert_eq!(
        lines[..2],
        [
            json!({"status": "retrieving manifest"}),
            json!({"status": "couldn't retrieve manifest"})
        ]
    );
    assert!(
        lines[2]["error"].as_str().unwrap().contains("not found"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn a_registry_that_is_not_allowed_is_403() {
    let mut settings = settings();
    settings.registry.allowed = vec!["hf.co".into()];
    let host = host_with(settings, FakeOptions::default);
    for path in ["/api/pull", "/api/push", "/api/create"] {
        let body = json!({"model": "x", "from": "y"});
        let (status, body) = host.post(path, body).await;
        assert_eq!(status, 403, "{body}");
        assert!(
            body["error"]
                .as_str()
                .unwrap()
                .contains("registry.ollama.ai"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_model_made_from_one_that_is_not_here_pulls_it() {
    let weights = crate::create::model("base");
    let (fake, host) = (registry_with(weights.clone()).await, host());
    let base = format!("{}/a/b:t", fake.host);
    let body = json!({"model": "mine", "from": base, "system": "Be brief."});
    let (status, text) = host
        .text(Method::POST, "/api/create", body.to_string())
        .await;
    assert_eq!(status, 200, "{text}");
    let lines = lines(&text);
    let said = |status: &str| lines.iter().position(|line| line["status"] == status);
    assert_eq!(said("pulling manifest"), Some(0), "{text}");
    assert_eq!(said("success"), Some(lines.len() - 1), "{text}");
    let digest = Digest::of(&weights);
    let shared = said(&format!("using existing layer {digest}"));
    assert!(shared.is_some(), "{text}");
    let (_, mine) = host.post("/api/show", json!({"model": "mine"})).await;
    assert_eq!(mine["system"], "Be brief.", "{mine}");

    // What is here is not asked for again.
    fake.forget();
    let again = json!({"model": "again", "from": base, "stream": false});
    let answer = host.post("/api/create", again).await;
    assert_eq!(answer, (200, json!({"status": "success"})));
    assert!(fake.log().is_empty());

    let none = format!("{}/a/none:latest", fake.host);
    let from_none = json!({"model": "x", "from": none, "stream": false});
    let (status, body) = host.post("/api/create", from_none).await;
    let error = format!(
        "model '{none}' is not here and cannot be pulled: pull model manifest: file does not exist"
    );
    assert_eq!((status, body), (500, json!({ "error": error })));
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_transfer() {
    let (fake, host) = (registry(4 << 20).await, host());
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Drip(16 << 10, Duration::from_millis(10))
        } else {
            Act::Normal
        }
    });
    let body = json!({"model": format!("{}/a/b:t", fake.host)}).to_string();
    let mut answer = host
        .send(Method::POST, "/api/pull", &[], body)
        .await
        .into_body();
    loop {
        let frame = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        let line: Value = serde_json::from_slice(&frame).unwrap();
        if line["completed"]
            .as_u64()
            .is_some_and(|completed| completed > 0)
        {
            break;
        }
    }
    drop(answer);
    fake.quiet().await;
    assert!(fake.bytes_sent() < 4 << 20);
}
