//! A call logger that never changes what the program does.
//!
//! An [`Entry`] describes one call. A [`Logger`] puts entries into a bounded queue; one writer
//! thread hands them in batches to [`Sink`]s: files, an SQLite database, the console. Nothing that
//! goes wrong there reaches the logged program: it is counted ([`Stats`]) and said once on stderr.

mod configure;
mod default;
mod entry;
mod fanout;
mod level;
mod logger;
mod queue;
mod receipt;
mod redact;
pub mod repr;
mod sink;
mod sinks;
pub mod spec;
mod tags;
mod timestamp;
mod writer;

#[cfg(feature = "db")]
pub mod query;

pub use configure::{Setup, build, configure, load_env};
pub use default::{default_logger, set_default_logger};
pub use entry::{Entry, SpanId, Text};
pub use level::Level;
pub use logger::{Builder, Durability, Logger, OnFull, Stats};
pub use queue::QueueFull;
pub use receipt::{Ack, NotWritten, Receipt};
pub use redact::{REDACTED, Redactor, is_sensitive_key};
pub use sink::{Sink, SinkError, Update};
pub use sinks::console::{ConsoleSink, ConsoleTime, console_line};
pub use sinks::csv::CsvSink;
#[cfg(feature = "db")]
pub use sinks::db::DbSink;
pub use sinks::file::Rotation;
pub use sinks::json::{JsonForm, JsonSink};
pub use sinks::markdown::MarkdownSink;
pub use sinks::ring::RingBufferSink;
pub use sinks::terminal::{TerminalForm, TerminalSink};
pub use tags::{Tags, generate_trace_id};
pub use timestamp::{BadTimestamp, Timestamp};
