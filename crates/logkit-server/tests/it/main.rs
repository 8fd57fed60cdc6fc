//! The services over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

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
