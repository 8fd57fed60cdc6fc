//! CPU arithmetic on slices: quantised formats, matrix products, attention over paged memory.
//!
//! No model knowledge, no tensors, no IO. Every result of one row or one query depends on that row
//! alone, bit for bit: not on how many are computed together, nor on the number of threads.

mod error;
pub mod quant;

pub use error::Error;
pub use quant::{dequantize, quantize, supported};
