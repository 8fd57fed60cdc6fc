//! The serving loop of one loaded model: which tokens are computed next and what they become.
//!
//! The crate knows no tensor, no file and no socket. A [`Model`] computes; everything here decides.
//! Read in this order: [`request`] (what comes in and goes out), [`plan`] and [`model`] (the
//! interface to what computes), [`image`] (prompts that are not only text), `handle` (what other threads
//! hold), `engine` (the loop), then the parts of the loop: [`sequence`], [`blocks`], [`scheduler`],
//! `prefill_throughput` and `speculation` choose what is computed, [`sample`] and `grammar` choose
//! tokens, [`detok`] and [`stop`] make text of them, `output_state` joins these for one request.
//! `embed` is the shorter way of texts that become vectors.

#![warn(clippy::missing_errors_doc)]

pub mod image;
pub mod model;
pub mod plan;
pub mod request;

mod embed;
mod engine;
mod gpu;
mod handle;
mod options;
mod placement;
mod prefill_throughput;
mod stats;
mod submission;

pub mod blocks;
pub mod scheduler;
pub mod sequence;
mod speculation;

pub mod detok;
mod grammar;
mod output_state;
pub mod sample;
pub mod stop;

#[cfg(any(test, feature = "testing"))]
pub mod fake;

pub use embed::{EmbedError, Embeddings};
pub use gpu::{GpuLimits, UsableGpu};
pub use handle::{Ending, Generation, Handle, spawn, spawn_within};
pub use image::{Grid, Image, ImageError, ImageSpan, Part, Vision};
pub use model::{
    ActivationPrecision, Adapter, EmbeddingSpec, GpuArithmetic, GpuOptions, LoadError, LoadOptions,
    Loaded, Loader, Model, ModelError, ModelSpec, NpuOptions, OnLoss, Pooling,
};
pub use options::{EngineOptions, MemoryAccount, Speculation};
pub use placement::{GpuShare, Offload, PlacedBytes, Plan};
pub use plan::{BlockId, ImageRows, Span, SpanState, StateId, StepPlan};
pub use request::{
    Event, Finish, FinishReason, GenRequest, GrammarSpec, SamplingParams, SubmitError, TokenInfo,
};
pub use stats::Stats;

/// Index of a token in the vocabulary.
pub type TokenId = u32;
