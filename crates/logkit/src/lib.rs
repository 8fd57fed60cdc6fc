//! A call logger that never changes what the program does.
//!
//! An [`Entry`] describes one call. A [`Logger`] puts entries into a bounded queue; one writer
//! thread hands them in batches to [`Sink`]s: files, an SQLite database, the console. Nothing that
//! goes wrong there reaches the logged program: it is counted ([`Stats`]) and said once on stderr.
//!
//! ```
//! use logkit::{DbSink, Durability, Logger, log_call, query::{Filter, Reader}, set_default_logger};
//!
//! #[log_call(level = "info")]
//! fn price(article: &str, n: u32, api_key: &str) -> Result<u32, std::num::ParseIntError> {
//!     Ok(article.parse::<u32>()? * n)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("logs.db");
//! # let path = path.as_path();
//! let logger = Logger::builder()
//!     .sink(DbSink::open(path, "logs", Durability::Buffered)?)
//!     .build();
//! set_default_logger(logger.clone());
//!
//! assert_eq!(price("20", 3, "k-123")?, 60);
//!
//! // A program that ends writes what waits; one that reads its own entries flushes first.
//! assert!(logger.flush(std::time::Duration::from_secs(5)));
//! let rows = Reader::open(path, "logs")?.rows(&Filter::default())?;
//! // The name `api_key` was enough to blank its value.
//! assert_eq!(rows[0].entry.args, r#"("20", 3, ***REDACTED***)"#);
//! # Ok(())
//! # }
//! ```
//!
//! # Attributes
//!
//! [`macro@log_call`] and [`macro@catch`] go on functions, [`macro@logged`] on an `impl` block and
//! [`macro@auto_log`] on a module; [`macro@skip`] leaves a function out of the last two. An `Err` or a
//! panic is logged as an ERROR; all but `catch` hand it on unchanged.
//!
//! ```
//! use logkit::{catch, log_call};
//!
//! #[log_call(level = "info", name = "login", skip(body), redact(pin), fields(n_bytes = body.len()))]
//! fn log_in(user: &str, pin: u16, body: &[u8]) -> bool {
//!     pin == 1234 && !user.is_empty() && body.len() < 100
//! }
//!
//! #[catch(default = 0)]
//! fn port(text: &str) -> Result<u16, std::num::ParseIntError> {
//!     text.parse()
//! }
//!
//! # use logkit::{DbSink, Durability, Logger, query::Reader, set_default_logger};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("logs.db");
//! # let logger = Logger::builder().sink(DbSink::open(&path, "logs", Durability::Buffered)?).build();
//! # set_default_logger(logger.clone());
//! assert!(log_in("ann", 1234, b"..."));
//! assert_eq!(port("http")?, 0); // an ERROR in the log, and the default for the caller
//! # assert!(logger.flush(std::time::Duration::from_secs(5)));
//! # let rows = Reader::open(&path, "logs")?.after(0, 10)?;
//! # let entry = &rows[0].entry;
//! assert_eq!(entry.function_name, "login");
//! assert_eq!(entry.args, r#"("ann", ***REDACTED***)"#);
//! assert_eq!(entry.extra["n_bytes"], 3);
//! # assert_eq!(rows[1].entry.exception_type, "ParseIntError");
//! # Ok(())
//! # }
//! ```
//!
//! # Sinks
//!
//! Sinks and wrappers are listed at [`Sink`], or described by texts such as `csv:calls.csv`
//! ([`spec`]); [`configure()`] reads them from the environment. What counts as a secret says
//! [`Redactor`]. Entries that are in a database are read with [`query::Reader`].

#![warn(clippy::missing_errors_doc)]

#[cfg(feature = "tracing")]
mod bridge;
mod call;
mod capture;
mod configure;
mod entry;
mod error;
mod event;
mod fanout;
mod files;
mod injection;
mod journal;
mod json_line;
mod level;
#[doc(hidden)]
pub mod lock;
mod logger;
mod net;
mod panics;
mod policy;
mod queue;
mod receipt;
mod redact;
mod render;
pub mod repr;
mod scope;
mod sink;
mod sinks;
pub mod spec;
mod stats;
mod stderr;
mod tags;
mod timestamp;
mod wrappers;
mod writer;

#[cfg(feature = "db")]
mod full_text;
#[cfg(feature = "db")]
pub mod query;

#[cfg(feature = "tracing")]
pub use bridge::{LogBridge, TracingLayer, tracing_layer};
pub use capture::{CallByHand, Gate, Inside, is_silent, milliseconds, rendering};
pub use configure::{Setup, build, configure, load_env, with_model};
pub use entry::{Column, Entry, SpanId, Text};
pub use error::SinkError;
pub use event::{Named, Span, debug, error, event, get_logger, info, span, warning};
pub use injection::{
    INJECTION_PATTERNS, detect_prompt_injection, detect_with, is_pattern, scan_entry_for_injection,
};
pub use level::Level;
pub use logger::{
    Logger, WeakLogger,
    builder::Builder,
    default::{default_logger, set_default_logger},
    guards::{ForkGuard, TempLevel, TempSink},
};
pub use logkit_macros::{auto_log, catch, log_call, logged, skip};
#[cfg(feature = "grpc")]
pub use net::grpc::GrpcSink;
#[cfg(feature = "llm")]
pub use net::llm::{LlmOptions, LlmServers, LlmSink, OnAnalysis};
#[cfg(feature = "metrics")]
pub use net::metrics::{
    DurationHistogram, MetricsFormat, MetricsOptions, MetricsPage, MetricsSink,
};
#[cfg(feature = "otlp")]
pub use net::otlp::{OtlpOptions, OtlpSink};
#[cfg(any(
    feature = "webhook",
    feature = "otlp",
    feature = "remote",
    feature = "grpc",
    feature = "postgres",
    feature = "syslog"
))]
pub use net::outbox::{Delivery, DeliveryCounts};
#[cfg(feature = "postgres")]
pub use net::postgres::PostgresSink;
#[cfg(feature = "remote")]
pub use net::remote::RemoteSink;
#[cfg(any(feature = "remote", feature = "grpc"))]
pub use net::service::RemoteOptions;
#[cfg(feature = "syslog")]
pub use net::syslog::SyslogSink;
#[cfg(feature = "webhook")]
pub use net::webhook::{WebhookFormat, WebhookOptions, WebhookSink};
pub use policy::{Durability, OnFull};
pub use queue::QueueFull;
pub use receipt::{Ack, NotWritten, Receipt};
pub use redact::{REDACTED, Redactor, is_sensitive_key};
pub use scope::{InScope, Scope, ScopeGuard, SilenceGuard, log_context, silence};
pub use sink::{Sink, SinkCall, Update, Which};
pub use sinks::console::{ConsoleSink, ConsoleTime, console_line, console_message};
pub use sinks::csv::CsvSink;
#[cfg(feature = "db")]
pub use sinks::db::DbSink;
pub use sinks::file::Rotation;
pub use sinks::json::{JsonForm, JsonSink};
#[cfg(all(feature = "db", target_os = "linux"))]
pub use sinks::locks::lock_wal_index_by_open_file;
pub use sinks::markdown::MarkdownSink;
pub use sinks::ring::RingBufferSink;
pub use sinks::terminal::{TerminalForm, TerminalSink};
pub use stats::{Stats, StatsSource};
pub use stderr::notice;
pub use tags::{Tags, generate_trace_id};
pub use timestamp::{BadTimestamp, Timestamp};
pub use wrappers::{
    diff::DiffTracker, env::EnvTagger, router::DynamicRouter, scan::InjectionScanner,
};

/// For the macros only.
#[doc(hidden)]
pub mod __private {
    pub use std::{
        any::type_name_of_val, module_path, panic::resume_unwind, pin::pin, sync::OnceLock,
    };

    pub use crate::{
        call::{Call, Site, body_of, once, out_of_line, type_name_of},
        render::{
            CannotFail, MayFail, Outcome, ShowDebug, ShowName, Shown, TellDebug, TellDisplay,
            TellName, Told,
        },
    };
}
