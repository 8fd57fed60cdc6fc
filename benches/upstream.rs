//! What a server in between costs: the same requests sent to a server directly, and through another
//! one that passes them on, in turn.
//!
//! `cargo bench --bench upstream` prints medians; nothing fails when a figure is bad.
#![expect(
    unreachable_pub,
    dead_code,
    reason = "the module is that of the tests, which use all of it"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and stops when it cannot measure"
)]
#![allow(missing_docs, reason = "a program")]

#[path = "../crates/llmsrv-ssh/tests/it/signals.rs"]
mod signals;
#[path = "../tests/it/util.rs"]
mod util;

use std::{
    fs,
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use serde_json::json;
use util::{Sandbox, Server};

const ROUNDS: usize = 300;

fn main() {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(run());
}

async fn run() {
    let (behind, before) = (Sandbox::new(), Sandbox::new());
    let back = behind.serve();
    let folder = before.path().join("config/llmsrv");
    fs::create_dir_all(&folder).unwrap();
    let table = format!(
        "[upstream.back]\nurl = \"{}/v1\"\nmodels = {{ far = \"default\" }}\n",
        back.url
    );
    fs::write(folder.join("config.toml"), table).unwrap();
    let front = before.serve();

    let (mut direct, mut passed_on) = (Times::default(), Times::default());
    // The first rounds load the model and open connections.
    for round in 0..ROUNDS + 10 {
        let (one, other) = (stream(&back, "default").await, stream(&front, "far").await);
        if round >= 10 {
            direct.push(one);
            passed_on.push(other);
        }
    }
    for (what, direct, passed_on) in [
        ("first piece", &mut direct.first, &mut passed_on.first),
        ("whole answer", &mut direct.whole, &mut passed_on.whole),
    ] {
        let (direct, passed_on) = (median(direct), median(passed_on));
        println!(
            "{what}, median of {ROUNDS}: direct {direct:?}, through a front server {passed_on:?}, \
             added {:?}",
            passed_on.saturating_sub(direct)
        );
    }
}

#[derive(Default)]
struct Times {
    first: Vec<Duration>,
    whole: Vec<Duration>,
}

impl Times {
    fn push(&mut self, (first, whole): (Duration, Duration)) {
        self.first.push(first);
        self.whole.push(whole);
    }
}

/// Streams an answer of 16 tokens; returns the times to its first piece and to its end.
async fn stream(server: &Server, model: &str) -> (Duration, Duration) {
    let body = json!({
        "model": model,
        "stream": true,
        "max_tokens": 16,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Write a function"}],
    });
    let started = Instant::now();
    let request = server
        .http
        .post(format!("{}/v1/chat/completions", server.url));
    let response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let mut pieces = response.bytes_stream();
    let mut text = pieces.next().await.unwrap().unwrap().to_vec();
    let first = started.elapsed();
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    let whole = started.elapsed();
    let text = String::from_utf8(text).unwrap();
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    (first, whole)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
