//! Sinks that send entries elsewhere.

use std::path::{Path, PathBuf};

use logkit::{GrpcSink, OtlpOptions, RemoteOptions, Sink, SinkError};
use pyo3::{intern, prelude::*};

use super::{
    arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RemoteSink>()?;
    module.add_class::<OtlpSink>()?;
    module.add_class::<PostgresSink>()?;
    module.add_class::<SyslogSink>()
}

/// Sends entries to a logkit service: `http://host:8080`, or `grpc://host:50051`, with TLS
/// `https://` or `grpcs://`.
///
/// Entries wait in memory, 20,000 at most, while the service is away. The key may be in the address:
/// `http://:KEY@host`.
#[pyclass(name = "RemoteSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct RemoteSink;

#[pymethods]
impl RemoteSink {
    #[new]
    #[pyo3(signature = (url, api_key = None))]
    fn new(
        py: Python<'_>,
        url: String,
        api_key: Option<String>,
    ) -> PyResult<PyClassInitializer<RemoteSink>> {
        RemoteSink::draft(url, api_key).make(py, RemoteSink)
    }
}

impl RemoteSink {
    pub(super) fn draft(url: String, api_key: Option<String>) -> Draft<'static> {
        let options = RemoteOptions {
            api_key,
            ..RemoteOptions::default()
        };
        let scheme = url.trim_start().get(..4).unwrap_or_default();
        if scheme.eq_ignore_ascii_case("grpc") {
            sender("grpc", move || GrpcSink::new(&url, &options))
        } else {
            sender("remote", move || logkit::RemoteSink::new(&url, &options))
        }
    }
}

/// Sends entries to an OpenTelemetry collector, `http://host:4318`: each as a log record, and calls of
/// a trace as spans too.
#[pyclass(name = "OTLPSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct OtlpSink;

#[pymethods]
impl OtlpSink {
    #[new]
    #[pyo3(signature = (url, *, service = None, headers = None))]
    fn new(
        py: Python<'_>,
        url: String,
        service: Option<String>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<OtlpSink>> {
        let mut options = OtlpOptions::default();
        if let Some(service) = service {
            options.service = service;
        }
        if let Some(headers) = headers {
            options.headers = given::headers(headers)?;
        }
        OtlpSink::draft(url, options).make(py, OtlpSink)
    }
}

impl OtlpSink {
    pub(super) fn draft(url: String, options: OtlpOptions) -> Draft<'static> {
        sender("otlp", move || logkit::OtlpSink::new(&url, &options))
    }
}

/// Writes entries to a PostgreSQL table: `postgres://user:password@host/database?table=logs`.
#[pyclass(name = "PostgresSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct PostgresSink;

#[pymethods]
impl PostgresSink {
    #[new]
    fn new(py: Python<'_>, url: String) -> PyResult<PyClassInitializer<PostgresSink>> {
        PostgresSink::draft(url).make(py, PostgresSink)
    }
}

impl PostgresSink {
    pub(super) fn draft(url: String) -> Draft<'static> {
        sender("postgres", move || logkit::PostgresSink::new(&url))
    }
}

/// Sends entries to the log of the system: messages of RFC 5424 to a Unix datagram socket.
///
/// `app_name` is what daemons sort messages by: the name of the program unless it is given. Entries wait
/// in memory, 20,000 at most, while nobody listens.
#[pyclass(name = "SyslogSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct SyslogSink {
    /// The socket.
    #[pyo3(get)]
    path: PathBuf,
}

#[pymethods]
impl SyslogSink {
    #[new]
    #[pyo3(signature = (path = PathBuf::from(logkit::SyslogSink::PATH), *, app_name = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        app_name: Option<String>,
    ) -> PyResult<PyClassInitializer<SyslogSink>> {
        let (draft, class) = SyslogSink::draft(py, path, app_name)?;
        draft.make(py, class)
    }
}

impl SyslogSink {
    pub(super) fn draft(
        py: Python<'_>,
        path: PathBuf,
        app_name: Option<String>,
    ) -> PyResult<(Draft<'static>, SyslogSink)> {
        let place = given::place(path.clone())?;
        let app_name = app_name.unwrap_or_else(|| program(py));
        let make = move || Ok(logkit::SyslogSink::new(&place)?.app_name(&app_name));
        let draft = Draft {
            about: given::quoted(&path),
            ..sender("syslog", make)
        };
        Ok((draft, SyslogSink { path }))
    }
}

/// What the program is called: its script, or the package that was run; Python itself where there is neither.
fn program(py: Python<'_>) -> String {
    let script = py
        .import(intern!(py, "sys"))
        .and_then(|sys| sys.getattr(intern!(py, "argv")))
        .and_then(|words| words.get_item(0))
        .and_then(|script| script.extract::<PathBuf>())
        .unwrap_or_default();
    let name = match script.file_stem() {
        Some(stem) if stem == "__main__" => script.parent().and_then(Path::file_name),
        stem => stem,
    };
    match name.map(|name| name.to_string_lossy()) {
        Some(name) if !name.starts_with('-') => name.into_owned(),
        _ => "python".to_owned(),
    }
}

/// A sink with an outbox. Its address may hold a key and is not shown.
fn sender<S: Sink + 'static>(
    name: &'static str,
    make: impl Fn() -> Result<S, SinkError> + Send + Sync + 'static,
) -> Draft<'static> {
    Draft {
        name,
        about: "…".to_owned(),
        delegate: None,
        traits: Traits {
            polls: true,
            ..Traits::default()
        },
        recipe: Box::new(move |_| Ok(Made::new(make()?))),
        is_eager: true,
    }
}
