//! The description of the whole API as an OpenAPI 3.1 document.
//!
//! Each endpoint is a row: method, path, what it is for, and the types of its bodies. The schemas
//! come from the wire types, which stand beside what reads and writes them.

mod compatible;
mod native;
mod transfers;
mod vectors;

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header;
use utoipa::{
    ToSchema,
    openapi::{
        Components, Content, HttpMethod, Info, License, Object, OpenApi, OpenApiBuilder, Paths,
        Ref, RefOr, Required, ResponseBuilder, Schema,
        path::{Operation, OperationBuilder, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::{ObjectBuilder, Type},
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

/// Answers with the document.
pub(crate) async fn openapi() -> Response {
    let kind = "application/json; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], DOCUMENT.clone()).into_response()
}

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    // A document of our own types can be written.
    document().to_json().unwrap_or_default().into()
});

/// Builds the document.
fn document() -> OpenApi {
    let mut schemas = Schemas::default();
    let mut paths = Paths::new();
    let native = native::rows(&mut schemas);
    let others = compatible::rows(&mut schemas);
    let vectors = vectors::rows(&mut schemas);
    let moving = transfers::rows(&mut schemas);
    let rows = native.into_iter().chain(others).chain(vectors);
    for row in rows.chain(moving) {
        let method = row.method.clone();
        let (path, operation) = row.operation();
        paths.add_path_operation(path, vec![method], operation);
    }
    let mut components = Components::new();
    for (name, schema) in schemas.0 {
        let known = components.schemas.get(&name);
        debug_assert!(
            known.is_none_or(|known| *known == schema),
            "two types are {name}"
        );
        components.schemas.insert(name, schema);
    }
    let key = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme(KEY, key);
    let mut info = Info::new("llmsrv", env!("CARGO_PKG_VERSION"));
    info.description = Some(DESCRIPTION.to_owned());
    info.license = Some(License::new("MIT OR Apache-2.0"));
    let anyone = SecurityRequirement::default();
    let with_key = SecurityRequirement::new(KEY, Vec::<String>::new());
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components))
        .security(Some([anyone, with_key]))
        .build()
}

/// The schemas that bodies refer to, by name.
#[derive(Default)]
struct Schemas(Vec<(String, RefOr<Schema>)>);

impl Schemas {
    /// Takes in a type and those it is made of; returns the reference to it.
    fn add<T: ToSchema>(&mut self) -> RefOr<Schema> {
        T::schemas(&mut self.0);
        self.0.push((T::name().into_owned(), T::schema()));
        Ref::from_schema_name(T::name()).into()
    }

    /// Takes in a request, whose members stand beside those of its parts.
    fn request<T: ToSchema>(&mut self) -> RefOr<Schema> {
        T::schemas(&mut self.0);
        let whole = merged(T::schema());
        self.0.push((T::name().into_owned(), whole.into()));
        Ref::from_schema_name(T::name()).into()
    }
}

/// Makes one object of a schema and those of its parts.
fn merged(schema: RefOr<Schema>) -> Object {
    match schema {
        RefOr::T(Schema::Object(object)) => object,
        RefOr::T(Schema::AllOf(parts)) => {
            let mut whole = Object::new();
            whole.description = parts.description;
            for part in parts.items.into_iter().map(merged) {
                whole.required.extend(part.required);
                whole.properties.extend(part.properties);
            }
            whole
        }
        _ => Object::new(),
    }
}

/// One endpoint.
struct Row {
    method: HttpMethod,
    path: &'static str,
    operation: OperationBuilder,
}

impl Row {
    fn new(method: HttpMethod, path: &'static str, tag: &str, summary: &str) -> Row {
        let name = match method {
            HttpMethod::Get => "get",
            HttpMethod::Head => "head",
            HttpMethod::Delete => "delete",
            _ => "post",
        };
        let id: String = path
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|part| !part.is_empty())
            .flat_map(|part| ["_", part])
            .collect();
        Row {
            method,
            path,
            operation: OperationBuilder::new()
                .tag(tag)
                .summary(Some(summary))
                .operation_id(Some(format!("{name}{id}"))),
        }
    }

    fn get(path: &'static str, tag: &str, summary: &str) -> Row {
        Row::new(HttpMethod::Get, path, tag, summary)
    }

    fn post(path: &'static str, tag: &str, summary: &str) -> Row {
        Row::new(HttpMethod::Post, path, tag, summary)
    }

    /// Says more than the summary.
    fn about(mut self, description: &str) -> Row {
        self.operation = self.operation.description(Some(description));
        self
    }

    /// Takes a JSON body.
    fn takes(mut self, schema: RefOr<Schema>) -> Row {
        let body = RequestBodyBuilder::new()
            .content("application/json", Content::new(Some(schema)))
            .required(Some(Required::True));
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// Has a part of the path that is given.
    fn parameter(mut self, name: &str, description: &str) -> Row {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(description))
            .schema(Some(text));
        self.operation = self.operation.parameter(parameter);
        self
    }

    /// Adds what a request can be refused with.
    fn refuses(self, error: &RefOr<Schema>, statuses: &[u16]) -> Row {
        let guards = [403, 429];
        statuses.iter().chain(&guards).fold(self, |row, &status| {
            let why = match status {
                400 => "The request is wrong in itself",
                401 => "A key is missing",
                403 => "The key's role is too low, or the caller is foreign; the body may be empty",
                404 => "There is no such model",
                413 => "The body is too large",
                429 => "The client has sent too many requests",
                503 => "The queue is full, or the server is shutting down",
                _ => "The server failed",
            };
            row.answers(status, why, [(JSON, error.clone())])
        })
    }

    /// Answers with an object.
    fn gives(self, description: &str, schema: RefOr<Schema>) -> Row {
        self.answers(200, description, [(JSON, schema)])
    }

    /// Answers with a body of one of these types; none = no body.
    fn answers(
        mut self,
        status: u16,
        description: &str,
        kinds: impl IntoIterator<Item = (&'static str, RefOr<Schema>)>,
    ) -> Row {
        let mut response = ResponseBuilder::new().description(description);
        for (kind, schema) in kinds {
            response = response.content(kind, Content::new(Some(schema)));
        }
        self.operation = self
            .operation
            .response(status.to_string(), response.build());
        self
    }

    fn operation(self) -> (&'static str, Operation) {
        (self.path, self.operation.build())
    }
}

/// What requests for text and vectors can be refused with, beside what the guard says.
const REFUSALS: &[u16] = &[400, 401, 404, 413, 500, 503];

/// A body that is text and not JSON.
fn text() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).into()
}

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const EVENTS: &str = "text/event-stream";
const KEY: &str = "key";

const DESCRIPTION: &str = "A local language-model server that speaks the Ollama, OpenAI and Anthropic APIs.\n\n\
    Request bodies are read leniently: the content type does not matter, unknown members are ignored, `null` means \
    absent, and names of members are compared without case. `/api/*` streams by default, one JSON object a line \
    (`application/x-ndjson`); an error after the first line is a last line `{\"error\": ...}`. A key is asked for only \
    where the server was given keys.";
