//! Making models.

use axum::{body::Body, extract::State, response::Response};

use crate::{app::App, create::Order, error::ApiError, guard::read, progress};

pub(super) async fn create(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, CREATE_BODY_BYTES).await?;
    app.log_body("/api/create", &body);
    let (order, stream) = Order::parse(&body)?;
    progress::answer(stream, move |progress| order.make(&app.store, progress)).await
}

/// Room for templates, licenses and messages with images; weights come as blobs.
const CREATE_BODY_BYTES: usize = 16 << 20;
