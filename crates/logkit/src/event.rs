//! Entries that are no calls: messages and spans.

use std::time::Instant;

use serde_json::Value;

use crate::{
    Entry, Level, Logger, SpanId, Timestamp,
    capture::milliseconds,
    logger::default::{default_level, default_logger},
    repr, scope,
};

/// Logs a message with fields through the default logger.
pub fn event<'a>(level: Level, message: &str, fields: impl IntoIterator<Item = (&'a str, Value)>) {
    event_of("", level, message, fields);
}

fn event_of<'a>(
    module: &str,
    level: Level,
    message: &str,
    fields: impl IntoIterator<Item = (&'a str, Value)>,
) {
    if level.number() < default_level() || scope::is_silent() {
        return;
    }
    let logger = default_logger();
    let mut entry = message_entry(level, message);
    entry.module = module.to_owned().into();
    for (name, value) in fields {
        entry.extra.insert(name.to_owned(), value);
    }
    logger.redact(&mut entry);
    logger.emit(entry);
}

/// Messages of one part of the program; see [`get_logger`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named(String);

/// Whoever logs messages under a name of its own, the module of its entries, through the default
/// logger.
pub fn get_logger(name: impl Into<String>) -> Named {
    Named(name.into())
}

impl Named {
    /// Logs a message with fields.
    pub fn event<'a>(
        &self,
        level: Level,
        message: &str,
        fields: impl IntoIterator<Item = (&'a str, Value)>,
    ) {
        event_of(&self.0, level, message, fields);
    }

    /// Logs a message at DEBUG.
    pub fn debug(&self, message: &str) {
        self.event(Level::Debug, message, []);
    }

    /// Logs a message at INFO.
    pub fn info(&self, message: &str) {
        self.event(Level::Info, message, []);
    }

    /// Logs a message at WARNING.
    pub fn warning(&self, message: &str) {
        self.event(Level::Warning, message, []);
    }

    /// Logs a message at ERROR.
    pub fn error(&self, message: &str) {
        self.event(Level::Error, message, []);
    }
}

/// Logs a message at DEBUG.
pub fn debug(message: &str) {
    event(Level::Debug, message, []);
}

/// Logs a message at INFO.
pub fn info(message: &str) {
    event(Level::Info, message, []);
}

/// Logs a message at WARNING.
pub fn warning(message: &str) {
    event(Level::Warning, message, []);
}

/// Logs a message at ERROR.
pub fn error(message: &str) {
    event(Level::Error, message, []);
}

/// A piece of work without a function of its own; its entry is written when this is dropped.
#[derive(Debug)]
pub struct Span {
    entry: Option<Entry>,
    started: Instant,
    before: u64,
    logger: Logger,
}

/// Begins a piece of work on this thread: calls within it have it as their parent.
///
/// ```
/// use logkit::{info, span};
/// # use logkit::{DbSink, Durability, Logger, query::Reader, set_default_logger};
/// # fn main() -> Result<(), logkit::SinkError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("logs.db");
/// # let logger = Logger::builder().sink(DbSink::open(&path, "logs", Durability::Buffered)?).build();
/// # set_default_logger(logger.clone());
///
/// {
///     let _checkout = span("checkout").field("items", 3);
///     info("card accepted");
/// } // the entry of the span is written here, with its duration
///
/// # assert!(logger.flush(std::time::Duration::from_secs(5)));
/// # let rows = Reader::open(&path, "logs")?.after(0, 10)?;
/// # let (message, checkout) = (&rows[0].entry, &rows[1].entry);
/// assert_eq!(message.parent_id, checkout.span_id);
/// # Ok(())
/// # }
/// ```
pub fn span(name: impl Into<String>) -> Span {
    let id = scope::new_span();
    let entry = Entry {
        level: Level::Info,
        function_name: name.into().into(),
        module: "span".into(),
        span_id: SpanId::new(id),
        parent_id: SpanId::new(scope::current_span()),
        ..Entry::default()
    };
    let before = scope::current_span();
    scope::restore_span(id);
    Span {
        entry: (!scope::is_silent()).then_some(entry),
        started: Instant::now(),
        before,
        logger: default_logger(),
    }
}

impl Span {
    /// Adds a member to `extra` of the span's entry.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Span {
        if let Some(entry) = &mut self.entry {
            entry.extra.insert(name.into(), value.into());
        }
        self
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        scope::restore_span(self.before);
        let Some(mut entry) = self.entry.take() else {
            return;
        };
        entry.duration_ms = Some(milliseconds(self.started.elapsed()));
        if std::thread::panicking() {
            entry.level = Level::Error;
            entry.exception_type = "panic".into();
        }
        scope::fill(&mut entry);
        self.logger.redact(&mut entry);
        self.logger.emit(entry);
    }
}

fn message_entry(level: Level, message: &str) -> Entry {
    let mut entry = Entry {
        timestamp: Timestamp::now(),
        level,
        function_name: "event".into(),
        return_value: repr::truncate(&repr::repr_str(message), repr::MAX_REPR_LENGTH).into(),
        return_type: "str".into(),
        parent_id: SpanId::new(scope::current_span()),
        ..Entry::blank()
    };
    entry.extra.insert("message".into(), message.into());
    scope::fill(&mut entry);
    entry
}
