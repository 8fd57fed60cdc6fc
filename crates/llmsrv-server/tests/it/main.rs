//! The server as its clients see it, over a fake model.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blobs;
mod contract;
mod create;
mod dialects;
mod embed;
mod host;
mod limits;
mod loading;
mod metrics;
mod models;
mod openapi;
mod registry;
mod scheduling;
mod security;
mod sockets;
mod text;
mod tls;
mod tokens;
mod tools;
mod upstream;
mod vision;
