//! Values as JSON, for `extra`: bounded, because a program hands over whatever it has, and every entry
//! within a context gets its fields.
//!
//! A tree whose nodes know their parents is written once: a container within itself is `{...}`, as Python
//! writes it. What is over the bounds is left out, and said in its place: a list ends with the text
//! `... [truncated 5 values]`, and a dictionary has that text under the key `...`.

use std::{borrow::Cow, fmt::Write};

use pyo3::{
    PyTypeInfo,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use serde_json::{Map, Number, Value};

use super::{Renderer, leaf::start_of, walk::items};

/// Containers within containers; of deeper ones the repr is kept.
const MAX_DEPTH: usize = 16;
/// Values of all fields together, those within containers and the containers themselves among them.
const MAX_VALUES: usize = 10_000;
/// Bytes of all texts together, those of keys among them.
const MAX_TEXT: usize = 64 << 10;
/// Fields with texts of up to that many characters do not wait behind large ones.
const MAX_SMALL: usize = 256;
/// The key under which a dictionary says what it lacks.
const CUT_KEY: &str = "...";

/// The members of a dictionary; keys become texts, and so does what JSON has no form for.
pub(crate) fn json_map(dict: &Bound<'_, PyDict>, renderer: &Renderer) -> Map<String, Value> {
    Converter::new(renderer).fields(dict)
}

struct Converter<'r> {
    renderer: Cow<'r, Renderer>,
    /// Addresses of the containers that are being converted.
    open: Vec<usize>,
    n_values_left: usize,
    n_bytes_left: usize,
}

impl<'r> Converter<'r> {
    fn new(renderer: &'r Renderer) -> Converter<'r> {
        let has_limit = (1..=MAX_TEXT).contains(&renderer.limit);
        Converter {
            renderer: if has_limit {
                Cow::Borrowed(renderer)
            } else {
                Cow::Owned(Renderer {
                    limit: MAX_TEXT,
                    ..renderer.clone()
                })
            },
            open: Vec::new(),
            n_values_left: MAX_VALUES,
            n_bytes_left: MAX_TEXT,
        }
    }

    /// The fields themselves. The small ones come first, so that a large one costs none of them; one for
    /// which no room is left keeps its name.
    fn fields(&mut self, dict: &Bound<'_, PyDict>) -> Map<String, Value> {
        let n_all = dict.len();
        let members = items(dict, self.n_values_left);
        let mut fields = Vec::with_capacity(members.len());
        for (key, value) in members {
            if self.is_full() {
                break;
            }
            let key = self.key(&key);
            let small = self.scalar(&value, MAX_SMALL);
            fields.push((key, small.ok_or(value)));
        }
        let n_kept = fields.len();
        let mut map = Map::with_capacity(n_kept);
        for (key, value) in fields {
            let value = match value {
                Ok(small) => small,
                Err(_) if self.is_full() => cut_note(1),
                Err(large) => self.value(&large),
            };
            map.insert(key, value);
        }
        note_cut(&mut map, n_all, n_kept);
        map
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>) -> Value {
        let n_all = dict.len();
        let members = items(dict, self.n_values_left);
        let mut map = Map::with_capacity(members.len());
        let mut n_kept = 0;
        for (key, value) in members {
            if self.is_full() {
                break;
            }
            map.insert(self.key(&key), self.value(&value));
            n_kept += 1;
        }
        note_cut(&mut map, n_all, n_kept);
        map.into()
    }

    fn key(&mut self, key: &Bound<'_, PyAny>) -> String {
        match known::<PyString>(key) {
            Some(key) => self.string(key),
            None => self.repr(key),
        }
    }

    fn list<'py>(
        &mut self,
        n_all: usize,
        values: impl Iterator<Item = Bound<'py, PyAny>>,
    ) -> Value {
        let mut kept = Vec::with_capacity(n_all.min(self.n_values_left));
        for value in values {
            if self.is_full() {
                kept.push(cut_note(n_all.saturating_sub(kept.len())));
                break;
            }
            kept.push(self.value(&value));
        }
        kept.into()
    }

    fn value(&mut self, value: &Bound<'_, PyAny>) -> Value {
        if let Some(scalar) = self.scalar(value, usize::MAX) {
            return scalar;
        }
        self.n_values_left = self.n_values_left.saturating_sub(1);
        if let Some(dict) = known::<PyDict>(value) {
            self.within(value, "{...}", |me| me.dict(dict))
        } else if let Some(list) = known::<PyList>(value) {
            self.within(value, "[...]", |me| me.list(list.len(), list.iter()))
        } else if let Some(tuple) = known::<PyTuple>(value) {
            self.within(value, "(...)", |me| me.list(tuple.len(), tuple.iter()))
        } else {
            self.repr(value).into()
        }
    }

    /// What is no object or array in JSON either; `None` for any other value, and for a text that is longer
    /// than that.
    fn scalar(&mut self, value: &Bound<'_, PyAny>, max_chars: usize) -> Option<Value> {
        let scalar = if let Some(text) = known::<PyString>(value) {
            if text.code_point_len().is_ok_and(|length| length > max_chars) {
                return None;
            }
            self.string(text).into()
        } else if value.is_none() {
            Value::Null
        } else if let Some(flag) = known::<PyBool>(value) {
            flag.is_true().into()
        } else {
            number(value)?.into()
        };
        self.n_values_left = self.n_values_left.saturating_sub(1);
        Some(scalar)
    }

    /// A container, unless it is being converted already or is too deep.
    fn within(
        &mut self,
        value: &Bound<'_, PyAny>,
        again: &str,
        convert: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        let address = value.as_ptr() as usize;
        if self.open.contains(&address) {
            return again.into();
        }
        if self.open.len() >= MAX_DEPTH {
            return self.repr(value).into();
        }
        self.open.push(address);
        let converted = convert(self);
        self.open.pop();
        converted
    }

    fn string(&mut self, text: &Bound<'_, PyString>) -> String {
        let (text, n_more) = start_of(text, self.n_bytes_left);
        self.fitting(text, n_more)
    }

    fn repr(&mut self, value: &Bound<'_, PyAny>) -> String {
        let text = self.renderer.value(value);
        self.fitting(text, 0)
    }

    /// As much of a text as there is room for; `n_more` characters of it were left out already.
    fn fitting(&mut self, mut text: String, n_more: usize) -> String {
        let end = text.floor_char_boundary(self.n_bytes_left);
        if end == text.len() && n_more == 0 {
            self.n_bytes_left -= text.len();
            return text;
        }
        self.n_bytes_left = 0;
        let n_cut = text[end..].chars().count() + n_more;
        text.truncate(end);
        // Writing to a string does not fail.
        let _ = write!(text, "... [truncated {n_cut} chars]");
        text
    }

    fn is_full(&self) -> bool {
        self.n_values_left == 0 || self.n_bytes_left == 0
    }
}

/// What JSON has as a number.
fn number(value: &Bound<'_, PyAny>) -> Option<Number> {
    if value.is_instance_of::<PyInt>() {
        let small = value.extract::<i64>().map(Number::from);
        return small
            .or_else(|_| value.extract::<u64>().map(Number::from))
            .ok();
    }
    Number::from_f64(known::<PyFloat>(value)?.value())
}

/// The value, if it is of that type. A failed cast of the bindings' own costs more.
fn known<'a, 'py, T: PyTypeInfo>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, T>> {
    if value.is_instance_of::<T>() {
        value.cast::<T>().ok()
    } else {
        None
    }
}

fn note_cut(map: &mut Map<String, Value>, n_all: usize, n_kept: usize) {
    if n_kept < n_all {
        map.insert(CUT_KEY.into(), cut_note(n_all - n_kept));
    }
}

fn cut_note(n_cut: usize) -> Value {
    format!("... [truncated {n_cut} values]").into()
}
