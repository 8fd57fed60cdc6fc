//! Damaged and lying model files: one-line errors, and the server keeps serving.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::util::{Sandbox, Server};

/// Stores `gguf` as the model `name`, behind the program's back but in its layout.
pub fn plant(models: &Path, name: &str, gguf: &[u8]) {
    let blob = |bytes: &[u8]| {
        let digest = llmsrv_store::Digest::of(bytes);
        let path = models
            .join("blobs")
            .join(digest.to_string().replace(':', "-"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        json!({"digest": digest.to_string(), "size": bytes.len()})
    };
    let mut config = blob(br#"{"model_format":"gguf","model_family":"llama"}"#);
    config["mediaType"] = json!("application/vnd.docker.container.image.v1+json");
    let mut weights = blob(gguf);
    weights["mediaType"] = json!("application/vnd.ollama.image.model");
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": config,
        "layers": [weights],
    });
    let path = models
        .join("manifests/registry.ollama.ai/library")
        .join(name)
        .join("latest");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, manifest.to_string()).unwrap();
}

const MODEL: &[u8] = include_bytes!("../../assets/embedded/model.gguf");

/// Damaged files by name: cut short, one header bit flipped, counts that lie.
fn damaged() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("empty".to_owned(), Vec::new()),
        ("text".to_owned(), b"this is not a model".to_vec()),
        ("magic-only".to_owned(), b"GGUF".to_vec()),
    ];
    for len in [7, 24, 1_000, 100_000, MODEL.len() / 2, MODEL.len() - 1] {
        files.push((format!("cut-{len}"), MODEL[..len].to_vec()));
    }
    // Version, tensor count, key count, first key length.
    for (at, what) in [
        (4, "version"),
        (8, "tensors"),
        (16, "keys"),
        (24, "key-len"),
    ] {
        let mut bytes = MODEL.to_vec();
        bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
        files.push((format!("lie-{what}"), bytes));
        let mut bytes = MODEL.to_vec();
        bytes[at + 2] ^= 0x40;
        files.push((format!("flip-{what}"), bytes));
    }
    files
}

/// The built-in model's own name.
fn built_in(sandbox: &Sandbox) -> String {
    let listed: Value =
        serde_json::from_str(&sandbox.run(&["list", "--json"]).ok().stdout).unwrap();
    let models = listed["models"].as_array().unwrap();
    let names = models.iter().map(|model| model["name"].as_str().unwrap());
    names
        .into_iter()
        .find(|name| *name != "default:latest")
        .unwrap()
        .to_owned()
}

async fn assert_serves(server: &Server, model: &str) {
    let answer = server
        .post(
            "/api/generate",
            &json!({"model": model, "prompt": "Hello!", "stream": false}),
        )
        .await
        .ok();
    assert!(
        answer["response"].as_str().unwrap().contains("llmsrv"),
        "{answer}"
    );
}

#[tokio::test]
async fn damaged_models_give_json_errors_and_the_server_goes_on() {
    let sandbox = Sandbox::new();
    let built_in = built_in(&sandbox);
    for (name, bytes) in damaged() {
        plant(&sandbox.models(), &name, &bytes);
    }
    let server = sandbox.serve();
    for (name, _) in damaged() {
        for path in ["/api/generate", "/api/chat"] {
            let request = json!({"model": name, "prompt": "x", "messages": [{"role": "user", "content": "x"}]});
            let reply = server.post(path, &request).await;
            assert!((400..600).contains(&reply.status), "{name}: {reply:?}");
            let error = reply.json()["error"].as_str().unwrap().to_owned();
            assert!(
                !error.is_empty() && !error.contains('\n'),
                "{name}: {error}"
            );
            assert!(
                !error.contains(&*sandbox.path().to_string_lossy()),
                "no path leaves the server: {error}"
            );
        }
        let shown = server.post("/api/show", &json!({"model": name})).await;
        assert!(
            shown.status != 200 || shown.json()["details"].is_object(),
            "{shown:?}"
        );
    }
    server.get("/api/tags").await.ok();
    assert_serves(&server, &built_in).await;
}

#[test]
fn the_command_line_reports_a_damaged_model_in_one_line() {
    let sandbox = Sandbox::new();
    sandbox.run(&["list"]).ok();
    plant(&sandbox.models(), "broken", &MODEL[..100_000]);
    let output = sandbox.run(&["run", "broken", "hello"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(output.stdout, "");
    let errors: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.starts_with("error:"))
        .collect();
    assert_eq!(errors.len(), 1, "{output:?}");
}

#[tokio::test]
async fn a_model_with_the_wrong_digest_is_still_parsed_without_trust() {
    // Bits flipped all over the data part: the weights are nonsense, the server must not care.
    let sandbox = Sandbox::new();
    let built_in = built_in(&sandbox);
    let mut bytes = MODEL.to_vec();
    let len = bytes.len();
    for at in (len / 10..len).step_by(997) {
        bytes[at] ^= 0x55;
    }
    plant(&sandbox.models(), "noise", &bytes);
    let server = sandbox.serve();
    let reply = server
        .post(
            "/api/generate",
            &json!({"model": "noise", "prompt": "x", "options": {"num_predict": 5}}),
        )
        .await;
    assert!(
        reply.status == 200 || reply.json()["error"].is_string(),
        "{reply:?}"
    );
    assert_serves(&server, &built_in).await;
}
