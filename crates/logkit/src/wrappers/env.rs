//! Says where an entry comes from.

use std::borrow::Cow;

use crate::{Entry, Sink, SinkError, StatsSource, Tags, Update};

/// Fills the empty tags of entries on their way to another sink. A logger with
/// [`Builder::tags`](crate::Builder::tags) does the same for all its sinks without copying.
pub struct EnvTagger {
    delegate: Box<dyn Sink>,
    tags: Tags,
}

impl EnvTagger {
    /// Those tags; see [`Tags::detected`].
    pub fn new(delegate: Box<dyn Sink>, tags: Tags) -> EnvTagger {
        EnvTagger { delegate, tags }
    }

    fn tagged(&self, entries: &[Entry]) -> Vec<Entry> {
        let mut tagged = entries.to_vec();
        for entry in &mut tagged {
            self.tags.fill(entry);
        }
        tagged
    }
}

impl Sink for EnvTagger {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let tagged = self.tagged(entries);
        self.delegate.write_batch(&tagged)
    }

    fn write_unless_held(&mut self, entries: &[Entry], holds: &[bool]) -> Result<(), SinkError> {
        let tagged = self.tagged(entries);
        self.delegate.write_unless_held(&tagged, holds)
    }

    fn write_held(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let tagged = self.tagged(entries);
        self.delegate.write_held(&tagged)
    }

    fn can_update(&self) -> bool {
        self.delegate.can_update()
    }

    fn attach(&mut self, stats: &StatsSource) {
        self.delegate.attach(stats);
    }

    fn first_id(&self) -> Option<i64> {
        self.delegate.first_id()
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        self.delegate.update(id, update)
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        self.delegate.poll()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.delegate.flush()
    }

    fn release(&mut self) -> Result<(), SinkError> {
        self.delegate.release()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.delegate.close()
    }

    fn name(&self) -> Cow<'static, str> {
        self.delegate.name()
    }
}
