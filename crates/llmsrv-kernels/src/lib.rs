//! CPU arithmetic on slices: quantised formats, matrix products, attention over paged memory.
//!
//! No model knowledge, no tensors, no IO. Every result of one row or one query depends on that row
//! alone, bit for bit: not on how many are computed together, nor on the number of threads.
//!
//! Shapes are written `[rows, n]`: `rows * n` elements, row after row. Functions that return a
//! `Result` check them before they compute anything; the others say what they do where lengths differ.
#![warn(clippy::missing_errors_doc)]
#![expect(
    clippy::inline_always,
    reason = "parts of a kernel take the instructions of the function they are inlined into"
)]
#![expect(
    unexpected_cfgs,
    reason = "`shuttle` is set by hand, for the test of the pool's interleavings"
)]

mod attention;
mod bf16;
mod bidirectional;
mod dot;
mod elementwise;
mod error;
mod exp;
mod instructions;
mod kv;
mod matmul;
mod packed;
mod pool;
pub mod probe;
pub mod quant;
mod recurrence;
mod tier;

pub use attention::{Attention, Queries, Query, attend};
pub use bidirectional::{BidirectionalAttention, attend_bidirectional};
pub use dot::{dot, dot_at};
pub use elementwise::{
    RopeStyle, add_scaled, clamped_swiglu, exact_gelu, gelu, gelu_mul, layer_norm, quick_gelu,
    rms_norm, rotate, sigmoid, sigmoid_mul, silu, silu_mul,
};
pub use error::Error;
pub use instructions::Instructions;
pub use kv::{KV_BLOCK, PagedKv, Rotation, Slot};
pub use matmul::{Weight, matmul};
pub use packed::{
    ActivationFormat, Activations, Arena, Gate, Gemm, Packed, Residual, grouped_gemm,
};
pub use pool::Pool;
pub use quant::{codebook, dequantize, quantize, quantize_weighted, supported};
pub use recurrence::{
    DeltaRule, SelectiveScan, ShortConv, Stretch, delta_rule, selective_scan, short_conv,
};
pub use tier::Tier;
