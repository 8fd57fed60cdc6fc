//! Entries as log records and spans. Names of attributes follow OpenTelemetry's semantic
//! conventions where these have one.

use logkit_proto::otlp::{
    AnyValue, ArrayValue, Event, KeyValue, KeyValueList, LogRecord, Resource, Span, Status,
    any_value::Value as Kind,
};
use serde_json::Value;

use crate::{Entry, Level, Timestamp, net::fingerprint};

/// An entry's record; its environment and version are those of the [`resource`].
pub(super) fn log_record(entry: &Entry) -> LogRecord {
    let (trace_id, named) = trace_id(&entry.trace_id);
    let mut attributes = attributes(entry);
    exception(entry, &mut attributes);
    if let Some(ms) = entry.duration_ms {
        attributes.push(pair("logkit.duration_ms", Kind::DoubleValue(ms)));
    }
    if named {
        attributes.push(text("logkit.trace_id", &entry.trace_id));
    }
    if let Some(parent) = entry.parent_id {
        attributes.push(text("logkit.parent_id", &parent.to_string()));
    }
    LogRecord {
        time_unix_nano: nanos(entry.timestamp),
        observed_time_unix_nano: nanos(Timestamp::now()),
        severity_number: severity(&entry.level),
        severity_text: entry.level.as_str().to_owned(),
        body: Some(any(Kind::StringValue(body(entry)))),
        attributes,
        flags: u32::from(!trace_id.is_empty()),
        trace_id,
        span_id: span_bytes(entry.span_id),
    }
}

/// The span of a call: an entry that has a duration and ids.
pub(super) fn span(entry: &Entry) -> Option<Span> {
    let ms = entry
        .duration_ms
        .filter(|ms| ms.is_finite() && *ms >= 0.0)?;
    let id = entry.span_id?;
    let (trace_id, named) = trace_id(&entry.trace_id);
    if trace_id.is_empty() {
        return None;
    }
    let start = nanos(entry.timestamp);
    let end = start.saturating_add((ms * 1e6) as u64);
    let mut attributes = attributes(entry);
    if named {
        attributes.push(text("logkit.trace_id", &entry.trace_id));
    }
    let mut error = Vec::new();
    exception(entry, &mut error);
    let failed = !error.is_empty() || entry.level.is_error();
    let events = (!error.is_empty()).then(|| Event {
        time_unix_nano: end,
        name: "exception".into(),
        attributes: error,
    });
    Some(Span {
        trace_id,
        span_id: span_bytes(Some(id)),
        parent_span_id: span_bytes(entry.parent_id),
        name: entry.function_name.to_string(),
        kind: INTERNAL,
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        attributes,
        events: events.into_iter().collect(),
        status: failed.then(|| Status {
            message: entry.exception.to_string(),
            code: FAILED,
        }),
    })
}

/// Who sent it: entries with equal tags share it.
pub(super) fn resource(service: &str, environment: &str, version: &str) -> Resource {
    let tags = [
        ("service.name", service),
        ("deployment.environment.name", environment),
        ("service.version", version),
    ];
    Resource {
        attributes: tags
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| text(key, value))
            .collect(),
    }
}

const INTERNAL: i32 = 1;
const FAILED: i32 = 2;

fn severity(level: &Level) -> i32 {
    match level {
        Level::Debug | Level::Other(_) => 5,
        Level::Info => 9,
        Level::Warning => 13,
        Level::Error => 17,
        Level::Critical => 21,
    }
}

/// What a person reads first: the message, or the call and how it ended.
fn body(entry: &Entry) -> String {
    if let Some(message) = entry.extra.get("message").and_then(Value::as_str) {
        return message.to_owned();
    }
    let function = &entry.function_name;
    if !entry.exception_type.is_empty() || !entry.exception.is_empty() {
        return format!(
            "{function}() raised {}: {}",
            entry.exception_type, entry.exception
        );
    }
    format!("{function}() returned {}", entry.return_value)
}

/// What both records and spans tell; what is empty is left out.
fn attributes(entry: &Entry) -> Vec<KeyValue> {
    let texts = [
        ("code.function.name", &entry.function_name, ""),
        ("code.namespace", &entry.module, ""),
        ("logkit.args", &entry.args, "()"),
        ("logkit.kwargs", &entry.kwargs, "{}"),
        ("logkit.arg_types", &entry.arg_types, ""),
        ("logkit.kwarg_types", &entry.kwarg_types, "{}"),
        ("logkit.return_value", &entry.return_value, "None"),
        ("logkit.return_type", &entry.return_type, ""),
        ("logkit.llm_analysis", &entry.llm_analysis, ""),
    ];
    let own = texts
        .into_iter()
        .filter(|(_, value, empty)| !value.is_empty() && *value != empty)
        .map(|(key, value, _)| text(key, value));
    let extra = entry.extra.iter().map(|(key, value)| KeyValue {
        key: format!("logkit.extra.{key}"),
        value: Some(json(value, 0)),
    });
    own.chain(extra).collect()
}

fn exception(entry: &Entry, attributes: &mut Vec<KeyValue>) {
    for (key, value) in [
        ("exception.type", &entry.exception_type),
        ("exception.message", &entry.exception),
        ("exception.stacktrace", &entry.traceback),
    ] {
        if !value.is_empty() {
            attributes.push(text(key, value));
        }
    }
}

/// Depth from which a value is sent as its text; collectors refuse deep ones.
const MAX_DEPTH: usize = 8;

fn json(value: &Value, depth: usize) -> AnyValue {
    let kind = match value {
        Value::Null => return AnyValue { value: None },
        _ if depth >= MAX_DEPTH => Kind::StringValue(value.to_string()),
        Value::Bool(on) => Kind::BoolValue(*on),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Kind::IntValue(integer),
            (None, Some(number)) => Kind::DoubleValue(number),
            (None, None) => Kind::StringValue(number.to_string()),
        },
        Value::Array(values) => Kind::ArrayValue(ArrayValue {
            values: values.iter().map(|value| json(value, depth + 1)).collect(),
        }),
        Value::Object(map) => Kind::KvlistValue(KeyValueList {
            values: map
                .iter()
                .map(|(key, value)| KeyValue {
                    key: key.clone(),
                    value: Some(json(value, depth + 1)),
                })
                .collect(),
        }),
    };
    any(kind)
}

fn any(kind: Kind) -> AnyValue {
    AnyValue { value: Some(kind) }
}

fn pair(key: &str, kind: Kind) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(any(kind)),
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    pair(key, Kind::StringValue(value.to_owned()))
}

/// Nanoseconds since 1970; what is before is 0.
fn nanos(timestamp: Timestamp) -> u64 {
    u64::try_from(timestamp.micros())
        .unwrap_or_default()
        .saturating_mul(1000)
}

fn span_bytes(id: Option<crate::SpanId>) -> Vec<u8> {
    id.map_or_else(Vec::new, |id| id.0.get().to_be_bytes().to_vec())
}

/// Sixteen bytes: up to 32 hexadecimal digits as they are, with zeros before them; any other text as
/// its fingerprint, and then true.
fn trace_id(id: &str) -> (Vec<u8>, bool) {
    if id.is_empty() {
        return (Vec::new(), false);
    }
    let is_hex = id.len() <= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(id, 16).ok()).flatten();
    match number.filter(|number| *number != 0) {
        Some(number) => (number.to_be_bytes().to_vec(), false),
        None => (fingerprint([id]).to_be_bytes().to_vec(), true),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn trace_ids_have_sixteen_bytes() {
        let full = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(
            trace_id(full).0,
            [
                0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e,
                0x47, 0x36
            ]
        );
        let (half, named) = trace_id("00000000000000ff");
        assert_eq!((half[15], half.len(), named), (255, 16, false));
        let (text, named) = trace_id("order-17");
        assert_eq!((text.len(), named), (16, true));
        assert_ne!(text, trace_id("order-18").0);
        assert_eq!(
            trace_id("0000"),
            (trace_id("0000").0, true),
            "all zeros is no id"
        );
        assert_eq!(trace_id(""), (Vec::new(), false));
    }

    #[test]
    fn spans_are_calls_with_ids() {
        let mut entry = Entry {
            timestamp: Timestamp::from_micros(1_000_000),
            level: Level::Error,
            function_name: "pay".into(),
            exception: "no".into(),
            exception_type: "E".into(),
            duration_ms: Some(1.5),
            trace_id: "ff".into(),
            span_id: NonZeroU64::new(7).map(crate::SpanId),
            ..Entry::default()
        };
        let made = span(&entry);
        assert_eq!(
            made.as_ref().map(|span| (
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                span.span_id.clone(),
                span.events.len()
            )),
            Some((
                1_000_000_000,
                1_001_500_000,
                vec![0, 0, 0, 0, 0, 0, 0, 7],
                1
            ))
        );
        entry.duration_ms = None;
        assert_eq!(span(&entry), None);
        assert_eq!(log_record(&entry).severity_number, 17);
    }
}
