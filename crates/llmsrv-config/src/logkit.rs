//! The call logger's settings, and what the environment says about where the program runs.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{Address, Secret, values::Values};

/// `[logkit]`
#[derive(Clone, Debug)]
pub struct LogkitConfig {
    /// Lowest level logged, lower case.
    pub level: String,
    /// Sink specifications, `kind:path`.
    pub sinks: Vec<String>,
    /// Environment tag that overrides arguments.
    pub environment: Option<String>,
    /// Version tag that overrides arguments.
    pub version: Option<String>,
    /// Trace id of all entries.
    pub trace_id: Option<String>,
    /// Span that this process belongs to.
    pub parent_id: Option<String>,
    /// Default database of the commands.
    pub db: PathBuf,
    /// Folder of the service's data.
    pub log_dir: PathBuf,
    /// Address of the service.
    pub host: String,
    /// Port of the service.
    pub port: u16,
    /// Address of the gRPC service.
    pub grpc_host: String,
    /// Port of the gRPC service.
    pub grpc_port: u16,
    /// Key the service asks for.
    pub api_key: Option<Secret>,
    /// Where errors are announced.
    pub webhook_url: Option<Secret>,
    /// `slack`, `discord`, `teams` or `raw`; `None` = guessed.
    pub webhook_format: Option<String>,
    /// Port of the metrics; `None` = none.
    pub metrics_port: Option<u16>,
    /// Model that explains errors.
    pub llm_model: Option<String>,
    /// Look for prompt injection.
    pub detect_injection: bool,
    /// Blank secrets.
    pub redact: bool,
    /// Entries that may wait.
    pub queue: usize,
    /// `block`, `drop_new` or `drop_old`; `None` = by level.
    pub on_full: Option<String>,
    /// `buffered`, `crash`, `sync` or `full`.
    pub durability: String,
    /// `ms` and `utc`, in any order.
    pub console_time: Vec<String>,
    /// What other variables say.
    pub ambient: Ambient,
}

impl LogkitConfig {
    pub(crate) fn new(values: &Values<'_>, ambient: Ambient) -> LogkitConfig {
        LogkitConfig {
            level: values.read("LOGKIT_LEVEL"),
            sinks: values.read("LOGKIT_SINKS"),
            environment: values.read("LOGKIT_ENV"),
            version: values.read("LOGKIT_VERSION"),
            trace_id: values.read("LOGKIT_TRACE_ID"),
            parent_id: values.read("LOGKIT_PARENT_ID"),
            db: values.read("LOGKIT_DB"),
            log_dir: values.read("LOGKIT_LOG_DIR"),
            host: values.read("LOGKIT_HOST"),
            port: values.read("LOGKIT_PORT"),
            grpc_host: values.read("LOGKIT_GRPC_HOST"),
            grpc_port: values.read("LOGKIT_GRPC_PORT"),
            api_key: values
                .read::<Option<String>>("LOGKIT_API_KEY")
                .map(Secret::new),
            webhook_url: values
                .read::<Option<String>>("LOGKIT_WEBHOOK_URL")
                .map(Secret::new),
            webhook_format: values.read("LOGKIT_WEBHOOK_FORMAT"),
            metrics_port: values.read("LOGKIT_METRICS_PORT"),
            llm_model: values.read("LOGKIT_LLM_MODEL"),
            detect_injection: values.read("LOGKIT_DETECT_INJECTION"),
            redact: values.read("LOGKIT_REDACT"),
            queue: values.read("LOGKIT_QUEUE"),
            on_full: values.read("LOGKIT_ON_FULL"),
            durability: values.read("LOGKIT_DURABILITY"),
            console_time: values.read("LOGKIT_CONSOLE_TIME"),
            ambient,
        }
    }
}

/// Facts about the surroundings from variables that others set. Tags use them only where nobody set
/// the logger's own variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ambient {
    /// Name of the environment: a variable that says it, else the platform (`k8s`, `ci`, `docker`).
    /// A container without any such variable is for the caller to detect.
    pub environment: Option<String>,
    /// Trace id of the surrounding request or job.
    pub trace_id: Option<String>,
    /// Version of the program; commit hashes are cut to twelve digits.
    pub version: Option<String>,
    /// `NO_COLOR` is set to anything.
    pub no_color: bool,
    /// Where models are that explain errors.
    pub models: ModelServers,
}

/// Addresses of services with models and the keys to them, from the variables their own clients
/// read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelServers {
    /// `LLMSRV_HOST` or `OLLAMA_HOST`, as the address a client uses.
    pub local: Option<String>,
    /// `OPENAI_BASE_URL`
    pub openai: Option<Secret>,
    /// `OPENAI_API_KEY`
    pub openai_key: Option<Secret>,
    /// `ANTHROPIC_BASE_URL`
    pub anthropic: Option<Secret>,
    /// `ANTHROPIC_API_KEY`
    pub anthropic_key: Option<Secret>,
}

/// Variables that name the environment, best first.
const ENVIRONMENT: &[&str] = &[
    "LOGKIT_ENV",
    "APP_ENV",
    "ENVIRONMENT",
    "ENV",
    "NODE_ENV",
    "FLASK_ENV",
    "DJANGO_ENV",
];
/// Variables whose presence names the platform, best first.
const PLATFORM: &[(&str, &str)] = &[
    ("KUBERNETES_SERVICE_HOST", "k8s"),
    ("CI", "ci"),
    ("DOCKER_CONTAINER", "docker"),
    ("GITHUB_ACTIONS", "ci"),
    ("GITLAB_CI", "ci"),
];
/// Variables with a trace id, best first; `TRACEPARENT` holds it between dashes.
const TRACE_ID: &[&str] = &[
    "LOGKIT_TRACE_ID",
    "TRACE_ID",
    "X_TRACE_ID",
    "OTEL_TRACE_ID",
    "TRACEPARENT",
    "DD_TRACE_ID",
    "REQUEST_ID",
];
/// Variables with a version, best first.
const VERSION: &[&str] = &[
    "LOGKIT_VERSION",
    "APP_VERSION",
    "VERSION",
    "GIT_SHA",
    "GIT_COMMIT",
    "GITHUB_SHA",
    "CI_COMMIT_SHA",
];

impl Ambient {
    pub(crate) fn new(environment: &BTreeMap<String, String>) -> Ambient {
        let said = |name: &str| {
            environment
                .get(name)
                .map(|value| value.trim())
                .filter(|value| !value.is_empty())
        };
        let platform = || {
            PLATFORM
                .iter()
                .find(|(name, _)| said(name).is_some())
                .map(|(_, tag)| (*tag).to_owned())
        };
        Ambient {
            environment: ENVIRONMENT
                .iter()
                .find_map(|name| said(name))
                .map(str::to_lowercase)
                .or_else(platform),
            trace_id: TRACE_ID.iter().find_map(|name| match (*name, said(name)?) {
                ("TRACEPARENT", value) => trace_of_parent(value),
                (_, value) => Some(value.to_owned()),
            }),
            version: VERSION
                .iter()
                .find_map(|name| said(name))
                .map(short_version),
            no_color: said("NO_COLOR").is_some(),
            models: {
                let secret = |name: &str| said(name).map(|value| Secret::new(value.to_owned()));
                ModelServers {
                    local: said("LLMSRV_HOST")
                        .or_else(|| said("OLLAMA_HOST"))
                        .and_then(|value| Address::parse(value).ok())
                        .map(|address| address.url()),
                    openai: secret("OPENAI_BASE_URL"),
                    openai_key: secret("OPENAI_API_KEY"),
                    anthropic: secret("ANTHROPIC_BASE_URL"),
                    anthropic_key: secret("ANTHROPIC_API_KEY"),
                }
            },
        }
    }
}

/// Returns the trace id of a W3C `traceparent`: `00-<32 hex>-<16 hex>-<flags>`.
fn trace_of_parent(value: &str) -> Option<String> {
    let trace = value.split('-').nth(1)?;
    (trace.len() == 32 && is_hex(trace) && trace.bytes().any(|b| b != b'0'))
        .then(|| trace.to_owned())
}

fn short_version(value: &str) -> String {
    let hash = (value.len() == 40 || value.len() == 64) && is_hex(value);
    if hash {
        value.chars().take(12).collect()
    } else {
        value.to_owned()
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_models_are_found() {
        let map = [
            ("LLMSRV_HOST", "0.0.0.0:7000"),
            ("OPENAI_API_KEY", " k "),
            ("ANTHROPIC_API_KEY", ""),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let models = Ambient::new(&map.into()).models;
        assert_eq!(models.local.as_deref(), Some("http://127.0.0.1:7000"));
        assert_eq!(models.openai_key, Some(Secret::new("k".into())));
        assert_eq!(models.anthropic_key, None);
    }

    #[test]
    fn surroundings_are_read_in_order() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let ambient = |pairs: &[(&str, &str)]| {
            let map = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let Ambient {
                environment,
                trace_id,
                version,
                ..
            } = Ambient::new(&map);
            [environment, trace_id, version].map(Option::unwrap_or_default)
        };
        for (pairs, expected) in [
            (&[][..], ["", "", ""]),
            (&[("ENV", " Prod "), ("CI", "1")], ["prod", "", ""]),
            (&[("CI", "true"), ("DOCKER_CONTAINER", "1")], ["ci", "", ""]),
            (
                &[("CI", "1"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")],
                ["k8s", "", ""],
            ),
            (
                &[("DOCKER_CONTAINER", "1"), ("GITLAB_CI", "1")],
                ["docker", "", ""],
            ),
            (
                &[("TRACEPARENT", parent), ("REQUEST_ID", "r")],
                ["", "4bf92f3577b34da6a3ce929d0e0e4736", ""],
            ),
            (
                &[("TRACEPARENT", "garbage"), ("REQUEST_ID", "r")],
                ["", "r", ""],
            ),
            (&[("TRACEPARENT", parent), ("TRACE_ID", "t")], ["", "t", ""]),
            (&[("GIT_SHA", hash)], ["", "", "0123456789ab"]),
            (
                &[("VERSION", "1.2.3"), ("GIT_SHA", hash)],
                ["", "", "1.2.3"],
            ),
        ] {
            assert_eq!(ambient(pairs), expected.map(str::to_owned), "{pairs:?}");
        }
    }
}
