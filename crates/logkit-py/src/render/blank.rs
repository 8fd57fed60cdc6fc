//! Blanks the objects themselves, for sinks written in Python.

use std::{borrow::Cow, cell::Cell};

use logkit::REDACTED;
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyString, PyTuple},
};

use super::{Plan, Renderer, Treatment, walk::items};

/// Keys are looked at in a value and in the containers within it, as deep as values are rendered.
const MAX_DEPTH: usize = 32;
/// Values that are looked at. Those after them are handed on as they are, and so are longer texts: to look
/// at them would hold up the caller. The texts of entries are blanked in any case.
const MAX_VALUES: usize = 100_000;
const MAX_TEXT: usize = 1 << 20;

impl Renderer {
    /// The positional arguments without secrets; the same tuple if there are none.
    pub(crate) fn blanked_args<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        plan: &impl Plan,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = args.py();
        let blanker = Blanker::new(self);
        let mut changed = false;
        let mut blanked = Vec::with_capacity(args.len());
        for (idx, value) in args.iter().enumerate() {
            let new = match (plan.treatment(idx), plan.name(idx)) {
                (Treatment::Skip, _) => {
                    changed = true;
                    continue;
                }
                (Treatment::Blank, _) => Some(mark(py)),
                (Treatment::Show, Some(name)) => blanker.named(name, &value, 1)?,
                (Treatment::Show, None) => blanker.value(&value, 1)?,
            };
            changed |= new.is_some();
            blanked.push(new.unwrap_or(value));
        }
        if changed {
            PyTuple::new(py, blanked)
        } else {
            Ok(args.clone())
        }
    }

    /// A dictionary without secrets; the same one if there are none.
    pub(crate) fn blanked_dict<'py>(
        &self,
        dict: &Bound<'py, PyDict>,
        skipped: impl Fn(&str) -> bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let new = Blanker::new(self).dict(dict, skipped, 1)?;
        Ok(new.unwrap_or_else(|| dict.clone()))
    }

    /// A value without secrets; the same one if it has none.
    pub(crate) fn blanked<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(Blanker::new(self).value(&value, 1)?.unwrap_or(value))
    }
}

/// Blanks one object. What has no secrets stays itself: all of its methods return `None` for that.
struct Blanker<'r> {
    renderer: &'r Renderer,
    n_left: Cell<usize>,
}

impl<'r> Blanker<'r> {
    fn new(renderer: &'r Renderer) -> Blanker<'r> {
        Blanker {
            renderer,
            n_left: Cell::new(MAX_VALUES),
        }
    }

    fn value<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let is_off = self.renderer.redactor.is_none() && self.renderer.judge.is_none();
        let n_left = self.n_left.get();
        if depth > MAX_DEPTH || is_off || n_left == 0 {
            return Ok(None);
        }
        self.n_left.set(n_left - 1);
        if let Ok(text) = value.cast_exact::<PyString>() {
            return self.text(text);
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            return Ok(self.dict(dict, |_| false, depth)?.map(Bound::into_any));
        }
        let py = value.py();
        if let Ok(list) = value.cast_exact::<PyList>() {
            return match self.sequence(|| list.iter(), depth)? {
                Some(values) => Ok(Some(PyList::new(py, values)?.into_any())),
                None => Ok(None),
            };
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            return match self.sequence(|| tuple.iter(), depth)? {
                Some(values) => Ok(Some(PyTuple::new(py, values)?.into_any())),
                None => Ok(None),
            };
        }
        Ok(None)
    }

    fn text<'py>(&self, text: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(redactor) = &self.renderer.redactor else {
            return Ok(None);
        };
        if text.code_point_len()? > MAX_TEXT {
            return Ok(None);
        }
        let Ok(bytes) = text.encode_utf8() else {
            return Ok(None);
        };
        let redacted = redactor.redact_string(str::from_utf8(bytes.as_bytes()).unwrap_or_default());
        Ok(match redacted {
            Cow::Owned(redacted) => Some(PyString::new(text.py(), &redacted).into_any()),
            Cow::Borrowed(_) => None,
        })
    }

    fn sequence<'py, I: Iterator<Item = Bound<'py, PyAny>>>(
        &self,
        values: impl Fn() -> I,
        depth: usize,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let mut new: Option<Vec<Bound<'py, PyAny>>> = None;
        for (idx, value) in values().enumerate() {
            if new.is_none() && self.n_left.get() == 0 {
                break;
            }
            let blanked = self.value(&value, depth + 1)?;
            match &mut new {
                Some(new) => new.push(blanked.unwrap_or(value)),
                None => {
                    if let Some(blanked) = blanked {
                        let mut start: Vec<_> = values().take(idx).collect();
                        start.push(blanked);
                        new = Some(start);
                    }
                }
            }
        }
        Ok(new)
    }

    fn dict<'py>(
        &self,
        dict: &Bound<'py, PyDict>,
        skipped: impl Fn(&str) -> bool,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let mut new: Option<Bound<'py, PyDict>> = None;
        for (key, value) in items(dict, self.n_left.get()) {
            let name = match key.cast::<PyString>() {
                Ok(name) => Some(name.to_string_lossy().into_owned()),
                Err(_) => None,
            };
            let skip = name.as_deref().is_some_and(&skipped);
            let blanked = match &name {
                _ if skip => None,
                Some(name) => self.named(name, &value, depth + 1)?,
                None => self.value(&value, depth + 1)?,
            };
            if !skip && blanked.is_none() {
                continue;
            }
            let new = match &new {
                Some(new) => new,
                None => new.insert(dict.copy()?),
            };
            match blanked {
                Some(value) => new.set_item(key, value)?,
                None => new.del_item(key)?,
            }
        }
        Ok(new)
    }

    fn named<'py>(
        &self,
        name: &str,
        value: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.renderer.is_secret(name) {
            return Ok(Some(mark(value.py())));
        }
        if let Some(judge) = &self.renderer.judge {
            let shown = judge
                .bind(value.py())
                .call1((name, value))
                .unwrap_or_else(|_| mark(value.py()));
            if !shown.is(value) {
                return Ok(Some(shown));
            }
        }
        self.value(value, depth)
    }
}

fn mark(py: Python<'_>) -> Bound<'_, PyAny> {
    PyString::intern(py, REDACTED).into_any()
}
