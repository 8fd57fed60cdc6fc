//! What clients of the reference server ask of its cloud. There is none here, and they are told so
//! in the words they know.

use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{error::ApiError, respond};

/// Nobody is signed in.
pub(super) async fn me() -> ApiError {
    ApiError::unauthorized()
}

pub(super) async fn no_cloud() -> ApiError {
    ApiError::forbidden("there is no cloud: this server works on its own")
}

pub(super) async fn recommendations() -> Response {
    let recommendations = Vec::new();
    respond::json(&Recommendations { recommendations })
}

#[derive(Serialize, ToSchema)]
pub(super) struct Recommendations {
    #[schema(value_type = Vec<Object>)]
    recommendations: Vec<Value>,
}
