//! Sinks written in Python.

use std::{borrow::Cow, io::Write, sync::Arc};

use logkit::{Entry, Sink, SinkError};
use pyo3::{
    exceptions::{PyKeyboardInterrupt, PyTypeError},
    intern,
    prelude::*,
    types::PyType,
};

use super::pending::{Action, later};

/// A Python object with a method `write`, and perhaps `flush` and `close`.
pub(crate) struct Object {
    sink: Py<PyAny>,
    name: String,
    /// It is called from the writer's thread, with texts.
    is_threaded: bool,
}

impl Object {
    /// True if both are the same object of Python.
    pub(crate) fn is(&self, other: &Object) -> bool {
        self.sink.is(&other.sink)
    }

    pub(crate) fn new(sink: &Bound<'_, PyAny>) -> PyResult<Arc<Object>> {
        let py = sink.py();
        let is_sink = !sink.is_instance_of::<PyType>()
            && sink
                .getattr_opt(intern!(py, "write"))?
                .is_some_and(|write| write.is_callable());
        let name = sink.get_type().name()?.to_string();
        if !is_sink {
            let what = match sink.cast::<PyType>() {
                Ok(class) => format!("the class {}; make an object of it", class.name()?),
                Err(_) => format!("an object of type {name} without a method write(entry)"),
            };
            return Err(PyTypeError::new_err(format!(
                "a sink is wanted, not {what}"
            )));
        }
        let is_threaded = match sink.getattr_opt(intern!(py, "threaded"))? {
            Some(threaded) => threaded.is_truthy()?,
            None => false,
        };
        Ok(Arc::new(Object {
            sink: sink.clone().unbind(),
            name,
            is_threaded,
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_threaded(&self) -> bool {
        self.is_threaded
    }

    pub(crate) fn write(&self, live: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = live.py();
        self.sink
            .bind(py)
            .call_method1(intern!(py, "write"), (live,))
            .map(drop)
    }

    pub(crate) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call_if_there(py, intern!(py, "flush"))
    }

    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.call_if_there(py, intern!(py, "close"))
    }

    fn call_if_there(
        &self,
        py: Python<'_>,
        name: &Bound<'_, pyo3::types::PyString>,
    ) -> PyResult<()> {
        match self.sink.bind(py).getattr_opt(name)? {
            Some(method) => method.call0().map(drop),
            None => Ok(()),
        }
    }
}

/// Puts entries aside for a Python object.
pub(crate) struct ObjectSink(pub(crate) Arc<Object>);

impl Sink for ObjectSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        later(Action::Write {
            object: Arc::clone(&self.0),
            entries: entries.to_vec(),
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        later(Action::Flush(Arc::clone(&self.0)));
        Ok(())
    }

    /// A process that forks has nothing to fear from it.
    fn release(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), SinkError> {
        later(Action::Close(Arc::clone(&self.0)));
        Ok(())
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Owned(self.0.name.clone())
    }
}

/// What went wrong in Python code that a sink called. An interrupt that the user meant for the program
/// reaches it.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> String {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let raised_again = py
            .import(intern!(py, "_thread"))
            .and_then(|module| module.call_method0(intern!(py, "interrupt_main")));
        drop(raised_again);
    }
    let kind = error.get_type(py);
    let kind = kind
        .name()
        .map_or_else(|_| String::new(), |name| name.to_string());
    match error.value(py).str() {
        Ok(message) => format!("{kind}: {}", message.to_string_lossy()),
        Err(_) => kind,
    }
}

/// Says something about logkit itself on stderr; a closed stderr is no problem.
pub(crate) fn notice(message: &str) {
    let _ = writeln!(std::io::stderr(), "logkit: {message}");
}
