//! `configure`: a logger from arguments and the settings of the process.

use std::sync::Arc;

use llmsrv_config::{Inputs, LogkitConfig, Origin, Request, TextFile};
use logkit::{Level, Setup, Tags, lock::Mutex};
use pyo3::{
    exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeWarning, PyTypeError, PyValueError},
    intern,
    prelude::*,
    types::{PyDict, PyList, PyString},
};

use super::{
    Core, Logger,
    settings::{self, Settings},
    target,
};
use crate::redaction::Redaction;

/// Variables start with that unless another start is named.
const PREFIX: &str = "LOGKIT_";

/// The logger of an earlier call.
static MADE: Mutex<Option<Py<Logger>>> = Mutex::new(None);

/// Makes the logger that the arguments and the settings of the process describe, and the default logger of
/// it. A second call returns the same logger, unless force is set: that flushes and closes the one before.
#[pyfunction]
#[pyo3(signature = (
    *, name = "logkit", level = "DEBUG", sinks = None, propagate_stdlib = true, env_prefix = PREFIX, environment = None,
    version = None, llm_model = None, detect_injection = false, force = false, redact = None, binary = "repr",
    console = None, on_full = None, durability = None, queue = None
))]
pub(super) fn configure(
    py: Python<'_>,
    name: &str,
    level: &str,
    sinks: Option<Bound<'_, PyAny>>,
    propagate_stdlib: bool,
    env_prefix: &str,
    environment: Option<String>,
    version: Option<String>,
    llm_model: Option<String>,
    detect_injection: bool,
    force: bool,
    redact: Option<Bound<'_, PyAny>>,
    binary: &str,
    console: Option<bool>,
    on_full: Option<&str>,
    durability: Option<&str>,
    queue: Option<usize>,
) -> PyResult<Py<Logger>> {
    let before = MADE.lock().as_ref().map(|made| made.clone_ref(py));
    if let Some(made) = &before
        && !force
    {
        return Ok(made.clone_ref(py));
    }
    let (mut config, says_level) = load(env_prefix)?;
    let level = if says_level { &config.level } else { level };
    let mut settings = Settings::new(name, Level::parse(level));
    settings.read(&config);
    settings.propagate = propagate_stdlib;
    if let Some(redact) = redact.filter(|redact| !settings::is_true(redact)) {
        settings.redaction = Redaction::of(&redact)?;
    }
    settings.binary_meta = settings::binary_meta(binary)?;
    settings.policies(on_full, durability, queue)?;
    settings.tags = tags(&config, environment, version);
    config.llm_model = config.llm_model.or(llm_model);
    config.detect_injection |= detect_injection;
    let found = Found::new(py, sinks.as_ref(), &config)?;
    settings.console = console.unwrap_or(propagate_stdlib) || found.needs_console();
    let sinks = if config.llm_model.is_none() && !config.detect_injection {
        found.sinks
    } else if found.sinks.iter().all(|sink| is_native(sink)) {
        settings.wrap = Some(Arc::new(config));
        found.sinks
    } else {
        vec![explained(py, found.sinks, config.llm_model.as_deref())?]
    };
    let logger = Py::new(py, Logger(Core::new(py, settings, &sinks)?))?;
    *MADE.lock() = Some(logger.clone_ref(py));
    target::set_default_logger(logger.bind(py).as_any())?;
    if let Some(before) = before {
        before.get().0.close(py);
    }
    Ok(logger)
}

/// The settings of the process, and whether anybody said a level.
fn load(prefix: &str) -> PyResult<(LogkitConfig, bool)> {
    let wrong = |errors: llmsrv_config::Errors| PyValueError::new_err(errors.to_string());
    let mut inputs = Inputs::from_process(Request::default()).map_err(wrong)?;
    if prefix != PREFIX {
        let environment = std::mem::take(&mut inputs.environment);
        let theirs = environment
            .into_iter()
            .filter(|(name, _)| !name.starts_with(PREFIX));
        inputs.environment = theirs
            .map(|(name, value)| match name.strip_prefix(prefix) {
                Some(rest) if !prefix.is_empty() => (format!("{PREFIX}{rest}"), value),
                _ => (name, value),
            })
            .collect();
    }
    let loaded = llmsrv_config::load(&inputs).map_err(wrong)?;
    let says_level = loaded.settings.iter().any(|resolved| {
        resolved.setting.name == "LOGKIT_LEVEL" && resolved.origin != Origin::Default
    });
    Ok((loaded.config.logkit, says_level))
}

/// Entries are tagged if anybody says how.
fn tags(config: &LogkitConfig, environment: Option<String>, version: Option<String>) -> Tags {
    let setup = Setup {
        environment,
        version,
        ..Setup::default()
    };
    let said = [
        &config.env,
        &config.version,
        &config.trace_id,
        &setup.environment,
        &setup.version,
    ];
    if said.iter().any(|tag| tag.is_some()) {
        setup.tags(config)
    } else {
        Tags::default()
    }
}

/// The sinks of a logger that could be opened.
struct Found<'py> {
    sinks: Vec<Bound<'py, PyAny>>,
    /// There are none, or some could not be opened.
    lacking: bool,
}

impl<'py> Found<'py> {
    fn new(
        py: Python<'py>,
        given: Option<&Bound<'py, PyAny>>,
        config: &LogkitConfig,
    ) -> PyResult<Found<'py>> {
        let specs = |specs: &[String]| -> Vec<Bound<'py, PyAny>> {
            specs
                .iter()
                .map(|spec| PyString::new(py, spec).into_any())
                .collect()
        };
        let mut wanted = match given {
            None => specs(&config.sinks),
            Some(given) if given.is_instance_of::<PyString>() => {
                return Err(PyTypeError::new_err("sinks is a list"));
            }
            Some(given) => given.try_iter()?.collect::<PyResult<Vec<_>>>()?,
        };
        // All mistakes before anything is opened.
        for spec in &wanted {
            if let Ok(spec) = spec.cast::<PyString>() {
                settings::check(&spec.to_string_lossy())?;
            }
        }
        if let Some(port) = config.metrics_port {
            wanted.extend(specs(&[format!("metrics:{port}")]));
        }
        let mut found = Found {
            sinks: Vec::new(),
            lacking: false,
        };
        for sink in wanted {
            // What cannot be opened is found out when it is placed at the latest.
            match settings::sink_of(&sink) {
                Ok(sink) => found.sinks.push(sink),
                Err(error) if error.is_instance_of::<PyOSError>(py) => {
                    found.lacking = true;
                    let message = std::ffi::CString::new(format!("logkit: {error}"))?;
                    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 2)?;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(url) = &config.webhook_url {
            found
                .sinks
                .push(webhook(py, url.expose(), config.webhook_format.as_deref())?);
        }
        Ok(found)
    }

    fn needs_console(&self) -> bool {
        self.lacking || self.sinks.is_empty()
    }
}

fn webhook<'py>(py: Python<'py>, url: &str, format: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let Some(format) = format else {
        // The name of the host says it.
        let spec = PyString::new(py, &format!("webhook:{url}"));
        return settings::sink_of(spec.as_any());
    };
    let options = PyDict::new(py);
    options.set_item("format", format)?;
    let native = py.import(intern!(py, "logkit._native"))?;
    native.getattr("WebhookSink")?.call((url,), Some(&options))
}

fn is_native(sink: &Bound<'_, PyAny>) -> bool {
    matches!(
        crate::sinks::place(sink),
        Ok(crate::sinks::Place::Native(_))
    )
}

/// One sink with a model, or only the scan, around sinks of which some are written in Python.
fn explained<'py>(
    py: Python<'py>,
    sinks: Vec<Bound<'py, PyAny>>,
    model: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    options.set_item(
        "delegate",
        Bound::new(py, Each(PyList::new(py, sinks)?.unbind()))?,
    )?;
    if model.is_none() {
        options.set_item("analyze_levels", PyList::empty(py))?;
        options.set_item("async_mode", false)?;
    }
    let native = py.import(intern!(py, "logkit._native"))?;
    native
        .getattr("LLMSink")?
        .call((model.unwrap_or_default(),), Some(&options))
}

/// Several sinks as one.
#[pyclass(frozen, module = "logkit._native", name = "_Each")]
struct Each(Py<PyList>);

#[pymethods]
impl Each {
    /// Hands the entry to every sink; the first error is raised at the end.
    fn write(&self, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        self.all(entry.py(), |sink| {
            sink.call_method1("write", (entry,)).map(drop)
        })
    }

    /// Flushes every sink that can be.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.all(py, |sink| call_if_there(sink, "flush"))
    }

    /// Closes every sink that can be.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.all(py, |sink| call_if_there(sink, "close"))
    }
}

impl Each {
    fn all(
        &self,
        py: Python<'_>,
        call: impl Fn(&Bound<'_, PyAny>) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut outcome = Ok(());
        for sink in self.0.bind(py) {
            let done = call(&sink);
            if outcome.is_ok() {
                outcome = done;
            }
        }
        outcome
    }
}

fn call_if_there(sink: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    match sink.getattr_opt(name)? {
        Some(method) => method.call0().map(drop),
        None => Ok(()),
    }
}

/// Reads a file of NAME=value lines into os.environ, and returns what it set. Variables that are there
/// already stay as they are unless override is set.
#[pyfunction]
#[pyo3(signature = (path = None, r#override = false))]
pub(super) fn load_env<'py>(
    py: Python<'py>,
    path: Option<Bound<'py, PyAny>>,
    r#override: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let path = match &path {
        None => ".env".to_owned(),
        Some(path) => super::text_of_path(path)
            .ok_or_else(|| PyTypeError::new_err("path is a text or a path"))?,
    };
    let file = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            PyFileNotFoundError::new_err((2, "No such file or directory", path.clone()))
        }
        std::io::ErrorKind::InvalidData => PyValueError::new_err(format!("{path}: {error}")),
        _ => PyErr::from(error),
    })?;
    let inputs = Inputs {
        env_file: Some(TextFile {
            path: path.into(),
            text: file,
        }),
        ..Inputs::default()
    };
    let environment = py
        .import(intern!(py, "os"))?
        .getattr(intern!(py, "environ"))?;
    let set = PyDict::new(py);
    for (name, value) in inputs.missing_variables() {
        let value = value.to_string_lossy().into_owned();
        if r#override || !environment.contains(&name)? {
            environment.set_item(&name, &value)?;
            set.set_item(name, value)?;
        }
    }
    Ok(set)
}
