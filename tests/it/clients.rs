//! The clients that people use, unmodified: official ones of three APIs, and LangChain.
//!
//! `tests/run` installs them and names the folder in `TEST_CLIENTS`; without it these tests
//! say loudly that they did nothing.

use std::{path::PathBuf, process::Command};

use crate::util::{Output, Sandbox};

fn clients() -> Option<PathBuf> {
    let folder = std::env::var_os("TEST_CLIENTS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("SKIPPED: the client tests need TEST_CLIENTS; run `tests/run`");
    }
    folder
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
}

/// Runs a script of ours that drives a client of Python; its last part is called `last`.
fn python(name: &str, last: &str) {
    let Some(clients) = clients() else { return };
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let output = Output::of(
        Command::new(clients.join("venv/bin/python"))
            .args(["-X", "dev", "-W", "ignore"])
            .arg(script(name))
            .env("OLLAMA_HOST", &server.url)
            .env("LLMSRV_URL", &server.url),
    )
    .ok();
    assert!(output.stdout.contains(last), "{output:?}");
}

#[test]
fn the_official_python_client_works_unmodified() {
    python("python_client.py", "ok concurrent");
}

#[test]
fn the_openai_sdk_works_unmodified() {
    python("openai_sdk.py", "ok concurrent");
}

#[test]
fn the_anthropic_sdk_works_unmodified() {
    python("anthropic_sdk.py", "ok errors");
}

#[test]
fn langchain_works_unmodified() {
    python("langchain_client.py", "ok batch");
}

#[test]
fn the_official_javascript_client_works_unmodified() {
    let Some(clients) = clients() else { return };
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    // Modules are looked for beside the script.
    let copy = clients.join("js_client.mjs");
    std::fs::copy(script("js_client.mjs"), &copy).unwrap();
    let output = Output::of(
        Command::new("node")
            .arg(&copy)
            .env("OLLAMA_HOST", &server.url),
    )
    .ok();
    assert!(output.stdout.contains("ok errors"), "{output:?}");
}
