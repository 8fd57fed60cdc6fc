//! Errors as text.

mod ends;

use std::{cell::RefCell, collections::HashMap, sync::LazyLock};

use arc_swap::ArcSwap;
use ends::Ends;
use logkit::{Text, lock::Mutex};
use pyo3::{
    exceptions::{PyException, PyGeneratorExit, PySyntaxError, PySystemExit},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyList, PyString, PyType},
};

use crate::render::{cut, type_name};

/// Characters kept of an error's message, and of each line of a traceback.
const MAX_MESSAGE: usize = 64 << 10;
/// A line that repeats is written that often.
const MAX_REPEATED: usize = 3;
/// Lines of source that a thread remembers.
const MAX_LINES: usize = 4096;

/// What an entry says of an error.
pub(crate) struct Told {
    pub(crate) kind: Text,
    pub(crate) message: String,
    pub(crate) traceback: String,
}

/// Code of functions around logged ones, by its address: no traceback shows it.
static HIDDEN: LazyLock<ArcSwap<Vec<usize>>> = LazyLock::new(ArcSwap::default);
/// The same code.
static KEPT: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());

/// Lines of source by the address of their code and their number. The code is kept, so that no other gets
/// its address.
type Lines = HashMap<(usize, u32), (Py<PyAny>, Box<str>)>;

thread_local! {
    static LINES: RefCell<Lines> = RefCell::default();
}

/// Leaves the frames of that code out of tracebacks.
pub(crate) fn hide(codes: &[Bound<'_, PyAny>]) {
    KEPT.lock()
        .extend(codes.iter().map(|code| code.clone().unbind()));
    HIDDEN.rcu(|hidden| {
        let mut hidden = Vec::clone(hidden);
        hidden.extend(codes.iter().map(|code| code.as_ptr() as usize));
        hidden
    });
}

/// Type, message and traceback of an error.
pub(crate) fn tell(error: &Bound<'_, PyAny>) -> Told {
    let kind = type_name(error);
    let message = match error.str() {
        Ok(message) => cut(&message, MAX_MESSAGE),
        Err(_) => "<exception str() failed>".into(),
    };
    let traceback = if is_plain(error) {
        plain(error, &message)
    } else {
        with_module(error)
    };
    let traceback = traceback.unwrap_or_else(|_| format!("{kind}: {message}\n"));
    Told {
        kind,
        message,
        traceback,
    }
}

/// True if there is nothing to tell but frames, the type and the message.
fn is_plain(error: &Bound<'_, PyAny>) -> bool {
    static GROUP: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();
    let py = error.py();
    let none = |name: &Bound<'_, PyString>| error.getattr(name).is_ok_and(|value| value.is_none());
    let group = GROUP.get_or_init(py, || {
        let builtins = py.import(intern!(py, "builtins")).ok()?;
        let group = builtins
            .getattr_opt(intern!(py, "BaseExceptionGroup"))
            .ok()??;
        Some(group.cast_into::<PyType>().ok()?.unbind())
    });
    let is_group = || {
        group
            .as_ref()
            .is_some_and(|group| error.is_instance(group.bind(py)).unwrap_or(true))
    };
    let is_suppressed = || {
        error
            .getattr(intern!(py, "__suppress_context__"))
            .is_ok_and(|on| on.is_truthy().unwrap_or(false))
    };
    none(intern!(py, "__cause__"))
        && (none(intern!(py, "__context__")) || is_suppressed())
        && !error.is_instance_of::<PySyntaxError>()
        && !is_group()
        && matches!(error.getattr_opt(intern!(py, "__notes__")), Ok(None))
}

/// The same text as Python writes, but for the marks below parts of a line.
fn plain(error: &Bound<'_, PyAny>, message: &str) -> PyResult<String> {
    let py = error.py();
    let hidden = HIDDEN.load();
    let mut text = Ends::default();
    let mut last = None;
    let mut n_repeated = 0;
    let mut next = error.getattr(intern!(py, "__traceback__"))?;
    while !next.is_none() {
        let step = next;
        next = step.getattr(intern!(py, "tb_next"))?;
        let frame = step.getattr(intern!(py, "tb_frame"))?;
        let code = frame.getattr(intern!(py, "f_code"))?;
        let address = code.as_ptr() as usize;
        if hidden.contains(&address) {
            continue;
        }
        // Some instructions have no line.
        let line: u32 = step
            .getattr(intern!(py, "tb_lineno"))?
            .extract()
            .unwrap_or(0);
        if last == Some((address, line)) {
            n_repeated += 1;
        } else {
            if last.is_none() {
                text.push("Traceback (most recent call last):\n");
            }
            note_repeated(&mut text, n_repeated);
            last = Some((address, line));
            n_repeated = 1;
        }
        if n_repeated > MAX_REPEATED {
            continue;
        }
        let file = code.getattr(intern!(py, "co_filename"))?;
        let name = code.getattr(intern!(py, "co_name"))?;
        text.push(&format!(
            "  File \"{}\", line {line}, in {}\n",
            file.cast::<PyString>()?.to_string_lossy(),
            name.cast::<PyString>()?.to_string_lossy()
        ));
        write_source(&mut text, &code, line, &file, &frame)?;
    }
    note_repeated(&mut text, n_repeated);
    text.push(&last_line(error, message)?);
    Ok(text.finish())
}

fn note_repeated(text: &mut Ends, n_repeated: usize) {
    if n_repeated > MAX_REPEATED {
        let n_more = n_repeated - MAX_REPEATED;
        let plural = if n_more > 1 { "s" } else { "" };
        text.push(&format!(
            "  [Previous line repeated {n_more} more time{plural}]\n"
        ));
    }
}

/// The line of source that runs in that frame, if there is one.
fn write_source(
    text: &mut Ends,
    code: &Bound<'_, PyAny>,
    line: u32,
    file: &Bound<'_, PyAny>,
    frame: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let key = (code.as_ptr() as usize, line);
    let mut put = |source: &str| {
        if !source.is_empty() {
            text.push(&format!("    {source}\n"));
        }
    };
    let known = LINES.with_borrow(|lines| lines.get(&key).map(|(_, source)| put(source)));
    if known.is_some() {
        return Ok(());
    }
    let source = read_source(line, file, frame)?;
    put(&source);
    let forgotten = LINES.with_borrow_mut(|lines| {
        let forgotten = (lines.len() >= MAX_LINES).then(|| std::mem::take(lines));
        lines.insert(key, (code.clone().unbind(), source.into()));
        forgotten
    });
    drop(forgotten);
    Ok(())
}

fn read_source(line: u32, file: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = file.py();
    let linecache = py.import(intern!(py, "linecache"))?;
    // A file may have changed since somebody else looked.
    linecache.call_method1(intern!(py, "checkcache"), (file,))?;
    let globals = frame.getattr(intern!(py, "f_globals"))?;
    let source = linecache.call_method1(intern!(py, "getline"), (file, line, globals))?;
    let source = cut(source.cast::<PyString>()?, MAX_MESSAGE);
    Ok(source.trim().to_owned())
}

/// `module.Type: message`
fn last_line(error: &Bound<'_, PyAny>, message: &str) -> PyResult<String> {
    let py = error.py();
    let mut text = String::new();
    let kind = error.get_type();
    let module = kind.getattr(intern!(py, "__module__"))?;
    if let Ok(module) = module.cast::<PyString>() {
        let module = module.to_string_lossy();
        if module != "builtins" && module != "__main__" {
            text.push_str(&module);
            text.push('.');
        }
    }
    text.push_str(&kind.qualname()?.to_string_lossy());
    if !message.is_empty() {
        text.push_str(": ");
        text.push_str(message);
    }
    text.push('\n');
    Ok(text)
}

/// What the module `traceback` says.
fn with_module(error: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = error.py();
    let module = py.import(intern!(py, "traceback"))?;
    let traceback = error.getattr(intern!(py, "__traceback__"))?;
    let told = module.call_method1(
        intern!(py, "TracebackException"),
        (error.get_type(), error, traceback),
    )?;
    let hidden = hidden_places(py)?;
    let mut open = vec![told.clone()];
    let mut n_left = 1000;
    while let Some(told) = open.pop() {
        strip(&told, &hidden)?;
        for name in ["__cause__", "__context__"] {
            open.extend(told.getattr(name).ok().filter(|other| !other.is_none()));
        }
        if let Some(members) = told.getattr_opt("exceptions")?
            && let Ok(members) = members.cast::<PyList>()
        {
            open.extend(members.iter());
        }
        n_left -= 1;
        if n_left == 0 {
            break;
        }
    }
    let mut text = Ends::default();
    for lines in told.call_method0(intern!(py, "format"))?.try_iter()? {
        let mut lines = cut(lines?.cast::<PyString>()?, MAX_MESSAGE);
        if !lines.ends_with('\n') {
            lines.push('\n');
        }
        text.push(&lines);
    }
    Ok(text.finish())
}

/// Takes the frames of hidden code out of a summary.
fn strip(told: &Bound<'_, PyAny>, hidden: &[(String, String)]) -> PyResult<()> {
    let py = told.py();
    let stack = told.getattr(intern!(py, "stack"))?;
    let Ok(frames) = stack.cast::<PyList>() else {
        return Ok(());
    };
    for idx in (0..frames.len()).rev() {
        let frame = frames.get_item(idx)?;
        let file: String = frame.getattr(intern!(py, "filename"))?.extract()?;
        let name: String = frame.getattr(intern!(py, "name"))?.extract()?;
        if hidden
            .iter()
            .any(|place| *place == (file.clone(), name.clone()))
        {
            frames.del_item(idx)?;
        }
    }
    Ok(())
}

/// File and name of hidden code: summaries know no more.
fn hidden_places(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    let codes: Vec<Py<PyAny>> = KEPT.lock().iter().map(|code| code.clone_ref(py)).collect();
    codes
        .iter()
        .map(|code| {
            let code = code.bind(py);
            let file = code.getattr(intern!(py, "co_filename"))?.extract()?;
            Ok((file, code.getattr(intern!(py, "co_name"))?.extract()?))
        })
        .collect()
}

/// How grave an error is that ends a call: some only say that it is over.
pub(crate) fn is_failure(error: &Bound<'_, PyAny>) -> bool {
    static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = error.py();
    if error.is_instance_of::<PyGeneratorExit>() {
        return false;
    }
    if error.is_instance_of::<PySystemExit>() {
        let code = error.getattr(intern!(py, "code"));
        return !code
            .is_ok_and(|code| code.is_none() || code.extract::<i64>().is_ok_and(|code| code == 0));
    }
    if error.is_instance_of::<PyException>() {
        return true;
    }
    // Nobody can have cancelled anything who has not loaded it.
    let is_loaded = || -> PyResult<bool> {
        let modules = py
            .import(intern!(py, "sys"))?
            .getattr(intern!(py, "modules"))?;
        modules.contains(intern!(py, "asyncio"))
    };
    let cancelled = match CANCELLED.get(py) {
        Some(kind) => Some(kind.bind(py).clone()),
        None if is_loaded().unwrap_or(false) => CANCELLED
            .import(py, "asyncio", "CancelledError")
            .ok()
            .cloned(),
        None => None,
    };
    !cancelled.is_some_and(|kind| error.is_instance(&kind).unwrap_or(false))
}
