//! Whole-binary tests: the real `llmsrv` over real sockets.
//!
//! One file for each area; [`util`] has the sandbox and the server every test starts from.

#![expect(
    unreachable_pub,
    reason = "one test crate: everything in it is private"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and says why"
)]

mod analysis;
mod api;
mod bench;
mod cli;
mod clients;
mod create;
mod crowd;
mod determinism;
mod generated;
mod host;
mod hostile;
mod interrupted;
mod load;
mod logkit;
mod openapi;
mod registry;
mod secure;
mod tidy;
mod upstream;
mod util;
