//! Sinks of which some are written in Python, walked in the caller's thread.

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use logkit::{Entry, SinkError, lock::Mutex};
use pyo3::prelude::*;

use super::{
    held::{Held, Key},
    object,
    pending::{self, Context},
    poller,
};
use crate::sinks::{Child, in_sinks};

/// Sinks of which some are written in Python.
#[derive(Clone)]
pub(crate) struct Tree(Arc<Inner>);

struct Inner {
    root: Child,
    held: Arc<Held>,
    has_joined: AtomicBool,
    n_errors: AtomicU64,
    /// Sinks whose first error was told.
    told: Mutex<Vec<String>>,
}

impl Tree {
    /// Walks that sink; `held` has the objects of entries that its wrappers hold back.
    pub(crate) fn new(root: Child, held: Arc<Held>) -> Tree {
        Tree(Arc::new(Inner {
            root,
            held,
            has_joined: AtomicBool::new(false),
            n_errors: AtomicU64::new(0),
            told: Mutex::default(),
        }))
    }

    /// Hands an entry to the sinks, in this thread; `live` is the `LogEntry` of it. What fails is
    /// counted, and told once on stderr.
    pub(crate) fn write(&self, live: &Bound<'_, PyAny>, entry: &Entry) {
        self.silently(|| match &self.0.root {
            Child::Object(object) => {
                if let Err(error) = object.write(live) {
                    self.failed(object.name(), &object::describe(live.py(), &error));
                }
            }
            Child::Native(_) => self.walk(live, entry),
        });
    }

    fn walk(&self, live: &Bound<'_, PyAny>, entry: &Entry) {
        let py = live.py();
        let Child::Native(handle) = &self.0.root else {
            return;
        };
        let outcome = in_sinks(py, || {
            if !self.0.has_joined.swap(true, Relaxed) {
                handle.join();
            }
            handle.with(|sink| sink.write_batch(slice::from_ref(entry)))
        });
        let context = Context::current(live, entry, &self.0.held);
        self.finish(py, outcome, &context);
        if self.0.held.capacity() > 0 && !context.is_done() {
            self.0.held.keep(Key::of(entry), live);
        }
        if handle.traits().polls && self.poll(py) {
            poller::watch(self);
        }
    }

    /// Does what came from elsewhere; true if more is awaited.
    pub(crate) fn poll(&self, py: Python<'_>) -> bool {
        let mut is_pending = false;
        self.silently(|| {
            if let Child::Native(handle) = &self.0.root {
                let outcome = in_sinks(py, || handle.if_open(|sink| sink.poll()));
                is_pending = *outcome.as_ref().unwrap_or(&false);
                self.finish(py, outcome, &Context::held(&self.0.held));
            }
        });
        is_pending
    }

    /// Lets the sinks write what they hold.
    pub(crate) fn flush(&self, py: Python<'_>) {
        self.silently(|| match &self.0.root {
            Child::Object(object) => {
                if let Err(error) = object.flush(py) {
                    self.failed(object.name(), &object::describe(py, &error));
                }
            }
            Child::Native(handle) => {
                let outcome = in_sinks(py, || handle.if_open(|sink| sink.flush()));
                self.finish(py, outcome, &Context::held(&self.0.held));
            }
        });
    }

    /// Closes the sinks, each once.
    pub(crate) fn close(&self, py: Python<'_>) {
        self.silently(|| match &self.0.root {
            Child::Object(object) => {
                if !self.0.has_joined.swap(true, Relaxed)
                    && let Err(error) = object.close(py)
                {
                    self.failed(object.name(), &object::describe(py, &error));
                }
            }
            Child::Native(handle) => {
                let has_joined = self.0.has_joined.swap(false, Relaxed);
                let outcome = in_sinks(py, || {
                    if has_joined {
                        handle.leave()
                    } else {
                        handle.close_if_unused()
                    }
                });
                self.finish(py, outcome, &Context::held(&self.0.held));
            }
        });
    }

    /// Calls of sinks that failed so far.
    pub(crate) fn errors(&self) -> u64 {
        self.0.n_errors.load(Relaxed)
    }

    /// Runs what the sinks put aside, and counts what went wrong there and before. For whoever used the
    /// sinks without this.
    pub(crate) fn settle<'py, T>(
        &self,
        py: Python<'py>,
        outcome: Result<T, SinkError>,
        context: &Context<'_, 'py>,
    ) {
        self.silently(|| self.finish(py, outcome, context));
    }

    fn finish<'py, T>(
        &self,
        py: Python<'py>,
        outcome: Result<T, SinkError>,
        context: &Context<'_, 'py>,
    ) {
        if let Err(error) = outcome {
            self.failed(&self.0.root.name(), &error.to_string());
        }
        pending::run(py, context, &mut |name, why| self.failed(name, &why));
    }

    /// Functions that a sink calls are not logged; nor does anything that goes wrong reach the caller.
    fn silently(&self, call: impl FnOnce()) {
        if logkit::rendering(call).is_none() {
            self.failed(&self.0.root.name(), "the sink failed");
        }
    }

    fn failed(&self, name: &str, why: &str) {
        self.0.n_errors.fetch_add(1, Relaxed);
        let mut told = self.0.told.lock();
        if !told.iter().any(|known| known == name) {
            told.push(name.to_owned());
            drop(told);
            object::notice(&format!("{name}: {why}"));
        }
    }

    /// True if both are the same sink written in Python.
    pub(crate) fn is_same_object(&self, other: &Tree) -> bool {
        match (&self.0.root, &other.0.root) {
            (Child::Object(own), Child::Object(other)) => own.is(other),
            _ => false,
        }
    }

    /// True if both are the same.
    pub(crate) fn is(&self, other: &Tree) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Inner {
    /// Files may be closed here, which others wait for.
    fn drop(&mut self) {
        let Child::Native(handle) = &self.root else {
            return;
        };
        if self.has_joined.swap(false, Relaxed) {
            let handle = Arc::clone(handle);
            let _ = Python::try_attach(|py| py.detach(move || handle.leave()));
        }
    }
}
