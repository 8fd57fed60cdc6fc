//! From the engine's events to the answer's bytes, as a stream of lines or as one object.

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
use http::{HeaderValue, StatusCode, header};
use llmsrv_api::native::Metrics;
use llmsrv_chat::{OutputSplitter, Piece};
use llmsrv_engine::{Event, Finish, FinishReason, Generation, TokenInfo};
use serde_json::Value;

use crate::{
    app::App,
    clock,
    dialect::native::{End, Writer},
    error::ApiError,
    job::{Input, Job},
    library, prompt,
};

/// Answers a request for text.
pub(crate) async fn answer(app: App, job: Job) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let writer = Writer {
        model: job.model.clone(),
        chat: matches!(job.input, Input::Chat { .. }),
    };
    let stored = app.manager.find(&job.model).await?;
    if job.is_unload() {
        app.manager.unload(&stored.entry.digest.hex());
        return Ok(json(&writer.object(
            Vec::new(),
            Vec::new(),
            Some(End {
                reason: "unload",
                ..End::default()
            }),
        )));
    }
    let lease = app.manager.lease(stored, job.keep_alive).await?;
    let load_duration = arrived.elapsed();
    if job.is_empty() {
        if lease.model.stored.entry.config.embeds_only {
            return Err(ApiError::does_not_support(&job.model, job.verb()));
        }
        return Ok(json(&writer.object(
            Vec::new(),
            Vec::new(),
            Some(End {
                reason: "load",
                ..End::default()
            }),
        )));
    }
    let job = Arc::new(job);
    let (model, settings) = (lease.model.clone(), app.settings.clone());
    if job.render_only {
        let rendered = {
            let job = job.clone();
            library::blocking(move || prompt::rendered(&job, &model, &settings)).await??
        };
        return Ok(json(&writer.rendered(&rendered.0, rendered.1)));
    }
    let started = {
        let job = job.clone();
        library::blocking(move || prompt::start(&job, &model, &settings)).await??
    };
    let mut speech = Speech {
        generation: started.generation,
        splitter: started.splitter,
        writer,
        job: job.clone(),
        arrived,
        load_duration,
        n_truncated: started.n_truncated,
        ended: false,
        held: None,
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
struct Speech<L> {
    generation: Generation,
    splitter: Option<OutputSplitter>,
    writer: Writer,
    job: Arc<Job>,
    arrived: Instant,
    load_duration: Duration,
    n_truncated: usize,
    ended: bool,
    /// An object that was made before the answer began.
    held: Option<Value>,
    _lease: L,
}

/// What one event of the engine gives.
struct Part {
    pieces: Vec<Piece>,
    tokens: Vec<TokenInfo>,
    end: Option<Box<Finish>>,
}

impl<L: Send + 'static> Speech<L> {
    /// Answers line by line. An error before the first line is an answer of its own.
    async fn stream(mut self) -> Result<Response, ApiError> {
        self.held = self.next_object().await?;
        let lines = stream::unfold(self, |mut speech| async move {
            let object = match speech.held.take() {
                Some(object) => object,
                None => match speech.next_object().await {
                    Ok(Some(object)) => object,
                    Ok(None) => return None,
                    Err(error) => error.line(),
                },
            };
            Some((
                Ok::<_, Infallible>(Bytes::from(format!("{object}\n"))),
                speech,
            ))
        });
        Ok(with_type(Body::from_stream(lines), "application/x-ndjson"))
    }

    /// Answers with everything in one object.
    async fn whole(&mut self) -> Result<Response, ApiError> {
        let (mut pieces, mut tokens) = (Vec::new(), Vec::new());
        while let Some(part) = self.next_part().await? {
            pieces.extend(part.pieces);
            tokens.extend(part.tokens);
            if let Some(finish) = part.end {
                let end = self.end(*finish);
                return Ok(json(&self.writer.object(pieces, tokens, Some(end))));
            }
        }
        Err(ApiError::internal("the model stopped working; try again"))
    }

    /// Waits for the next object that has something to say.
    async fn next_object(&mut self) -> Result<Option<Value>, ApiError> {
        while let Some(part) = self.next_part().await? {
            let Some(finish) = part.end else {
                if part.pieces.is_empty() && part.tokens.is_empty() {
                    continue;
                }
                return Ok(Some(self.writer.object(part.pieces, part.tokens, None)));
            };
            // Calls come before the end, each text in one place.
            let end = self.end(*finish);
            let last = self.writer.object(Vec::new(), Vec::new(), Some(end));
            if part.pieces.is_empty() && part.tokens.is_empty() {
                return Ok(Some(last));
            }
            self.held = Some(last);
            return Ok(Some(self.writer.object(part.pieces, part.tokens, None)));
        }
        Ok(None)
    }

    async fn next_part(&mut self) -> Result<Option<Part>, ApiError> {
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
                Ok(Some(Part {
                    pieces,
                    tokens,
                    end: None,
                }))
            }
            Some(Event::Done(finish)) => {
                self.ended = true;
                let pieces = self
                    .splitter
                    .as_mut()
                    .map(OutputSplitter::finish)
                    .unwrap_or_default();
                Ok(Some(Part {
                    pieces,
                    tokens: Vec::new(),
                    end: Some(finish),
                }))
            }
            Some(Event::Error(text)) => {
                self.ended = true;
                Err(ApiError::internal(text))
            }
            Some(_) => Ok(Some(Part {
                pieces: Vec::new(),
                tokens: Vec::new(),
                end: None,
            })),
            None => {
                self.ended = true;
                Err(ApiError::internal("the model stopped working; try again"))
            }
        }
    }

    fn end(&self, finish: Finish) -> End {
        let raw = matches!(&self.job.input, Input::Generate(generate) if generate.raw);
        End {
            reason: match finish.reason {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
            },
            context: if raw || self.writer.chat {
                Vec::new()
            } else {
                finish.context
            },
            metrics: Metrics {
                total_duration: clock::nanos(self.arrived.elapsed()),
                load_duration: clock::nanos(self.load_duration),
                prompt_eval_count: finish.prompt_tokens as u64,
                prompt_eval_duration: clock::nanos(finish.prompt_duration),
                eval_count: finish.eval_tokens as u64,
                eval_duration: clock::nanos(finish.eval_duration),
                prompt_truncated: self.n_truncated as u64,
            },
        }
    }
}
