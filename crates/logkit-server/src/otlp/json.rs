//! The JSON form of the protocol: names in camel case, ids in hexadecimal digits, 64-bit numbers
//! perhaps as texts. What has another form counts as not there.

use logkit_proto::otlp::{
    AnyValue, ArrayValue, Event, KeyValue, KeyValueList, LogRecord, Scope, Span, Status, any_value,
};
use serde_json::Value;

use super::{Origin, too_large, unreadable};
use crate::{
    body::SINGLE_BYTES,
    json::{Bounded, Fault, MAX_VALUES, ValueSpan, Values},
    refusal::Refusal,
};

/// The names of the lists on the way to the records.
pub(super) type Names = [&'static str; 3];
pub(super) const LOGS: Names = ["resourceLogs", "scopeLogs", "logRecords"];
pub(super) const TRACES: Names = ["resourceSpans", "scopeSpans", "spans"];

/// Calls for each record, with what is said of all beside it.
pub(super) fn each(
    body: &[u8],
    [of_resources, of_scopes, records]: Names,
    mut take: impl FnMut(&Origin, &Scope, ValueSpan<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let not_json = |fault: Fault| unreadable(format!("{} at byte {}", fault.reason, fault.at));
    let mut values = Values::new(body);
    let Some(root) = values.next().transpose().map_err(not_json)? else {
        return Err(unreadable("The request is empty"));
    };
    if values.next().is_some() {
        return Err(unreadable("The request is more than one JSON value"));
    }
    for of_resource in root
        .member(of_resources)
        .into_iter()
        .flat_map(ValueSpan::elements)
    {
        let resource = match of_resource.member("resource") {
            Some(place) => attributes(&value(place)?),
            None => Vec::new(),
        };
        let origin = Origin::new(resource);
        for of_scope in of_resource
            .member(of_scopes)
            .into_iter()
            .flat_map(ValueSpan::elements)
        {
            let scope = match of_scope.member("scope") {
                Some(place) => scope(&value(place)?),
                None => Scope::default(),
            };
            for record in of_scope
                .member(records)
                .into_iter()
                .flat_map(ValueSpan::elements)
            {
                take(&origin, &scope, record)?;
            }
        }
    }
    Ok(())
}

/// Reads a value within the limits of a record.
pub(super) fn value(place: ValueSpan<'_>) -> Result<Value, Refusal> {
    if place.text().len() > SINGLE_BYTES {
        return Err(too_large());
    }
    let mut left = MAX_VALUES;
    let read = place.read(Bounded(&mut left));
    if left == 0 {
        return Err(too_large());
    }
    read.map_err(|fault| unreadable(format!("{} at byte {}", fault.reason, fault.at)))
}

pub(super) fn record(value: &Value) -> LogRecord {
    LogRecord {
        time_unix_nano: number(value, "timeUnixNano"),
        observed_time_unix_nano: number(value, "observedTimeUnixNano"),
        severity_number: number(value, "severityNumber") as i32,
        severity_text: text(value, "severityText"),
        body: value.get("body").map(any),
        attributes: attributes(value),
        flags: number(value, "flags") as u32,
        trace_id: id(value, "traceId"),
        span_id: id(value, "spanId"),
    }
}

pub(super) fn span(value: &Value) -> Span {
    Span {
        trace_id: id(value, "traceId"),
        span_id: id(value, "spanId"),
        parent_span_id: id(value, "parentSpanId"),
        name: text(value, "name"),
        kind: number(value, "kind") as i32,
        start_time_unix_nano: number(value, "startTimeUnixNano"),
        end_time_unix_nano: number(value, "endTimeUnixNano"),
        attributes: attributes(value),
        events: list(value, "events", |value| Event {
            time_unix_nano: number(value, "timeUnixNano"),
            name: text(value, "name"),
            attributes: attributes(value),
        }),
        status: value.get("status").map(|value| Status {
            message: text(value, "message"),
            code: number(value, "code") as i32,
        }),
    }
}

fn scope(value: &Value) -> Scope {
    Scope {
        name: text(value, "name"),
        version: text(value, "version"),
    }
}

fn attributes(value: &Value) -> Vec<KeyValue> {
    list(value, "attributes", pair)
}

fn pair(value: &Value) -> KeyValue {
    KeyValue {
        key: text(value, "key"),
        value: value.get("value").map(any),
    }
}

fn any(value: &Value) -> AnyValue {
    use any_value::Value as Is;
    type Read = fn(&Value) -> Option<Is>;
    let kinds: [(&str, Read); 7] = [
        ("stringValue", |v| {
            v.as_str().map(|text| Is::StringValue(text.into()))
        }),
        ("boolValue", |v| v.as_bool().map(Is::BoolValue)),
        ("intValue", |v| {
            let parsed = v.as_str().and_then(|text| text.parse().ok());
            v.as_i64().or(parsed).map(Is::IntValue)
        }),
        ("doubleValue", |v| v.as_f64().map(Is::DoubleValue)),
        ("arrayValue", |v| {
            let values = list(v, "values", any);
            Some(Is::ArrayValue(ArrayValue { values }))
        }),
        ("kvlistValue", |v| {
            let values = list(v, "values", pair);
            Some(Is::KvlistValue(KeyValueList { values }))
        }),
        // Base64 is text enough.
        ("bytesValue", |v| {
            v.as_str().map(|text| Is::StringValue(text.into()))
        }),
    ];
    let found = kinds
        .iter()
        .find_map(|(name, read)| value.get(name).and_then(read));
    AnyValue { value: found }
}

fn list<T>(value: &Value, name: &str, read: impl FnMut(&Value) -> T) -> Vec<T> {
    let values = value.get(name).and_then(Value::as_array);
    values.into_iter().flatten().map(read).collect()
}

fn text(value: &Value, name: &str) -> String {
    let text = value.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn number(value: &Value, name: &str) -> u64 {
    match value.get(name) {
        Some(Value::Number(number)) => number.as_u64().unwrap_or_default(),
        Some(Value::String(text)) => text.parse().unwrap_or_default(),
        _ => 0,
    }
}

fn id(value: &Value, name: &str) -> Vec<u8> {
    // What is no id counts as none.
    hex::decode(text(value, name)).unwrap_or_default()
}
