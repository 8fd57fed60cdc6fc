//! Bodies of JSON to calls, with errors that name every wrong value and its place.

use std::fmt;

use logkit::{Entry, Level, Redactor, Timestamp};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, json};

use crate::{
    call::{Call, Full, Logged},
    refusal::{Detail, Refusal},
};

/// Wrong values that one answer names.
const MAX_DETAILS: usize = 100;

/// The entries that a body sent to `/log`, or with `is_batch` to `/log/batch`, stores; else the status
/// it is refused with.
pub fn entries(body: &[u8], is_batch: bool, redactor: &Redactor) -> Result<Vec<Entry>, u16> {
    let logged = if is_batch {
        batch(body, usize::MAX)
    } else {
        single(body).map(|logged| vec![logged])
    };
    let logged = logged.map_err(|refusal| refusal.status.as_u16())?;
    let entries = logged.into_iter().map(|logged| {
        let (mut entry, _, _) = logged.into_entry(Some(redactor));
        redactor.redact_entry(&mut entry);
        entry
    });
    Ok(entries.collect())
}

/// Reads the body of a single entry.
pub(crate) fn single(body: &[u8]) -> Result<Logged, Refusal> {
    let mut nodes = nodes(body)?;
    let node = match (nodes.pop(), nodes.is_empty()) {
        (Some(node), true) => node,
        (Some(_), false) => return Err(Refusal::invalid(vec![trailing(body)])),
        (None, _) => return Err(Refusal::invalid(vec![nothing()])),
    };
    let mut wrong = Vec::new();
    let logged = node.into_logged(&[json!("body")], &mut wrong);
    match logged {
        Some(logged) if wrong.is_empty() => Ok(logged),
        _ => Err(Refusal::invalid(wrong)),
    }
}

/// Reads the body of a batch: an object with `entries`, an array, or one entry a line.
pub(crate) fn batch(body: &[u8], max_entries: usize) -> Result<Vec<Logged>, Refusal> {
    let nodes = nodes(body)?;
    if nodes.is_empty() {
        return Err(Refusal::invalid(vec![nothing()]));
    }
    let body = json!("body");
    let is_lines = nodes.len() > 1;
    let mut elements: Vec<(Vec<Value>, Node)> = Vec::new();
    let mut wrong = Vec::new();
    for (line, node) in nodes.into_iter().enumerate() {
        match node {
            Node::Object(mut object) if object.entries.is_some() => {
                let place = json!("entries");
                match object.entries.take().map(|entries| *entries) {
                    Some(Node::List(list)) => {
                        elements.extend(list.into_iter().enumerate().map(|(idx, node)| {
                            (vec![body.clone(), place.clone(), json!(idx)], node)
                        }));
                    }
                    Some(other) => wrong.push(Detail {
                        kind: "list_type",
                        place: vec![body.clone(), place],
                        message: "Input should be a valid list".into(),
                        input: other.into_value(),
                        context: Value::Null,
                    }),
                    None => {}
                }
            }
            Node::Object(object) if !is_lines && !object.is_entry() => {
                wrong.push(missing(
                    vec![body.clone(), json!("entries")],
                    object.into_value(),
                ));
            }
            Node::List(list) => elements.extend(
                list.into_iter()
                    .enumerate()
                    .map(|(idx, node)| (vec![body.clone(), json!(idx)], node)),
            ),
            other => elements.push((vec![body.clone(), json!(line)], other)),
        }
    }
    if elements.len() > max_entries {
        return Err(Refusal::invalid(vec![Detail {
            kind: "too_long",
            place: vec![body, json!("entries")],
            message: format!(
                "List should have at most {max_entries} items after validation, not {}",
                elements.len()
            ),
            input: Value::Null,
            context: json!({"max_length": max_entries, "actual_length": elements.len()}),
        }]));
    }
    let mut calls = Vec::with_capacity(elements.len());
    for (place, node) in elements {
        calls.extend(node.into_logged(&place, &mut wrong));
        if wrong.len() >= MAX_DETAILS {
            break;
        }
    }
    if wrong.is_empty() {
        Ok(calls)
    } else {
        wrong.truncate(MAX_DETAILS);
        Err(Refusal::invalid(wrong))
    }
}

/// All values of a body, one after the other.
fn nodes(body: &[u8]) -> Result<Vec<Node>, Refusal> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Node>();
    let mut nodes = Vec::new();
    for node in &mut values {
        nodes.push(node.map_err(|error| Refusal::invalid(vec![not_json(body, &error)]))?);
    }
    Ok(nodes)
}

fn not_json(body: &[u8], error: &serde_json::Error) -> Detail {
    let before: usize = body
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    Detail {
        kind: "json_invalid",
        place: vec![
            json!("body"),
            json!(before + error.column().saturating_sub(1)),
        ],
        message: "JSON decode error".into(),
        input: json!({}),
        context: json!({ "error": reason }),
    }
}

fn trailing(body: &[u8]) -> Detail {
    Detail {
        kind: "json_invalid",
        place: vec![json!("body"), json!(body.len())],
        message: "JSON decode error".into(),
        input: json!({}),
        context: json!({ "error": "one value expected; send several to /log/batch" }),
    }
}

fn nothing() -> Detail {
    missing(vec![json!("body")], Value::Null)
}

fn missing(place: Vec<Value>, input: Value) -> Detail {
    Detail {
        kind: "missing",
        place,
        message: "Field required".into(),
        input,
        context: Value::Null,
    }
}

/// What a field may hold.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    TextOrNull,
    List,
    Flag,
    Number,
    Object,
    Moment,
}

/// The fields of an entry with a meaning of their own. The index is that of [`Object::known`].
const FIELDS: [(&str, Kind); 14] = [
    ("cmd", Kind::Text),
    ("args", Kind::List),
    ("language", Kind::Text),
    ("env", Kind::Text),
    ("success", Kind::Flag),
    ("duration_ms", Kind::Number),
    ("output", Kind::TextOrNull),
    ("error", Kind::TextOrNull),
    ("extra", Kind::Object),
    ("timestamp", Kind::Moment),
    ("trace_id", Kind::TextOrNull),
    ("version", Kind::TextOrNull),
    ("level", Kind::TextOrNull),
    ("function_name", Kind::TextOrNull),
];
const CMD: usize = 0;
const ARGS: usize = 1;
const FUNCTION: usize = 13;

/// Any JSON value, of which objects are ready to become entries.
enum Node {
    Object(Box<Object>),
    List(Vec<Node>),
    Other(Value),
}

#[derive(Default)]
struct Object {
    known: [Option<Value>; FIELDS.len()],
    entries: Option<Box<Node>>,
    rest: Map<String, Value>,
}

impl Object {
    fn is_entry(&self) -> bool {
        self.known[CMD].is_some() || self.known[FUNCTION].is_some()
    }

    /// The whole object again.
    fn into_value(self) -> Value {
        Value::Object(self.into_map())
    }

    fn into_map(self) -> Map<String, Value> {
        let mut map: Map<String, Value> = FIELDS
            .into_iter()
            .zip(self.known)
            .filter_map(|((name, _), value)| Some((name.to_owned(), value?)))
            .collect();
        map.extend(self.rest);
        if let Some(entries) = self.entries {
            map.insert("entries".into(), entries.into_value());
        }
        map
    }
}

impl Node {
    fn into_value(self) -> Value {
        match self {
            Node::Object(object) => object.into_value(),
            Node::List(list) => list.into_iter().map(Node::into_value).collect(),
            Node::Other(value) => value,
        }
    }

    /// The entry, or what is wrong with it.
    fn into_logged(self, place: &[Value], wrong: &mut Vec<Detail>) -> Option<Logged> {
        let mut object = match self {
            Node::Object(object) => *object,
            other => {
                wrong.push(Detail {
                    kind: "model_attributes_type",
                    place: place.to_vec(),
                    message: "Input should be a valid dictionary or object to extract fields from"
                        .into(),
                    input: other.into_value(),
                    context: Value::Null,
                });
                return None;
            }
        };
        if let Some(entries) = object.entries.take() {
            object.rest.insert("entries".into(), entries.into_value());
        }
        let at = |name: &str| [place, &[json!(name)]].concat();
        let is_full =
            object.known[CMD].is_none() && matches!(object.known[FUNCTION], Some(Value::String(_)));
        let n_wrong = wrong.len();
        if object.known[CMD].is_none() && !is_full {
            let input = FIELDS
                .into_iter()
                .zip(&object.known)
                .filter_map(|((name, _), value)| Some((name.to_owned(), value.clone()?)))
                .chain(object.rest.clone())
                .collect();
            wrong.push(missing(at("cmd"), Value::Object(input)));
        }
        for (idx, (name, kind)) in FIELDS.into_iter().enumerate() {
            // A full entry holds its arguments as the text that the logger made.
            let as_text =
                is_full && idx == ARGS && matches!(object.known[ARGS], Some(Value::String(_)));
            if let Some(value) = &mut object.known[idx]
                && !as_text
                && let Err((kind, message)) = kind.check(value)
            {
                wrong.push(Detail {
                    kind,
                    place: at(name),
                    message: message.into(),
                    input: value.clone(),
                    context: Value::Null,
                });
            }
        }
        if wrong.len() > n_wrong {
            return None;
        }
        Some(if is_full {
            Logged::Full(Box::new(Full(object.into_map())))
        } else {
            Logged::Call(Box::new(object.into_call()))
        })
    }
}

impl Object {
    /// All values have been checked.
    fn into_call(self) -> Call {
        let [
            cmd,
            args,
            language,
            env,
            success,
            duration_ms,
            output,
            error,
            extra,
            timestamp,
            trace_id,
            version,
            level,
            function_name,
        ] = self.known;
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let error = text(error).unwrap_or_default();
        let success = success.and_then(|value| value.as_bool());
        let failed = success == Some(false) || (!error.is_empty() && success != Some(true));
        let mut all_extra = self.rest;
        if let Some(Value::Object(extra)) = extra {
            all_extra.extend(extra);
        }
        Call {
            cmd: text(cmd).unwrap_or_default(),
            args: match args {
                Some(Value::Array(args)) => args,
                _ => Vec::new(),
            },
            language: text(language).unwrap_or_else(|| "bash".into()),
            env: text(env).unwrap_or_else(|| "prod".into()),
            level: text(level)
                .filter(|level| !level.trim().is_empty())
                .map_or(if failed { Level::Error } else { Level::Info }, |level| {
                    Level::parse(&level)
                }),
            duration_ms: duration_ms.and_then(|value| value.as_f64()).unwrap_or(0.0),
            output: text(output),
            error,
            trace_id: text(trace_id).unwrap_or_default(),
            version: text(version).unwrap_or_default(),
            timestamp: text(timestamp).and_then(|text| moment(&text)),
            function_name: text(function_name).filter(|name| !name.is_empty()),
            module: None,
            extra: all_extra,
        }
    }
}

impl Kind {
    /// Checks a value and brings it to its one form; numbers and flags may be texts.
    fn check(self, value: &mut Value) -> Result<(), (&'static str, &'static str)> {
        match (self, &*value) {
            (Kind::Text | Kind::TextOrNull, Value::String(_))
            | (
                Kind::TextOrNull | Kind::Flag | Kind::Number | Kind::Object | Kind::Moment,
                Value::Null,
            )
            | (Kind::List, Value::Array(_))
            | (Kind::Flag, Value::Bool(_))
            | (Kind::Number, Value::Number(_))
            | (Kind::Object, Value::Object(_)) => Ok(()),
            (Kind::Text | Kind::TextOrNull, _) => {
                Err(("string_type", "Input should be a valid string"))
            }
            (Kind::List, _) => Err(("list_type", "Input should be a valid list")),
            (Kind::Object, _) => Err(("dict_type", "Input should be a valid dictionary")),
            (Kind::Flag, Value::Number(_) | Value::String(_)) => {
                *value = Value::Bool(flag(value).ok_or((
                    "bool_parsing",
                    "Input should be a valid boolean, unable to interpret input",
                ))?);
                Ok(())
            }
            (Kind::Flag, _) => Err(("bool_type", "Input should be a valid boolean")),
            (Kind::Number, Value::Bool(flag)) => {
                *value = json!(f64::from(u8::from(*flag)));
                Ok(())
            }
            (Kind::Number, Value::String(text)) => {
                let number: f64 = text.trim().parse().map_err(|_| {
                    (
                        "float_parsing",
                        "Input should be a valid number, unable to parse string as a number",
                    )
                })?;
                *value = Number::from_f64(number)
                    .map(Value::Number)
                    .ok_or(("finite_number", "Input should be a finite number"))?;
                Ok(())
            }
            (Kind::Number, _) => Err(("float_type", "Input should be a valid number")),
            (Kind::Moment, Value::String(text)) if text.is_empty() || moment(text).is_some() => {
                Ok(())
            }
            (Kind::Moment, Value::Number(number)) => {
                let micros = number.as_f64().unwrap_or_default() * 1e6;
                *value = Timestamp::from_micros(micros as i64).to_string().into();
                Ok(())
            }
            (Kind::Moment, Value::String(_)) => Err((
                "datetime_parsing",
                "Input should be a valid datetime such as 2026-11-20T19:54:48+00:00",
            )),
            (Kind::Moment, _) => Err(("datetime_type", "Input should be a valid datetime")),
        }
    }
}

fn flag(value: &Value) -> Option<bool> {
    let text = match value {
        Value::String(text) => text.to_lowercase(),
        other => other.to_string(),
    };
    Some(match text.as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => true,
        "false" | "0" | "no" | "off" | "f" | "n" => false,
        _ => return None,
    })
}

/// Reads a moment; a `+` that became a blank in an address is one again.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let (date, zone) = text.trim().rsplit_once(' ')?;
        format!("{date}+{zone}").parse().ok()
    })
}

/// The words of a search.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut object = Box::<Object>::default();
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Known(idx) => object.known[idx] = Some(map.next_value()?),
                Key::Entries => object.entries = Some(Box::new(map.next_value()?)),
                Key::Other(name) => {
                    object.rest.insert(name, map.next_value()?);
                }
            }
        }
        Ok(Node::Object(object))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = seq.next_element()? {
            list.push(node);
        }
        Ok(Node::List(list))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Other(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Other(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Other(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Other(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Other(value.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Other(value.into()))
    }
}

/// The name of a field; those we know cost no memory.
enum Key {
    Known(usize),
    Entries,
    Other(String),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Key, E> {
                Ok(match FIELDS.iter().position(|(field, _)| *field == name) {
                    Some(idx) => Key::Known(idx),
                    None if name == "entries" => Key::Entries,
                    None => Key::Other(name.to_owned()),
                })
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_blank_in_a_moment_of_an_address_is_a_plus() {
        let plain = moment("2026-11-20T19:54:48.5+01:00");
        assert!(plain.is_some());
        assert_eq!(moment("2026-11-20T19:54:48.5 01:00"), plain);
        assert_eq!(moment("2026-11-20 18:54:48.5"), plain);
        assert_eq!(moment("soon"), None);
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(text in "(?s)([\\[\\]{}\":, \n0-9a.-]|\"cmd\"|\"entries\"|\"args\"){0,40}|.*") {
            let _ = (single(text.as_bytes()), batch(text.as_bytes(), 10));
        }
    }
}
