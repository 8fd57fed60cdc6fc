//! The loggers that calls go to, and the default one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use arc_swap::ArcSwapOption;
use logkit::{Entry, Redactor, SpanId};
use pyo3::{
    exceptions::PyTypeError,
    intern,
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{Core, Logger};
use crate::{entry::log_entry, redaction::Redaction};

/// A logger.
pub(crate) enum Target {
    Ours(Arc<Core>, Py<Logger>),
    /// Any object with a method `emit`.
    Other(Py<PyAny>),
}

/// The objects of a call, for whoever wants them.
#[derive(Default)]
pub(crate) struct Live<'py> {
    pub(crate) args: Option<Bound<'py, PyTuple>>,
    pub(crate) kwargs: Option<Bound<'py, PyDict>>,
    pub(crate) result: Option<Bound<'py, PyAny>>,
}

impl<'py> Live<'py> {
    /// The `LogEntry` of that entry with these objects.
    pub(crate) fn log_entry(&self, py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
        log_entry(
            py,
            entry,
            self.args.as_ref().map(Bound::as_any),
            self.kwargs.as_ref().map(Bound::as_any),
            self.result.as_ref(),
        )
    }
}

impl Target {
    /// Rank of the lowest level taken.
    #[inline]
    pub(crate) fn level(&self) -> u8 {
        match self {
            Target::Ours(core, _) => core.level(),
            Target::Other(_) => 0,
        }
    }

    /// The span of the process that started this one.
    pub(crate) fn root(&self) -> Option<SpanId> {
        match self {
            Target::Ours(core, _) => core.root,
            Target::Other(_) => None,
        }
    }

    #[inline]
    pub(crate) fn wants_objects(&self) -> bool {
        match self {
            Target::Ours(core, _) => core.has_trees(),
            Target::Other(_) => true,
        }
    }

    pub(crate) fn redaction(&self) -> Redaction {
        match self {
            Target::Ours(core, _) => core.redaction.clone(),
            Target::Other(_) => Redaction {
                redactor: Some(Redactor::shared()),
                judge: None,
            },
        }
    }

    pub(crate) fn binary_meta(&self) -> bool {
        match self {
            Target::Ours(core, _) => core.binary_meta,
            Target::Other(_) => false,
        }
    }

    pub(crate) fn emit<'py>(&self, py: Python<'py>, entry: Entry, live: &Live<'py>) {
        match self {
            Target::Ours(core, _) => core.emit(py, entry, live),
            Target::Other(logger) => emit_elsewhere(logger.bind(py), &entry, live),
        }
    }

    fn object(&self, py: Python<'_>) -> Py<PyAny> {
        match self {
            Target::Ours(_, logger) => logger.clone_ref(py).into_any(),
            Target::Other(logger) => logger.clone_ref(py),
        }
    }
}

/// Hands an entry to a logger that somebody else wrote; the first error is told.
fn emit_elsewhere<'py>(logger: &Bound<'py, PyAny>, entry: &Entry, live: &Live<'py>) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let py = logger.py();
    let _quiet = logkit::silence();
    let emitted = live
        .log_entry(py, entry)
        .and_then(|live| logger.call_method1(intern!(py, "emit"), (live,)));
    if let Err(error) = emitted
        && !TOLD.swap(true, Relaxed)
    {
        logkit::notice(&format!("a logger failed: {error}"));
    }
}

/// The target that an object is: a `Logger`, or anything with a method `emit`.
pub(crate) fn of(logger: &Bound<'_, PyAny>) -> PyResult<Target> {
    let py = logger.py();
    let emit = intern!(py, "emit");
    if let Ok(ours) = logger.cast::<Logger>() {
        // A class of the user's may do something else with entries.
        let is_overridden = !logger
            .get_type()
            .getattr(emit)?
            .is(py.get_type::<Logger>().getattr(emit)?);
        if !is_overridden {
            return Ok(Target::Ours(ours.get().core(), ours.clone().unbind()));
        }
    }
    if logger.getattr(emit).is_ok_and(|emit| emit.is_callable()) {
        return Ok(Target::Other(logger.clone().unbind()));
    }
    Err(PyTypeError::new_err("a logger has a method emit(entry)"))
}

static DEFAULT: ArcSwapOption<Target> = ArcSwapOption::const_empty();

/// The default logger; unless one was set it is made now, and writes to the console only. `None` if
/// that fails.
#[inline]
pub(crate) fn current(py: Python<'_>) -> Option<Arc<Target>> {
    DEFAULT.load_full().or_else(|| make(py).ok())
}

#[cold]
fn make(py: Python<'_>) -> PyResult<Arc<Target>> {
    let made = Arc::new(of(Bound::new(py, Logger::console_only(py)?)?.as_any())?);
    let before = DEFAULT.compare_and_swap(&None::<Arc<Target>>, Some(Arc::clone(&made)));
    Ok(match &*before {
        Some(before) => Arc::clone(before),
        None => made,
    })
}

/// The default logger. Unless one was set it is made now, and writes to the console only.
#[pyfunction]
pub(crate) fn default_logger(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let target = match DEFAULT.load_full() {
        Some(target) => target,
        None => make(py)?,
    };
    Ok(target.object(py))
}

/// Makes that the default logger, also of functions which were decorated before.
#[pyfunction]
pub(crate) fn set_default_logger(logger: &Bound<'_, PyAny>) -> PyResult<()> {
    DEFAULT.store(Some(Arc::new(of(logger)?)));
    Ok(())
}
