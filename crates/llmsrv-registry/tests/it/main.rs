//! Transfers against a registry of our own that misbehaves on demand.

#![expect(
    unreachable_pub,
    reason = "one test crate: everything in it is private"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auth;
mod fake;
mod faults;
mod hub;
mod listing;
mod pull;
mod push;
mod support;
