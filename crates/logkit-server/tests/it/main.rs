//! The services over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "a test that skips its part says so")]

mod connections;
mod crash;
mod examples;
mod forward;
mod grpc;
mod http;
mod memory;
mod otlp;
mod page;
mod same;
mod secure;
#[expect(unreachable_pub, reason = "shared with other test crates")]
mod tab;
mod util;
