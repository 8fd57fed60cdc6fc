//! The only place that prints: results to stdout, everything else to stderr, colours where they are
//! wanted.

use std::{
    borrow::Cow,
    fmt::{self, Display, Write as _},
    io::{self, BufWriter, IsTerminal as _, Write},
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use logkit::{Entry, Level, repr};

use crate::failure::Failure;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default();
const FAINT: Style = Style::new().dimmed();
/// Characters of an exception in a line.
const EXCEPTION: usize = 60;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    /// On terminals, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Decides about colours for the rest of the program.
pub(crate) fn set_color(color: ColorArg) {
    match color {
        // The streams look at NO_COLOR, CLICOLOR_FORCE, TERM and the terminal themselves.
        ColorArg::Auto => {}
        ColorArg::Always => ColorChoice::Always.write_global(),
        ColorArg::Never => ColorChoice::Never.write_global(),
    }
}

/// Writes a line of results.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    writeln!(anstream::stdout().lock(), "{text}")
}

/// Calls `write` with stdout, buffered and coloured where that is wanted.
pub(crate) fn results<E: From<io::Error>>(
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let mut stdout = BufWriter::new(AutoStream::auto(io::stdout().lock()));
    write(&mut stdout)?;
    stdout.flush()?;
    Ok(())
}

/// Calls `write` with stdout, buffered: what scripts read passes as it is, and what people see in a
/// terminal does not steer it.
pub(crate) fn data<E: From<io::Error>>(
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let stdout = io::stdout().lock();
    if stdout.is_terminal() {
        let mut text = Vec::new();
        write(&mut text)?;
        let mut stdout = BufWriter::new(stdout);
        for line in String::from_utf8_lossy(&text).lines() {
            for c in line.chars() {
                if is_harmful(c) {
                    // As JSON has it: the output may be copied from the terminal.
                    write!(stdout, "\\u{:04x}", u32::from(c))?;
                } else {
                    write!(stdout, "{c}")?;
                }
            }
            writeln!(stdout)?;
        }
        stdout.flush()?;
        return Ok(());
    }
    let mut stdout = BufWriter::new(stdout);
    write(&mut stdout)?;
    stdout.flush()?;
    Ok(())
}

/// Writes a line that is not a result.
pub(crate) fn note(text: impl Display) {
    // Whoever closed stderr does not want to be told.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Warns of something that does not stop the program.
pub(crate) fn warning(text: impl Display) {
    note(format_args!("logkit: {text}"));
}

/// Reports a failed command.
pub(crate) fn failure(failure: &Failure) {
    match failure {
        // A text that scripts know.
        Failure::NoDatabase(_) => note(failure),
        _ => note(format_args!("{ERROR}error:{ERROR:#} {failure}")),
    }
}

/// The line of an entry in `logs`.
pub(crate) struct LogLine<'a>(pub(crate) &'a Entry);

impl Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.0;
        let time = entry.timestamp.to_string();
        let style = style(&entry.level);
        write!(
            f,
            "{} | {style}{:5}{style:#} | {} | {}",
            time.get(..19).unwrap_or(&time),
            one_line(entry.level.as_str()),
            one_line(&called(entry)),
            Milliseconds(entry.duration_ms)
        )?;
        if !entry.environment.is_empty() {
            write!(f, " | env={}", one_line(&entry.environment))?;
        }
        if !entry.exception.is_empty() {
            let start: String = entry.exception.chars().take(EXCEPTION).collect();
            write!(f, " | {}", one_line(start.trim_end()))?;
        }
        Ok(())
    }
}

/// What was called; a command with the beginning of its arguments.
fn called(entry: &Entry) -> Cow<'_, str> {
    /// Arguments that are shown, in characters.
    const ARGUMENTS: usize = 60;
    let is_command = entry.kwargs.starts_with("{'language': ");
    let arguments = is_command
        .then(|| repr::parse_tuple(&entry.args))
        .flatten()
        .unwrap_or_default()
        .join(" ");
    if arguments.is_empty() {
        return Cow::Borrowed(&entry.function_name);
    }
    let mut line = format!("{} ", entry.function_name);
    match arguments.char_indices().nth(ARGUMENTS) {
        Some((at, _)) => {
            line.push_str(&arguments[..at]);
            line.push('…');
        }
        None => line.push_str(&arguments),
    }
    Cow::Owned(line)
}

/// What belongs to a level.
pub(crate) fn style(level: &Level) -> Style {
    match level {
        level if level.is_error() => ERROR,
        Level::Warning => WARNING,
        Level::Debug => FAINT,
        _ => Style::new(),
    }
}

/// A duration, `—` if there is none.
pub(crate) struct Milliseconds(pub(crate) Option<f64>);

impl Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some(0.0) => f.pad("—"),
            // Three digits are enough to read.
            Some(ms) if ms >= 100.0 => f.pad(&format!("{ms:.0}ms")),
            Some(ms) => {
                let digits = if ms >= 10.0 { 1 } else { 2 };
                let text = format!("{ms:.digits$}");
                f.pad(&format!(
                    "{}ms",
                    text.trim_end_matches('0').trim_end_matches('.')
                ))
            }
        }
    }
}

/// Control characters, line ends of Unicode, and those that turn the direction of text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes control characters as escapes, so that nothing breaks the line or steers the terminal.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if is_harmful(c) => {
                let _ = write!(line, "\\u{{{:x}}}", c as u32);
            }
            c => line.push(c),
        }
    }
    Cow::Owned(line)
}

/// Lays out columns: two spaces or more between them, so that `awk` can read them.
pub(crate) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let width = |text: &str| unicode_width::UnicodeWidthStr::width(text);
    let mut widths: Vec<usize> = header.iter().map(|cell| width(cell)).collect();
    for row in rows {
        for (wide, cell) in widths.iter_mut().zip(row) {
            *wide = (*wide).max(width(cell));
        }
    }
    let lines = std::iter::once(header)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| {
            let mut line = String::new();
            for (wide, cell) in widths.iter().zip(row) {
                line += cell;
                line += &" ".repeat(wide.saturating_sub(width(cell)) + 2);
            }
            line.trim_end().to_owned()
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_entry() {
        let mut entry = Entry {
            timestamp: "2026-11-20T19:54:48.596202+00:00".parse().unwrap(),
            level: Level::Info,
            function_name: "make".into(),
            duration_ms: Some(1234.56),
            ..Entry::default()
        };
        assert_eq!(
            LogLine(&entry).to_string(),
            "2026-11-20T19:54:48 | INFO  | make | 1235ms"
        );
        entry.level = Level::Error;
        entry.environment = "prod".into();
        entry.duration_ms = None;
        entry.exception = format!("bad\nthing\x1b[2J{}", "x".repeat(100)).into();
        let line = anstream::adapter::strip_str(&LogLine(&entry).to_string()).to_string();
        assert_eq!(
            line,
            format!(
                "2026-11-20T19:54:48 | ERROR | make | — | env=prod | bad\\nthing\\u{{1b}}[2J{}",
                "x".repeat(47)
            )
        );
    }

    #[test]
    fn durations_have_the_digits_one_reads() {
        for (ms, text) in [
            (None, "—"),
            (Some(0.0), "—"),
            (Some(0.1234), "0.12ms"),
            (Some(5.0), "5ms"),
            (Some(12.34), "12.3ms"),
            (Some(99_999.9), "100000ms"),
        ] {
            assert_eq!(Milliseconds(ms).to_string(), text);
        }
    }
}
