//! Weights and forward passes of the supported model families.
//!
//! [`load`] turns a GGUF file into a [`Model`] for the engine. Read in this
//! order: `arch` (what distinguishes decoders, as data), `families` (metadata to that data),
//! `source` and `weights` (checked access to tensors), `decoder` (the one forward pass), `ops`
//! (what it runs on), `model` (the engine's view). `encoder` has the same parts for models that make
//! vectors of texts and nothing else, `vision` for those that make rows of a prompt of images.

#![warn(clippy::missing_errors_doc)]

mod adapter;
mod arch;
mod decoder;
mod encoder;
mod errors;
mod families;
mod head;
mod linear;
mod model;
mod ops;
mod rope;
mod routing;
mod source;
mod vision;
mod weights;

use std::{path::Path, sync::Arc};

use llmsrv_engine::{
    ActivationPrecision, EmbeddingSpec, LoadError, LoadOptions, Loaded, Model, ModelSpec, Pooling,
    Vision,
};
use llmsrv_gguf::{GgufFile, TensorInfo, TensorType};
use llmsrv_tokenizer::Tokenizer;
use tracing::warn;

use crate::{
    adapter::{Adapter, with_adapters},
    arch::{ArchConfig, BLOCK_SIZE},
    encoder::Encoder,
    head::Head,
    model::Decoder,
    ops::{
        Ops, candle,
        candle::CandleOps,
        cpu::CpuOps,
        gpu::{GpuOps, ON_THE_CPU},
    },
    source::{Source, invalid},
    weights::Weights,
};
pub use crate::{
    families::{architectures, encoders, not_yet, refusal},
    ops::gpu::gpu_memory,
};

/// Bytes of weights up to which a model computes with activations of 16 bits unless told otherwise: it
/// is fast anyway, and small models feel rounding most.
const FEW_WEIGHTS: u64 = 64 << 20;

/// The key of files that hold an encoder for images.
const VISION: &str = "vision.block_count";

/// Loads the model of a GGUF file.
///
/// Quantised weights that the CPU computes with are packed for it; others, and all where arithmetic is
/// to be exact, stay in the file, which is mapped into memory. What adapters add is computed beside
/// them, so that quantised weights keep their values.
///
/// An encoder for images that is not known only costs the images: a warning says so.
///
/// # Errors
///
/// [`LoadError::Io`] if the file, an adapter or the projector cannot be read; [`LoadError::Invalid`] if
/// one of them contradicts itself or lacks something, in one line that names the key or tensor;
/// [`LoadError::Unsupported`] if it is sound but of an unknown architecture or type, if an adapter is
/// for other models, if the device cannot be used or has no room for the weights, or if there is no
/// such type of the KV cache; [`LoadError::Gpu`] if it was to be a GPU.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Loaded, LoadError> {
    let file = Arc::new(GgufFile::open_model(path).map_err(unreadable)?);
    let metadata = file.metadata();
    let architecture = metadata
        .architecture()
        .ok_or_else(|| invalid("general.architecture is missing".into()))?;
    let source = Source::new(file.clone(), architecture);
    let adapters = options.adapters.iter();
    let adapters: Vec<Adapter> = adapters
        .map(|adapter| Adapter::open(&adapter.path, adapter.scale, architecture))
        .collect::<Result<_, _>>()?;
    let tokenizer = || Tokenizer::from_metadata(metadata).map_err(no_tokenizer);
    if let Some(config) = encoder::read(architecture, &source)? {
        let tokenizer = tokenizer()?;
        let model: Box<dyn Model> = match device(&options.device)? {
            Device::Gpu => {
                return Err(no_encoders(architecture));
            }
            Device::Cpu => {
                let ops = CpuOps::without_cache(options.n_threads)
                    .map_err(|error| LoadError::Unsupported(error.to_string()))?;
                Box::new(Encoder::load(&source, &adapters, config, &tokenizer, ops)?)
            }
            Device::Candle => {
                let ops = CandleOps::without_cache(candle::Device::Cpu);
                Box::new(Encoder::load(&source, &adapters, config, &tokenizer, ops)?)
            }
        };
        return Ok(Loaded {
            model,
            draft: None,
            tokenizer: Arc::new(tokenizer),
            vision: None,
        });
    }
    let arch = families::read(architecture, &source)?;
    let tokenizer = tokenizer()?;
    let n_vocab = tokenizer.vocab_size().saturating_sub(arch.n_unwritten);
    let chosen = device(&options.device)?;
    let activation_precision = match options.activation_precision {
        // Vectors are compared with those of other engines and days.
        ActivationPrecision::Auto if arch.bidirectional => ActivationPrecision::Int16,
        ActivationPrecision::Auto if source.tensor_bytes() <= FEW_WEIGHTS => {
            ActivationPrecision::Int16
        }
        ActivationPrecision::Auto => ActivationPrecision::Int8,
        chosen => chosen,
    };
    let kv_type = match options.kv_cache_type.as_str() {
        // Rounding keys and values to 8 digits costs less than the activations of 8 bits around them.
        "auto"
            if activation_precision == ActivationPrecision::Int8
                && matches!(chosen, Device::Cpu) =>
        {
            TensorType::BF16
        }
        "auto" => TensorType::F16,
        name => kv_type(name, &arch)?,
    };
    let vision = vision(options, &source, &arch, candle::Device::Cpu)?;

    let model = match chosen {
        Device::Cpu => {
            let ops = CpuOps::new(&arch, kv_type, options.n_threads, activation_precision)
                .map_err(|error| LoadError::Unsupported(error.to_string()))?;
            build(&source, &adapters, arch, n_vocab, ops)?
        }
        Device::Gpu => {
            if arch.bidirectional {
                return Err(no_encoders(architecture));
            }
            check_for_gpu(&source)?;
            if !matches!(options.kv_cache_type.as_str(), "auto" | "f16") {
                warn!(
                    asked = options.kv_cache_type,
                    "KV cache of f16 instead: the GPU has no other"
                );
            }
            let ops = GpuOps::open(options.gpu, &arch, source.tensor_bytes())?;
            build(&source, &adapters, arch, n_vocab, ops)?
        }
        Device::Candle => {
            // Candle has no arithmetic on quantised activations.
            let kv_type = match kv_type {
                kept @ (TensorType::F32 | TensorType::BF16) => kept,
                _ => TensorType::F16,
            };
            let ops = CandleOps::new(candle::Device::Cpu, &arch, kv_type);
            build(&source, &adapters, arch, n_vocab, ops)?
        }
    };
    Ok(Loaded {
        model,
        draft: None,
        tokenizer: Arc::new(tokenizer),
        vision,
    })
}

/// What of a model is not computed on its device.
pub struct Companions {
    /// The model's own tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Reads images, if the model can.
    pub vision: Option<Arc<dyn Vision>>,
}

/// Reads what stands beside the model of a GGUF file where another process computes the model: that one calls
/// [`load`], without a projector.
///
/// # Errors
///
/// As [`load`], for what is read here.
pub fn load_companions(path: &Path, options: &LoadOptions) -> Result<Companions, LoadError> {
    let file = Arc::new(GgufFile::open_model(path).map_err(unreadable)?);
    let metadata = file.metadata();
    let architecture = metadata
        .architecture()
        .ok_or_else(|| invalid("general.architecture is missing".into()))?;
    let source = Source::new(file.clone(), architecture);
    let tokenizer = Arc::new(Tokenizer::from_metadata(metadata).map_err(no_tokenizer)?);
    let vision = if encoder::read(architecture, &source)?.is_some() {
        None
    } else {
        let arch = families::read(architecture, &source)?;
        vision(options, &source, &arch, candle::Device::Cpu)?
    };
    Ok(Companions { tokenizer, vision })
}

/// Tells whether the file of a model holds an encoder for images that is known; `false` of one that
/// cannot be read.
pub fn sees(path: &Path) -> bool {
    let Ok(file) = GgufFile::open_model(path) else {
        return false;
    };
    let file = Arc::new(file);
    let Some(architecture) = file.metadata().architecture() else {
        return false;
    };
    let source = Source::new(file.clone(), architecture);
    source.has_key(VISION) && vision::is_within(&source)
}

/// Loads the encoder for images, if the model has one. With one that is not known the model is still
/// good for text.
fn vision(
    options: &LoadOptions,
    source: &Source,
    arch: &ArchConfig,
    device: candle::Device,
) -> Result<Option<Arc<dyn Vision>>, LoadError> {
    let (file, location) = match &options.projector {
        Some(path) => {
            let file = Arc::new(GgufFile::open(path).map_err(unreadable)?);
            (file, vision::Location::Mmproj)
        }
        None if !source.has_key(VISION) => return Ok(None),
        None if vision::is_within(source) => (source.file(), vision::Location::Decoder),
        None => {
            warn!("the model cannot read images here: its encoder is not known");
            return Ok(None);
        }
    };
    let from = (location, source.architecture());
    match vision::load(file, from, arch, device, options.n_threads) {
        Ok(vision) => Ok(Some(vision)),
        Err(LoadError::Unsupported(reason)) => {
            warn!(reason, "the model cannot read images here");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Loads the weights onto the device of `ops`.
fn build<O>(
    source: &Source,
    adapters: &[Adapter],
    arch: ArchConfig,
    n_vocab: usize,
    mut ops: O,
) -> Result<Box<dyn Model>, LoadError>
where
    O: Ops + 'static,
    O::Matrix: Send,
    O::Vector: Send,
{
    let weights = Weights::load(source, adapters, &arch, n_vocab, &mut ops)?;
    let spec = ModelSpec {
        vocab_size: n_vocab,
        block_size: BLOCK_SIZE,
        context_length: arch.context_length,
        kv_block_bytes: ops.kv_block_bytes(),
        state_bytes: ops.state_bytes(),
        weight_bytes: with_adapters(source.tensor_bytes(), adapters)
            .saturating_add(ops.extra_weight_bytes()),
        embedding: Some(embedding(source, &arch, weights.head.as_ref())?),
        place: ops.place(),
    };
    Ok(Box::new(Decoder::new(spec, arch, weights, ops)))
}

/// Returns how a decoder makes a vector of a text: the last token has seen all of it.
fn embedding<O: Ops>(
    source: &Source,
    arch: &ArchConfig,
    head: Option<&Head<O>>,
) -> Result<EmbeddingSpec, LoadError> {
    let bidirectional = arch.bidirectional;
    if source.flag("attention.causal") == Some(false) && !bidirectional {
        return Err(LoadError::Unsupported(
            "a decoder whose tokens see those after them".into(),
        ));
    }
    // Where all tokens have seen all of it, it is their mean.
    let usual = if bidirectional {
        Pooling::Mean
    } else {
        Pooling::Last
    };
    Ok(EmbeddingSpec {
        width: head.map_or(arch.width, |head| head.n_outputs),
        pooling: arch.pooling.unwrap_or(usual),
        bidirectional,
    })
}

fn no_encoders(architecture: &str) -> LoadError {
    LoadError::Gpu(format!(
        "encoders, such as {architecture}, are computed on the CPU alone; {ON_THE_CPU}"
    ))
}

/// What computes.
enum Device {
    /// This program's own kernels on the CPU.
    Cpu,
    /// This program's own kernels on a GPU.
    Gpu,
    /// The portable tensor library, on the CPU.
    Candle,
}

/// Returns the device to compute on.
fn device(name: &str) -> Result<Device, LoadError> {
    match name {
        "auto" | "cpu" => Ok(Device::Cpu),
        "vulkan" => Ok(Device::Gpu),
        "candle" => Ok(Device::Candle),
        other => Err(LoadError::Unsupported(format!(
            "device {other:?} (known: auto, cpu, vulkan, candle)"
        ))),
    }
}

/// Refuses a model with weights for which GPUs have no kernel. Tables whose rows are looked up stay with the host.
fn check_for_gpu(source: &Source) -> Result<(), LoadError> {
    let looked_up = [
        "token_embd.weight",
        "position_embd.weight",
        "per_layer_token_embd.weight",
    ];
    let tied = !source.has("output.weight");
    let file = source.file();
    let mut tensors = file.header().tensors.iter();
    let without = tensors.find(|tensor| {
        let name = tensor.name.as_str();
        let is_table = looked_up.contains(&name) && !(tied && name == "token_embd.weight");
        let is_own = name.starts_with("blk.")
            || name.starts_with("output")
            || name.starts_with("cls.")
            || name.starts_with("dense_")
            || name.starts_with("token_embd");
        is_own && !is_table && tensor.shape.len() > 1 && !llmsrv_gpu::supports(tensor.dtype)
    });
    if let Some(tensor) = without {
        return Err(LoadError::Gpu(format!(
            "tensor {} is of type {}, for which there is no kernel for GPUs; {ON_THE_CPU}",
            tensor.name, tensor.dtype
        )));
    }
    // Those of what experts give are not part of a product.
    let multiplies_products = |tensor: &&TensorInfo| {
        let stem = tensor.name.strip_suffix(".scale");
        let stem = stem.filter(|stem| stem.starts_with("blk.") || *stem == "output");
        let of_experts = |stem: &str| stem.ends_with("_exps") && !stem.ends_with("ffn_down_exps");
        stem.is_some_and(|stem| tensor.n_elements() == 1 || of_experts(stem))
    };
    match file.header().tensors.iter().find(multiplies_products) {
        None => Ok(()),
        Some(tensor) => Err(LoadError::Gpu(format!(
            "tensor {} is a scale, which no kernel for GPUs applies; {ON_THE_CPU}",
            tensor.name
        ))),
    }
}

/// Returns how keys and values are stored. Heads that cannot be cut into whole blocks of a
/// quantised type are stored as f16.
fn kv_type(name: &str, arch: &ArchConfig) -> Result<TensorType, LoadError> {
    let dtype = match name {
        "f32" => TensorType::F32,
        "f16" => TensorType::F16,
        "bf16" => TensorType::BF16,
        "q8_0" => TensorType::Q8_0,
        "q4_0" => TensorType::Q4_0,
        other => {
            return Err(LoadError::Unsupported(format!(
                "KV cache type {other:?} (known: auto, f32, f16, bf16, q8_0, q4_0)"
            )));
        }
    };
    let shapes = arch.kv_shapes();
    let mut heads = shapes.iter().map(|(_, head_dim)| *head_dim);
    let Some(head_dim) = heads.find(|dim| !dim.is_multiple_of(dtype.block_len())) else {
        return Ok(dtype);
    };
    warn!(asked = name, head_dim, "KV cache of f16 instead");
    Ok(TensorType::F16)
}

fn unreadable(error: llmsrv_gguf::Error) -> LoadError {
    match error {
        llmsrv_gguf::Error::Io(error) => LoadError::Io(error),
        error => invalid(error.to_string()),
    }
}

fn no_tokenizer(error: llmsrv_tokenizer::Error) -> LoadError {
    match error {
        llmsrv_tokenizer::Error::UnsupportedModel(_) => LoadError::Unsupported(error.to_string()),
        error => invalid(error.to_string()),
    }
}
