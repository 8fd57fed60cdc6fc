//! The model server's settings.

use std::{path::PathBuf, time::Duration};

use crate::{
    Address, Folders, Origin, Rate, Secret,
    values::{Limit, Values},
};

/// `[server]`
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where the server listens and the commands call.
    pub host: Address,
    /// Folder of the models.
    pub models: PathBuf,
    /// A second store, only read; set when nobody chose `models` and this machine has one.
    pub models_fallback: Option<PathBuf>,
    /// Origins of web pages allowed besides the built-in list.
    pub origins: Vec<String>,
    /// Keys of which every request must carry one, each with all rights.
    pub api_keys: Vec<Secret>,
    /// File of hashed keys; when it is there, every request needs a key.
    pub keys_file: PathBuf,
    /// Other machines may change the models while there are no keys.
    pub allow_remote_management: bool,
    /// Requests of one client; `None` = no limit.
    pub rate_limit: Option<Rate>,
    /// Connections open at the same time.
    pub max_connections: usize,
    /// Certificate chain in PEM form.
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM form.
    pub tls_key: Option<PathBuf>,
    /// Hosts that may be pulled from and pushed to; empty = all.
    pub registries: Vec<String>,
    /// `HOST=URL`: addresses to pull from first.
    pub mirrors: Vec<String>,
    /// Files of the key that signs requests to registries: the first that exists counts, and the
    /// first is made when none does.
    pub registry_keys: Vec<PathBuf>,
    /// Token of the Hugging Face hub.
    pub hf_token: Option<Secret>,
    /// Base address of the Hugging Face hub.
    pub hf_endpoint: String,
    /// Model that the name `default` stands for; `None` = the store decides.
    pub default_model: Option<String>,
    /// The built-in model is not put into the store.
    pub no_embedded: bool,
    /// Models to load at the start.
    pub preload: Vec<String>,
    /// How long an idle model stays loaded; `None` = forever.
    pub keep_alive: Option<Duration>,
    /// How long loading may take; `None` = no limit.
    pub load_timeout: Option<Duration>,
    /// Requests one model answers at the same time; 0 = automatic.
    pub num_parallel: usize,
    /// Models loaded at the same time; 0 = automatic.
    pub max_loaded_models: usize,
    /// Requests that may wait.
    pub max_queue: usize,
    /// Bytes that all loaded models may take; `None` = a share of what the machine has.
    pub memory_limit: Option<u64>,
    /// Context in tokens when nobody says; 0 = by memory.
    pub context_length: usize,
    /// `auto`, `f32`, `f16`, `bf16`, `q8_0` or `q4_0`.
    pub kv_cache_type: String,
    /// Speculative decoding: `auto` or `off`.
    pub speculation: String,
    /// Draft models: `DRAFT` or `MODEL=DRAFT`.
    pub draft_models: Vec<String>,
    /// `auto`, `cpu`, `vulkan` or `candle`; a GPU that is switched on or off makes `auto` Vulkan or the CPU.
    pub device: String,
    /// Threads for arithmetic; 0 = one for each core.
    pub threads: usize,
    /// `auto`, `fast`, `fine` or `exact`: precision of activations on the CPU.
    pub cpu_arithmetic: String,
    /// Take integrated GPUs and those of Intel, too; `None` = nobody said.
    pub vendor_gpu: Option<bool>,
    /// Take drivers that compute on the CPU for GPUs.
    pub gpu_allow_software: bool,
    /// Compute encoders on an NPU.
    pub npu: bool,
    /// Take ONNX Runtime's CPU for an NPU.
    pub npu_allow_software: bool,
    /// Bytes of the GPU to leave free.
    pub gpu_overhead: u64,
    /// Bytes of each GPU that models may take; `None` = what is free.
    pub gpu_memory_limit: Option<u64>,
    /// Layers computed on GPUs, from the end; negative = as many as fit.
    pub num_gpu: i64,
    /// Layers, from the first on, whose experts stay with the CPU.
    pub num_cpu_moe: usize,
    /// GPUs that models may be loaded to; `None` = all.
    pub visible_gpus: Option<Vec<String>>,
    /// Those of NVIDIA's; `None` = all.
    pub visible_nvidia_gpus: Option<Vec<String>>,
    /// The GPU that is tried first.
    pub main_gpu: usize,
    /// Spread a model over all GPUs.
    pub sched_spread: bool,
    /// How long a GPU may take for one step; `None` = for ever.
    pub gpu_timeout: Option<Duration>,
    /// Keep files in the store that no model uses.
    pub no_prune: bool,
    /// How long running requests may go on after a signal; `None` = until they end.
    pub grace: Option<Duration>,
    /// What `/api/version` reports; `None` = the built-in text.
    pub version_string: Option<String>,
    /// How much is logged when there is no filter.
    pub verbosity: Verbosity,
    /// Log filter.
    pub log: Option<String>,
    /// Log lines are JSON objects.
    pub log_json: bool,
    /// Specifications of sinks that get an entry for each request.
    pub request_log: Vec<String>,
    /// Log the bodies of requests.
    pub log_requests: bool,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// What operators need.
    Info,
    /// One line for each request.
    Debug,
    /// Everything.
    Trace,
}

impl ServerConfig {
    pub(crate) fn new(values: &Values<'_>, folders: &Folders) -> ServerConfig {
        let chosen = |name: &str| {
            let mut rows = values.0.iter();
            rows.any(|row| row.setting.name == name && row.origin != Origin::Default)
        };
        let models_chosen = chosen("LLMSRV_MODELS");
        let mut registry_keys = vec![values.read("LLMSRV_REGISTRY_KEY")];
        if let Some(home) = folders
            .home
            .as_ref()
            .filter(|_| !chosen("LLMSRV_REGISTRY_KEY"))
        {
            registry_keys.push(home.join(".ollama/id_ed25519"));
        }
        let device: String = values.read("LLMSRV_DEVICE");
        let gpu: Option<bool> = values.read("LLMSRV_GPU");
        let positive = |limit: Limit| limit.0.filter(|duration| !duration.is_zero());
        ServerConfig {
            host: values.read("LLMSRV_HOST"),
            models: values.read("LLMSRV_MODELS"),
            models_fallback: if models_chosen {
                None
            } else {
                folders.existing_store.clone()
            },
            origins: values.read("LLMSRV_ORIGINS"),
            api_keys: values
                .read::<Vec<String>>("LLMSRV_API_KEYS")
                .into_iter()
                .map(Secret::new)
                .collect(),
            keys_file: values.read("LLMSRV_KEYS_FILE"),
            allow_remote_management: values.read("LLMSRV_ALLOW_REMOTE_MANAGEMENT"),
            rate_limit: values.read("LLMSRV_RATE_LIMIT"),
            max_connections: values.read("LLMSRV_MAX_CONNECTIONS"),
            tls_cert: values.read("LLMSRV_TLS_CERT"),
            tls_key: values.read("LLMSRV_TLS_KEY"),
            registries: values.read("LLMSRV_REGISTRIES"),
            mirrors: values.read("LLMSRV_MIRRORS"),
            registry_keys,
            hf_token: values
                .read::<Option<String>>("LLMSRV_HF_TOKEN")
                .map(Secret::new),
            hf_endpoint: values.read("LLMSRV_HF_ENDPOINT"),
            default_model: values.read("LLMSRV_DEFAULT_MODEL"),
            no_embedded: values.read("LLMSRV_NO_EMBEDDED"),
            preload: values.read("LLMSRV_PRELOAD"),
            keep_alive: values.read::<Limit>("LLMSRV_KEEP_ALIVE").0,
            load_timeout: positive(values.read("LLMSRV_LOAD_TIMEOUT")),
            num_parallel: values.read("LLMSRV_NUM_PARALLEL"),
            max_loaded_models: values.read("LLMSRV_MAX_LOADED_MODELS"),
            max_queue: values.read("LLMSRV_MAX_QUEUE"),
            memory_limit: values.read("LLMSRV_MEMORY_LIMIT"),
            context_length: values.read("LLMSRV_CONTEXT_LENGTH"),
            kv_cache_type: values.read("LLMSRV_KV_CACHE_TYPE"),
            speculation: values.read("LLMSRV_SPECULATION"),
            draft_models: values.read("LLMSRV_DRAFT_MODEL"),
            device: match (device.as_str(), gpu) {
                ("auto", Some(true)) => "vulkan".to_owned(),
                ("auto", Some(false)) => "cpu".to_owned(),
                _ => device,
            },
            threads: values.read("LLMSRV_THREADS"),
            cpu_arithmetic: values.read("LLMSRV_CPU_ARITHMETIC"),
            vendor_gpu: values.read("LLMSRV_VENDOR_GPU"),
            gpu_allow_software: values.read("LLMSRV_GPU_ALLOW_SOFTWARE"),
            npu: values.read("LLMSRV_NPU"),
            npu_allow_software: values.read("LLMSRV_NPU_ALLOW_SOFTWARE"),
            gpu_overhead: values.read("LLMSRV_GPU_OVERHEAD"),
            gpu_memory_limit: values.read("LLMSRV_GPU_MEMORY_LIMIT"),
            num_gpu: values.read("LLMSRV_NUM_GPU"),
            num_cpu_moe: values.read("LLMSRV_NUM_CPU_MOE"),
            visible_gpus: values.read("LLMSRV_VISIBLE_GPUS"),
            visible_nvidia_gpus: values.read("LLMSRV_VISIBLE_NVIDIA_GPUS"),
            main_gpu: values.read("LLMSRV_MAIN_GPU"),
            sched_spread: values.read("LLMSRV_SCHED_SPREAD"),
            gpu_timeout: positive(values.read("LLMSRV_GPU_TIMEOUT")),
            no_prune: values.read("LLMSRV_NOPRUNE"),
            grace: values.read::<Limit>("LLMSRV_GRACE").0,
            version_string: values.read("LLMSRV_VERSION_STRING"),
            verbosity: match values.read::<u8>("LLMSRV_DEBUG") {
                0 => Verbosity::Info,
                1 => Verbosity::Debug,
                _ => Verbosity::Trace,
            },
            log: values.read("LLMSRV_LOG"),
            log_json: values.read::<String>("LLMSRV_LOG_FORMAT") == "json",
            request_log: values.read("LLMSRV_REQUEST_LOG"),
            log_requests: values.read("LLMSRV_DEBUG_LOG_REQUESTS"),
        }
    }
}
