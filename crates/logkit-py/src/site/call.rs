//! A call that runs, and its end.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use logkit::{Entry, Gate, Level, SpanId, Text, Timestamp, lock::Mutex, milliseconds};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::Site;
use crate::{
    context::{self, Mark, Within},
    logger::target::{Live, Target},
    render::{Renderer, type_name},
    traceback,
};

/// The arguments of a call.
pub(crate) struct Objects {
    pub(crate) args: Py<PyTuple>,
    pub(crate) kwargs: Py<PyDict>,
}

/// The same as texts.
pub(crate) struct Texts {
    pub(crate) args: Text,
    pub(crate) kwargs: Text,
    pub(crate) arg_types: Text,
    pub(crate) kwarg_types: Text,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            args: "()".into(),
            kwargs: "{}".into(),
            arg_types: "".into(),
            kwarg_types: "{}".into(),
        }
    }
}

/// What a call needs at its end.
pub(crate) struct State {
    pub(crate) target: Arc<Target>,
    pub(crate) renderer: Renderer,
    pub(crate) gate: Gate,
    pub(crate) parent: Option<SpanId>,
    /// As long as a thread is within the span.
    pub(crate) within: Option<Within>,
    /// `None` if only failures are logged.
    pub(crate) texts: Option<Texts>,
    /// Kept for sinks written in Python, or to be rendered if the call fails.
    pub(crate) objects: Option<Objects>,
    /// How long it ran, if it ran in steps.
    pub(crate) active: Option<Duration>,
    pub(crate) resumed: Option<Instant>,
    pub(crate) timestamp: Timestamp,
    pub(crate) started: Instant,
}

impl State {
    fn leave(&mut self) {
        if let Some(within) = self.within.take() {
            within.leave();
        }
    }

    fn stop_clock(&mut self) {
        if let Some(resumed) = self.resumed.take() {
            *self.active.get_or_insert_default() += resumed.elapsed();
        }
    }
}

/// A call that runs; exactly one of its methods `returned`, `raised`, `ended` and `failed` ends it.
#[pyclass(frozen, module = "logkit._native")]
pub(crate) struct Call {
    site: Py<Site>,
    /// `None` if it is logged only if it fails.
    span: Option<SpanId>,
    /// What it is for what it calls.
    mark: Mark,
    /// `None` once it has ended.
    state: Mutex<Option<State>>,
}

/// How a call ended.
enum End<'a, 'py> {
    Value(&'a Bound<'py, PyAny>),
    Exhausted,
    Error(&'a Bound<'py, PyAny>),
}

#[pymethods]
impl Call {
    /// Id of the span of the call; 0 if it has none.
    #[getter]
    fn span_id(&self) -> u64 {
        self.span.map_or(0, |span| span.0.get())
    }

    /// The span and when it was entered, for the context variable.
    #[getter]
    fn mark(&self) -> (u64, u64) {
        (
            self.mark.span.map_or(0, |span| span.0.get()),
            self.mark.when,
        )
    }

    /// The call went well.
    fn returned(&self, value: &Bound<'_, PyAny>) {
        self.end(value.py(), &End::Value(value), None);
    }

    /// The call raised that.
    fn raised(&self, error: &Bound<'_, PyAny>) {
        self.end(error.py(), &End::Error(error), None);
    }

    /// The generator is exhausted or closed.
    fn ended(&self, py: Python<'_>, n_yielded: u64) {
        self.end(py, &End::Exhausted, Some(n_yielded));
    }

    /// The generator raised that.
    fn failed(&self, error: &Bound<'_, PyAny>, n_yielded: u64) {
        self.end(error.py(), &End::Error(error), Some(n_yielded));
    }

    /// A generator goes on, on this thread.
    fn resume(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.leave();
            state.resumed = Some(Instant::now());
            if self.span.is_some() {
                state.within = Some(Within::enter(Mark::now(self.span)));
            }
        }
    }

    /// A generator waits.
    fn suspend(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.stop_clock();
            state.leave();
        }
    }

    /// Time passes for the call. Only the duration of generators is counted so.
    fn start_clock(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.resumed = Some(Instant::now());
        }
    }

    /// No time passes for the call.
    fn stop_clock(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.stop_clock();
        }
    }

    /// The thread is not within the call from here on, unless it is resumed.
    fn detach(&self) {
        if let Some(state) = &mut *self.state.lock() {
            state.leave();
        }
    }
}

impl Call {
    pub(crate) fn new(site: Py<Site>, span: Option<SpanId>, mark: Mark, state: State) -> Call {
        Call {
            site,
            span,
            mark,
            state: Mutex::new(Some(state)),
        }
    }

    fn end<'py>(&self, py: Python<'py>, end: &End<'_, 'py>, n_yielded: Option<u64>) {
        // Nothing of this concerns the caller.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let state = self.state.lock().take();
            if let Some(state) = state {
                self.finish(py, state, end, n_yielded);
            }
        }));
    }

    fn finish<'py>(
        &self,
        py: Python<'py>,
        mut state: State,
        end: &End<'_, 'py>,
        n_yielded: Option<u64>,
    ) {
        let elapsed = state.started.elapsed();
        state.leave();
        state.stop_clock();
        let elapsed = match (n_yielded, state.active) {
            (Some(_), active) => active.unwrap_or_default(),
            (None, _) => elapsed,
        };
        let site = self.site.get();
        let is_failure = match end {
            End::Error(error) => traceback::is_failure(error),
            _ => false,
        };
        let duration_ms = milliseconds(elapsed);
        let too_quick = site.slow_ms > 0.0 && duration_ms < site.slow_ms;
        if !is_failure && (state.gate != Gate::Full || too_quick) {
            return;
        }
        let State {
            target,
            renderer,
            texts,
            objects,
            timestamp,
            parent,
            ..
        } = state;
        let mut entry = Entry {
            function_name: site.name.clone(),
            module: site.module.clone(),
            duration_ms: Some(duration_ms),
            span_id: self.span,
            parent_id: parent,
            level: if is_failure {
                Level::Error
            } else {
                site.level.clone()
            },
            ..Entry::at(timestamp)
        };
        let late = texts.is_none();
        let texts = texts.or_else(|| {
            let objects = objects.as_ref()?;
            Some(site.texts(&renderer, objects.args.bind(py), objects.kwargs.bind(py)))
        });
        if let Some(texts) = texts {
            entry.args = texts.args;
            entry.kwargs = texts.kwargs;
            entry.arg_types = texts.arg_types;
            entry.kwarg_types = texts.kwarg_types;
        }
        match end {
            End::Value(value) => {
                if !value.is_none() {
                    let text = logkit::rendering(|| renderer.value(value));
                    entry.return_value = text.unwrap_or_default().into();
                }
                entry.return_type = type_name(value);
            }
            End::Exhausted => entry.return_type = "generator".into(),
            End::Error(error) => {
                let Some(mut told) = logkit::rendering(|| traceback::tell(error)) else {
                    return;
                };
                if let Some(redactor) = &renderer.redactor {
                    for text in [&mut told.message, &mut told.traceback] {
                        if let std::borrow::Cow::Owned(redacted) = redactor.redact_string(text) {
                            *text = redacted;
                        }
                    }
                }
                entry.exception_type = told.kind;
                entry.exception = told.message.into();
                entry.traceback = told.traceback.into();
            }
        }
        entry.fill_scope();
        context::fill(py, &mut entry, renderer.redactor.as_deref());
        if let Some(n_yielded) = n_yielded {
            entry.extra.insert("yielded".into(), n_yielded.into());
        }
        if late {
            entry.extra.insert("args_after".into(), true.into());
        }
        let live = if target.wants_objects() {
            let result = match end {
                End::Value(value) => Some((*value).clone()),
                _ => None,
            };
            live(py, site, &renderer, objects.as_ref(), result)
        } else {
            Live::default()
        };
        target.emit(py, entry, &live);
    }
}

/// The objects of a call, without secrets.
fn live<'py>(
    py: Python<'py>,
    site: &Site,
    renderer: &Renderer,
    objects: Option<&Objects>,
    result: Option<Bound<'py, PyAny>>,
) -> Live<'py> {
    let blanked = logkit::rendering(|| {
        let result = match result {
            Some(result) => Some(renderer.blanked(result)?),
            None => None,
        };
        let arguments = match objects {
            Some(objects) => {
                Some(site.blanked(renderer, objects.args.bind(py), objects.kwargs.bind(py))?)
            }
            None => None,
        };
        PyResult::Ok((arguments, result))
    });
    // Without the objects a sink gets their texts.
    let (arguments, result) = match blanked {
        Some(Ok(blanked)) => blanked,
        _ => (None, None),
    };
    let (args, kwargs) = arguments.unzip();
    Live {
        args,
        kwargs,
        result,
    }
}
