//! Answers of long work: a line for each step while it goes on, or only its end.

use std::{
    convert::Infallible,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{error::ApiError, respond};

/// What the work says about itself.
pub(crate) struct Progress {
    sender: mpsc::UnboundedSender<Said>,
    /// Amounts are told a few times a second.
    next_amount: Option<Instant>,
}

enum Said {
    Line(Value),
    End(Result<(), ApiError>),
}

impl Progress {
    /// Tells what is done next.
    pub(crate) fn status(&mut self, status: &str) {
        self.next_amount = None;
        // Work whose client has left is ended by the next amount.
        let _ = self.sender.send(Said::Line(json!({ "status": status })));
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
            let mut line = json!({ "status": status, "digest": digest, "total": total });
            if completed > 0 {
                line["completed"] = json!(completed);
            }
            let _ = self.sender.send(Said::Line(line));
        }
        if self.sender.is_closed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Does `work` on a thread that may wait and answers with what it says. An error before the first
/// line is an answer of its own; a later one is the last line.
pub(crate) async fn answer(
    stream: bool,
    work: impl FnOnce(&mut Progress) -> Result<(), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    tokio::task::spawn_blocking(move || {
        let mut progress = Progress {
            sender,
            next_amount: None,
        };
        let end = work(&mut progress);
        let _ = progress.sender.send(Said::End(end));
    });
    let mut said = next(&mut receiver).await;
    while !stream && matches!(said, Said::Line(_)) {
        said = next(&mut receiver).await;
    }
    match said {
        Said::End(Err(error)) => Err(error),
        Said::End(Ok(())) if !stream => Ok(respond::json(&success())),
        first => Ok(lines(first, receiver)),
    }
}

fn lines(first: Said, receiver: mpsc::UnboundedReceiver<Said>) -> Response {
    let lines = stream::unfold(
        (Some(first), Some(receiver)),
        |(first, receiver)| async move {
            let mut receiver = receiver?;
            let said = match first {
                Some(said) => said,
                None => next(&mut receiver).await,
            };
            let (line, rest) = match said {
                Said::Line(line) => (line, Some(receiver)),
                Said::End(Ok(())) => (success(), None),
                Said::End(Err(error)) => (error.line(), None),
            };
            let line = Bytes::from(format!("{line}\n"));
            Some((Ok::<_, Infallible>(line), (None, rest)))
        },
    );
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (content_type, Body::from_stream(lines)).into_response()
}

/// Waits for what the work says; one that says no more has panicked.
async fn next(receiver: &mut mpsc::UnboundedReceiver<Said>) -> Said {
    receiver.recv().await.unwrap_or_else(|| {
        tracing::error!("a task of the server failed");
        Said::End(Err(ApiError::internal("internal error")))
    })
}

fn success() -> Value {
    json!({ "status": "success" })
}

const BETWEEN_AMOUNTS: Duration = Duration::from_millis(125);
