//! The server as its clients see it, over a fake model.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blobs;
mod contract;
mod create;
mod dialects;
mod host;
mod limits;
mod loading;
mod models;
mod sockets;
mod text;
mod upstream;
