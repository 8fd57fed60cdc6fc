//! The monitor over machines made of files, and on a terminal.

#![expect(
    unreachable_pub,
    reason = "one test crate: everything in it is private"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking and says why")]

mod figures;
mod fixture;
mod hostile;
mod restored;
mod screens;
mod tmux;
