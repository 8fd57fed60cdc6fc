//! Names of types.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use logkit::{Text, lock::Mutex};
use pyo3::{
    prelude::*,
    types::{
        PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType, PyTypeMethods,
    },
};

/// Types whose names a thread remembers.
const MAX_TYPES: usize = 1024;

thread_local! {
    /// Names by the address of the type, which is kept so that no other type gets that address.
    static NAMES: RefCell<HashMap<usize, (Py<PyType>, Text)>> = RefCell::default();
}

/// Name of the type of a value: `int`, `NoneType`.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> Text {
    Cow::Borrowed(if value.is_none() {
        "NoneType"
    } else if value.is_exact_instance_of::<PyString>() {
        "str"
    } else if value.is_exact_instance_of::<PyInt>() {
        "int"
    } else if value.is_exact_instance_of::<PyDict>() {
        "dict"
    } else if value.is_exact_instance_of::<PyList>() {
        "list"
    } else if value.is_exact_instance_of::<PyFloat>() {
        "float"
    } else if value.is_exact_instance_of::<PyBool>() {
        "bool"
    } else if value.is_exact_instance_of::<PyTuple>() {
        "tuple"
    } else if value.is_exact_instance_of::<PyBytes>() {
        "bytes"
    } else {
        return name_of(&value.get_type());
    })
}

/// Name of a type, without those of the modules and classes around it.
pub(crate) fn name_of(kind: &Bound<'_, PyType>) -> Text {
    let address = kind.as_ptr() as usize;
    let known = NAMES.with_borrow(|names| names.get(&address).map(|(_, name)| name.clone()));
    if let Some(name) = known {
        return name;
    }
    let name = match kind.name().map(|name| name.to_string_lossy().into_owned()) {
        Ok(name) => keep(&name),
        Err(_) => Cow::Borrowed("object"),
    };
    let forgotten = NAMES.with_borrow_mut(|names| {
        let forgotten = (names.len() >= MAX_TYPES).then(|| std::mem::take(names));
        names.insert(address, (kind.clone().unbind(), name.clone()));
        forgotten
    });
    // Only now: the end of a class may run code that asks for names.
    drop(forgotten);
    name
}

/// Texts that are kept for good, at most.
const MAX_KEPT: usize = 16_384;

/// The same text, kept for good unless there are too many: for names, of which a program has few.
pub(crate) fn keep(text: &str) -> Text {
    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    if text.is_empty() {
        return Cow::Borrowed("");
    }
    let mut kept = KEPT.lock();
    let kept = kept.get_or_insert_default();
    if let Some(text) = kept.get(text) {
        return Cow::Borrowed(text);
    }
    if kept.len() >= MAX_KEPT || text.len() > 512 {
        return Cow::Owned(text.to_owned());
    }
    let text: &'static str = Box::leak(text.into());
    kept.insert(text);
    Cow::Borrowed(text)
}
