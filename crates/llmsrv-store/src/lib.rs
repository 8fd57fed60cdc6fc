//! Models on disk: names, manifests and content-addressed blobs, in the layout of Ollama, so that
//! an existing store works as it is.
//!
//! ```text
//! <root>/manifests/<host>/<namespace>/<model>/<tag>   what a model is made of (JSON)
//! <root>/blobs/sha256-<64 hex>                        the parts: weights, template, parameters, ...
//! ```
//!
//! [`Store`] is the door. Any number of threads and processes may use one store at once: files
//! appear whole or not at all, and whatever removes files holds the lock of the store. The crate
//! knows no network, no HTTP and no arithmetic.

#![forbid(unsafe_code)]

mod blobs;
mod default;
mod digest;
mod embedded;
mod error;
mod facts;
mod gc;
mod info;
mod layout;
mod lock;
mod manifest;
mod model;
mod name;
mod partial;
mod store;

pub use blobs::{BlobFile, BlobWriter};
pub use digest::{Digest, InvalidDigest};
pub use embedded::{Embedded, Installed};
pub use error::Error;
pub use facts::ReadFacts;
pub use info::{ModelConfig, format_parameter_count};
pub use manifest::{Layer, LayerKind, Manifest};
pub use model::{ModelEntry, StoredModel};
pub use name::{InvalidName, ModelName, Scheme};
pub use partial::{Part, PartialBlob};
pub use store::{OpenOptions, Store};
