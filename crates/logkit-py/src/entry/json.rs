//! Python values as JSON, and back.

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use serde_json::{Map, Number, Value};

use crate::render::Renderer;

/// Deeper values are told by their repr.
const MAX_DEPTH: usize = 8;

/// The text of a string; what is no character becomes `U+FFFD`.
pub(crate) fn text(value: &Bound<'_, PyString>) -> String {
    match value.to_cow() {
        Ok(text) => text.into_owned(),
        Err(_) => value.to_string_lossy().into_owned(),
    }
}

/// The entries of a dict; keys become texts.
pub(crate) fn map_of(dict: &Bound<'_, PyDict>, renderer: &Renderer) -> Map<String, Value> {
    members(dict, renderer, 0)
}

fn members(dict: &Bound<'_, PyDict>, renderer: &Renderer, depth: usize) -> Map<String, Value> {
    // A copy: rendering runs code that may change it.
    let items: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = dict.iter().collect();
    items
        .into_iter()
        .map(|(key, value)| {
            let key = match key.cast::<PyString>() {
                Ok(key) => text(key),
                Err(_) => renderer.value(&key),
            };
            (key, value_of(&value, renderer, depth + 1))
        })
        .collect()
}

/// One value: what JSON has no form for becomes its repr.
fn value_of(value: &Bound<'_, PyAny>, renderer: &Renderer, depth: usize) -> Value {
    if value.is_none() {
        return Value::Null;
    }
    if let Ok(value) = value.cast::<PyString>() {
        return text(value).into();
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return value.is_true().into();
    }
    if value.is_instance_of::<PyInt>() {
        if let Ok(number) = value.extract::<i64>() {
            return number.into();
        }
        if let Ok(number) = value.extract::<u64>() {
            return number.into();
        }
    } else if let Ok(number) = value.cast::<PyFloat>() {
        if let Some(number) = Number::from_f64(number.value()) {
            return number.into();
        }
    } else if depth < MAX_DEPTH {
        if let Ok(dict) = value.cast::<PyDict>() {
            return members(dict, renderer, depth).into();
        }
        let items: Option<Vec<Bound<'_, PyAny>>> = if let Ok(list) = value.cast::<PyList>() {
            Some(list.iter().collect())
        } else {
            let tuple = value.cast::<PyTuple>().ok();
            tuple.map(|tuple| tuple.iter().collect())
        };
        if let Some(items) = items {
            let items = items.iter();
            return items
                .map(|item| value_of(item, renderer, depth + 1))
                .collect();
        }
    }
    renderer.value(value).into()
}

/// A JSON value as Python has it.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_bound_py_any(py),
            (None, Some(number)) => number.into_bound_py_any(py),
            (None, None) => number.as_f64().into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            Ok(list.into_any())
        }
        Value::Object(map) => Ok(dict_of(py, map)?.into_any()),
    }
}

/// The members of a JSON object.
pub(crate) fn dict_of<'py>(
    py: Python<'py>,
    map: &Map<String, Value>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in map {
        dict.set_item(key, to_python(py, value)?)?;
    }
    Ok(dict)
}
