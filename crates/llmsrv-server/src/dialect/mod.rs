//! One file for each dialect: bytes into a job, and what the engine says into bytes.

pub(crate) mod native;
