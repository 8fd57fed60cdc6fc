//! Entries with the objects of the call, for sinks written in Python.

use logkit::Entry;
use pyo3::prelude::*;

/// Sinks of which some are written in Python.
pub(crate) struct Tree {}

impl Tree {
    /// Hands an entry to the sinks, in this thread; `live` is the `LogEntry` of it. What fails is
    /// counted, and told once on stderr.
    pub(crate) fn write(&self, live: &Bound<'_, PyAny>, entry: &Entry) {
        let _ = (live, entry);
    }

    /// Calls of sinks that failed so far.
    pub(crate) fn errors(&self) -> u64 {
        0
    }

    /// Lets the sinks write what they hold.
    pub(crate) fn flush(&self, _py: Python<'_>) {}

    /// Closes the sinks, each once.
    pub(crate) fn close(&self, _py: Python<'_>) {}
}

/// A `LogEntry` of that entry: with those objects where there are some, else with its texts.
pub(crate) fn log_entry<'py>(
    py: Python<'py>,
    entry: &Entry,
    args: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyAny>>,
    return_value: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = (entry, args, kwargs, return_value);
    Ok(py.None().into_bound(py))
}

/// The entry of a `LogEntry`: its objects rendered, unless that was done before the call.
pub(crate) fn entry_of(live: &Bound<'_, PyAny>) -> PyResult<Entry> {
    let _ = live;
    Ok(Entry::default())
}
