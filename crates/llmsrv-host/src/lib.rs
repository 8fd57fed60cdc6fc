//! The server as a program of its machine: which processes of it run, and on which addresses the
//! machine can be reached.
//!
//! Nothing here prints, and nothing knows models or requests.

#![forbid(unsafe_code)]

pub mod instance;
pub mod net;
