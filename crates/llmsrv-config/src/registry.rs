//! THE table of settings. The structs of [`crate::Config`], documents, `llmsrv config`, the loader and its tests are
//! made from it: a setting is a row here and its use.

use std::{path::PathBuf, time::Duration};

use crate::{
    Address, Ambient, Change, Kind, Redaction, Secret, Section, Setting, Status, Verbosity,
    setting::LARGE, value::Rate, values::Values,
};

impl Setting {
    /// Returns the row of the variable `name` (not of an alias).
    pub fn find(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }
}

/// Makes of the rows of each section the struct that holds their values, and [`SETTINGS`] of all.
///
/// A row is `field: Type = row(variable, kind, default, help)` and what differs from the usual. The field is the key
/// in the settings file, too, and its type one that [`Values::read`] makes of the kind. What follows a `+` is no
/// setting: the loader fills it in.
macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $section:ident $config:ident {
            $($key:ident: $type:ty = row($name:literal, $kind:expr, $default:literal, $help:literal)
                $(.$change:ident($($with:expr)?))*;)*
            $(+ $(#[$extra_about:meta])* $extra:ident: $extra_type:ty;)*
        }
    )*) => {
        /// Every setting.
        pub const SETTINGS: &[Setting] = &[$($(
            Setting {
                name: $name,
                aliases: &[],
                section: Section::$section,
                key: stringify!($key),
                kind: $kind,
                default: $default,
                secrecy: Redaction::Open,
                status: Status::Active,
                change: Change::Restart,
                help: $help,
            }
            $(.$change($($with)?))*,
        )*)*];

        $(
            $(#[$about])*
            #[derive(Clone, Debug)]
            pub struct $config {
                // The help is for terminals: as it stands, not as Markdown.
                $(#[doc = concat!("```text\n", $help, "\n```")] pub $key: $type,)*
                $($(#[$extra_about])* pub $extra: $extra_type,)*
            }

            impl $config {
                pub(crate) fn new(values: &Values<'_>, $($extra: $extra_type),*) -> $config {
                    $config {
                        $($key: values.read($name),)*
                        $($extra,)*
                    }
                }
            }
        )*
    };
}

const COUNT: Kind = Kind::Integer { min: 0, max: LARGE };
const PORT: Kind = Kind::Integer {
    min: 0,
    max: 65_535,
};

settings! {
    /// `[server]`: The model server.
    Server ServerConfig {
        host: Address = row("LLMSRV_HOST", Kind::Address, "127.0.0.1:11434",
            "Address the server listens on and the commands talk to: host, :port, host:port, [v6]:port or a URL")
            .alias(&["OLLAMA_HOST"]);
        models: PathBuf = row("LLMSRV_MODELS", Kind::Path, "{data}/models",
            "Folder of the models; when not set, a store of the existing server is also read")
            .alias(&["OLLAMA_MODELS"]);
        origins: Vec<String> = row("LLMSRV_ORIGINS", Kind::List, "",
            "Origins of web pages that may call the server, besides the local ones; one * in each, * alone allows all")
            .alias(&["OLLAMA_ORIGINS"]).live();
        api_keys: Vec<Secret> = row("LLMSRV_API_KEYS", Kind::List, "",
            "Keys, each with the role admin, of which every request must carry one; see also the keys file")
            .hidden().live();
        keys_file: PathBuf = row("LLMSRV_KEYS_FILE", Kind::Path, "{config}/keys.toml",
            "File of hashed keys that `llmsrv key` writes; once it is there every request needs a key")
            .live();
        allow_remote_management: bool = row("LLMSRV_ALLOW_REMOTE_MANAGEMENT", Kind::Switch, "false",
            "Let other machines change the models while there are no keys")
            .live();
        rate_limit: Option<Rate> = row("LLMSRV_RATE_LIMIT", Kind::Rate, "",
            "Requests of one key, or one address without a key, such as 60/min; more get status 429")
            .live();
        max_connections: usize = row("LLMSRV_MAX_CONNECTIONS", Kind::Integer { min: 1, max: 1_000_000 }, "1024",
            "Connections open at the same time; more wait until one ends");
        tls_cert: Option<PathBuf> = row("LLMSRV_TLS_CERT", Kind::Path, "",
            "Certificate chain in PEM form: serve https; a new one is used as soon as the file changes")
            .live();
        tls_key: Option<PathBuf> = row("LLMSRV_TLS_KEY", Kind::Path, "",
            "Private key of the certificate in PEM form")
            .live();
        registries: Vec<String> = row("LLMSRV_REGISTRIES", Kind::List, "",
            "Hosts that models may be pulled from and pushed to, such as hf.co,*.example.com; none = all");
        mirrors: Vec<String> = row("LLMSRV_MIRRORS", Kind::List, "",
            "Addresses to pull from before the registry itself: HOST=URL between commas")
            .urls();
        registry_key: PathBuf = row("LLMSRV_REGISTRY_KEY", Kind::Path, "{data}/id_ed25519",
            "Key that signs requests to registries, made when needed; ~/.ollama/id_ed25519 is used if it is there");
        hf_token: Option<Secret> = row("LLMSRV_HF_TOKEN", Kind::Text, "",
            "Token for repositories of the Hugging Face hub that are not public")
            .alias(&["HF_TOKEN"]).hidden();
        hf_endpoint: String = row("LLMSRV_HF_ENDPOINT", Kind::Text, "https://huggingface.co",
            "Address of the Hugging Face hub, for names of hf.co")
            .alias(&["HF_ENDPOINT"]).urls();
        default_model: Option<String> = row("LLMSRV_DEFAULT_MODEL", Kind::Text, "",
            "Model that the name `default` stands for; stronger than `llmsrv default`; unset = the built-in one");
        no_embedded: bool = row("LLMSRV_NO_EMBEDDED", Kind::Switch, "false",
            "Do not put the built-in model into the store");
        preload: Vec<String> = row("LLMSRV_PRELOAD", Kind::List, "",
            "Models to load when the server starts; they stay loaded until they are stopped");
        keep_alive: Option<Duration> = row("LLMSRV_KEEP_ALIVE", Kind::Duration, "5m",
            "How long an idle model stays loaded; negative = forever, 0 = unload at once")
            .alias(&["OLLAMA_KEEP_ALIVE"]).live();
        load_timeout: Option<Duration> = row("LLMSRV_LOAD_TIMEOUT", Kind::Duration, "5m",
            "How long loading a model may take; 0 or negative = no limit")
            .alias(&["OLLAMA_LOAD_TIMEOUT"]).live();
        num_parallel: usize = row("LLMSRV_NUM_PARALLEL", Kind::Integer { min: 0, max: 4096 }, "0",
            "Requests one model answers at the same time; 0 = automatic, 4")
            .alias(&["OLLAMA_NUM_PARALLEL"]).live();
        max_loaded_models: usize = row("LLMSRV_MAX_LOADED_MODELS", COUNT, "0",
            "Models loaded at the same time; 0 = automatic")
            .alias(&["OLLAMA_MAX_LOADED_MODELS"]).live();
        max_queue: usize = row("LLMSRV_MAX_QUEUE", COUNT, "512",
            "Requests that may wait; more are refused with status 503")
            .alias(&["OLLAMA_MAX_QUEUE"]).live();
        memory_limit: Option<u64> = row("LLMSRV_MEMORY_LIMIT", Kind::Bytes, "",
            "Memory of all loaded models; unset = nine tenths of what the machine has available");
        context_length: usize = row("LLMSRV_CONTEXT_LENGTH", COUNT, "0",
            "Context in tokens when neither request nor model says; 0 = by memory")
            .alias(&["OLLAMA_CONTEXT_LENGTH"]).live();
        kv_cache_type: String = row("LLMSRV_KV_CACHE_TYPE", Kind::Choice(&["auto", "f32", "f16", "bf16", "q8_0", "q4_0"]), "auto",
            "Number format of the KV cache; auto: bf16 where activations on the CPU have 8 bits, else f16")
            .alias(&["OLLAMA_KV_CACHE_TYPE"]);
        flash_attention: bool = row("LLMSRV_FLASH_ATTENTION", Kind::Switch, "true",
            "Flash attention")
            .alias(&["OLLAMA_FLASH_ATTENTION"]).ignored("there is no other attention");
        speculation: String = row("LLMSRV_SPECULATION", Kind::Choice(&["auto", "off"]), "auto",
            "Speculative decoding by prompt lookup where it is faster; answers stay the same");
        draft_models: Vec<String> = row("LLMSRV_DRAFT_MODEL", Kind::List, "",
            "Draft models for speculative decoding: DRAFT for all with its vocabulary, MODEL=DRAFT for one");
        device: String = row("LLMSRV_DEVICE", Kind::Choice(&["auto", "cpu", "vulkan", "candle"]), "auto",
            "What computes: what `gpu` says, the CPU, a GPU through Vulkan, or the portable tensor library");
        threads: usize = row("LLMSRV_THREADS", Kind::Integer { min: 0, max: 4096 }, "0",
            "Threads for arithmetic; 0 = one for each core");
        cpu_arithmetic: String = row("LLMSRV_CPU_ARITHMETIC", Kind::Choice(&["auto", "fast", "fine", "exact"]), "auto",
            "Activation precision on the CPU: fast int8, fine int16, exact f32 (slow); auto: by size and kind of model");
        gpu: Option<bool> = row("LLMSRV_GPU", Kind::Switch, "",
            "Compute on a GPU through Vulkan (experimental), or never; unset = on GPUs that read faster than the CPU");
        gpu_arithmetic: String = row("LLMSRV_GPU_ARITHMETIC", Kind::Choice(&["auto", "exact", "int8"]), "auto",
            "Activation precision on GPUs: exact f32, or int8 (with integer dot products); auto: int8 where the CPU has it");
        vendor_gpu: Option<bool> = row("LLMSRV_VENDOR_GPU", Kind::Switch, "",
            "Take integrated GPUs and those of Intel, too");
        gpu_allow_software: bool = row("LLMSRV_GPU_ALLOW_SOFTWARE", Kind::Switch, "false",
            "Take drivers that compute on the CPU for GPUs, for tests");
        npu: bool = row("LLMSRV_NPU", Kind::Switch, "false",
            "Compute embeddings and rerankings on an NPU through ONNX Runtime (experimental)");
        npu_allow_software: bool = row("LLMSRV_NPU_ALLOW_SOFTWARE", Kind::Switch, "false",
            "Let ONNX Runtime's CPU stand in for an NPU, for tests");
        gpu_overhead: u64 = row("LLMSRV_GPU_OVERHEAD", Kind::Bytes, "0",
            "Memory of the GPU to leave free")
            .alias(&["OLLAMA_GPU_OVERHEAD"]);
        gpu_memory_limit: Option<u64> = row("LLMSRV_GPU_MEMORY_LIMIT", Kind::Bytes, "",
            "Memory of each GPU that models may take; unset = what is free when the server starts");
        num_gpu: i64 = row("LLMSRV_NUM_GPU", Kind::Integer { min: -1, max: LARGE }, "-1",
            "Layers computed on GPUs, from the end, where the output is the last; -1 = as many as fit");
        num_cpu_moe: usize = row("LLMSRV_NUM_CPU_MOE", COUNT, "0",
            "Layers, from the first on, whose experts stay with the CPU");
        gpu_timeout: Option<Duration> = row("LLMSRV_GPU_TIMEOUT", Kind::Duration, "2m",
            "How long a step on a GPU may take before its worker is killed; 0 or negative = no limit");
        visible_gpus: Option<Vec<String>> = row("LLMSRV_VISIBLE_GPUS", Kind::List, "",
            "GPUs that models may be loaded to, by number in Vulkan's order or UUID, in this order; -1 = none")
            .alias(&["GGML_VK_VISIBLE_DEVICES"]);
        visible_nvidia_gpus: Option<Vec<String>> = row("LLMSRV_VISIBLE_NVIDIA_GPUS", Kind::List, "",
            "Of NVIDIA's GPUs these alone, by number among them or UUID; -1 = none")
            .alias(&["CUDA_VISIBLE_DEVICES"]);
        main_gpu: usize = row("LLMSRV_MAIN_GPU", COUNT, "0",
            "The GPU that is tried first for a model that fits on one");
        sched_spread: bool = row("LLMSRV_SCHED_SPREAD", Kind::Switch, "false",
            "Spread a model over all GPUs, even where one would do")
            .alias(&["OLLAMA_SCHED_SPREAD"]);
        noprune: bool = row("LLMSRV_NOPRUNE", Kind::Switch, "false",
            "Keep files in the store that no model uses")
            .alias(&["OLLAMA_NOPRUNE"]);
        go_template: Option<bool> = row("LLMSRV_GO_TEMPLATE", Kind::Switch, "",
            "Use the Go template (true) or the file's Jinja template (false) of models with both; unset = what can do more")
            .alias(&["OLLAMA_GO_TEMPLATE"]);
        grace: Option<Duration> = row("LLMSRV_GRACE", Kind::Duration, "10s",
            "How long running requests may go on after a signal to stop");
        version_string: Option<String> = row("LLMSRV_VERSION_STRING", Kind::Text, "",
            "What /api/version reports, for clients that insist on a number")
            .live();
        debug: Verbosity = row("LLMSRV_DEBUG", Kind::Verbosity, "0",
            "Log more: 1 = debug, 2 = trace")
            .alias(&["OLLAMA_DEBUG"]).live();
        log: Option<String> = row("LLMSRV_LOG", Kind::Text, "",
            "Log filter such as `info,llmsrv_server=debug`; stronger than the level")
            .live();
        log_format: String = row("LLMSRV_LOG_FORMAT", Kind::Choice(&["text", "json"]), "text",
            "Form of the log lines on stderr");
        request_log: Vec<String> = row("LLMSRV_REQUEST_LOG", Kind::EscapedList, "",
            "Sinks of the call logger, between commas, that get an entry for each request, such as db:requests.db");
        debug_log_requests: bool = row("LLMSRV_DEBUG_LOG_REQUESTS", Kind::Switch, "false",
            "Log the bodies of requests")
            .alias(&["OLLAMA_DEBUG_LOG_REQUESTS"]).live();
        + /// A second store, only read; set when nobody chose `models` and this machine has one.
        models_fallback: Option<PathBuf>;
        + /// Files of the key that signs requests to registries: the first that exists counts, and the first is made when
        /// none does.
        registry_keys: Vec<PathBuf>;
    }

    /// `[client]`: Commands that talk to a server.
    Client ClientConfig {
        api_key: Option<Secret> = row("LLMSRV_API_KEY", Kind::Text, "",
            "Key that the commands send to the server")
            .alias(&["OLLAMA_API_KEY"]).hidden();
        ca_cert: Option<PathBuf> = row("LLMSRV_CA_CERT", Kind::Path, "",
            "CA certificates in PEM form that the commands trust for https servers, instead of those of the system");
        nohistory: bool = row("LLMSRV_NOHISTORY", Kind::Switch, "false",
            "Do not keep a history of what is typed in `llmsrv run`")
            .alias(&["OLLAMA_NOHISTORY"]);
        editor: Option<String> = row("LLMSRV_EDITOR", Kind::Text, "",
            "Command of the editor for `/edit` in `llmsrv run`; unset = $VISUAL, $EDITOR or vi")
            .alias(&["OLLAMA_EDITOR"]);
        config: PathBuf = row("LLMSRV_CONFIG", Kind::Path, "{config}/config.toml",
            "The settings file; /etc/llmsrv/config.toml is read when it does not exist")
            .not_in_files();
    }

    /// `[host]`: Folders and libraries of the machine.
    Host HostConfig {
        state_dir: PathBuf = row("LLMSRV_STATE_DIR", Kind::Path, "{state}",
            "Folder of the history and of logs");
        runtime_dir: PathBuf = row("LLMSRV_RUNTIME_DIR", Kind::Path, "{runtime}",
            "Folder where running servers write themselves down");
        log_file: Option<PathBuf> = row("LLMSRV_LOG_FILE", Kind::Path, "",
            "Log of a server that `llmsrv serve --background` starts; unset = server-PORT.log in the state folder");
        unit_dir: Option<PathBuf> = row("LLMSRV_UNIT_DIR", Kind::Path, "",
            "Folder `llmsrv service install` writes the unit to; when not set, that of the machine or the user");
        onnx_runtime: Option<PathBuf> = row("LLMSRV_ONNX_RUNTIME", Kind::Path, "",
            "Library of ONNX Runtime, for `npu` and `llmsrv testnpu --model`; unset = in the usual folders")
            .alias(&["ORT_DYLIB_PATH"]);
    }

    /// `[logkit]`: The call logger.
    Logkit LogkitConfig {
        level: String = row("LOGKIT_LEVEL", Kind::Choice(&["debug", "info", "warning", "error", "critical"]), "debug",
            "Lowest level that is logged");
        sinks: Vec<String> = row("LOGKIT_SINKS", Kind::EscapedList, "",
            "Where entries go, such as `db:logs.db,csv:logs.csv`")
            .urls();
        env: Option<String> = row("LOGKIT_ENV", Kind::Text, "",
            "Environment tag; unset = detected");
        version: Option<String> = row("LOGKIT_VERSION", Kind::Text, "",
            "Version tag; unset = detected");
        trace_id: Option<String> = row("LOGKIT_TRACE_ID", Kind::Text, "",
            "Trace id of all entries; unset = taken from the environment or generated");
        parent_id: Option<String> = row("LOGKIT_PARENT_ID", Kind::Text, "",
            "Span that this process belongs to; `logkit run` sets it for its command")
            .not_in_files();
        db: PathBuf = row("LOGKIT_DB", Kind::Path, "logkit_logs.db",
            "Database of `logkit run` and `logkit logs`");
        log_dir: PathBuf = row("LOGKIT_LOG_DIR", Kind::Path, ".",
            "Folder of the logging service's data");
        host: String = row("LOGKIT_HOST", Kind::Text, "127.0.0.1",
            "Address of the logging service");
        port: u16 = row("LOGKIT_PORT", PORT, "8080",
            "Port of the logging service");
        grpc_host: String = row("LOGKIT_GRPC_HOST", Kind::Text, "127.0.0.1",
            "Address of the gRPC logging service");
        grpc_port: u16 = row("LOGKIT_GRPC_PORT", PORT, "50051",
            "Port of the gRPC logging service");
        api_key: Option<Secret> = row("LOGKIT_API_KEY", Kind::Text, "",
            "Key that the logging service asks for")
            .hidden();
        webhook_url: Option<Secret> = row("LOGKIT_WEBHOOK_URL", Kind::Text, "",
            "Where errors are announced")
            .urls();
        webhook_format: Option<String> = row("LOGKIT_WEBHOOK_FORMAT", Kind::Choice(&["slack", "discord", "teams", "raw"]), "",
            "Form of the announcements; unset = by the host name");
        metrics_port: Option<u16> = row("LOGKIT_METRICS_PORT", PORT, "",
            "Port of the metrics of the logger; unset = none");
        llm_model: Option<String> = row("LOGKIT_LLM_MODEL", Kind::Text, "",
            "Model that explains logged errors");
        detect_injection: bool = row("LOGKIT_DETECT_INJECTION", Kind::Switch, "false",
            "Look for prompt injection in logged arguments");
        redact: bool = row("LOGKIT_REDACT", Kind::Switch, "true",
            "Blank secrets in logged values");
        queue: usize = row("LOGKIT_QUEUE", Kind::Integer { min: 1, max: LARGE }, "65536",
            "Entries that may wait to be written");
        on_full: Option<String> = row("LOGKIT_ON_FULL", Kind::Choice(&["block", "drop_new", "drop_old"]), "",
            "What happens when the queue is full; unset = callers wait while sinks keep up, then entries are dropped");
        durability: String = row("LOGKIT_DURABILITY", Kind::Choice(&["buffered", "crash", "sync", "full"]), "buffered",
            "When an entry is safe: soon, even if the process is killed, or before the call returns");
        console_time: Vec<String> = row("LOGKIT_CONSOLE_TIME", Kind::List, "",
            "Time on the console: `ms` adds milliseconds, `utc` is not local time");
        env_file: Option<PathBuf> = row("LOGKIT_ENV_FILE", Kind::Path, "",
            "File of NAME=value lines to read, like --env-file")
            .not_in_files();
        + /// What other variables say.
        ambient: Ambient;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        Folders,
        value::{ParseMode, Raw, parse},
    };

    #[test]
    fn names_and_keys_are_unique_and_well_formed() {
        let mut names = HashSet::new();
        let mut keys = HashSet::new();
        for setting in SETTINGS {
            let prefix = if setting.section == Section::Logkit {
                "LOGKIT_"
            } else {
                "LLMSRV_"
            };
            assert!(setting.name.starts_with(prefix), "{}", setting.name);
            for name in setting.variables() {
                assert!(names.insert(name), "{name} twice");
            }
            if let Some(path) = setting.path() {
                assert!(keys.insert(path.clone()), "{path} twice");
            }
            assert!(
                !setting.help.is_empty() && !setting.help.ends_with('.'),
                "{}",
                setting.name
            );
            assert!(setting.help.len() <= 110, "{}: one line", setting.name);
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for setting in SETTINGS {
            let default = Raw::Text(setting.default.into());
            let (value, remark) =
                parse(setting.kind, &default, ParseMode::Strict, &Folders::none())
                    .expect(setting.name);
            assert_eq!(remark, None);
            assert_eq!(
                value == crate::Value::Unset,
                setting.default.is_empty(),
                "{}",
                setting.name
            );
        }
    }
}
