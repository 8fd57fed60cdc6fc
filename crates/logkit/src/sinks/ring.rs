//! Keeps quiet until something goes wrong.

use std::collections::VecDeque;

use crate::{Entry, Level, Sink, SinkError};

/// Holds the last entries in memory; an error hands them on, and then itself.
pub struct RingBufferSink {
    delegate: Box<dyn Sink>,
    held: VecDeque<Entry>,
    capacity: usize,
    trigger: Vec<Level>,
    include_trigger: bool,
}

impl RingBufferSink {
    /// Holds up to `capacity` entries (1000 is a good number) until one of ERROR or CRITICAL comes.
    ///
    /// ```
    /// use logkit::{Entry, JsonForm, JsonSink, Level, RingBufferSink, Rotation, Sink};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("calls.jsonl");
    /// let file = JsonSink::open(&path, JsonForm::Lines, Rotation::default())?;
    /// let mut sink = RingBufferSink::new(Box::new(file), 1000);
    /// sink.write_batch(&[Entry::default()])?;
    /// assert_eq!(std::fs::read_to_string(&path)?, "");
    /// sink.write_batch(&[Entry { level: Level::Error, ..Entry::default() }])?;
    /// assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(delegate: Box<dyn Sink>, capacity: usize) -> RingBufferSink {
        RingBufferSink {
            delegate,
            held: VecDeque::new(),
            capacity,
            trigger: vec![Level::Error, Level::Critical],
            include_trigger: true,
        }
    }

    /// Levels that let the held entries go.
    pub fn trigger_levels(mut self, levels: impl Into<Vec<Level>>) -> RingBufferSink {
        self.trigger = levels.into();
        self
    }

    /// Whether the entry that lets them go is written too.
    pub fn include_trigger(mut self, on: bool) -> RingBufferSink {
        self.include_trigger = on;
        self
    }
}

impl Sink for RingBufferSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let mut out = Vec::new();
        for entry in entries {
            if self.trigger.contains(&entry.level) {
                out.extend(self.held.drain(..));
                if self.include_trigger {
                    out.push(entry.clone());
                }
            } else if self.capacity > 0 {
                if self.held.len() == self.capacity {
                    self.held.pop_front();
                }
                self.held.push_back(entry.clone());
            }
        }
        if out.is_empty() {
            return Ok(());
        }
        self.delegate.write_batch(&out)
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&*self.delegate)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut *self.delegate)
    }

    fn first_id(&self) -> Option<i64> {
        // What was written last is not what came last.
        None
    }

    fn can_update(&self) -> bool {
        false
    }
}
