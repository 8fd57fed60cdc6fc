//! From what is said to the answer's bytes, as a stream or as one object.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use llmsrv_chat::Piece;
use serde_json::Value;

use crate::{
    app::App,
    clock,
    dialect::{End, Frames, Framing, Said, Writer, native},
    error::ApiError,
    job::Job,
    voice::{self, Outcome, Voice},
};

/// Answers a request for text.
pub(crate) async fn answer(
    app: App,
    job: Job,
    mut writer: Box<dyn Writer>,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let (streams, parallel_calls) = (job.stream, job.parallel_calls);
    let rendered = native::Rendered::of(&job);
    let voice = match voice::begin(&app, job).await? {
        Outcome::Voice(voice) => voice,
        Outcome::Nothing(reason) => {
            let end = End::without_text(reason);
            return Ok(json(&writer.whole(Said::default(), &end)));
        }
        Outcome::Prompt(text, n_images) => return Ok(json(&rendered.write(&text, n_images))),
    };
    let speech = Speech {
        voice,
        writer,
        arrived,
        parallel_calls,
        called: false,
        ended: false,
    };
    if streams {
        speech.stream().await
    } else {
        speech.whole().await
    }
}

/// Makes a JSON answer.
pub(crate) fn json(value: &Value) -> Response {
    with_type(
        Body::from(value.to_string()),
        "application/json; charset=utf-8",
    )
}

fn with_type(body: Body, content_type: &'static str) -> Response {
    let mut response = (StatusCode::OK, body).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// One answer on its way.
struct Speech {
    voice: Voice,
    writer: Box<dyn Writer>,
    arrived: Instant,
    /// More than one call may be in the answer.
    parallel_calls: bool,
    called: bool,
    ended: bool,
}

impl Speech {
    /// Answers bit by bit. An error before the first bit is an answer of its own.
    async fn stream(mut self) -> Result<Response, ApiError> {
        let framing = self.writer.framing();
        let next = self.next_in_time(framing).await.transpose()?;
        let mut first = Frames::default();
        self.writer.begin(self.voice.prompt_tokens(), &mut first);
        match next {
            Some(next) => self.write(next, &mut first),
            None => first.raw(PING),
        }
        let frames = stream::unfold((self, Some(first)), move |(mut speech, first)| async move {
            let frames = match first {
                Some(frames) => frames,
                None => speech.next_frames(framing).await?,
            };
            Some((Ok::<_, Infallible>(Bytes::from(frames.0)), (speech, None)))
        });
        let body = Body::from_stream(frames);
        Ok(match framing {
            Framing::Lines => with_type(body, "application/x-ndjson"),
            Framing::Events => {
                let mut response = with_type(body, "text/event-stream");
                let headers = response.headers_mut();
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                // Some proxies hold streams back unless they are told not to.
                headers.insert(
                    HeaderName::from_static("x-accel-buffering"),
                    HeaderValue::from_static("no"),
                );
                response
            }
        })
    }

    /// Answers with everything in one object.
    async fn whole(mut self) -> Result<Response, ApiError> {
        let mut all = Said::default();
        loop {
            let (said, end) = self.next().await?;
            all.pieces.extend(said.pieces);
            all.tokens.extend(said.tokens);
            if let Some(end) = end {
                return Ok(json(&self.writer.whole(all, &end)));
            }
        }
    }

    /// Waits for the next bytes; `None` after the last.
    async fn next_frames(&mut self, framing: Framing) -> Option<Frames> {
        if self.ended {
            return None;
        }
        let mut frames = Frames::default();
        match self.next_in_time(framing).await {
            Some(Ok(next)) => self.write(next, &mut frames),
            Some(Err(error)) => self.writer.error(&error, &mut frames),
            None => frames.raw(PING),
        }
        Some(frames)
    }

    fn write(&mut self, (said, end): (Said, Option<End>), out: &mut Frames) {
        if !said.is_empty() {
            self.writer.part(said, out);
        }
        if let Some(end) = end {
            self.writer.end(&end, out);
        }
    }

    /// Waits for something to write; `None` when a client that can be told should hear that the
    /// server still works on it.
    async fn next_in_time(
        &mut self,
        framing: Framing,
    ) -> Option<Result<(Said, Option<End>), ApiError>> {
        let next = async {
            loop {
                match self.next().await {
                    Ok((said, None)) if said.is_empty() => {}
                    next => return next,
                }
            }
        };
        match framing {
            Framing::Lines => Some(next.await),
            Framing::Events => tokio::time::timeout(PING_EVERY, next).await.ok(),
        }
    }

    /// Waits for what is said next. Nothing is lost when the wait is given up.
    async fn next(&mut self) -> Result<(Said, Option<End>), ApiError> {
        let mut next = self.voice.next().await;
        self.ended |= !matches!(next, Ok((_, None)));
        if let Ok((said, _)) = &mut next {
            said.pieces.retain(|piece| {
                let is_call = matches!(piece, Piece::ToolCall(_));
                let is_surplus = is_call && self.called && !self.parallel_calls;
                self.called |= is_call;
                !is_surplus
            });
        }
        if let Ok((_, Some(end))) = &mut next {
            end.metrics.total_duration = clock::nanos(self.arrived.elapsed());
        }
        next
    }
}

/// A comment, which readers of server-sent events skip.
const PING: &str = ": ping\n\n";
const PING_EVERY: Duration = Duration::from_secs(15);
