//! Sinks that send entries elsewhere.

use logkit::{GrpcSink, OtlpOptions, RemoteOptions, Sink, SinkError};
use pyo3::prelude::*;

use super::{
    arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RemoteSink>()?;
    module.add_class::<OtlpSink>()?;
    module.add_class::<PostgresSink>()
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
