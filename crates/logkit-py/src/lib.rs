//! The native half of the Python package `logkit`: capture of calls, loggers and sinks.
//!
//! `site.rs` begins every logged call and `site/call.rs` ends it: arguments are rendered before and the result
//! after it (`render.rs`), errors with their traceback (`traceback.rs`), and the entry goes to a logger
//! (`logger.rs`). A logger whose sinks are all native only queues; one with sinks written in Python also walks
//! those, in the caller's thread, with the objects of the call (`sinks/live.rs`). `sinks/` gives
//! every native sink its Python class. `context.rs` knows the span around a call, and `lifecycle.rs` what
//! happens when the process forks or ends.
#![expect(
    clippy::too_many_arguments,
    clippy::fn_params_excessive_bools,
    reason = "classes and functions take what they take in Python"
)]

mod context;
mod entry;
mod functions;
mod lifecycle;
mod logger;
mod redaction;
mod render;
mod sinks;
mod site;
mod traceback;
mod watched;

use pyo3::prelude::*;

/// The module `logkit._native`.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::register(module)
    }
}

fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The first import of the process, which no other thread takes part in.
    #[cfg(target_os = "linux")]
    logkit::lock_wal_index_by_open_file();
    functions::register(module)?;
    sinks::register(module)?;
    logger::register(module)?;
    site::register(module)?;
    lifecycle::register(module)
}
