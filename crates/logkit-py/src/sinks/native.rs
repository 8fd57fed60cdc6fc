//! What all native sinks can do.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use logkit::{Entry, Logger, Sink, SinkError, lock::Mutex};
use pyo3::{
    PyClass, PyTypeInfo,
    exceptions::{PyOSError, PyValueError},
    intern,
    prelude::*,
};

use super::live::{Context, Held, Tree, is_draining_on_writer};
use super::{
    Child, Root,
    handle::{Handle, Made, Recipe, Traits},
    in_sinks,
};
use crate::entry::entry_of;

/// How long a caller waits until its entry is written.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A sink that works without Python: the base of all of them, and never made itself.
///
/// A sink may be in several loggers and wrappers, and be written to directly: `write` returns when the
/// entry is with the file, or committed. What goes wrong is told on stderr once, and never raised.
#[pyclass(frozen, subclass, module = "logkit._native")]
pub(crate) struct NativeSink {
    handle: Option<Arc<Handle>>,
    /// What stands between the brackets of its repr.
    about: String,
    delegate: Option<Py<PyAny>>,
    held: Arc<Held>,
    own: OnceLock<Own>,
}

/// What `write` goes through.
enum Own {
    Logger(Logger),
    Tree(Tree),
}

/// Those of sinks written in Python that are written to directly. Locked by threads only that hold
/// the interpreter, and never for long, so no fork finds it locked.
static TREES: Mutex<Vec<Tree>> = Mutex::new(Vec::new());

/// Closes what is written to directly and has a part written in Python, at the end of the program: it
/// may hold entries back.
pub(crate) fn drain(py: Python<'_>) {
    let trees = TREES.lock().clone();
    for tree in trees {
        tree.flush(py);
        tree.close(py);
    }
}

/// What a class says of a sink that it makes.
pub(crate) struct Draft<'py> {
    pub(crate) name: &'static str,
    pub(crate) about: String,
    pub(crate) delegate: Option<Bound<'py, PyAny>>,
    pub(crate) traits: Traits,
    pub(crate) recipe: Recipe,
    /// Make it now: what is wrong with it shows at once.
    pub(crate) is_eager: bool,
}

impl<'py> Draft<'py> {
    /// A wrapper around `delegate`, of which the same is known.
    pub(crate) fn around<S: Sink + 'static>(
        name: &'static str,
        delegate: Bound<'py, PyAny>,
        wrap: impl Fn(Box<dyn Sink>) -> Result<S, SinkError> + Send + Sync + 'static,
    ) -> PyResult<Draft<'py>> {
        let child = Child::of(&delegate)?;
        Ok(Draft {
            name,
            about: delegate.repr()?.to_string_lossy().into_owned(),
            traits: child.traits().into_owned(),
            recipe: Box::new(move |_| Ok(Made::new(wrap(child.sink())?))),
            delegate: Some(delegate),
            is_eager: false,
        })
    }

    /// The sink, as the base of an object of a class.
    pub(crate) fn base(self, py: Python<'_>) -> PyResult<NativeSink> {
        let held = Arc::new(Held::new(if self.traits.is_live {
            self.traits.holds
        } else {
            0
        }));
        let handle = Handle::new(self.name, self.traits, self.recipe);
        if self.is_eager {
            in_sinks(py, || handle.open()).map_err(raised)?;
        }
        Ok(NativeSink {
            handle: Some(handle),
            about: self.about,
            delegate: self.delegate.map(Bound::unbind),
            held,
            own: OnceLock::new(),
        })
    }

    /// An object of that class.
    pub(crate) fn make<T>(self, py: Python<'_>, class: T) -> PyResult<PyClassInitializer<T>>
    where
        T: PyClass<BaseType = NativeSink>,
    {
        Ok(PyClassInitializer::from(self.base(py)?).add_subclass(class))
    }
}

/// The Python exception for what went wrong while a sink was made.
pub(crate) fn raised(error: SinkError) -> PyErr {
    match error {
        SinkError::Io { path, source } => match source.raw_os_error() {
            Some(code) => {
                let said = std::io::Error::from_raw_os_error(code).to_string();
                let said = said
                    .split(" (os error")
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                PyOSError::new_err((code, said, path.into_os_string()))
            }
            None => PyOSError::new_err(format!("{}: {source}", path.display())),
        },
        error @ SinkError::Db { .. } => PyOSError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// True if a class written in Python has a `write` of its own.
pub(crate) fn is_overridden(sink: &Bound<'_, NativeSink>) -> PyResult<bool> {
    let py = sink.py();
    let name = intern!(py, "write");
    let ours = NativeSink::type_object(py).getattr(name)?;
    Ok(!sink.get_type().getattr(name)?.is(&ours))
}

impl NativeSink {
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        match &self.handle {
            Some(handle) => handle,
            None => unreachable!("it is there until this is dropped"),
        }
    }

    pub(crate) fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held)
    }

    fn own(&self) -> &Own {
        self.own.get_or_init(|| {
            let child = Child::Native(Arc::clone(self.handle()));
            if child.traits().is_live {
                let tree = Tree::new(child, self.held());
                TREES.lock().push(tree.clone());
                return Own::Tree(tree);
            }
            let describe = move || {
                Logger::builder()
                    .name(child.name())
                    .redactor(None)
                    .sink(Root::new(&child))
            };
            let logger = describe().after_fork(describe).build();
            crate::watched::watch(&logger);
            Own::Logger(logger)
        })
    }

    fn put(&self, py: Python<'_>, entries: Vec<Entry>) {
        if self.handle().is_closed() {
            return;
        }
        if is_draining_on_writer() {
            // A writer waits for no writer: it may be the same one.
            let tree = Tree::new(Child::Native(Arc::clone(self.handle())), self.held());
            let outcome = in_sinks(py, || self.handle().with(|sink| sink.write_batch(&entries)));
            tree.settle(py, outcome, &Context::texts());
            return;
        }
        if let Own::Logger(logger) = self.own() {
            // Whatever goes wrong is counted and told by the logger.
            let _ = py.detach(|| logger.emit_batch_acked(entries).wait(TIMEOUT));
        }
    }

    /// The counts it serves, when everything that was logged before is in them.
    pub(crate) fn catch_up(&self, py: Python<'_>) {
        if !is_draining_on_writer() {
            py.detach(|| self.handle().catch_up(TIMEOUT));
        }
    }
}

impl Drop for NativeSink {
    /// Closing takes time, in which others may want the interpreter.
    fn drop(&mut self) {
        let handle = self.handle.take();
        let own = self.own.take();
        if let Some(Own::Tree(tree)) = &own {
            TREES.lock().retain(|known| !known.is(tree));
        }
        let _ = Python::try_attach(|py| {
            py.detach(move || {
                drop(own);
                drop(handle);
            });
        });
    }
}

#[pymethods]
impl NativeSink {
    /// Writes one entry; returns when it is with the file.
    fn write(&self, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        let rendered = entry_of(entry)?;
        if !self.handle().traits().is_live {
            self.put(entry.py(), vec![rendered]);
        } else if let Own::Tree(tree) = self.own()
            && !self.handle().is_closed()
        {
            tree.write(entry, &rendered);
        }
        Ok(())
    }

    /// Writes several entries, together if they go to a database.
    fn write_batch(&self, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let entries: Vec<Bound<'_, PyAny>> = entries.try_iter()?.collect::<PyResult<_>>()?;
        let Some(first) = entries.first() else {
            return Ok(());
        };
        if self.handle().traits().is_live {
            return entries.iter().try_for_each(|entry| self.write(entry));
        }
        let rendered = entries.iter().map(entry_of).collect::<PyResult<_>>()?;
        self.put(first.py(), rendered);
        Ok(())
    }

    /// Waits until everything that was logged before is with the operating system.
    fn flush(&self, py: Python<'_>) {
        self.catch_up(py);
        match self.own.get() {
            Some(Own::Tree(tree)) => tree.flush(py),
            Some(Own::Logger(logger)) if !is_draining_on_writer() => {
                py.detach(|| logger.flush(TIMEOUT));
            }
            _ => {
                let tree = Tree::new(Child::Native(Arc::clone(self.handle())), self.held());
                tree.flush(py);
            }
        }
    }

    /// Writes what waits and closes the sink; it takes nothing any more. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        if self.handle().is_closed() {
            return;
        }
        self.catch_up(py);
        match self.own.get() {
            Some(Own::Tree(tree)) => tree.close(py),
            Some(Own::Logger(logger)) if !is_draining_on_writer() => {
                py.detach(|| logger.close());
            }
            _ => {}
        }
        let tree = Tree::new(Child::Native(Arc::clone(self.handle())), self.held());
        let outcome = in_sinks(py, || self.handle().close());
        tree.settle(py, outcome, &Context::held(&self.held));
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.handle().is_closed()
    }

    /// The sink that every entry goes to from here, or `None`.
    #[getter]
    fn delegate<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let delegate = self.delegate.as_ref();
        delegate.map(|delegate| delegate.bind(py).clone())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("{}({})", this.get_type().name()?, this.get().about))
    }
}
