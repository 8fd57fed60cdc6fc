//! `llmsrv install-model` with a registry in this process.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    registry::fake::{Act, Fake},
    util::{Output, Sandbox, TIMEOUT},
};

/// A command whose registry is the fake one; the real one behind it cannot be reached.
fn command(sandbox: &Sandbox, fake: Option<&Fake>, args: &[&str]) -> Command {
    let mut command = sandbox.command();
    command
        .env("LLMSRV_REGISTRIES", "registry.ollama.ai")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("NO_PROXY", "127.0.0.1")
        .arg("install-model")
        .args(args);
    if let Some(fake) = fake {
        let mirror = format!("registry.ollama.ai={}", fake.url(""));
        command.env("LLMSRV_MIRRORS", mirror);
    }
    command
}

async fn run(sandbox: &Sandbox, fake: Option<&Fake>, args: &[&str]) -> Output {
    let mut command = command(sandbox, fake, args);
    tokio::task::spawn_blocking(move || Output::of(&mut command))
        .await
        .unwrap()
}

/// Serves a model that is not the built-in one, but has its weights. Returns its size.
fn serve_model(fake: &Fake, repository: &str, tag: &str) -> u64 {
    let sandbox = Sandbox::new();
    let modelfile = sandbox.path().join("Modelfile");
    std::fs::write(&modelfile, "FROM default\nSYSTEM Answer with code.\n").unwrap();
    let modelfile = modelfile.to_str().unwrap();
    sandbox.run(&["create", "mine:t", "-f", modelfile]).ok();
    let models = sandbox.models();
    let manifest = models.join("manifests/registry.ollama.ai/library/mine/t");
    let manifest = std::fs::read(manifest).unwrap();
    fake.put(
        format!("/v2/{repository}/manifests/{tag}"),
        manifest.clone(),
    );
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    let mut size = 0;
    for layer in layers.iter().chain([&manifest["config"]]) {
        let digest = layer["digest"].as_str().unwrap();
        let file = models.join("blobs").join(digest.replace(':', "-"));
        size += layer["size"].as_u64().unwrap();
        fake.put(
            format!("/v2/{repository}/blobs/{digest}"),
            std::fs::read(file).unwrap(),
        );
    }
    size
}

/// Serves the description of a model that no disk can hold.
fn serve_giant(fake: &Fake, repository: &str, tag: &str) {
    let layer = |kind: &str, n: char, size: u64| {
        json!({
            "mediaType": format!("application/vnd.{kind}"),
            "digest": format!("sha256:{}", n.to_string().repeat(64)),
            "size": size,
        })
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": layer("docker.container.image.v1+json", 'a', 10),
        "layers": [layer("ollama.image.model", 'b', 1 << 60)],
    });
    fake.put(
        format!("/v2/{repository}/manifests/{tag}"),
        manifest.to_string(),
    );
}

fn manifests_asked(fake: &Fake) -> Vec<String> {
    let log = fake.log();
    let asked = log.iter().filter(|seen| seen.is_manifest());
    asked.map(|seen| seen.path.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_model_of_the_chain_that_fits_is_installed_once() {
    let (fake, sandbox) = (Fake::start().await, Sandbox::new());
    serve_giant(&fake, "library/qwen2.5-coder", "1.5b");
    let size = serve_model(&fake, "library/tinyllama", "latest");

    let would = run(&sandbox, Some(&fake), &["--dry-run", "--json"])
        .await
        .ok();
    let would = would.json();
    assert_eq!(would["outcome"], "would install", "{would}");
    assert_eq!(would["model"], "tinyllama:latest");
    assert_eq!(would["size_bytes"], size);
    // The weights are those of the built-in model, which is there.
    assert!(would["missing_bytes"].as_u64().unwrap() < 10_000, "{would}");
    assert!(would["free_bytes"].as_u64().unwrap() > 0);
    assert_eq!(fake.blob_requests().len(), 0, "nothing was received");

    fake.forget();
    let done = run(&sandbox, Some(&fake), &["--json"]).await.ok().json();
    assert_eq!(done["outcome"], "installed", "{done}");
    assert_eq!(done["model"], "tinyllama:latest");
    let asked = manifests_asked(&fake);
    assert_eq!(
        asked,
        [
            "/v2/library/deepseek-coder/manifests/1.3b",
            "/v2/library/deepseek-coder/manifests/latest",
            "/v2/library/qwen2.5-coder/manifests/1.5b",
            "/v2/library/tinyllama/manifests/latest",
        ]
    );
    let failed = done["failed"].as_array().unwrap();
    let why = failed[2]["error"].as_str().unwrap();
    assert!(
        why.contains("not enough space") && why.contains("free"),
        "{why}"
    );
    let listed = sandbox.run(&["list"]).ok().stdout;
    assert!(listed.contains("tinyllama:latest"), "{listed}");

    fake.forget();
    let again = run(&sandbox, Some(&fake), &[]).await.ok();
    assert!(again.stdout.contains("nothing to do"), "{again:?}");
    assert_eq!(fake.log().len(), 0);

    serve_model(&fake, "library/deepseek-coder", "1.3b");
    let forced = run(&sandbox, Some(&fake), &["--force"]).await.ok();
    assert!(
        forced.stdout.contains("deepseek-coder:1.3b is installed"),
        "{forced:?}"
    );
    assert!(forced.stderr.contains("pulling manifest"), "{forced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_model_is_installed_whatever_else_is_there() {
    let (fake, sandbox) = (Fake::start().await, Sandbox::new());
    serve_model(&fake, "library/tinyllama", "latest");
    serve_model(&fake, "team/coder", "v1");
    run(&sandbox, Some(&fake), &[]).await.ok();
    let done = run(&sandbox, Some(&fake), &["team/coder:v1"]).await.ok();
    assert!(
        done.stdout.contains("team/coder:v1 is installed"),
        "{done:?}"
    );
    fake.forget();
    let again = run(&sandbox, Some(&fake), &["team/coder:v1"]).await.ok();
    assert!(again.stdout.contains("nothing to do"), "{again:?}");
    assert_eq!(fake.log().len(), 0);
    let none = run(&sandbox, Some(&fake), &["team/none"]).await;
    assert_eq!(none.code, 1, "{none:?}");
    let wrong = run(&sandbox, Some(&fake), &["../../etc"]).await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_installs_it() {
    let (fake, sandbox) = (Fake::start().await, Sandbox::new());
    serve_model(&fake, "library/deepseek-coder", "latest");
    let mirror = format!("registry.ollama.ai={}", fake.url(""));
    let server = sandbox.serve_with(
        &[],
        &[
            ("LLMSRV_REGISTRIES", "registry.ollama.ai"),
            ("LLMSRV_MIRRORS", &mirror),
            ("HTTPS_PROXY", "http://127.0.0.1:9"),
            ("NO_PROXY", "127.0.0.1"),
        ],
    );
    let mut command = command(&sandbox, None, &["--json"]);
    command.env("LLMSRV_HOST", server.host());
    let done = tokio::task::spawn_blocking(move || Output::of(&mut command));
    let done = done.await.unwrap().ok().json();
    assert_eq!(done["model"], "deepseek-coder:latest", "{done}");
    let tags = server.get("/api/tags").await.ok();
    assert!(tags.to_string().contains("deepseek-coder:latest"), "{tags}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_network_the_built_in_model_goes_on_serving() {
    let sandbox = Sandbox::new();
    let output = run(&sandbox, None, &[]).await;
    assert_eq!(output.code, 1, "{output:?}");
    for part in [
        "cannot reach registry.ollama.ai",
        "the built-in model llmsrv-tiny-code:latest serves",
        "hint:",
    ] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    let output = run(&sandbox, None, &["--json"]).await;
    assert_eq!(
        (output.code, &output.json()["outcome"]),
        (1, &json!("failed"))
    );
    assert_eq!(output.json()["failed"].as_array().unwrap().len(), 4);
    let answer = sandbox.run(&["run", "default", "Hello!"]).ok();
    assert!(answer.stdout.contains("built-in model"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_that_was_killed_goes_on_where_it_was() {
    let (fake, sandbox) = (Fake::start().await, Sandbox::new());
    serve_model(&fake, "library/deepseek-coder", "1.3b");
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Drip(64 << 10, Duration::from_millis(20))
        } else {
            Act::Normal
        }
    });
    // Else the weights are there already.
    let mut child = command(&sandbox, Some(&fake), &[])
        .env("LLMSRV_NO_EMBEDDED", "1")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    // What was received is written down every so often, beside the blob; blobs other than the weights are short.
    let blobs = sandbox.models().join("blobs");
    let is_some = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let state = std::fs::read_to_string(&path).unwrap_or_default();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap_or_default();
        path.to_string_lossy().contains("-partial-")
            && state["Completed"]
                .as_u64()
                .is_some_and(|bytes| bytes > 1000)
    };
    let is_there = || std::fs::read_dir(&blobs).is_ok_and(|mut blobs| blobs.any(is_some));
    while !is_there() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fake.behave();
    fake.forget();
    let mut command = command(&sandbox, Some(&fake), &[]);
    command.env("LLMSRV_NO_EMBEDDED", "1");
    let done = tokio::task::spawn_blocking(move || Output::of(&mut command));
    done.await.unwrap().ok();
    let first = fake.blob_requests()[0].range.unwrap().0;
    assert!(first > 0, "it began again: {:?}", fake.blob_requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_for_the_machine_is_one_of_the_list() {
    let (fake, sandbox) = (Fake::start().await, Sandbox::new());
    for tag in ["0.5b", "1.5b", "7b", "14b", "32b"] {
        serve_model(&fake, "library/qwen2.5-coder", tag);
    }
    let output = run(&sandbox, Some(&fake), &["--best", "--dry-run", "--json"])
        .await
        .ok();
    let name = output.json()["model"].as_str().unwrap().to_owned();
    assert!(name.starts_with("qwen2.5-coder:"), "{name}");
    // It is the one that `search` marks; both measure the memory, so the size may be a neighbour.
    let listed = sandbox
        .run(&["search", "--json", "qwen2.5-coder"])
        .ok()
        .json();
    let listed = listed["models"].as_array().unwrap();
    let best = listed.iter().find(|model| model["name"] == *name).unwrap();
    assert!(best["fits"] == true && best["runs"] == true, "{best}");
    let output = run(&sandbox, Some(&fake), &["--best", "tinyllama"]).await;
    assert_eq!(output.code, 2, "{output:?}");
}
