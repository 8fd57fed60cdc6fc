//! Comma-separated values, RFC 4180.

use std::{
    borrow::Cow,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use super::file::{KEPT_BYTES, LogFile, Rotation};
use crate::{
    Entry, Sink, SinkError,
    files::{FileId, io_error},
};

/// Adds rows to a file of comma-separated values.
#[derive(Debug)]
pub struct CsvSink {
    file: LogFile,
    /// The columns, in the order of the file's header.
    columns: Vec<String>,
    /// The file whose columns they are.
    columns_of: Option<FileId>,
    safe_formulas: bool,
    buffer: String,
}

impl CsvSink {
    /// Opens or creates the file. A new one gets all columns and `extra`; one with a header keeps
    /// its columns.
    ///
    /// ```
    /// use logkit::{CsvSink, Entry, Rotation, Sink};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("calls.csv");
    /// let rotation = Rotation { max_bytes: Some(10 << 20), ..Rotation::default() };
    /// let mut sink = CsvSink::open(&path, rotation)?.safe_formulas(true);
    /// sink.write_batch(&[Entry { args: "=1+1".into(), ..Entry::default() }])?;
    /// assert!(std::fs::read_to_string(&path)?.contains(",'=1+1,"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Io`] if the file cannot be opened for writing; [`SinkError::Other`] if it is not
    /// empty and its first line has no column `timestamp`.
    pub fn open(path: impl AsRef<Path>, rotation: Rotation) -> Result<CsvSink, SinkError> {
        let file = LogFile::open(path, rotation)?;
        let columns = if file.is_empty() {
            all_columns()
        } else {
            header(file.path())?
        };
        Ok(CsvSink {
            file,
            columns,
            columns_of: None,
            safe_formulas: false,
            buffer: String::new(),
        })
    }

    /// Puts `'` before cells that a spreadsheet would take for a formula.
    pub fn safe_formulas(mut self, on: bool) -> CsvSink {
        self.safe_formulas = on;
        self
    }

    fn write_row(&mut self, entry: &Entry) {
        for (idx, column) in self.columns.iter().enumerate() {
            if idx > 0 {
                self.buffer.push(',');
            }
            let cell = if column == "extra" && entry.has_extra() {
                Cow::Owned(serde_json::Value::Object(entry.full_extra()).to_string())
            } else {
                entry.get(column).unwrap_or_default()
            };
            let formula = self.safe_formulas && is_formula(&cell);
            write_cell(&mut self.buffer, if formula { "'" } else { "" }, &cell);
        }
        self.buffer.push_str("\r\n");
    }
}

/// True for what a spreadsheet would compute; a number is none.
fn is_formula(cell: &str) -> bool {
    cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err()
}

impl Sink for CsvSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.buffer.clear();
        for entry in entries {
            self.write_row(entry);
        }
        let turn = self.file.turn(self.buffer.len())?;
        if turn.is_empty() || self.columns_of != Some(turn.file_id()) {
            let columns = if turn.is_empty() {
                all_columns()
            } else {
                header(turn.path())?
            };
            self.columns_of = Some(turn.file_id());
            if self.columns != columns {
                // The file with other columns was put aside.
                self.columns = columns;
                drop(turn);
                return self.write_batch(entries);
            }
        }
        if turn.is_empty() {
            let header = self.columns.join(",");
            self.buffer.insert_str(0, "\r\n");
            self.buffer.insert_str(0, &header);
        }
        let written = turn.append(self.buffer.as_bytes());
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        written
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("csv")
    }
}

fn all_columns() -> Vec<String> {
    Entry::COLUMNS
        .into_iter()
        .chain(["extra"])
        .map(str::to_owned)
        .collect()
}

/// The columns of a file that exists.
fn header(path: &Path) -> Result<Vec<String>, SinkError> {
    const LONGEST: u64 = 4096;
    let mut line = String::new();
    File::open(path)
        .and_then(|file| BufReader::new(file.take(LONGEST)).read_line(&mut line))
        .map_err(|source| io_error(path, source))?;
    let columns: Vec<String> = line
        .trim_start_matches('\u{feff}')
        .trim_end()
        .split(',')
        .map(|column| column.trim_matches('"').to_owned())
        .collect();
    if columns.iter().any(|column| column == "timestamp") {
        return Ok(columns);
    }
    Err(SinkError::Other(format!(
        "{}: the first line is not a header of entries; choose another file",
        path.display()
    )))
}

fn write_cell(out: &mut String, before: &str, text: &str) {
    if !text.contains(['"', ',', '\r', '\n']) {
        out.push_str(before);
        out.push_str(text);
        return;
    }
    out.push('"');
    out.push_str(before);
    for part in text.split_inclusive('"') {
        out.push_str(part);
        if part.ends_with('"') {
            out.push('"');
        }
    }
    out.push('"');
}
