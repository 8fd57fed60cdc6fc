//! Sinks of tests.

use std::{
    sync::{Arc, Mutex, mpsc},
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

/// Stands still at the first batch, until what [`blocked`] gave with it is dropped.
pub(crate) struct Blocked(mpsc::Receiver<()>);

pub(crate) fn blocked() -> (Blocked, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel();
    (Blocked(released), release)
}

impl Sink for Blocked {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        let _ = self.0.recv_timeout(Duration::from_mins(1));
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
