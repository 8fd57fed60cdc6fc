//! Entries for a terminal, in one of a few forms.

use std::borrow::Cow;

use crate::{ConsoleSink, Entry, Sink, SinkError};

/// How lines on a terminal look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalForm {
    /// The console line, without colours.
    #[default]
    Ascii,
    /// The console line, with colours.
    Color,
    /// Only level, function, duration and error.
    Compact,
}

impl TerminalForm {
    /// Reads `ascii`, `color` or `compact`; nothing is `ascii`.
    pub fn parse(name: &str) -> Option<TerminalForm> {
        Some(match name {
            "" | "ascii" => TerminalForm::Ascii,
            "color" => TerminalForm::Color,
            "compact" => TerminalForm::Compact,
            _ => return None,
        })
    }
}

/// Writes lines for people; unlike the console of a logger it counts as a sink.
pub struct TerminalSink {
    console: ConsoleSink,
    form: TerminalForm,
}

impl TerminalSink {
    /// Writes lines of that form with `console`, whose colours it sets:
    /// `TerminalSink::new(ConsoleSink::stderr(), TerminalForm::Compact)`.
    pub fn new(console: ConsoleSink, form: TerminalForm) -> TerminalSink {
        TerminalSink {
            console: console.colors(form == TerminalForm::Color),
            form,
        }
    }
}

impl Sink for TerminalSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        if self.form != TerminalForm::Compact {
            return self.console.write_batch(entries);
        }
        let short: Vec<Entry> = entries
            .iter()
            .map(|entry| Entry {
                args: "()".into(),
                kwargs: "{}".into(),
                return_value: "None".into(),
                ..entry.clone()
            })
            .collect();
        self.console.write_batch(&short)
    }

    /// A line is wanted at once.
    fn can_update(&self) -> bool {
        true
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("terminal")
    }
}
