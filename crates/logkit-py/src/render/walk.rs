//! Writes values as Python's `repr` does.

use std::{borrow::Cow, cell::RefCell, fmt::Write};

use logkit::repr;
use pyo3::{
    PyTypeInfo,
    exceptions::PyValueError,
    prelude::*,
    types::{
        PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString,
        PyTuple,
    },
};

use super::{
    Plan, Renderer, Treatment, interrupt::pass_on_interrupt, leaf::MAX_BINARY, names::type_name,
    out::Out,
};

/// What stands for a secret.
const BLANK: &str = "'***REDACTED***'";
/// Containers within containers that are walked; deeper ones are left to Python, which has a limit too.
const MAX_DEPTH: usize = 32;

/// Writes one field.
pub(crate) struct Walk<'r> {
    pub(super) out: Out,
    pub(super) renderer: &'r Renderer,
    /// Addresses of the containers that are being written.
    open: [usize; MAX_DEPTH],
    depth: usize,
}

impl<'r> Walk<'r> {
    pub(crate) fn new(renderer: &'r Renderer) -> Walk<'r> {
        Walk {
            out: Out::new(renderer.limit),
            renderer,
            open: [0; MAX_DEPTH],
            depth: 0,
        }
    }

    pub(crate) fn finish(self) -> String {
        self.out.finish()
    }

    /// The positional arguments.
    pub(crate) fn args(&mut self, args: &Bound<'_, PyTuple>, plan: &impl Plan) {
        self.out.push("(");
        let mut n_shown = 0;
        for (idx, value) in args.iter().enumerate() {
            let treatment = plan.treatment(idx);
            if treatment == Treatment::Skip {
                continue;
            }
            if self.out.is_done() {
                self.out.stop();
                break;
            }
            if n_shown > 0 {
                self.out.push(", ");
            }
            n_shown += 1;
            match (treatment, plan.name(idx)) {
                (Treatment::Blank, _) => self.out.push(BLANK),
                (_, Some(name)) if self.renderer.judge.is_some() => self.judged(name, &value),
                _ => self.value(&value),
            }
        }
        self.out.push(if n_shown == 1 { ",)" } else { ")" });
    }

    /// Any value.
    pub(crate) fn value(&mut self, value: &Bound<'_, PyAny>) {
        if self.plain(value) {
            return;
        }
        if let Some(dict) = exact::<PyDict>(value) {
            if let Some(me) = self.entered(value, "{...}") {
                me.dict(dict, &[]);
                me.depth -= 1;
            }
        } else if let Some(list) = exact::<PyList>(value) {
            if let Some(me) = self.entered(value, "[...]") {
                me.out.push("[");
                me.items(list.iter());
                me.out.push("]");
                me.depth -= 1;
            }
        } else if let Some(tuple) = exact::<PyTuple>(value) {
            if let Some(me) = self.entered(value, "(...)") {
                me.out.push("(");
                me.items(tuple.iter());
                me.out.push(if tuple.len() == 1 { ",)" } else { ")" });
                me.depth -= 1;
            }
        } else if value.is_exact_instance_of::<PySet>() {
            self.set(value, "{", "}", "set(...)");
        } else if value.is_exact_instance_of::<PyFrozenSet>() {
            self.set(value, "frozenset({", "})", "frozenset(...)");
        } else if let Some(bytes) = exact::<PyBytes>(value) {
            self.bytes(bytes);
        } else if let Some(bytes) = exact::<PyByteArray>(value) {
            if self.renderer.binary_meta && bytes.len() > MAX_BINARY {
                self.digest(value, "bytearray", bytes.len());
            } else {
                self.foreign(value);
            }
        } else {
            self.foreign(value);
        }
    }

    /// Writes a value of a type whose text needs no Python code; false for any other.
    #[inline]
    fn plain(&mut self, value: &Bound<'_, PyAny>) -> bool {
        if let Some(text) = exact::<PyString>(value) {
            self.string(text);
        } else if value.is_exact_instance_of::<PyInt>() {
            match value.extract::<i64>() {
                Ok(number) => {
                    let _ = write!(self.out, "{number}");
                }
                Err(_) => self.foreign(value),
            }
        } else if value.is_none() {
            self.out.push("None");
        } else if let Some(value) = exact::<PyBool>(value) {
            self.out
                .push(if value.is_true() { "True" } else { "False" });
        } else if let Some(number) = exact::<PyFloat>(value) {
            self.float(number.value());
        } else {
            return false;
        }
        true
    }

    /// `None` if the container is being written already, or is too deep: then that is written.
    fn entered(&mut self, value: &Bound<'_, PyAny>, again: &str) -> Option<&mut Self> {
        let address = value.as_ptr() as usize;
        if self.open[..self.depth].contains(&address) {
            self.out.push(again);
            return None;
        }
        let Some(place) = self.open.get_mut(self.depth) else {
            self.foreign(value);
            return None;
        };
        *place = address;
        self.depth += 1;
        Some(self)
    }

    fn items<'py>(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>) {
        for (idx, item) in items.enumerate() {
            if self.out.is_done() {
                self.out.stop();
                return;
            }
            if idx > 0 {
                self.out.push(", ");
            }
            self.value(&item);
        }
    }

    fn set(&mut self, set: &Bound<'_, PyAny>, open: &str, close: &str, again: &str) {
        if set.len().unwrap_or_default() == 0 {
            return self.foreign(set);
        }
        if let Some(me) = self.entered(set, again) {
            me.out.push(open);
            if let Ok(items) = set.try_iter() {
                // One that changes meanwhile ends there.
                me.items(items.map_while(Result::ok));
            }
            me.out.push(close);
            me.depth -= 1;
        }
    }

    /// A dictionary; what is known of its keys already need not be found out.
    pub(crate) fn dict(&mut self, dict: &Bound<'_, PyDict>, keys: &[Key]) {
        self.out.push("{");
        let judged = self.renderer.judge.is_some();
        let horizon = self.out.horizon();
        // No Python code may run while the dictionary is walked: it could change it. What needs some
        // waits, and all that follows it.
        let state = RefCell::new((&mut *self, Vec::new(), true));
        let _ = dict.locked_for_each(|key, value| {
            let mut state = state.borrow_mut();
            let (walk, waiting, is_first) = &mut *state;
            if waiting.is_empty() && !judged && is_plain(&key) && is_plain(&value) {
                if walk.out.is_done() {
                    walk.out.stop();
                    return Err(enough());
                }
                walk.pair(&key, &value, keys, is_first);
            } else if waiting.len() <= horizon {
                waiting.push((key, value));
            } else {
                return Err(enough());
            }
            Ok(())
        });
        let (walk, waiting, mut is_first) = state.into_inner();
        for (key, value) in &waiting {
            if walk.out.is_done() {
                walk.out.stop();
                break;
            }
            walk.pair(key, value, keys, &mut is_first);
        }
        walk.out.push("}");
    }

    fn pair(
        &mut self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        keys: &[Key],
        is_first: &mut bool,
    ) {
        let known = Key::find(keys, key);
        if known.is_some_and(|known| known.treatment == Treatment::Skip) {
            return;
        }
        if !std::mem::take(is_first) {
            self.out.push(", ");
        }
        if let Some(known) = known {
            self.out.push(&known.literal);
            return match known.treatment {
                Treatment::Blank => self.out.push(BLANK),
                _ if self.renderer.judge.is_some() => self.judged(&known.name, value),
                _ => self.value(value),
            };
        }
        let name = key
            .cast::<PyString>()
            .ok()
            .and_then(|name| name.encode_utf8().ok());
        let Some(name) = &name else {
            self.value(key);
            self.out.push(": ");
            return self.value(value);
        };
        let name = str::from_utf8(name.as_bytes()).unwrap_or_default();
        if key.is_exact_instance_of::<PyString>() && name.is_ascii() {
            self.literal(name);
        } else {
            self.foreign(key);
        }
        self.out.push(": ");
        if self.renderer.is_secret(name) {
            self.out.push(BLANK);
        } else if self.renderer.judge.is_some() {
            self.judged(name, value);
        } else {
            self.value(value);
        }
    }

    /// What the user's function says of a named value.
    fn judged(&mut self, name: &str, value: &Bound<'_, PyAny>) {
        let Some(judge) = &self.renderer.judge else {
            return self.value(value);
        };
        match judge.bind(value.py()).call1((name, value)) {
            Ok(shown) => self.value(&shown),
            Err(_) => self.out.push(BLANK),
        }
    }

    /// Whatever Python makes of it.
    #[inline(never)]
    pub(super) fn foreign(&mut self, value: &Bound<'_, PyAny>) {
        match value.repr() {
            Ok(text) => {
                let text = text.to_string_lossy();
                let text = match &self.renderer.redactor {
                    Some(redactor) => redactor.redact_string(&text),
                    None => Cow::Borrowed(&*text),
                };
                self.out.push(&text);
            }
            Err(error) => self.failed(value.py(), &error),
        }
    }

    #[cold]
    pub(super) fn failed(&mut self, py: Python<'_>, error: &PyErr) {
        let value = error.value(py);
        pass_on_interrupt(value.as_any());
        let message = text_of(value.as_any()).unwrap_or_default();
        let message = match &self.renderer.redactor {
            Some(redactor) => redactor.redact_string(&message).into_owned(),
            None => message,
        };
        let _ = write!(
            self.out,
            "<repr failed: {}: {message}>",
            type_name(value.as_any())
        );
    }
}

/// The value, if that is its very type. A failed cast of the bindings' own costs more.
#[inline]
fn exact<'a, 'py, T: PyTypeInfo>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, T>> {
    if value.is_exact_instance_of::<T>() {
        value.cast_exact::<T>().ok()
    } else {
        None
    }
}

/// A key of a dictionary of which is known what to write.
pub(crate) struct Key {
    /// Kept, so that no other string gets its address.
    object: Py<PyString>,
    name: String,
    /// `'name': `
    literal: String,
    treatment: Treatment,
}

impl Key {
    pub(crate) fn new(object: &Bound<'_, PyString>, treatment: Treatment) -> Key {
        let name = object.to_string_lossy().into_owned();
        Key {
            object: object.clone().unbind(),
            literal: format!("{}: ", repr::repr_str(&name)),
            name,
            treatment,
        }
    }

    /// What is known of a key. Those that are known only to be faster are known by their address.
    #[inline]
    pub(crate) fn find<'k>(keys: &'k [Key], key: &Bound<'_, PyAny>) -> Option<&'k Key> {
        let is_same = |known: &&Key| known.object.as_ptr() == key.as_ptr();
        keys.iter().find(is_same).or_else(|| {
            let mut skipped = keys
                .iter()
                .filter(|known| known.treatment == Treatment::Skip)
                .peekable();
            skipped.peek()?;
            let name = key.cast::<PyString>().ok()?.to_string_lossy();
            skipped.find(|known| known.name == name)
        })
    }

    pub(crate) fn literal(&self) -> &str {
        &self.literal
    }

    pub(crate) fn treatment(&self) -> Treatment {
        self.treatment
    }
}

/// Ends a walk through a dictionary.
fn enough() -> PyErr {
    PyValueError::new_err(())
}

/// True for values whose text needs no Python code.
#[inline]
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyFloat>()
}

/// Keys and values of a dictionary as they are now, at most that many.
pub(crate) fn items<'py>(
    dict: &Bound<'py, PyDict>,
    most: usize,
) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let items = RefCell::new(Vec::with_capacity(dict.len().min(most)));
    let _ = dict.locked_for_each(|key, value| {
        let mut items = items.borrow_mut();
        if items.len() >= most {
            return Err(enough());
        }
        items.push((key, value));
        Ok(())
    });
    items.into_inner()
}

/// `str(value)`; `None` if that fails.
fn text_of(value: &Bound<'_, PyAny>) -> Option<String> {
    Some(value.str().ok()?.to_string_lossy().into_owned())
}
