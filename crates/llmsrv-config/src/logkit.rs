//! What the environment says about where the program runs.

use std::collections::BTreeMap;

use crate::{Address, Secret};

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
