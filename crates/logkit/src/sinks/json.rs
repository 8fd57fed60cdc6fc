//! JSON Lines: one object for each entry.

use std::{borrow::Cow, io::Write, path::Path};

use serde_json::{Map, Value};

use super::file::{KEPT_BYTES, LogFile, Rotation};
use crate::{Entry, Sink, SinkError, Text, repr};

/// Adds JSON objects to a file.
#[derive(Debug)]
pub struct JsonSink {
    file: LogFile,
    form: JsonForm,
    buffer: Vec<u8>,
}

/// How an entry looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonForm {
    /// One line, all columns.
    #[default]
    Lines,
    /// Several indented lines, all columns.
    Pretty,
    /// One line, short keys, without what is empty.
    Compact,
    /// One line, all columns; arguments and results as JSON values where they are literals.
    Typed,
}

impl JsonForm {
    /// Reads `lines`, `pretty`, `compact` or `typed`.
    pub fn parse(name: &str) -> Option<JsonForm> {
        Some(match name {
            "lines" => JsonForm::Lines,
            "pretty" => JsonForm::Pretty,
            "compact" => JsonForm::Compact,
            "typed" => JsonForm::Typed,
            _ => return None,
        })
    }
}

impl JsonSink {
    /// Opens or creates the file, and adds to its end.
    ///
    /// ```
    /// use logkit::{Entry, JsonForm, JsonSink, Rotation, Sink};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("calls.jsonl");
    /// let mut sink = JsonSink::open(&path, JsonForm::Typed, Rotation::default())?;
    /// sink.write_batch(&[Entry { args: "(3, 'x')".into(), ..Entry::default() }])?;
    /// assert!(std::fs::read_to_string(&path)?.contains(r#""args":[3,"x"]"#));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Io`] if the file cannot be opened for writing.
    pub fn open(
        path: impl AsRef<Path>,
        form: JsonForm,
        rotation: Rotation,
    ) -> Result<JsonSink, SinkError> {
        Ok(JsonSink {
            file: LogFile::open(path, rotation)?,
            form,
            buffer: Vec::new(),
        })
    }
}

impl Sink for JsonSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.buffer.clear();
        for entry in entries {
            match self.form {
                JsonForm::Lines => write_line(&mut self.buffer, entry),
                JsonForm::Pretty => {
                    let map = Value::Object(entry.as_json());
                    // Writing to memory does not fail.
                    let _ = serde_json::to_writer_pretty(&mut self.buffer, &map);
                }
                JsonForm::Compact => write_value(&mut self.buffer, entry.as_compact()),
                JsonForm::Typed => write_value(&mut self.buffer, typed(entry)),
            }
            self.buffer.push(b'\n');
        }
        self.file.make_room(self.buffer.len())?;
        let written = self.file.append(&self.buffer);
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        written
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("json")
    }
}

/// The columns in order, then `extra`; the same as [`Entry::as_json`], without making a map.
pub(crate) fn write_line(out: &mut Vec<u8>, entry: &Entry) {
    out.extend_from_slice(b"{\"timestamp\":\"");
    entry
        .timestamp
        .with_iso(|text| out.extend_from_slice(text.as_bytes()));
    out.extend_from_slice(b"\",\"level\":");
    write_text(out, entry.level.as_str());
    let put = |out: &mut Vec<u8>, name: &str, text: &Text| {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write_text(out, text);
    };
    for (name, text) in [
        ("function_name", &entry.function_name),
        ("module", &entry.module),
        ("args", &entry.args),
        ("kwargs", &entry.kwargs),
        ("arg_types", &entry.arg_types),
        ("kwarg_types", &entry.kwarg_types),
        ("return_value", &entry.return_value),
        ("return_type", &entry.return_type),
        ("exception", &entry.exception),
        ("exception_type", &entry.exception_type),
        ("traceback", &entry.traceback),
    ] {
        put(out, name, text);
    }
    out.extend_from_slice(b",\"duration_ms\":");
    match entry.duration_ms.filter(|ms| ms.is_finite()) {
        // Writing to memory does not fail.
        Some(ms) => drop(serde_json::to_writer(&mut *out, &ms)),
        None => out.extend_from_slice(b"null"),
    }
    for (name, text) in [
        ("environment", &entry.environment),
        ("trace_id", &entry.trace_id),
        ("version", &entry.version),
        ("llm_analysis", &entry.llm_analysis),
    ] {
        put(out, name, text);
    }
    if entry.has_extra() {
        out.extend_from_slice(b",\"extra\":");
        write_value(out, entry.full_extra());
    }
    out.push(b'}');
}

fn typed(entry: &Entry) -> Map<String, Value> {
    let mut map = entry.as_json();
    for name in ["args", "kwargs", "return_value"] {
        if let Some(value) = map.get_mut(name)
            && let Some(text) = value.as_str()
        {
            *value = repr::to_json(text);
        }
    }
    map
}

fn write_value(out: &mut Vec<u8>, map: Map<String, Value>) {
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
