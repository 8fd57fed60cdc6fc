//! The languages clients speak. A dialect turns bytes into a [`Job`](crate::job::Job) and what the
//! model says into bytes; nothing else in the server knows one.

pub(crate) mod anthropic;
pub(crate) mod native;
pub(crate) mod openai;
mod parts;
pub(crate) mod responses;

use std::{fmt::Write as _, sync::Arc};

use http::StatusCode;
use llmsrv_api::{
    members::{self, Member},
    native::{Metrics, ToolCall},
};
use llmsrv_chat::Piece;
use llmsrv_engine::TokenInfo;
use serde::Serialize;
use serde_json::{Value, json};

use self::{
    anthropic::{AnthropicError, AnthropicErrorDetail},
    openai::answer::{OpenAiError, OpenAiErrorDetail},
};
use crate::{error::ApiError, job::Job};

/// Writes one answer in its dialect, as a stream or whole.
pub(crate) trait ResponseEncoder: Send {
    /// How a stream is framed.
    fn framing(&self) -> Framing;

    /// The stream begins; the prompt has so many tokens.
    fn begin(&mut self, _prompt_tokens: usize, _out: &mut StreamBuffer) {}

    /// Nothing was said for a while: keeps the connection, and the reader's patience. By default with a comment,
    /// which readers of server-sent events skip.
    fn ping(&mut self, out: &mut StreamBuffer) {
        out.raw(": ping\n\n");
    }

    /// The model said something.
    fn part(&mut self, said: Delta, out: &mut StreamBuffer);

    /// One of the answers has ended; [`ResponseEncoder::end`] follows after the last one.
    fn answer_end(&mut self, _answer: usize, _end: &End, _out: &mut StreamBuffer) {}

    /// The model has ended.
    fn end(&mut self, end: &End, out: &mut StreamBuffer);

    /// The model failed after the stream had begun.
    fn error(&mut self, error: &ApiError, out: &mut StreamBuffer);

    /// Everything in one object.
    fn whole(&mut self, said: Delta, end: &End) -> Value;

    /// Several answers in one object; `total` is the end of all. Only dialects that can ask for more
    /// than one have more to say than the first.
    fn wholes(&mut self, answers: Vec<(Delta, End)>, total: &End) -> Value {
        let first = answers.into_iter().next();
        self.whole(first.unwrap_or_default().0, total)
    }
}

/// What a model said in one step or in all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delta {
    /// Number of the answer it belongs to.
    pub(crate) answer: usize,
    pub(crate) pieces: Vec<Piece>,
    /// Filled when log-probabilities were asked for.
    pub(crate) tokens: Vec<TokenInfo>,
}

impl Delta {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tokens.is_empty()
    }

    /// Joins the texts of each kind.
    pub(crate) fn gather(self) -> Gathered {
        let mut all = Gathered {
            tokens: self.tokens,
            ..Gathered::default()
        };
        for piece in self.pieces {
            match piece {
                Piece::Content(text) => all.content.push_str(&text),
                Piece::Thinking(text) => all.thinking.push_str(&text),
                Piece::ToolCall(call) => all.calls.push(call),
            }
        }
        all
    }
}

/// What was said, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) content: String,
    pub(crate) thinking: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) tokens: Vec<TokenInfo>,
}

/// How an answer ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    pub(crate) reason: Reason,
    /// The stop text that ended it.
    pub(crate) stop_text: Option<String>,
    /// Prompt and generated tokens.
    pub(crate) context: Vec<u32>,
    pub(crate) metrics: Metrics,
    /// Tokens of the prompt that were computed before.
    pub(crate) cached_tokens: u64,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The model had said everything, or was told to stop there.
    #[default]
    Stop,
    /// A limit was reached.
    Length,
    /// The model was only loaded.
    Load,
    /// The model was unloaded.
    Unload,
}

impl End {
    /// Returns how many tokens of the prompt were dropped, if any.
    pub(crate) fn truncated(&self) -> Option<u64> {
        Some(self.metrics.prompt_truncated).filter(|dropped| *dropped > 0)
    }

    /// The end of a request that generates nothing.
    pub(crate) fn without_text(reason: Reason) -> End {
        End {
            reason,
            ..End::default()
        }
    }
}

/// How the parts of a stream are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One JSON object a line.
    Lines,
    /// Server-sent events.
    Events,
}

/// Bytes of a stream that are ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct StreamBuffer(pub(crate) String);

impl StreamBuffer {
    /// Adds an object on its own line.
    pub(crate) fn line(&mut self, object: &Value) {
        let _ = writeln!(self.0, "{object}");
    }

    /// Adds an event without a name.
    pub(crate) fn data(&mut self, object: &Value) {
        let _ = write!(self.0, "data: {object}\n\n");
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, name: &str, object: &Value) {
        let _ = write!(self.0, "event: {name}\ndata: {object}\n\n");
    }

    /// Adds text as it is.
    pub(crate) fn raw(&mut self, text: &str) {
        self.0.push_str(text);
    }
}

/// Dialects that word errors alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Native,
    OpenAi,
    Anthropic,
}

impl Family {
    /// Returns the family that speaks on a path.
    pub(crate) fn of(path: &str) -> Family {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") {
            Family::Anthropic
        } else if path.starts_with("/v1/") {
            Family::OpenAi
        } else {
            Family::Native
        }
    }

    /// Words an error.
    pub(crate) fn error(self, error: &ApiError) -> Value {
        let message = match error.prompt() {
            Some((n_tokens, n_ctx)) => self.too_long(n_tokens, n_ctx),
            None => error.to_string(),
        };
        match self {
            Family::Native => error.line(),
            Family::OpenAi => {
                let invalid = "invalid_request_error";
                let (r#type, param, code) = match error.status() {
                    _ if error.prompt().is_some() => {
                        (invalid, Some("messages"), Some("context_length_exceeded"))
                    }
                    StatusCode::UNAUTHORIZED => (invalid, None, Some("invalid_api_key")),
                    StatusCode::NOT_FOUND => ("not_found_error", None, None),
                    StatusCode::TOO_MANY_REQUESTS => {
                        ("api_error", None, Some("rate_limit_exceeded"))
                    }
                    status if status.is_client_error() => (invalid, None, None),
                    _ => ("api_error", None, None),
                };
                to_value(&OpenAiError {
                    error: OpenAiErrorDetail {
                        message,
                        r#type,
                        param,
                        code,
                    },
                })
            }
            Family::Anthropic => {
                let r#type = match error.status() {
                    StatusCode::UNAUTHORIZED => "authentication_error",
                    StatusCode::FORBIDDEN => "permission_error",
                    StatusCode::NOT_FOUND => "not_found_error",
                    StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
                    StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
                    StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
                    status if status.is_client_error() => "invalid_request_error",
                    _ => "api_error",
                };
                to_value(&AnthropicError {
                    r#type: "error",
                    error: AnthropicErrorDetail { r#type, message },
                    request_id: format!("req_{}", id24()),
                })
            }
        }
    }
}

impl Family {
    /// Words the refusal of a prompt: clients of each family look for its begin, people read the rest.
    fn too_long(self, n_tokens: usize, n_ctx: usize) -> String {
        let what = if self == Family::Anthropic {
            format!("prompt is too long: {n_tokens} tokens > {n_ctx} maximum")
        } else {
            format!(
                "the prompt is longer than the context: it has {n_tokens} tokens, and this model's maximum context \
                 length is {n_ctx} tokens"
            )
        };
        format!(
            "{what}; shorten it, or set a larger context: num_ctx in the request, PARAMETER num_ctx in the model, or \
             LLMSRV_CONTEXT_LENGTH for the server; \"truncate\": true in the request drops the oldest messages instead"
        )
    }
}

/// Writes an answer; those of ours have nothing that cannot be written.
pub(crate) fn to_value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_else(|error| json!({ "error": error.to_string() }))
}

/// Parses a body in every dialect, for those who look for bodies that do harm.
#[doc(hidden)]
pub fn parse_any(body: &[u8]) -> Vec<Result<Job, ApiError>> {
    fn parsed<R: Member>(
        body: &[u8],
        make: impl FnOnce(R) -> Result<Job, ApiError>,
    ) -> Result<Job, ApiError> {
        make(members::parse(body)?.0)
    }
    vec![
        parsed(body, native::generate),
        parsed(body, native::chat),
        parsed(body, |request| Ok(openai::chat(request)?.0)),
        parsed(body, |request| Ok(openai::completion(request)?.0)),
        parsed(body, |request| {
            Ok(responses::response(request, &Arc::default())?.0)
        }),
        parsed(body, |request| Ok(anthropic::messages(request)?.0)),
        parsed(body, anthropic::count),
    ]
}

/// Returns 24 hexadecimal digits that no other answer has.
pub(crate) fn id24() -> String {
    use std::{
        hash::{BuildHasher as _, RandomState},
        sync::{
            LazyLock,
            atomic::{AtomicU64, Ordering},
        },
    };
    static SERVER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    // The count makes it unique, the rest says which server it was.
    format!("{:016x}{:08x}", SERVER.hash_one(count), count as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_words_errors_as_its_clients_read_them() {
        let error = ApiError::not_found("no such model");
        assert_eq!(
            Family::of("/api/chat").error(&error),
            json!({"error": "no such model"})
        );
        assert_eq!(
            Family::of("/v1/models/x").error(&error)["error"],
            json!({"message": "no such model", "type": "not_found_error", "param": null, "code": null})
        );
        let error = Family::of("/v1/messages").error(&error);
        assert_eq!(error["error"]["type"], "not_found_error");
        let id = error["request_id"]
            .as_str()
            .and_then(|id| id.strip_prefix("req_"));
        assert!(id.is_some_and(|id| id.len() == 24), "{error}");
    }

    #[test]
    fn ids_differ() {
        assert_ne!(id24(), id24());
        assert_eq!(id24().len(), 24);
    }
}
