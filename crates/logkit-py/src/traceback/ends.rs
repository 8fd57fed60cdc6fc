//! Text of which the start and the end are kept.

use std::{collections::VecDeque, fmt::Write};

/// Characters kept of the start at most, and of the end at least: more than an error's message has.
const MAX_START: usize = 64 << 10;
const MIN_END: usize = 128 << 10;

/// The start and the end of the parts that were pushed. A part is kept whole or left out.
#[derive(Default)]
pub(super) struct Ends {
    start: String,
    n_start_chars: usize,
    /// Parts of the end, and how many characters they have.
    end: VecDeque<(String, usize)>,
    n_end_chars: usize,
    n_cut_chars: usize,
}

impl Ends {
    /// Adds lines, with the line feed at their end.
    pub(super) fn push(&mut self, part: &str) {
        let n_chars = part.chars().count();
        if self.end.is_empty() && self.n_start_chars + n_chars <= MAX_START {
            self.start.push_str(part);
            self.n_start_chars += n_chars;
            return;
        }
        self.end.push_back((part.to_owned(), n_chars));
        self.n_end_chars += n_chars;
        while let Some((_, n_chars)) = self.end.front()
            && self.n_end_chars - n_chars >= MIN_END
        {
            self.n_end_chars -= n_chars;
            self.n_cut_chars += n_chars;
            self.end.pop_front();
        }
    }

    /// The text, with a line that says how much was left out.
    pub(super) fn finish(self) -> String {
        let mut text = self.start;
        if self.n_cut_chars > 0 {
            let _ = writeln!(text, "... [truncated {} chars]", self.n_cut_chars);
        }
        text.extend(self.end.into_iter().map(|(part, _)| part));
        text
    }
}
