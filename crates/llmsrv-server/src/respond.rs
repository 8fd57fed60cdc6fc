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
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use llmsrv_api::options::is_legacy;
use llmsrv_chat::Piece;
use serde::Serialize;

use crate::{
    app::App,
    clock,
    dialect::{Delta, End, Framing, ResponseEncoder, StreamBuffer, native},
    error::ApiError,
    generator::{self, Generator, Outcome},
    job::Job,
    rate::Client,
};

/// Answers a request for text.
pub(crate) async fn answer(
    app: App,
    mut job: Job,
    mut writer: Box<dyn ResponseEncoder>,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let (streams, parallel_calls) = (job.stream, job.parallel_calls);
    let rendered = native::Rendered::of(&job);
    let n_best = job.n_best;
    // What is the best of several is told by their probabilities.
    let is_choosy = n_best < job.n_answers;
    let adds_logprobs = is_choosy && job.logprobs.is_none();
    if adds_logprobs {
        job.logprobs = Some(0);
    }
    let mut unheeded = without_effect(&job.without_effect);
    let n_answers = job.n_answers;
    let later = (1..n_answers).map(|idx| (idx, job.answer(idx))).collect();
    let generator = match generator::begin(&app, job).await? {
        Outcome::Generator(generator) => generator,
        Outcome::WithoutText(reason) => {
            let end = End::without_text(reason);
            return Ok(json(&writer.whole(Delta::default(), &end)));
        }
        Outcome::Prompt(text, n_images) => return Ok(json(&rendered.write(&text, n_images))),
    };
    unheeded.extend_from_slice(generator.unenforced());
    let warnings = warnings(&unheeded);
    let response_stream = ResponseStream {
        app,
        client: Client::of_this_request(),
        prompt_tokens: generator.prompt_tokens(),
        generators: FuturesUnordered::from_iter([listen(0, generator).boxed()]),
        later,
        n_open: n_answers,
        total: End::default(),
        writer,
        arrived,
        parallel_calls,
        called: vec![false; n_answers],
        ended: false,
    };
    let mut response = if streams {
        response_stream.stream().await?
    } else {
        response_stream.whole(n_best, adds_logprobs).await?
    };
    for warning in warnings {
        response.headers_mut().append(header::WARNING, warning);
    }
    Ok(response)
}

/// Options that change nothing: one sentence each.
fn without_effect(names: &[String]) -> Vec<String> {
    let sentence = |name: &String| {
        if is_legacy(name) {
            format!("the option \"{name}\" has no effect any more")
        } else {
            format!("there is no option \"{name}\"")
        }
    };
    names.iter().map(sentence).collect()
}

/// Values of the header `Warning` (RFC 7234, section 5.5) for texts: `299 llmsrv "text"`.
fn warnings(texts: &[String]) -> Vec<HeaderValue> {
    let value = |text: &String| {
        let mut quoted = String::new();
        for c in text.chars().take(MAX_WARNING_CHARS) {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                ' '..='~' => quoted.push(c),
                c => quoted.extend(c.escape_unicode()),
            }
        }
        HeaderValue::try_from(format!("299 llmsrv \"{quoted}\"")).ok()
    };
    texts.iter().take(MAX_WARNINGS).filter_map(value).collect()
}

/// Waits for the next delta of a generator. Nothing is lost when the wait is given up and taken up again.
async fn listen(answer: usize, mut generator: Generator) -> NextDelta {
    let next = generator.next().await;
    NextDelta {
        answer,
        generator: Some(generator),
        next,
    }
}

/// Begins a further answer, and waits for what it says first.
async fn begin(app: App, client: Client, answer: usize, job: Job) -> NextDelta {
    let begun = client.answered(generator::begin(&app, job)).await;
    let error = match begun {
        Ok(Outcome::Generator(generator)) => return listen(answer, generator).await,
        Ok(Outcome::WithoutText(_) | Outcome::Prompt(..)) => {
            ApiError::internal("an answer came to nothing")
        }
        Err(error) => error,
    };
    NextDelta {
        answer,
        generator: None,
        next: Err(error),
    }
}

/// What was heard of one answer.
struct NextDelta {
    answer: usize,
    generator: Option<Generator>,
    next: Result<(Delta, Option<End>), ApiError>,
}

/// How probable the model found what it said, by token: what the best of several answers has most of.
/// Least of all has one of which no token is known.
fn mean_logprob(said: &Delta) -> f32 {
    if said.tokens.is_empty() {
        return f32::NEG_INFINITY;
    }
    let sum: f32 = said.tokens.iter().map(|token| token.logprob).sum();
    sum / said.tokens.len() as f32
}

/// Makes a JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(json) => with_type(Body::from(json), "application/json; charset=utf-8"),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            ApiError::internal("internal error").into_response()
        }
    }
}

fn with_type(body: Body, content_type: &'static str) -> Response {
    let mut response = (StatusCode::OK, body).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// One answer on its way, or several to the same prompt.
struct ResponseStream {
    app: App,
    client: Client,
    /// Tokens of the prompt, if they are known.
    prompt_tokens: usize,
    generators: FuturesUnordered<BoxFuture<'static, NextDelta>>,
    /// Further answers. They begin when the first one has: what was computed for the prompt is found
    /// in the prefix cache then.
    later: Vec<(usize, Job)>,
    /// Answers that have not ended.
    n_open: usize,
    /// The end of all.
    total: End,
    writer: Box<dyn ResponseEncoder>,
    arrived: Instant,
    /// More than one call may be in the answer.
    parallel_calls: bool,
    /// For each answer, whether it has a call.
    called: Vec<bool>,
    ended: bool,
}

impl ResponseStream {
    /// Answers bit by bit. An error before the first bit is an answer of its own.
    async fn stream(mut self) -> Result<Response, ApiError> {
        let framing = self.writer.framing();
        let next = self.next_in_time(framing).await.transpose()?;
        let mut first = StreamBuffer::default();
        self.writer.begin(self.prompt_tokens, &mut first);
        match next {
            Some(next) => self.write(next, &mut first),
            None => self.writer.ping(&mut first),
        }
        let frames = stream::unfold(
            (self, Some(first)),
            move |(mut response_stream, first)| async move {
                let frames = match first {
                    Some(frames) => frames,
                    None => response_stream.next_frames(framing).await?,
                };
                Some((
                    Ok::<_, Infallible>(Bytes::from(frames.0)),
                    (response_stream, None),
                ))
            },
        );
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

    /// Answers with everything in one object: the `n_best` most probable answers, all of them if there
    /// are no more.
    async fn whole(mut self, n_best: usize, hides_logprobs: bool) -> Result<Response, ApiError> {
        let mut answers = vec![(Delta::default(), End::default()); self.called.len()];
        while self.n_open > 0 {
            let (said, end) = self.next().await?;
            let (all, last) = &mut answers[said.answer];
            all.answer = said.answer;
            all.pieces.extend(said.pieces);
            all.tokens.extend(said.tokens);
            if let Some(end) = end {
                *last = end;
            }
        }
        if n_best < answers.len() {
            answers.sort_by(|(a, _), (b, _)| mean_logprob(b).total_cmp(&mean_logprob(a)));
            answers.truncate(n_best);
            for (idx, (said, _)) in answers.iter_mut().enumerate() {
                said.answer = idx;
            }
        }
        if hides_logprobs {
            for (said, _) in &mut answers {
                said.tokens.clear();
            }
        }
        Ok(json(&self.writer.wholes(answers, &self.total)))
    }

    /// Waits for the next bytes; `None` after the last.
    async fn next_frames(&mut self, framing: Framing) -> Option<StreamBuffer> {
        if self.ended {
            return None;
        }
        let mut frames = StreamBuffer::default();
        match self.next_in_time(framing).await {
            Some(Ok(next)) => self.write(next, &mut frames),
            Some(Err(error)) => self.writer.error(&error, &mut frames),
            None => self.writer.ping(&mut frames),
        }
        Some(frames)
    }

    fn write(&mut self, (said, end): (Delta, Option<End>), out: &mut StreamBuffer) {
        let answer = said.answer;
        if !said.is_empty() {
            self.writer.part(said, out);
        }
        if let Some(end) = end {
            self.writer.answer_end(answer, &end, out);
            if self.ended {
                self.writer.end(&self.total, out);
            }
        }
    }

    /// Waits for something to write; `None` when a client that can be told should hear that the
    /// server still works on it.
    async fn next_in_time(
        &mut self,
        framing: Framing,
    ) -> Option<Result<(Delta, Option<End>), ApiError>> {
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

    /// Waits for what is said next, in any of the answers. Nothing is lost when the wait is given up.
    async fn next(&mut self) -> Result<(Delta, Option<End>), ApiError> {
        let heard = self.generators.next().await;
        let NextDelta {
            answer,
            generator,
            next,
        } = heard.ok_or_else(|| ApiError::internal("the answer has ended"))?;
        let (mut said, mut end) = next.inspect_err(|_| self.ended = true)?;
        for (idx, job) in self.later.drain(..) {
            let begun = begin(self.app.clone(), self.client.clone(), idx, job);
            self.generators.push(begun.boxed());
        }
        said.answer = answer;
        said.pieces.retain(|piece| {
            let is_call = matches!(piece, Piece::ToolCall(_));
            let is_surplus = is_call && self.called[answer] && !self.parallel_calls;
            self.called[answer] |= is_call;
            !is_surplus
        });
        match (&mut end, generator) {
            (Some(end), _) => {
                end.metrics.total_duration = clock::nanos(self.arrived.elapsed());
                self.n_open -= 1;
                self.ended = self.n_open == 0;
                self.add(answer, end);
            }
            (None, Some(generator)) => self.generators.push(listen(answer, generator).boxed()),
            (None, None) => {}
        }
        Ok((said, end))
    }

    /// Adds the end of one answer to that of all: they have one prompt, and each its own tokens.
    fn add(&mut self, answer: usize, end: &End) {
        let generated = self.total.metrics.eval_count + end.metrics.eval_count;
        if answer == 0 {
            self.total = end.clone();
        }
        self.total.metrics.eval_count = generated;
    }
}

/// Clients bound the size of a header, and a schema may have a thousand keywords.
const MAX_WARNINGS: usize = 8;
const MAX_WARNING_CHARS: usize = 300;
const PING_EVERY: Duration = Duration::from_secs(15);
