//! Says where an entry comes from.

use crate::{Entry, Sink, SinkError, Tags, Which};

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
}

impl Sink for EnvTagger {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        let mut tagged = entries.to_vec();
        for entry in &mut tagged {
            self.tags.fill(entry);
        }
        self.delegate.write_which(&tagged, which)
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&*self.delegate)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut *self.delegate)
    }
}
