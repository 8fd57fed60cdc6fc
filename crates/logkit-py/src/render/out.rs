//! Text that stops growing at a number of characters.

use std::fmt::Write;

/// What is cut is counted up to that many times the limit, then nothing more is rendered.
const COUNTED: usize = 16;

/// Keeps the first characters, and counts the others.
pub(crate) struct Out {
    text: String,
    limit: usize,
    n_chars: usize,
    n_cut: usize,
    /// More was left out than is counted.
    is_open: bool,
}

impl Out {
    /// No limit with 0.
    pub(crate) fn new(limit: usize) -> Out {
        Out {
            text: String::with_capacity(48),
            limit: if limit == 0 { usize::MAX } else { limit },
            n_chars: 0,
            n_cut: 0,
            is_open: false,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, text: &str) {
        // As many bytes are at least as many characters.
        if text.len() <= self.limit - self.n_chars {
            self.text.push_str(text);
            self.n_chars += if text.is_ascii() {
                text.len()
            } else {
                text.chars().count()
            };
        } else {
            self.push_cut(text);
        }
    }

    #[cold]
    fn push_cut(&mut self, text: &str) {
        let room = self.limit - self.n_chars;
        let cut = text
            .char_indices()
            .nth(room)
            .map_or(text.len(), |(cut, _)| cut);
        self.text.push_str(&text[..cut]);
        self.n_chars += text[..cut].chars().count();
        self.n_cut += text[cut..].chars().count();
    }

    /// Says that at least that many more characters are not even looked at.
    pub(crate) fn leave_out(&mut self, n_chars: usize) {
        self.n_cut += n_chars;
        self.is_open = true;
    }

    /// Characters of one value that are worth a look.
    pub(crate) fn horizon(&self) -> usize {
        self.limit.saturating_mul(COUNTED)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// True if nothing more needs to be rendered.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.n_cut > self.limit.saturating_mul(COUNTED - 1)
    }

    /// Notes that the rest is left out, because enough was seen.
    pub(crate) fn stop(&mut self) {
        self.is_open = true;
    }

    pub(crate) fn finish(mut self) -> String {
        if self.n_cut > 0 {
            let more = if self.is_open { ">" } else { "" };
            // Writing to a string does not fail.
            let _ = write!(self.text, "... [truncated {more}{} chars]", self.n_cut);
        }
        self.text
    }
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        Ok(())
    }
}
