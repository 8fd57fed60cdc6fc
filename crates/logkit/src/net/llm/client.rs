//! Asks a model over HTTP: our own server or another with its chat interface, services with the
//! OpenAI one, and Anthropic.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Redactor,
    net::http::{Endpoint, NoAnswer, ORIGIN},
};

/// Where models are, and the keys to them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LlmServers {
    /// Address of the local server: `http://127.0.0.1:11434` unless set.
    pub local: Option<String>,
    /// Address of an OpenAI-compatible service, `…/v1` or without: `https://api.openai.com/v1`
    /// unless set.
    pub openai: Option<String>,
    /// Key for the OpenAI-compatible service.
    pub openai_key: Option<String>,
    /// Address of the Anthropic service: `https://api.anthropic.com` unless set.
    pub anthropic: Option<String>,
    /// Key for the Anthropic service.
    pub anthropic_key: Option<String>,
}

impl std::fmt::Debug for LlmServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Addresses may hold credentials as well as keys do.
        f.write_str("LlmServers(***)")
    }
}

/// Why there is no analysis. The text begins with a type, as that of an exception does.
#[derive(Debug, thiserror::Error)]
pub(super) enum LlmError {
    #[error("[logkit] LLM client not configured")]
    NotConfigured,
    #[error("[logkit] LLM analysis failed: Timeout: {0}")]
    Timeout(String),
    #[error("[logkit] LLM analysis failed: ConnectionError: {0}")]
    Connection(String),
    #[error("[logkit] LLM analysis failed: HttpError: {0}")]
    Status(String),
    #[error("[logkit] LLM analysis failed: BadAnswer: {0}")]
    Answer(String),
    #[error("[logkit] LLM analysis failed: QueueFull: {0} errors wait already")]
    QueueFull(usize),
    #[error("[logkit] LLM analysis failed: Closed: the program ended before the model answered")]
    Closed,
}

/// How a model is asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) system: String,
    pub(super) user: String,
    pub(super) max_tokens: u32,
    pub(super) temperature: f64,
    pub(super) timeout: Duration,
}

/// A model and how to reach it; `None` inside if a key or an address is missing.
#[derive(Debug)]
pub(super) struct Client {
    model: String,
    dialect: &'static Dialect,
    endpoint: Option<Endpoint>,
}

/// One way to ask.
#[derive(Debug)]
struct Dialect {
    /// Before the name of the model.
    prefixes: &'static [&'static str],
    endpoint: fn(&LlmServers) -> Option<Endpoint>,
    body: fn(&str, &Question) -> Value,
    /// Where the text is in the answer.
    pointer: &'static str,
    /// Where the reason is why the model stopped, and the word for "it had said all".
    truncated: (&'static str, &'static str),
}

/// The last one is that of a bare name.
static DIALECTS: [Dialect; 3] = [
    Dialect {
        prefixes: &["llmsrv/", "ollama/"],
        endpoint: |servers| {
            let address = servers.local.as_deref().unwrap_or(LOCAL);
            Some(Endpoint::new(address).ok()?.below("api/chat"))
        },
        body: |model, question| {
            json!({
                "model": model,
                "messages": [
                    {"role": "system", "content": question.system},
                    {"role": "user", "content": question.user},
                ],
                "stream": false,
                "options": {
                    "num_predict": question.max_tokens,
                    "temperature": question.temperature,
                },
            })
        },
        pointer: "/message/content",
        truncated: ("/done_reason", "length"),
    },
    Dialect {
        prefixes: &["anthropic/"],
        endpoint: |servers| {
            let key = servers.anthropic_key.as_deref()?;
            let address = servers.anthropic.as_deref().unwrap_or(ANTHROPIC);
            Endpoint::new(address)
                .ok()?
                .below("v1/messages")
                .header("x-api-key", key)
                .and_then(|endpoint| endpoint.header("anthropic-version", "2023-06-01"))
                .ok()
        },
        body: |model, question| {
            json!({
                "model": model,
                "system": question.system,
                "messages": [{"role": "user", "content": question.user}],
                "max_tokens": question.max_tokens,
                "temperature": question.temperature,
            })
        },
        pointer: "/content/0/text",
        truncated: ("/stop_reason", "max_tokens"),
    },
    Dialect {
        prefixes: &["openai/"],
        endpoint: |servers| {
            let address = servers.openai.as_deref().unwrap_or(OPENAI);
            let address = address.trim_end_matches('/').trim_end_matches("/v1");
            let endpoint = Endpoint::new(address).ok()?.below("v1/chat/completions");
            match servers.openai_key.as_deref() {
                Some(key) => endpoint
                    .header("authorization", &format!("Bearer {key}"))
                    .ok(),
                // Servers of one's own ask for no key; the service does.
                None if servers.openai.is_some() || endpoint.has_header("authorization") => {
                    Some(endpoint)
                }
                None => None,
            }
        },
        body: |model, question| {
            json!({
                "model": model,
                "messages": [
                    {"role": "system", "content": question.system},
                    {"role": "user", "content": question.user},
                ],
                "max_tokens": question.max_tokens,
                "temperature": question.temperature,
            })
        },
        pointer: "/choices/0/message/content",
        truncated: ("/choices/0/finish_reason", "length"),
    },
];

const LOCAL: &str = "http://127.0.0.1:11434";
const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com";
/// Bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;
/// Characters of an analysis, and of what a server says about an error.
const MAX_TEXT: usize = 8192;
const MAX_MESSAGE: usize = 200;

impl Client {
    pub(super) fn new(model: &str, servers: &LlmServers) -> Client {
        let model = model.trim();
        let found = DIALECTS.iter().find_map(|dialect| {
            dialect.prefixes.iter().find_map(|prefix| {
                let name = model.strip_prefix(prefix)?;
                Some((dialect, name))
            })
        });
        let (dialect, name) = found.unwrap_or((&DIALECTS[DIALECTS.len() - 1], model));
        let endpoint = (dialect.endpoint)(servers).filter(|_| !name.is_empty());
        Client {
            model: name.to_owned(),
            dialect,
            // Our own server must not log the question as a call, which would be asked about.
            endpoint: endpoint.and_then(|endpoint| endpoint.header(ORIGIN.0, ORIGIN.1).ok()),
        }
    }

    pub(super) fn ask(&self, question: &Question) -> Result<String, LlmError> {
        let Some(endpoint) = &self.endpoint else {
            return Err(LlmError::NotConfigured);
        };
        let body = (self.dialect.body)(&self.model, question).to_string();
        let answer = endpoint
            .post(
                &[("content-type", "application/json")],
                body.as_bytes(),
                question.timeout,
                MAX_ANSWER,
            )
            .map_err(|error| match error {
                NoAnswer::Timeout(..) => LlmError::Timeout(error.to_string()),
                NoAnswer::Connect(..) => LlmError::Connection(error.to_string()),
                NoAnswer::BrokeOff(_) | NoAnswer::TooLong(..) => {
                    LlmError::Answer(error.to_string())
                }
            })?;
        let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
        if !answer.is_success() {
            let said = json.as_ref().and_then(error_text).unwrap_or_default();
            let said = Redactor::shared().redact_string(&said).into_owned();
            let said: String = said.chars().take(MAX_MESSAGE).collect();
            return Err(LlmError::Status(format!(
                "{endpoint} answered {}{}{said}",
                answer.status,
                if said.is_empty() { "" } else { ": " },
            )));
        }
        let json =
            json.ok_or_else(|| LlmError::Answer(format!("the answer of {endpoint} is no JSON")))?;
        let text = json.pointer(self.dialect.pointer).and_then(Value::as_str);
        let text = without_thoughts(text.unwrap_or_default()).trim();
        if text.is_empty() {
            return Err(LlmError::Answer(format!("{endpoint} sent no text")));
        }
        let mut kept: String = text.chars().take(MAX_TEXT).collect();
        let (pointer, word) = self.dialect.truncated;
        if kept.len() < text.len() || json.pointer(pointer).and_then(Value::as_str) == Some(word) {
            kept.push_str(" …");
        }
        Ok(kept)
    }
}

/// `{"error": "…"}` or `{"error": {"message": "…"}}`
fn error_text(json: &Value) -> Option<String> {
    let error = json.get("error")?;
    let text = error.as_str().or_else(|| error.get("message")?.as_str())?;
    Some(text.to_owned())
}

/// What follows the thoughts of a model that shows them.
fn without_thoughts(text: &str) -> &str {
    match text.split_once("</think>") {
        Some((_, after)) => after,
        None if text.trim_start().starts_with("<think>") => "",
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(model: &str, servers: &LlmServers) -> (String, Option<String>) {
        let client = Client::new(model, servers);
        (
            client.model,
            client.endpoint.map(|endpoint| endpoint.to_string()),
        )
    }

    #[test]
    fn names_tell_where_a_model_is() {
        let none = LlmServers::default();
        let some = LlmServers {
            openai: Some("http://127.0.0.1:1/v1/".into()),
            openai_key: Some("k".into()),
            anthropic_key: Some("k".into()),
            ..LlmServers::default()
        };
        let local = "http://127.0.0.1:11434".to_owned();
        for (model, servers, name, address) in [
            ("llmsrv/m:1b", &none, "m:1b", Some(local.clone())),
            ("ollama/a/b", &none, "a/b", Some(local)),
            ("gpt-x", &none, "gpt-x", None),
            (
                "openai/gpt-x",
                &some,
                "gpt-x",
                Some("http://127.0.0.1:1".into()),
            ),
            ("org/m", &some, "org/m", Some("http://127.0.0.1:1".into())),
            ("anthropic/c", &none, "c", None),
            ("anthropic/c", &some, "c", Some(ANTHROPIC.into())),
            ("llmsrv/", &none, "", None),
        ] {
            assert_eq!(place(model, servers), (name.into(), address), "{model}");
        }
    }

    #[test]
    fn thoughts_are_left_out() {
        assert_eq!(without_thoughts("<think>hm</think> Yes."), " Yes.");
        assert_eq!(without_thoughts("<think>hm"), "");
        assert_eq!(without_thoughts("Yes."), "Yes.");
    }
}
