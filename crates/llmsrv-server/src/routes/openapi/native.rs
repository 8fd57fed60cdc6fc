//! The native API (`/api/*`) and what is for operators.

use llmsrv_api::{
    native::{
        ChatResponse, Content, GenerateResponse, Health, Models, Running, Shown, Status, Tokens,
        Version,
    },
    requests::LatestRequests,
};
use utoipa::openapi::{HttpMethod, ObjectBuilder, Ref, RefOr, Schema};

use super::{JSON, LINES, REFUSALS, Row, Schemas, text};
use crate::{
    dialect::native::{ChatRequest, GenerateRequest},
    error::Error,
    routes::{
        models::{CopyRequest, ModelRequest, ShowRequest},
        tokens::{DetokenizeRequest, TokenizeRequest},
    },
};

/// Returns the endpoints.
pub(super) fn rows(schemas: &mut Schemas) -> Vec<Row> {
    let s = schemas;
    let error = s.add::<Error>();
    let about = "An OpenAPI document.";
    let document = ObjectBuilder::new()
        .property("openapi", text())
        .required("openapi");
    s.0.push(("Document".into(), document.description(Some(about)).into()));
    let document: RefOr<Schema> = Ref::from_schema_name("Document").into();
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
            .gives("The document", document),
        read("/api/version", OPERATION, "Tell the version")
            .about("`version` is the version of the API that is spoken, `llmsrv_version` the program's own.")
            .gives("The version", version),
        read("/api/status", OPERATION, "Tell that there is no cloud, and what the caller may do")
            .gives("The cloud is always disabled", s.add::<Status>()),
        read("/api/tags", MODELS, "List the models on disk").gives("The models", tags),
        read("/api/ps", MODELS, "List the models in memory").gives("The models", s.add::<Running>()),
        named("/api/show", MODELS, "Describe a model")
            .takes(s.request::<ShowRequest>())
            .gives("Everything known of it", s.add::<Shown>()),
        named("/api/copy", MODELS, "Give a model a second name")
            .takes(s.request::<CopyRequest>())
            .answers(200, "Done", []),
        Row::new(HttpMethod::Delete, "/api/delete", MODELS, "Delete a model")
            .refuses(&error, REFUSALS)
            .takes(s.request::<ModelRequest>())
            .answers(200, "Done", []),
        named("/api/generate", TEXT, "Continue a prompt")
            .about("An empty prompt loads the model; with `keep_alive` 0 it unloads it.")
            .takes(s.request::<GenerateRequest>())
            .answers(200, "The text, whole or line by line", both(s.add::<GenerateResponse>())),
        named("/api/chat", TEXT, "Answer a conversation")
            .about("No messages load the model; with `keep_alive` 0 they unload it.")
            .takes(s.request::<ChatRequest>())
            .answers(200, "The answer, whole or line by line", both(s.add::<ChatResponse>())),
        named("/api/tokenize", TOKENS, "Turn text into tokens")
            .about("Needs the vocabulary of the model only, which need not be loaded.")
            .takes(s.request::<TokenizeRequest>())
            .gives("The tokens", s.add::<Tokens>()),
        named("/api/detokenize", TOKENS, "Turn tokens into text")
            .takes(s.request::<DetokenizeRequest>())
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
