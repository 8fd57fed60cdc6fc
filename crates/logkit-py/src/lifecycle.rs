//! What loggers do when the process forks or ends.

use std::{
    collections::HashMap,
    sync::mpsc,
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use logkit::{ForkGuard, lock::Mutex};
use pyo3::{
    intern,
    prelude::*,
    types::{PyDict, PyTuple},
};

use crate::{
    logger::cores,
    sinks::{self, ForkPause},
    watched::loggers,
};

/// How long the end of the process waits.
const DRAIN: Duration = Duration::from_secs(5);

/// What threads hold that are about to fork.
static FORKING: Mutex<Option<HashMap<ThreadId, Held>>> = Mutex::new(None);

/// Sinks go on before their loggers do.
struct Held {
    _sinks: ForkPause,
    _loggers: Vec<ForkGuard>,
}

/// Holds all writers while this thread forks.
#[pyfunction(name = "_before_fork")]
fn before_fork(py: Python<'_>) {
    let guards = py.detach(|| loggers().iter().map(logkit::Logger::before_fork).collect());
    let held = Held {
        _sinks: sinks::before_fork(py),
        _loggers: guards,
    };
    FORKING
        .lock()
        .get_or_insert_default()
        .insert(thread::current().id(), held);
}

/// Lets them go on.
#[pyfunction(name = "_after_fork")]
fn after_fork() {
    let guards = FORKING
        .lock()
        .as_mut()
        .and_then(|all| all.remove(&thread::current().id()));
    drop(guards);
}

/// The same in the new process, which has no writers: loggers make theirs when they need one.
#[pyfunction(name = "_in_child")]
fn in_child(py: Python<'_>) -> PyResult<()> {
    let guards = FORKING.lock().take();
    drop(guards);
    drain_with_multiprocessing(py)
}

/// Writes what waits, for at most five seconds, and closes all sinks.
#[pyfunction(name = "_drain")]
fn drain(py: Python<'_>) {
    let cores = cores();
    for core in &cores {
        core.close_trees(py);
    }
    sinks::drain(py);
    py.detach(|| {
        let deadline = Instant::now() + DRAIN;
        let (done, closed) = mpsc::channel::<()>();
        for logger in loggers() {
            let done = done.clone();
            let close = move || {
                logger.close();
                drop(done);
            };
            // Without threads nothing waits: they have no writers.
            let _ = thread::Builder::new()
                .name("logkit-drain".into())
                .spawn(close);
        }
        drop(done);
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = closed.recv_timeout(left);
    });
    drop(cores);
}

/// Processes of the module `multiprocessing` end without the functions of `atexit`.
#[pyfunction(name = "_drain_in_child", signature = (*ignored))]
fn drain_in_child(ignored: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = ignored.py();
    let util = py.import(intern!(py, "multiprocessing.util"))?;
    let options = PyDict::new(py);
    options.set_item("exitpriority", 0)?;
    let drain = py
        .import(intern!(py, "logkit._native"))?
        .getattr("_drain")?;
    util.getattr("Finalize")?
        .call((py.None(), drain), Some(&options))?;
    Ok(())
}

fn drain_with_multiprocessing(py: Python<'_>) -> PyResult<()> {
    let modules = py
        .import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?;
    let Ok(util) = modules.get_item("multiprocessing.util") else {
        return Ok(());
    };
    let native = modules.get_item("logkit._native")?;
    util.call_method1(
        "register_after_fork",
        (&native, native.getattr("_drain_in_child")?),
    )?;
    Ok(())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for function in [
        wrap_pyfunction!(before_fork, module)?,
        wrap_pyfunction!(after_fork, module)?,
        wrap_pyfunction!(in_child, module)?,
        wrap_pyfunction!(drain, module)?,
        wrap_pyfunction!(drain_in_child, module)?,
    ] {
        module.add_function(function)?;
    }
    py.import("atexit")?
        .call_method1("register", (module.getattr("_drain")?,))?;
    let os = py.import("os")?;
    // Windows does not fork.
    if let Some(register) = os.getattr_opt("register_at_fork")? {
        let hooks = PyDict::new(py);
        hooks.set_item("before", module.getattr("_before_fork")?)?;
        hooks.set_item("after_in_parent", module.getattr("_after_fork")?)?;
        hooks.set_item("after_in_child", module.getattr("_in_child")?)?;
        register.call((), Some(&hooks))?;
    }
    // A process of the module may have forked before it loaded this.
    let modules = py.import("sys")?.getattr("modules")?;
    if let Ok(util) = modules.get_item("multiprocessing.util") {
        util.call_method1(
            "register_after_fork",
            (module, module.getattr("_drain_in_child")?),
        )?;
    }
    Ok(())
}
