//! An entry as one line of JSON.

use std::io::Write as _;

use serde_json::{Map, Value};

use crate::{Column, Entry};

/// Writes the columns in order, then `extra`; the same as [`Entry::as_json`], without making a map.
pub(crate) fn write(out: &mut Vec<u8>, entry: &Entry) {
    let mut before = b'{';
    for (name, value) in entry.columns() {
        out.extend_from_slice(&[before, b'"']);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            Column::Time(time) => {
                out.push(b'"');
                time.with_iso(|text| out.extend_from_slice(text.as_bytes()));
                out.push(b'"');
            }
            Column::Level(level) => write_text(out, level.as_str()),
            Column::Text(text) => write_text(out, text),
            Column::Number(number) => match number.filter(|number| number.is_finite()) {
                // Writing to memory does not fail.
                Some(number) => drop(serde_json::to_writer(&mut *out, &number)),
                None => out.extend_from_slice(b"null"),
            },
        }
        before = b',';
    }
    if entry.has_extra() {
        out.extend_from_slice(b",\"extra\":");
        write_value(out, entry.full_extra());
    }
    out.push(b'}');
}

/// Writes an object.
pub(crate) fn write_value(out: &mut Vec<u8>, map: Map<String, Value>) {
    let _ = serde_json::to_writer(out, &Value::Object(map));
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let plain = text
        .bytes()
        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if plain {
        out.push(b'"');
        let _ = out.write_all(text.as_bytes());
        out.push(b'"');
    } else {
        let _ = serde_json::to_writer(out, text);
    }
}
