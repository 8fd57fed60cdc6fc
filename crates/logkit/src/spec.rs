//! Sinks from text: `db:logs.db`, `csv:logs.csv?max_bytes=10m`, `webhook:https://…`.
//!
//! ```
//! use logkit::spec::{self, Options, SpecError};
//!
//! # fn main() -> Result<(), SpecError> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let file = folder.path().join("logs.csv");
//! # let file = file.display();
//! let sink = spec::open(&format!("csv:{file}?max_bytes=10m&daily"), &Options::default())?;
//! assert_eq!(sink.name(), "csv");
//!
//! spec::check("postgres://ann@localhost/calls?table=logs")?; // opens nothing
//! assert!(matches!(spec::check("redis:x"), Err(SpecError::Unknown(_))));
//! # Ok(())
//! # }
//! ```

use std::{str::FromStr, time::Duration};

use crate::{
    ConsoleSink, ConsoleTime, Durability, Sink, SinkError,
    sinks::{
        csv::CsvSink,
        file::Rotation,
        json::{JsonForm, JsonSink},
        markdown::MarkdownSink,
        terminal::{TerminalForm, TerminalSink},
    },
};

/// What opening a sink needs beside its specification.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When a database's entries are safe.
    pub durability: Durability,
    /// How the time looks on the console.
    pub time: ConsoleTime,
    /// Payload of webhooks: `slack`, `discord`, `teams` or `raw`; `None` = guessed.
    pub webhook_format: Option<String>,
    /// Key for a remote logkit.
    pub api_key: Option<String>,
    /// CSV files are safe to be opened as spreadsheets, whatever was logged.
    pub safe_formulas: bool,
}

/// Why a specification gives no sink.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It has no kind or no path.
    #[error(
        "Invalid sink spec '{0}'. Use format 'type:path' (e.g. 'db:logs.db', 'csv:logs.csv', 'md:logs.md')"
    )]
    Invalid(String),
    /// There is no such kind.
    #[error("Unknown sink type '{0}'. Supported: {supported}", supported = supported())]
    Unknown(String),
    /// This build lacks that kind.
    #[error("Sinks of type '{kind}' are not part of this build: it lacks the feature '{feature}'")]
    NotBuilt {
        /// The kind asked for.
        kind: String,
        /// The feature of this crate that adds it.
        feature: &'static str,
    },
    /// An option is wrong.
    #[error("'{value}' is no value of the option '{name}' in '{spec}'")]
    BadOption {
        /// The whole specification; without an address that may be a secret.
        spec: String,
        /// Name of the option: `max_bytes`.
        name: String,
        /// The value that was given.
        value: String,
    },
    /// The sink cannot be opened.
    #[error("{spec}: {source}")]
    Open {
        /// The whole specification; without an address that may be a secret.
        spec: String,
        /// The sink's own error.
        source: SinkError,
    },
}

/// Opens the sink that `kind:path` describes.
///
/// # Errors
///
/// [`SpecError::Open`] if the sink says no; else as [`check`], and [`SpecError::NotBuilt`] for a kind
/// that this build lacks.
pub fn open(spec: &str, options: &Options) -> Result<Box<dyn Sink>, SpecError> {
    let (kind, request) = read(spec, options)?;
    (kind.open)(&request)
}

/// Says what is wrong with a specification, as far as that shows without opening anything.
///
/// # Errors
///
/// [`SpecError::Invalid`] without a kind or a path that the kind needs, [`SpecError::Unknown`] for a
/// kind that does not exist, [`SpecError::BadOption`] for an option whose value is wrong.
pub fn check(spec: &str) -> Result<(), SpecError> {
    read(spec, &Options::default()).map(|_| ())
}

fn read<'a>(
    spec: &'a str,
    options: &'a Options,
) -> Result<(&'static Kind, Request<'a>), SpecError> {
    let invalid = || SpecError::Invalid(spec.trim().to_owned());
    let (kind_name, path) = match spec.split_once(':') {
        Some((kind, path)) => (kind.trim(), path.trim()),
        None => (spec.trim(), ""),
    };
    let kind_name = kind_name.to_lowercase();
    let has_colon = spec.contains(':');
    let Some(kind) = SINKS.iter().find(|kind| kind.names.contains(&&*kind_name)) else {
        return Err(if has_colon && !kind_name.is_empty() {
            SpecError::Unknown(kind_name)
        } else {
            invalid()
        });
    };
    let lacks_path = match kind.place {
        Place::File | Place::Address => path.is_empty(),
        Place::Optional => !has_colon,
        Place::Bare => false,
    };
    if lacks_path {
        return Err(invalid());
    }
    let mut request = Request {
        spec: spec.trim(),
        kind: kind_name,
        path,
        rotation: Rotation::default(),
        form: JsonForm::default(),
        retain: None,
        max_rows: None,
        options,
    };
    if kind.place == Place::File {
        request.read_options()?;
    }
    Ok((kind, request))
}

/// The sinks of a list of specifications, in its order.
///
/// # Errors
///
/// As [`open`], for the first that gives no sink; those opened before it are dropped.
pub fn open_all(specs: &[String], options: &Options) -> Result<Vec<Box<dyn Sink>>, SpecError> {
    specs.iter().map(|spec| open(spec, options)).collect()
}

/// The file that a sink of that specification writes; `None` for kinds that write none.
pub fn file_of(spec: &str) -> Option<&str> {
    let (kind, path) = spec.split_once(':')?;
    let kind = kind.trim().to_lowercase();
    let kind = SINKS.iter().find(|row| row.names.contains(&&*kind))?;
    let path = path.trim();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    (kind.place == Place::File && !path.is_empty()).then_some(path)
}

/// A specification, taken apart.
struct Request<'a> {
    spec: &'a str,
    kind: String,
    path: &'a str,
    rotation: Rotation,
    form: JsonForm,
    retain: Option<Duration>,
    max_rows: Option<u64>,
    options: &'a Options,
}

/// A kind of sinks.
struct Kind {
    names: &'static [&'static str],
    place: Place,
    open: Open,
}

/// What stands behind the colon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A path, and perhaps options.
    File,
    /// An address.
    Address,
    /// It may be left out: `metrics:`.
    Optional,
    /// It and the colon may be left out: `terminal`.
    Bare,
}

type Open = fn(&Request<'_>) -> Result<Box<dyn Sink>, SpecError>;

const fn kind(names: &'static [&'static str], place: Place, open: Open) -> Kind {
    Kind { names, place, open }
}

/// How a kind is opened that only a feature of this crate brings.
macro_rules! with {
    ($feature:literal, $open:ident) => {{
        #[cfg(feature = $feature)]
        const OPEN: Open = $open;
        #[cfg(not(feature = $feature))]
        const OPEN: Open = |request| request.not_built($feature);
        OPEN
    }};
}

/// All kinds, in the order messages name them.
const SINKS: &[Kind] = &[
    kind(&["db", "sqlite"], Place::File, with!("db", open_db)),
    kind(&["csv"], Place::File, |request| {
        let safe = request.options.safe_formulas;
        let sink = CsvSink::open(request.path, request.rotation);
        request.opened(sink.map(|sink| sink.safe_formulas(safe)))
    }),
    kind(&["md", "markdown"], Place::File, |request| {
        let sink = MarkdownSink::open(request.path, request.rotation);
        request.opened(sink)
    }),
    kind(&["json", "jsonl"], Place::File, |request| {
        let sink = JsonSink::open(request.path, request.form, request.rotation);
        request.opened(sink)
    }),
    kind(
        &["metrics", "prometheus"],
        Place::Optional,
        with!("metrics", open_metrics),
    ),
    kind(
        &["terminal"],
        Place::Bare,
        |request| match TerminalForm::parse(request.path) {
            Some(form) => Ok(Box::new(TerminalSink::new(
                ConsoleSink::stderr().time(request.options.time),
                form,
            ))),
            None => Err(SpecError::Invalid(request.spec.to_owned())),
        },
    ),
    kind(&["webhook"], Place::Address, with!("webhook", open_webhook)),
    kind(
        &["http", "https"],
        Place::Address,
        with!("remote", open_remote),
    ),
    kind(&["grpc", "grpcs"], Place::Address, with!("grpc", open_grpc)),
    kind(&["otlp"], Place::Address, with!("otlp", open_otlp)),
    kind(
        &["postgres", "postgresql"],
        Place::Address,
        with!("postgres", open_postgres),
    ),
    kind(&["syslog"], Place::Bare, with!("syslog", open_syslog)),
];

fn supported() -> String {
    let names: Vec<&str> = SINKS.iter().map(|kind| kind.names[0]).collect();
    names.join(", ")
}

#[cfg(feature = "db")]
fn open_db(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    let sink = crate::DbSink::open(request.path, "logs", request.options.durability)
        .map(|sink| sink.retain(request.retain, request.max_rows));
    request.opened(sink)
}

#[cfg(feature = "metrics")]
fn open_metrics(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    let options = metrics_options(request.spec, request.path)?;
    request.opened(crate::MetricsSink::new(&options))
}

/// Reads where metrics are served: `9090`, `127.0.0.1:9090`, or nothing, which is port 9090 of every interface.
///
/// # Errors
///
/// [`SpecError::BadOption`] if the port is none.
#[cfg(feature = "metrics")]
pub fn metrics_options(spec: &str, path: &str) -> Result<crate::MetricsOptions, SpecError> {
    let mut options = crate::MetricsOptions::default();
    let port = match path.rsplit_once(':') {
        Some((host, port)) => {
            host.trim_matches(['[', ']']).clone_into(&mut options.host);
            port
        }
        None => path,
    };
    options.port = match port {
        "" => Some(crate::net::metrics::PORT),
        port => port.parse().ok(),
    };
    if options.port.is_none() {
        return Err(SpecError::BadOption {
            spec: spec.to_owned(),
            name: "port".to_owned(),
            value: port.to_owned(),
        });
    }
    Ok(options)
}

#[cfg(feature = "webhook")]
fn open_webhook(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    let named = request.options.webhook_format.as_deref();
    let format = named.and_then(crate::WebhookFormat::parse);
    if let (Some(name), None) = (named, format) {
        return Err(SpecError::BadOption {
            spec: request.without_secrets(),
            name: "format".to_owned(),
            value: name.to_owned(),
        });
    }
    let options = crate::WebhookOptions {
        format,
        ..crate::WebhookOptions::default()
    };
    request.opened(crate::WebhookSink::new(request.path, options))
}

#[cfg(feature = "remote")]
fn open_remote(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    let options = crate::RemoteOptions {
        api_key: request.options.api_key.clone(),
        ..crate::RemoteOptions::default()
    };
    // The kind is the scheme of the address.
    request.opened(crate::RemoteSink::new(request.spec, &options))
}

#[cfg(feature = "grpc")]
fn open_grpc(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    let options = crate::RemoteOptions {
        api_key: request.options.api_key.clone(),
        ..crate::RemoteOptions::default()
    };
    // The kind is the scheme of the address.
    request.opened(crate::GrpcSink::new(request.spec, &options))
}

#[cfg(feature = "otlp")]
fn open_otlp(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    request.opened(crate::OtlpSink::new(
        request.path,
        &crate::OtlpOptions::default(),
    ))
}

#[cfg(feature = "postgres")]
fn open_postgres(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    request.opened(crate::PostgresSink::new(request.spec))
}

#[cfg(feature = "syslog")]
fn open_syslog(request: &Request<'_>) -> Result<Box<dyn Sink>, SpecError> {
    let path = match request.path {
        "" => crate::SyslogSink::PATH,
        path => path,
    };
    request.opened(crate::SyslogSink::new(path))
}

impl Request<'_> {
    /// What messages may show: addresses can hold keys.
    fn without_secrets(&self) -> String {
        if self.path.contains("//") {
            format!("{}:…", self.kind)
        } else {
            self.spec.to_owned()
        }
    }

    fn opened<S: Sink + 'static>(
        &self,
        sink: Result<S, SinkError>,
    ) -> Result<Box<dyn Sink>, SpecError> {
        match sink {
            Ok(sink) => Ok(Box::new(sink)),
            Err(source) => Err(SpecError::Open {
                spec: self.without_secrets(),
                source,
            }),
        }
    }

    #[allow(dead_code, reason = "with all features nothing is lacking")]
    fn not_built(&self, feature: &'static str) -> Result<Box<dyn Sink>, SpecError> {
        Err(SpecError::NotBuilt {
            kind: self.kind.clone(),
            feature,
        })
    }

    /// Reads `?name=value&…` behind the path. A path with a question mark of its own stays one.
    fn read_options(&mut self) -> Result<(), SpecError> {
        let Some((path, options)) = self.path.rsplit_once('?') else {
            return Ok(());
        };
        let pairs: Vec<(&str, &str)> = options
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        let known = |name| OPTIONS.contains(&name);
        if path.is_empty() || !pairs.iter().all(|(name, _)| known(*name)) {
            return Ok(());
        }
        for (name, value) in pairs {
            let done = match name {
                "max_bytes" => bytes(value).map(|value| self.rotation.max_bytes = Some(value)),
                "backups" => value
                    .parse()
                    .ok()
                    .map(|value| self.rotation.backups = value),
                "daily" => switch(value).map(|on| self.rotation.daily = on),
                "compress" => match value {
                    "zstd" => Some(true),
                    other => switch(other),
                }
                .map(|on| self.rotation.compress = on),
                "form" if self.kind.starts_with("json") => {
                    JsonForm::parse(value).map(|form| self.form = form)
                }
                "form" => None,
                "retain" => duration(value).map(|value| self.retain = Some(value)),
                _ => value.parse().ok().map(|value| self.max_rows = Some(value)),
            };
            if done.is_none() {
                return Err(SpecError::BadOption {
                    spec: self.spec.to_owned(),
                    name: name.to_owned(),
                    value: value.to_owned(),
                });
            }
        }
        self.path = path;
        Ok(())
    }
}

/// Options of sinks that keep entries in files.
const OPTIONS: [&str; 7] = [
    "max_bytes",
    "backups",
    "daily",
    "compress",
    "form",
    "retain",
    "max_rows",
];

/// `1`, `true`, `yes`, `on` or nothing; `0`, `false`, `no`, `off`.
fn switch(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// `500`, `10k`, `10m`, `1g`: binary multiples.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_lowercase();
    let text = text.trim_end_matches('b').trim_end_matches('i');
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    u64::from_str(digits).ok()?.checked_mul(factor)
}

/// Reads `90s`, `30m`, `24h`, `7d`, `2w` or `1h30m`; a bare number is hours.
pub fn duration(text: &str) -> Option<Duration> {
    llmsrv_config::value::span(text.trim(), 3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(spec: &str) -> String {
        match open(spec, &Options::default()) {
            Ok(sink) => panic!("{spec} gave {}", sink.name()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn wrong_specifications_are_explained() {
        for spec in ["", "logs.db", "db:", "db: ", ":x", "csv:", "metrics"] {
            assert_eq!(
                error(spec),
                format!(
                    "Invalid sink spec '{}'. Use format 'type:path' (e.g. 'db:logs.db', \
                     'csv:logs.csv', 'md:logs.md')",
                    spec.trim()
                )
            );
        }
        assert_eq!(
            error("Redis:x"),
            "Unknown sink type 'redis'. Supported: db, csv, md, json, metrics, terminal, webhook, \
             http, grpc, otlp, postgres, syslog"
        );
        assert_eq!(
            error("csv:/x/y.csv?max_bytes=many"),
            "'many' is no value of the option 'max_bytes' in 'csv:/x/y.csv?max_bytes=many'"
        );
        assert!(error("csv:/nowhere/y.csv").starts_with("csv:/nowhere/y.csv: /nowhere/y.csv: "));
    }

    #[test]
    fn kinds_are_found_in_any_case() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for (spec, name) in [
            (format!(" CSV : {} ", at("a b.csv")), "csv"),
            (format!("markdown:{}", at("a.md")), "md"),
            (
                format!("jsonl:{}?max_bytes=10k&daily&compress=zstd", at("a.jsonl")),
                "json",
            ),
            (format!("json:{}?x=1", at("a.json")), "json"),
            ("terminal".into(), "terminal"),
            ("terminal:compact".into(), "terminal"),
        ] {
            let sink = open(&spec, &Options::default()).unwrap();
            assert_eq!(sink.name(), name);
        }
        assert!(folder.path().join("a.json?x=1").exists());
        assert!(folder.path().join("a.jsonl").exists());
    }

    #[test]
    #[cfg(all(
        feature = "metrics",
        feature = "webhook",
        feature = "otlp",
        feature = "remote",
        feature = "postgres"
    ))]
    fn network_sinks_open_without_a_peer_and_keep_their_secrets() {
        for (spec, name) in [
            ("metrics:127.0.0.1:0", "metrics"),
            ("webhook:https://hooks.slack.com/services/x", "webhook"),
            ("otlp:http://127.0.0.1:9", "otlp"),
            ("http://:KEY@127.0.0.1:9", "remote"),
            ("HTTPS://127.0.0.1:9/base", "remote"),
            ("postgres://u@127.0.0.1:9/d?table=calls", "postgres"),
            ("postgresql://127.0.0.1:9/d", "postgres"),
        ] {
            let sink = open(spec, &Options::default()).unwrap();
            assert_eq!(sink.name(), name, "{spec}");
        }
        for spec in [
            "webhook:ftp://h/SECRET",
            "otlp:SECRET//",
            "http://:SECRET@",
            "postgres://u:SECRET@h/d?sslmode=maybe",
        ] {
            let told = error(spec);
            assert!(told.contains("cannot be used: "), "{told}");
            assert!(!told.contains("SECRET"), "{told}");
        }
        assert_eq!(
            error("metrics:many"),
            "'many' is no value of the option 'port' in 'metrics:many'"
        );
        #[cfg(not(feature = "grpc"))]
        assert!(error("grpc://h:1").contains("lacks the feature 'grpc'"));
        #[cfg(feature = "grpc")]
        assert!(error("grpc://h:1/x").contains("no path"));
        let options = Options {
            webhook_format: Some("irc".into()),
            ..Options::default()
        };
        let told = open("webhook:https://h/SECRET", &options).err().unwrap();
        assert_eq!(
            told.to_string(),
            "'irc' is no value of the option 'format' in 'webhook:…'"
        );
    }

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("90s", 90.0),
            ("30m", 1800.0),
            ("24h", 86_400.0),
            ("7d", 604_800.0),
            ("2w", 1_209_600.0),
            ("3", 10_800.0),
            ("1.5h", 5400.0),
        ] {
            assert_eq!(duration(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in [
            "",
            "h",
            "-1h",
            "1e99w",
            "99999999999999999999w",
            "nan",
            "1.2.3",
            "x",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
