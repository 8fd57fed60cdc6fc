//! The sinks that need no network.

pub(crate) mod console;
pub(crate) mod csv;
#[cfg(feature = "db")]
pub(crate) mod db;
pub(crate) mod file;
pub(crate) mod json;
#[cfg(all(feature = "db", target_os = "linux"))]
pub(crate) mod locks;
pub(crate) mod markdown;
#[cfg(feature = "db")]
pub(crate) mod open;
pub(crate) mod ring;
pub(crate) mod terminal;
