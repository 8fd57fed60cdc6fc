//! Functions of the module: redaction, detection of injected prompts, the command line.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::{self, Write},
};

use logkit::{REDACTED, Redactor, repr};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    intern,
    prelude::*,
    types::{PyDict, PyList, PyMapping, PyString, PyTuple},
};

use crate::{entry::entry_of, render::Renderer};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(is_sensitive_key, module)?)?;
    module.add_function(wrap_pyfunction!(redact_value, module)?)?;
    module.add_function(wrap_pyfunction!(redact_kwargs, module)?)?;
    module.add_function(wrap_pyfunction!(redact_args, module)?)?;
    module.add_function(wrap_pyfunction!(redact_string, module)?)?;
    module.add_function(wrap_pyfunction!(detect_prompt_injection, module)?)?;
    module.add_function(wrap_pyfunction!(scan_entry_for_injection, module)?)?;
    module.add_function(wrap_pyfunction!(generate_trace_id, module)?)?;
    module.add_function(wrap_pyfunction!(safe_repr, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(version, module)?)
}

/// Tell whether what has that name is a secret.
#[pyfunction]
#[pyo3(signature = (name, /))]
fn is_sensitive_key(name: &Bound<'_, PyAny>) -> bool {
    is_secret(name)
}

/// Return the value, or `***REDACTED***` if its name is that of a secret.
///
/// Secrets within texts are blanked, and values of dictionaries, lists and tuples within. Other
/// objects are returned as they are.
#[pyfunction]
#[pyo3(signature = (name, value, /))]
fn redact_value<'py>(
    name: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if is_secret(name) {
        return Ok(mark(value.py()));
    }
    blanked(value, &mut Vec::new())
}

/// Return a dictionary of the same names in which secrets are blanked.
#[pyfunction]
#[pyo3(signature = (kwargs, /))]
fn redact_kwargs<'py>(kwargs: &Bound<'py, PyMapping>) -> PyResult<Bound<'py, PyDict>> {
    let py = kwargs.py();
    let out = PyDict::new(py);
    for item in kwargs.items()? {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        out.set_item(&name, redact_value(&name, &value)?)?;
    }
    Ok(out)
}

/// Return the arguments with secrets blanked: by the names of their parameters, if those are given.
///
/// Without names, texts are taken for the words of a command line: what follows `--token` is a secret.
#[pyfunction]
#[pyo3(signature = (args, names=None, /))]
fn redact_args<'py>(
    args: &Bound<'py, PyAny>,
    names: Option<Vec<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    if args.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "redact_args takes a sequence of arguments: use redact_string for a text",
        ));
    }
    let items: Vec<Bound<'_, PyAny>> = args.try_iter()?.collect::<PyResult<_>>()?;
    let words: Option<Vec<Cow<'_, str>>> = match names {
        Some(_) => None,
        None => items
            .iter()
            .map(|item| {
                item.cast::<PyString>()
                    .ok()
                    .map(|text| text.to_string_lossy())
            })
            .collect(),
    };
    let blank: Vec<Bound<'_, PyAny>> = if let Some(words) = words {
        let blank = Redactor::shared().redact_args(&words);
        // A word without a secret stays the object that it is.
        blank
            .iter()
            .zip(&words)
            .zip(&items)
            .map(|((blank, word), item)| {
                if blank.as_str() == &**word {
                    item.clone()
                } else {
                    PyString::new(py, blank).into_any()
                }
            })
            .collect()
    } else {
        let names = names.unwrap_or_default();
        items
            .iter()
            .enumerate()
            .map(|(idx, item)| match names.get(idx) {
                Some(name) => redact_value(name, item),
                None => blanked(item, &mut Vec::new()),
            })
            .collect::<PyResult<_>>()?
    };
    if args.is_instance_of::<PyList>() {
        Ok(PyList::new(py, blank)?.into_any())
    } else {
        Ok(PyTuple::new(py, blank)?.into_any())
    }
}

/// Return the text with the secrets in it blanked: `key=value`, `--key value`, credentials in
/// addresses, access keys, private keys, signed tokens.
#[pyfunction]
#[pyo3(signature = (text, /))]
fn redact_string<'py>(text: &Bound<'py, PyString>) -> Bound<'py, PyString> {
    let whole = text.to_string_lossy();
    match Redactor::shared().redact_string(&whole) {
        Cow::Borrowed(_) => text.clone(),
        Cow::Owned(scrubbed) => PyString::new(text.py(), &scrubbed),
    }
}

/// Look for an attempt to give orders to a model, and return what was found, or None.
///
/// `patterns` replaces the patterns that are built in; one that is no regular expression is a
/// ValueError. Matching takes time linear in the length of the text.
#[pyfunction]
#[pyo3(signature = (text, patterns=None))]
fn detect_prompt_injection(
    text: Option<&Bound<'_, PyString>>,
    patterns: Option<Vec<String>>,
) -> PyResult<Option<String>> {
    let wrong = patterns
        .iter()
        .flatten()
        .find(|pattern| !logkit::is_pattern(pattern));
    if let Some(wrong) = wrong {
        let told = format!("{} is no regular expression", repr::repr_str(wrong));
        return Err(PyValueError::new_err(told));
    }
    let Some(text) = text else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    Ok(match patterns {
        None => logkit::detect_prompt_injection(&text),
        Some(patterns) => {
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            logkit::detect_with(&text, &patterns)
        }
    })
}

/// Look for orders to a model in the arguments of an entry and in its message.
#[pyfunction]
#[pyo3(signature = (entry, /))]
fn scan_entry_for_injection(entry: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    Ok(logkit::scan_entry_for_injection(&entry_of(entry)?))
}

/// Return a new trace id: 16 hexadecimal digits.
#[pyfunction]
fn generate_trace_id() -> String {
    logkit::generate_trace_id()
}

/// Return the value as text of at most that many characters; None or 0 is no limit.
///
/// A value whose `repr` raises is told as `<repr failed: ...>`.
#[pyfunction]
#[pyo3(signature = (value, max_length=2048))]
fn safe_repr(value: &Bound<'_, PyAny>, max_length: Option<i64>) -> String {
    let limit = max_length.and_then(|limit| usize::try_from(limit).ok());
    Renderer::plain(limit.unwrap_or(0)).value(value)
}

/// Do what a command line says, the name of the program first, and return the exit status.
#[pyfunction]
#[pyo3(signature = (argv, /))]
fn main(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| {
        let status = logkit_cli::complete_with(argv.iter().cloned())
            .unwrap_or_else(|| logkit_cli::status(argv));
        // A program in Rust does this when it ends. Whoever closed the pipe wants nothing.
        let _ = io::stdout().flush();
        status
    })
}

/// Return the version of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Containers within containers that are looked into.
const MAX_DEPTH: usize = 64;

fn is_secret(name: &Bound<'_, PyAny>) -> bool {
    name.cast::<PyString>()
        .is_ok_and(|name| logkit::is_sensitive_key(&name.to_string_lossy()))
}

fn mark(py: Python<'_>) -> Bound<'_, PyAny> {
    intern!(py, REDACTED).clone().into_any()
}

/// The value with secrets in it blanked; `within` are the containers around it, which a cyclic one
/// meets again.
fn blanked<'py>(
    value: &Bound<'py, PyAny>,
    within: &mut Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(redact_string(text).into_any());
    }
    let is_container = value.is_instance_of::<PyDict>()
        || value.is_exact_instance_of::<PyList>()
        || value.is_exact_instance_of::<PyTuple>();
    if !is_container || within.len() >= MAX_DEPTH || within.iter().any(|outer| outer.is(value)) {
        return Ok(value.clone());
    }
    within.push(value.clone());
    let blank = if let Ok(dict) = value.cast::<PyDict>() {
        let out = PyDict::new(py);
        // Not the dictionary itself: keys may have code that changes it.
        for item in dict.items() {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let value = if is_secret(&key) {
                mark(py)
            } else {
                blanked(&value, within)?
            };
            out.set_item(key, value)?;
        }
        out.into_any()
    } else {
        let items: Vec<Bound<'_, PyAny>> = value
            .try_iter()?
            .map(|item| blanked(&item?, within))
            .collect::<PyResult<_>>()?;
        if value.is_instance_of::<PyList>() {
            PyList::new(py, items)?.into_any()
        } else {
            PyTuple::new(py, items)?.into_any()
        }
    };
    within.pop();
    Ok(blank)
}
