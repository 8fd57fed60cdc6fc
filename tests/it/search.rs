//! `llmsrv search`: models that can be pulled, and what they would be like here.

use serde_json::{Value, json};

use crate::util::{Output, Sandbox};

fn found(sandbox: &Sandbox, args: &[&str]) -> Vec<Value> {
    let output = sandbox.run(&[&["search", "--json"], args].concat()).ok();
    output.json()["models"].as_array().unwrap().clone()
}

#[test]
fn what_fits_and_runs_is_named_with_its_speed() {
    let sandbox = Sandbox::new();
    let best = found(&sandbox, &[]);
    assert!(best.len() > 10, "{best:?}");
    for model in &best {
        assert!(model["fits"] == true && model["runs"] == true, "{model}");
    }
    let names: Vec<&str> = best
        .iter()
        .map(|model| model["name"].as_str().unwrap())
        .collect();
    // One size of each.
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("smollm2:"))
            .count(),
        1
    );

    // Twice the bytes take twice the time.
    let sizes = found(&sandbox, &["smollm2", "--all"]);
    let of = |idx: usize, key: &str| sizes[idx][key].as_f64().unwrap();
    let ratio = of(0, "tokens_per_second") / of(2, "tokens_per_second");
    assert!(
        (ratio - of(2, "bytes") / of(0, "bytes")).abs() < 0.01,
        "{sizes:?}"
    );

    let all = found(&sandbox, &["--all"]);
    let large = all
        .iter()
        .find(|model| model["name"] == "gpt-oss:120b")
        .unwrap();
    assert!(
        large["memory_bytes"].as_u64() > large["bytes"].as_u64(),
        "{large}"
    );
}

#[test]
fn words_are_looked_for_and_slips_are_told() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["search", "embedding"]).ok();
    assert!(
        output.stdout.contains("nomic-embed-text:v1.5"),
        "{output:?}"
    );
    assert!(!output.stdout.contains("tok/s"), "{output:?}");
    assert!(output.stderr.contains("llmsrv run MODEL"), "{output:?}");
    let output = sandbox.run(&["search", "qwn3"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("did you mean qwen3?"), "{output:?}");
    assert_eq!(output.stdout, "");
}

#[test]
fn a_slip_is_told_where_no_registry_answers() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["pull", "127.0.0.1:1/library/qwn3", "--insecure"]);
    assert_ne!(output.code, 0);
    assert!(!output.stderr.contains("did you mean"), "{output:?}");
    let output = sandbox.run(&["run", "qwn3", "hi"]);
    assert_ne!(output.code, 0);
    assert!(output.stderr.contains("did you mean qwen3?"), "{output:?}");
}

/// A hub with one repository of two quantizations.
async fn hub() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let found = json!([{
        "id": "someone/Nimbus-2B-GGUF", "tags": ["license:mit"],
        "gguf": {"architecture": "llama", "context_length": 4096},
    }, {
        "id": "someone/Nimbus-Sound-GGUF", "gguf": {"architecture": "whistler"},
    }]);
    let file = |name: &str, size: u64| json!({"type": "file", "path": name, "size": size});
    let files = json!([
        file("n-Q4_K_M.gguf", 1_300_000),
        file("n-Q8_0.gguf", 2_600_000)
    ]);
    let sound = json!([file("s-Q8_0.gguf", 1_000)]);
    let router = axum::Router::new()
        .route(
            "/api/models/someone/Nimbus-Sound-GGUF/tree/main",
            axum::routing::get(async move || sound.to_string()),
        )
        .route(
            "/api/models",
            axum::routing::get(async move || found.to_string()),
        )
        .route(
            "/api/models/someone/Nimbus-2B-GGUF/tree/main",
            axum::routing::get(async move || files.to_string()),
        );
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hub_offers_is_kept() {
    let sandbox = Sandbox::new();
    let url = hub().await;
    let mut command = sandbox.command();
    command
        .env("LLMSRV_HF_ENDPOINT", &url)
        .env("LLMSRV_REGISTRIES", "hf.co");
    let asked = Output::of(command.args(["search", "--refresh", "nimbus"])).ok();
    assert!(
        asked.stdout.contains("hf.co/someone/Nimbus-2B-GGUF:Q8_0 *"),
        "{asked:?}"
    );
    assert!(
        asked
            .stdout
            .contains("hf.co/someone/Nimbus-2B-GGUF:Q4_K_M  "),
        "{asked:?}"
    );
    assert!(asked.stderr.contains("refreshed on 20"), "{asked:?}");
    // Without the hub.
    let kept = found(&sandbox, &["nimbus", "mit"]);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(kept[1]["context"], 4096);
    let all = found(&sandbox, &["nimbus-sound", "--all"]);
    assert_eq!(all[0]["runs"], false, "{all:?}");
    assert_eq!(all[0]["why_not"], "its architecture is not known here");
    let server = sandbox.serve();
    let listed: Value = reqwest::get(format!("{}/api/catalogue", server.url))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert!(listed["refreshed"].is_string(), "{listed}");
    assert!(listed.to_string().contains("Nimbus-2B-GGUF:Q8_0"));

    let mut command = sandbox.command();
    command.env("LLMSRV_REGISTRIES", "127.0.0.1:1");
    let output = Output::of(command.args(["search", "--refresh=127.0.0.1:1"]));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains("cannot reach 127.0.0.1:1"),
        "{output:?}"
    );
    std::fs::write(sandbox.path().join("data/llmsrv/catalogue.json"), "{").unwrap();
    // The list of the program is there all the same.
    let output = sandbox.run(&["search", "qwen3"]).ok();
    assert!(output.stderr.contains("catalogue.json"), "{output:?}");
    assert!(output.stdout.contains("qwen3:0.6b"), "{output:?}");
}
