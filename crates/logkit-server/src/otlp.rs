//! Logs and traces of OpenTelemetry, as OTLP/HTTP brings them: protobuf or JSON.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use logkit::{Entry, Level, SpanId, Text, Timestamp, repr};
use logkit_proto::otlp::{AnyValue, KeyValue, LogRecord, Scope, Span, any_value};
use serde_json::{Map, Value};

use crate::{app::App, body, json::MAX_VALUES, refusal::Refusal, store::Store};
use protobuf::Kind;

mod json;
mod protobuf;

/// `POST /v1/logs`
pub(crate) async fn logs(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    take(&app, &headers, body, read_logs).await
}

/// `POST /v1/traces`
pub(crate) async fn traces(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    take(&app, &headers, body, read_traces).await
}

fn read_logs(format: Format, body: &[u8], taken: &mut Taken) -> Result<(), Refusal> {
    match format {
        Format::Json => json::each(body, json::LOGS, |origin, scope, place| {
            let record = json::record(&json::value(place)?);
            taken.push(of_log(record, origin, scope))
        }),
        Format::Protobuf => protobuf::each(body, |origin, scope, bytes| {
            let record = protobuf::read::<LogRecord>(bytes, Kind::Log)?;
            taken.push(of_log(record, origin, scope))
        }),
    }
}

fn read_traces(format: Format, body: &[u8], taken: &mut Taken) -> Result<(), Refusal> {
    match format {
        Format::Json => json::each(body, json::TRACES, |origin, scope, place| {
            let span = json::span(&json::value(place)?);
            taken.push(of_span(span, origin, scope))
        }),
        Format::Protobuf => protobuf::each(body, |origin, scope, bytes| {
            let span = protobuf::read::<Span>(bytes, Kind::Span)?;
            taken.push(of_span(span, origin, scope))
        }),
    }
}

/// The entries that a body sent to `/v1/logs`, or with `is_traces` to `/v1/traces`, stores; else the
/// status it is refused with.
///
/// # Errors
///
/// The status of the answer.
pub fn otlp_entries(body: &[u8], is_json: bool, is_traces: bool) -> Result<Vec<Entry>, u16> {
    let mut taken = Taken::new(None, body.len(), usize::MAX);
    let format = if is_json {
        Format::Json
    } else {
        Format::Protobuf
    };
    let read = if is_traces { read_traces } else { read_logs };
    read(format, body, &mut taken).map_err(|refusal| refusal.status.as_u16())?;
    Ok(taken.entries)
}

/// How a request is written, and its answer.
#[derive(Clone, Copy)]
enum Format {
    Protobuf,
    Json,
}

/// What all records of a request became so far, and what they may.
struct Taken {
    store: Option<Store>,
    entries: Vec<Entry>,
    max_entries: usize,
    /// Memory that the entries may still take.
    left: usize,
}

impl Taken {
    fn new(store: Option<Store>, n_bytes: usize, max_entries: usize) -> Taken {
        Taken {
            store,
            entries: Vec::new(),
            max_entries,
            left: 3 * n_bytes + SPARE_BYTES,
        }
    }

    fn push(&mut self, mut entry: Entry) -> Result<(), Refusal> {
        let too_large = |text: String| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text);
        if self.entries.len() == self.max_entries {
            let most = self.max_entries;
            return Err(too_large(format!(
                "A request may have at most {most} records"
            )));
        }
        if let Some(store) = &self.store {
            store.redact(&mut entry);
        }
        // What all records have in common is in each entry: a small body could become a large one.
        self.left = self.left.checked_sub(entry.size_bytes()).ok_or_else(|| {
            too_large(
                "The records of this request take too much memory; send fewer at a time".into(),
            )
        })?;
        self.entries.push(entry);
        Ok(())
    }
}

async fn take(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    read: fn(Format, &[u8], &mut Taken) -> Result<(), Refusal>,
) -> Result<Response, Refusal> {
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
    let store = app.store.clone();
    let parsed = received.parse(move |bytes| {
        let max_entries = store.max_batch();
        let mut taken = Taken::new(Some(store), bytes.len(), max_entries);
        read(format, bytes, &mut taken)?;
        Ok(taken.entries)
    });
    let (entries, _share) = parsed.await?;
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

/// A record that is too large, or holds too much.
fn too_large() -> Refusal {
    let text = format!(
        "A record may have at most {} bytes and {MAX_VALUES} values",
        body::SINGLE_BYTES
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn unreadable(why: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, why.into())
}

/// Memory of the entries of a request, beside three times the bytes of its body.
const SPARE_BYTES: usize = 8 << 20;

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
