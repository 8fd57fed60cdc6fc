//! Names made of the same weights share what is loaded; and how large the context of a name is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use llmsrv_engine::fake::{self, FakeOptions};
use llmsrv_server::Settings;
use serde_json::{Value, json};

use crate::host::{Host, configured, host_loading, host_with, settings};

/// A server that counts how often it loads, with `plain` and two more names of its weights.
async fn shared(settings: Settings) -> (Host, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let host = host_loading(
        settings,
        Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(fake::loaded(FakeOptions {
                weight_bytes: 1000,
                ..FakeOptions::default()
            }))
        }),
    );
    for body in [
        json!({"model": "pirate", "from": "plain", "system": "Talk like a pirate."}),
        json!({"model": "wide", "from": "plain", "template": "<{{ .Prompt }}>", "parameters": {"num_ctx": 2048}}),
    ] {
        let (status, answer) = host.post("/api/create", body).await;
        assert_eq!(status, 200, "{answer}");
    }
    (host, count)
}

async fn metric(host: &Host, line: &str) -> f64 {
    let (_, text) = host.text(Method::GET, "/metrics", "").await;
    let found = text.lines().find_map(|other| other.strip_prefix(line));
    found.map_or(0.0, |number| number.trim().parse().unwrap())
}

async fn rendered(host: &Host, model: &str) -> String {
    let body = json!({"model": model, "prompt": "Hi", "_debug_render_only": true});
    let (_, answer) = host.post("/api/generate", body).await;
    let text = &answer["_debug_info"]["rendered_template"];
    text.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn names_of_the_same_weights_share_a_copy() {
    let (host, n_loads) = shared(settings()).await;
    // Long enough for a few blocks of the cache.
    let prompt = "The same words in each prompt. ".repeat(8);
    let mut taken = Vec::new();
    for model in ["plain", "pirate", "wide"] {
        let body = json!({"model": model, "prompt": prompt, "raw": true});
        assert_eq!(host.ask(body).await.0, 200);
        taken.push(metric(&host, "llmsrv_models_memory_bytes").await);
    }
    assert_eq!(n_loads.load(Ordering::SeqCst), 1);
    assert_eq!(metric(&host, "llmsrv_models_loaded").await, 1.0);
    assert!(taken[0] == taken[1] && taken[1] == taken[2], "{taken:?}");
    let hits = r#"llmsrv_prefix_cache_hit_tokens_total{model="plain:latest"}"#;
    assert!(
        metric(&host, hits).await >= 2.0 * 200.0,
        "prefixes are shared"
    );
    assert_eq!(host.loaded().await, ["pirate", "plain", "wide"]);

    // Each name has its own words and numbers.
    assert!(!rendered(&host, "plain").await.contains("pirate"));
    assert!(
        rendered(&host, "pirate")
            .await
            .contains("Talk like a pirate.")
    );
    assert_eq!(rendered(&host, "wide").await, "<Hi>");

    // One name after the other, and the copy with the last.
    let unload = |model: &str| json!({"model": model, "keep_alive": 0});
    host.post("/api/generate", unload("plain")).await;
    assert_eq!(host.loaded().await, ["pirate", "wide"]);
    assert_eq!(host.ask(json!({"model": "pirate"})).await.0, 200);
    host.post("/api/generate", unload("pirate")).await;
    assert_eq!(metric(&host, "llmsrv_models_loaded").await, 1.0);
    assert_eq!(n_loads.load(Ordering::SeqCst), 1);
    host.post("/api/generate", unload("wide")).await;
    assert_eq!(host.loaded().await, Vec::<String>::new());
    let gone = async {
        while metric(&host, "llmsrv_models_memory_bytes").await > 0.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .expect("the memory is given back");
    assert_eq!(host.ask(json!({"model": "wide"})).await.0, 200);
    assert_eq!(n_loads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn figures_are_told_under_a_name_that_is_still_there() {
    let (host, _) = shared(settings()).await;
    let figures = async |family: &str| {
        let of = |model: &str| format!(r#"llmsrv_{family}{{model="{model}:latest"}}"#);
        (
            metric(&host, &of("pirate")).await,
            metric(&host, &of("plain")).await,
        )
    };
    let mut before = 0.0;
    for model in ["pirate", "plain"] {
        let (status, answer) = host.ask(json!({ "model": model })).await;
        assert_eq!(status, 200);
        before += answer["eval_count"].as_f64().unwrap();
    }
    assert_eq!(figures("model_weights_bytes").await, (1000.0, 0.0));
    // The last token is counted after its text has left.
    let counted = async {
        while figures("generated_tokens_total").await.0 < before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted)
        .await
        .expect("all tokens are counted");
    host.post("/api/generate", json!({"model": "pirate", "keep_alive": 0}))
        .await;
    assert_eq!(figures("model_weights_bytes").await, (0.0, 1000.0));
    // What was counted stays where it was; the last name has what comes, also when it leaves.
    assert_eq!(host.ask(json!({"model": "plain"})).await.0, 200);
    host.post("/api/generate", json!({"model": "plain", "keep_alive": 0}))
        .await;
    let (pirate, plain) = figures("generated_tokens_total").await;
    assert!(pirate == before && plain > 0.0, "{before} {pirate} {plain}");
}

#[tokio::test]
async fn each_name_stays_for_its_own_time() {
    let (host, n_loads) = shared(settings()).await;
    for (model, keep_alive) in [
        ("pirate", json!(-1)),
        ("wide", json!("1h")),
        ("plain", json!("1ms")),
    ] {
        let body = json!({"model": model, "keep_alive": keep_alive});
        assert_eq!(host.post("/api/generate", body).await.0, 200);
    }
    let leaves = async {
        while host.loaded().await != ["pirate", "wide"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), leaves)
        .await
        .expect("its time is over");
    let ps = host.get("/api/ps").await;
    let expires: Vec<&str> = ps["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["expires_at"].as_str().unwrap())
        .collect();
    assert!(expires[0] > "2200" && expires[1] < "2200", "{ps}");
    // After an answer a name with the time 0 leaves, too.
    host.ask(json!({"model": "wide", "keep_alive": 0})).await;
    let leaves = async {
        while host.loaded().await != ["pirate"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), leaves)
        .await
        .expect("zero means right after the answer");
    assert_eq!(host.ask(json!({"model": "pirate"})).await.0, 200);
    assert_eq!(n_loads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_name_with_a_small_model_of_its_own_has_a_copy_of_its_own() {
    let with_draft = Settings {
        draft_models: vec!["plain=thinker".parse().unwrap()],
        ..settings()
    };
    let (host, n_loads) = shared(with_draft).await;
    for model in ["plain", "pirate", "wide"] {
        assert_eq!(host.ask(json!({"model": model})).await.0, 200);
    }
    // `plain` and its small model, and the copy of the other two.
    assert_eq!(n_loads.load(Ordering::SeqCst), 3);
    assert_eq!(metric(&host, "llmsrv_models_loaded").await, 2.0);
}

async fn listed_context(host: &Host, name: &str) -> Value {
    let ps = host.get("/api/ps").await;
    let mut models = ps["models"].as_array().unwrap().iter();
    let model = models.find(|model| model["name"] == format!("{name}:latest"));
    model.unwrap()["context_length"].clone()
}

#[tokio::test]
async fn the_listed_context_is_the_one_that_is_used() {
    let (host, _) = shared(settings()).await;
    for model in ["plain", "wide"] {
        host.post("/api/generate", json!({"model": model})).await;
    }
    assert_eq!(listed_context(&host, "plain").await, 4096);
    assert_eq!(listed_context(&host, "wide").await, 2048);
    host.ask(json!({"model": "plain", "options": {"num_ctx": 1000}}))
        .await;
    assert_eq!(listed_context(&host, "plain").await, 1000);
    assert_eq!(listed_context(&host, "wide").await, 2048);
}

#[tokio::test]
async fn the_context_is_as_large_as_model_and_memory_allow() {
    let long = "word ".repeat(4000);
    for (limit, set, least, most) in [
        (None, 0, 1 << 16, 1 << 16),
        (Some(1 << 20), 0, 4096, 1 << 15),
        (None, 5000, 5000, 5000),
    ] {
        let settings = configured(|config| {
            config.memory_limit = limit;
            config.context_length = set;
        });
        let host = host_with(settings, || FakeOptions {
            context_length: 1 << 16,
            ..FakeOptions::default()
        });
        let (_, answer) = host.ask(json!({"prompt": long, "raw": true})).await;
        let context = listed_context(&host, "plain").await.as_u64().unwrap();
        assert!((least..=most).contains(&context), "{limit:?}: {context}");
        let is_cut = answer.get("prompt_truncated").is_some();
        assert_eq!(is_cut, context <= long.len() as u64, "{limit:?}: {answer}");
    }
}
