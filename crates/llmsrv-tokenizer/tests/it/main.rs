//! The crate from outside: against reference programs, and what holds for every text.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod embedded;
mod fixture;
mod metadata;
mod properties;
