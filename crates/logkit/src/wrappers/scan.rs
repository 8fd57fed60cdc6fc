//! Marks entries that hold orders to a model.

use std::borrow::Cow;

use crate::{Entry, Sink, SinkError, Which, scan_entry_for_injection};

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
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        self.delegate.write_which(&marked(entries), which)
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&*self.delegate)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut *self.delegate)
    }
}
