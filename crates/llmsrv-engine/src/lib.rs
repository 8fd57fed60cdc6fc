//! The serving loop of one loaded model: which tokens are computed next and what they become.
//!
//! The crate knows no tensor, no file and no socket. A [`Model`] computes; everything here decides.
//! Read in this order: [`request`] (what comes in and goes out), [`plan`] and [`model`] (the waist
//! towards the arithmetic).

pub mod model;
pub mod plan;
pub mod request;

pub use model::{LoadError, LoadOptions, Loaded, Model, ModelError, ModelSpec};
pub use plan::{BlockId, Span, StepPlan};
pub use request::{Event, Finish, FinishReason, GenRequest, GrammarSpec, SamplingParams, SubmitError, TokenInfo};

/// Index of a token in the vocabulary.
pub type TokenId = u32;
