//! Streaming over HTTP against streaming inside the process, in turn.

use std::{path::Path, time::Instant};

use llmsrv_api::client::Client;
use llmsrv_bench::{Figure, Options, Stream, Streamer};
use llmsrv_server::Keys;
use serde_json::{Value, json};

use super::Subject;
use crate::{
    connect::runtime,
    context::Context,
    failure::Failure,
    local::{self, Local, Prune},
    logging::Style,
};

/// Measures both with a server of its own.
pub fn compare(
    context: &Context,
    subject: &Subject,
    options: &Options,
    streamer: &Streamer,
) -> Result<Stream, Failure> {
    let config = context.config();
    // A file is lent to a store beside it, which is removed at the end.
    let (folder, store, name) = if subject.stored {
        let store = local::open_store(&config.server, Prune::No)?;
        (None, store, subject.name.clone())
    } else {
        let near = subject.weights.canonicalize()?;
        let near = near.parent().unwrap_or(Path::new("."));
        let folder = tempfile::Builder::new()
            .prefix(".llmsrv-bench-")
            .tempdir_in(near)?;
        let store = local::lend(folder.path(), &subject.weights, "bench")?;
        (Some(folder), store, "bench".to_owned())
    };
    let mut settings = local::settings(config, Keys::default())?;
    settings.load.n_threads = options.load.n_threads;
    settings.load.device.clone_from(&options.load.device);
    settings.load.gpu.clone_from(&options.load.gpu);
    let workers = local::workers(&config.server, Style::Command);
    let outcome = runtime()?.block_on(async {
        let local = Local::over(settings, store, workers).await?;
        let client = Client::new(local.url(), Some(local.key().to_owned()))?;
        let outcome = rounds(&client, &name, options.rounds, streamer).await;
        local.stop().await;
        outcome
    });
    drop(folder);
    outcome
}

async fn rounds(
    client: &Client,
    model: &str,
    n_rounds: usize,
    streamer: &Streamer,
) -> Result<Stream, Failure> {
    let (mut engine, mut http) = (Vec::new(), Vec::new());
    // The first one loads the model.
    over_http(client, model).await?;
    for _ in 0..n_rounds {
        http.extend(over_http(client, model).await?);
        let inside = tokio::task::block_in_place(|| streamer.tokens_per_second(PROMPT, TOKENS));
        engine.extend(inside?);
    }
    if engine.is_empty() || http.is_empty() {
        return Err(Failure::failed(
            "the model ends its answers too soon to measure streaming",
        ));
    }
    let (engine, http) = (Figure::of(engine), Figure::of(http));
    Ok(Stream {
        lost: 1.0 - http.median / engine.median,
        engine,
        http,
    })
}

/// Returns the tokens per second between the first line and the last.
async fn over_http(client: &Client, model: &str) -> Result<Option<f64>, Failure> {
    let body = json!({
        "model": model,
        "prompt": PROMPT,
        "raw": true,
        "options": { "temperature": 0.0, "num_predict": TOKENS, "repeat_penalty": 1.0 },
    });
    let mut lines = client.stream::<Value>("/api/generate", &body).await?;
    let mut first = None;
    while let Some(line) = lines.next().await {
        let line = line?;
        let now = *first.get_or_insert_with(Instant::now);
        if line["done"] == true {
            let n_made = line["eval_count"].as_u64().unwrap_or(0) as usize;
            let seconds = now.elapsed().as_secs_f64();
            return Ok(llmsrv_bench::stream_rate(n_made, TOKENS, seconds));
        }
    }
    Err(Failure::failed("the stream ended early"))
}

const PROMPT: &str = "one two three four five six seven eight nine ten eleven twelve";
const TOKENS: usize = 64;
