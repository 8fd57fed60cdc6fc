//! Objects of entries that wait.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use logkit::{Entry, lock::Mutex};
use pyo3::prelude::*;

/// The `LogEntry` of each entry that a wrapper holds back, the newest ones at least.
pub(crate) struct Held {
    kept: Mutex<Kept>,
    capacity: usize,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<Key, (u64, Py<PyAny>)>,
    /// Oldest first; those that were taken meanwhile are still in it.
    order: VecDeque<(u64, Key)>,
    clock: u64,
}

/// What stays the same of an entry on its way through wrappers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64, i64);

impl Key {
    pub(crate) fn of(entry: &Entry) -> Key {
        let id = entry.span_id.map_or_else(
            || {
                let mut hasher = DefaultHasher::new();
                (&entry.function_name, &entry.args, &entry.kwargs).hash(&mut hasher);
                (&entry.return_value, &entry.exception).hash(&mut hasher);
                hasher.finish()
            },
            |id| id.0.get(),
        );
        Key(id, entry.timestamp.micros())
    }
}

impl Held {
    pub(crate) fn new(capacity: usize) -> Held {
        Held {
            kept: Mutex::default(),
            capacity,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps the objects of an entry. What there is no room for any more is dropped after the lock is
    /// gone: that may run Python code.
    pub(crate) fn keep(&self, key: Key, live: &Bound<'_, PyAny>) {
        let mut dropped = Vec::new();
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let clock = kept.clock;
        dropped.extend(kept.entries.insert(key, (clock, live.clone().unbind())));
        kept.order.push_back((clock, key));
        while kept.entries.len() > self.capacity {
            let Some((at, key)) = kept.order.pop_front() else {
                break;
            };
            if kept.is_current(at, key) {
                dropped.extend(kept.entries.remove(&key));
            }
        }
        if kept.order.len() > 2 * self.capacity + 64 {
            let mut order = std::mem::take(&mut kept.order);
            order.retain(|(at, key)| kept.is_current(*at, *key));
            kept.order = order;
        }
        drop(kept);
        drop(dropped);
    }

    /// The objects of that entry, which stay.
    pub(crate) fn get<'py>(&self, py: Python<'py>, key: Key) -> Option<Bound<'py, PyAny>> {
        let kept = self.kept.lock();
        kept.entries
            .get(&key)
            .map(|(_, live)| live.clone_ref(py).into_bound(py))
    }

    /// The objects of that entry, which are not kept any longer.
    pub(crate) fn take<'py>(&self, py: Python<'py>, key: Key) -> Option<Bound<'py, PyAny>> {
        let taken = self.kept.lock().entries.remove(&key);
        taken.map(|(_, live)| live.into_bound(py))
    }
}

impl Kept {
    fn is_current(&self, at: u64, key: Key) -> bool {
        self.entries.get(&key).is_some_and(|(then, _)| *then == at)
    }
}
