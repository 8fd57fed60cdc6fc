//! Wire types of the HTTP API and the rules for reading them: no IO, nothing about models.

pub mod catalogue;
#[cfg(feature = "client")]
pub mod client;
pub mod embed;
pub mod keep_alive;
pub mod lenient;
pub mod members;
pub mod modelfile;
pub mod native;
pub mod options;
pub mod progress;
pub mod requests;
