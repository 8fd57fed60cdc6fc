//! The services of logkit: programs in any language log calls over HTTP or gRPC into one database,
//! and read them again there or on a built-in page.
//!
//! A reply to a stored call is sent after the commit of the transaction that holds it. Requests
//! that come at the same time share a transaction, which is why many small ones are fast: the one
//! writer thread of [`logkit::Logger`] takes whatever waits and commits once.

#![forbid(unsafe_code)]

mod app;
mod body;
mod call;
mod grpc;
mod guard;
mod json;
mod metrics;
mod otlp;
mod parse;
mod refusal;
mod server;
mod settings;
mod store;
mod web;

pub use http_front::TlsError;
pub use otlp::otlp_entries;
pub use parse::entries;
pub use server::{Server, serve};
pub use settings::{Bound, Error, OnReady, Settings, TlsFiles};
