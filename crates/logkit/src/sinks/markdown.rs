//! Markdown, for reading.

use std::{borrow::Cow, fmt::Write, path::Path};

use super::file::{KEPT_BYTES, LogFile, Rotation};
use crate::{Entry, Sink, SinkError};

/// Adds entries to a Markdown file.
#[derive(Debug)]
pub struct MarkdownSink {
    file: LogFile,
    buffer: String,
}

impl MarkdownSink {
    /// Opens or creates the file, and adds to its end.
    ///
    /// ```
    /// use logkit::{Entry, MarkdownSink, Rotation, Sink};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("calls.md");
    /// let mut sink = MarkdownSink::open(&path, Rotation::default())?;
    /// sink.write_batch(&[Entry { function_name: "load".into(), ..Entry::default() }])?;
    /// assert!(std::fs::read_to_string(&path)?.starts_with("# Logs\n"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Io`] if the file cannot be opened for writing.
    pub fn open(path: impl AsRef<Path>, rotation: Rotation) -> Result<MarkdownSink, SinkError> {
        Ok(MarkdownSink {
            file: LogFile::open(path, rotation)?,
            buffer: String::new(),
        })
    }
}

impl Sink for MarkdownSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.buffer.clear();
        for entry in entries {
            write_entry(&mut self.buffer, entry);
        }
        let turn = self.file.turn(self.buffer.len())?;
        if turn.is_empty() {
            self.buffer.insert_str(0, "# Logs\n\n");
        }
        let written = turn.append(self.buffer.as_bytes());
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        written
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("md")
    }
}

fn write_entry(out: &mut String, entry: &Entry) {
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "## {} | {} | ",
        entry.timestamp,
        words(entry.level.as_str())
    );
    code(out, &entry.function_name);
    out.push_str("\n\n");
    let _ = writeln!(out, "- **Module:** {}", words(&entry.module));
    let bullet = |out: &mut String, label: &str, text: &str| {
        let _ = write!(out, "- **{label}:** ");
        code(out, text);
    };
    bullet(out, "Args", &entry.args);
    out.push('\n');
    bullet(out, "Kwargs", &entry.kwargs);
    out.push('\n');
    let _ = writeln!(out, "- **Arg types:** {}", words(&entry.arg_types));
    match entry.duration_ms {
        Some(ms) => drop(writeln!(out, "- **Duration:** {ms} ms")),
        None => out.push_str("- **Duration:** - ms\n"),
    }
    if !entry.return_type.is_empty() {
        bullet(out, "Return", &entry.return_value);
        let _ = writeln!(out, " ({})", words(&entry.return_type));
    }
    if !entry.exception.is_empty() || !entry.exception_type.is_empty() {
        bullet(out, "Exception", &entry.exception_type);
        let _ = write!(out, ": {}\n\n", words(&entry.exception));
        let fence = "`".repeat(longest_run(&entry.traceback).max(2) + 1);
        let _ = write!(out, "{fence}\n{}", entry.traceback);
        if !entry.traceback.ends_with('\n') {
            out.push('\n');
        }
        let _ = writeln!(out, "{fence}");
    }
    for (label, text) in [
        ("Environment", &entry.environment),
        ("Version", &entry.version),
        ("LLM Analysis", &entry.llm_analysis),
    ] {
        if label == "Version" && !entry.trace_id.is_empty() {
            bullet(out, "Trace ID", &entry.trace_id);
            out.push('\n');
        }
        if !text.is_empty() {
            let _ = writeln!(out, "- **{label}:** {}", words(text));
        }
    }
    if entry.has_extra() {
        bullet(
            out,
            "Extra",
            &serde_json::Value::Object(entry.full_extra()).to_string(),
        );
        out.push('\n');
    }
    out.push_str("\n---\n\n");
}

/// A code span; its fence is longer than any run of backticks within.
fn code(out: &mut String, text: &str) {
    let text = words(text);
    let fence = "`".repeat(longest_run(&text) + 1);
    // A span cannot start or end with a backtick, nor be empty, nor lose blanks at both ends.
    let pad = text.is_empty()
        || text.starts_with('`')
        || text.ends_with('`')
        || (text.starts_with(' ') && text.ends_with(' '));
    let pad = if pad { " " } else { "" };
    let _ = write!(out, "{fence}{pad}{text}{pad}{fence}");
}

/// The text on one line.
fn words(text: &str) -> Cow<'_, str> {
    let breaks = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{b}' | '\u{c}'
        )
    };
    if text.contains(breaks) {
        Cow::Owned(text.replace("\r\n", " ").replace(breaks, " "))
    } else {
        Cow::Borrowed(text)
    }
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
