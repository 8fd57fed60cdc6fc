//! The classes of native sinks and wrappers.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::live::Tree;

pub(crate) fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}

/// Where a logger puts a sink that Python gave it.
pub(crate) enum Place {
    /// All of it is native: it belongs to the writer's thread. Asked once per process: after a fork a
    /// logger asks for it again.
    Native(Box<dyn logkit::Sink>),
    /// Some of it is written in Python: it is walked in the caller's thread.
    Object(Arc<Tree>),
}

/// Says where that sink goes. Anything with a method `write` is a sink; else a `TypeError`.
pub(crate) fn place(sink: &Bound<'_, PyAny>) -> PyResult<Place> {
    let _ = sink;
    Err(pyo3::exceptions::PyTypeError::new_err("not a sink"))
}
