//! Values as objects: blanked for sinks written in Python, and as JSON.

use logkit::REDACTED;
use pyo3::{
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use serde_json::{Map, Value};

use super::{Plan, Renderer, Treatment, walk::items};

/// Containers within containers whose keys are looked at.
const MAX_DEPTH: usize = 4;

impl Renderer {
    /// The positional arguments without secrets; the same tuple if there are none.
    pub(crate) fn blanked_args<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        plan: &impl Plan,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = args.py();
        let mut changed = false;
        let mut blanked = Vec::with_capacity(args.len());
        for (idx, value) in args.iter().enumerate() {
            let new = match (plan.treatment(idx), plan.name(idx)) {
                (Treatment::Skip, _) => {
                    changed = true;
                    continue;
                }
                (Treatment::Blank, _) => Some(mark(py)),
                (Treatment::Show, Some(name)) => self.blanked_named(name, &value, 1)?,
                (Treatment::Show, None) => self.blanked(&value, 1)?,
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
        let new = self.blanked_items(dict, skipped, 1)?;
        Ok(new.unwrap_or_else(|| dict.clone()))
    }

    /// A value without secrets, `None` if it has none.
    pub(crate) fn blanked<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if depth > MAX_DEPTH || (self.redactor.is_none() && self.judge.is_none()) {
            return Ok(None);
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            return Ok(self
                .blanked_items(dict, |_| false, depth)?
                .map(Bound::into_any));
        }
        if let Ok(text) = value.cast_exact::<PyString>() {
            let Some(redactor) = &self.redactor else {
                return Ok(None);
            };
            let Ok(text) = text.to_cow() else {
                return Ok(None);
            };
            return Ok(match redactor.redact_string(&text) {
                std::borrow::Cow::Owned(text) => Some(PyString::new(value.py(), &text).into_any()),
                std::borrow::Cow::Borrowed(_) => None,
            });
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            let new = self.blanked_sequence(list.iter(), depth)?;
            return Ok(match new {
                Some(values) => Some(PyList::new(value.py(), values)?.into_any()),
                None => None,
            });
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            let new = self.blanked_sequence(tuple.iter(), depth)?;
            return Ok(match new {
                Some(values) => Some(PyTuple::new(value.py(), values)?.into_any()),
                None => None,
            });
        }
        Ok(None)
    }

    fn blanked_sequence<'py>(
        &self,
        values: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let mut changed = false;
        let values = values
            .map(|value| {
                let new = self.blanked(&value, depth + 1)?;
                changed |= new.is_some();
                Ok(new.unwrap_or(value))
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(changed.then_some(values))
    }

    fn blanked_items<'py>(
        &self,
        dict: &Bound<'py, PyDict>,
        skipped: impl Fn(&str) -> bool,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let mut new: Option<Bound<'py, PyDict>> = None;
        for (key, value) in items(dict, usize::MAX) {
            let name = match key.cast::<PyString>() {
                Ok(name) => Some(name.to_string_lossy().into_owned()),
                Err(_) => None,
            };
            let skip = name.as_deref().is_some_and(&skipped);
            let blanked = match &name {
                _ if skip => None,
                Some(name) => self.blanked_named(name, &value, depth + 1)?,
                None => self.blanked(&value, depth + 1)?,
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

    fn blanked_named<'py>(
        &self,
        name: &str,
        value: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.is_secret(name) {
            return Ok(Some(mark(value.py())));
        }
        if let Some(judge) = &self.judge {
            let shown = judge
                .bind(value.py())
                .call1((name, value))
                .unwrap_or_else(|_| mark(value.py()));
            if !shown.is(value) {
                return Ok(Some(shown));
            }
        }
        self.blanked(value, depth)
    }
}

fn mark(py: Python<'_>) -> Bound<'_, PyAny> {
    PyString::intern(py, REDACTED).into_any()
}

/// A value as JSON, for `extra`; what JSON does not have is its text.
pub(crate) fn json(value: &Bound<'_, PyAny>) -> Value {
    json_at(value, 0)
}

fn json_at(value: &Bound<'_, PyAny>, depth: usize) -> Value {
    let text = || Value::String(Renderer::default().value(value));
    if value.is_none() {
        Value::Null
    } else if let Ok(flag) = value.cast::<PyBool>() {
        flag.is_true().into()
    } else if let Ok(string) = value.cast::<PyString>() {
        string.to_string_lossy().into_owned().into()
    } else if value.is_instance_of::<PyInt>() {
        let small = value.extract::<i64>().map(Value::from);
        small
            .or_else(|_| value.extract::<u64>().map(Value::from))
            .unwrap_or_else(|_| text())
    } else if let Ok(number) = value.cast::<PyFloat>() {
        serde_json::Number::from_f64(number.value()).map_or_else(text, Value::Number)
    } else if depth >= 16 {
        text()
    } else if let Ok(dict) = value.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, value) in items(dict, usize::MAX) {
            let key = match key.cast::<PyString>() {
                Ok(key) => key.to_string_lossy().into_owned(),
                Err(_) => Renderer::default().value(&key),
            };
            map.insert(key, json_at(&value, depth + 1));
        }
        Value::Object(map)
    } else if let Ok(list) = value.cast::<PyList>() {
        list.iter()
            .map(|value| json_at(&value, depth + 1))
            .collect()
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        tuple
            .iter()
            .map(|value| json_at(&value, depth + 1))
            .collect()
    } else {
        text()
    }
}
