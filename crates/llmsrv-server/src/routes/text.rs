//! Generating text, in every dialect.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Uri},
    response::Response,
};
use llmsrv_api::members::Member;
use llmsrv_engine::GrammarSpec;

use crate::{
    app::App,
    dialect::{
        ResponseEncoder,
        anthropic::{self, TokenCount},
        native::{self, NativeEncoder},
        openai, responses,
    },
    error::ApiError,
    guard::{TEXT_BODY_BYTES, read},
    job::Job,
    prompt, respond,
};

type Answer = Result<Response, ApiError>;
/// What was asked for, and how.
type To = (Uri, HeaderMap);

pub(super) async fn generate(State(app): State<App>, to: To, body: Body) -> Answer {
    let make = |request| with_native(native::generate(request)?);
    answer(app, to, body, make).await
}

pub(super) async fn chat(State(app): State<App>, to: To, body: Body) -> Answer {
    let make = |request| with_native(native::chat(request)?);
    answer(app, to, body, make).await
}

pub(super) async fn openai_chat(State(app): State<App>, to: To, body: Body) -> Answer {
    answer(app, to, body, |request| boxed(openai::chat(request)?)).await
}

pub(super) async fn completions(State(app): State<App>, to: To, body: Body) -> Answer {
    answer(app, to, body, |request| boxed(openai::completion(request)?)).await
}

pub(super) async fn responses(State(app): State<App>, to: To, body: Body) -> Answer {
    let kept = app.responses.clone();
    let make = move |request| boxed(responses::response(request, &kept)?);
    answer(app, to, body, make).await
}

pub(super) async fn messages(State(app): State<App>, to: To, body: Body) -> Answer {
    answer(app, to, body, |request| {
        boxed(anthropic::messages(request)?)
    })
    .await
}

/// Counts the tokens that a conversation has as a prompt.
pub(super) async fn count_tokens(State(app): State<App>, body: Body) -> Answer {
    let body = read(body, TEXT_BODY_BYTES).await?;
    let (job, _share) = body.parse(anthropic::count).await?;
    let stored = app.manager.find(&job.model).await?;
    let lease = app.manager.lease(stored, None, &job.options).await?;
    let (model, settings) = (lease.model.clone(), app.settings.clone());
    let count = prompt::rendering(move |stop| prompt::count(&job, &model, &settings, stop)).await?;
    Ok(respond::json(&TokenCount {
        input_tokens: count as u64,
    }))
}

/// Reads a request, parses it and answers it.
async fn answer<R: Member>(
    app: App,
    (uri, headers): To,
    body: Body,
    parse: impl FnOnce(R) -> Result<(Job, Box<dyn ResponseEncoder>), ApiError> + Send + 'static,
) -> Answer {
    let body = read(body, TEXT_BODY_BYTES).await?;
    app.log_body(uri.path(), &body);
    let ((mut job, writer), _share) = body.parse(parse).await?;
    if prefers_strict(&headers) {
        job.grammar = job.grammar.map(strict);
    }
    respond::answer(app, job, writer).await
}

/// Whether a client wants what it asks for or nothing (RFC 7240): `Prefer: handling=strict`.
fn prefers_strict(headers: &HeaderMap) -> bool {
    let values = headers.get_all("prefer").iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([',', ';']))
        .any(|preference| {
            let preference: String = preference.split_whitespace().collect();
            preference.eq_ignore_ascii_case("handling=strict")
        })
}

fn strict(format: GrammarSpec) -> GrammarSpec {
    match format {
        GrammarSpec::JsonSchema(schema) => GrammarSpec::StrictJsonSchema(schema),
        other => other,
    }
}

fn with_native(job: Job) -> Result<(Job, Box<dyn ResponseEncoder>), ApiError> {
    let writer = NativeEncoder::new(&job);
    boxed((job, writer))
}

#[expect(clippy::unnecessary_wraps, reason = "it ends functions that can fail")]
fn boxed(
    parsed: (Job, impl ResponseEncoder + 'static),
) -> Result<(Job, Box<dyn ResponseEncoder>), ApiError> {
    let (job, writer) = parsed;
    Ok((job, Box::new(writer)))
}
