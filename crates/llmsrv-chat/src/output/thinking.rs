//! Tells thinking from content by the tags around it.

/// Splits one answer: an optional thinking part at its start, then content. Whitespace before and
/// after each tag's place is dropped as the tag is; whitespace before content that has no thinking
/// stays.
#[derive(Debug)]
pub(super) struct ThinkingSplitter {
    open: String,
    close: String,
    state: State,
    /// Text that may yet become a tag.
    held: String,
}

/// Text of a known kind.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) thinking: String,
    pub(super) content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but whitespace and a part of the open tag so far.
    Start,
    /// Whitespace after the open tag.
    Opened,
    Thinking,
    /// Whitespace after the close tag.
    Closed,
    Content,
}

impl ThinkingSplitter {
    /// A splitter for an answer; `opened` when the prompt ends in the open tag.
    pub(super) fn new(open: &str, close: &str, opened: bool) -> Self {
        ThinkingSplitter {
            open: open.to_owned(),
            close: close.to_owned(),
            state: if opened { State::Opened } else { State::Start },
            held: String::new(),
        }
    }

    /// Takes the next character.
    pub(super) fn push(&mut self, c: char) -> Split {
        let mut split = Split::default();
        match self.state {
            State::Start => {
                self.held.push(c);
                let seen = self.held.trim_start();
                if seen == self.open {
                    self.held.clear();
                    self.state = State::Opened;
                } else if !self.open.starts_with(seen) {
                    split.content = std::mem::take(&mut self.held);
                    self.state = State::Content;
                }
            }
            State::Opened | State::Closed if c.is_whitespace() => {}
            State::Opened | State::Thinking => {
                self.state = State::Thinking;
                self.held.push(c);
                while !self.close.starts_with(&self.held) {
                    split.thinking.push(self.held.remove(0));
                }
                if self.held == self.close {
                    self.held.clear();
                    self.state = State::Closed;
                }
            }
            State::Closed | State::Content => {
                self.state = State::Content;
                split.content.push(c);
            }
        }
        split
    }

    /// Returns what was held back.
    pub(super) fn finish(&mut self) -> Split {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Thinking => Split {
                thinking: held,
                content: String::new(),
            },
            _ => Split {
                thinking: String::new(),
                content: held,
            },
        }
    }
}
