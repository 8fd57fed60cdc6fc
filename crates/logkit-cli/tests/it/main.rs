//! The program as its users meet it: real processes, pipes, terminals and signals.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod logs;
mod run;
mod serve;
mod terminal;
mod util;
