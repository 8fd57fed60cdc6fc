//! Model files from other model files: quantising, and converting published weights and adapters.
//!
//! All work is done tensor by tensor, so that a model may be larger than memory. Sources come from
//! strangers: every size is checked against the bytes that are there, and every complaint is one line.

mod adapter;
mod checkpoint;
mod config;
mod error;
mod families;
mod files;
mod imatrix;
mod join;
mod mixture;
mod model;
mod names;
mod output;
mod quantize;
mod rope;
mod rows;
mod synthetic;
mod target;
mod vocabulary;

use std::ops::ControlFlow;

pub use adapter::convert_adapter;
pub use error::Error;
pub use imatrix::Imatrix;
pub use join::join;
pub use model::convert_model;
pub use quantize::{plan, quantize};
pub use synthetic::{Family, SHAPES, Shape, synthesize};
pub use target::{Target, UnknownTarget};

/// Is told how many bytes of the source are done, and of how many; says whether to go on.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;
