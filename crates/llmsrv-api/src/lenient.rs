//! How forgiving the API is about request bodies, so that every existing client is understood, and
//! how much of them it keeps.
//!
//! The `Content-Type` does not matter, bytes after the first JSON value are ignored, unknown members
//! too, `null` means absent, and names of members are compared without case. A member of the wrong
//! type is an error that names it.
//!
//! A value in memory is up to a hundred times as large as its text. So members that the request does
//! not have are skipped and never become values, and the values of the others are counted while they
//! are read: a body may have `FREE_BYTES` of them and as much again as it is long. Nesting is bounded
//! by the JSON parser, which skips without recursion.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A request body that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// There are no bytes.
    #[error("missing request body")]
    Missing,
    /// The bytes do not begin with a JSON object.
    #[error("invalid request body: {0}")]
    Json(String),
    /// Its values would take too much memory.
    #[error(
        "the request body has too many values; send fewer messages, tools or entries in one request"
    )]
    TooMany,
    /// A member has another type than it must have.
    #[error("{member} must be {expected}")]
    Type {
        /// Name of the member.
        member: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A member means nothing.
    #[error("{0}")]
    Meaning(String),
}

impl BodyError {
    pub(crate) fn of_type(member: &str, expected: &'static str) -> BodyError {
        BodyError::Type {
            member: member.to_owned(),
            expected,
        }
    }
}

/// The members of a request by their lower-case names; `null` members are gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    members: Map<String, Value>,
    /// Members that were asked for as ids of tokens.
    ids: Vec<(String, Ids)>,
    /// Bytes that the values take at most, besides the texts.
    weight: usize,
}

/// Ids of tokens, in the few bytes they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The ids of one text: `[1, 2]`.
    One(Vec<u32>),
    /// Those of several texts: `[[1, 2], [3]]`.
    Many(Vec<Vec<u32>>),
}

impl Fields {
    /// Reads the first JSON value of a body, which must be an object. Only the members in `names` are
    /// kept, and those in `ids` for [`Fields::ids`] where they are lists of token ids.
    ///
    /// # Errors
    /// If it is no object, or if it has too many values.
    pub fn parse(body: &[u8], names: &[&str], ids: &[&str]) -> Result<Fields, BodyError> {
        let Some(first) = body.iter().find(|byte| !byte.is_ascii_whitespace()) else {
            return Err(BodyError::Missing);
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        if *first != b'{' {
            let read = serde::Deserialize::deserialize(&mut json);
            return Err(BodyError::Json(match read {
                Ok(IgnoredAny) => "it is not a JSON object".into(),
                Err(error) => error.to_string(),
            }));
        }
        let room = body.len().saturating_add(FREE_BYTES);
        Room::set(room);
        let read = Members { names, ids }.deserialize(&mut json);
        let mut fields = read.map_err(refused)?;
        fields.weight = room - Room::left();
        Ok(fields)
    }

    /// Returns how many bytes the values take at most, besides the texts.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Takes a list of token ids, if the member is one and was asked for as such.
    pub fn ids(&mut self, name: &str) -> Option<Ids> {
        let at = self.ids.iter().position(|(known, _)| known == name)?;
        Some(self.ids.swap_remove(at).1)
    }

    /// Takes a member as it is.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.members.shift_remove(name)
    }

    /// Puts a member in unless it is there. `name` is in lower case.
    pub fn put_default(&mut self, name: &str, value: Value) {
        self.members.entry(name.to_owned()).or_insert(value);
    }
}

impl From<Map<String, Value>> for Fields {
    fn from(members: Map<String, Value>) -> Fields {
        let known = members.into_iter().filter(|(_, value)| !value.is_null());
        Fields {
            members: known
                .map(|(name, value)| (name.to_lowercase(), value))
                .collect(),
            ..Fields::default()
        }
    }
}

/// Reads an object that is written as text within a body, such as the arguments of a call. Its
/// values count as those of the body that was read last on this thread.
///
/// # Errors
/// If it is no object, or if the body has too many values with it.
pub fn object_in_text(text: &str) -> Result<Map<String, Value>, BodyError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Build.deserialize(&mut json).map_err(refused)?;
    json.end().map_err(refused)?;
    match read {
        Value::Object(members) => Ok(members),
        _ => Err(BodyError::Json("it is not a JSON object".into())),
    }
}

/// Reads any JSON value that others have sent, with the bounds of a body.
///
/// # Errors
/// If it is none, or if it has too many values.
pub fn value(json: &[u8]) -> Result<Value, BodyError> {
    Room::set(json.len().saturating_add(FREE_BYTES));
    let mut json = serde_json::Deserializer::from_slice(json);
    let read = Build.deserialize(&mut json).map_err(refused)?;
    json.end().map_err(refused)?;
    Ok(read)
}

fn refused(error: serde_json::Error) -> BodyError {
    if Room::is_spent() {
        BodyError::TooMany
    } else {
        BodyError::Json(error.to_string())
    }
}

/// What the values of a body may still take. It belongs to the thread, because what a body holds as
/// text is read later than the body, by code that knows nothing of it.
struct Room;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(FREE_BYTES) };
    static SPENT: Cell<bool> = const { Cell::new(false) };
}

impl Room {
    fn set(bytes: usize) {
        LEFT.set(bytes);
        SPENT.set(false);
    }

    fn left() -> usize {
        LEFT.get()
    }

    fn is_spent() -> bool {
        SPENT.get()
    }

    fn take<E: serde::de::Error>(bytes: usize) -> Result<(), E> {
        if let Some(left) = LEFT.get().checked_sub(bytes) {
            LEFT.set(left);
            Ok(())
        } else {
            SPENT.set(true);
            Err(E::custom("too many values"))
        }
    }
}

/// Reads the members of a body that somebody asks for.
struct Members<'a> {
    names: &'a [&'a str],
    ids: &'a [&'a str],
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Fields, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = map.next_key::<String>()? {
            let name = if name.len() <= LONGEST_MEMBER {
                name.to_lowercase()
            } else {
                name
            };
            if !self.names.contains(&name.as_str()) {
                map.next_value::<IgnoredAny>()?;
            } else if self.ids.contains(&name.as_str()) {
                fields.ids.retain(|(known, _)| *known != name);
                match map.next_value_seed(BuildIds)? {
                    List::Ids(ids) => fields.ids.push((name, ids)),
                    List::Other(Value::Null) => {}
                    List::Other(value) => drop(fields.members.insert(name, value)),
                }
            } else {
                match map.next_value_seed(Build)? {
                    Value::Null => {}
                    value => drop(fields.members.insert(name, value)),
                }
            }
        }
        Ok(fields)
    }
}

/// Builds a value and counts what it takes.
struct Build;

impl<'de> DeserializeSeed<'de> for Build {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        Room::take::<E>(SMALLEST_TEXT)?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        Room::take::<A::Error>(SMALLEST_TEXT)?;
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(Build)? {
            push::<A::Error>(&mut values, value)?;
        }
        values.shrink_to_fit();
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        Room::take::<A::Error>(OBJECT)?;
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            Room::take::<A::Error>(MEMBER + name.len())?;
            let value = map.next_value_seed(Build)?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

fn push<E: serde::de::Error>(values: &mut Vec<Value>, value: Value) -> Result<(), E> {
    Room::take::<E>(ELEMENT)?;
    values.push(value);
    Ok(())
}

/// A value that may be ids of tokens.
enum List {
    Ids(Ids),
    Other(Value),
}

/// Builds a list of ids, or of lists of them, without a value for each; anything else as a value.
struct BuildIds;

impl<'de> DeserializeSeed<'de> for BuildIds {
    type Value = List;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<List, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BuildIds {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<List, E> {
        Build.visit_bool(value).map(List::Other)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<List, E> {
        Build.visit_i64(value).map(List::Other)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<List, E> {
        Build.visit_u64(value).map(List::Other)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<List, E> {
        Build.visit_f64(value).map(List::Other)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<List, E> {
        Build.visit_str(text).map(List::Other)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<List, E> {
        Build.visit_unit().map(List::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<List, A::Error> {
        Build.visit_map(map).map(List::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List, A::Error> {
        Room::take::<A::Error>(LIST_OF_IDS)?;
        let (mut ids, mut lists) = (Vec::new(), Vec::new());
        let mut others = Vec::new();
        while let Some(element) = seq.next_element_seed(BuildIds)? {
            let id = match &element {
                List::Other(value) => value.as_u64().and_then(|id| u32::try_from(id).ok()),
                List::Ids(_) => None,
            };
            match element {
                _ if id.is_some() && lists.is_empty() && others.is_empty() => {
                    Room::take::<A::Error>(ID)?;
                    ids.extend(id);
                }
                List::Ids(Ids::One(list)) if ids.is_empty() && others.is_empty() => {
                    lists.push(list);
                }
                // It is a list of something else: what looked like ids becomes values.
                element => {
                    for id in std::mem::take(&mut ids) {
                        push::<A::Error>(&mut others, Value::from(id))?;
                    }
                    for list in std::mem::take(&mut lists) {
                        push::<A::Error>(&mut others, values_of::<A::Error>(Ids::One(list))?)?;
                    }
                    let value = match element {
                        List::Ids(ids) => values_of::<A::Error>(ids)?,
                        List::Other(value) => value,
                    };
                    push::<A::Error>(&mut others, value)?;
                }
            }
        }
        Ok(if !others.is_empty() {
            others.shrink_to_fit();
            List::Other(Value::Array(others))
        } else if lists.is_empty() {
            List::Ids(Ids::One(ids))
        } else {
            List::Ids(Ids::Many(lists))
        })
    }
}

fn values_of<E: serde::de::Error>(ids: Ids) -> Result<Value, E> {
    let mut values = Vec::new();
    match ids {
        Ids::One(ids) => {
            for id in ids {
                push::<E>(&mut values, Value::from(id))?;
            }
        }
        Ids::Many(lists) => {
            for list in lists {
                push::<E>(&mut values, values_of::<E>(Ids::One(list))?)?;
            }
        }
    }
    Ok(Value::Array(values))
}

/// Bytes of values that every body may have; more of them only as it is longer.
const FREE_BYTES: usize = 12 << 20;
/// Most bytes that an element of a list takes: the list may have room for as many again.
const ELEMENT: usize = 2 * size_of::<Value>();
/// What the allocator gives to the shortest text or list.
const SMALLEST_TEXT: usize = 32;
/// What an object takes with its first member, and the message or tool that is made of it.
const OBJECT: usize = 512;
/// What each member takes besides its name: its entry and its place in the index, both with room
/// for as many again.
const MEMBER: usize = 2 * (size_of::<(String, Value)>() + 2 * size_of::<usize>()) + SMALLEST_TEXT;
const ID: usize = 2 * size_of::<u32>();
const LIST_OF_IDS: usize = 2 * size_of::<Vec<u32>>() + SMALLEST_TEXT;
const LONGEST_MEMBER: usize = 64;

/// Returns a number as an integer, its fraction cut off.
pub fn cut(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        value
            .as_f64()
            .filter(|number| number.is_finite())
            .map(|number| number as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body whose members are all wanted.
    fn parse(body: &[u8]) -> Result<Fields, BodyError> {
        let names = [
            "model", "prompt", "messages", "tools", "options", "format", "input",
        ];
        let others = ["images", "logit_bias", "stream", "n"];
        Fields::parse(body, &[&names[..], &others[..]].concat(), &[])
    }

    #[test]
    fn bodies_are_read_with_patience() {
        let mut fields = parse(br#" {"MODEL":"m","prompt":null,"x":[{}]} trailing"#).unwrap();
        assert_eq!(fields.take("model"), Some("m".into()));
        assert_eq!(fields.take("prompt"), None);
        assert_eq!(parse(b" \n"), Err(BodyError::Missing));
        for body in [&b"{"[..], b"[]", b"\"x\"", b"nonsense", b"\xff\xfe"] {
            assert!(matches!(parse(body), Err(BodyError::Json(_))), "{body:?}");
        }
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn what_nobody_reads_costs_nothing_and_the_rest_is_bounded() {
        let lists = |n: usize| "[0],".repeat(n);
        let many = lists(1 << 20);
        let junk = format!(r#"{{"model":"m","junk":[{many}0]}}"#);
        let mut fields = parse(junk.as_bytes()).unwrap();
        assert_eq!(fields.take("model"), Some("m".into()));
        assert!(fields.weight() < 1000, "{}", fields.weight());
        for member in [
            "messages",
            "tools",
            "options",
            "format",
            "input",
            "images",
            "logit_bias",
        ] {
            let body = format!(r#"{{"model":"m","{member}":[{many}0]}}"#);
            assert_eq!(parse(body.as_bytes()), Err(BodyError::TooMany), "{member}");
            let body = format!(r#"{{"{member}":[{}0]}}"#, lists(1000));
            assert!(parse(body.as_bytes()).is_ok(), "{member}");
        }
        let names = |n: usize| {
            let members: Vec<String> = (0..n).map(|n| format!(r#""{n}":0,"#)).collect();
            members.concat()
        };
        let options = format!(r#"{{"options":{{{}"x":0}}}}"#, names(200_000));
        assert_eq!(parse(options.as_bytes()), Err(BodyError::TooMany));
        // Texts are as large as they are.
        let text = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(32 << 20));
        let mut fields = parse(text.as_bytes()).unwrap();
        let prompt = fields.take("prompt").unwrap();
        assert_eq!(prompt.as_str().unwrap().len(), 32 << 20);
    }

    #[test]
    fn objects_written_as_text_count_with_their_body() {
        let arguments = format!(r#"{{"a":[{}0]}}"#, "[0],".repeat(10_000));
        let fields = parse(br#"{"model":"m"}"#);
        assert!(fields.is_ok());
        let mut n_read = 0;
        while object_in_text(&arguments).is_ok() {
            n_read += 1;
            assert!(n_read < 10, "each takes megabytes");
        }
        assert!(n_read > 0);
        assert_eq!(object_in_text("{}"), Err(BodyError::TooMany));
        assert!(parse(b"{}").is_ok() && object_in_text("{}").is_ok());
        assert!(value(b"[1]").is_ok() && value(b"[1] x").is_err());
        assert_eq!(
            value(
                ["[", &format!("{arguments},").repeat(20), "0]"]
                    .concat()
                    .as_bytes()
            ),
            Err(BodyError::TooMany)
        );
        assert!(parse(b"{}").is_ok());
        assert!(object_in_text("[]").is_err() && object_in_text("{} x").is_err());
    }

    #[test]
    fn ids_are_read_without_values() {
        let read = |text: &str| {
            let body = format!(r#"{{"input":{text}}}"#);
            let mut fields = Fields::parse(body.as_bytes(), &["input"], &["input"]).unwrap();
            (fields.ids("input"), fields.take("input"))
        };
        assert_eq!(read("[1,2]"), (Some(Ids::One(vec![1, 2])), None));
        let many = Ids::Many(vec![vec![1], vec![], vec![2, 3]]);
        assert_eq!(read("[[1],[],[2,3]]"), (Some(many), None));
        for text in [
            r#""x""#,
            "[1,\"x\"]",
            "[1.5]",
            "[-1,2]",
            "[4294967296]",
            "[[1],2]",
            "[[[1]],[2]]",
            "[[1],[\"x\"]]",
            "[1,[2],null,{}]",
            "{}",
            "true",
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text), (None, Some(value)), "{text}");
        }
        assert_eq!(read("null"), (None, None));
        let numbers = format!(r#"{{"input":[{}7]}}"#, "12345,".repeat(2_000_000));
        let fields = Fields::parse(numbers.as_bytes(), &["input"], &["input"]);
        assert_eq!(
            fields.map(|mut fields| fields.ids("input").is_some()),
            Ok(true)
        );
        assert_eq!(parse(numbers.as_bytes()), Err(BodyError::TooMany));
    }
}
