//! Entries from the crates `log` and `tracing`.

use std::fmt::{Debug, Write};

use serde_json::{Map, Value};
use tracing_core::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer};

use crate::{Entry, Level, Logger, SpanId, repr, scope};

/// What `extra.source` says of entries that come from elsewhere.
const SOURCE: &str = "stdlib_bridge";

/// Makes entries of events of `tracing`.
///
/// Events with the fields `method`, `path` and `status` are requests: the function is
/// `POST /api/chat`, the result the status, and `ms` the duration. All others are messages. Add it
/// to a subscriber, with a filter of its own to choose events.
#[derive(Clone, Debug)]
pub struct TracingLayer {
    logger: Logger,
}

/// Makes entries of events of `tracing`, for that logger.
pub fn tracing_layer(logger: Logger) -> TracingLayer {
    TracingLayer { logger }
}

impl<S: Subscriber> Layer<S> for TracingLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = level_of(match *metadata.level() {
            tracing_core::Level::ERROR => log::Level::Error,
            tracing_core::Level::WARN => log::Level::Warn,
            tracing_core::Level::INFO => log::Level::Info,
            tracing_core::Level::DEBUG => log::Level::Debug,
            tracing_core::Level::TRACE => log::Level::Trace,
        });
        if scope::is_silent() {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields(mut fields) = fields;
        let entry = if ["method", "path", "status"]
            .iter()
            .all(|name| fields.contains_key(*name))
        {
            request(level, metadata.target(), fields)
        } else {
            let message = match fields.shift_remove("message") {
                Some(Value::String(text)) => text,
                Some(other) => other.to_string(),
                None => String::new(),
            };
            let mut entry = message_entry(level, metadata.target(), &message);
            entry.extra.extend(fields);
            entry
        };
        send(&self.logger, entry);
    }
}

/// Makes entries of records of `log`; install it with `log::set_boxed_logger`.
#[derive(Clone, Debug)]
pub struct LogBridge {
    logger: Logger,
}

impl LogBridge {
    /// Entries for that logger.
    pub fn new(logger: Logger) -> LogBridge {
        LogBridge { logger }
    }
}

impl log::Log for LogBridge {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.logger.enabled(&level_of(metadata.level())) && !scope::is_silent()
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let message = record.args().to_string();
            let entry = message_entry(level_of(record.level()), record.target(), &message);
            send(&self.logger, entry);
        }
    }

    fn flush(&self) {
        self.logger.flush(crate::logger::DRAIN);
    }
}

fn level_of(level: log::Level) -> Level {
    match level {
        log::Level::Error => Level::Error,
        log::Level::Warn => Level::Warning,
        log::Level::Info => Level::Info,
        log::Level::Debug | log::Level::Trace => Level::Debug,
    }
}

fn send(logger: &Logger, mut entry: Entry) {
    if logger.enabled(&entry.level) {
        scope::fill(&mut entry);
        logger.redact(&mut entry);
        logger.emit(entry);
    }
}

fn message_entry(level: Level, target: &str, message: &str) -> Entry {
    let mut entry = Entry {
        level,
        function_name: target.to_owned().into(),
        module: target.to_owned().into(),
        return_value: repr::truncate(&repr::repr_str(message), repr::MAX_REPR_LENGTH).into(),
        return_type: "str".into(),
        parent_id: SpanId::new(scope::current_span()),
        ..Entry::default()
    };
    let kept = repr::truncate(message, repr::MAX_REPR_LENGTH);
    entry.extra.insert("message".into(), kept.into());
    entry.extra.insert("source".into(), SOURCE.into());
    entry
}

/// A request that was answered.
fn request(level: Level, target: &str, mut fields: Map<String, Value>) -> Entry {
    let mut take = |name: &str| fields.shift_remove(name).unwrap_or_default();
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let (method, path, status) = (text(take("method")), text(take("path")), take("status"));
    let duration_ms = take("ms").as_f64();
    let (level, exception_type, exception) = match status.as_u64() {
        Some(500..) => (Level::Error, "HttpError", format!("status {status}")),
        Some(400..) => (level.max(Level::Warning), "", String::new()),
        _ => (level, "", String::new()),
    };
    let mut entry = Entry {
        level,
        function_name: repr::truncate(&format!("{method} {path}"), 512).into(),
        module: target.to_owned().into(),
        return_value: status.to_string().into(),
        return_type: "u16".into(),
        exception: exception.into(),
        exception_type: exception_type.into(),
        duration_ms,
        ..Entry::default()
    };
    entry.extra = fields;
    entry
}

/// The fields of an event as JSON.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{value:?}");
        self.put(field, repr::truncate(&text, repr::MAX_REPR_LENGTH));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, repr::truncate(value, repr::MAX_REPR_LENGTH));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}
