//! A sink with another one beside it: every entry goes to both.

use std::{borrow::Cow, collections::VecDeque};

use logkit::{Entry, Sink, SinkCall, SinkError, Update, Which};

/// Hands entries to a sink and to its delegate; neither can keep them from the other.
pub(crate) struct Tee {
    sink: Box<dyn Sink>,
    delegate: Box<dyn Sink>,
    /// Which rows are the same if both number theirs, newest last.
    rows: VecDeque<Rows>,
}

struct Rows {
    first_id: i64,
    n_entries: i64,
    delegate_first_id: i64,
}

/// Batches whose rows can be changed later in both.
const MAX_BATCHES: usize = 4096;

impl Tee {
    pub(crate) fn new(sink: Box<dyn Sink>, delegate: Box<dyn Sink>) -> Tee {
        Tee {
            sink,
            delegate,
            rows: VecDeque::new(),
        }
    }

    fn both(
        &mut self,
        mut call: impl FnMut(&mut dyn Sink) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let ours = call(&mut *self.sink);
        let theirs = call(&mut *self.delegate);
        let told = |sink: &dyn Sink, error: SinkError| format!("{}: {error}", sink.name());
        match (ours, theirs) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(ours), Err(theirs)) => Err(SinkError::Other(format!(
                "{ours}; {}",
                told(&*self.delegate, theirs)
            ))),
            (Err(ours), Ok(())) => Err(SinkError::Partly(ours.to_string())),
            (Ok(()), Err(theirs)) => Err(SinkError::Partly(told(&*self.delegate, theirs))),
        }
    }

    fn remember(&mut self, n_entries: usize) {
        let ids = (self.sink.first_id(), self.delegate.first_id());
        if let (Some(first_id), Some(delegate_first_id)) = ids {
            if self.rows.len() >= MAX_BATCHES {
                self.rows.pop_front();
            }
            self.rows.push_back(Rows {
                first_id,
                n_entries: n_entries as i64,
                delegate_first_id,
            });
        }
    }
}

impl Sink for Tee {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        let outcome = self.both(|sink| sink.write_which(entries, which));
        if which != Which::Held {
            self.remember(entries.len());
        }
        outcome
    }

    fn first_id(&self) -> Option<i64> {
        self.sink.first_id().or_else(|| self.delegate.first_id())
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        let same = self.rows.iter().rev().find_map(|rows| {
            let offset = id - rows.first_id;
            (0..rows.n_entries)
                .contains(&offset)
                .then_some(rows.delegate_first_id + offset)
        });
        let ours = self.sink.update(id, update)?;
        match same {
            Some(theirs) => Ok(self.delegate.update(theirs, update)? || ours),
            // Only one of them numbers its rows.
            None => Ok(ours || self.delegate.update(id, update)?),
        }
    }

    fn can_update(&self) -> bool {
        self.sink.can_update() || self.delegate.can_update()
    }

    fn each(&mut self, call: &mut SinkCall<'_>) -> Result<(), SinkError> {
        self.both(call)
    }

    fn name(&self) -> Cow<'static, str> {
        self.sink.name()
    }
}
