//! The logger from the outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounting;
#[cfg(feature = "tracing")]
mod bridge;
#[cfg(feature = "db")]
mod database;
mod files;
mod macros;
#[cfg(any(
    feature = "metrics",
    feature = "webhook",
    feature = "llm",
    feature = "otlp",
    feature = "remote",
    feature = "postgres"
))]
mod net;
mod sinks;
#[cfg(feature = "db")]
mod trouble;
mod wrappers;
