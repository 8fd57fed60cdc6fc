//! The store from outside: its public interface, other programs' trees, and violence.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod embedded;
mod kill;
mod store;
mod support;
