//! Tells thinking from content by the tags around it.
//!
//! Some models call a tool without an end of their thinking. So the tag of calls ends it, too, unless the closing
//! tag comes after all, or somebody thinks about the tag: in a sentence, in a code block, or in front of words.

/// Splits one answer: an optional thinking part at its start, then content. Whitespace before and
/// after each tag's place is dropped as the tag is; whitespace before content that has no thinking
/// stays.
#[derive(Debug)]
pub(super) struct ThinkingSplitter {
    open: String,
    close: String,
    /// Begins a call, if there may be calls.
    call: Option<String>,
    state: State,
    /// The prompt ends in the open tag, which models may repeat.
    may_repeat: bool,
    /// Where the thinking is.
    place: Place,
    /// Text that may yet become a tag, or a call.
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
    /// After the tag of a call: content, unless the close tag follows.
    Call,
    /// Whitespace after the close tag.
    Closed,
    Content,
}

impl ThinkingSplitter {
    /// A splitter for an answer; `opened` when the prompt ends in the open tag. Calls begin with `call`.
    pub(super) fn new(open: &str, close: &str, call: Option<&str>, opened: bool) -> Self {
        ThinkingSplitter {
            open: open.to_owned(),
            close: close.to_owned(),
            call: call.map(str::to_owned),
            state: if opened { State::Opened } else { State::Start },
            may_repeat: opened,
            place: Place::default(),
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
                self.think(&mut split);
            }
            State::Call => {
                self.held.push(c);
                if self.held.ends_with(&self.close) {
                    let n_bytes = self.held.len() - self.close.len();
                    self.held.truncate(n_bytes);
                    split.thinking = std::mem::take(&mut self.held);
                    self.state = State::Closed;
                } else if self.is_prose() {
                    self.state = State::Thinking;
                    self.release(&mut split);
                    self.think(&mut split);
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
            State::Start | State::Opened | State::Call | State::Closed | State::Content => Split {
                thinking: String::new(),
                content: held,
            },
        }
    }

    /// Releases held thinking up to where a tag may begin.
    fn think(&mut self, split: &mut Split) {
        while !self.may_be_tag() {
            self.release(split);
        }
        if self.held == self.close {
            self.held.clear();
            self.state = State::Closed;
        } else if self.may_repeat && self.held == self.open {
            self.held.clear();
            self.may_repeat = false;
            self.state = State::Opened;
        } else if self.call.as_ref() == Some(&self.held) {
            self.state = State::Call;
        }
    }

    fn may_be_tag(&self) -> bool {
        let call = self.call.iter().filter(|_| self.place.may_call());
        let open = self.may_repeat.then_some(&self.open);
        let mut tags = call.chain(open).chain([&self.close]);
        tags.any(|tag| tag.starts_with(&self.held))
    }

    /// The first held character is thinking.
    fn release(&mut self, split: &mut Split) {
        let Some(c) = self.held.chars().next() else {
            return;
        };
        self.held.drain(..c.len_utf8());
        self.place.push(c);
        self.may_repeat = false;
        split.thinking.push(c);
    }

    /// Whether words follow the tag instead of a call.
    fn is_prose(&self) -> bool {
        let tag = self.call.as_deref().unwrap_or_default();
        let lead = self.held.get(tag.len()..).unwrap_or_default();
        let is_syntax = lead.contains(['<', '[', '{', '(']);
        !is_syntax && (lead.len() > MAX_LEAD || lead.split_whitespace().count() > 1)
    }
}

/// A place in a text.
#[derive(Debug, Default)]
struct Place {
    /// The last character of the line that is no whitespace.
    last: Option<char>,
    n_backticks: usize,
    /// In a code block.
    in_code: bool,
}

impl Place {
    fn push(&mut self, c: char) {
        self.n_backticks = if c == '`' { self.n_backticks + 1 } else { 0 };
        self.in_code ^= self.n_backticks == FENCE;
        if c == '\n' {
            self.last = None;
        } else if !c.is_whitespace() {
            self.last = Some(c);
        }
    }

    /// Whether what follows begins a line or comes after a sentence.
    fn may_call(&self) -> bool {
        let is_end = |c: char| ENDS.contains(&c);
        !self.in_code && self.last.is_none_or(is_end)
    }
}

/// Bytes that the name of a tool may take, before anything that no words have.
const MAX_LEAD: usize = 256;
/// Backticks that begin and end a code block.
const FENCE: usize = 3;
/// Sentences end so.
const ENDS: [char; 9] = ['.', '!', '?', ':', '…', '。', '！', '？', '：'];
