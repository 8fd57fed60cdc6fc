//! Long work that says how far it is: a stream of JSON lines, or one object when it is done.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use http::header;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{error::ApiError, respond};

/// Lets work say how far it is. Never waits: what a slow reader has no room for is left out.
pub(crate) struct Teller(mpsc::Sender<Value>);

impl Teller {
    pub(crate) fn tell(&self, step: &impl Serialize) {
        if let Ok(value) = serde_json::to_value(step) {
            let _ = self.0.try_send(value);
        }
    }
}

/// Answers with what `work` tells and how it ends. The work stops when the client leaves.
pub(crate) async fn answer<F>(
    streams: bool,
    work: impl FnOnce(Teller) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(LINES);
    let work = work(Teller(sender));
    if !streams {
        work.await?;
        return Ok(respond::json(&success()));
    }
    let state = Some((receiver, Task(tokio::spawn(work))));
    let lines = stream::unfold(state, async |state| {
        let (mut receiver, mut task) = state?;
        let (value, state) = match receiver.recv().await {
            Some(value) => (value, Some((receiver, task))),
            // The work has let go of its end: it is done.
            None => (task.end().await, None),
        };
        let line = Bytes::from(format!("{value}\n"));
        Some((Ok::<_, Infallible>(line), state))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Work on its own, ended when dropped.
struct Task(JoinHandle<Result<(), ApiError>>);

impl Task {
    /// Waits for the end and returns the last line.
    async fn end(&mut self) -> Value {
        match (&mut self.0).await {
            Ok(Ok(())) => success(),
            Ok(Err(error)) => error.line(),
            Err(error) => {
                tracing::error!(%error, "a task of the server failed");
                ApiError::internal("internal error").line()
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn success() -> Value {
    json!({"status": "success"})
}

/// Lines that wait for a slow reader; some minutes of them.
const LINES: usize = 1024;
