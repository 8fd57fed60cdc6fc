//! The table of statuses and texts. Clients match on these texts: they are part of the interface.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use llmsrv_api::{lenient::BodyError, options::OptionError};
use llmsrv_engine::PlacedBytes;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::memory::MemoryEstimate;

/// A refusal with its status and text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ApiError {
    status: StatusCode,
    text: String,
    /// Tokens of a prompt that is too long, and of the context.
    prompt: Option<(usize, usize)>,
    /// Seconds after which another try makes sense, where the service is not available.
    retry_after: u32,
}

/// Returns the error of a request that is wrong in itself; takes what `format!` takes.
macro_rules! refuse {
    ($($text:tt)+) => {
        return Err($crate::error::ApiError::bad_request(format_args!($($text)+).to_string()))
    };
}
pub(crate) use refuse;

impl ApiError {
    fn new(status: StatusCode, text: impl Into<String>) -> ApiError {
        ApiError {
            status,
            text: text.into(),
            prompt: None,
            retry_after: 1,
        }
    }

    /// The request is wrong in itself.
    pub fn bad_request(text: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, text)
    }

    /// What is asked for is not there.
    pub fn not_found(text: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, text)
    }

    /// The request is not allowed here.
    pub(crate) fn forbidden(text: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, text)
    }

    /// The server failed. The text must not name files of the machine.
    pub fn internal(text: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// It can be done, but not now.
    fn unavailable(text: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// A refusal of the guards, whose texts stand where they refuse.
    pub(crate) fn refused(status: StatusCode, text: impl Into<String>) -> ApiError {
        ApiError::new(status, text)
    }

    pub(crate) fn model_required() -> ApiError {
        ApiError::bad_request("model is required")
    }

    pub(crate) fn invalid_model_name() -> ApiError {
        ApiError::bad_request("invalid model name")
    }

    /// For text generation, the name as the client sent it.
    pub(crate) fn model_not_found(name: &str) -> ApiError {
        ApiError::not_found(format!("model '{name}' not found"))
    }

    pub(crate) fn lacks(full_name: &str, capability: &str) -> ApiError {
        ApiError::bad_request(format!("{full_name} does not support {capability}"))
    }

    pub(crate) fn does_not_support(name: &str, what: &str) -> ApiError {
        ApiError::bad_request(format!("{name:?} does not support {what}"))
    }

    pub(crate) fn invalid_format(format: &serde_json::Value) -> ApiError {
        ApiError::bad_request(format!(
            "invalid format: {format}; expected \"json\" or a valid JSON Schema object"
        ))
    }

    /// The words that clients of the native API know.
    pub(crate) fn prompt_too_long(n_tokens: usize, n_ctx: usize) -> ApiError {
        ApiError {
            prompt: Some((n_tokens, n_ctx)),
            ..ApiError::bad_request(
                "the prompt is longer than the context length currently available to the model; shorten the prompt, \
                 adjust the context length in settings, or use a model with a longer context length",
            )
        }
    }

    /// Returns the tokens of a prompt that is too long, and of the context it is too long for.
    pub(crate) fn prompt(&self) -> Option<(usize, usize)> {
        self.prompt
    }

    pub(crate) fn blob_not_found(digest: &llmsrv_store::Digest) -> ApiError {
        ApiError::not_found(format!("blob \"{digest}\" not found"))
    }

    /// The client has left; nobody reads this.
    pub(crate) fn canceled() -> ApiError {
        ApiError::new(
            StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            "request canceled",
        )
    }

    /// Two spaces, as clients know it.
    pub(crate) fn queue_full() -> ApiError {
        ApiError::unavailable("server busy, please try again.  maximum pending requests exceeded")
    }

    /// The words that clients know, and where the numbers come from.
    pub(crate) fn model_too_large(
        name: &str,
        need: &MemoryEstimate,
        limit: &PlacedBytes,
    ) -> ApiError {
        let total = need.total();
        let mut gpus = total.gpus().iter().enumerate();
        if let Some((gpu, bytes)) = gpus.find(|(gpu, bytes)| **bytes > limit.gpu(*gpu)) {
            return ApiError::internal(format!(
                "model requires more GPU memory ({}) than is available ({}): '{name}' has weights of {} there and needs \
                 {} for its context; ask for fewer layers (num_gpu), for as many as fit (num_gpu -1), or use a smaller \
                 context",
                gib(*bytes),
                gib(limit.gpu(gpu)),
                gib(need.weights.gpu(gpu)),
                gib(need.kv.gpu(gpu)),
            ));
        }
        let (weights, kv, limit) = (need.weights.host, need.kv.host, limit.host);
        ApiError::internal(format!(
            "model requires more system memory ({}) than is available ({}): '{name}' has weights of {} and needs \
             {} for its context; use a smaller model or context, free memory, or raise LLMSRV_MEMORY_LIMIT",
            gib(weights.saturating_add(kv)),
            gib(limit),
            gib(weights),
            gib(kv),
        ))
    }

    /// Every place for a model is taken for good.
    pub(crate) fn no_room(name: &str) -> ApiError {
        ApiError::unavailable(format!(
            "no room for model '{name}': all loaded models are to stay for ever; unload one (keep_alive 0), or \
                 raise LLMSRV_MAX_LOADED_MODELS or LLMSRV_MEMORY_LIMIT"
        ))
    }

    /// What computed the model is gone; it is loaded anew for the next request.
    pub(crate) fn device_lost(reason: &str) -> ApiError {
        ApiError::device_lost_for(reason, Duration::ZERO)
    }

    /// The same, where no other try is made for a while.
    pub(crate) fn device_lost_for(reason: &str, retry_after: Duration) -> ApiError {
        ApiError {
            retry_after: retry_after.as_secs_f64().ceil().max(1.0) as u32,
            ..ApiError::unavailable(format!(
                "the device that computed the model is lost: {reason}; try again"
            ))
        }
    }

    /// The engine of the model has just ended.
    pub(crate) fn model_stopped() -> ApiError {
        ApiError::unavailable("the model stopped working; try again")
    }

    /// No new work is taken.
    pub(crate) fn stopping() -> ApiError {
        ApiError::unavailable("the server is shutting down")
    }

    pub(crate) fn too_large(limit: usize) -> ApiError {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request body is larger than {limit} bytes"),
        )
    }

    pub(crate) fn unauthorized() -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized")
    }

    /// Another server, behind this one, failed or refused.
    pub(crate) fn upstream(text: impl Into<String>, status: StatusCode) -> ApiError {
        ApiError::new(status, text)
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The line that ends a stream that has begun.
    pub(crate) fn line(&self) -> serde_json::Value {
        json!(Error {
            error: self.text.clone(),
        })
    }
}

/// A refusal.
#[derive(Serialize, ToSchema)]
pub(crate) struct Error {
    /// Why.
    error: String,
}

/// A size as people read it.
fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> ApiError {
        let status = match error {
            BodyError::TooMany => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        ApiError::refused(status, error.to_string())
    }
}

impl From<OptionError> for ApiError {
    fn from(error: OptionError) -> ApiError {
        ApiError::bad_request(error.to_string())
    }
}

impl From<llmsrv_chat::Error> for ApiError {
    fn from(error: llmsrv_chat::Error) -> ApiError {
        match error {
            llmsrv_chat::Error::Cancelled => ApiError::canceled(),
            error => ApiError::bad_request(error.to_string()),
        }
    }
}

impl From<llmsrv_store::Error> for ApiError {
    fn from(error: llmsrv_store::Error) -> ApiError {
        use llmsrv_store::Error;
        let text = error.to_string();
        match error {
            Error::NotFound { .. } => ApiError::not_found(text),
            Error::InvalidName { .. } => ApiError::invalid_model_name(),
            Error::Alias { .. }
            | Error::ReadOnly { .. }
            | Error::Unsupported { .. }
            | Error::DigestMismatch { .. }
            | Error::InvalidDigest(_) => ApiError::bad_request(text),
            Error::Open { .. } => ApiError::internal("cannot open the model store"),
            _ => ApiError::internal(text),
        }
    }
}

impl From<llmsrv_store::InvalidDigest> for ApiError {
    fn from(error: llmsrv_store::InvalidDigest) -> ApiError {
        ApiError::bad_request(error.to_string())
    }
}

/// Of a file that a client has sent.
impl From<llmsrv_gguf::Error> for ApiError {
    fn from(error: llmsrv_gguf::Error) -> ApiError {
        match error {
            llmsrv_gguf::Error::Io(error) => {
                ApiError::internal(format!("cannot read a blob: {}", error.kind()))
            }
            llmsrv_gguf::Error::Magic => {
                ApiError::bad_request("supplied file was not in GGUF format")
            }
            error => ApiError::bad_request(format!("invalid model file: {error}")),
        }
    }
}

impl From<llmsrv_convert::UnknownTarget> for ApiError {
    fn from(error: llmsrv_convert::UnknownTarget) -> ApiError {
        ApiError::bad_request(error.to_string())
    }
}

impl From<llmsrv_convert::Error> for ApiError {
    fn from(error: llmsrv_convert::Error) -> ApiError {
        use llmsrv_convert::Error;
        match error {
            Error::Cancelled => ApiError::canceled(),
            Error::Io(error) => {
                ApiError::internal(format!("cannot convert the model: {}", error.kind()))
            }
            Error::Gguf(error) => error.into(),
            error => ApiError::bad_request(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.line().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // Some paths word it otherwise.
        response.extensions_mut().insert(self);
        response
    }
}
