//! Bodies of JSON to calls, with errors that name every wrong value and its place.

use std::fmt;

use http::StatusCode;
use logkit::{Entry, Level, Redactor, Timestamp};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess, Visitor},
};
use serde_json::{Map, Number, Value, json};

use crate::{
    body::SINGLE_BYTES,
    call::{Call, Full, Logged, moment},
    json::{Bounded, Fault, MAX_VALUES, ValueSpan, Values, shown, shown_value},
    refusal::{Detail, Refusal},
};

/// Wrong values that one answer names.
const MAX_DETAILS: usize = 100;
/// Memory of the entries of a batch, beside three times the bytes of its body.
const SPARE_BYTES: usize = 8 << 20;

/// The entries that a body sent to `/log`, or with `is_batch` to `/log/batch`, stores; else the status
/// it is refused with.
pub fn entries(body: &[u8], is_batch: bool, redactor: &Redactor) -> Result<Vec<Entry>, u16> {
    let mut entries = Vec::new();
    let mut take = |logged: Logged| {
        let (mut entry, _, _) = logged.into_entry(Some(redactor));
        redactor.redact_entry(&mut entry);
        let n_bytes = entry.size_bytes();
        entries.push(entry);
        n_bytes
    };
    let outcome = if is_batch {
        batch(body, usize::MAX, &mut take)
    } else {
        single(body).map(|logged| {
            take(logged);
        })
    };
    outcome.map_err(|refusal| refusal.status.as_u16())?;
    Ok(entries)
}

/// Reads the body of a single entry.
pub(crate) fn single(body: &[u8]) -> Result<Logged, Refusal> {
    let mut values = Values::new(body);
    let place = values.next().ok_or_else(nothing)?.map_err(not_json)?;
    if let Some(more) = values.next() {
        more.map_err(not_json)?;
        return Err(Refusal::invalid(vec![trailing(body)]));
    }
    let mut wrong = Vec::new();
    match Element::read(place, At::Body)?.into_logged(At::Body, &mut wrong) {
        Some(logged) if wrong.is_empty() => Ok(logged),
        _ => Err(Refusal::invalid(wrong)),
    }
}

/// Reads the body of a batch: an object with `entries`, an array, or one entry a line. Hands each
/// entry on as it is read, and is told how much memory is held for it: a small body cannot become
/// much of it.
pub(crate) fn batch(
    body: &[u8],
    max_entries: usize,
    mut take: impl FnMut(Logged) -> usize,
) -> Result<(), Refusal> {
    let mut wrong = Vec::new();
    let elements = elements(body, max_entries, &mut wrong)?;
    let most = 3 * body.len() + SPARE_BYTES;
    let mut held = 0;
    for (at, place) in elements {
        if wrong.len() >= MAX_DETAILS {
            break;
        }
        let logged = Element::read(place, at)?.into_logged(at, &mut wrong);
        if let Some(logged) = logged.filter(|_| wrong.is_empty()) {
            held += take(logged);
        }
        if held > most {
            return Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "The entries of this batch take too much memory; send fewer at a time",
            ));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        wrong.truncate(MAX_DETAILS);
        Err(Refusal::invalid(wrong))
    }
}

/// Where the entries of a batch are. Nothing is read yet; all of the body is JSON.
fn elements<'a>(
    body: &'a [u8],
    max_entries: usize,
    wrong: &mut Vec<Detail>,
) -> Result<Vec<(At, ValueSpan<'a>)>, Refusal> {
    let mut values = Values::new(body);
    let first = values.next().ok_or_else(nothing)?.map_err(not_json)?;
    let second = values.next().transpose().map_err(not_json)?;
    let is_lines = second.is_some();
    let before = [Some(first), second].into_iter().flatten().map(Ok);
    let mut elements = Vec::new();
    let mut n_elements = 0;
    let mut add = |at: At, place: ValueSpan<'a>| {
        if n_elements < max_entries {
            elements.push((at, place));
        }
        n_elements += 1;
    };
    for (line, place) in before.chain(values).enumerate() {
        let place = place.map_err(not_json)?;
        if place.is_list() {
            let list = place.elements().enumerate();
            list.for_each(|(idx, element)| add(At::Index(idx), element));
            continue;
        }
        let (mut entries, mut is_entry) = (None, false);
        for (name, value) in place.members() {
            if name.is_text("entries") {
                entries = Some(value);
            }
            is_entry |= name.is_text(FIELDS[CMD].0) || name.is_text(FIELDS[FUNCTION].0);
        }
        match entries {
            Some(list) if list.is_list() => {
                let list = list.elements().enumerate();
                list.for_each(|(idx, element)| add(At::Entry(idx), element));
            }
            _ if wrong.len() >= MAX_DETAILS => {}
            Some(other) => wrong.push(Detail {
                kind: "list_type",
                place: At::Entries.path(),
                message: "Input should be a valid list".into(),
                input: shown(other),
                context: Value::Null,
            }),
            None if place.is_object() && !is_lines && !is_entry => {
                wrong.push(missing(At::Entries.path(), shown(place)));
            }
            None => add(At::Index(line), place),
        }
    }
    if n_elements > max_entries {
        return Err(Refusal::invalid(vec![Detail {
            kind: "too_long",
            place: At::Entries.path(),
            message: format!(
                "List should have at most {max_entries} items after validation, not {n_elements}"
            ),
            input: Value::Null,
            context: json!({"max_length": max_entries, "actual_length": n_elements}),
        }]));
    }
    Ok(elements)
}

/// Where an entry is, for errors.
#[derive(Clone, Copy)]
enum At {
    Body,
    /// The list of all.
    Entries,
    Entry(usize),
    Index(usize),
}

impl At {
    fn path(self) -> Vec<Value> {
        let mut path = vec![json!("body")];
        match self {
            At::Body => {}
            At::Entries => path.push(json!("entries")),
            At::Entry(idx) => path.extend([json!("entries"), json!(idx)]),
            At::Index(idx) => path.push(json!(idx)),
        }
        path
    }
}

fn not_json(fault: Fault) -> Refusal {
    Refusal::invalid(vec![Detail {
        kind: "json_invalid",
        place: vec![json!("body"), json!(fault.at)],
        message: "JSON decode error".into(),
        input: json!({}),
        context: json!({ "error": fault.reason }),
    }])
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

fn nothing() -> Refusal {
    Refusal::invalid(vec![missing(At::Body.path(), Value::Null)])
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

/// What is to become an entry.
enum Element {
    Object(Box<Object>),
    Other(Value),
}

#[derive(Default)]
struct Object {
    known: [Option<Value>; FIELDS.len()],
    rest: Map<String, Value>,
    /// For errors.
    shown: Value,
}

impl Object {
    fn into_map(self) -> Map<String, Value> {
        let mut map: Map<String, Value> = FIELDS
            .into_iter()
            .zip(self.known)
            .filter_map(|((name, _), value)| Some((name.to_owned(), value?)))
            .collect();
        map.extend(self.rest);
        map
    }
}

impl Element {
    fn read(place: ValueSpan<'_>, at: At) -> Result<Element, Refusal> {
        if place.text().len() > SINGLE_BYTES {
            return Err(too_large(
                at,
                &format!("is larger than {SINGLE_BYTES} bytes"),
            ));
        }
        if !place.is_object() {
            return Ok(Element::Other(shown(place)));
        }
        let mut left = MAX_VALUES;
        let object = place.read(ObjectSeed(&mut left));
        if left == 0 {
            return Err(too_large(at, &format!("has {MAX_VALUES} values or more")));
        }
        let mut object = object.map_err(not_json)?;
        let is_full = matches!(object.known[FUNCTION], Some(Value::String(_)));
        if object.known[CMD].is_none() && !is_full {
            object.shown = shown(place);
        }
        Ok(Element::Object(object))
    }

    /// The entry, or what is wrong with it.
    fn into_logged(self, at: At, wrong: &mut Vec<Detail>) -> Option<Logged> {
        let mut object = match self {
            Element::Object(object) => *object,
            Element::Other(input) => {
                wrong.push(Detail {
                    kind: "model_attributes_type",
                    place: at.path(),
                    message: "Input should be a valid dictionary or object to extract fields from"
                        .into(),
                    input,
                    context: Value::Null,
                });
                return None;
            }
        };
        let at = |name: &str| {
            let mut path = at.path();
            path.push(json!(name));
            path
        };
        let is_full =
            object.known[CMD].is_none() && matches!(object.known[FUNCTION], Some(Value::String(_)));
        let n_wrong = wrong.len();
        if object.known[CMD].is_none() && !is_full {
            wrong.push(missing(at("cmd"), std::mem::take(&mut object.shown)));
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
                    input: shown_value(value),
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

fn too_large(at: At, why: &str) -> Refusal {
    let text = match at {
        At::Entry(idx) | At::Index(idx) => format!("Entry {idx} {why}"),
        At::Body | At::Entries => format!("The entry {why}"),
    };
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}

/// Reads an object that is to become an entry.
struct ObjectSeed<'n>(&'n mut usize);

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = Box<Object>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Box<Object>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = Box<Object>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Box<Object>, A::Error> {
        let mut object = Box::<Object>::default();
        while let Some(key) = map.next_key::<Key>()? {
            let value = map.next_value_seed(Bounded(self.0))?;
            match key {
                Key::Known(idx) => object.known[idx] = Some(value),
                Key::Other(name) => {
                    object.rest.insert(name, value);
                }
            }
        }
        Ok(object)
    }
}

/// The name of a field; those we know cost no memory.
enum Key {
    Known(usize),
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
            let _ = (single(text.as_bytes()).is_ok(), batch(text.as_bytes(), 10, |_| 0).is_ok());
        }
    }
}
