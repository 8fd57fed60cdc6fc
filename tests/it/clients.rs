//! The official Python and JavaScript clients, unmodified.
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

#[test]
fn the_official_python_client_works_unmodified() {
    let Some(clients) = clients() else { return };
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let output = Output::of(
        Command::new(clients.join("venv/bin/python"))
            .args(["-X", "dev", "-W", "ignore::ResourceWarning"])
            .arg(script("python_client.py"))
            .env("OLLAMA_HOST", &server.url),
    )
    .ok();
    assert!(output.stdout.contains("ok concurrent"), "{output:?}");
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
