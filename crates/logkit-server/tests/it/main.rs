//! The services over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod crash;
mod crowd;
mod examples;
mod grpc;
mod http;
mod otlp;
mod page;
mod same;
mod secure;
mod util;
