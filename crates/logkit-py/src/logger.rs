//! The class `Logger`.
//!
//! `core.rs` takes entries, `console.rs` finds out where their lines go, `settings.rs` says how the native
//! logger below is made, and `configure.rs` reads the settings of the process.

mod configure;
mod console;
mod core;
mod settings;
pub(crate) mod target;

use std::sync::{Arc, atomic::Ordering::Relaxed};

use logkit::Level;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyDict, PyList, PyString},
};

pub(crate) use self::core::{Core, cores};
use self::settings::Settings;
use crate::{context, entry::entry_of, redaction::Redaction};

/// Takes entries and hands them to its sinks. What goes wrong there is counted, and said once on stderr.
///
/// name: what lines on the console call it.
/// level: the lowest level taken.
/// sinks: objects with a method write(entry), or texts such as "db:logs.db".
/// propagate_stdlib: entries also go to logging.getLogger(name); without a handler there, to stderr.
/// console: write lines to stderr; as propagate_stdlib says unless given.
/// redact: True, False, a function of a name and a value, or names beside the built-in ones.
/// binary: "meta" tells bytes over 8 KiB by length and digest.
/// on_full, durability, queue: see the settings of the same names.
#[pyclass(frozen, subclass, weakref, module = "logkit")]
pub(crate) struct Logger(Arc<Core>);

#[pymethods]
impl Logger {
    #[new]
    #[pyo3(signature = (
        name = "logkit", level = "DEBUG", sinks = None, propagate_stdlib = true, *, console = None, redact = None,
        binary = "repr", on_full = None, durability = None, queue = None
    ))]
    fn new(
        py: Python<'_>,
        name: &str,
        level: &str,
        sinks: Option<Bound<'_, PyAny>>,
        propagate_stdlib: bool,
        console: Option<bool>,
        redact: Option<Bound<'_, PyAny>>,
        binary: &str,
        on_full: Option<&str>,
        durability: Option<&str>,
        queue: Option<usize>,
    ) -> PyResult<Logger> {
        let mut settings = Settings::new(name, Level::parse(level));
        settings.propagate = propagate_stdlib;
        settings.console = console.unwrap_or(propagate_stdlib);
        if let Some(redact) = redact.filter(|redact| !settings::is_true(redact)) {
            settings.redaction = Redaction::of(&redact)?;
        }
        settings.binary_meta = settings::binary_meta(binary)?;
        settings.policies(on_full, durability, queue)?;
        let sinks: Vec<Bound<'_, PyAny>> = match sinks {
            Some(sinks) if !sinks.is_none() => sinks.try_iter()?.collect::<PyResult<_>>()?,
            _ => Vec::new(),
        };
        let sinks = sinks
            .iter()
            .map(settings::sink_of)
            .collect::<PyResult<Vec<_>>>()?;
        Logger::made(py, settings, &sinks)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.0.native().name()
    }

    /// The lowest level taken.
    #[getter]
    fn level(&self) -> &'static str {
        match self.0.level() {
            0..=10 => "DEBUG",
            11..=20 => "INFO",
            21..=30 => "WARNING",
            31..=40 => "ERROR",
            _ => "CRITICAL",
        }
    }

    #[setter]
    fn set_level(&self, level: &str) {
        self.0.native().set_level(&Level::parse(level));
    }

    /// The sinks, in the order in which they came.
    #[getter]
    fn sinks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.sinks(py))
    }

    /// True if entries also go to the logger of that name of the module logging.
    #[getter]
    fn propagate_stdlib(&self) -> bool {
        self.0.settings.propagate
    }

    /// Adds a sink; it receives what is emitted from now on.
    fn add_sink<'py>(
        slf: Bound<'py, Self>,
        sink: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let sink = settings::sink_of(sink)?;
        slf.get().0.add_sink(&sink)?;
        Ok(slf)
    }

    /// Takes a sink away: it writes what waits, and is closed unless it is written in Python.
    fn remove_sink(&self, sink: &Bound<'_, PyAny>) {
        self.0.remove_sink(sink);
    }

    /// Takes a LogEntry.
    fn emit(&self, py: Python<'_>, entry: &Bound<'_, PyAny>) {
        let level = entry.getattr(pyo3::intern!(py, "level"));
        let level = level.and_then(|level| level.extract::<String>());
        let wanted = level.map_or(true, |level| self.0.native().enabled(&Level::parse(&level)));
        if !wanted || context::is_silent(py) {
            return;
        }
        match logkit::rendering(|| entry_of(entry)) {
            Some(Ok(made)) => self.0.emit_made(py, made, entry),
            Some(Err(error)) => self.0.refused(&error),
            None => {}
        }
    }

    /// Waits until everything emitted before is written; False if that takes too long or failed.
    #[pyo3(signature = (timeout = 5.0))]
    fn flush(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = std::time::Duration::try_from_secs_f64(timeout)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(self.0.flush(py, timeout))
    }

    /// Writes what waits, for at most five seconds, and closes the sinks. What is emitted later is dropped.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// The counts: emitted, written, dropped, sink_errors, queue_len.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.0.native().stats();
        let alone = self.0.n_alone.load(Relaxed);
        let dict = PyDict::new(py);
        dict.set_item("emitted", stats.emitted + alone)?;
        dict.set_item("written", stats.written + alone)?;
        dict.set_item("dropped", stats.dropped)?;
        dict.set_item("sink_errors", stats.sink_errors + self.0.object_errors())?;
        dict.set_item("queue_len", stats.queue_len)?;
        Ok(dict)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "Logger(name={}, level='{}', sinks={})",
            logkit::repr::repr_str(self.name()),
            self.level(),
            self.sinks(py)
                .and_then(|sinks| Ok(sinks.repr()?.to_string()))
                .unwrap_or_default(),
        )
    }
}

impl Logger {
    fn made(py: Python<'_>, settings: Settings, sinks: &[Bound<'_, PyAny>]) -> PyResult<Logger> {
        Ok(Logger(Core::new(py, settings, sinks)?))
    }

    /// A logger of the name that everybody expects, without sinks.
    pub(crate) fn console_only(py: Python<'_>) -> PyResult<Logger> {
        Logger::made(py, Settings::new("logkit", Level::Debug), &[])
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.0)
    }
}

/// Texts of a Python object that may be a path.
fn text_of_path(value: &Bound<'_, PyAny>) -> Option<String> {
    let value = value
        .call_method0("__fspath__")
        .unwrap_or_else(|_| value.clone());
    Some(
        value
            .cast::<PyString>()
            .ok()?
            .to_string_lossy()
            .into_owned(),
    )
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Logger>()?;
    module.add_function(wrap_pyfunction!(target::default_logger, module)?)?;
    module.add_function(wrap_pyfunction!(target::set_default_logger, module)?)?;
    module.add_function(wrap_pyfunction!(configure::configure, module)?)?;
    module.add_function(wrap_pyfunction!(configure::load_env, module)?)
}
