//! The logger from the outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounting;
#[cfg(feature = "tracing")]
mod bridge;
#[cfg(feature = "db")]
mod database;
mod files;
mod macros;
mod sinks;
#[cfg(feature = "db")]
mod trouble;
mod wrappers;
