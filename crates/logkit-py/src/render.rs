//! Python values as text: bounded, with secrets blanked, never raising.
//!
//! `walk.rs` writes values and `leaf.rs` those that hold no others, `out.rs` keeps the limit, `names.rs`
//! knows types, `json.rs` makes JSON of them, and `blank.rs` blanks the objects themselves, for sinks written
//! in Python.

mod blank;
mod interrupt;
mod json;
mod leaf;
mod names;
mod out;
mod walk;

use std::sync::Arc;

use logkit::{
    Redactor,
    repr::{self, MAX_REPR_LENGTH},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};

pub(crate) use json::json_map;
pub(crate) use leaf::cut;
pub(crate) use names::{keep, type_name};
use out::Out;
use walk::Walk;
pub(crate) use walk::{Key, items};

/// How values are rendered.
#[derive(Clone)]
pub(crate) struct Renderer {
    /// Characters a field may have; 0 = no limit.
    pub(crate) limit: usize,
    /// Blanks what is secret by its name; `None` = nothing is.
    pub(crate) redactor: Option<Arc<Redactor>>,
    /// `bytes` over 8 KiB are told by length and digest.
    pub(crate) binary_meta: bool,
    /// A function of the user's: it gets a name and a value, and what it returns is shown.
    pub(crate) judge: Option<Arc<Py<PyAny>>>,
}

/// What happens to one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Show,
    Blank,
    /// It is left out.
    Skip,
}

/// What is known of the positional arguments of a function.
pub(crate) trait Plan {
    /// What happens to the argument at that place.
    fn treatment(&self, idx: usize) -> Treatment;

    /// Its name, if it has one.
    fn name(&self, idx: usize) -> Option<&str>;
}

/// Nothing is known but what is blanked.
impl Plan for &[bool] {
    fn treatment(&self, idx: usize) -> Treatment {
        if self.get(idx).copied().unwrap_or_default() {
            Treatment::Blank
        } else {
            Treatment::Show
        }
    }

    fn name(&self, _: usize) -> Option<&str> {
        None
    }
}

impl Renderer {
    /// With the built-in rules for secrets.
    pub(crate) fn new(limit: usize) -> Renderer {
        Renderer {
            limit,
            redactor: Some(Redactor::shared()),
            binary_meta: false,
            judge: None,
        }
    }

    /// Without any.
    pub(crate) fn plain(limit: usize) -> Renderer {
        Renderer {
            redactor: None,
            ..Renderer::new(limit)
        }
    }

    /// One value, cut to the limit.
    pub(crate) fn value(&self, value: &Bound<'_, PyAny>) -> String {
        let mut walk = Walk::new(self);
        walk.value(value);
        walk.finish()
    }

    /// The positional arguments; `secret` says which are blanked.
    pub(crate) fn args(&self, args: &Bound<'_, PyTuple>, secret: &[bool]) -> String {
        self.planned_args(args, &secret)
    }

    /// The positional arguments as planned.
    pub(crate) fn planned_args(&self, args: &Bound<'_, PyTuple>, plan: &impl Plan) -> String {
        let mut walk = Walk::new(self);
        walk.args(args, plan);
        walk.finish()
    }

    /// The named arguments.
    pub(crate) fn kwargs(&self, kwargs: &Bound<'_, PyDict>) -> String {
        self.value(kwargs.as_any())
    }

    /// Names of the types of positional arguments: `int, str`.
    #[allow(clippy::unused_self, reason = "one object renders all of an entry")]
    pub(crate) fn planned_types(&self, args: &Bound<'_, PyTuple>, plan: &impl Plan) -> String {
        let mut names = String::new();
        for (idx, value) in args.iter().enumerate() {
            if plan.treatment(idx) == Treatment::Skip {
                continue;
            }
            if !names.is_empty() {
                names.push_str(", ");
            }
            names.push_str(&type_name(&value));
        }
        names
    }

    /// The named arguments of a function, some of whose names are known.
    pub(crate) fn known_kwargs(&self, kwargs: &Bound<'_, PyDict>, keys: &[Key]) -> String {
        let mut walk = Walk::new(self);
        walk.dict(kwargs, keys);
        walk.finish()
    }

    /// Their names and types: `{'name': 'str'}`.
    pub(crate) fn known_kwarg_types(&self, kwargs: &Bound<'_, PyDict>, keys: &[Key]) -> String {
        let mut out = Out::new(self.limit);
        out.push("{");
        let mut is_first = true;
        let mut pair = |key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| {
            let known = Key::find(keys, key);
            if known.is_some_and(|known| known.treatment() == Treatment::Skip) {
                return;
            }
            if !std::mem::take(&mut is_first) {
                out.push(", ");
            }
            if let Some(known) = known {
                out.push(known.literal());
            } else {
                let key = key.cast::<PyString>().map(|key| key.to_string_lossy());
                out.push(&repr::repr_str(&key.unwrap_or_default()));
                out.push(": ");
            }
            out.push("'");
            out.push(&type_name(value));
            out.push("'");
        };
        for (key, value) in walk::items(kwargs, usize::MAX) {
            pair(&key, &value);
        }
        out.push("}");
        out.finish()
    }

    /// True if what has that name is blanked.
    pub(crate) fn is_secret(&self, name: &str) -> bool {
        self.redactor
            .as_ref()
            .is_some_and(|redactor| redactor.is_sensitive_key(name))
    }
}

impl Default for Renderer {
    fn default() -> Renderer {
        Renderer::new(MAX_REPR_LENGTH)
    }
}
