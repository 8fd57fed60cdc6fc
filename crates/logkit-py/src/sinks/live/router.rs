//! One sink of several for each entry, chosen by Python functions.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use logkit::{Entry, Sink, SinkCall, SinkError};
use pyo3::prelude::*;

use super::{
    object,
    pending::{Action, later},
};
use crate::sinks::{Child, in_sinks};

/// Rules, in order, and the sinks they name.
pub(crate) struct Router {
    rules: Vec<(Py<PyAny>, usize)>,
    default: Option<usize>,
    /// Each sink once, however many rules name it.
    sinks: Vec<Child>,
    unmatched: Arc<AtomicU64>,
}

impl Router {
    /// Sends entries to the sink of the first rule that holds, else to `default`; what neither wants
    /// is dropped and counted.
    pub(crate) fn new(rules: Vec<(Py<PyAny>, Child)>, default: Option<Child>) -> Router {
        let mut sinks: Vec<Child> = Vec::new();
        let mut number = |sink: Child| {
            let known = sinks.iter().position(|present| present.is(&sink));
            known.unwrap_or_else(|| {
                sinks.push(sink);
                sinks.len() - 1
            })
        };
        let rules = rules
            .into_iter()
            .map(|(predicate, sink)| (predicate, number(sink)))
            .collect();
        let default = default.map(&mut number);
        Router {
            rules,
            default,
            sinks,
            unmatched: Arc::default(),
        }
    }

    pub(crate) fn sinks(&self) -> &[Child] {
        &self.sinks
    }

    pub(crate) fn unmatched(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unmatched)
    }

    /// Where the entry goes. A rule that raises does not hold.
    pub(crate) fn target(&self, live: &Bound<'_, PyAny>) -> Option<&Child> {
        let py = live.py();
        let holds = |predicate: &Py<PyAny>| {
            let holds = predicate
                .bind(py)
                .call1((live,))
                .and_then(|said| said.is_truthy());
            holds.unwrap_or_else(|error| {
                let _ = object::describe(py, &error);
                false
            })
        };
        let found = self
            .rules
            .iter()
            .find(|(predicate, _)| holds(predicate))
            .map(|(_, sink)| *sink)
            .or(self.default);
        if found.is_none() {
            self.unmatched.fetch_add(1, Relaxed);
        }
        found.map(|sink| &self.sinks[sink])
    }
}

impl Child {
    /// Writes one entry, outside of all locks.
    pub(crate) fn write(&self, py: Python<'_>, entry: &Entry) -> Result<(), SinkError> {
        match self {
            Child::Native(handle) => in_sinks(py, || {
                handle.with(|sink| sink.write_batch(std::slice::from_ref(entry)))
            }),
            Child::Object(object) => {
                later(Action::Write {
                    object: Arc::clone(object),
                    entries: vec![entry.clone()],
                });
                Ok(())
            }
        }
    }
}

/// Puts entries aside until their rules can be asked.
pub(crate) struct RouterPort {
    router: Arc<Router>,
    sinks: Vec<Box<dyn Sink>>,
}

impl RouterPort {
    pub(crate) fn new(router: &Arc<Router>) -> RouterPort {
        RouterPort {
            router: Arc::clone(router),
            sinks: router.sinks.iter().map(Child::sink).collect(),
        }
    }
}

impl Sink for RouterPort {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        later(Action::Route {
            router: Arc::clone(&self.router),
            entries: entries.to_vec(),
        });
        Ok(())
    }

    fn each(&mut self, call: &mut SinkCall<'_>) -> Result<(), SinkError> {
        let outcomes = self.sinks.iter_mut().map(|sink| call(&mut **sink));
        outcomes.fold(Ok(()), Result::and)
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("router")
    }
}
