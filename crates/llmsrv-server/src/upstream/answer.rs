//! What a server says, event by event.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use http::StatusCode;
use llmsrv_api::{
    lenient,
    native::{ToolCall, ToolCallFunction},
};
use llmsrv_chat::Piece;
use llmsrv_engine::TokenInfo;
use reqwest::Response;
use serde_json::Value;

use super::{Turn, request::request};
use crate::{
    dialect::{Delta, End, Reason},
    error::ApiError,
    job::Job,
};

/// An answer on its way. Dropping it closes the connection, which ends the work there.
pub(crate) struct Answer {
    turn: Turn,
    response: Response,
    events: Events,
    /// What was read before the answer began.
    held: Option<Value>,
    calls: BTreeMap<u64, Call>,
    end: End,
    /// The reason for the end has come; only figures may follow.
    ended: bool,
    sent: Instant,
    first: Option<Instant>,
}

/// A call whose arguments come bit by bit.
#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// A server that did not begin to answer.
pub(super) enum Failed {
    /// The request is at fault; another server would say the same.
    Request(ApiError),
    /// The server is.
    Peer {
        /// What the client hears if no other answers.
        error: ApiError,
        /// Others should be asked first from now on.
        is_sick: bool,
    },
}

impl Answer {
    /// Sends a request and waits for the first thing that the server says.
    pub(super) async fn begin(turn: Turn, job: &Job, model: &str) -> Result<Answer, Failed> {
        let (path, body) = request(job, model).map_err(Failed::Request)?;
        let settings = turn.0.settings().clone();
        let name = settings.name.clone();
        let limit = settings.first_token_timeout;
        let late_name = name.clone();
        let begin = async {
            let sent = Instant::now();
            let response = post(&turn, path, &body).await?;
            let mut answer = Answer {
                turn,
                response,
                events: Events::default(),
                held: None,
                calls: BTreeMap::new(),
                end: End::default(),
                ended: false,
                sent,
                first: None,
            };
            match answer.read().await {
                Ok(Some(event)) => answer.held = Some(event),
                Ok(None) => return Err(sick(broke_off(&name), StatusCode::BAD_GATEWAY)),
                Err(error) => {
                    return Err(Failed::Peer {
                        error,
                        is_sick: true,
                    });
                }
            }
            Ok(answer)
        };
        let begun = tokio::time::timeout(limit, begin).await;
        begun.unwrap_or_else(|_| Err(late(&late_name, limit)))
    }

    /// Waits for what is said next, and at last for the end. Nothing is lost when the wait is given
    /// up.
    pub(crate) async fn next(&mut self) -> Result<(Delta, Option<End>), ApiError> {
        let event = if let Some(event) = self.held.take() {
            Some(event)
        } else {
            let settings = self.turn.0.settings();
            let (name, limit) = (settings.name.clone(), settings.idle_timeout);
            let read = tokio::time::timeout(limit, self.read()).await;
            let late = |_| {
                let text = silent(&name, limit);
                Err(ApiError::upstream(text, StatusCode::GATEWAY_TIMEOUT))
            };
            read.unwrap_or_else(late)
                .inspect_err(|_| self.turn.0.set_healthy(false))?
        };
        let Some(event) = event else {
            return self.finish();
        };
        let mut said = Delta::default();
        self.take(&event, &mut said);
        Ok((said, None))
    }

    /// Reads the next event; `None` at the end of the stream.
    async fn read(&mut self) -> Result<Option<Value>, ApiError> {
        let name = self.turn.0.settings().name.clone();
        let broken = || ApiError::upstream(broke_off(&name), StatusCode::BAD_GATEWAY);
        loop {
            if let Some(data) = self.events.next() {
                if data == "[DONE]" {
                    // Some servers end like this what they gave up for another request.
                    return if self.ended { Ok(None) } else { Err(broken()) };
                }
                let Ok(event) = lenient::value(data.as_bytes()) else {
                    continue;
                };
                if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
                    let text = error["message"].as_str().or(error.as_str());
                    let text = text.unwrap_or("it failed");
                    return Err(ApiError::upstream(
                        format!("upstream {name}: {}", short(text)),
                        StatusCode::BAD_GATEWAY,
                    ));
                }
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => {
                    if !self.events.push(&bytes) {
                        return Err(ApiError::upstream(
                            format!("upstream {name} sent an event that is too long"),
                            StatusCode::BAD_GATEWAY,
                        ));
                    }
                }
                Ok(None) if self.ended => return Ok(None),
                Ok(None) | Err(_) => return Err(broken()),
            }
        }
    }

    fn take(&mut self, event: &Value, said: &mut Delta) {
        if self.first.is_none() {
            self.first = Some(Instant::now());
        }
        let usage = &event["usage"];
        if let Some(count) = usage["prompt_tokens"].as_u64() {
            self.end.metrics.prompt_eval_count = count;
            self.end.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or(0);
        }
        if let Some(count) = usage["completion_tokens"].as_u64() {
            self.end.metrics.eval_count = count;
        }
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        let text = |value: &Value| {
            value
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let thinking = text(&delta["reasoning_content"]).or_else(|| text(&delta["reasoning"]));
        said.pieces.extend(thinking.map(Piece::Thinking));
        // `text` is that of plain completions.
        let content = text(&delta["content"]).or_else(|| text(&choice["text"]));
        said.pieces.extend(content.map(Piece::Content));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap_or(self.calls.len() as u64);
            if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&index) {
                continue;
            }
            let known = self.calls.entry(index).or_default();
            known
                .id
                .extend(text(&call["id"]).filter(|_| known.id.is_empty()));
            known
                .name
                .extend(text(&call["function"]["name"]).filter(|_| known.name.is_empty()));
            known.arguments.extend(text(&call["function"]["arguments"]));
        }
        said.tokens.extend(token_infos(&choice["logprobs"]));
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.end.reason = match reason {
                "length" => Reason::Length,
                _ => Reason::Stop,
            };
            // vLLM says which stop text it was; elsewhere it is not known.
            self.end.stop_text = choice["stop_reason"].as_str().map(str::to_owned);
            self.ended = true;
        }
    }

    fn finish(&mut self) -> Result<(Delta, Option<End>), ApiError> {
        let mut said = Delta::default();
        let was_cut = self.end.reason == Reason::Length;
        let upstream = self.turn.0.settings().name.clone();
        for call in std::mem::take(&mut self.calls).into_values() {
            let arguments = match lenient::value(call.arguments.as_bytes()) {
                Ok(Value::Object(arguments)) => arguments,
                _ if was_cut => {
                    tracing::warn!(
                        upstream,
                        "a call of a tool was cut: it is left out of the answer"
                    );
                    continue;
                }
                _ if call.arguments.trim().is_empty() => serde_json::Map::new(),
                _ => {
                    let name = short(&call.name);
                    return Err(ApiError::upstream(
                        format!(
                            "upstream {upstream}: the model called {name} with arguments that are not JSON"
                        ),
                        StatusCode::BAD_GATEWAY,
                    ));
                }
            };
            let index = said.pieces.len();
            said.pieces.push(Piece::ToolCall(ToolCall {
                id: if call.id.is_empty() {
                    llmsrv_chat::tool_call_id()
                } else {
                    call.id
                },
                function: ToolCallFunction {
                    index,
                    name: call.name,
                    arguments,
                },
            }));
        }
        let mut end = std::mem::take(&mut self.end);
        let first = self.first.unwrap_or(self.sent);
        end.metrics.prompt_eval_duration = crate::clock::nanos(first - self.sent);
        end.metrics.eval_duration = crate::clock::nanos(first.elapsed());
        Ok((said, Some(end)))
    }
}

/// Sends a request; what comes back has begun well.
pub(super) async fn post(turn: &Turn, path: &str, body: &Value) -> Result<Response, Failed> {
    let settings = turn.0.settings();
    let name = &settings.name;
    let mut request = turn.0.http.post(format!("{}{path}", settings.url));
    if let Some(key) = &settings.api_key {
        request = request.bearer_auth(key.expose());
    }
    let response = request.json(body).send().await.map_err(|error| {
        tracing::debug!(upstream = name, error = %error.without_url(), "no answer");
        let text = format!("upstream {name} cannot be reached");
        sick(text, StatusCode::BAD_GATEWAY)
    })?;
    accepted(name, response).await
}

/// Looks at the status of a response.
async fn accepted(name: &str, response: Response) -> Result<Response, Failed> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = error_text(response).await;
    let error = |status| ApiError::upstream(format!("upstream {name}: {text}"), status);
    Err(match status {
        // Its own trouble, or a mistake in our settings: another server may do better.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Failed::Peer {
            error: error(StatusCode::BAD_GATEWAY),
            is_sick: false,
        },
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Failed::Peer {
            error: error(StatusCode::SERVICE_UNAVAILABLE),
            is_sick: false,
        },
        status if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT => {
            Failed::Request(error(status))
        }
        _ => Failed::Peer {
            error: error(StatusCode::BAD_GATEWAY),
            is_sick: true,
        },
    })
}

/// Reads what a server says about an error, not more than the start of it.
async fn error_text(mut response: Response) -> String {
    let status = response.status();
    let mut bytes = Vec::new();
    while bytes.len() < 16 << 10 {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            _ => break,
        }
    }
    let body = lenient::value(&bytes).unwrap_or_default();
    let said = [
        &body["error"]["message"],
        &body["message"],
        &body["error"],
        &body["detail"],
    ];
    let said = said.into_iter().find_map(Value::as_str);
    said.map_or_else(|| format!("status {}", status.as_u16()), short)
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

pub(super) fn broke_off(name: &str) -> String {
    format!("upstream {name} broke off its answer")
}

fn silent(name: &str, limit: Duration) -> String {
    format!("upstream {name} has said nothing for {limit:?}")
}

pub(super) fn sick(text: String, status: StatusCode) -> Failed {
    Failed::Peer {
        error: ApiError::upstream(text, status),
        is_sick: true,
    }
}

pub(super) fn late(name: &str, limit: Duration) -> Failed {
    sick(silent(name, limit), StatusCode::GATEWAY_TIMEOUT)
}

/// Reads the log-probabilities of a piece: those of chats, an object for each token, or those of plain
/// completions, lists of the same length.
fn token_infos(logprobs: &Value) -> Vec<TokenInfo> {
    if let Some(tokens) = logprobs["content"].as_array() {
        return tokens.iter().filter_map(token_info).collect();
    }
    let tokens = logprobs["tokens"].as_array().into_iter().flatten();
    let token = |(idx, token): (usize, &Value)| {
        let mut top: Vec<(u32, f32, Vec<u8>)> = logprobs["top_logprobs"][idx]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(text, logprob)| {
                Some((0, logprob.as_f64()? as f32, text.as_bytes().to_vec()))
            })
            .collect();
        top.sort_by(|(_, a, _), (_, b, _)| b.total_cmp(a));
        Some(TokenInfo {
            id: 0,
            logprob: logprobs["token_logprobs"][idx].as_f64()? as f32,
            bytes: token.as_str()?.as_bytes().to_vec(),
            top,
        })
    };
    tokens.enumerate().filter_map(token).collect()
}

fn token_info(token: &Value) -> Option<TokenInfo> {
    let one = |token: &Value| -> Option<(f32, Vec<u8>)> {
        let bytes = token["bytes"].as_array().map(|bytes| {
            let bytes = bytes.iter().filter_map(Value::as_u64);
            bytes.filter_map(|byte| u8::try_from(byte).ok()).collect()
        });
        let text = || {
            token["token"]
                .as_str()
                .unwrap_or_default()
                .as_bytes()
                .to_vec()
        };
        Some((
            token["logprob"].as_f64()? as f32,
            bytes.unwrap_or_else(text),
        ))
    };
    let (logprob, bytes) = one(token)?;
    let top = token["top_logprobs"].as_array().into_iter().flatten();
    Some(TokenInfo {
        // Ids are the other engine's own.
        id: 0,
        logprob,
        bytes,
        top: top
            .filter_map(one)
            .map(|(logprob, bytes)| (0, logprob, bytes))
            .collect(),
    })
}

/// Cuts a stream of bytes into the data of server-sent events
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
#[derive(Debug, Default)]
struct Events {
    buffer: Vec<u8>,
    /// Data lines of the event that is not complete yet.
    data: Vec<String>,
    ready: VecDeque<String>,
}

impl Events {
    /// Takes bytes. Returns whether what is not complete yet has a bearable size.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.buffer.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = self.buffer[at..].iter().position(|byte| *byte == b'\n') {
            let line = self.buffer[at..at + length].to_vec();
            at += length + 1;
            self.line(&String::from_utf8_lossy(&line));
        }
        self.buffer.drain(..at);
        let n_data: usize = self.data.iter().map(String::len).sum();
        self.buffer.len() + n_data <= MAX_EVENT_BYTES
    }

    fn line(&mut self, line: &str) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            if !self.data.is_empty() {
                self.ready.push_back(self.data.join("\n"));
                self.data.clear();
            }
        } else if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            self.data.push(data.to_owned());
        }
    }

    fn next(&mut self) -> Option<String> {
        self.ready.pop_front()
    }
}

const MAX_EVENT_BYTES: usize = 8 << 20;
const MAX_CALLS: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        for chunk in chunks {
            assert!(events.push(chunk));
        }
        std::iter::from_fn(|| events.next()).collect()
    }

    #[test]
    fn events_have_lines_comments_and_names() {
        let text = b": hello\n\nevent: x\ndata: {\"a\":1}\r\n\r\ndata: one\ndata: two\n\ndata: cut";
        assert_eq!(events(&[text]), ["{\"a\":1}", "one\ntwo"]);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut sound = Events::default();
        assert!(!sound.push(&vec![b'x'; MAX_EVENT_BYTES + 1]));
        let mut lines = Events::default();
        let line = [b"data: ", &vec![b'x'; MAX_EVENT_BYTES / 2][..], b"\n"].concat();
        assert!(lines.push(&line));
        assert!(!lines.push(&[&line[..], &line[..]].concat()));
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_changes_nothing(
            texts in proptest::collection::vec("[a-z:\\n\\r é]{0,20}", 0..8),
            cuts in proptest::collection::vec(0_usize..200, 0..6),
        ) {
            let bytes: Vec<u8> = texts.iter().flat_map(|text| format!("data: {text}\n\n").into_bytes()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(&chunks), events(&[&bytes]));
        }
    }
}
