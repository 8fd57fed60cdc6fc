//! The only place that prints: results to stdout, everything else to stderr, colours where they are
//! wanted. What others have written (names, metadata, answers, logs, errors) goes through [`clean()`]
//! on its way.

mod clean;
mod steps;

pub use clean::{clean, clean_json};
pub use steps::Steps;

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

/// Names of things in output.
pub const STRONG: Style = Style::new().bold();
/// What matters less.
pub const FAINT: Style = Style::new().dimmed();
/// What is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What is not.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What nobody knows.
pub const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On terminals, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Decides about colours for the rest of the program.
pub fn set_color(color: ColorArg) {
    match color {
        // The streams look at NO_COLOR, CLICOLOR_FORCE, TERM and the terminal themselves.
        ColorArg::Auto => {}
        ColorArg::Always => ColorChoice::Always.write_global(),
        ColorArg::Never => ColorChoice::Never.write_global(),
    }
}

/// Writes a line of results.
pub fn line(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    writeln!(anstream::stdout().lock(), "{}", clean(&text))
}

/// Writes a piece of results at once, without ending the line. A pipe gets it as it is.
pub fn piece(text: impl Display) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    if stdout_is_terminal() || stdout_has_color() {
        let text = text.to_string();
        write!(stdout, "{}", clean(&text))?;
    } else {
        write!(stdout, "{text}")?;
    }
    stdout.flush()
}

/// Puts a text on the clipboard of whoever sits at the terminal, also through ssh (OSC 52 of
/// <https://invisible-island.net/xterm/ctlseqs/ctlseqs.html>). Terminals do not say whether they did.
pub fn to_clipboard(text: &str) -> Result<(), String> {
    if text.len() > MAX_COPIED {
        return Err(format!(
            "terminals take {MAX_COPIED} bytes, this has {}",
            text.len()
        ));
    }
    let encoded = BASE64_STANDARD.encode(text);
    let mut stdout = io::stdout().lock();
    write!(stdout, "\u{1b}]52;c;{encoded}\u{7}")
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot write to the terminal: {error}"))
}

/// Longest text that terminals copy, in bytes: 100,000 of base64.
const MAX_COPIED: usize = 74_994;

/// Writes JSON for a script: never coloured, one value.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", clean_json(&format!("{value:#}")))
}

/// Writes JSON for a script, one value in one line.
pub fn json_line(value: &serde_json::Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", clean_json(&value.to_string()))
}

/// Writes a line that is not a result.
pub fn note(text: impl Display) {
    let text = text.to_string();
    // Whoever closed stderr does not want to be told.
    let _ = writeln!(anstream::stderr().lock(), "{}", clean(&text));
}

/// Asks something in a line that is not ended, where results do not go.
pub fn question(text: impl Display) -> io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    write!(stderr, "{}", clean(&text.to_string()))?;
    stderr.flush()
}

/// Warns of something that does not stop the program.
pub fn warning(text: impl Display) {
    note(format_args!("{WARNING}warning:{WARNING:#} {text}"));
}

/// Reports a failed command.
pub fn failure(failure: &Failure, as_json: bool) {
    if as_json {
        let mut value =
            serde_json::json!({ "error": failure.to_string(), "code": failure.code.word() });
        if let Some(hint) = &failure.hint {
            value["hint"] = hint.as_str().into();
        }
        let _ = writeln!(io::stderr().lock(), "{}", clean_json(&value.to_string()));
        return;
    }
    let mut last = String::new();
    for cause in failure.error.chain().map(ToString::to_string) {
        if last.is_empty() {
            note(format_args!("{ERROR}error:{ERROR:#} {cause}"));
        } else if !last.ends_with(&cause) {
            note(format_args!("  {FAINT}because:{FAINT:#} {cause}"));
        }
        last = cause;
    }
    if let Some(hint) = &failure.hint {
        note(format_args!("{HINT}hint:{HINT:#} {hint}"));
    }
}

/// Tells whether a person sees stdout.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Tells whether a person sees stderr.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Tells whether a person types stdin.
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Returns the columns of the terminal that stdout is, if it is one.
pub fn width() -> Option<usize> {
    if !stdout_is_terminal() {
        return None;
    }
    terminal_size::terminal_size()
        .map(|(width, _)| width.0 as usize)
        .filter(|width| *width > 0)
}

/// Returns the columns of the terminal that stderr is; many where it is none.
fn stderr_width() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(usize::MAX, |(width, _)| width.0 as usize)
}

/// Tells whether stderr shows colours.
pub fn stderr_has_color() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

/// Tells whether stdout shows colours.
pub fn stdout_has_color() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Tells whether stdout is a terminal that more than lines can be written on.
pub fn can_draw() -> bool {
    stdout_is_terminal() && anstyle_query::term_supports_color()
}

/// Returns the terminal for what draws on all of it, and decides about colours itself.
pub fn screen() -> io::Stdout {
    io::stdout()
}

/// Shows that something takes a while; nothing appears where stderr is no terminal or when it is
/// done at once. Ends when dropped.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Starts to turn.
    pub fn start(message: &'static str) -> Spinner {
        let bar = ProgressBar::new_spinner();
        // A hidden bar draws nothing; indicatif hides it itself where stderr is no terminal.
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.set_message(message);
        bar.enable_steady_tick(Duration::from_millis(120));
        Spinner(bar)
    }

    /// Says how far it is.
    pub fn say(&self, message: String) {
        self.0.set_message(message);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Lays out columns: two spaces or more between them, no borders, so that `awk` can read them. A
/// cell is one line, whatever it holds.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| clean::one_line(cell)).collect())
        .collect();
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.len()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(unicode_width::UnicodeWidthStr::width(cell.as_str()));
        }
    }
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let lines = std::iter::once(&header).chain(&rows).map(|row| {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line += cell;
            let missing =
                width.saturating_sub(unicode_width::UnicodeWidthStr::width(cell.as_str()));
            line += &" ".repeat(missing + 4);
        }
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_they_hold() {
        let rows = vec![
            vec!["a".into(), "1 KB".into()],
            vec!["größer".into(), "模型".into()],
        ];
        let text = table(&["NAME", "SIZE"], &rows);
        assert_eq!(text, "NAME      SIZE\na         1 KB\ngrößer    模型");
        let rows = vec![vec!["a\nb\u{1b}[2J".into(), "1".into()]];
        assert_eq!(
            table(&["NAME", "SIZE"], &rows),
            "NAME      SIZE\na b[2J    1"
        );
    }
}
