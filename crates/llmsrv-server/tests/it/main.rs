//! The server as its clients see it, over a fake model.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod anthropic;
#[expect(unreachable_pub, reason = "shared with another test crate")]
mod app;
mod blobs;
mod bodies;
mod contract;
mod cors;
mod create;
mod dialects;
mod drafts;
mod embed;
mod generate;
mod host;
mod limits;
mod lists;
mod loading;
mod metrics;
mod models;
mod openai;
mod openapi;
mod registry;
mod scheduling;
mod security;
mod sharing;
mod sockets;
#[expect(unreachable_pub, reason = "shared with another test crate")]
#[path = "../../../logkit-server/tests/it/tab.rs"]
mod tab;
mod templates;
mod text;
mod tls;
mod tokens;
mod tools;
mod upstream;
mod vision;
mod web;
