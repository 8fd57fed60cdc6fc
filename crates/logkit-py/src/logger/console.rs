//! Where the lines of entries go: to the handlers that the user gave the logger of that name of the module
//! `logging`, else to stderr.

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use logkit::{ConsoleSink, ConsoleTime, Entry, console_line, console_message};
use pyo3::{
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyList, PyModule},
};

use super::settings::Settings;

/// How long the lines before may take when they go elsewhere from now on.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The console of a logger.
pub(super) struct Console {
    /// The logger of that name of the module `logging`.
    stdlib: Option<Py<PyAny>>,
    /// Lines are written where it has no handler.
    lines: bool,
    time: ConsoleTime,
    name: String,
    /// The writer's thread writes lines.
    is_native: Arc<AtomicBool>,
}

/// Where the line of an entry goes.
pub(super) enum Route<'py> {
    /// To the stderr of the process, by the writer's thread.
    Native,
    /// To handlers, by the caller.
    Handlers,
    /// To the object that stands for stderr, by the caller.
    Stderr(Bound<'py, PyAny>),
    Nowhere,
}

/// How the native console is made, and made again in a forked process.
#[derive(Clone)]
pub(super) struct NativeConsole {
    pub(super) time: ConsoleTime,
    pub(super) colors: bool,
    pub(super) is_on: Arc<AtomicBool>,
}

impl NativeConsole {
    pub(super) fn new(time: ConsoleTime, no_color: bool) -> NativeConsole {
        NativeConsole {
            time,
            colors: std::io::stderr().is_terminal() && !no_color,
            is_on: Arc::new(AtomicBool::new(true)),
        }
    }

    pub(super) fn sink(&self) -> ConsoleSink {
        ConsoleSink::stderr()
            .time(self.time)
            .colors(self.colors)
            .switch(Arc::clone(&self.is_on))
    }
}

impl Console {
    /// The console that the settings ask for.
    pub(super) fn new(py: Python<'_>, settings: &Settings) -> PyResult<Option<Console>> {
        if !settings.console && !settings.propagate {
            return Ok(None);
        }
        let native = &settings.native_console;
        let stdlib = if settings.propagate {
            let get_logger = py.import(intern!(py, "logging"))?.getattr("getLogger")?;
            let logger = get_logger.call1((&settings.name,))?;
            // Its lines would come twice.
            logger.setattr(intern!(py, "propagate"), false)?;
            Some(logger.unbind())
        } else {
            None
        };
        Ok(Some(Console {
            stdlib,
            lines: settings.console,
            time: native.time,
            name: settings.name.clone(),
            is_native: Arc::clone(&native.is_on),
        }))
    }

    /// Where a line goes now: programs change their handlers and their stderr at any time.
    pub(super) fn route<'py>(&self, py: Python<'py>) -> Route<'py> {
        if let Some(stdlib) = &self.stdlib
            && has_handlers(stdlib.bind(py)).unwrap_or(false)
        {
            return Route::Handlers;
        }
        if !self.lines {
            return Route::Nowhere;
        }
        match stderr(py) {
            Ok((stderr, true)) if !stderr.is_none() => Route::Native,
            Ok((stderr, _)) if !stderr.is_none() => Route::Stderr(stderr),
            _ => Route::Nowhere,
        }
    }

    /// Says whether the writer's thread writes lines. Those of before come first.
    #[inline]
    pub(super) fn switch(&self, py: Python<'_>, native: &logkit::Logger, on: bool) {
        if self.is_native.load(Relaxed) != on {
            if !on {
                py.detach(|| native.flush(TIMEOUT));
            }
            self.is_native.store(on, Relaxed);
        }
    }

    /// Hands a line to Python code. What that raises is of no interest.
    pub(super) fn write(&self, py: Python<'_>, route: &Route<'_>, entry: &Entry) {
        let _ = match route {
            Route::Native | Route::Nowhere => Ok(()),
            Route::Handlers => self.handle(py, entry),
            Route::Stderr(stderr) => {
                let mut line = console_line(entry, &self.name, self.time);
                line.push('\n');
                stderr.call_method1(intern!(py, "write"), (line,)).map(drop)
            }
        };
    }

    fn handle(&self, py: Python<'_>, entry: &Entry) -> PyResult<()> {
        let Some(stdlib) = &self.stdlib else {
            return Ok(());
        };
        let stdlib = stdlib.bind(py);
        let level = entry.level.number();
        let lowest: u32 = stdlib.getattr(intern!(py, "level"))?.extract()?;
        if u32::from(level) < lowest {
            return Ok(());
        }
        let record = stdlib.call_method1(
            intern!(py, "makeRecord"),
            (
                &self.name,
                level,
                &*entry.module,
                0,
                // A message without arguments is taken as it is.
                console_message(entry),
                (),
                py.None(),
                &*entry.function_name,
            ),
        )?;
        stdlib
            .call_method1(intern!(py, "handle"), (record,))
            .map(drop)
    }
}

/// True if a record would be seen by anybody.
fn has_handlers(stdlib: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = stdlib.py();
    let handlers = stdlib.getattr(intern!(py, "handlers"))?;
    let has_some = match handlers.cast_exact::<PyList>() {
        Ok(handlers) => !handlers.is_empty(),
        Err(_) => handlers.is_truthy()?,
    };
    if has_some || !stdlib.getattr(intern!(py, "propagate"))?.is_truthy()? {
        return Ok(has_some);
    }
    stdlib.call_method0(intern!(py, "hasHandlers"))?.is_truthy()
}

/// What stands for stderr now, and whether it is the process's own.
fn stderr(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, bool)> {
    static SYS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    static OWN: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let sys = SYS
        .get_or_try_init(py, || PyResult::Ok(py.import("sys")?.unbind()))?
        .bind(py);
    let stderr = sys.getattr(intern!(py, "stderr"))?;
    let own = OWN.get_or_init(py, || {
        let own = sys.getattr("__stderr__").ok()?;
        let number: i32 = own.call_method0("fileno").ok()?.extract().ok()?;
        (number == 2).then(|| own.unbind())
    });
    let is_own = own.as_ref().is_some_and(|own| stderr.is(own));
    Ok((stderr, is_own))
}
