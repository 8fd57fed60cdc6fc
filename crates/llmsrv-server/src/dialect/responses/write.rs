//! From what the model says to a response and its events.

use std::{collections::HashMap, sync::Arc};

use llmsrv_api::native::ToolCall;
use llmsrv_chat::Piece;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::kept::KeptResponses;
use crate::{
    dialect::{
        Delta, End, Family, Framing, ResponseEncoder, StreamBuffer, id24, openai::seconds, parts,
        to_value,
    },
    error::ApiError,
};

/// Namespace and name of each tool that is in one, by the name that the model knows it by.
pub(super) type Namespaces = HashMap<String, (String, String)>;

/// Writes a response.
pub(crate) struct ResponsesEncoder {
    id: String,
    model: String,
    created_at: i64,
    /// What the response repeats of its request.
    echo: Value,
    namespaces: Namespaces,
    /// The list of items so far, and where it is kept; none where it is not to be.
    kept: Option<(String, Arc<KeptResponses>)>,
    /// Number of the next event.
    sequence_number: u64,
    /// Items that are complete.
    output: Vec<Value>,
    /// The item that is being written.
    open: Option<Open>,
}

/// A text on its way.
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
}

/// A response, at any time of its life.
#[derive(Serialize, ToSchema)]
pub(crate) struct ResponseObject<'a> {
    id: &'a str,
    /// `response`.
    object: &'static str,
    /// Seconds since the epoch.
    created_at: i64,
    /// Seconds since the epoch.
    completed_at: Option<i64>,
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    status: &'static str,
    /// Always false.
    background: bool,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    /// Why it is not complete.
    #[schema(value_type = Option<Object>)]
    incomplete_details: Option<Value>,
    model: &'a str,
    /// Items: messages, reasoning and function calls.
    #[schema(value_type = Vec<Object>)]
    output: &'a [Value],
    /// Numbers of tokens.
    #[schema(value_type = Option<Object>)]
    usage: Option<Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    echo: &'a Value,
}

impl ResponsesEncoder {
    pub(super) fn new(
        model: &str,
        echo: Value,
        namespaces: Namespaces,
        kept: Option<(String, Arc<KeptResponses>)>,
    ) -> ResponsesEncoder {
        ResponsesEncoder {
            id: format!("resp_{}", id24()),
            model: model.to_owned(),
            created_at: seconds(),
            echo,
            namespaces,
            kept,
            sequence_number: 0,
            output: Vec::new(),
            open: None,
        }
    }

    fn response(&self, status: &'static str) -> ResponseObject<'_> {
        ResponseObject {
            id: &self.id,
            object: "response",
            created_at: self.created_at,
            completed_at: None,
            status,
            background: false,
            error: None,
            incomplete_details: None,
            model: &self.model,
            output: &self.output,
            usage: None,
            echo: &self.echo,
        }
    }

    /// The whole response at its end, and the word for how it ended.
    fn ended(&mut self, end: &End) -> (&'static str, Value) {
        if let Some((mut conversation, kept)) = self.kept.take() {
            // The list goes on; it has an item at least.
            conversation.pop();
            for item in &self.output {
                let json = item.to_string();
                conversation.push(',');
                conversation.push_str(&json);
                let id = item["id"].as_str().unwrap_or_default();
                kept.keep(id, format!("[{json}]"));
            }
            conversation.push(']');
            kept.keep(&self.id, conversation);
        }
        let cut = parts::is_cut(end);
        let status = if cut { "incomplete" } else { "completed" };
        let (input, output) = (end.metrics.prompt_eval_count, end.metrics.eval_count);
        let mut usage = json!({
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": end.cached_tokens},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        });
        if let Some(dropped) = end.truncated() {
            usage["prompt_truncated"] = json!(dropped);
        }
        let response = ResponseObject {
            completed_at: (!cut).then(seconds),
            incomplete_details: cut.then(|| json!({"reason": "max_output_tokens"})),
            usage: Some(usage),
            ..self.response(status)
        };
        (status, to_value(&response))
    }

    fn event(&mut self, name: &str, mut payload: Value, out: &mut StreamBuffer) {
        payload["type"] = json!(name);
        payload["sequence_number"] = json!(self.sequence_number);
        self.sequence_number += 1;
        out.event(name, &payload);
    }

    /// An event about the item that is being written.
    fn item_event(
        &mut self,
        name: &str,
        item_id: &str,
        mut payload: Value,
        out: &mut StreamBuffer,
    ) {
        payload["item_id"] = json!(item_id);
        payload["output_index"] = json!(self.output.len());
        self.event(name, payload, out);
    }

    fn added(&mut self, item: &Value, out: &mut StreamBuffer) {
        let payload = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.added", payload, out);
    }

    fn done(&mut self, item: Value, out: &mut StreamBuffer) {
        let payload = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.done", payload, out);
        self.output.push(item);
    }

    fn text(&mut self, kind: Kind, text: &str, out: &mut StreamBuffer) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(out);
            let open = Open {
                kind,
                id: item_id(kind),
                text: String::new(),
            };
            self.added(&item(&open, "in_progress"), out);
            if kind == Kind::Message {
                let payload = json!({"content_index": 0, "part": part("")});
                self.item_event("response.content_part.added", &open.id, payload, out);
            }
            self.open = Some(open);
        }
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let id = open.id.clone();
        match kind {
            Kind::Reasoning => {
                let payload = json!({"summary_index": 0, "delta": text});
                self.item_event("response.reasoning_summary_text.delta", &id, payload, out);
            }
            Kind::Message => {
                let payload = json!({"content_index": 0, "delta": text, "logprobs": []});
                self.item_event("response.output_text.delta", &id, payload, out);
            }
        }
    }

    fn close(&mut self, out: &mut StreamBuffer) {
        let Some(open) = self.open.take() else { return };
        match open.kind {
            Kind::Reasoning => {
                let payload = json!({"summary_index": 0, "text": open.text});
                self.item_event(
                    "response.reasoning_summary_text.done",
                    &open.id,
                    payload,
                    out,
                );
            }
            Kind::Message => {
                let payload = json!({"content_index": 0, "text": open.text, "logprobs": []});
                self.item_event("response.output_text.done", &open.id, payload, out);
                let payload = json!({"content_index": 0, "part": part(&open.text)});
                self.item_event("response.content_part.done", &open.id, payload, out);
            }
        }
        self.done(item(&open, "completed"), out);
    }

    fn call(&mut self, call: &ToolCall, out: &mut StreamBuffer) {
        self.close(out);
        let id = format!("fc_{}", id24());
        self.added(&self.function_call(&id, call, "in_progress", ""), out);
        let arguments = Value::Object(call.function.arguments.clone()).to_string();
        let payload = json!({"delta": arguments});
        self.item_event("response.function_call_arguments.delta", &id, payload, out);
        let done = self.function_call(&id, call, "completed", &arguments);
        let payload = json!({"name": done["name"], "arguments": arguments});
        self.item_event("response.function_call_arguments.done", &id, payload, out);
        self.done(done, out);
    }

    /// The item of a call. A tool of a namespace has its short name there.
    fn function_call(&self, id: &str, call: &ToolCall, status: &str, arguments: &str) -> Value {
        let mut item = json!({
            "id": id,
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.function.name,
            "arguments": arguments,
        });
        if let Some((namespace, name)) = self.namespaces.get(&call.function.name) {
            item["name"] = json!(name);
            item["namespace"] = json!(namespace);
        }
        item
    }

    fn piece(&mut self, piece: &Piece, out: &mut StreamBuffer) {
        match piece {
            Piece::Content(text) => self.text(Kind::Message, text, out),
            Piece::Thinking(text) => self.text(Kind::Reasoning, text, out),
            Piece::ToolCall(call) => self.call(call, out),
        }
    }
}

impl ResponseEncoder for ResponsesEncoder {
    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn begin(&mut self, _prompt_tokens: usize, out: &mut StreamBuffer) {
        for name in ["response.created", "response.in_progress"] {
            let payload = json!({"response": self.response("in_progress")});
            self.event(name, payload, out);
        }
    }

    /// Codex counts events and no comments: without any it gives up after five minutes.
    fn ping(&mut self, out: &mut StreamBuffer) {
        let payload = json!({"response": self.response("in_progress")});
        self.event("response.in_progress", payload, out);
    }

    fn part(&mut self, said: Delta, out: &mut StreamBuffer) {
        for piece in &said.pieces {
            self.piece(piece, out);
        }
    }

    fn end(&mut self, end: &End, out: &mut StreamBuffer) {
        self.close(out);
        let (status, response) = self.ended(end);
        let name = format!("response.{status}");
        self.event(&name, json!({"response": response}), out);
    }

    /// Some clients know a failure by the response that failed, others by an event of its own, behind which they do
    /// not read.
    fn error(&mut self, error: &ApiError, out: &mut StreamBuffer) {
        let failure = json!({"code": "server_error", "message": error.to_string()});
        let response = ResponseObject {
            error: Some(failure),
            ..self.response("failed")
        };
        let failed = json!({"response": response});
        self.event("response.failed", failed, out);
        let mut payload = Family::OpenAi.error(error);
        payload["message"] = json!(error.to_string());
        payload["code"] = payload["error"]["type"].clone();
        payload["param"] = Value::Null;
        self.event("error", payload, out);
    }

    /// The same as the stream, with nobody listening to the events.
    fn whole(&mut self, said: Delta, end: &End) -> Value {
        let said = said.gather();
        let mut unheard = StreamBuffer::default();
        if !said.thinking.is_empty() {
            self.text(Kind::Reasoning, &said.thinking, &mut unheard);
        }
        if !said.content.is_empty() {
            self.text(Kind::Message, &said.content, &mut unheard);
        }
        for call in &said.calls {
            self.call(call, &mut unheard);
        }
        self.close(&mut unheard);
        self.ended(end).1
    }
}

fn item_id(kind: Kind) -> String {
    match kind {
        Kind::Reasoning => format!("rs_{}", id24()),
        Kind::Message => format!("msg_{}", id24()),
    }
}

fn item(open: &Open, status: &str) -> Value {
    let complete = status == "completed";
    match open.kind {
        Kind::Reasoning => {
            let summary = json!([{"type": "summary_text", "text": open.text}]);
            let mut item = json!({
                "id": open.id,
                "type": "reasoning",
                "summary": if complete { summary } else { json!([]) },
            });
            if complete {
                // Clients send it back as it is; there is nothing to hide here.
                item["encrypted_content"] = json!(open.text);
            }
            item
        }
        Kind::Message => json!({
            "id": open.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": if complete { json!([part(&open.text)]) } else { json!([]) },
        }),
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}
