//! THE table of settings. Documents, `llmsrv config`, the loader and its tests are made from it.
//!
//! A setting is a row here, a field of the struct that reads it, and its use. One of the server is handed on
//! to `llmsrv_server::Settings` as well: CONTRIBUTING.md, "A setting", shows each place.

/// A table of the settings file, and a struct of [`crate::Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[server]`
    Server,
    /// `[client]`
    Client,
    /// `[host]`
    Host,
    /// `[logkit]`
    Logkit,
}

impl Section {
    /// All sections in the order of the documents.
    pub const ALL: [Section; 4] = [
        Section::Server,
        Section::Client,
        Section::Host,
        Section::Logkit,
    ];

    /// Returns the name of the section in the settings file.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Server => "server",
            Section::Client => "client",
            Section::Host => "host",
            Section::Logkit => "logkit",
        }
    }
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On or off.
    Switch,
    /// 0, 1 (debug) or 2 (trace); words for on and off count too.
    Verbosity,
    /// A whole number between two others.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A time such as `5m`; bare numbers are seconds, negative ones mean forever.
    Duration,
    /// A size such as `8GiB`.
    Bytes,
    /// So many in a time, such as `60/min`.
    Rate,
    /// Where a server listens.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Texts between commas.
    List,
    /// Texts between commas; `\,` is a comma inside a text.
    EscapedList,
    /// A file or folder; a leading `~` is the home directory.
    Path,
}

impl Kind {
    /// Describes the kind for documents and errors.
    pub fn name(self) -> String {
        match self {
            Kind::Switch => "true or false".into(),
            Kind::Verbosity => "0, 1 or 2".into(),
            Kind::Integer { min, max } if max >= LARGE => format!("a whole number from {min}"),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Duration => "a time".into(),
            Kind::Bytes => "a size".into(),
            Kind::Rate => "a rate".into(),
            Kind::Address => "an address".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "a text".into(),
            Kind::List | Kind::EscapedList => "a list".into(),
            Kind::Path => "a path".into(),
        }
    }
}

/// How much of a value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// All of it.
    Open,
    /// Nothing.
    Hidden,
    /// Of URLs only scheme and host; the rest is open.
    Urls,
}

/// Whether the setting has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has an effect.
    Active,
    /// None but a warning where it is set to another value than the default: it is known since programs that
    /// this one replaces have it, or to say what cannot be done. The text says why.
    Ignored(&'static str),
}

/// When a running server takes up a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// When it is told to read its settings again.
    Reload,
    /// When it is started again.
    Restart,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of the environment variable; also the identity of the row.
    pub name: &'static str,
    /// Variables read when `name` is not set, best first.
    pub aliases: &'static [&'static str],
    /// Section of the settings file.
    pub section: Section,
    /// Key in its section; empty = cannot be set in a file.
    pub key: &'static str,
    /// What a value looks like.
    pub kind: Kind,
    /// Value when nothing is said, in the form of the variable; empty = unset.
    pub default: &'static str,
    /// How much of a value may be shown.
    pub secrecy: Redaction,
    /// Whether it has an effect.
    pub status: Status,
    /// When a running server takes up a change.
    pub change: Change,
    /// One line for people.
    pub help: &'static str,
}

impl Setting {
    /// Returns the row of the variable `name` (not of an alias).
    pub fn find(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Returns `section.key`, or nothing for rows that no file can set.
    pub fn path(&self) -> Option<String> {
        (!self.key.is_empty()).then(|| format!("{}.{}", self.section.name(), self.key))
    }

    /// Returns the variables that set it, strongest first.
    pub fn variables(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    const fn alias(self, aliases: &'static [&'static str]) -> Setting {
        Setting { aliases, ..self }
    }

    const fn hidden(self) -> Setting {
        Setting {
            secrecy: Redaction::Hidden,
            ..self
        }
    }

    const fn urls(self) -> Setting {
        Setting {
            secrecy: Redaction::Urls,
            ..self
        }
    }

    const fn ignored(self, why: &'static str) -> Setting {
        Setting {
            status: Status::Ignored(why),
            ..self
        }
    }

    const fn live(self) -> Setting {
        Setting {
            change: Change::Reload,
            ..self
        }
    }
}

const fn row(
    section: Section,
    name: &'static str,
    key: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        name,
        aliases: &[],
        section,
        key,
        kind,
        default,
        secrecy: Redaction::Open,
        status: Status::Active,
        change: Change::Restart,
        help,
    }
}

/// Upper bound of numbers that have no natural one.
const LARGE: i64 = 1 << 31;
const COUNT: Kind = Kind::Integer { min: 0, max: LARGE };
const PORT: Kind = Kind::Integer {
    min: 0,
    max: 65_535,
};

use Section::{Client, Host, Logkit, Server};

/// Every setting.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    row(Server, "LLMSRV_HOST", "host", Kind::Address, "127.0.0.1:11434",
        "Address the server listens on and the commands talk to: host, :port, host:port, [v6]:port or a URL")
        .alias(&["OLLAMA_HOST"]),
    row(Server, "LLMSRV_MODELS", "models", Kind::Path, "{data}/models",
        "Folder of the models; when not set, a store of the existing server is also read")
        .alias(&["OLLAMA_MODELS"]),
    row(Server, "LLMSRV_ORIGINS", "origins", Kind::List, "",
        "Origins of web pages that may call the server, besides the local ones; one * in each, * alone allows all")
        .alias(&["OLLAMA_ORIGINS"]).live(),
    row(Server, "LLMSRV_API_KEYS", "api_keys", Kind::List, "",
        "Keys, each with the role admin, of which every request must carry one; see also the keys file").hidden().live(),
    row(Server, "LLMSRV_KEYS_FILE", "keys_file", Kind::Path, "{config}/keys.toml",
        "File of hashed keys that `llmsrv key` writes; once it is there every request needs a key").live(),
    row(Server, "LLMSRV_ALLOW_REMOTE_MANAGEMENT", "allow_remote_management", Kind::Switch, "false",
        "Let other machines change the models while there are no keys").live(),
    row(Server, "LLMSRV_RATE_LIMIT", "rate_limit", Kind::Rate, "",
        "Requests of one key, or one address without a key, such as 60/min; more get status 429").live(),
    row(Server, "LLMSRV_MAX_CONNECTIONS", "max_connections", Kind::Integer { min: 1, max: 1_000_000 }, "1024",
        "Connections open at the same time; more wait until one ends"),
    row(Server, "LLMSRV_TLS_CERT", "tls_cert", Kind::Path, "",
        "Certificate chain in PEM form: serve https; a new one is used as soon as the file changes").live(),
    row(Server, "LLMSRV_TLS_KEY", "tls_key", Kind::Path, "",
        "Private key of the certificate in PEM form").live(),
    row(Server, "LLMSRV_REGISTRIES", "registries", Kind::List, "",
        "Hosts that models may be pulled from and pushed to, such as hf.co,*.example.com; none = all"),
    row(Server, "LLMSRV_MIRRORS", "mirrors", Kind::List, "",
        "Addresses to pull from before the registry itself: HOST=URL between commas").urls(),
    row(Server, "LLMSRV_REGISTRY_KEY", "registry_key", Kind::Path, "{data}/id_ed25519",
        "Key that signs requests to registries, made when needed; ~/.ollama/id_ed25519 is used if it is there"),
    row(Server, "LLMSRV_HF_TOKEN", "hf_token", Kind::Text, "",
        "Token for repositories of the Hugging Face hub that are not public")
        .alias(&["HF_TOKEN"]).hidden(),
    row(Server, "LLMSRV_HF_ENDPOINT", "hf_endpoint", Kind::Text, "https://huggingface.co",
        "Address of the Hugging Face hub, for names of hf.co")
        .alias(&["HF_ENDPOINT"]).urls(),
    row(Server, "LLMSRV_DEFAULT_MODEL", "default_model", Kind::Text, "",
        "Model that the name `default` stands for; stronger than `llmsrv default`; unset = the built-in one"),
    row(Server, "LLMSRV_NO_EMBEDDED", "no_embedded", Kind::Switch, "false",
        "Do not put the built-in model into the store"),
    row(Server, "LLMSRV_PRELOAD", "preload", Kind::List, "",
        "Models to load when the server starts; they stay loaded until they are stopped"),
    row(Server, "LLMSRV_KEEP_ALIVE", "keep_alive", Kind::Duration, "5m",
        "How long an idle model stays loaded; negative = forever, 0 = unload at once")
        .alias(&["OLLAMA_KEEP_ALIVE"]).live(),
    row(Server, "LLMSRV_LOAD_TIMEOUT", "load_timeout", Kind::Duration, "5m",
        "How long loading a model may take; 0 or negative = no limit")
        .alias(&["OLLAMA_LOAD_TIMEOUT"]).live(),
    row(Server, "LLMSRV_NUM_PARALLEL", "num_parallel", Kind::Integer { min: 0, max: 4096 }, "0",
        "Requests one model answers at the same time; 0 = automatic, 4")
        .alias(&["OLLAMA_NUM_PARALLEL"]).live(),
    row(Server, "LLMSRV_MAX_LOADED_MODELS", "max_loaded_models", COUNT, "0",
        "Models loaded at the same time; 0 = automatic")
        .alias(&["OLLAMA_MAX_LOADED_MODELS"]).live(),
    row(Server, "LLMSRV_MAX_QUEUE", "max_queue", COUNT, "512",
        "Requests that may wait; more are refused with status 503")
        .alias(&["OLLAMA_MAX_QUEUE"]).live(),
    row(Server, "LLMSRV_MEMORY_LIMIT", "memory_limit", Kind::Bytes, "",
        "Memory of all loaded models; unset = nine tenths of what the machine has available"),
    row(Server, "LLMSRV_CONTEXT_LENGTH", "context_length", COUNT, "0",
        "Context in tokens when neither request nor model says; 0 = by memory")
        .alias(&["OLLAMA_CONTEXT_LENGTH"]).live(),
    row(Server, "LLMSRV_KV_CACHE_TYPE", "kv_cache_type", Kind::Choice(&["auto", "f32", "f16", "bf16", "q8_0", "q4_0"]), "auto",
        "Number format of the KV cache; auto: bf16 where activations on the CPU have 8 bits, else f16")
        .alias(&["OLLAMA_KV_CACHE_TYPE"]),
    row(Server, "LLMSRV_FLASH_ATTENTION", "flash_attention", Kind::Switch, "true",
        "Flash attention")
        .alias(&["OLLAMA_FLASH_ATTENTION"]).ignored("there is no other attention"),
    row(Server, "LLMSRV_SPECULATION", "speculation", Kind::Choice(&["auto", "off"]), "auto",
        "Speculative decoding by prompt lookup where it is faster; answers stay the same"),
    row(Server, "LLMSRV_DRAFT_MODEL", "draft_models", Kind::List, "",
        "Draft models for speculative decoding: DRAFT for all with its vocabulary, MODEL=DRAFT for one"),
    row(Server, "LLMSRV_DEVICE", "device", Kind::Choice(&["auto", "cpu", "vulkan", "candle"]), "auto",
        "What computes: what `gpu` says, the CPU, a GPU through Vulkan, or the portable tensor library"),
    row(Server, "LLMSRV_THREADS", "threads", Kind::Integer { min: 0, max: 4096 }, "0",
        "Threads for arithmetic; 0 = one for each core"),
    row(Server, "LLMSRV_CPU_ARITHMETIC", "cpu_arithmetic", Kind::Choice(&["auto", "fast", "fine", "exact"]), "auto",
        "Activation precision on the CPU: fast int8, fine int16, exact f32 (slow); auto: fine up to 64 MiB of weights"),
    row(Server, "LLMSRV_GPU", "gpu", Kind::Switch, "",
        "Compute on a GPU through Vulkan (experimental) or not at all; unset and false = on the CPU"),
    row(Server, "LLMSRV_VENDOR_GPU", "vendor_gpu", Kind::Switch, "",
        "Take integrated GPUs and those of Intel, too"),
    row(Server, "LLMSRV_GPU_ALLOW_SOFTWARE", "gpu_allow_software", Kind::Switch, "false",
        "Take drivers that compute on the CPU for GPUs, for tests"),
    row(Server, "LLMSRV_NPU", "npu", Kind::Switch, "false",
        "Compute embeddings and rerankings on an NPU through ONNX Runtime (experimental)"),
    row(Server, "LLMSRV_NPU_ALLOW_SOFTWARE", "npu_allow_software", Kind::Switch, "false",
        "Let ONNX Runtime's CPU stand in for an NPU, for tests"),
    row(Server, "LLMSRV_GPU_OVERHEAD", "gpu_overhead", Kind::Bytes, "0",
        "Memory of the GPU to leave free")
        .alias(&["OLLAMA_GPU_OVERHEAD"]),
    row(Server, "LLMSRV_GPU_MEMORY_LIMIT", "gpu_memory_limit", Kind::Bytes, "",
        "Memory of each GPU that models may take; unset = what is free when the server starts"),
    row(Server, "LLMSRV_NUM_GPU", "num_gpu", Kind::Integer { min: -1, max: LARGE }, "-1",
        "Layers computed on GPUs, from the end, where the output is the last; -1 = as many as fit"),
    row(Server, "LLMSRV_NUM_CPU_MOE", "num_cpu_moe", COUNT, "0",
        "Layers, from the first on, whose experts stay with the CPU"),
    row(Server, "LLMSRV_GPU_TIMEOUT", "gpu_timeout", Kind::Duration, "2m",
        "How long a step on a GPU may take before its worker is killed; 0 or negative = no limit"),
    row(Server, "LLMSRV_VISIBLE_GPUS", "visible_gpus", Kind::List, "",
        "GPUs that models may be loaded to, by number in Vulkan's order or UUID, in this order; -1 = none")
        .alias(&["GGML_VK_VISIBLE_DEVICES"]),
    row(Server, "LLMSRV_VISIBLE_NVIDIA_GPUS", "visible_nvidia_gpus", Kind::List, "",
        "Of NVIDIA's GPUs these alone, by number among them or UUID; -1 = none")
        .alias(&["CUDA_VISIBLE_DEVICES"]),
    row(Server, "LLMSRV_MAIN_GPU", "main_gpu", COUNT, "0",
        "The GPU that is tried first for a model that fits on one"),
    row(Server, "LLMSRV_SCHED_SPREAD", "sched_spread", Kind::Switch, "false",
        "Spread a model over all GPUs, even where one would do")
        .alias(&["OLLAMA_SCHED_SPREAD"]),
    row(Server, "LLMSRV_NOPRUNE", "noprune", Kind::Switch, "false",
        "Keep files in the store that no model uses")
        .alias(&["OLLAMA_NOPRUNE"]),
    row(Server, "LLMSRV_GO_TEMPLATE", "go_template", Kind::Switch, "true",
        "Use a model's Go template where it has one")
        .alias(&["OLLAMA_GO_TEMPLATE"]).ignored("it is used in any case"),
    row(Server, "LLMSRV_GRACE", "grace", Kind::Duration, "10s",
        "How long running requests may go on after a signal to stop"),
    row(Server, "LLMSRV_VERSION_STRING", "version_string", Kind::Text, "",
        "What /api/version reports, for clients that insist on a number").live(),
    row(Server, "LLMSRV_DEBUG", "debug", Kind::Verbosity, "0",
        "Log more: 1 = debug, 2 = trace")
        .alias(&["OLLAMA_DEBUG"]).live(),
    row(Server, "LLMSRV_LOG", "log", Kind::Text, "",
        "Log filter such as `info,llmsrv_server=debug`; stronger than the level").live(),
    row(Server, "LLMSRV_LOG_FORMAT", "log_format", Kind::Choice(&["text", "json"]), "text",
        "Form of the log lines on stderr"),
    row(Server, "LLMSRV_REQUEST_LOG", "request_log", Kind::EscapedList, "",
        "Sinks of the call logger, between commas, that get an entry for each request, such as db:requests.db"),
    row(Server, "LLMSRV_DEBUG_LOG_REQUESTS", "debug_log_requests", Kind::Switch, "false",
        "Log the bodies of requests")
        .alias(&["OLLAMA_DEBUG_LOG_REQUESTS"]).live(),

    row(Client, "LLMSRV_API_KEY", "api_key", Kind::Text, "",
        "Key that the commands send to the server")
        .alias(&["OLLAMA_API_KEY"]).hidden(),
    row(Client, "LLMSRV_CA_CERT", "ca_cert", Kind::Path, "",
        "CA certificates in PEM form that the commands trust for https servers, instead of those of the system"),
    row(Client, "LLMSRV_NOHISTORY", "nohistory", Kind::Switch, "false",
        "Do not keep a history of what is typed in `llmsrv run`")
        .alias(&["OLLAMA_NOHISTORY"]),
    row(Client, "LLMSRV_CONFIG", "", Kind::Path, "{config}/config.toml",
        "The settings file; /etc/llmsrv/config.toml is read when it does not exist"),

    row(Host, "LLMSRV_STATE_DIR", "state_dir", Kind::Path, "{state}",
        "Folder of the history and of logs"),
    row(Host, "LLMSRV_RUNTIME_DIR", "runtime_dir", Kind::Path, "{runtime}",
        "Folder where running servers write themselves down"),
    row(Host, "LLMSRV_LOG_FILE", "log_file", Kind::Path, "",
        "Log of a server that `llmsrv serve --background` starts; unset = server-PORT.log in the state folder"),
    row(Host, "LLMSRV_UNIT_DIR", "unit_dir", Kind::Path, "",
        "Folder `llmsrv service install` writes the unit to; when not set, that of the machine or the user"),
    row(Host, "LLMSRV_ONNX_RUNTIME", "onnx_runtime", Kind::Path, "",
        "Library of ONNX Runtime, for `npu` and `llmsrv testnpu --model`; unset = in the usual folders").alias(&["ORT_DYLIB_PATH"]),

    row(Logkit, "LOGKIT_LEVEL", "level", Kind::Choice(&["debug", "info", "warning", "error", "critical"]), "debug",
        "Lowest level that is logged"),
    row(Logkit, "LOGKIT_SINKS", "sinks", Kind::EscapedList, "",
        "Where entries go, such as `db:logs.db,csv:logs.csv`").urls(),
    row(Logkit, "LOGKIT_ENV", "env", Kind::Text, "",
        "Environment tag; unset = detected"),
    row(Logkit, "LOGKIT_VERSION", "version", Kind::Text, "",
        "Version tag; unset = detected"),
    row(Logkit, "LOGKIT_TRACE_ID", "trace_id", Kind::Text, "",
        "Trace id of all entries; unset = taken from the environment or generated"),
    row(Logkit, "LOGKIT_PARENT_ID", "", Kind::Text, "",
        "Span that this process belongs to; `logkit run` sets it for its command"),
    row(Logkit, "LOGKIT_DB", "db", Kind::Path, "logkit_logs.db",
        "Database of `logkit run` and `logkit logs`"),
    row(Logkit, "LOGKIT_LOG_DIR", "log_dir", Kind::Path, ".",
        "Folder of the logging service's data"),
    row(Logkit, "LOGKIT_HOST", "host", Kind::Text, "127.0.0.1",
        "Address of the logging service"),
    row(Logkit, "LOGKIT_PORT", "port", PORT, "8080",
        "Port of the logging service"),
    row(Logkit, "LOGKIT_GRPC_HOST", "grpc_host", Kind::Text, "127.0.0.1",
        "Address of the gRPC logging service"),
    row(Logkit, "LOGKIT_GRPC_PORT", "grpc_port", PORT, "50051",
        "Port of the gRPC logging service"),
    row(Logkit, "LOGKIT_API_KEY", "api_key", Kind::Text, "",
        "Key that the logging service asks for").hidden(),
    row(Logkit, "LOGKIT_WEBHOOK_URL", "webhook_url", Kind::Text, "",
        "Where errors are announced").urls(),
    row(Logkit, "LOGKIT_WEBHOOK_FORMAT", "webhook_format", Kind::Choice(&["slack", "discord", "teams", "raw"]), "",
        "Form of the announcements; unset = by the host name"),
    row(Logkit, "LOGKIT_METRICS_PORT", "metrics_port", PORT, "",
        "Port of the metrics of the logger; unset = none"),
    row(Logkit, "LOGKIT_LLM_MODEL", "llm_model", Kind::Text, "",
        "Model that explains logged errors"),
    row(Logkit, "LOGKIT_DETECT_INJECTION", "detect_injection", Kind::Switch, "false",
        "Look for prompt injection in logged arguments"),
    row(Logkit, "LOGKIT_REDACT", "redact", Kind::Switch, "true",
        "Blank secrets in logged values"),
    row(Logkit, "LOGKIT_QUEUE", "queue", Kind::Integer { min: 1, max: LARGE }, "65536",
        "Entries that may wait to be written"),
    row(Logkit, "LOGKIT_ON_FULL", "on_full", Kind::Choice(&["block", "drop_new", "drop_old"]), "",
        "What happens when the queue is full; unset = callers wait while sinks keep up, then entries are dropped"),
    row(Logkit, "LOGKIT_DURABILITY", "durability", Kind::Choice(&["buffered", "crash", "sync", "full"]), "buffered",
        "When an entry is safe: soon, even if the process is killed, or before the call returns"),
    row(Logkit, "LOGKIT_CONSOLE_TIME", "console_time", Kind::List, "",
        "Time on the console: `ms` adds milliseconds, `utc` is not local time"),
    row(Logkit, "LOGKIT_ENV_FILE", "", Kind::Path, "",
        "File of NAME=value lines to read, like --env-file"),
];

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
