//! The library against a real sshd and real files.

#![expect(
    unreachable_pub,
    reason = "one test crate: everything in it is private"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and says why"
)]

mod destinations;
mod keys;
mod logins;
mod signals;
mod sshd;
