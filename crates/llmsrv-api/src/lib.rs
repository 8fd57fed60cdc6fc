//! Wire types of the HTTP API: structs as they travel, nothing else.

pub mod native;
