//! Marks entries that hold orders to a model.

use std::borrow::Cow;

use crate::{Entry, Sink, SinkError, StatsSource, Update, scan_entry_for_injection};

/// Sets `extra.prompt_injection` of entries in whose arguments or message a prompt injection is
/// found. What a model explains is scanned already.
pub struct InjectionScanner {
    delegate: Box<dyn Sink>,
}

impl InjectionScanner {
    /// Scans what goes to that sink.
    pub fn new(delegate: Box<dyn Sink>) -> InjectionScanner {
        InjectionScanner { delegate }
    }
}

/// The entries with their marks, if one was found.
pub(crate) fn marked(entries: &[Entry]) -> Cow<'_, [Entry]> {
    let mut marked = Cow::Borrowed(entries);
    for (idx, entry) in entries.iter().enumerate() {
        if let Some(found) = scan_entry_for_injection(entry) {
            let extra = &mut marked.to_mut()[idx].extra;
            extra.insert("prompt_injection".into(), found.into());
        }
    }
    marked
}

impl Sink for InjectionScanner {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.delegate.write_batch(&marked(entries))
    }

    fn write_unless_held(&mut self, entries: &[Entry], holds: &[bool]) -> Result<(), SinkError> {
        self.delegate.write_unless_held(&marked(entries), holds)
    }

    fn write_held(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.delegate.write_held(&marked(entries))
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
