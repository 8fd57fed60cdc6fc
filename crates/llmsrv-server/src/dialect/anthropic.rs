//! The Anthropic dialect: `/v1/messages` (<https://docs.anthropic.com/en/api/messages>).

use llmsrv_api::{
    lenient::Fields,
    native::{Message, Tool, ToolCall, ToolCallFunction},
};
use llmsrv_chat::{Piece, Think};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    Delta, End, Family, Framing, ResponseEncoder, StreamBuffer, id24, native, parts, to_value,
};
use crate::{
    error::{ApiError, refuse},
    job::{Input, Job, ToolChoice},
};

/// Parses a request for an answer.
pub(crate) fn parse_messages(mut fields: Fields) -> Result<(Job, MessagesEncoder), ApiError> {
    let max_tokens = fields.integer("max_tokens")?;
    let mut job = conversation(&mut fields)?;
    let max_tokens = max_tokens.filter(|most| *most > 0);
    let max_tokens = max_tokens
        .ok_or_else(|| ApiError::bad_request("max_tokens is required and must be positive"))?;
    let mut options = parts::extra_options(&mut fields)?;
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    put("num_predict", Some(json!(max_tokens)));
    for name in ["temperature", "top_p"] {
        put(name, fields.take(name));
    }
    let stops = fields.texts("stop_sequences")?;
    if !stops.is_empty() {
        put("stop", Some(json!(stops)));
    }
    job.read_options(&options)?;
    job.keep_alive = native::keep_alive(&mut fields)?;
    // These dialects have no word for what was dropped: it happens only where it was asked for.
    job.truncate = fields.bool("truncate")?.unwrap_or(false);
    job.stream = fields.bool("stream")?.unwrap_or(false);
    let writer = MessagesEncoder {
        id: format!("msg_{}", id24()),
        model: job.model.clone(),
        stops,
        open: None,
        n_blocks: 0,
        called: false,
    };
    Ok((job, writer))
}

/// Parses what makes the prompt; alone it is a request to count its tokens.
pub(crate) fn parse_count(mut fields: Fields) -> Result<Job, ApiError> {
    conversation(&mut fields)
}

fn conversation(fields: &mut Fields) -> Result<Job, ApiError> {
    let model = fields.text("model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(ApiError::model_required)?;
    let sent = fields.objects("messages")?;
    if sent.is_empty() {
        refuse!("messages is required");
    }
    let mut messages = Vec::new();
    let mut system = fields.take("system");
    if let Some(Value::Array(blocks)) = &mut system {
        let is_accounting = |block: &Value| {
            let text = block["text"].as_str();
            text.is_some_and(|text| text.starts_with(ACCOUNTING))
        };
        blocks.retain(|block| !is_accounting(block));
    }
    let system = text_of(system, "system")?;
    if !system.is_empty() {
        messages.push(Message {
            role: "system".into(),
            content: system,
            ..Message::default()
        });
    }
    for message in sent {
        add_message(message, &mut messages)?;
    }
    parts::link_calls(&mut messages);
    let mut tools = Vec::new();
    for tool in fields.objects("tools")? {
        tools.extend(self::tool(tool)?);
    }
    let (choice, parallel_calls) = tool_choice(fields, &tools)?;
    let mut output = Fields::from(fields.object("output_config")?.unwrap_or_default());
    let format = match output.object("format")? {
        Some(format) => Some(format),
        None => fields.object("output_format")?,
    };

    let mut job = Job::new(model, Input::Chat { messages, tools });
    job.tool_choice = choice;
    job.parallel_calls = parallel_calls;
    job.think_if_able = true;
    job.think = think(fields, &mut output)?;
    if let Some(format) = format {
        let mut format = Fields::from(format);
        match (format.text("type")?.as_deref(), format.take("schema")) {
            (Some("json_schema"), Some(schema)) => job.grammar = native::grammar(schema)?,
            _ => {
                return Err(ApiError::bad_request(
                    "output_config.format must be {\"type\": \"json_schema\", \"schema\": {...}}",
                ));
            }
        }
    }
    Ok(job)
}

/// Adds a message; results of tools in it become messages of their own, before its text.
fn add_message(mut fields: Fields, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let role = fields.text("role")?.unwrap_or_default().to_lowercase();
    let mut message = Message {
        role,
        ..Message::default()
    };
    let blocks = match fields.take("content") {
        Some(Value::String(text)) => {
            message.content = text;
            messages.push(message);
            return Ok(());
        }
        Some(Value::Array(blocks)) => blocks,
        None => refuse!("messages: content is required"),
        Some(_) => refuse!("messages: content must be a string or a list of blocks"),
    };
    let mut has_results = false;
    for block in blocks {
        let Value::Object(block) = block else {
            refuse!("messages: a block must be an object");
        };
        let mut block = Fields::from(block);
        match block.text("type")?.as_deref() {
            Some("text") => {
                let text = block.text("text")?.unwrap_or_default();
                append(&mut message.content, &text);
            }
            Some("image") => message.images.push(image(&mut block)?),
            Some("thinking") => {
                let text = block.text("thinking")?.unwrap_or_default();
                append(&mut message.thinking, &text);
            }
            Some("tool_use") => {
                let present = |text: Option<String>| text.filter(|text| !text.is_empty());
                let (id, name) = (present(block.text("id")?), present(block.text("name")?));
                let (Some(id), Some(name)) = (id, name) else {
                    refuse!("tool_use needs id and name");
                };
                message.tool_calls.push(ToolCall {
                    id,
                    function: ToolCallFunction {
                        index: 0,
                        name,
                        arguments: block.object("input")?.unwrap_or_default(),
                    },
                });
            }
            Some("tool_result") => {
                has_results = true;
                messages.push(tool_result(&mut block)?);
            }
            // Kinds that came later than this program.
            _ => {}
        }
    }
    let is_empty = message.content.is_empty()
        && message.images.is_empty()
        && message.tool_calls.is_empty()
        && message.thinking.is_empty();
    if !(has_results && is_empty) {
        messages.push(message);
    }
    Ok(())
}

fn tool_result(block: &mut Fields) -> Result<Message, ApiError> {
    let mut result = Message {
        role: "tool".into(),
        tool_call_id: block.text("tool_use_id")?.unwrap_or_default(),
        ..Message::default()
    };
    match block.take("content") {
        None => {}
        Some(Value::String(text)) => result.content = text,
        Some(Value::Array(blocks)) => {
            for block in blocks {
                let Value::Object(block) = block else {
                    continue;
                };
                let mut block = Fields::from(block);
                match block.text("type")?.as_deref() {
                    Some("text") => {
                        let text = block.text("text")?.unwrap_or_default();
                        append(&mut result.content, &text);
                    }
                    Some("image") => result.images.push(image(&mut block)?),
                    _ => {}
                }
            }
        }
        Some(other) => result.content = other.to_string(),
    }
    Ok(result)
}

fn image(block: &mut Fields) -> Result<String, ApiError> {
    let mut source = Fields::from(block.object("source")?.unwrap_or_default());
    match (source.text("type")?.as_deref(), source.text("data")?) {
        (Some("base64"), Some(data)) => {
            native::check_image(&data)?;
            Ok(data)
        }
        _ => Err(ApiError::bad_request(
            "an image needs a source of type \"base64\" with its data",
        )),
    }
}

/// Reads a text, or the texts of a list of blocks.
fn text_of(value: Option<Value>, name: &str) -> Result<String, ApiError> {
    match value {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(blocks)) => {
            let mut all = String::new();
            for block in &blocks {
                append(&mut all, block["text"].as_str().unwrap_or_default());
            }
            Ok(all)
        }
        Some(_) => Err(ApiError::bad_request(format!(
            "{name} must be a string or a list of blocks"
        ))),
    }
}

/// How a block of Claude Code begins that is meant for Anthropic's accounts. It differs from prompt to prompt, so
/// nothing behind it would be found in the prefix cache.
const ACCOUNTING: &str = "x-anthropic-billing-header:";

fn append(all: &mut String, text: &str) {
    if !all.is_empty() && !text.is_empty() {
        all.push('\n');
    }
    all.push_str(text);
}

/// Reads a tool; those that run at the service itself do not exist here and are left out.
fn tool(mut fields: Fields) -> Result<Option<Tool>, ApiError> {
    let kind = fields.text("type")?.unwrap_or_else(|| "custom".into());
    if kind != "custom" {
        tracing::warn!(kind, "a tool of the service is not available here");
        return Ok(None);
    }
    let name = fields.text("name")?.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| ApiError::bad_request("tools: name is required"))?;
    let description = fields.text("description")?;
    let strict = fields.bool("strict")?;
    let schema = fields.take("input_schema");
    Ok(Some(parts::tool(name, description, schema, strict)))
}

/// Reads which tools may be called, and whether more than one call may be in an answer.
fn tool_choice(fields: &mut Fields, tools: &[Tool]) -> Result<(ToolChoice, bool), ApiError> {
    let Some(choice) = fields.object("tool_choice")? else {
        return Ok((ToolChoice::Auto, true));
    };
    let mut choice = Fields::from(choice);
    let one_call = choice.bool("disable_parallel_tool_use")?.unwrap_or(false);
    let choice = match choice.text("type")?.as_deref() {
        None | Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("any") => ToolChoice::Required,
        Some("tool") => ToolChoice::Named(choice.text("name")?.unwrap_or_default()),
        Some(other) => refuse!(
            "invalid tool_choice: {other:?} (must be \"auto\", \"any\", \"tool\" or \"none\")"
        ),
    };
    Ok((parts::check_choice(choice, tools)?, !one_call))
}

fn think(fields: &mut Fields, output: &mut Fields) -> Result<Option<Think>, ApiError> {
    let effort = output.text("effort")?;
    let effort = effort.map(|text| parts::effort(&text)).transpose()?;
    let thinking = fields.object("thinking")?;
    let Some(thinking) = thinking else {
        return Ok(effort);
    };
    match Fields::from(thinking).text("type")?.as_deref() {
        Some("disabled") => Ok(Some(Think::Off)),
        Some("enabled" | "adaptive") => Ok(Some(effort.unwrap_or(Think::On))),
        _ => Err(ApiError::bad_request(
            "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"",
        )),
    }
}

/// Writes an answer.
pub(crate) struct MessagesEncoder {
    id: String,
    model: String,
    /// The client's own stop texts.
    stops: Vec<String>,
    /// The block that is being written.
    open: Option<Block>,
    n_blocks: usize,
    called: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
}

impl MessagesEncoder {
    fn message(&self, content: Vec<Value>, usage: AnthropicUsage) -> AnthropicMessage {
        AnthropicMessage {
            id: self.id.clone(),
            r#type: "message",
            role: "assistant",
            model: self.model.clone(),
            content,
            stop_reason: None,
            stop_sequence: None,
            usage,
        }
    }

    /// Returns why the answer ended, and the client's stop text if that was it.
    fn stop(&self, end: &End) -> (&'static str, Option<String>) {
        let stop = end
            .stop_text
            .clone()
            .filter(|text| self.stops.contains(text));
        let reason = if parts::is_cut(end) {
            "max_tokens"
        } else if self.called {
            "tool_use"
        } else if stop.is_some() {
            "stop_sequence"
        } else {
            "end_turn"
        };
        (reason, stop)
    }

    fn text(&mut self, kind: Block, text: &str, out: &mut StreamBuffer) {
        if self.open != Some(kind) {
            self.close(out);
            let block = match kind {
                Block::Text => json!({"type": "text", "text": ""}),
                Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            };
            self.start(&block, out);
            self.open = Some(kind);
        }
        let delta = match kind {
            Block::Text => json!({"type": "text_delta", "text": text}),
            Block::Thinking => json!({"type": "thinking_delta", "thinking": text}),
        };
        self.delta(&delta, out);
    }

    fn call(&mut self, call: &ToolCall, out: &mut StreamBuffer) {
        self.close(out);
        self.called = true;
        let function = &call.function;
        let block = json!({"type": "tool_use", "id": call.id, "name": function.name, "input": {}});
        self.start(&block, out);
        let arguments = Value::Object(function.arguments.clone()).to_string();
        let delta = json!({"type": "input_json_delta", "partial_json": arguments});
        self.delta(&delta, out);
        self.stop_block(out);
    }

    fn start(&self, block: &Value, out: &mut StreamBuffer) {
        out.event(
            "content_block_start",
            &json!({"type": "content_block_start", "index": self.n_blocks, "content_block": block}),
        );
    }

    fn delta(&self, delta: &Value, out: &mut StreamBuffer) {
        out.event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": self.n_blocks, "delta": delta}),
        );
    }

    fn close(&mut self, out: &mut StreamBuffer) {
        if self.open.take().is_some() {
            self.stop_block(out);
        }
    }

    fn stop_block(&mut self, out: &mut StreamBuffer) {
        out.event(
            "content_block_stop",
            &json!({"type": "content_block_stop", "index": self.n_blocks}),
        );
        self.n_blocks += 1;
    }
}

impl ResponseEncoder for MessagesEncoder {
    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn begin(&mut self, prompt_tokens: usize, out: &mut StreamBuffer) {
        let usage = AnthropicUsage {
            input_tokens: prompt_tokens as u64,
            ..AnthropicUsage::default()
        };
        let message = self.message(Vec::new(), usage);
        out.event(
            "message_start",
            &json!({"type": "message_start", "message": message}),
        );
    }

    fn part(&mut self, said: Delta, out: &mut StreamBuffer) {
        for piece in said.pieces {
            match piece {
                Piece::Content(text) => self.text(Block::Text, &text, out),
                Piece::Thinking(text) => self.text(Block::Thinking, &text, out),
                Piece::ToolCall(call) => self.call(&call, out),
            }
        }
    }

    fn end(&mut self, end: &End, out: &mut StreamBuffer) {
        self.close(out);
        let (reason, stop) = self.stop(end);
        out.event(
            "message_delta",
            &json!({
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": stop},
                "usage": AnthropicUsage::of(end),
            }),
        );
        out.event("message_stop", &json!({"type": "message_stop"}));
    }

    fn error(&mut self, error: &ApiError, out: &mut StreamBuffer) {
        out.event("error", &Family::Anthropic.error(error));
    }

    fn whole(&mut self, said: Delta, end: &End) -> Value {
        let said = said.gather();
        let mut content = Vec::new();
        if !said.thinking.is_empty() {
            content.push(json!({"type": "thinking", "thinking": said.thinking, "signature": ""}));
        }
        if !said.content.is_empty() {
            content.push(json!({"type": "text", "text": said.content}));
        }
        for call in said.calls {
            self.called = true;
            content.push(json!({
                "type": "tool_use",
                "id": call.id,
                "name": call.function.name,
                "input": call.function.arguments,
            }));
        }
        let (reason, stop) = self.stop(end);
        to_value(&AnthropicMessage {
            stop_reason: Some(reason),
            stop_sequence: stop,
            ..self.message(content, AnthropicUsage::of(end))
        })
    }
}

/// A whole answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicMessage {
    id: String,
    /// `message`.
    r#type: &'static str,
    /// `assistant`.
    role: &'static str,
    model: String,
    /// Blocks: `text`, `thinking` and `tool_use`.
    #[schema(value_type = Vec<Object>)]
    content: Vec<Value>,
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    #[schema(value_type = String, required)]
    stop_reason: Option<&'static str>,
    #[schema(required)]
    stop_sequence: Option<String>,
    usage: AnthropicUsage,
}

/// Numbers of tokens. This dialect counts tokens computed before apart from the others; the reference server does
/// not, and clients add what they are told.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct AnthropicUsage {
    input_tokens: u64,
    output_tokens: u64,
    /// Tokens that the prompt lost; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_truncated: Option<u64>,
}

impl AnthropicUsage {
    fn of(end: &End) -> AnthropicUsage {
        AnthropicUsage {
            input_tokens: end.metrics.prompt_eval_count,
            output_tokens: end.metrics.eval_count,
            prompt_truncated: end.truncated(),
        }
    }
}

/// What a prompt comes to.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenCount {
    pub(crate) input_tokens: u64,
}

/// A refusal.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicError {
    /// `error`.
    pub(super) r#type: &'static str,
    pub(super) error: AnthropicErrorDetail,
    pub(super) request_id: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicErrorDetail {
    /// `invalid_request_error`, `not_found_error`, `overloaded_error` and the like.
    pub(super) r#type: &'static str,
    /// Why.
    pub(super) message: String,
}
