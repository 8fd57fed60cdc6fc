//! The native API (`/api/*`) and what is for operators.
#![expect(dead_code, reason = "the types are there for their schemas")]

use llmsrv_api::{
    native::{
        ChatResponse, Content, GenerateResponse, Health, Message, Models, Running, Shown, Status,
        Tokens, Tool, Version,
    },
    options::Options,
    requests::LatestRequests,
};
use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::{HttpMethod, RefOr, Schema},
};

use super::{JSON, LINES, REFUSALS, Row, Schemas, text};

/// Returns the endpoints.
pub(super) fn rows(schemas: &mut Schemas) -> Vec<Row> {
    let s = schemas;
    let error = s.add::<Error>();
    let version = s.add::<Version>();
    let tags = s.add::<Models>();
    let read = |path, tag, what| Row::get(path, tag, what).refuses(&error, &[401]);
    let named = |path, tag, what| Row::post(path, tag, what).refuses(&error, REFUSALS);
    let mut rows = vec![
        Row::get("/", OPERATION, "Say that the server is there").answers(
            200,
            "`Ollama is running`, as clients expect it; the web app for those who accept `text/html`",
            [("text/plain", text()), ("text/html", text())],
        ),
        Row::get("/app/{version}/{file}", OPERATION, "Give a file of the web app")
            .parameter("version", "Version of the app, as its page names it")
            .parameter("file", "Name of the file")
            .answers(200, "The file, which never changes", [("text/javascript", text()), ("text/css", text())])
            .answers(404, "There is no such file in this version", [("text/plain", text())]),
        Row::get("/health", OPERATION, "Tell whether the server takes work")
            .gives("It does", s.add::<Health>())
            .answers(503, "It is shutting down", [(JSON, s.add::<Health>())]),
        read("/metrics", OPERATION, "Give figures for Prometheus")
            .about("Requests, tokens, queue, latencies, loaded models and memory; as OpenMetrics where the client accepts that.")
            .answers(200, "The figures", [("text/plain", text()), ("application/openmetrics-text", text())]),
        read("/api/requests", OPERATION, "List the latest requests")
            .about("Newest first, without their bodies.")
            .gives("The requests", s.add::<LatestRequests>()),
        read("/openapi.json", OPERATION, "Give this document")
            .gives("The document", s.add::<Document>()),
        read("/api/version", OPERATION, "Tell the version")
            .about("`version` is the version of the API that is spoken, `llmsrv_version` the program's own.")
            .gives("The version", version),
        read("/api/status", OPERATION, "Tell that there is no cloud, and what the caller may do")
            .gives("The cloud is always disabled", s.add::<Status>()),
        read("/api/tags", MODELS, "List the models on disk").gives("The models", tags),
        read("/api/ps", MODELS, "List the models in memory").gives("The models", s.add::<Running>()),
        named("/api/show", MODELS, "Describe a model")
            .takes(s.add::<ShowRequest>())
            .gives("Everything known of it", s.add::<Shown>()),
        named("/api/copy", MODELS, "Give a model a second name")
            .takes(s.add::<CopyRequest>())
            .answers(200, "Done", []),
        Row::new(HttpMethod::Delete, "/api/delete", MODELS, "Delete a model")
            .refuses(&error, REFUSALS)
            .takes(s.add::<ModelRequest>())
            .answers(200, "Done", []),
        named("/api/generate", TEXT, "Continue a prompt")
            .about("An empty prompt loads the model; with `keep_alive` 0 it unloads it.")
            .takes(s.add::<GenerateRequest>())
            .answers(200, "The text, whole or line by line", both(s.add::<GenerateResponse>())),
        named("/api/chat", TEXT, "Answer a conversation")
            .about("No messages load the model; with `keep_alive` 0 they unload it.")
            .takes(s.add::<ChatRequest>())
            .answers(200, "The answer, whole or line by line", both(s.add::<ChatResponse>())),
        named("/api/tokenize", TOKENS, "Turn text into tokens")
            .about("Needs the vocabulary of the model only, which need not be loaded.")
            .takes(s.add::<TokenizeRequest>())
            .gives("The tokens", s.add::<Tokens>()),
        named("/api/detokenize", TOKENS, "Turn tokens into text")
            .takes(s.add::<DetokenizeRequest>())
            .gives("The text", s.add::<Content>()),
    ];
    for path in ["/", "/api/version", "/api/tags"] {
        let row = Row::new(HttpMethod::Head, path, OPERATION, "Look without the body");
        rows.push(row.answers(200, "It is there", []));
    }
    rows
}

/// An answer that is one object or comes line by line.
fn both(schema: RefOr<Schema>) -> [(&'static str, RefOr<Schema>); 2] {
    [(JSON, schema.clone()), (LINES, schema)]
}

const TEXT: &str = "Text";
const TOKENS: &str = "Tokens";
const MODELS: &str = "Models";
const OPERATION: &str = "Operation";

/// A refusal.
#[derive(ToSchema)]
pub(super) struct Error {
    /// Why.
    error: String,
}

/// An OpenAPI document.
#[derive(ToSchema)]
struct Document {
    openapi: String,
}

#[derive(ToSchema)]
struct ModelRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
}

#[derive(ToSchema)]
struct CopyRequest {
    source: String,
    destination: String,
}

#[derive(ToSchema)]
struct ShowRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    /// Long lists of metadata, too.
    verbose: Option<bool>,
    /// In place of the model's system text.
    system: Option<String>,
}

#[derive(ToSchema)]
struct GenerateRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    /// The text to continue; empty loads the model.
    prompt: Option<String>,
    /// Text after the gap that the model fills.
    suffix: Option<String>,
    /// In place of the model's system text.
    system: Option<String>,
    /// In place of the model's template.
    template: Option<String>,
    /// Tokens of earlier turns, as an answer's `context` has them.
    context: Option<Vec<u32>>,
    /// Line by line; this is the default.
    stream: Option<bool>,
    /// Use the prompt as it is.
    raw: Option<bool>,
    format: Option<Format>,
    /// Images, base64.
    images: Option<Vec<String>>,
    options: Option<Options>,
    keep_alive: Option<KeepAlive>,
    think: Option<Think>,
    /// Cut a prompt that is too long; this is the default.
    truncate: Option<bool>,
    /// Discard old tokens when the context is full; this is the default.
    shift: Option<bool>,
    /// Report the probabilities of the tokens.
    logprobs: Option<bool>,
    /// Alternatives reported for each token.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// Return the rendered prompt and run nothing.
    _debug_render_only: Option<bool>,
}

#[derive(ToSchema)]
struct ChatRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    /// The conversation so far; none loads the model.
    messages: Option<Vec<Message>>,
    /// Tools the model may call.
    tools: Option<Vec<Tool>>,
    /// Line by line; this is the default.
    stream: Option<bool>,
    format: Option<Format>,
    options: Option<Options>,
    keep_alive: Option<KeepAlive>,
    think: Option<Think>,
    /// Drop old messages when the prompt is too long; this is the default.
    truncate: Option<bool>,
    /// Discard old tokens when the context is full; this is the default.
    shift: Option<bool>,
    /// Report the probabilities of the tokens.
    logprobs: Option<bool>,
    /// Alternatives reported for each token.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// Return the rendered prompt and run nothing.
    _debug_render_only: Option<bool>,
}

/// What the answer must match: `"json"` or a JSON Schema; `""` = anything.
#[derive(ToSchema)]
#[serde(untagged)]
enum Format {
    Name(FormatName),
    #[schema(value_type = Object)]
    Schema(Value),
}

#[derive(ToSchema)]
enum FormatName {
    #[serde(rename = "json")]
    Json,
    #[serde(rename = "")]
    Anything,
}

/// How long the model stays loaded after this request: seconds, or a duration such as `5m`; negative
/// is for ever.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum KeepAlive {
    Seconds(f64),
    Duration(String),
}

/// Whether the model thinks first, and how hard.
#[derive(ToSchema)]
#[serde(untagged)]
enum Think {
    Switch(bool),
    Level(Level),
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum Level {
    Low,
    Medium,
    High,
    Max,
}

#[derive(ToSchema)]
struct TokenizeRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    /// The text; `prompt` is understood, too.
    content: String,
    /// Add the tokens that begin and end a text; off by default.
    add_special: Option<bool>,
    /// Tell what each token stands for.
    with_pieces: Option<bool>,
    keep_alive: Option<KeepAlive>,
}

#[derive(ToSchema)]
struct DetokenizeRequest {
    /// Name of the model, such as `qwen3:8b`.
    model: String,
    tokens: Vec<u32>,
    keep_alive: Option<KeepAlive>,
}
