//! Models coming in and going out.

use axum::{body::Body, extract::State, response::Response};
use http::StatusCode;
use llmsrv_api::request;
use llmsrv_registry::Error;
use llmsrv_store::ModelName;
use serde_json::json;

use crate::{
    app::App,
    dialect::native::Named,
    error::ApiError,
    guard::{BODY_BYTES, read},
    progress, respond, tasks,
};

/// `GET /api/catalogue`: models that can be pulled.
pub(super) async fn catalogue(State(app): State<App>) -> Result<Response, ApiError> {
    let Some(source) = app.settings.catalogue.clone() else {
        let why = "this server has no catalogue of models";
        return Err(ApiError::refused(StatusCode::NOT_FOUND, why));
    };
    let list = tasks::blocking(move || source.list()).await?;
    Ok(respond::json(&json!(list)))
}

pub(super) async fn pull(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let order = Order::read(&app, body).await?;
    progress::answer(order.streams, |progress| async move {
        let report = |step| progress.tell(step);
        let pulled = app
            .registry
            .pull(&order.name, order.insecure, &report)
            .await;
        pulled.map_err(|error| order.failed("pulled", error))
    })
    .await
}

pub(super) async fn push(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let order = Order::read(&app, body).await?;
    progress::answer(order.streams, |progress| async move {
        let report = |step| progress.tell(step);
        let pushed = app
            .registry
            .push(&order.name, order.insecure, &report)
            .await;
        pushed.map_err(|error| order.failed("pushed", error))
    })
    .await
}

request! {
    pub(super) struct TransferRequest with named: Named {
        /// Allow a certificate that cannot be verified, or none on this machine's own network.
        insecure: Option<bool>,
        stream: Option<bool>,
    }
}

/// What both requests say. User name and password are for very old clients and mean nothing.
struct Order {
    name: ModelName,
    insecure: bool,
    streams: bool,
}

impl Order {
    /// Reads a request and refuses what can be refused before the first byte of an answer.
    async fn read(app: &App, body: Body) -> Result<Order, ApiError> {
        let body = read(body, BODY_BYTES).await?;
        let (request, _share) = body.parse(Ok::<TransferRequest, _>).await?;
        let sent = request.named.required()?;
        let order = Order {
            name: sent.parse().map_err(|_| ApiError::invalid_model_name())?,
            insecure: request.insecure.unwrap_or(false),
            streams: request.stream.unwrap_or(true),
        };
        app.registry
            .check(&order.name)
            .map_err(|error| ApiError::forbidden(error.to_string()))?;
        Ok(order)
    }

    fn failed(&self, what: &str, error: Error) -> ApiError {
        tracing::warn!(model = %self.name, %error, "a model is not {what}");
        ApiError::internal(error.to_string())
    }
}
