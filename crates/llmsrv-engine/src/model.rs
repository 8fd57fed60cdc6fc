//! The waist between deciding and computing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use llmsrv_tokenizer::Tokenizer;

use crate::StepPlan;

/// What the engine must know of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Number of logits in a row.
    pub vocab_size: usize,
    /// Tokens in one KV block.
    pub block_size: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Memory of one KV block over all layers, in bytes.
    pub kv_block_bytes: usize,
    /// Memory of the weights, in bytes.
    pub weight_bytes: u64,
}

/// A model that computes one step at a time. Exactly one thread owns it.
pub trait Model: Send {
    /// Returns the fixed facts of the model.
    fn spec(&self) -> &ModelSpec;

    /// Makes room for block ids `0..n_blocks`. Growing keeps the content of existing blocks.
    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError>;

    /// Computes all rows of `plan`, writes their keys and values into the planned blocks and the
    /// wanted logits into `logits`: `[plan.logit_rows.len() * vocab_size]`, row-major, f32.
    ///
    /// The result of a row must not depend on the other spans of the plan, nor on how the
    /// sequence was cut into steps: the same prefix gives bit-identical logits.
    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError>;
}

/// A step that could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No memory for KV blocks.
    #[error("not enough memory for the KV cache ({0} blocks)")]
    OutOfMemory(usize),
    /// The device or tensor library failed.
    #[error("computation failed: {0}")]
    Compute(String),
}

/// How a model is to be loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// Element type of the KV cache: `f32`, `f16`, `q8_0` or `q4_0`.
    pub kv_cache_type: String,
    /// Threads for CPU arithmetic; 0 = one for each core the process may use.
    pub n_threads: usize,
    /// Device: `auto`, `cpu`, `cuda`, `metal` or `candle` (the portable tensor path on the CPU).
    pub device: String,
    /// LoRA adapters on top of the weights; all apply at once.
    pub adapters: Vec<Adapter>,
}

/// A LoRA adapter to be applied to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// The adapter file.
    pub path: PathBuf,
    /// Strength: 1 as trained, 0 without effect.
    pub scale: f32,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            kv_cache_type: "f16".into(),
            n_threads: 0,
            device: "auto".into(),
            adapters: Vec::new(),
        }
    }
}

/// A model ready to serve, with its tokenizer.
pub struct Loaded {
    /// The arithmetic.
    pub model: Box<dyn Model>,
    /// Shared with the prompt renderer.
    pub tokenizer: Arc<Tokenizer>,
}

/// Loads a model file; given to the server by the program so that the server knows no tensors.
pub type Loader = Arc<dyn Fn(&Path, &LoadOptions) -> Result<Loaded, LoadError> + Send + Sync>;

/// A model file that could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is damaged, lies about its content, or is no model file.
    #[error("invalid model file: {0}")]
    Invalid(String),
    /// The file is sound, but this program cannot run it.
    #[error("unsupported model: {0}")]
    Unsupported(String),
    /// The file could not be read.
    #[error("cannot read model file: {0}")]
    Io(#[from] std::io::Error),
}
