//! Within which span code runs, and what Python's context variables say.
//!
//! A thread has an innermost span, and so has a context: that of a coroutine, say. The one that was
//! entered later is the parent of what begins now. The variables are looked at only once somebody used
//! them: code without coroutines, `log_context` and `silence` never pays for them.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use logkit::{Entry, REDACTED, Redactor, SpanId};
use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyDict};
use serde_json::Value;

use crate::render::{Renderer, json_map};

struct Variables {
    span: Py<PyAny>,
    fields: Py<PyAny>,
    silent: Py<PyAny>,
}

static VARIABLES: PyOnceLock<Variables> = PyOnceLock::new();
static USED: AtomicBool = AtomicBool::new(false);

/// Names the context variables: the mark of the innermost span, a dictionary of fields, and whether
/// nothing is logged.
#[pyfunction]
pub(crate) fn set_context(py: Python<'_>, span: Py<PyAny>, fields: Py<PyAny>, silent: Py<PyAny>) {
    let _ = VARIABLES.set(
        py,
        Variables {
            span,
            fields,
            silent,
        },
    );
}

/// The context variables have values from now on.
#[pyfunction]
pub(crate) fn use_context() {
    USED.store(true, Relaxed);
}

#[inline]
fn variables(py: Python<'_>) -> Option<&Variables> {
    if USED.load(Relaxed) {
        VARIABLES.get(py)
    } else {
        None
    }
}

fn value<'py>(py: Python<'py>, variable: &Py<PyAny>) -> Option<Bound<'py, PyAny>> {
    let value = variable.bind(py).call_method0(intern!(py, "get")).ok()?;
    (!value.is_none()).then_some(value)
}

/// A span, and when it was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) span: Option<SpanId>,
    pub(crate) when: u64,
}

impl Mark {
    const NONE: Mark = Mark {
        span: None,
        when: 0,
    };

    /// The span is entered now.
    #[inline]
    pub(crate) fn now(span: Option<SpanId>) -> Mark {
        static CLOCK: AtomicU64 = AtomicU64::new(1);
        Mark {
            span,
            when: CLOCK.fetch_add(1, Relaxed),
        }
    }
}

thread_local! {
    /// The innermost span of the thread.
    static INNERMOST: Cell<Mark> = const { Cell::new(Mark::NONE) };
}

/// As long as a thread is within a span.
#[derive(Debug)]
pub(crate) struct Within {
    before: Mark,
    /// Says which thread that is.
    thread: usize,
}

impl Within {
    /// Makes that the innermost span of this thread.
    #[inline]
    pub(crate) fn enter(mark: Mark) -> Within {
        let before = INNERMOST.replace(mark);
        Within {
            before,
            thread: this_thread(),
        }
    }

    /// The span before is the innermost again. On another thread nothing changes.
    #[inline]
    pub(crate) fn leave(self) {
        if self.thread == this_thread() {
            INNERMOST.set(self.before);
        }
    }
}

#[inline]
fn this_thread() -> usize {
    INNERMOST.with(|innermost| std::ptr::from_ref(innermost) as usize)
}

/// The span within which code runs here.
#[inline]
pub(crate) fn innermost(py: Python<'_>) -> Option<SpanId> {
    let of_thread = INNERMOST.get();
    match span(py) {
        Some(mark) if mark.when > of_thread.when => mark.span,
        _ => of_thread.span,
    }
}

/// The innermost span of this context.
fn span(py: Python<'_>) -> Option<Mark> {
    let (id, when): (u64, u64) = value(py, &variables(py)?.span)?.extract().ok()?;
    Some(Mark {
        span: SpanId::new(id),
        when,
    })
}

/// True if nothing is logged in this context.
pub(crate) fn is_silent(py: Python<'_>) -> bool {
    variables(py)
        .and_then(|variables| value(py, &variables.silent))
        .is_some_and(|silent| silent.is_truthy().unwrap_or(false))
}

/// Adds the fields of this context to those of an entry, which win.
pub(crate) fn fill(py: Python<'_>, entry: &mut Entry, redactor: Option<&Redactor>) {
    let Some(fields) = variables(py).and_then(|variables| value(py, &variables.fields)) else {
        return;
    };
    let Ok(fields) = fields.cast::<PyDict>() else {
        return;
    };
    let mut extra = json_map(fields, &Renderer::default());
    if extra.get("trace_id").is_some_and(Value::is_string)
        && let Some(Value::String(id)) = extra.shift_remove("trace_id")
        && entry.trace_id.is_empty()
    {
        entry.trace_id = id.into();
    }
    if let Some(redactor) = redactor {
        for (key, value) in &mut extra {
            if redactor.is_sensitive_key(key) {
                *value = REDACTED.into();
            } else {
                redactor.redact_json(value);
            }
        }
    }
    extra.append(&mut entry.extra);
    entry.extra = extra;
}
