//! Wire types of the HTTP API: structs as they travel, nothing else.

#[cfg(feature = "client")]
pub mod client;
pub mod native;
