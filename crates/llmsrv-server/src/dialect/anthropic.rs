//! The Anthropic dialect: `/v1/messages` (<https://docs.anthropic.com/en/api/messages>).

use llmsrv_api::{
    keep_alive::KeepAlive,
    lenient::Fields,
    members::FromValue as _,
    native::{Message, Tool, ToolCall, ToolCallFunction},
    one_of, request, tagged,
};
use llmsrv_chat::{Piece, Think};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    Delta, End, Family, Framing, ResponseEncoder, StreamBuffer, id24, native,
    parts::{self, Beside, Effort},
    to_value,
};
use crate::{
    error::{ApiError, refuse},
    format::grammar_of,
    job::{Input, Job, ToolChoice},
};

request! {
    /// What a client of this dialect says of a conversation.
    pub(crate) struct MessagesRequest with prompt: CountRequest, options: AnthropicOptions {
        /// Most tokens to generate.
        #[schema(value_type = i64, minimum = 1)] max_tokens: Option<i64>,
        stop_sequences: Option<Vec<String>>,
        /// As events; off by default.
        stream: Option<bool>,
        keep_alive: Option<KeepAlive>,
        /// Drop old messages when the prompt is too long; it is refused otherwise.
        truncate: Option<bool>,
    }

    pub(crate) struct CountRequest {
        /// Name of the model, such as `qwen3:8b`.
        model: String,
        #[schema(min_items = 1)] messages: Vec<AnthropicInput>,
        /// The system text, or blocks of it.
        system: Option<AnthropicSystem>,
        #[schema(value_type = Option<Vec<AnthropicTool>>)] tools: Vec<Fields>,
        tool_choice: Option<AnthropicToolChoice>,
        thinking: Option<AnthropicThinking>,
        output_config: Option<OutputConfig>,
        #[schema(ignore)] output_format: Option<OutputFormat>,
    }

    object AnthropicInput {
        /// `user` or `assistant`.
        role: String,
        #[schema(value_type = AnthropicContent)] content: Option<AnthropicContent>,
    }

    struct AnthropicTool {
        #[schema(min_length = 1)] name: String,
        description: Option<String>,
        /// Arguments satisfy the schema whatever the model would like to say.
        strict: Option<bool>,
        /// JSON Schema of the arguments.
        #[schema(value_type = Option<Object>)] input_schema: Option<Value>,
    }

    object AnthropicToolChoice {
        /// `auto`, `any`, `tool` or `none`.
        #[schema(value_type = String)] r#type: Option<String>,
        name: Option<String>,
        /// At most one call is in the answer.
        disable_parallel_tool_use: Option<bool>,
    }

    object AnthropicThinking {
        /// `enabled`, `adaptive` or `disabled`.
        r#type: String,
    }

    /// What the answer must be like.
    object OutputConfig {
        format: Option<OutputFormat>,
        effort: Option<Effort>,
    }

    object OutputFormat {
        /// `json_schema`.
        r#type: String,
        /// JSON Schema of the answer.
        #[schema(value_type = Object)] schema: Option<Value>,
    }

    object DocumentSource {
        /// `text` or `content`; others cannot be read here.
        r#type: String,
        #[schema(value_type = Option<String>)] data: Option<String>,
        #[schema(value_type = Option<Object>)] content: Option<Value>,
    }

    object ImageSource {
        /// `base64`.
        r#type: String,
        #[schema(value_type = String)] data: Option<String>,
    }
}

one_of! {
    enum AnthropicContent {
        Text(String),
        Blocks(Vec<AnthropicBlock>),
    } else |_, value| if value.is_array() {
        "messages: a block must be an object".into()
    } else {
        "messages: content must be a string or a list of blocks".into()
    }
}

tagged! {
    enum AnthropicBlock {
        "text" => Text { text: String, }
        "image" => Image { source: ImageSource, }
        "thinking" => Thinking { thinking: String, }
        "document" => Document {
            title: Option<String>,
            #[schema(value_type = Object)] source: DocumentSource,
        }
        "search_result" => SearchResult {
            title: Option<String>,
            source: Option<String>,
            #[schema(value_type = Vec<Object>)] content: Option<Value>,
        }
        "tool_use" => ToolUse {
            id: String,
            name: String,
            #[schema(value_type = Option<Object>)] input: Map<String, Value>,
        }
        "tool_result" => ToolResult {
            tool_use_id: String,
            /// A text, or blocks of texts and images.
            content: Option<Value>,
        }
    }
}

one_of! {
    enum AnthropicSystem {
        Text(String),
        #[schema(value_type = Vec<Object>)] Blocks(Vec<Value>),
    } else |_, _| "system must be a string or a list of blocks".into()
}

type AnthropicOptions = Beside<Anthropic>;
struct Anthropic;

impl parts::Dialect for Anthropic {
    const OWN: &'static [(&'static str, Option<f64>)] = &[("temperature", None), ("top_p", None)];
}

/// Makes a job of a request for an answer, and what writes the answer.
pub(crate) fn messages(request: MessagesRequest) -> Result<(Job, MessagesEncoder), ApiError> {
    let mut job = count(request.prompt)?;
    let max_tokens = request.max_tokens.filter(|most| *most > 0);
    let Some(max_tokens) = max_tokens else {
        refuse!("max_tokens is required and must be positive");
    };
    job.read_options(&request.options.options)?;
    job.options.num_predict = Some(max_tokens);
    let stops = request.stop_sequences.unwrap_or_default();
    if !stops.is_empty() {
        job.options.stop = Some(stops.clone());
    }
    job.keep_alive = request.keep_alive;
    // These dialects have no word for what was dropped: it happens only where it was asked for.
    job.truncate = request.truncate.unwrap_or(false);
    job.stream = request.stream.unwrap_or(false);
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

/// Makes a job of what makes the prompt; alone it is a request to count its tokens.
pub(crate) fn count(request: CountRequest) -> Result<Job, ApiError> {
    if request.model.is_empty() {
        return Err(ApiError::model_required());
    }
    if request.messages.is_empty() {
        refuse!("messages is required");
    }
    let mut messages = Vec::new();
    let system = request.system.map_or_else(String::new, system);
    if !system.is_empty() {
        messages.push(Message {
            role: "system".into(),
            content: system,
            ..Message::default()
        });
    }
    for message in request.messages {
        add_message(message, &mut messages)?;
    }
    parts::link_calls(&mut messages);
    let mut tools = Vec::new();
    for tool in request.tools {
        tools.extend(self::tool(tool)?);
    }
    let (choice, parallel_calls) = tool_choice(request.tool_choice, &tools)?;
    let (format, effort) = match request.output_config {
        Some(output) => (output.format, output.effort),
        None => (None, None),
    };
    let mut job = Job::new(request.model, Input::Chat { messages, tools });
    job.tool_choice = choice;
    job.parallel_calls = parallel_calls;
    job.think_if_able = true;
    job.think = think(request.thinking, effort.map(|effort| effort.0))?;
    if let Some(format) = format.or(request.output_format) {
        match (format.r#type.as_str(), format.schema) {
            ("json_schema", Some(schema)) => job.grammar = grammar_of(&schema)?,
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
fn add_message(sent: AnthropicInput, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let mut message = Message {
        role: sent.role.to_lowercase(),
        ..Message::default()
    };
    let blocks = match sent.content {
        Some(AnthropicContent::Text(text)) => {
            message.content = text;
            messages.push(message);
            return Ok(());
        }
        Some(AnthropicContent::Blocks(blocks)) => blocks,
        None => refuse!("messages: content is required"),
    };
    let mut has_results = false;
    for block in blocks {
        match block {
            AnthropicBlock::Text { text } => append(&mut message.content, &text),
            AnthropicBlock::Image { source } => message.images.push(image(source)?),
            AnthropicBlock::Thinking { thinking } => append(&mut message.thinking, &thinking),
            AnthropicBlock::ToolUse { id, name, input } => {
                if id.is_empty() || name.is_empty() {
                    refuse!("tool_use needs id and name");
                }
                message.tool_calls.push(ToolCall {
                    id,
                    function: ToolCallFunction {
                        index: 0,
                        name,
                        arguments: input,
                    },
                });
            }
            AnthropicBlock::ToolResult {
                tool_use_id,
                content,
            } => {
                has_results = true;
                messages.push(tool_result(tool_use_id, content)?);
            }
            AnthropicBlock::Document { title, source } => {
                document(title, source, &mut message)?;
            }
            AnthropicBlock::SearchResult {
                title,
                source,
                content,
            } => search_result([title, source], content, &mut message)?,
            AnthropicBlock::Other(kind) => left_out(&kind),
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

fn tool_result(tool_call_id: String, content: Option<Value>) -> Result<Message, ApiError> {
    let mut result = Message {
        role: "tool".into(),
        tool_call_id,
        ..Message::default()
    };
    match content {
        None => {}
        Some(blocks @ (Value::String(_) | Value::Array(_))) => shown(blocks, &mut result)?,
        Some(other) => result.content = other.to_string(),
    }
    Ok(result)
}

/// Adds what tools and documents show: a text, or blocks of texts, images, documents and results of a search.
fn shown(content: Value, message: &mut Message) -> Result<(), ApiError> {
    let blocks = match content {
        Value::Array(blocks) => blocks,
        text => {
            append(&mut message.content, text.as_str().unwrap_or_default());
            return Ok(());
        }
    };
    for block in blocks.into_iter().filter(Value::is_object) {
        match AnthropicBlock::from_value(block, "content")? {
            AnthropicBlock::Text { text } => append(&mut message.content, &text),
            AnthropicBlock::Image { source } => message.images.push(image(source)?),
            AnthropicBlock::Document { title, source } => document(title, source, message)?,
            AnthropicBlock::SearchResult {
                title,
                source,
                content,
            } => search_result([title, source], content, message)?,
            AnthropicBlock::Other(kind) => left_out(&kind),
            AnthropicBlock::Thinking { .. }
            | AnthropicBlock::ToolUse { .. }
            | AnthropicBlock::ToolResult { .. } => {}
        }
    }
    Ok(())
}

/// Adds the text of a document. One that cannot be read is no error: it stays in the conversation, where it would
/// refuse every later request, so the model is told instead.
fn document(
    title: Option<String>,
    source: DocumentSource,
    message: &mut Message,
) -> Result<(), ApiError> {
    append(&mut message.content, &title.unwrap_or_default());
    match (source.r#type.as_str(), source.data, source.content) {
        ("text", Some(text), _) => append(&mut message.content, &text),
        ("content", _, Some(content)) => shown(content, message)?,
        (kind, ..) => {
            tracing::warn!(kind, "a document cannot be read here");
            append(&mut message.content, UNREADABLE);
        }
    }
    Ok(())
}

fn search_result(
    about: [Option<String>; 2],
    content: Option<Value>,
    message: &mut Message,
) -> Result<(), ApiError> {
    for line in about.into_iter().flatten() {
        append(&mut message.content, &line);
    }
    content.map_or(Ok(()), |content| shown(content, message))
}

/// Says of kinds of blocks that came later than this program, or belong to the service itself.
fn left_out(kind: &str) {
    tracing::debug!(kind, "a block of a message is left out");
}

/// What the model is told in place of a document such as a PDF.
const UNREADABLE: &str =
    "[A document is attached here that this server cannot read. Say so if it matters.]";

fn image(source: ImageSource) -> Result<String, ApiError> {
    match (source.r#type.as_str(), source.data) {
        ("base64", Some(data)) => {
            native::check_image(&data)?;
            Ok(data)
        }
        _ => Err(ApiError::bad_request(
            "an image needs a source of type \"base64\" with its data",
        )),
    }
}

/// Returns the system text.
fn system(system: AnthropicSystem) -> String {
    let blocks = match system {
        AnthropicSystem::Text(text) => return text,
        AnthropicSystem::Blocks(blocks) => blocks,
    };
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let mut all = String::new();
    for text in texts.filter(|text| !text.starts_with(ACCOUNTING)) {
        append(&mut all, text);
    }
    all
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
    let kind: Option<String> = fields.get("type")?;
    if let Some(kind) = kind.filter(|kind| kind != "custom") {
        tracing::warn!(kind, "a tool of the service is not available here");
        return Ok(None);
    }
    let tool: AnthropicTool = fields.get("")?;
    if tool.name.is_empty() {
        refuse!("tools: name is required");
    }
    let (description, schema) = (tool.description, tool.input_schema);
    Ok(Some(parts::tool(
        tool.name,
        description,
        schema,
        tool.strict,
    )))
}

/// Reads which tools may be called, and whether more than one call may be in an answer.
fn tool_choice(
    choice: Option<AnthropicToolChoice>,
    tools: &[Tool],
) -> Result<(ToolChoice, bool), ApiError> {
    let Some(asked) = choice else {
        return Ok((ToolChoice::Auto, true));
    };
    let choice = match asked.r#type.as_deref() {
        None | Some("auto") => ToolChoice::Auto,
        Some("none") => ToolChoice::None,
        Some("any") => ToolChoice::Required,
        Some("tool") => ToolChoice::Named(asked.name.unwrap_or_default()),
        Some(other) => refuse!(
            "invalid tool_choice: {other:?} (must be \"auto\", \"any\", \"tool\" or \"none\")"
        ),
    };
    let one_call = asked.disable_parallel_tool_use.unwrap_or(false);
    Ok((parts::check_choice(choice, tools)?, !one_call))
}

fn think(
    thinking: Option<AnthropicThinking>,
    effort: Option<Think>,
) -> Result<Option<Think>, ApiError> {
    // Whoever does not ask for thinking reads the first block of the answer as its text, and may have asked for few
    // tokens. An effort alone says how much the whole answer may cost.
    let Some(thinking) = thinking else {
        return Ok(Some(Think::Off));
    };
    match thinking.r#type.as_str() {
        "disabled" => Ok(Some(Think::Off)),
        "enabled" | "adaptive" => Ok(Some(effort.unwrap_or(Think::On))),
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
        let Some(open) = self.open.take() else { return };
        if open == Block::Thinking {
            // Clients send back only thinking that was signed.
            self.delta(&json!({"type": "signature_delta", "signature": ""}), out);
        }
        self.stop_block(out);
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
