//! The HTTP server: routes, dialects and the manager of loaded models.
//!
//! A request is parsed into a [`job::Job`], gets a lease on a loaded model, becomes a prompt, and the
//! engine's events become the answer. The crate knows no tensors: a loader is handed to it.

mod access;
mod app;
mod body;
mod clock;
mod connections;
mod create;
mod dialect;
mod embed;
mod error;
mod format;
mod generator;
mod guard;
mod images;
pub mod job;
mod judge;
pub mod keys;
mod manager;
mod memory;
mod metrics;
mod model_info;
mod progress;
mod prompt;
mod rate;
mod refusal;
mod request_log;
mod respond;
mod routes;
mod settings;
mod tasks;
mod template;
mod upstream;
mod vocabularies;

pub use app::App;
pub use connections::{serve, serve_tls};
#[doc(hidden)]
pub use dialect::parse_any;
pub use error::ApiError;
pub use http_front::{Tls, TlsError};
pub use keys::{ApiKey, Keys, Role};
pub use memory::total as total_memory;
pub use rate::Rate;
pub use routes::router;
pub use settings::{CatalogueSource, DraftModel, Gpus, Planner, Settings};
pub use upstream::Upstream;
