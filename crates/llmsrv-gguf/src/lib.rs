//! Reading, checking and writing GGUF model files.
//!
//! A model file comes from strangers. [`Header::parse`] checks every count, length and offset
//! against the bytes that are really there before it believes or allocates anything, so that the
//! rest of the program can index without fear. The format is described in
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod dialect;
mod error;
mod facts;
mod header;
pub mod json;
mod map;
mod meta;
mod tensors;
mod write;

pub use error::Error;
pub use facts::ModelFacts;
pub use header::Header;
pub use map::GgufFile;
pub use meta::{Array, Metadata, StringArray, Value};
pub use tensors::{TensorInfo, TensorType};
pub use write::{Layout, Stream, Writer};
