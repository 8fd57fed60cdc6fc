//! Sinks around other sinks.

use std::{path::PathBuf, sync::Arc, sync::atomic::Ordering::Relaxed};

use logkit::{Level, Tags};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use super::live::{Router, RouterPort};
use super::{
    Child, arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EnvTagger>()?;
    module.add_class::<DiffTracker>()?;
    module.add_class::<DynamicRouter>()?;
    module.add_class::<RingBufferSink>()?;
    module.add_class::<AsyncBufferedSink>()
}

/// Fills the empty tags of entries on their way to `delegate`: environment, trace id and version.
///
/// With `auto_detect` what is not given is taken from the environment of the process; a trace id is
/// made if there is none, and with `git=True` the commit that is checked out is the version.
#[pyclass(name = "EnvTagger", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct EnvTagger {
    tags: [String; 3],
}

#[pymethods]
impl EnvTagger {
    #[new]
    #[pyo3(signature = (delegate, *, environment = None, trace_id = None, version = None, auto_detect = true, git = false))]
    fn new(
        py: Python<'_>,
        delegate: Bound<'_, PyAny>,
        environment: Option<String>,
        trace_id: Option<String>,
        version: Option<String>,
        auto_detect: bool,
        git: bool,
    ) -> PyResult<PyClassInitializer<EnvTagger>> {
        let text = Option::unwrap_or_default;
        let mut tags = Tags::new(&text(environment), &text(trace_id), &text(version));
        if auto_detect {
            tags = tags.or(Tags::detected(&given::ambient()));
        }
        if git {
            tags = py.detach(|| tags.git());
        }
        // They do not show otherwise.
        let mut filled = logkit::Entry::default();
        tags.fill(&mut filled);
        let shown = [filled.environment, filled.trace_id, filled.version].map(String::from);
        let draft = Draft::around("tagger", delegate, move |sink| {
            Ok(logkit::EnvTagger::new(sink, tags.clone()))
        });
        draft?.make(py, EnvTagger { tags: shown })
    }

    /// The environment that is filled in.
    #[getter]
    fn environment(&self) -> &str {
        &self.tags[0]
    }

    /// The trace id that is filled in.
    #[getter]
    fn trace_id(&self) -> &str {
        &self.tags[1]
    }

    /// The version that is filled in.
    #[getter]
    fn version(&self) -> &str {
        &self.tags[2]
    }
}

/// Tells when the same call gives something else in another version of the program.
///
/// Compares each call with the last one of the same function and arguments, and adds `version_diff`,
/// `prev_version` and `prev_return` to `extra`. `store` is the database that remembers calls from run to
/// run: a path or a `DbSink`, and the one behind `delegate` unless another is given.
#[pyclass(name = "DiffTracker", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct DiffTracker;

#[pymethods]
impl DiffTracker {
    #[new]
    #[pyo3(signature = (delegate, store = None, max_keys = 10_000))]
    fn new(
        py: Python<'_>,
        delegate: Bound<'_, PyAny>,
        store: Option<&Bound<'_, PyAny>>,
        max_keys: i64,
    ) -> PyResult<PyClassInitializer<DiffTracker>> {
        let max_keys = given::at_least("max_keys", 1, max_keys)? as usize;
        let store = match store {
            None => Child::of(&delegate)?.traits().database.clone(),
            Some(store) => Some(store_path(store)?),
        };
        let draft = Draft::around("diff", delegate, move |sink| {
            let tracker = match &store {
                Some(path) => logkit::DiffTracker::with_store(sink, path)?,
                None => logkit::DiffTracker::new(sink),
            };
            Ok(tracker.max_keys(max_keys))
        });
        draft?.make(py, DiffTracker)
    }
}

/// The database that an argument names.
fn store_path(store: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    if let Ok(sink) = store.cast::<NativeSink>() {
        let database = sink.get().handle().traits().database.clone();
        return database.ok_or_else(|| PyValueError::new_err("store has no database behind it"));
    }
    match store.extract::<PathBuf>() {
        Ok(path) => given::place(path),
        Err(_) => Err(PyTypeError::new_err(
            "store is the path of a database or a DbSink",
        )),
    }
}

/// Sends each entry to one of several sinks: `rules` are pairs `(predicate, sink)`, and the first
/// predicate that is true of the entry wins.
///
/// A predicate that raises does not hold. What no rule wants goes to `default`, or is dropped and
/// counted in `unmatched`. Predicates are called in the thread of the logged call.
#[pyclass(name = "DynamicRouter", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct DynamicRouter {
    router: Arc<Router>,
}

#[pymethods]
impl DynamicRouter {
    #[new]
    #[pyo3(signature = (rules, default = None))]
    fn new(
        py: Python<'_>,
        rules: &Bound<'_, PyAny>,
        default: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<DynamicRouter>> {
        let mut parsed = Vec::new();
        for rule in rules.try_iter()? {
            let (predicate, sink): (Bound<'_, PyAny>, Bound<'_, PyAny>) = rule?
                .extract()
                .map_err(|_| PyTypeError::new_err("rules are pairs of a predicate and a sink"))?;
            if !predicate.is_callable() {
                return Err(PyTypeError::new_err("a predicate is not callable"));
            }
            parsed.push((predicate.unbind(), Child::of(&sink)?));
        }
        let n_rules = parsed.len();
        let default_child = given::delegate(default.as_ref())?;
        let router = Arc::new(Router::new(parsed, default_child));
        let traits = Traits {
            is_live: true,
            ..Traits::default()
        };
        let traits = router
            .sinks()
            .iter()
            .fold(traits, |traits, sink| traits.and(&sink.traits()));
        let port = Arc::clone(&router);
        let draft = Draft {
            name: "router",
            about: format!("{n_rules} rules"),
            delegate: default,
            // Several databases are no place to remember something in.
            traits: Traits {
                database: None,
                ..traits
            },
            recipe: Box::new(move |_| Ok(Made::new(RouterPort::new(&port)))),
            is_eager: false,
        };
        draft.make(py, DynamicRouter { router })
    }

    /// Number of entries that no rule wanted.
    #[getter]
    fn unmatched(&self) -> u64 {
        self.router.unmatched().load(Relaxed)
    }
}

/// Holds the last `capacity` entries in memory; one whose level is in `trigger_levels` (ERROR and
/// CRITICAL) hands them to `delegate`, and then itself unless `include_trigger` is false.
#[pyclass(name = "RingBufferSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct RingBufferSink;

#[pymethods]
impl RingBufferSink {
    #[new]
    #[pyo3(signature = (delegate, capacity = 1000, trigger_levels = None, include_trigger = true))]
    fn new(
        py: Python<'_>,
        delegate: Bound<'_, PyAny>,
        capacity: i64,
        trigger_levels: Option<&Bound<'_, PyAny>>,
        include_trigger: bool,
    ) -> PyResult<PyClassInitializer<RingBufferSink>> {
        let capacity = given::at_least("capacity", 0, capacity)? as usize;
        let levels = match trigger_levels {
            Some(levels) => given::levels(levels)?,
            None => vec![Level::Error, Level::Critical],
        };
        let mut draft = Draft::around("ring", delegate, move |sink| {
            Ok(logkit::RingBufferSink::new(sink, capacity)
                .trigger_levels(levels.clone())
                .include_trigger(include_trigger))
        })?;
        draft.about = format!("{}, {capacity}", draft.about);
        draft.traits.holds = draft.traits.holds.saturating_add(capacity);
        draft.make(py, RingBufferSink)
    }
}

/// Hands entries to `delegate` as they are: native sinks have a queue already. For programs that were
/// written for it; other arguments are taken and do nothing.
#[pyclass(name = "AsyncBufferedSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct AsyncBufferedSink;

#[pymethods]
impl AsyncBufferedSink {
    #[new]
    #[pyo3(signature = (delegate, **_ignored))]
    fn new(
        py: Python<'_>,
        delegate: Bound<'_, PyAny>,
        _ignored: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<AsyncBufferedSink>> {
        Draft::around("buffered", delegate, Ok)?.make(py, AsyncBufferedSink)
    }
}
