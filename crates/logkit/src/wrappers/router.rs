//! One sink of several for each entry.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{Entry, Sink, SinkCall, SinkError, Update};

type Predicate = Box<dyn Fn(&Entry) -> bool + Send>;

/// Sends each entry to the sink of the first rule that matches. A rule that panics does not match;
/// a sink that fails is not replaced by a later one.
#[derive(Default)]
pub struct DynamicRouter {
    rules: Vec<(Predicate, usize)>,
    default: Option<usize>,
    sinks: Vec<Box<dyn Sink>>,
    unmatched: Arc<AtomicU64>,
    first_id: Option<i64>,
}

impl DynamicRouter {
    /// No rules: everything is dropped.
    pub fn new() -> DynamicRouter {
        DynamicRouter::default()
    }

    /// Adds a sink, and gives the number that rules call it by.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) -> usize {
        self.sinks.push(sink);
        self.sinks.len() - 1
    }

    /// Adds a rule; the first that matches wins. Several rules may have one sink.
    pub fn rule(
        mut self,
        predicate: impl Fn(&Entry) -> bool + Send + 'static,
        sink: usize,
    ) -> DynamicRouter {
        self.rules.push((Box::new(predicate), sink));
        self
    }

    /// Where entries go that no rule matches; without it they are dropped and counted.
    pub fn otherwise(mut self, sink: usize) -> DynamicRouter {
        self.default = Some(sink);
        self
    }

    /// Number of entries that no rule wanted.
    pub fn unmatched(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unmatched)
    }

    fn target(&self, entry: &Entry) -> Option<usize> {
        let matches = |predicate: &Predicate| {
            catch_unwind(AssertUnwindSafe(|| predicate(entry))).unwrap_or(false)
        };
        self.rules
            .iter()
            .find(|(predicate, _)| matches(predicate))
            .map(|(_, sink)| *sink)
            .or(self.default)
            .filter(|sink| *sink < self.sinks.len())
    }
}

impl Sink for DynamicRouter {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let mut parts: Vec<Vec<Entry>> = vec![Vec::new(); self.sinks.len()];
        for entry in entries {
            match self.target(entry) {
                Some(sink) => parts[sink].push(entry.clone()),
                None => drop(self.unmatched.fetch_add(1, Relaxed)),
            }
        }
        self.first_id = None;
        let mut errors = Vec::new();
        let mut n_taken = 0;
        for (sink, part) in self.sinks.iter_mut().zip(&parts) {
            if part.is_empty() {
                continue;
            }
            match sink.write_batch(part) {
                Ok(()) => {
                    n_taken += part.len();
                    if part.len() == entries.len() {
                        self.first_id = sink.first_id();
                    }
                }
                Err(error) => errors.push(format!("{}: {error}", sink.name())),
            }
        }
        match (errors.is_empty(), n_taken) {
            (true, _) => Ok(()),
            (false, 0) => Err(SinkError::Other(errors.join("; "))),
            (false, _) => Err(SinkError::Partly(errors.join("; "))),
        }
    }

    fn each(&mut self, call: &mut SinkCall<'_>) -> Result<(), SinkError> {
        let outcomes = self.sinks.iter_mut().map(|sink| call(&mut **sink));
        outcomes.fold(Ok(()), Result::and)
    }

    fn first_id(&self) -> Option<i64> {
        self.first_id
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        // Ids of several databases would be mixed up.
        match &mut self.sinks[..] {
            [only] => only.update(id, update),
            _ => Ok(false),
        }
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("router")
    }
}
