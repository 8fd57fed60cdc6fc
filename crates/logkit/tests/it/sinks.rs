//! Sinks of tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use logkit::{Entry, Sink, SinkError};

/// Keeps what it gets.
#[derive(Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<Vec<Entry>>>);

impl Sink for Memory {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.0.lock().unwrap().extend_from_slice(entries);
        Ok(())
    }
}

/// Stands still at the first batch.
pub(crate) struct Blocked(pub(crate) Duration);

impl Sink for Blocked {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        std::thread::sleep(std::mem::take(&mut self.0));
        Ok(())
    }
}

/// Refuses everything.
pub(crate) struct Broken;

impl Sink for Broken {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        Err(SinkError::Other("no room".into()))
    }
}

/// Panics.
pub(crate) struct Panics;

impl Sink for Panics {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        panic!("a sink of a test")
    }
}
