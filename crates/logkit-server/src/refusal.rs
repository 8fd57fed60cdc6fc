//! Answers that say no, in the shapes of `docs/contracts/logkit.md` 7.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

use crate::store::StoreError;

/// An answer of JSON.
pub(crate) fn json_answer(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// A request that is not done, and why.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    detail: Box<Value>,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, detail: impl Into<Value>) -> Refusal {
        Refusal {
            status,
            detail: Box::new(detail.into()),
            header: None,
        }
    }

    /// What it says, if that is a text.
    pub(crate) fn text(&self) -> &str {
        self.detail.as_str().unwrap_or_default()
    }

    fn with(self, name: HeaderName, value: &'static str) -> Refusal {
        Refusal {
            header: Some((name, value)),
            ..self
        }
    }

    /// Bodies or parameters that cannot be understood.
    pub(crate) fn invalid(details: Vec<Detail>) -> Refusal {
        let details = details.into_iter().map(Detail::into_json).collect();
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, Value::Array(details))
    }

    pub(crate) fn too_large(limit: usize) -> Refusal {
        let text = format!("Request body is larger than {limit} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    }

    pub(crate) fn busy(detail: &'static str) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).with(header::RETRY_AFTER, "1")
    }

    pub(crate) fn no_key() -> Refusal {
        Refusal::new(
            StatusCode::UNAUTHORIZED,
            "Send an API key as `Authorization: Bearer <key>` or `X-API-Key: <key>`",
        )
        .with(header::WWW_AUTHENTICATE, "Bearer")
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        match error {
            StoreError::Full => Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many entries wait to be written; try again",
            )
            .with(header::RETRY_AFTER, "1"),
            // What it says may hold paths; the log of the server has it.
            StoreError::Failed => Refusal::busy("The entry could not be written; try again"),
            StoreError::Unreadable => Refusal::busy("The database cannot be read; try again"),
            StoreError::Busy => Refusal::busy("Too many queries are running; try again"),
            StoreError::Closed => Refusal::busy("The server is stopping"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json_answer(&json!({ "detail": self.detail }));
        *response.status_mut() = self.status;
        if let Some((name, value)) = self.header {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// What is wrong with one value of a request.
#[derive(Debug)]
pub(crate) struct Detail {
    pub(crate) kind: &'static str,
    /// `body` or `query`, then names and indices.
    pub(crate) place: Vec<Value>,
    pub(crate) message: String,
    pub(crate) input: Value,
    /// More facts; null for none.
    pub(crate) context: Value,
}

impl Detail {
    fn into_json(self) -> Value {
        let mut json = json!({
            "type": self.kind,
            "loc": self.place,
            "msg": self.message,
            "input": self.input,
        });
        if !self.context.is_null() {
            json["ctx"] = self.context;
        }
        json
    }
}
