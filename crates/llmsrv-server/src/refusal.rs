//! A refusal of the guards, and when to try again.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::error::ApiError;

/// Why a request is not served.
pub(crate) struct Refusal {
    error: ApiError,
    retry_after: Option<u64>,
}

impl Refusal {
    /// The client has used up what it may.
    pub(crate) fn too_many(wait: Duration) -> Refusal {
        let seconds = wait.as_secs() + 1;
        let text = format!("too many requests; try again in {seconds} s");
        Refusal {
            error: ApiError::refused(StatusCode::TOO_MANY_REQUESTS, text),
            retry_after: Some(seconds),
        }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        Refusal {
            error,
            retry_after: None,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.error.into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
