//! What became of entries.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{lock::Mutex, queue::Queue};

/// Counts of a logger since it was made. After a flush `emitted = written + dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries at or above the level.
    pub emitted: u64,
    /// Entries that a sink took.
    pub written: u64,
    /// Entries that are lost, for any reason.
    pub dropped: u64,
    /// Those lost because the queue was full or closed.
    pub dropped_queue: u64,
    /// Those lost because every sink failed.
    pub dropped_sink: u64,
    /// Calls of a sink that failed.
    pub sink_errors: u64,
    /// Entries that wait in the queue now.
    pub queue_len: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) emitted: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) dropped_queue: AtomicU64,
    pub(crate) dropped_sink: AtomicU64,
    pub(crate) sink_errors: AtomicU64,
    /// `sink_errors`, by the name of the sink.
    errors_by_sink: Mutex<BTreeMap<String, u64>>,
}

/// Reads the counts of a logger, from within its sinks too.
#[derive(Clone, Debug)]
pub struct StatsSource {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
}

impl StatsSource {
    /// Returns what was counted until now.
    pub fn get(&self) -> Stats {
        self.counters.stats(&self.queue)
    }

    /// Calls that failed, by the name of the sink.
    pub fn sink_errors(&self) -> BTreeMap<String, u64> {
        self.counters.errors_by_sink.lock().clone()
    }
}

impl Counters {
    pub(crate) fn sink_failed(&self, name: &str) {
        self.sink_errors.fetch_add(1, Relaxed);
        *self
            .errors_by_sink
            .lock()
            .entry(name.to_owned())
            .or_default() += 1;
    }

    pub(crate) fn stats(&self, queue: &Queue) -> Stats {
        let dropped_queue = self.dropped_by_queue(queue);
        let dropped_sink = self.dropped_sink.load(Relaxed);
        Stats {
            emitted: self.emitted.load(Relaxed),
            written: self.written.load(Relaxed),
            dropped: dropped_queue + dropped_sink,
            dropped_queue,
            dropped_sink,
            sink_errors: self.sink_errors.load(Relaxed),
            queue_len: queue.len(),
        }
    }

    pub(crate) fn dropped_by_queue(&self, queue: &Queue) -> u64 {
        let pushed_out = queue.take_pushed_out();
        self.dropped_queue.fetch_add(pushed_out, Relaxed) + pushed_out
    }
}
