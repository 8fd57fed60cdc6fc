//! Generating text, in every dialect.

use axum::{body::Body, extract::State, http::Uri, response::Response};
use serde_json::json;

use crate::{
    app::App,
    dialect::{
        Writer,
        anthropic::{parse_count, parse_messages},
        native::{self, NativeWriter},
        openai::{parse_chat, parse_completion},
        responses::parse_response,
    },
    error::ApiError,
    guard::{TEXT_BODY_BYTES, read},
    job::Job,
    library, prompt, respond,
};

type Answer = Result<Response, ApiError>;

pub(super) async fn generate(State(app): State<App>, uri: Uri, body: Body) -> Answer {
    answer(app, uri, body, |body| {
        with_native(native::parse_generate(body)?)
    })
    .await
}

pub(super) async fn chat(State(app): State<App>, uri: Uri, body: Body) -> Answer {
    answer(app, uri, body, |body| {
        with_native(native::parse_chat(body)?)
    })
    .await
}

pub(super) async fn openai_chat(State(app): State<App>, uri: Uri, body: Body) -> Answer {
    answer(app, uri, body, |body| boxed(parse_chat(body)?)).await
}

pub(super) async fn completions(State(app): State<App>, uri: Uri, body: Body) -> Answer {
    answer(app, uri, body, |body| boxed(parse_completion(body)?)).await
}

pub(super) async fn responses(State(app): State<App>, uri: Uri, body: Body) -> Answer {
    answer(app, uri, body, |body| boxed(parse_response(body)?)).await
}

pub(super) async fn messages(State(app): State<App>, uri: Uri, body: Body) -> Answer {
    answer(app, uri, body, |body| boxed(parse_messages(body)?)).await
}

/// Counts the tokens that a conversation has as a prompt.
pub(super) async fn count_tokens(State(app): State<App>, body: Body) -> Answer {
    let job = parse_count(&read(body, TEXT_BODY_BYTES).await?)?;
    let stored = app.manager.find(&job.model).await?;
    let lease = app.manager.lease(stored, None).await?;
    let (model, settings) = (lease.model.clone(), app.settings.clone());
    let count = library::blocking(move || prompt::count(&job, &model, &settings)).await??;
    Ok(respond::json(&json!({ "input_tokens": count })))
}

/// Reads a request, parses it and answers it.
async fn answer(
    app: App,
    uri: Uri,
    body: Body,
    parse: impl FnOnce(&[u8]) -> Result<(Job, Box<dyn Writer>), ApiError>,
) -> Answer {
    let body = read(body, TEXT_BODY_BYTES).await?;
    app.log_body(uri.path(), &body);
    let (job, writer) = parse(&body)?;
    respond::answer(app, job, writer).await
}

fn with_native(job: Job) -> Result<(Job, Box<dyn Writer>), ApiError> {
    let writer = NativeWriter::new(&job);
    boxed((job, writer))
}

#[expect(clippy::unnecessary_wraps, reason = "it ends functions that can fail")]
fn boxed(parsed: (Job, impl Writer + 'static)) -> Result<(Job, Box<dyn Writer>), ApiError> {
    let (job, writer) = parsed;
    Ok((job, Box::new(writer)))
}
