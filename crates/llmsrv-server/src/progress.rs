//! Answers of long work: a line for each step while it goes on, or only its end.

use std::{
    convert::Infallible,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use http::header;
use llmsrv_api::progress::Progress as Step;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{error::ApiError, respond};

/// Lets work say how far it is. Never waits: what a slow reader has no room for is left out.
#[derive(Clone)]
pub(crate) struct Progress {
    sender: mpsc::Sender<Step>,
    /// Amounts are told a few times a second.
    next_amount: Option<Instant>,
}

impl Progress {
    /// Tells a step as it is.
    pub(crate) fn tell(&self, step: Step) {
        let _ = self.sender.try_send(step);
    }

    /// Tells what is done next.
    pub(crate) fn status(&mut self, status: &str) {
        self.next_amount = None;
        // Work whose client has left is ended by the next amount.
        self.tell(Step::step(status));
    }

    /// Tells how much of it is done; says whether somebody still wants it. The first and the last
    /// amount of a step are always told.
    pub(crate) fn amount(
        &mut self,
        status: &str,
        digest: &str,
        completed: u64,
        total: u64,
    ) -> ControlFlow<()> {
        let now = Instant::now();
        if completed >= total || self.next_amount.is_none_or(|next| next <= now) {
            self.next_amount = Some(now + BETWEEN_AMOUNTS);
            self.tell(Step {
                status: status.to_owned(),
                digest: Some(digest.to_owned()),
                total,
                completed,
            });
        }
        if self.sender.is_closed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Answers with what `work` tells and how it ends. An error before the first line is an answer of
/// its own; a later one is the last line. The work stops when the client leaves.
pub(crate) async fn answer<F>(
    streams: bool,
    work: impl FnOnce(Progress) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel(LINES);
    let work = work(Progress {
        sender,
        next_amount: None,
    });
    if !streams {
        work.await?;
        return Ok(respond::json(&serde_json::json!(Step::success())));
    }
    let mut task = Task(tokio::spawn(work));
    let first = match receiver.recv().await {
        Some(first) => first,
        None => task.end().await.map(|()| Step::success())?,
    };
    let state = Some((Some(first), receiver, task));
    let lines = stream::unfold(state, async |state| {
        let (first, mut receiver, mut task) = state?;
        let said = match first {
            Some(first) => Some(first),
            None => receiver.recv().await,
        };
        let (line, state) = match said {
            Some(step) => (json(&step), Some((None, receiver, task))),
            // The work has let go of its end: it is done.
            None => match task.end().await {
                Ok(()) => (json(&Step::success()), None),
                Err(error) => (error.line().to_string(), None),
            },
        };
        Some((Ok::<_, Infallible>(Bytes::from(line + "\n")), state))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Does a part of the work on a thread that may wait; it ends early by what `amount` says.
pub(crate) async fn blocking(
    work: impl FnOnce() -> Result<(), ApiError> + Send + 'static,
) -> Result<(), ApiError> {
    ended(tokio::task::spawn_blocking(work).await)
}

/// Work on its own, ended when dropped.
struct Task(JoinHandle<Result<(), ApiError>>);

impl Task {
    async fn end(&mut self) -> Result<(), ApiError> {
        ended((&mut self.0).await)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ended(end: Result<Result<(), ApiError>, tokio::task::JoinError>) -> Result<(), ApiError> {
    end.unwrap_or_else(|error| {
        tracing::error!(%error, "a task of the server failed");
        Err(ApiError::internal("internal error"))
    })
}

fn json(step: &Step) -> String {
    // Texts and numbers cannot fail.
    serde_json::to_string(step).unwrap_or_default()
}

/// Lines that wait for a slow reader; some minutes of them.
const LINES: usize = 1024;
const BETWEEN_AMOUNTS: Duration = Duration::from_millis(125);
