//! Counts for a monitoring system.

use std::sync::Arc;

use logkit::{MetricsFormat, MetricsOptions, SinkError, lock::Mutex};
use pyo3::{exceptions::PyValueError, intern, prelude::*, types::PyBytes};

use super::{
    arguments as given,
    handle::{Handle, Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MetricsSink>()
}

/// Counts entries, and serves the counts at `GET /metrics` if a port is given.
///
/// `port=0` takes any free port, which `port` then tells; a port that is taken is told on stderr, and
/// the counts can still be read with `get_metrics()`. A forked process counts for itself and serves
/// nothing. `registry` is one of `prometheus_client`: the counts show up there too.
#[pyclass(name = "MetricsSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct MetricsSink;

#[pymethods]
impl MetricsSink {
    #[new]
    #[pyo3(signature = (delegate = None, port = None, host = "0.0.0.0".to_owned(), prefix = "logkit".to_owned(), registry = None))]
    fn new(
        py: Python<'_>,
        delegate: Option<Bound<'_, PyAny>>,
        port: Option<i64>,
        host: String,
        prefix: String,
        registry: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<MetricsSink>> {
        let port = port
            .map(|port| {
                u16::try_from(port).map_err(|_| {
                    PyValueError::new_err(format!("port is a number from 0 to 65535, not {port}"))
                })
            })
            .transpose()?;
        let options = MetricsOptions { port, host, prefix };
        let base = MetricsSink::draft(options, delegate)?.base(py)?;
        if let Some(registry) = registry {
            let collector = Collector {
                handle: Arc::clone(base.handle()),
            };
            registry.call_method1(intern!(py, "register"), (collector,))?;
        }
        Ok(PyClassInitializer::from(base).add_subclass(MetricsSink))
    }

    /// The port that is served, or `None`.
    #[getter]
    fn port(this: &Bound<'_, Self>) -> Option<u16> {
        let handle = Arc::clone(this.as_super().get().handle());
        this.py().detach(|| handle.metrics()?.lock().port())
    }

    /// The counts as text, of everything that was logged before.
    fn get_metrics<'py>(this: &Bound<'py, Self>) -> Bound<'py, PyBytes> {
        let py = this.py();
        let base = this.as_super().get();
        base.catch_up(py);
        PyBytes::new(py, text(py, base.handle()).as_bytes())
    }
}

impl MetricsSink {
    pub(super) fn draft(
        options: MetricsOptions,
        delegate: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Draft<'_>> {
        let about = match options.port {
            Some(port) => format!("port={port}"),
            None => String::new(),
        };
        let child = given::delegate(delegate.as_ref())?;
        let (traits, recipe) =
            given::with_delegate(Traits::default(), child.as_ref(), move |making| {
                let mut options = options.clone();
                if making.is_forked {
                    // The process that forked this one serves there.
                    options.port = None;
                }
                let metrics = Arc::new(Mutex::new(logkit::MetricsSink::new(&options)?));
                Ok(Made {
                    sink: Box::new(Shared(Arc::clone(&metrics))),
                    metrics: Some(metrics),
                })
            });
        Ok(Draft {
            name: "metrics",
            about,
            delegate,
            traits,
            recipe,
            is_eager: true,
        })
    }
}

fn text(py: Python<'_>, handle: &Arc<Handle>) -> String {
    py.detach(|| {
        let metrics = handle.metrics();
        metrics.map_or_else(String::new, |metrics| {
            metrics.lock().text(MetricsFormat::Prometheus)
        })
    })
}

/// The counts, for a registry of `prometheus_client`.
#[pyclass(frozen, module = "logkit._native")]
struct Collector {
    handle: Arc<Handle>,
}

#[pymethods]
impl Collector {
    /// The metrics as that package has them.
    fn collect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = text(py, &self.handle);
        py.import("prometheus_client.parser")?
            .call_method1("text_string_to_metric_families", (text,))
    }
}

/// Counts that are read while they are in a logger.
struct Shared(Arc<Mutex<logkit::MetricsSink>>);

impl logkit::Sink for Shared {
    fn write_batch(&mut self, entries: &[logkit::Entry]) -> Result<(), SinkError> {
        self.0.lock().write_batch(entries)
    }

    fn can_update(&self) -> bool {
        self.0.lock().can_update()
    }

    fn attach(&mut self, stats: &logkit::StatsSource) {
        self.0.lock().attach(stats);
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.0.lock().close()
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        self.0.lock().name()
    }
}
