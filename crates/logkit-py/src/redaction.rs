//! What is blanked in the entries of a function or a logger.

use std::sync::Arc;

use logkit::Redactor;
use pyo3::{exceptions::PyTypeError, prelude::*};

/// What `redact=` says.
#[derive(Clone)]
pub(crate) struct Redaction {
    pub(crate) redactor: Option<Arc<Redactor>>,
    pub(crate) judge: Option<Arc<Py<PyAny>>>,
}

impl Redaction {
    pub(crate) const OFF: Redaction = Redaction {
        redactor: None,
        judge: None,
    };

    /// `True`, `False`, a function, or names beside the built-in rules.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Redaction> {
        if let Ok(is_on) = value.extract::<bool>() {
            let redactor = is_on.then(Redactor::shared);
            return Ok(Redaction {
                redactor,
                judge: None,
            });
        }
        if value.is_none() {
            return Ok(Redaction {
                redactor: Some(Redactor::shared()),
                judge: None,
            });
        }
        if value.is_callable() {
            let judge = Some(Arc::new(value.clone().unbind()));
            return Ok(Redaction {
                redactor: Some(Redactor::shared()),
                judge,
            });
        }
        let names: Vec<String> = value.extract().map_err(|_| {
            PyTypeError::new_err("redact is True, False, a function or a list of names")
        })?;
        Ok(Redaction {
            redactor: Some(Arc::new(Redactor::new(names))),
            judge: None,
        })
    }
}
