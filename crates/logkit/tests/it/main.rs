//! The logger from the outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounting;
#[cfg(feature = "tracing")]
mod bridge;
#[cfg(feature = "db")]
mod database;
#[cfg(feature = "db")]
mod disks;
mod files;
#[cfg(all(feature = "db", unix))]
mod fork;
#[deny(unused)]
mod forms;
mod macros;
#[cfg(any(
    feature = "metrics",
    feature = "webhook",
    feature = "llm",
    feature = "otlp",
    feature = "remote",
    feature = "postgres",
    feature = "syslog"
))]
mod net;
#[cfg(feature = "db")]
mod options;
mod redaction;
mod sinks;
#[cfg(feature = "db")]
mod trouble;
mod wrappers;
