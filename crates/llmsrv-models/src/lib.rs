//! Weights and forward passes of the supported model families.
//!
//! [`load`] turns a GGUF file into a [`Model`] for the engine. Read in this
//! order: `arch` (what distinguishes decoders, as data), `families` (metadata to that data),
//! `source` and `weights` (checked access to tensors), `decoder` (the one forward pass), `ops`
//! (what it runs on), `placement` (which part of it lies on a GPU), `model` (the engine's view). `encoder` has the same parts for models that make
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
mod loader;
mod model;
mod npu;
mod observer;
mod ops;
mod parts;
mod placement;
mod rope;
mod routing;
mod source;
mod vision;
mod weights;

use std::{path::Path, sync::Arc};

use llmsrv_engine::{
    ActivationPrecision, EmbeddingSpec, GpuArithmetic, LoadError, LoadOptions, Loaded, Model,
    ModelSpec, NpuOptions, PlacedBytes, Plan, Pooling, Vision,
};
use llmsrv_gguf::{GgufFile, ModelFacts, TensorType};
use llmsrv_gpu::{Arithmetic, Gpu};
use llmsrv_tokenizer::{Tokenizer, Vocab};
use tracing::{info, warn};

use crate::{
    adapter::{Adapter, with_adapters},
    arch::{ArchConfig, BLOCK_SIZE, Classifier},
    encoder::Encoder,
    head::Head,
    model::Decoder,
    npu::NpuModel,
    ops::{Ops, candle::CandleOps, cpu::CpuOps, gpu::GpuOps, onnx::OnnxOps, split::SplitOps},
    parts::{At, Part},
    placement::{Config, Measured, kv_type_on_gpu, share_out},
    source::{Source, invalid},
    weights::Weights,
};
pub use crate::{
    families::{architectures, encoders, not_yet, refusal},
    observer::{InputSum, InputSums},
    ops::gpu::{best_gpu, gpu_choice, usable_gpus},
};

/// Bytes of weights up to which a model computes with activations of 16 bits unless told otherwise: it
/// is fast anyway, and small models feel rounding most.
const FEW_WEIGHTS: u64 = 64 << 20;

/// Tokens whose keys and values find room on a GPU beside the layers that are put there, where nobody says how many.
const USUAL_CONTEXT: usize = 4096;

/// Bytes that kernels of usual GPUs read of one buffer.
const USUAL_BINDING: u64 = 1 << 30;

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
    load_file(file, options, None).map_err(LoadError::bounded)
}

/// As [`load`], with sums of the squares of what the matrices of its layers are multiplied with; with `output` those of
/// the logits, too. It computes on the CPU.
///
/// # Errors
///
/// As [`load`]; [`LoadError::Unsupported`] for an encoder.
pub fn load_observed(
    path: &Path,
    options: &LoadOptions,
    output: bool,
) -> Result<(Loaded, Arc<InputSums>), LoadError> {
    let file = Arc::new(GgufFile::open_model(path).map_err(unreadable)?);
    let sums = Arc::new(InputSums::new(file.clone(), output));
    let options = LoadOptions {
        device: "cpu".into(),
        ..options.clone()
    };
    let loaded = load_file(file, &options, Some(&sums)).map_err(LoadError::bounded)?;
    Ok((loaded, sums))
}

fn load_file(
    file: Arc<GgufFile>,
    options: &LoadOptions,
    sums: Option<&Arc<InputSums>>,
) -> Result<Loaded, LoadError> {
    let metadata = file.metadata();
    let (architecture, source) = source(&file)?;
    let adapters = adapters(options, architecture)?;
    if let Some(config) = encoder::read(architecture, &source)? {
        if sums.is_some() {
            let message = format!("{architecture} is an encoder; only decoders are observed");
            return Err(LoadError::Unsupported(message));
        }
        let tokenizer = Tokenizer::from_metadata(metadata).map_err(no_tokenizer)?;
        let model: Box<dyn Model> = match device(options)? {
            Device::Gpu => {
                let ops = split(
                    (&source, &adapters),
                    (Config::Encoder(&config), tokenizer.vocab_size()),
                    options,
                    (TensorType::F16, of_encoder(options, &source)),
                )?;
                Box::new(Encoder::load(&source, &adapters, config, &tokenizer, ops)?)
            }
            Device::Cpu => {
                let precision = of_encoder(options, &source);
                let ops = CpuOps::without_cache(options.n_threads, precision)
                    .map_err(|error| LoadError::Unsupported(error.to_string()))?;
                Box::new(Encoder::load(&source, &adapters, config, &tokenizer, ops)?)
            }
            Device::Candle => {
                let ops = CandleOps::without_cache();
                Box::new(Encoder::load(&source, &adapters, config, &tokenizer, ops)?)
            }
            Device::Npu(npu) => {
                if config.experts.is_some() {
                    return Err(not_on_an_npu("models with experts"));
                }
                let ops = OnnxOps::new(npu, options.n_threads, config.context_length)?;
                let model = Encoder::load(&source, &adapters, config, &tokenizer, ops)?;
                Box::new(NpuModel::new(Box::new(model), &file, options)?)
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
    let vocab = Vocab::from_metadata(metadata).map_err(no_tokenizer)?;
    let n_vocab = n_logits(vocab.tokens.len(), &arch);
    let vision = vision(options, &source, &arch)?;
    // A vocabulary takes one thread a tenth of the time that small models take in all.
    let (tokenizer, model) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tokenizer".into());
        let tokenizer = thread.spawn_scoped(scope, || Tokenizer::new(vocab))?;
        let model = decoder(&source, &adapters, arch, n_vocab, options, sums);
        let tokenizer = tokenizer.join();
        let tokenizer = tokenizer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, LoadError>((tokenizer.map_err(no_tokenizer)?, model?))
    })?;
    Ok(Loaded {
        model,
        draft: None,
        tokenizer: Arc::new(tokenizer),
        vision,
    })
}

/// Loads a model that writes text, or makes vectors of it with the same layers.
fn decoder(
    source: &Source,
    adapters: &[Adapter],
    arch: ArchConfig,
    n_vocab: usize,
    options: &LoadOptions,
    sums: Option<&Arc<InputSums>>,
) -> Result<Box<dyn Model>, LoadError> {
    let chosen = device(options)?;
    let (activation_precision, kv_type) = arithmetic(options, source, &arch)?;
    match chosen {
        Device::Cpu => {
            let (shapes, n_threads) = (arch.kv_shapes(), options.n_threads);
            let kv = (&shapes[..], kv_type);
            let states = arch.state_ranges();
            let mut ops = CpuOps::new(kv, states, n_threads, activation_precision)
                .map_err(|error| LoadError::Unsupported(error.to_string()))?;
            if let Some(sums) = sums {
                ops.observe(sums.clone());
            }
            build(source, adapters, arch, n_vocab, ops)
        }
        Device::Gpu => {
            if !matches!(options.kv_cache_type.as_str(), "auto" | "f16" | "q8_0") {
                warn!(
                    asked = options.kv_cache_type,
                    "KV cache of f16 on the GPU, which has f16 and q8_0"
                );
            }
            let ops = split(
                (source, adapters),
                (Config::Decoder(&arch), n_vocab),
                options,
                (kv_type, activation_precision),
            )?;
            build(source, adapters, arch, n_vocab, ops)
        }
        Device::Candle => {
            // Candle has no arithmetic on quantised activations.
            let kv_type = match kv_type {
                kept @ (TensorType::F32 | TensorType::BF16) => kept,
                _ => TensorType::F16,
            };
            let ops = CandleOps::new(&arch, kv_type);
            build(source, adapters, arch, n_vocab, ops)
        }
        Device::Npu(npu) => {
            if !arch.bidirectional {
                return Err(not_on_an_npu("models that write text"));
            }
            if arch.classifier == Some(Classifier::Mean) {
                return Err(not_on_an_npu("models that classify whole texts"));
            }
            let ops = OnnxOps::new(npu, options.n_threads, arch.context_length)?;
            let model = build(source, adapters, arch, n_vocab, ops)?;
            let file = source.file();
            Ok(Box::new(NpuModel::new(model, &file, options)?))
        }
    }
}

/// Returns the architecture that a file says it has, and the file as such models are read.
fn source(file: &Arc<GgufFile>) -> Result<(&str, Source), LoadError> {
    let architecture = file.metadata().architecture();
    let architecture =
        architecture.ok_or_else(|| invalid("general.architecture is missing".into()))?;
    Ok((architecture, Source::new(file.clone(), architecture)))
}

fn adapters(options: &LoadOptions, architecture: &str) -> Result<Vec<Adapter>, LoadError> {
    let adapters = options.adapters.iter();
    adapters
        .map(|adapter| Adapter::open(&adapter.path, adapter.scale, architecture))
        .collect()
}

/// Says what of the model of a file lies on GPUs with so many free bytes, and what it takes there and in the memory of
/// the machine. `n_tokens` are those whose keys and values are to fit, of as many as the model was trained for. No driver
/// is touched, and nothing stays loaded.
///
/// # Errors
///
/// As [`load`], for what is read here; [`LoadError::Gpu`] if GPUs compute no layer of it, or not even its output fits.
pub fn plan(
    path: &Path,
    options: &LoadOptions,
    free_bytes: &[u64],
    n_tokens: &dyn Fn(usize) -> usize,
) -> Result<Plan, LoadError> {
    let file = Arc::new(GgufFile::open_model(path).map_err(unreadable)?);
    plan_file(file, options, free_bytes, n_tokens).map_err(LoadError::bounded)
}

fn plan_file(
    file: Arc<GgufFile>,
    options: &LoadOptions,
    free_bytes: &[u64],
    n_tokens: &dyn Fn(usize) -> usize,
) -> Result<Plan, LoadError> {
    let metadata = file.metadata();
    let (architecture, source) = source(&file)?;
    let adapters = adapters(options, architecture)?;
    if options.npu.is_some() && encoders().any(|known| known == architecture) {
        // The NPU has it, or else the CPU; both compute in the memory of the machine.
        return Ok(Plan {
            weights: PlacedBytes::host(with_adapters(source.tensor_bytes(), &adapters)),
            block_size: BLOCK_SIZE,
            context_length: source.count("context_length")?,
            ..Plan::default()
        });
    }
    let measure = |(config, n_vocab): (Config<'_>, usize), kv_type| {
        let files = (&source, &adapters[..]);
        let n_tokens = n_tokens(config.context_length());
        let measured = Measured::new(files, (config, n_vocab), kv_type, USUAL_BINDING, n_tokens)?;
        share_out(&measured, &options.offload, free_bytes, n_tokens)
    };
    if let Some(config) = encoder::read(architecture, &source)? {
        let n_vocab = Tokenizer::from_metadata(metadata)
            .map_err(no_tokenizer)?
            .vocab_size();
        return measure((Config::Encoder(&config), n_vocab), TensorType::F16);
    }
    let arch = families::read(architecture, &source)?;
    let vocab = Vocab::from_metadata(metadata).map_err(no_tokenizer)?;
    let n_vocab = n_logits(vocab.tokens.len(), &arch);
    let (_, kv_type) = arithmetic(options, &source, &arch)?;
    measure((Config::Decoder(&arch), n_vocab), kv_type)
}

/// Returns how a GPU multiplies the weights of a model: what [`GpuArithmetic::Auto`] means for it.
///
/// # Errors
///
/// As [`load`], for what is read of the file.
pub fn gpu_arithmetic(path: &Path, options: &LoadOptions) -> Result<GpuArithmetic, LoadError> {
    let file = Arc::new(GgufFile::open_model(path).map_err(unreadable)?);
    let (architecture, source) = source(&file)?;
    let (precision, bidirectional) = if encoder::read(architecture, &source)?.is_some() {
        (of_encoder(options, &source), true)
    } else {
        let arch = families::read(architecture, &source)?;
        (arithmetic(options, &source, &arch)?.0, arch.bidirectional)
    };
    Ok(settled(options.gpu.arithmetic, precision, bidirectional))
}

fn settled(
    asked: GpuArithmetic,
    precision: ActivationPrecision,
    bidirectional: bool,
) -> GpuArithmetic {
    match (asked, precision) {
        // Of encoders nobody measured it.
        (GpuArithmetic::Auto, ActivationPrecision::Int8) if !bidirectional => GpuArithmetic::Int8,
        (GpuArithmetic::Auto, _) => GpuArithmetic::Exact,
        (chosen, _) => chosen,
    }
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
    companions(file, options).map_err(LoadError::bounded)
}

fn companions(file: Arc<GgufFile>, options: &LoadOptions) -> Result<Companions, LoadError> {
    let metadata = file.metadata();
    let (architecture, source) = source(&file)?;
    let tokenizer = Arc::new(Tokenizer::from_metadata(metadata).map_err(no_tokenizer)?);
    let vision = if encoder::read(architecture, &source)?.is_some() {
        None
    } else {
        let arch = families::read(architecture, &source)?;
        vision(options, &source, &arch)?
    };
    Ok(Companions { tokenizer, vision })
}

/// Tells whether the model of a file makes vectors of texts and nothing else; `false` of one that cannot be read.
pub fn is_encoder(path: &Path) -> bool {
    let Ok(file) = GgufFile::open_model(path) else {
        return false;
    };
    let architecture = file.metadata().architecture();
    architecture.is_some_and(|architecture| encoders().any(|known| known == architecture))
}

/// Reads what is known of the model of a GGUF file without loading it: what its header says, and what of it this loader
/// can compute.
///
/// # Errors
///
/// As [`GgufFile::open`]. A sound file of an unknown architecture is no error: then only the header speaks.
pub fn facts(path: &Path) -> Result<ModelFacts, llmsrv_gguf::Error> {
    let file = GgufFile::open(path)?;
    let mut facts = ModelFacts::of(file.header());
    let file = Arc::new(file.translated());
    if let Ok((architecture, source)) = source(&file) {
        facts.pools |= encoders().any(|known| known == architecture);
        facts.sees = source.has_key(VISION) && vision::is_within(&source);
        if let Ok(arch) = families::read(architecture, &source) {
            facts.kv_heads = arch.kv_shapes();
        }
    }
    Ok(facts)
}

/// Loads the encoder for images, if the model has one, for the CPU. With one that is not known the model is
/// still good for text.
fn vision(
    options: &LoadOptions,
    source: &Source,
    arch: &ArchConfig,
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
    let loaded = match device(options)? {
        Device::Candle => {
            let ops = CandleOps::without_cache();
            vision::load(file, from, arch, ops)
        }
        Device::Cpu | Device::Gpu | Device::Npu(_) => {
            let ops = CpuOps::for_images(options.n_threads, options.activation_precision)
                .map_err(|error| LoadError::Unsupported(error.to_string()))?;
            vision::load(file, from, arch, ops)
        }
    };
    match loaded {
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
    let gpus = ops.gpus();
    let spec = ModelSpec {
        vocab_size: n_vocab,
        block_size: BLOCK_SIZE,
        context_length: arch.context_length,
        kv_block_bytes: ops.kv_block_bytes(),
        state_bytes: ops.state_bytes(),
        weight_bytes: with_adapters(source.tensor_bytes(), adapters)
            .saturating_add(ops.extra_weight_bytes())
            .saturating_sub(ops.moved_bytes())
            .saturating_add(gpus.iter().map(|gpu| gpu.weight_bytes).sum()),
        embedding: Some(embedding(&arch, weights.head.as_ref())),
        n_layers: arch.layers.len() + 1,
        gpus,
        npu: false,
    };
    Ok(Box::new(Decoder::new(spec, arch, weights, ops)))
}

/// Returns the number of logits in a row.
fn n_logits(n_tokens: usize, arch: &ArchConfig) -> usize {
    n_tokens.saturating_sub(arch.n_unwritten)
}

/// Returns how the CPU multiplies the weights of a model, and stores keys and values.
fn arithmetic(
    options: &LoadOptions,
    source: &Source,
    arch: &ArchConfig,
) -> Result<(ActivationPrecision, TensorType), LoadError> {
    let activation_precision = match options.activation_precision {
        _ if arch.bidirectional => of_encoder(options, source),
        ActivationPrecision::Auto if source.tensor_bytes() <= FEW_WEIGHTS => {
            ActivationPrecision::Int16
        }
        ActivationPrecision::Auto => ActivationPrecision::Int8,
        chosen => chosen,
    };
    let kv_type = match options.kv_cache_type.as_str() {
        // Rounding keys and values to 8 digits costs less than the activations of 8 bits around them.
        "auto"
            if activation_precision == ActivationPrecision::Int8 && options.device != "candle" =>
        {
            TensorType::BF16
        }
        "auto" => TensorType::F16,
        name => kv_type(name, arch)?,
    };
    Ok((activation_precision, kv_type))
}

/// Returns how the CPU multiplies the weights of an encoder.
///
/// Vectors are compared with those of other engines and days, so weights of a floating point are not met by less than 16
/// bits. Where weights were rounded, rounding activations to bytes moves vectors about as far as that did, or less: their
/// cosine to those of F32 is 0.9997 instead of 0.9999 with all-MiniLM-L6-v2 in Q8_0, and 0.9651 both ways in Q4_0.
fn of_encoder(options: &LoadOptions, source: &Source) -> ActivationPrecision {
    match options.activation_precision {
        ActivationPrecision::Auto if source.is_quantized() => ActivationPrecision::Int8,
        ActivationPrecision::Auto => ActivationPrecision::Int16,
        chosen => chosen,
    }
}

/// Opens the GPUs and shares the layers of a model out to them and to the CPU.
fn split(
    (source, adapters): (&Source, &[Adapter]),
    (config, n_vocab): (Config<'_>, usize),
    options: &LoadOptions,
    (kv_type, precision): (TensorType, ActivationPrecision),
) -> Result<SplitOps, LoadError> {
    let mut gpus = ops::gpu::open(&options.gpu)?;
    let bidirectional = config.is_bidirectional();
    if settled(options.gpu.arithmetic, precision, bidirectional) == GpuArithmetic::Exact {
        for gpu in &mut gpus {
            gpu.set_arithmetic(Arithmetic::F32);
        }
    }
    let free: Vec<u64> = gpus.iter().map(Gpu::free_bytes).collect();
    let max_binding = gpus.iter().map(Gpu::max_binding).min().unwrap_or(u64::MAX);
    let n_tokens = config.context_length().min(USUAL_CONTEXT);
    let (files, model) = ((source, adapters), (config, n_vocab));
    let measured = Measured::new(files, model, kv_type, max_binding, n_tokens)?;
    let plan = share_out(&measured, &options.offload, &free, n_tokens)?;
    for (gpu, free) in plan.weights.gpus().iter().zip(&free) {
        if gpu > free {
            return Err(placement::too_little(*gpu, *free));
        }
    }
    let placement = measured.placement(&plan.split, options.offload.n_cpu_moe);
    // Where the layers were shared out before, who did so knows why.
    if options.offload.split.is_none() {
        for reason in &plan.on_cpu {
            info!(reason, "on the CPU");
        }
    }
    info!(
        arithmetic = gpus.first().map(|gpu| ops::gpu::name_of(gpu.arithmetic())),
        "offloaded {}/{} layers to GPU",
        plan.gpu_layers.iter().sum::<usize>(),
        plan.n_layers
    );
    let shapes = |at: At| measured.kv_shapes(&placement, at);
    let n_threads = if placement.uses_host() {
        options.n_threads
    } else {
        1
    };
    let cpu = match config {
        Config::Decoder(arch) => {
            let states = arch.state_ranges_of(|idx| placement.of(Part::Layer(idx)) == At::Host);
            CpuOps::new((&shapes(At::Host), kv_type), states, n_threads, precision)
        }
        Config::Encoder(_) => CpuOps::without_cache(n_threads, precision),
    };
    let cpu = cpu.map_err(|error| LoadError::Unsupported(error.to_string()))?;
    let on_gpu = kv_type_on_gpu(kv_type);
    // What computes nothing is closed again.
    let gpus = gpus.into_iter().enumerate().map(|(idx, gpu)| {
        let is_used = plan.split.get(idx).is_some_and(|n| *n > 0);
        let pieces = measured.sizes().pieces(&placement, idx);
        is_used
            .then(|| {
                let kv = (&shapes(At::Gpu(idx))[..], on_gpu);
                let states = measured.state_lens(&placement, At::Gpu(idx));
                GpuOps::new(gpu, kv, &states, pieces)
            })
            .transpose()
    });
    let gpus = gpus.collect::<Result<Vec<_>, _>>()?;
    let kv = measured.kv_places(&placement);
    Ok(SplitOps::new(cpu, gpus, placement, &kv, &plan.gpu_layers))
}

/// Returns how a decoder makes a vector of a text: the last token has seen all of it.
fn embedding<O: Ops>(arch: &ArchConfig, head: Option<&Head<O>>) -> EmbeddingSpec {
    let bidirectional = arch.bidirectional;
    // Where all tokens have seen all of it, it is their mean.
    let usual = if bidirectional {
        Pooling::Mean
    } else {
        Pooling::Last
    };
    EmbeddingSpec {
        width: head.map_or(arch.width, |head| head.n_outputs),
        pooling: arch.pooling.unwrap_or(usual),
        bidirectional,
    }
}

fn not_on_an_npu(what: &str) -> LoadError {
    LoadError::Unsupported(format!("{what} are not computed on an NPU"))
}

/// What computes.
enum Device<'a> {
    /// This program's own kernels on the CPU.
    Cpu,
    /// This program's own kernels on a GPU.
    Gpu,
    /// The portable tensor library, on the CPU.
    Candle,
    /// ONNX Runtime, on an NPU.
    Npu(&'a NpuOptions),
}

/// Returns the device to compute on.
fn device(options: &LoadOptions) -> Result<Device<'_>, LoadError> {
    match (options.device.as_str(), &options.npu) {
        ("auto" | "cpu", _) => Ok(Device::Cpu),
        ("vulkan", _) if options.offload.is_nothing() => Ok(Device::Cpu),
        ("vulkan", _) => Ok(Device::Gpu),
        ("candle", _) => Ok(Device::Candle),
        ("npu", Some(npu)) => Ok(Device::Npu(npu)),
        (other, _) => Err(LoadError::Unsupported(format!(
            "device {other:?} (known: auto, cpu, vulkan, candle)"
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
        error => invalid(error.to_string()).bounded(),
    }
}

fn no_tokenizer(error: llmsrv_tokenizer::Error) -> LoadError {
    match error {
        llmsrv_tokenizer::Error::UnsupportedModel(_) => LoadError::Unsupported(error.to_string()),
        error => invalid(error.to_string()),
    }
}
