//! The sinks that need no network.

pub mod console;
#[cfg(feature = "db")]
pub mod db;
