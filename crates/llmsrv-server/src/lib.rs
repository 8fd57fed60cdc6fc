//! The HTTP server: routes, dialects and the manager of loaded models.
//!
//! A request is parsed into a [`job::Job`], gets a lease on a loaded model, becomes a prompt, and the
//! engine's events become the answer. The crate knows no tensors: a loader is handed to it.

mod app;
mod clock;
mod create;
mod dialect;
mod error;
mod guard;
pub mod job;
mod library;
mod manager;
mod progress;
mod prompt;
mod respond;
mod routes;
mod show;
mod upstream;
mod voice;

pub use app::{App, Settings, serve};
pub use dialect::native::{parse_chat, parse_generate};
pub use error::ApiError;
pub use upstream::Upstream;
