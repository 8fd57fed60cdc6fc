//! The OpenAI and the Anthropic dialect (`/v1/*`).
#![expect(dead_code, reason = "the types are there for their schemas")]

use llmsrv_api::options::Stop;
use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::{RefOr, Schema},
};

use super::{EVENTS, JSON, REFUSALS, Row, Schemas, native::KeepAlive, text};
use crate::dialect::{
    anthropic::{AnthropicError, AnthropicMessage, TokenCount},
    openai::answer::{
        ChatCompletion, Completion, OpenAiError, OpenAiModel, OpenAiModels, OpenAiToolCall,
    },
    responses::ResponseObject,
};

/// Returns the endpoints.
pub(super) fn rows(s: &mut Schemas) -> Vec<Row> {
    let error = s.add::<OpenAiError>();
    let lists = |path, what, also: &[u16]| {
        Row::get(path, OPENAI, what).refuses(&error, &[also, &[401, 500, 503]].concat())
    };
    let openai = |path, what| Row::post(path, OPENAI, what).refuses(&error, REFUSALS);
    let error = s.add::<AnthropicError>();
    let anthropic = |path, what| Row::post(path, ANTHROPIC, what).refuses(&error, REFUSALS);
    vec![
        lists("/v1/models", "List the models on disk", &[])
            .gives("The models", s.add::<OpenAiModels>()),
        lists("/v1/models/{model}", "Describe a model", &[400, 404])
            .parameter("model", "Name of the model; slashes in it are understood.")
            .gives("The model", s.add::<OpenAiModel>()),
        openai("/v1/chat/completions", "Answer a conversation")
            .takes(s.add::<ChatCompletionRequest>())
            .answers(
                200,
                "The answer, whole or as events",
                either(s.add::<ChatCompletion>()),
            ),
        openai("/v1/completions", "Continue a prompt")
            .takes(s.add::<CompletionRequest>())
            .answers(
                200,
                "The text, whole or as events",
                either(s.add::<Completion>()),
            ),
        openai("/v1/responses", "Answer a conversation of items")
            .about("Responses are not kept: the whole conversation is sent each time.")
            .takes(s.add::<ResponseRequest>())
            .answers(
                200,
                "The response, whole or as events",
                either(s.add::<ResponseObject<'_>>()),
            ),
        anthropic("/v1/messages", "Answer a conversation")
            .takes(s.add::<MessagesRequest>())
            .answers(
                200,
                "The message, whole or as events",
                either(s.add::<AnthropicMessage>()),
            ),
        anthropic("/v1/messages/count_tokens", "Count the tokens of a prompt")
            .takes(s.add::<CountRequest>())
            .gives("The number", s.add::<TokenCount>()),
    ]
}

/// An answer that is one object or comes as server-sent events.
fn either(schema: RefOr<Schema>) -> [(&'static str, RefOr<Schema>); 2] {
    [(JSON, schema), (EVENTS, text())]
}

const OPENAI: &str = "OpenAI";
const ANTHROPIC: &str = "Anthropic";

/// What a client of this dialect says of a conversation.
#[derive(ToSchema)]
struct ChatCompletionRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    #[schema(min_items = 1)]
    messages: Vec<OpenAiMessage>,
    tools: Option<Vec<OpenAiTool>>,
    tool_choice: Option<OpenAiToolChoice>,
    /// More than one call may be in an answer; this is the default.
    parallel_tool_calls: Option<bool>,
    response_format: Option<ResponseFormat>,
    /// As events; off by default.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// 1.0 unless it is given.
    temperature: Option<f32>,
    /// 1.0 unless it is given.
    top_p: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<Stop>,
    #[schema(minimum = -1)]
    max_tokens: Option<i64>,
    #[schema(minimum = -1)]
    max_completion_tokens: Option<i64>,
    /// So many answers to the same prompt.
    #[schema(minimum = 1, maximum = 32)]
    n: Option<i64>,
    /// A number to add for each of these tokens.
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Value>,
    logprobs: Option<bool>,
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    reasoning_effort: Option<Effort>,
    keep_alive: Option<KeepAlive>,
    /// Drop old messages when the prompt is too long; it is refused otherwise.
    truncate: Option<bool>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

#[derive(ToSchema)]
struct OpenAiMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    role: String,
    content: OpenAiContent,
    tool_calls: Option<Vec<OpenAiToolCall>>,
    tool_call_id: Option<String>,
    name: Option<String>,
}

#[derive(ToSchema)]
#[serde(untagged)]
enum OpenAiContent {
    Text(String),
    Parts(Vec<TextPart>),
}

/// A text; images are `image_url` parts.
#[derive(ToSchema)]
struct TextPart {
    r#type: TextPartType,
    text: String,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum TextPartType {
    Text,
}

#[derive(ToSchema)]
struct OpenAiTool {
    r#type: FunctionType,
    function: OpenAiFunction,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum FunctionType {
    Function,
}

#[derive(ToSchema)]
struct OpenAiFunction {
    #[schema(min_length = 1)]
    name: String,
    description: Option<String>,
    /// Arguments satisfy the schema whatever the model would like to say.
    strict: Option<bool>,
    /// JSON Schema of the arguments.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
}

/// `none`, `auto`, `required`, or a function that must be called.
#[derive(ToSchema)]
#[serde(untagged)]
enum OpenAiToolChoice {
    Word(String),
    #[schema(value_type = Object)]
    Function(Value),
}

#[derive(ToSchema)]
struct ResponseFormat {
    /// `text`, `json_object` or `json_schema`.
    r#type: String,
    #[schema(value_type = Option<Object>)]
    json_schema: Option<Value>,
}

#[derive(ToSchema)]
struct StreamOptions {
    /// End the stream with the number of tokens.
    include_usage: Option<bool>,
}

#[derive(ToSchema)]
struct CompletionRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    /// The text to continue.
    prompt: Option<Stop>,
    /// Text after the gap that the model fills.
    suffix: Option<String>,
    /// Begin the answer with the prompt.
    echo: Option<bool>,
    /// As events; off by default.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// 1.0 unless it is given.
    temperature: Option<f32>,
    /// 1.0 unless it is given.
    top_p: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<Stop>,
    #[schema(minimum = -1)]
    max_tokens: Option<i64>,
    /// So many answers to the same prompt.
    #[schema(minimum = 1, maximum = 32)]
    n: Option<i64>,
    /// Make so many answers and give the `n` most probable ones; not for streams.
    #[schema(minimum = 1, maximum = 32)]
    best_of: Option<i64>,
    /// A number to add for each of these tokens.
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Value>,
    /// Alternatives reported for each token.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<i64>,
    keep_alive: Option<KeepAlive>,
    /// Cut a prompt that is too long; it is refused otherwise.
    truncate: Option<bool>,
}

#[derive(ToSchema)]
struct ResponseRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    /// A text, or the items so far.
    input: ResponseInput,
    /// The system text.
    instructions: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<OpenAiToolChoice>,
    /// How the answer is to look.
    #[schema(value_type = Option<Object>)]
    text: Option<Value>,
    /// How hard to think.
    #[schema(value_type = Option<Object>)]
    reasoning: Option<Value>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    #[schema(minimum = 1)]
    max_output_tokens: Option<i64>,
    /// `auto` drops old messages when the prompt is too long.
    truncation: Option<String>,
    /// As events; off by default.
    stream: Option<bool>,
    /// Only false is possible.
    background: Option<bool>,
    parallel_tool_calls: Option<bool>,
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
    keep_alive: Option<KeepAlive>,
}

#[derive(ToSchema)]
#[serde(untagged)]
enum ResponseInput {
    Text(String),
    #[schema(value_type = Vec<Object>)]
    Items(Vec<Value>),
}

/// What a client of this dialect says of a conversation.
#[derive(ToSchema)]
struct MessagesRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    #[schema(min_items = 1)]
    messages: Vec<AnthropicInput>,
    /// Most tokens to generate.
    #[schema(minimum = 1)]
    max_tokens: i64,
    /// The system text, or blocks of it.
    system: Option<AnthropicContent>,
    tools: Option<Vec<AnthropicTool>>,
    tool_choice: Option<AnthropicToolChoice>,
    thinking: Option<AnthropicThinking>,
    stop_sequences: Option<Vec<String>>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    /// As events; off by default.
    stream: Option<bool>,
    keep_alive: Option<KeepAlive>,
    /// Drop old messages when the prompt is too long; it is refused otherwise.
    truncate: Option<bool>,
}

#[derive(ToSchema)]
struct CountRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    #[schema(min_items = 1)]
    messages: Vec<AnthropicInput>,
    /// The system text, or blocks of it.
    system: Option<AnthropicContent>,
    tools: Option<Vec<AnthropicTool>>,
    tool_choice: Option<AnthropicToolChoice>,
    thinking: Option<AnthropicThinking>,
}

#[derive(ToSchema)]
struct AnthropicInput {
    /// `user` or `assistant`.
    role: String,
    content: AnthropicContent,
}

#[derive(ToSchema)]
#[serde(untagged)]
enum AnthropicContent {
    Text(String),
    Blocks(Vec<TextPart>),
}

#[derive(ToSchema)]
struct AnthropicTool {
    #[schema(min_length = 1)]
    name: String,
    description: Option<String>,
    /// Arguments satisfy the schema whatever the model would like to say.
    strict: Option<bool>,
    /// JSON Schema of the arguments.
    #[schema(value_type = Option<Object>)]
    input_schema: Option<Value>,
}

#[derive(ToSchema)]
struct AnthropicToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    r#type: String,
    name: Option<String>,
    /// At most one call is in the answer.
    disable_parallel_tool_use: Option<bool>,
}

#[derive(ToSchema)]
struct AnthropicThinking {
    /// `enabled`, `adaptive` or `disabled`.
    r#type: String,
}
