//! What there is and what runs: `/api/tags`, `/api/ps`, `/api/show`, `/api/version`, `/v1/models`.

use std::{
    collections::BTreeSet,
    sync::mpsc,
    time::{Duration, SystemTime},
};

use http::Method;
use http_body_util::BodyExt as _;
use llmsrv_engine::fake::{self, FakeOptions};
use llmsrv_gguf::{Metadata, Writer};
use llmsrv_store::Digest;
use serde_json::{Value, json};

use crate::host::{Host, embedding, host, host_loading, settings};

fn names(list: &Value) -> Vec<String> {
    let models = list["models"].as_array().unwrap().iter();
    models
        .map(|model| model["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn show(host: &Host, body: Value) -> Value {
    let (status, shown) = host.post("/api/show", body).await;
    assert_eq!(status, 200, "{shown}");
    shown
}

fn is_digest(digest: &Value) -> bool {
    let digest = digest.as_str().unwrap();
    digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A time as RFC 3339 has it.
fn is_time(time: &Value) -> bool {
    time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok()
}

#[tokio::test]
async fn the_version_is_one_that_clients_can_compare() {
    let version = host().get("/api/version").await;
    let text = version["version"].as_str().unwrap();
    let (numbers, _) = text.split_once('-').unwrap();
    let numbers: Vec<u32> = numbers.split('.').map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 3);
    assert!(numbers >= vec![0, 6, 4], "the oldest that clients accept");
    assert!(version["llmsrv_version"].is_string());
}

#[tokio::test]
async fn the_newest_model_is_listed_first() {
    let host = host();
    let folder = host.folder.path();
    let mut modified = SystemTime::now();
    for name in ["second", "third"] {
        let copy = json!({"source": "plain", "destination": name});
        assert_eq!(host.post("/api/copy", copy).await.0, 200);
        modified += Duration::from_secs(1);
        let manifest = folder.join(format!(
            "manifests/registry.ollama.ai/library/{name}/latest"
        ));
        let manifest = std::fs::File::open(manifest).unwrap();
        manifest.set_modified(modified).unwrap();
    }
    let tags = host.get("/api/tags").await;
    let mut order = names(&tags);
    // It stands beside the model that it stands for.
    order.retain(|name| name != "default:latest");
    assert_eq!(order[..2], ["third:latest", "second:latest"]);
    for model in tags["models"].as_array().unwrap() {
        assert_eq!(model["name"], model["model"]);
        assert!(is_digest(&model["digest"]) && is_time(&model["modified_at"]));
        assert!(model["size"].as_u64().unwrap() > 0);
        let details = &model["details"];
        for text in [
            "parent_model",
            "format",
            "family",
            "parameter_size",
            "quantization_level",
        ] {
            assert!(details[text].is_string(), "{text}: {model}");
        }
        assert!(details["families"].is_array());
        assert!(
            model["capabilities"]
                .as_array()
                .is_some_and(|list| !list.is_empty()),
            "{model}"
        );
    }
    let digest = |name: &str| {
        let mut models = tags["models"].as_array().unwrap().iter();
        models.find(|model| model["name"] == name).unwrap()["digest"].clone()
    };
    assert_eq!(digest("third:latest"), digest("plain:latest"));
}

#[tokio::test]
async fn the_size_and_digest_are_those_of_the_files() {
    let host = host();
    let folder = host.folder.path();
    let manifest = std::fs::read(folder.join("manifests/registry.ollama.ai/library/plain/latest"));
    let manifest = manifest.unwrap();
    let parsed: Value = serde_json::from_slice(&manifest).unwrap();
    let layers = parsed["layers"].as_array().unwrap().iter();
    let sizes = layers
        .chain([&parsed["config"]])
        .map(|layer| layer["size"].as_u64().unwrap());
    let tags = host.get("/api/tags").await;
    let models = tags["models"].as_array().unwrap();
    let plain = models
        .iter()
        .find(|model| model["name"] == "plain:latest")
        .unwrap();
    assert_eq!(plain["size"], sizes.sum::<u64>());
    let digest = llmsrv_store::Digest::of(&manifest).hex();
    assert_eq!(plain["digest"], digest);
}

#[tokio::test]
async fn no_models_are_empty_lists() {
    let host = host();
    for name in names(&host.get("/api/tags").await) {
        if name == "default:latest" {
            continue; // it only stands for another one
        }
        let body = json!({"model": name}).to_string();
        assert_eq!(host.text(Method::DELETE, "/api/delete", body).await.0, 200);
    }
    assert_eq!(host.get("/api/tags").await, json!({"models": []}));
    assert_eq!(
        host.get("/v1/models").await,
        json!({"object": "list", "data": []})
    );
    assert_eq!(host.get("/api/ps").await["models"], json!([]));
}

#[tokio::test]
async fn models_that_stay_longest_are_first() {
    let host = host();
    for (model, keep_alive) in [
        ("plain", json!("1m")),
        ("filler", json!(-1)),
        ("thinker", json!("2h")),
    ] {
        let body = json!({"model": model, "keep_alive": keep_alive});
        assert_eq!(host.post("/api/generate", body).await.0, 200);
    }
    let ps = host.get("/api/ps").await;
    assert_eq!(
        names(&ps),
        ["filler:latest", "thinker:latest", "plain:latest"]
    );
    for model in ps["models"].as_array().unwrap() {
        assert_eq!(model["name"], model["model"]);
        assert!(is_digest(&model["digest"]) && is_time(&model["expires_at"]));
        assert_eq!(model["size_vram"], 0, "on the CPU");
        assert!(model["size"].is_u64() && model["details"]["family"] == "llama");
        assert_eq!(model["context_length"], 4096);
    }
    assert!(ps["models"][0]["expires_at"].as_str().unwrap() > "2200");
}

#[tokio::test]
async fn a_model_that_is_still_loading_is_listed() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let host = host_loading(
        settings(),
        std::sync::Arc::new(move |_, _| {
            let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(20));
            Ok(fake::loaded(FakeOptions::default()))
        }),
    );
    let load = host.post("/api/generate", json!({"model": "plain"}));
    let look = async {
        let listed = loop {
            let ps = host.get("/api/ps").await;
            if ps["models"] != json!([]) {
                break ps;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        go_on.send(()).unwrap();
        listed
    };
    let ((status, _), ps) = tokio::join!(load, look);
    assert_eq!((status, names(&ps)), (200, vec!["plain:latest".into()]));
}

#[tokio::test]
async fn everything_about_a_model_is_shown() {
    let host = host();
    let body = json!({"model": "mine", "from": "speaker", "license": ["MIT", "Apache-2.0"], "parameters": {"num_ctx": 100, "top_p": 0.5}, "stream": false});
    assert_eq!(host.post("/api/create", body).await.0, 200);
    let shown = show(&host, json!({"name": "mine"})).await;
    assert_eq!(shown["license"], "MIT\nApache-2.0");
    assert_eq!(shown["system"], "Own.");
    assert_eq!(
        shown["messages"][1],
        json!({"role": "assistant", "content": "a"})
    );
    assert!(is_time(&shown["modified_at"]));
    assert!(shown["template"].as_str().unwrap().contains(".Messages"));
    assert_eq!(shown["details"]["family"], "llama");
    assert!(shown["tensors"].is_array());
    // Clients parse the lines: a name in 30 columns, a space, a value.
    let lines: Vec<(&str, &str)> = shown["parameters"]
        .as_str()
        .unwrap()
        .lines()
        .map(|line| (line[..30].trim_end(), &line[31..]))
        .collect();
    let expected = [
        ("temperature", "0"),
        ("stop", "\"<|im_end|>\""),
        ("num_ctx", "100"),
        ("top_p", "0.5"),
    ];
    assert_eq!(BTreeSet::from_iter(lines), BTreeSet::from(expected));
    let modelfile = shown["modelfile"].as_str().unwrap();
    assert!(modelfile.starts_with('#') && modelfile.contains("\nFROM mine:latest\n"));
    assert!(!modelfile.contains(host.folder.path().to_str().unwrap()));
    let other = show(&host, json!({"model": "mine", "system": "Other."})).await;
    assert_eq!(other["system"], "Other.");
}

#[tokio::test]
async fn the_metadata_of_a_model_are_shown_without_long_lists() {
    let host = host();
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("general.name", "A Name");
    metadata.set("general.basename", "base");
    metadata.set("llama.context_length", 64_u32);
    metadata.set("llama.embedding_length", 8_u32);
    metadata.set("tokenizer.chat_template", "{{ messages }}");
    metadata.set("tokenizer.ggml.tokens", vec!["a", "b", "c", "d", "e", "f"]);
    metadata.set("five", vec!["a", "b", "c", "d", "e"]);
    host.put("facts", &Writer::new(metadata).to_bytes().unwrap());
    let shown = show(&host, json!({"model": "facts"})).await;
    let info = &shown["model_info"];
    assert_eq!(info["general.architecture"], "llama");
    assert_eq!(info["llama.context_length"], 64);
    assert_eq!(info["llama.embedding_length"], 8);
    assert!(info["general.parameter_count"].is_u64());
    assert_eq!(info["tokenizer.ggml.tokens"], json!([]));
    assert_eq!(info["five"].as_array().unwrap().len(), 5);
    for absent in ["general.name", "tokenizer.chat_template"] {
        assert!(info.get(absent).is_none(), "{absent}");
    }
    assert_eq!(shown["template"], "{{ messages }}", "as it is used");
    assert_eq!(shown["details"]["context_length"], 64);
    assert_eq!(shown["details"]["embedding_length"], 8);
    let whole = show(&host, json!({"model": "facts", "verbose": true})).await;
    let tokens = &whole["model_info"]["tokenizer.ggml.tokens"];
    assert_eq!(tokens.as_array().unwrap().len(), 6);
}

/// An editor shows what it finds there as the name of the model.
#[tokio::test]
async fn an_editor_finds_the_name_it_asked_for() {
    let host = host();
    for (agent, expected) in [
        ("GitHubCopilotChat/0.30", "Plain:latest"),
        ("curl/8", "plain"),
    ] {
        let response = host
            .send(
                Method::POST,
                "/api/show",
                &[("user-agent", agent)],
                r#"{"model":"Plain:latest"}"#,
            )
            .await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let shown: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(shown["model_info"]["general.basename"], expected, "{agent}");
    }
}

#[tokio::test]
async fn capabilities_are_those_of_the_template_that_is_used() {
    let host = embedding(FakeOptions::default);
    let jinja = |name: &str, template: &str| {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", "llama");
        metadata.set("tokenizer.chat_template", template);
        host.put(name, &Writer::new(metadata).to_bytes().unwrap());
    };
    jinja(
        "jinja",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    jinja(
        "jinja-tools",
        "{% if tools %}{{ tools }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    jinja(
        "jinja-thinks",
        "{% for m in messages %}<think></think>{{ m.content }}{% endfor %}",
    );
    // A template that it was given here decides alone.
    let body = json!({"model": "plain-over-jinja", "from": "jinja-tools", "template": "{{ .Prompt }}", "stream": false});
    assert_eq!(host.post("/api/create", body).await.0, 200);
    // Unless it only fills the place of a renderer.
    let body = json!({"model": "rendered", "from": "jinja-tools", "template": "{{ .Prompt }}",
        "renderer": "qwen3-coder", "stream": false});
    assert_eq!(host.post("/api/create", body).await.0, 200);
    let tags = host.get("/api/tags").await;
    for (name, expected) in [
        ("rendered", json!(["completion", "tools"])),
        ("plain", json!(["completion"])),
        ("caller", json!(["completion", "tools"])),
        ("filler", json!(["completion", "insert"])),
        ("thinker", json!(["completion", "thinking"])),
        ("seer", json!(["completion", "vision"])),
        ("embedder", json!(["embedding"])),
        ("jinja", json!(["completion"])),
        ("jinja-tools", json!(["completion", "tools"])),
        ("jinja-thinks", json!(["completion", "thinking"])),
        ("plain-over-jinja", json!(["completion"])),
    ] {
        let shown = show(&host, json!({"model": name})).await;
        assert_eq!(shown["capabilities"], expected, "{name}");
        let models = tags["models"].as_array().unwrap();
        let listed = models
            .iter()
            .find(|model| model["name"] == format!("{name}:latest"));
        assert_eq!(
            listed.unwrap()["capabilities"],
            expected,
            "{name} in the list"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_looked_at_again() {
    let host = host();
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("tokenizer.chat_template", "{{ tools }}{{ messages }}");
    let whole = Writer::new(metadata).to_bytes().unwrap();
    host.put("shared", &whole);
    let blob = Digest::of(&whole).file_name();
    let blob = host.folder.path().join("blobs").join(blob);
    let capabilities = async || {
        let tags = host.get("/api/tags").await;
        let models = tags["models"].as_array().unwrap();
        let found = models.iter().find(|model| model["name"] == "shared:latest");
        found.unwrap()["capabilities"].clone()
    };
    // As on a disk of the network that answers late.
    std::fs::write(&blob, vec![0; whole.len()]).unwrap();
    assert_ne!(capabilities().await, json!(["completion", "tools"]));
    std::fs::write(&blob, &whole).unwrap();
    assert_eq!(capabilities().await, json!(["completion", "tools"]));
}

#[tokio::test]
async fn the_list_of_models_for_other_dialects() {
    let host = host();
    let copy = json!({"source": "plain", "destination": "me/mine:one"});
    assert_eq!(host.post("/api/copy", copy).await.0, 200);
    let list = host.get("/v1/models").await;
    let models = list["data"].as_array().unwrap();
    for model in models {
        assert_eq!(model["object"], "model");
        assert!(model["created"].as_u64().unwrap() > 1_600_000_000);
    }
    let owner = |id: &str| {
        let found = models.iter().find(|model| model["id"] == id);
        found.unwrap()["owned_by"].clone()
    };
    assert_eq!(owner("plain:latest"), "library");
    assert_eq!(owner("me/mine:one"), "me");
    // As it was asked for.
    for id in ["plain", "PLAIN:latest"] {
        assert_eq!(host.get(&format!("/v1/models/{id}")).await["id"], id);
    }
    let (status, location) = {
        let response = host.send(Method::GET, "/v1/models/", &[], "").await;
        (response.status(), response.headers()["location"].clone())
    };
    assert_eq!(
        (status.as_u16(), location),
        (301, "/v1/models".parse().unwrap())
    );
}
