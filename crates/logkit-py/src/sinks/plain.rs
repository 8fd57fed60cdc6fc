//! Sinks for people and for nobody.

use std::{borrow::Cow, io};

use logkit::{ConsoleSink, Entry, Sink, SinkError, TerminalForm};
use pyo3::{exceptions::PyValueError, intern, prelude::*};

use super::live::{Action, later};
use super::{
    arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TerminalSink>()?;
    module.add_class::<NullSink>()
}

/// Writes lines for people to stderr: `format` is `"ascii"`, `"color"` or `"compact"`.
///
/// Where `sys.stderr` is not the stderr of the process, as in a notebook, it is written to that.
#[pyclass(name = "TerminalSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct TerminalSink;

#[pymethods]
impl TerminalSink {
    #[new]
    #[pyo3(signature = (format = "ascii"))]
    fn new(py: Python<'_>, format: &str) -> PyResult<PyClassInitializer<TerminalSink>> {
        let Some(form) = TerminalForm::parse(&format.to_lowercase()) else {
            return Err(PyValueError::new_err(format!(
                "format is 'ascii', 'color' or 'compact', not '{format}'"
            )));
        };
        let about = logkit::repr::repr_str(format);
        TerminalSink::draft(py, form, about).make(py, TerminalSink)
    }
}

impl TerminalSink {
    pub(super) fn draft(py: Python<'_>, form: TerminalForm, about: String) -> Draft<'_> {
        let is_native = writes_to_stderr(py);
        let time = given::settings().map_or_else(logkit::ConsoleTime::default, |settings| {
            let said = |what: &str| settings.console_time.iter().any(|word| word == what);
            logkit::ConsoleTime {
                millis: said("ms"),
                utc: said("utc"),
            }
        });
        Draft {
            name: "terminal",
            about,
            delegate: None,
            traits: Traits::default(),
            recipe: Box::new(move |_| {
                let console = if is_native {
                    ConsoleSink::stderr()
                } else {
                    ConsoleSink::to(PythonStderr)
                };
                Ok(Made::new(logkit::TerminalSink::new(
                    console.time(time),
                    form,
                )))
            }),
            is_eager: true,
        }
    }
}

/// True if `sys.stderr` ends where the stderr of the process does.
fn writes_to_stderr(py: Python<'_>) -> bool {
    let number = py
        .import(intern!(py, "sys"))
        .and_then(|sys| sys.getattr(intern!(py, "stderr")))
        .and_then(|stderr| stderr.call_method0(intern!(py, "fileno")))
        .and_then(|number| number.extract::<i32>());
    matches!(number, Ok(2))
}

/// `sys.stderr`, whatever it is then.
struct PythonStderr;

impl io::Write for PythonStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        later(Action::Print(String::from_utf8_lossy(bytes).into_owned()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes entries and keeps none.
#[pyclass(name = "NullSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct NullSink;

#[pymethods]
impl NullSink {
    #[new]
    fn new(py: Python<'_>) -> PyResult<PyClassInitializer<NullSink>> {
        let draft = Draft {
            name: "null",
            about: String::new(),
            delegate: None,
            traits: Traits::default(),
            recipe: Box::new(|_| Ok(Made::new(Nothing))),
            is_eager: true,
        };
        draft.make(py, NullSink)
    }
}

/// Keeps nothing; for wrappers without a delegate too.
pub(super) struct Nothing;

impl Sink for Nothing {
    fn write_batch(&mut self, _entries: &[Entry]) -> Result<(), SinkError> {
        Ok(())
    }

    /// Nothing that comes later matters here.
    fn can_update(&self) -> bool {
        true
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("null")
    }
}
