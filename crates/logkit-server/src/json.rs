//! JSON of strangers: where its values are, without memory for what is not wanted, and values of
//! bounded size.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Values that one entry may hold, those within others counted too.
pub(crate) const MAX_VALUES: usize = 32_768;

/// What is no JSON.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The byte of the body.
    pub(crate) at: usize,
    pub(crate) reason: String,
}

/// Where a value is in a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueSpan<'a> {
    body: &'a [u8],
    start: usize,
    end: usize,
}

/// The values of a body, one after the other.
pub(crate) struct Values<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Values<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Values<'a> {
        Values { body, at: 0 }
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<ValueSpan<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = skip(self.body, self.at, b"");
        if start == self.body.len() {
            return None;
        }
        let place = value_at(self.body, start);
        self.at = place.as_ref().map_or(self.body.len(), |place| place.end);
        Some(place)
    }
}

impl<'a> ValueSpan<'a> {
    pub(crate) fn text(self) -> &'a [u8] {
        &self.body[self.start..self.end]
    }

    pub(crate) fn is_list(self) -> bool {
        self.text().first() == Some(&b'[')
    }

    pub(crate) fn is_object(self) -> bool {
        self.text().first() == Some(&b'{')
    }

    /// The elements of a list; none of anything else.
    pub(crate) fn elements(self) -> impl Iterator<Item = ValueSpan<'a>> {
        let mut at = self.start + 1;
        let is_list = self.is_list();
        std::iter::from_fn(move || {
            let start = skip(self.body, at, b",");
            if !is_list || start + 1 >= self.end {
                return None;
            }
            let element = value_at(self.body, start).ok()?;
            at = element.end;
            Some(element)
        })
    }

    /// The names and values of an object; none of anything else.
    pub(crate) fn members(self) -> impl Iterator<Item = (ValueSpan<'a>, ValueSpan<'a>)> {
        let mut at = self.start + 1;
        let is_object = self.is_object();
        std::iter::from_fn(move || {
            let start = skip(self.body, at, b",");
            if !is_object || start + 1 >= self.end {
                return None;
            }
            let name = value_at(self.body, start).ok()?;
            let value = value_at(self.body, skip(self.body, name.end, b":")).ok()?;
            at = value.end;
            Some((name, value))
        })
    }

    /// The member of that name; the last of several.
    pub(crate) fn member(self, wanted: &str) -> Option<ValueSpan<'a>> {
        let found = self.members().filter(|(name, _)| name.is_text(wanted));
        found.last().map(|(_, value)| value)
    }

    /// True if it is that text.
    pub(crate) fn is_text(self, wanted: &str) -> bool {
        let text = self.text();
        let plain = text
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""));
        // Each character of a text can be written in six bytes.
        plain == Some(wanted.as_bytes())
            || (text.len() <= 6 * wanted.len() + 2
                && text.contains(&b'\\')
                && serde_json::from_slice::<String>(text).is_ok_and(|text| text == wanted))
    }

    /// Reads what is there.
    pub(crate) fn read<S: DeserializeSeed<'a>>(self, seed: S) -> Result<S::Value, Fault> {
        let mut deserializer = serde_json::Deserializer::from_slice(self.text());
        seed.deserialize(&mut deserializer)
            .map_err(|error| fault(self.text(), self.start, &error))
    }
}

/// The value that starts there, which is skipped without recursion.
fn value_at(body: &[u8], start: usize) -> Result<ValueSpan<'_>, Fault> {
    let rest = &body[start..];
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => Ok(ValueSpan {
            body,
            start,
            end: start + values.byte_offset(),
        }),
        Some(Err(error)) => Err(fault(rest, start, &error)),
        None => Err(Fault {
            at: start,
            reason: "EOF while parsing a value".into(),
        }),
    }
}

/// Where the next byte is that is neither blank nor one of these.
fn skip(body: &[u8], at: usize, more: &[u8]) -> usize {
    let rest = body.get(at..).unwrap_or_default();
    let n_skipped = rest
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') && !more.contains(byte));
    n_skipped.map_or(body.len(), |n| at + n)
}

fn fault(text: &[u8], start: usize, error: &serde_json::Error) -> Fault {
    let before: usize = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let said = error.to_string();
    Fault {
        at: start + before + error.column().saturating_sub(1),
        reason: said.split(" at line ").next().unwrap_or_default().into(),
    }
}

/// Reads any value.
pub(crate) struct Bounded<'n>(pub(crate) &'n mut usize);

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        *self.0 = self
            .0
            .checked_sub(1)
            .ok_or_else(|| de::Error::custom("too many values"))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key()? {
            map.insert(name, members.next_value_seed(Bounded(self.0))?);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = elements.next_element_seed(Bounded(self.0))? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
}

/// A value to show in an error: what is too large for that is left out.
pub(crate) fn shown(place: ValueSpan<'_>) -> Value {
    if place.text().len() > SHOWN_BYTES {
        return LEFT_OUT.into();
    }
    Value::deserialize(&mut serde_json::Deserializer::from_slice(place.text()))
        .unwrap_or(Value::Null)
}

/// The same of a value that was read.
pub(crate) fn shown_value(value: &Value) -> Value {
    fn size(value: &Value) -> usize {
        4 + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(size).sum(),
            Value::Object(map) => map
                .iter()
                .map(|(name, value)| name.len() + size(value))
                .sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }
    if size(value) > SHOWN_BYTES {
        LEFT_OUT.into()
    } else {
        value.clone()
    }
}

const SHOWN_BYTES: usize = 4096;
const LEFT_OUT: &str = "(too large to be shown)";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts<'a>(places: impl Iterator<Item = ValueSpan<'a>>) -> Vec<&'a str> {
        places
            .map(|place| std::str::from_utf8(place.text()).unwrap())
            .collect()
    }

    #[test]
    fn values_are_found_where_they_are() {
        let body = br#" [1, "a,]" ,{"b" : [2]}] {"x":1,"\u0078": 2 } 3"#;
        let values: Vec<_> = Values::new(body).map(Result::unwrap).collect();
        assert_eq!(values.len(), 3);
        assert_eq!(
            texts(values[0].elements()),
            ["1", "\"a,]\"", "{\"b\" : [2]}"]
        );
        let last = values[1].member("x").map(ValueSpan::text);
        assert_eq!(last, Some(&b"2"[..]));
        assert_eq!(
            values[2].elements().count() + values[2].members().count(),
            0
        );
        let deep = "[".repeat(1_000_000);
        assert!(Values::new(deep.as_bytes()).any(|value| value.is_err()));
    }

    #[test]
    fn values_are_counted() {
        let body = b"[[0,0,0],{\"a\":0}]";
        let place = Values::new(body).next().unwrap().unwrap();
        for (most, fits) in [(6, false), (7, true)] {
            let mut left = most;
            assert_eq!(place.read(Bounded(&mut left)).is_ok(), fits);
        }
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_serde_finds(text in "(\\[|\\]|\\{|\\}|,|:|\"a\"|1|null| ){0,24}") {
            let body = text.as_bytes();
            let Ok(value) = serde_json::from_slice::<Value>(body) else {
                return Ok(());
            };
            let place = Values::new(body).next().unwrap().unwrap();
            let read = |place: ValueSpan<'_>| serde_json::from_slice::<Value>(place.text()).unwrap();
            if let Value::Array(list) = &value {
                prop_assert_eq!(&place.elements().map(read).collect::<Vec<_>>(), list);
            }
            if let Value::Object(map) = &value {
                for (name, value) in map {
                    prop_assert_eq!(&place.member(name).map(read), &Some(value.clone()));
                }
            }
        }
    }
}
