//! JSON Lines: one object for each entry.

use std::{borrow::Cow, path::Path};

use serde_json::{Map, Value};

use super::file::{KEPT_BYTES, LogFile, Rotation};
use crate::{
    Entry, Sink, SinkError,
    json_line::{self, write_value},
    repr,
};

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
                JsonForm::Lines => json_line::write(&mut self.buffer, entry),
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
        let turn = self.file.turn(self.buffer.len())?;
        let written = turn.append(&self.buffer);
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        written
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("json")
    }
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
