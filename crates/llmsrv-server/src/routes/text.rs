//! Generating text.

use axum::{body::Body, extract::State, response::Response};

use crate::{
    app::App,
    dialect::native,
    error::ApiError,
    guard::{TEXT_BODY_BYTES, read},
    respond,
};

pub(super) async fn generate(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, TEXT_BODY_BYTES).await?;
    app.log_body("/api/generate", &body);
    respond::answer(app, native::parse_generate(&body)?).await
}

pub(super) async fn chat(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, TEXT_BODY_BYTES).await?;
    app.log_body("/api/chat", &body);
    respond::answer(app, native::parse_chat(&body)?).await
}
