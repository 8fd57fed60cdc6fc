//! The interface between the engine, which schedules steps, and the models, which compute them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use llmsrv_tokenizer::Tokenizer;

use crate::{GpuShare, Offload, PlacedBytes, StepPlan, Vision};

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
    /// Memory of one recurrent state over all layers, in bytes; 0 = the model has none.
    pub state_bytes: usize,
    /// Memory of the weights, in bytes.
    pub weight_bytes: u64,
    /// How it makes a vector of a text; `None` = not at all.
    pub embedding: Option<EmbeddingSpec>,
    /// Layers, where the output is one; 0 = not counted.
    pub n_layers: usize,
    /// What of all that is on GPUs, and computed there. The rest is in the memory of the machine.
    pub gpus: Vec<GpuShare>,
    /// An NPU computes it. Its memory is that of the machine.
    pub npu: bool,
}

impl ModelSpec {
    /// Returns the layers that GPUs compute.
    pub fn n_gpu_layers(&self) -> usize {
        self.gpus.iter().map(|gpu| gpu.n_layers).sum()
    }

    /// Returns where the weights are.
    pub fn weights(&self) -> PlacedBytes {
        self.placed(self.weight_bytes, |gpu| gpu.weight_bytes)
    }

    /// Returns where the memory of so many KV blocks is.
    pub fn kv_blocks(&self, n_blocks: usize) -> PlacedBytes {
        let block = self.placed(self.kv_block_bytes as u64, |gpu| gpu.kv_block_bytes as u64);
        block.times(n_blocks as u64)
    }

    /// Returns where the memory of so many recurrent states is.
    pub fn states(&self, n_states: usize) -> PlacedBytes {
        let state = self.placed(self.state_bytes as u64, |gpu| gpu.state_bytes as u64);
        state.times(n_states as u64)
    }

    fn placed(&self, all: u64, of: impl Fn(&GpuShare) -> u64) -> PlacedBytes {
        let mut placed = PlacedBytes::default();
        for (idx, gpu) in self.gpus.iter().enumerate() {
            *placed.gpu_mut(idx) = of(gpu);
        }
        placed.host = all.saturating_sub(placed.total());
        placed
    }

    /// Returns whether the model can say which token comes next.
    pub fn generates(&self) -> bool {
        self.embedding.is_none_or(|spec| !spec.bidirectional)
    }
}

/// How a model makes one vector of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingSpec {
    /// Elements of a vector: hidden values, or the scores of [`Pooling::Rank`].
    pub width: usize,
    /// Which rows the vector is made of.
    pub pooling: Pooling,
    /// Every token sees all others: an input is computed whole and without KV cache, and the model
    /// generates no text.
    pub bidirectional: bool,
}

/// How the rows of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all rows.
    Mean,
    /// The row of the first token.
    Cls,
    /// The row of the last token.
    Last,
    /// Scores that a classifier gives to the row of the first token (of the last one, where tokens
    /// see only what was before them). The text is a query and a document.
    Rank,
}

/// A model that computes one step at a time. Exactly one thread owns it.
pub trait Model: Send {
    /// Returns the fixed facts of the model.
    fn spec(&self) -> &ModelSpec;

    /// Makes room for block ids `0..n_blocks`. Growing keeps the content of existing blocks; fewer
    /// than there are change nothing.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfMemory`] if the device has no memory for them: the blocks of before stay.
    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError>;

    /// Makes room for the recurrent states `0..n_states`. Growing keeps the content of existing ones. It
    /// is not called for models without [`ModelSpec::state_bytes`].
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfStates`] if the model keeps none, or there is no memory for so many.
    fn reserve_states(&mut self, n_states: usize) -> Result<(), ModelError> {
        Err(ModelError::OutOfStates(n_states))
    }

    /// Computes all rows of `plan`, writes their keys and values into the planned blocks and the
    /// wanted logits into `logits`: `[plan.logit_rows.len() * vocab_size]`, row-major, f32.
    ///
    /// The result of a row must not depend on the other spans of the plan, nor on how the
    /// sequence was cut into steps: the same prefix gives bit-identical logits.
    ///
    /// # Errors
    ///
    /// [`ModelError::Compute`] if the plan contradicts itself, `logits` has another length, or the
    /// device fails; [`ModelError::OutOfMemory`] if the step itself needs memory that there is not;
    /// [`ModelError::NoText`] of a model that makes nothing but vectors. The blocks that the plan
    /// writes to hold anything then. [`ModelError::DeviceLost`]: nothing can be computed any more.
    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError>;

    /// As [`Model::forward`], but writes what [`ModelSpec::embedding`] speaks of for the wanted rows:
    /// `[plan.logit_rows.len() * width]`, row-major, f32. Pooling is left to the caller, classifying
    /// is done.
    ///
    /// For a bidirectional model every span is a whole input (`start` is 0) and has no blocks.
    ///
    /// # Errors
    ///
    /// [`ModelError::NoEmbeddings`] of a model that makes no vectors; else as [`Model::forward`].
    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let _ = (plan, rows);
        Err(ModelError::NoEmbeddings)
    }

    /// Takes what is to be called, on any thread, if the device is lost; it is told why. A model that waits for its
    /// next step would not notice otherwise.
    fn on_loss(&mut self, tell: OnLoss) {
        // The CPU is not lost.
        drop(tell);
    }
}

/// What is told that the device of a model is lost, and why.
pub type OnLoss = Box<dyn FnOnce(String) + Send>;

/// A step that could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There is no memory for so many KV blocks in all.
    #[error("not enough memory for the KV cache ({0} blocks)")]
    OutOfMemory(usize),
    /// No memory for recurrent states.
    #[error("not enough memory for recurrent states ({0})")]
    OutOfStates(usize),
    /// The device or tensor library failed.
    #[error("computation failed: {0}")]
    Compute(String),
    /// The device, or the process that computes on it, is gone: every later call fails, too. The model must be
    /// loaded anew.
    #[error("the device is lost: {0}")]
    DeviceLost(String),
    /// The model makes no vectors.
    #[error("the model does not support embeddings")]
    NoEmbeddings,
    /// The model makes nothing but vectors.
    #[error("the model does not generate text")]
    NoText,
}

/// How a model is to be loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// Element type of the KV cache: `f32`, `f16`, `bf16`, `q8_0` or `q4_0`; `auto`: bf16 where the CPU
    /// multiplies fast, else f16.
    pub kv_cache_type: String,
    /// Threads for CPU arithmetic; 0 = one for each core the process may use.
    pub n_threads: usize,
    /// Device: `auto`, `cpu`, `vulkan` or `candle` (the portable tensor path on the CPU).
    pub device: String,
    /// Which GPUs `vulkan` may take, and how they compute.
    pub gpu: GpuOptions,
    /// Which layers GPUs compute.
    pub offload: Offload,
    /// What computes encoders on an NPU; `None` = nothing does. The device `npu` asks for it.
    pub npu: Option<NpuOptions>,
    /// How the CPU multiplies.
    pub activation_precision: ActivationPrecision,
    /// GGUF file of the model's encoder for images.
    pub projector: Option<PathBuf>,
    /// LoRA adapters on top of the weights; all apply at once.
    pub adapters: Vec<Adapter>,
}

/// What computes encoders on an NPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NpuOptions {
    /// The library of ONNX Runtime.
    pub runtime: PathBuf,
    /// Its execution provider: `openvino`, `vitis`, `qnn`, or for tests `cpu`.
    pub provider: String,
    /// A folder where providers keep what they compiled.
    pub cache: Option<PathBuf>,
}

/// How GPUs multiply quantised weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuArithmetic {
    /// As [`GpuArithmetic::Int8`] where [`ActivationPrecision`] of the model is that of bytes, else exactly.
    #[default]
    Auto,
    /// With weights unpacked to f32 and activations as they are.
    Exact,
    /// With activations that are quantised to bytes, as [`ActivationPrecision::Int8`], where the device has integer dot
    /// products and a kernel for the type of the weights.
    Int8,
}

/// Which GPUs models may be loaded to, and how they compute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuOptions {
    /// How they multiply.
    pub arithmetic: GpuArithmetic,
    /// Integrated GPUs and those of Intel, too.
    pub vendor: bool,
    /// Devices that compute on the CPU, too: for tests.
    pub software: bool,
    /// Bytes of the GPU's memory to leave free.
    pub leave_free_bytes: u64,
    /// Bytes of it that models may take at most.
    pub limit_bytes: Option<u64>,
    /// These alone, by number or UUID; `None` = all.
    pub visible: Option<Vec<String>>,
    /// Of NVIDIA's these alone, as `CUDA_VISIBLE_DEVICES` names them; `None` = all.
    pub nvidia: Option<Vec<String>>,
    /// A file that keeps which drivers gave the known answers of all kernels; `None` = each process asks them anew.
    pub checked: Option<PathBuf>,
}

/// How the CPU multiplies quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationPrecision {
    /// Finely where the weights are few, else fast.
    Auto,
    /// With activations that are quantised to bytes, as engines on CPUs do: a logit is off by about a
    /// hundredth of the largest one.
    Int8,
    /// With activations of 16 bits, as two rows of bytes.
    Int16,
    /// With weights unpacked to f32 and activations as they are.
    F32,
}

/// A LoRA adapter to be applied to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// A GGUF file whose `general.type` is `adapter`.
    pub path: PathBuf,
    /// Strength: 1 as trained, 0 without effect.
    pub scale: f32,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            kv_cache_type: "auto".into(),
            n_threads: 0,
            device: "auto".into(),
            gpu: GpuOptions::default(),
            offload: Offload::default(),
            npu: None,
            activation_precision: ActivationPrecision::Auto,
            projector: None,
            adapters: Vec::new(),
        }
    }
}

/// A model ready to serve, with its tokenizer.
pub struct Loaded {
    /// Computes the steps; the engine's thread gets it.
    pub model: Box<dyn Model>,
    /// A draft model: a small one with the same vocabulary, which proposes tokens for the other.
    pub draft: Option<Box<dyn Model>>,
    /// The model's own tokenizer; whoever renders prompts shares it.
    pub tokenizer: Arc<Tokenizer>,
    /// Reads images, if the model can.
    pub vision: Option<Arc<dyn Vision>>,
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
    /// The GPU that must be used cannot compute it: why, and what to do.
    #[error("the GPU cannot compute it: {0}")]
    Gpu(String),
    /// The machine has GPUs, and none that is used unless a setting allows or names it.
    #[error("the GPU cannot compute it: {0}")]
    GpuNotAllowed(String),
    /// The device, or the process that computes on it, was lost while the model was loaded. Another try may work.
    #[error("the device is lost: {reason}")]
    DeviceLost {
        /// What happened.
        reason: String,
        /// How long no other try is made.
        retry_after: Duration,
    },
    /// The file could not be read.
    #[error("cannot read model file: {0}")]
    Io(#[from] std::io::Error),
}

/// The most bytes of the text of a [`LoadError`].
const ERROR_BYTES: usize = 900;

impl LoadError {
    /// Shortens what it says of names and values of the file, which may be as long as the file.
    #[must_use]
    pub fn bounded(self) -> LoadError {
        let bound = |mut text: String| {
            if text.len() > ERROR_BYTES {
                text.truncate(text.floor_char_boundary(ERROR_BYTES));
                text.push('…');
            }
            text
        };
        match self {
            LoadError::Invalid(text) => LoadError::Invalid(bound(text)),
            LoadError::Unsupported(text) => LoadError::Unsupported(bound(text)),
            other => other,
        }
    }
}
