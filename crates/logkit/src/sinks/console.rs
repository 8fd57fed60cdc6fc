//! One line for each entry, for people.

use std::{
    fmt::Write as _,
    io::Write,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use jiff::tz::TimeZone;

use crate::{Entry, Sink, SinkError, Timestamp, stderr::Stderr};

/// Writes console lines, to stderr unless told otherwise.
///
/// ```
/// use logkit::{ConsoleSink, ConsoleTime, Entry, Logger};
///
/// let time = ConsoleTime { utc: true, millis: true };
/// let logger = Logger::builder()
///     .console(ConsoleSink::to(std::io::stdout()).time(time))
///     .build();
/// // 2026-11-20 19:54:48,596 | INFO | logkit | load() | args=('a.txt',)
/// logger.emit(Entry { function_name: "load".into(), args: "('a.txt',)".into(), ..Entry::default() });
/// assert!(logger.close());
/// ```
pub struct ConsoleSink {
    out: Box<dyn Write + Send>,
    logger: String,
    time: ConsoleTime,
    colors: bool,
    on: Option<Arc<AtomicBool>>,
}

/// How the time looks on the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleTime {
    /// Milliseconds behind the seconds: `19:54:48,596`.
    pub millis: bool,
    /// UTC instead of local time.
    pub utc: bool,
}

impl ConsoleSink {
    /// Writes to stderr, without colours.
    pub fn stderr() -> ConsoleSink {
        ConsoleSink::to(Stderr)
    }

    /// Writes to `out`, which is flushed after each batch.
    pub fn to(out: impl Write + Send + 'static) -> ConsoleSink {
        ConsoleSink {
            out: Box::new(out),
            logger: "logkit".into(),
            time: ConsoleTime::default(),
            colors: false,
            on: None,
        }
    }

    /// Sets how the time looks.
    pub fn time(mut self, time: ConsoleTime) -> ConsoleSink {
        self.time = time;
        self
    }

    /// Switches colours on, for terminals.
    pub fn colors(mut self, on: bool) -> ConsoleSink {
        self.colors = on;
        self
    }

    /// Writes only while that switch is on.
    pub fn switch(mut self, on: Arc<AtomicBool>) -> ConsoleSink {
        self.on = Some(on);
        self
    }

    pub(crate) fn named(mut self, logger: &str) -> ConsoleSink {
        logger.clone_into(&mut self.logger);
        self
    }
}

impl Sink for ConsoleSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        if self.on.as_ref().is_some_and(|on| !on.load(Relaxed)) {
            return Ok(());
        }
        let mut text = String::new();
        for entry in entries {
            write_line(&mut text, entry, &self.logger, self.time, self.colors);
            text.push('\n');
        }
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|source| SinkError::Io {
                path: PathBuf::from("the console"),
                source,
            })
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        "console".into()
    }
}

/// The line of an entry, without colours and without an end of line.
pub fn console_line(entry: &Entry, logger: &str, time: ConsoleTime) -> String {
    let mut line = String::new();
    write_line(&mut line, entry, logger, time, false);
    line
}

/// What the line of an entry says behind the name of the logger: for whoever adds time, level and
/// name.
pub fn console_message(entry: &Entry) -> String {
    let mut message = String::new();
    write_message(&mut message, entry, false);
    message
}

fn color_of(entry: &Entry, colors: bool) -> (&'static str, &'static str) {
    match (colors, entry.level.number()) {
        (false, _) => ("", ""),
        (true, 50..) => ("\x1b[1;31m", "\x1b[0m"),
        (true, 40..) => ("\x1b[31m", "\x1b[0m"),
        (true, 30..) => ("\x1b[33m", "\x1b[0m"),
        (true, 20..) => ("\x1b[32m", "\x1b[0m"),
        (true, _) => ("\x1b[2m", "\x1b[0m"),
    }
}

fn write_line(out: &mut String, entry: &Entry, logger: &str, time: ConsoleTime, colors: bool) {
    let (color, reset) = color_of(entry, colors);
    // Writing to a string does not fail.
    let _ = write!(out, "{} | {color}", clock(entry.timestamp, time));
    escape(out, entry.level.as_str());
    let _ = write!(out, "{reset} | ");
    escape(out, logger);
    out.push_str(" | ");
    write_message(out, entry, colors);
}

fn write_message(out: &mut String, entry: &Entry, colors: bool) {
    let (color, reset) = color_of(entry, colors);
    escape(out, &entry.function_name);
    out.push_str("()");
    for (name, text, empty) in [("args", &entry.args, "()"), ("kwargs", &entry.kwargs, "{}")] {
        if !text.is_empty() && text != empty {
            let _ = write!(out, " | {name}=");
            escape(out, text);
        }
    }
    if !entry.exception_type.is_empty() || !entry.exception.is_empty() {
        let _ = write!(out, " | {color}EXCEPTION ");
        escape(out, &entry.exception_type);
        out.push_str(": ");
        escape(out, &entry.exception);
        out.push_str(reset);
    }
    if !entry.return_value.is_empty() && entry.return_value != "None" {
        out.push_str(" | -> ");
        escape(out, &entry.return_value);
    }
    if let Some(ms) = entry.duration_ms {
        let _ = write!(out, " | [{ms:.2}ms]");
    }
}

fn clock(timestamp: Timestamp, time: ConsoleTime) -> String {
    let zone = if time.utc {
        TimeZone::UTC
    } else {
        TimeZone::system()
    };
    let moment = jiff::Timestamp::from_microsecond(timestamp.micros()).unwrap_or_default();
    let civil = zone.to_datetime(moment);
    let mut text = format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        civil.year(),
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    if time.millis {
        let _ = write!(text, ",{:03}", civil.millisecond());
    }
    text
}

/// One entry is one line, whatever it holds, and it cannot steer the terminal.
pub(crate) fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn lines_have_the_form_of_the_schema() {
        let utc = ConsoleTime {
            utc: true,
            millis: false,
        };
        let mut entry = Entry {
            timestamp: "2026-11-20T19:54:48.596202Z".parse().unwrap(),
            function_name: "add".into(),
            args: "(3, 7)".into(),
            return_value: "10".into(),
            duration_ms: Some(0.1234),
            ..Entry::default()
        };
        assert_eq!(
            console_line(&entry, "logkit", utc),
            "2026-11-20 19:54:48 | INFO | logkit | add() | args=(3, 7) | -> 10 | [0.12ms]"
        );
        assert_eq!(
            console_message(&entry),
            "add() | args=(3, 7) | -> 10 | [0.12ms]"
        );
        entry = Entry {
            level: Level::Error,
            kwargs: "{'a': 1}".into(),
            return_value: "None".into(),
            exception: "bad\nthing\x1b[2J".into(),
            exception_type: "ValueError".into(),
            ..entry
        };
        let time = ConsoleTime {
            utc: true,
            millis: true,
        };
        assert_eq!(
            console_line(&entry, "logkit", time),
            "2026-11-20 19:54:48,596 | ERROR | logkit | add() | args=(3, 7) | kwargs={'a': 1} | \
             EXCEPTION ValueError: bad\\nthing\\x1b[2J | [0.12ms]"
        );
    }

    #[test]
    fn a_switch_silences_the_console() {
        let on = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(crate::lock::Mutex::new(Vec::new()));
        let mut sink = ConsoleSink::to(Seen(Arc::clone(&seen))).switch(Arc::clone(&on));
        for is_on in [false, true, false] {
            on.store(is_on, Relaxed);
            sink.write_batch(&[Entry::default()]).unwrap();
        }
        let text = String::from_utf8(seen.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1);
    }

    struct Seen(Arc<crate::lock::Mutex<Vec<u8>>>);

    impl Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
