//! Says where an entry comes from.

use crate::{Entry, Sink, SinkError, Tags, sink::pass_on};

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

    pass_on!(delegate: first_id update can_update attach poll flush release close name);
}
