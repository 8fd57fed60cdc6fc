//! Logs and traces of OpenTelemetry, as OTLP/HTTP brings them: protobuf or JSON.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use logkit::{Entry, Level, SpanId, Text, Timestamp, repr};
use logkit_proto::otlp::{
    AnyValue, KeyValue, LogRecord, LogsRequest, Scope, Span, TracesRequest, any_value,
};
use prost::Message;
use serde_json::{Map, Value};

use crate::{body, refusal::Refusal, web::App};

mod json;

/// `POST /v1/logs`
pub(crate) async fn logs(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let (format, request) = read::<LogsRequest>(&headers, body, json::logs).await?;
    let mut entries = Vec::new();
    for resource_logs in request.resource_logs {
        let attributes = resource_logs.resource.map(|it| it.attributes);
        let resource = Origin::new(attributes.unwrap_or_default());
        for scope_logs in resource_logs.scope_logs {
            let scope = scope_logs.scope.unwrap_or_default();
            let records = scope_logs.log_records.into_iter();
            entries.extend(records.map(|record| of_log(record, &resource, &scope)));
        }
    }
    store(&app, entries, format).await
}

/// `POST /v1/traces`
pub(crate) async fn traces(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let (format, request) = read::<TracesRequest>(&headers, body, json::traces).await?;
    let mut entries = Vec::new();
    for resource_spans in request.resource_spans {
        let attributes = resource_spans.resource.map(|it| it.attributes);
        let resource = Origin::new(attributes.unwrap_or_default());
        for scope_spans in resource_spans.scope_spans {
            let scope = scope_spans.scope.unwrap_or_default();
            let spans = scope_spans.spans.into_iter();
            entries.extend(spans.map(|span| of_span(span, &resource, &scope)));
        }
    }
    store(&app, entries, format).await
}

/// How a request is written, and its answer.
#[derive(Clone, Copy)]
enum Format {
    Protobuf,
    Json,
}

async fn read<M: Message + Default>(
    headers: &HeaderMap,
    body: Body,
    from_json: fn(&Value) -> M,
) -> Result<(Format, M), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let format = match kind.split(';').next().unwrap_or_default().trim() {
        "application/x-protobuf" => Format::Protobuf,
        "application/json" => Format::Json,
        _ => {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/x-protobuf or application/json",
            ));
        }
    };
    let received = body::read(headers, body, body::BATCH_BYTES).await?;
    let wrong = |why: String| Refusal::new(StatusCode::BAD_REQUEST, why);
    let message = match format {
        Format::Protobuf => {
            M::decode(received.bytes.clone()).map_err(|error| wrong(error.to_string()))?
        }
        Format::Json => {
            let value = serde_json::from_slice(&received.bytes);
            from_json(&value.map_err(|error| wrong(error.to_string()))?)
        }
    };
    Ok((format, message))
}

async fn store(app: &App, entries: Vec<Entry>, format: Format) -> Result<Response, Refusal> {
    if entries.len() > app.store.max_batch() {
        let most = app.store.max_batch();
        let text = format!("A request may have at most {most} records");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    if !entries.is_empty() {
        let n_entries = entries.len();
        app.store.write(entries).await?;
        app.metrics.stored(n_entries);
    }
    Ok(match format {
        // An empty message: nothing was refused.
        Format::Protobuf => {
            ([(header::CONTENT_TYPE, "application/x-protobuf")], "").into_response()
        }
        Format::Json => ([(header::CONTENT_TYPE, "application/json")], "{}").into_response(),
    })
}

/// What all records of a program have in common.
struct Origin {
    service: String,
    version: String,
    environment: String,
    rest: Map<String, Value>,
}

impl Origin {
    fn new(attributes: Vec<KeyValue>) -> Origin {
        let mut rest = map_of(attributes);
        let mut take = |name: &str| rest.shift_remove(name).map(text_of).unwrap_or_default();
        let environment = take("deployment.environment.name");
        let older = take("deployment.environment");
        Origin {
            service: take("service.name"),
            version: take("service.version"),
            environment: if environment.is_empty() {
                older
            } else {
                environment
            },
            rest,
        }
    }

    /// An entry with what the origin knows and the attributes beside it.
    fn entry(&self, scope: &Scope, mut attributes: Map<String, Value>) -> Entry {
        let mut take = |names: &[&str]| {
            let found = names.iter().find_map(|name| attributes.shift_remove(*name));
            Text::from(found.map(text_of).unwrap_or_default())
        };
        let module = if self.service.is_empty() {
            &scope.name
        } else {
            &self.service
        };
        let mut entry = Entry {
            function_name: take(&["code.function.name", "code.function"]),
            exception: take(&["exception.message"]),
            exception_type: take(&["exception.type"]),
            traceback: take(&["exception.stacktrace"]),
            module: module.clone().into(),
            environment: self.environment.clone().into(),
            version: self.version.clone().into(),
            ..Entry::default()
        };
        entry.extra = attributes;
        if !scope.name.is_empty() && scope.name != *module {
            entry
                .extra
                .insert("scope".into(), scope.name.clone().into());
        }
        if !self.rest.is_empty() {
            entry
                .extra
                .insert("resource".into(), self.rest.clone().into());
        }
        entry
    }
}

fn of_log(record: LogRecord, origin: &Origin, scope: &Scope) -> Entry {
    let mut entry = origin.entry(scope, map_of(record.attributes));
    let nanos = match record.time_unix_nano {
        0 => record.observed_time_unix_nano,
        nanos => nanos,
    };
    if nanos > 0 {
        entry.timestamp = Timestamp::from_micros((nanos / 1000) as i64);
    }
    entry.level = match record.severity_number {
        1..=8 => Level::Debug,
        9..=12 => Level::Info,
        13..=16 => Level::Warning,
        17..=20 => Level::Error,
        21.. => Level::Critical,
        _ if record.severity_text.is_empty() => Level::Info,
        _ => Level::parse(&record.severity_text),
    };
    if entry.function_name.is_empty() {
        entry.function_name = scope.name.clone().into();
    }
    if let Some(value) = record.body.and_then(|body| body.value) {
        let (text, kind) = match value_of(value) {
            Value::String(text) => (repr::repr_str(&text), "str"),
            other => (repr::repr_json(&other), ""),
        };
        entry.return_value = text.into();
        entry.return_type = kind.into();
    }
    entry.trace_id = hex::encode(&record.trace_id).into();
    entry.span_id = span_id(&record.span_id);
    entry
}

fn of_span(span: Span, origin: &Origin, scope: &Scope) -> Entry {
    const FAILED: i32 = 2;
    let mut attributes = map_of(span.attributes);
    for event in span.events {
        if event.name == "exception" {
            attributes.extend(map_of(event.attributes));
        }
    }
    let mut entry = origin.entry(scope, attributes);
    entry.timestamp = Timestamp::from_micros((span.start_time_unix_nano / 1000) as i64);
    let nanos = span
        .end_time_unix_nano
        .saturating_sub(span.start_time_unix_nano);
    entry.duration_ms = Some((nanos as f64 / 1e3).round() / 1e3);
    if !entry.function_name.is_empty() {
        let name = entry.function_name.to_string();
        entry.extra.insert("code.function.name".into(), name.into());
    }
    entry.function_name = span.name.into();
    if let Some(status) = span.status.filter(|status| status.code == FAILED) {
        entry.level = Level::Error;
        if entry.exception.is_empty() {
            entry.exception = status.message.into();
        }
    }
    entry.trace_id = hex::encode(&span.trace_id).into();
    entry.span_id = span_id(&span.span_id);
    entry.parent_id = span_id(&span.parent_span_id);
    entry
}

fn map_of(attributes: Vec<KeyValue>) -> Map<String, Value> {
    let pairs = attributes.into_iter();
    pairs
        .map(|pair| {
            let value = pair.value.and_then(|value| value.value);
            (pair.key, value.map_or(Value::Null, value_of))
        })
        .collect()
}

fn value_of(value: any_value::Value) -> Value {
    let any = |value: AnyValue| value.value.map_or(Value::Null, value_of);
    match value {
        any_value::Value::StringValue(text) => text.into(),
        any_value::Value::BoolValue(flag) => flag.into(),
        any_value::Value::IntValue(number) => number.into(),
        any_value::Value::DoubleValue(number) => number.into(),
        any_value::Value::ArrayValue(array) => array.values.into_iter().map(any).collect(),
        any_value::Value::KvlistValue(list) => map_of(list.values).into(),
        any_value::Value::BytesValue(bytes) => hex::encode(&bytes).into(),
    }
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn span_id(bytes: &[u8]) -> Option<SpanId> {
    hex::encode(bytes).parse().ok()
}
