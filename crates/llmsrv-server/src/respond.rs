//! From the engine's events to the answer's bytes, as a stream or as one object.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use llmsrv_api::native::Metrics;
use llmsrv_chat::{OutputSplitter, Piece};
use llmsrv_engine::{Event, Finish, FinishReason, Generation};
use serde_json::Value;

use crate::{
    app::App,
    clock,
    dialect::{End, Frames, Framing, Reason, Said, Writer, native},
    error::ApiError,
    job::Job,
    library,
    manager::Lease,
    prompt,
};

/// Answers a request for text.
pub(crate) async fn answer(
    app: App,
    job: Job,
    mut writer: Box<dyn Writer>,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let stored = app.manager.find(&job.model).await?;
    let mut without_text = |reason| {
        let end = End::without_text(reason);
        Ok(json(&writer.whole(Said::default(), &end)))
    };
    if job.is_unload() {
        app.manager.unload(&stored.entry.digest.hex());
        return without_text(Reason::Unload);
    }
    let lease = app.manager.lease(stored, job.keep_alive).await?;
    let load_duration = arrived.elapsed();
    if job.is_empty() {
        if lease.model.stored.entry.config.embeds_only {
            return Err(ApiError::does_not_support(&job.model, job.verb()));
        }
        return without_text(Reason::Load);
    }
    let job = Arc::new(job);
    let (model, settings) = (lease.model.clone(), app.settings.clone());
    if job.render_only {
        let rendered = {
            let job = job.clone();
            library::blocking(move || prompt::rendered(&job, &model, &settings)).await??
        };
        return Ok(json(&native::rendered(&job, &rendered.0, rendered.1)));
    }
    let started = {
        let job = job.clone();
        library::blocking(move || prompt::start(&job, &model, &settings)).await??
    };
    let speech = Speech {
        generation: started.generation,
        splitter: started.splitter,
        writer,
        arrived,
        load_duration,
        prompt_tokens: started.prompt_tokens,
        n_truncated: started.n_truncated,
        ended: false,
        _lease: lease,
    };
    if job.stream {
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

/// One answer on its way. Dropping it, as when the client goes away, ends the generation.
struct Speech {
    generation: Generation,
    splitter: Option<OutputSplitter>,
    writer: Box<dyn Writer>,
    arrived: Instant,
    load_duration: Duration,
    prompt_tokens: usize,
    n_truncated: usize,
    ended: bool,
    _lease: Lease,
}

impl Speech {
    /// Answers bit by bit. An error before the first bit is an answer of its own.
    async fn stream(mut self) -> Result<Response, ApiError> {
        let framing = self.writer.framing();
        let mut first = Frames::default();
        match self.next_in_time(framing).await {
            Some(said) => {
                let said = said?;
                self.writer.begin(self.prompt_tokens, &mut first);
                self.write(said, &mut first);
            }
            None => {
                self.writer.begin(self.prompt_tokens, &mut first);
                first.raw(PING);
            }
        }
        let frames = stream::unfold((self, Some(first)), move |(mut speech, first)| async move {
            let frames = match first {
                Some(frames) => frames,
                None => speech.next_frames(framing).await?,
            };
            Some((Ok::<_, Infallible>(Bytes::from(frames.0)), (speech, None)))
        });
        let mut response = with_type(
            Body::from_stream(frames),
            match framing {
                Framing::Lines => "application/x-ndjson",
                Framing::Events => "text/event-stream",
            },
        );
        if framing == Framing::Events {
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // Some proxies hold streams back unless they are told not to.
            headers.insert(
                HeaderName::from_static("x-accel-buffering"),
                HeaderValue::from_static("no"),
            );
        }
        Ok(response)
    }

    /// Answers with everything in one object.
    async fn whole(mut self) -> Result<Response, ApiError> {
        let mut all = Said::default();
        while let Some((said, end)) = self.next().await? {
            all.pieces.extend(said.pieces);
            all.tokens.extend(said.tokens);
            if let Some(end) = end {
                return Ok(json(&self.writer.whole(all, &end)));
            }
        }
        Err(ApiError::internal("the model stopped working; try again"))
    }

    /// Waits for the next bytes; `None` after the last.
    async fn next_frames(&mut self, framing: Framing) -> Option<Frames> {
        let mut frames = Frames::default();
        if self.ended {
            return None;
        }
        match self.next_in_time(framing).await {
            Some(Ok(said)) => self.write(said, &mut frames),
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
                    Ok(Some((said, None))) if said.is_empty() => {}
                    Ok(Some(next)) => return Ok(next),
                    Ok(None) => {
                        return Err(ApiError::internal("the model stopped working; try again"));
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match framing {
            Framing::Lines => Some(next.await),
            Framing::Events => tokio::time::timeout(PING_EVERY, next).await.ok(),
        }
    }

    /// Waits for what the model says next; `None` after the end. Nothing is lost when the wait is
    /// given up.
    async fn next(&mut self) -> Result<Option<(Said, Option<End>)>, ApiError> {
        if self.ended {
            return Ok(None);
        }
        match self.generation.next().await {
            Some(Event::Text { text, tokens }) => {
                let pieces = match &mut self.splitter {
                    Some(splitter) => splitter.push(&text),
                    None if text.is_empty() => Vec::new(),
                    None => vec![Piece::Content(text)],
                };
                Ok(Some((Said { pieces, tokens }, None)))
            }
            Some(Event::Done(finish)) => {
                self.ended = true;
                let splitter = self.splitter.as_mut();
                let said = Said {
                    pieces: splitter.map(OutputSplitter::finish).unwrap_or_default(),
                    tokens: Vec::new(),
                };
                Ok(Some((said, Some(self.end(*finish)))))
            }
            Some(Event::Error(text)) => {
                self.ended = true;
                Err(ApiError::internal(text))
            }
            Some(_) => Ok(Some((Said::default(), None))),
            None => {
                self.ended = true;
                Err(ApiError::internal("the model stopped working; try again"))
            }
        }
    }

    fn end(&self, finish: Finish) -> End {
        End {
            reason: match finish.reason {
                FinishReason::Stop => Reason::Stop,
                FinishReason::Length => Reason::Length,
            },
            stop_text: finish.stop_text,
            context: finish.context,
            metrics: Metrics {
                total_duration: clock::nanos(self.arrived.elapsed()),
                load_duration: clock::nanos(self.load_duration),
                prompt_eval_count: finish.prompt_tokens as u64,
                prompt_eval_duration: clock::nanos(finish.prompt_duration),
                eval_count: finish.eval_tokens as u64,
                eval_duration: clock::nanos(finish.eval_duration),
                prompt_truncated: self.n_truncated as u64,
            },
            cached_tokens: finish.cached_tokens as u64,
        }
    }
}

/// A comment, which readers of server-sent events skip.
const PING: &str = ": ping\n\n";
const PING_EVERY: Duration = Duration::from_secs(15);
