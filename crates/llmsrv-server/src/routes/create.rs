//! Making models.

use axum::{body::Body, extract::State, response::Response};
use llmsrv_registry::Error;
use llmsrv_store::ModelName;

use crate::{app::App, create::Order, error::ApiError, guard::read, progress};

pub(super) async fn create(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, CREATE_BODY_BYTES).await?;
    app.log_body("/api/create", &body);
    let ((order, stream), _share) = body.parse(Order::of).await?;
    if let Some(base) = order.missing_base(&app.store)? {
        let checked = app.registry.check(base);
        checked.map_err(|error| ApiError::forbidden(error.to_string()))?;
    }
    progress::answer(stream, |mut progress| async move {
        if let Some(base) = order.missing_base(&app.store)? {
            let report = |step| progress.tell(step);
            let pulled = app.registry.pull(base, false, &report).await;
            pulled.map_err(|error| base_not_pulled(base, &error))?;
        }
        progress::blocking(move || order.make(&app.store, &mut progress)).await
    })
    .await
}

fn base_not_pulled(base: &ModelName, error: &Error) -> ApiError {
    tracing::warn!(model = %base, %error, "the base of a new model is not pulled");
    ApiError::internal(format!(
        "model '{base}' is not here and cannot be pulled: {error}"
    ))
}

/// Room for templates, licenses and messages with images; weights come as blobs.
const CREATE_BODY_BYTES: usize = 16 << 20;
