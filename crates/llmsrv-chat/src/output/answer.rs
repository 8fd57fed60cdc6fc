//! Leaves out the marks that some models put around their answer, behind the thinking.

/// Takes the marks of one answer away: the first before any text, and each of the last.
#[derive(Debug)]
pub(super) struct AnswerMarks {
    open: &'static str,
    /// The closing mark, with and without a line break before it.
    closes: [String; 2],
    /// The closing mark is one: nothing else has its spelling, or the opening mark was there.
    closing: bool,
    state: State,
    /// Text that may yet become a mark.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but whitespace and a part of the opening mark so far.
    Start,
    /// Whitespace after the opening mark.
    Opened,
    Text,
}

impl AnswerMarks {
    /// The marks of the models of a template, if they have some.
    pub(super) fn of(template: &str) -> Option<AnswerMarks> {
        let has = |marks: &&Marks| template.contains(marks.open) && template.contains(marks.close);
        let marks = MARKS.iter().find(has)?;
        Some(AnswerMarks {
            open: marks.open,
            closes: [format!("\n{}", marks.close), marks.close.to_owned()],
            closing: marks.close_alone,
            state: State::Start,
            held: String::new(),
        })
    }

    /// Takes the next character; returns what is certainly text.
    pub(super) fn push(&mut self, c: char) -> String {
        let mut text = String::new();
        self.held.push(c);
        match self.state {
            State::Start => {
                let seen = self.held.trim_start();
                if seen == self.open {
                    self.held.clear();
                    self.closing = true;
                    self.state = State::Opened;
                } else if !self.open.starts_with(seen) {
                    self.state = State::Text;
                    self.release(&mut text);
                }
            }
            State::Opened if c.is_whitespace() => self.held.clear(),
            State::Opened | State::Text => {
                self.state = State::Text;
                self.release(&mut text);
            }
        }
        text
    }

    /// The end of the answer: returns what was held back.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Moves held text up to where a closing mark may begin to `text`.
    fn release(&mut self, text: &mut String) {
        if !self.closing {
            text.push_str(&std::mem::take(&mut self.held));
            return;
        }
        let mut begin = 0;
        while begin < self.held.len() {
            let rest = &self.held[begin..];
            if let Some(close) = self.closes.iter().find(|close| rest.starts_with(*close)) {
                text.push_str(&self.held[..begin]);
                self.held.drain(..begin + close.len());
                begin = 0;
            } else if self.closes.iter().any(|close| close.starts_with(rest)) {
                break;
            } else {
                begin += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        text.extend(self.held.drain(..begin));
    }
}

/// What a family puts around its answer.
struct Marks {
    open: &'static str,
    close: &'static str,
    /// A closing mark is one where no opening one was: the prompt may have had that.
    close_alone: bool,
}

/// The marks of families.
const MARKS: &[Marks] = &[
    // HunYuan.
    Marks {
        open: "<answer>",
        close: "</answer>",
        close_alone: true,
    },
    // Command R7B and Command A.
    Marks {
        open: "<|START_RESPONSE|>",
        close: "<|END_RESPONSE|>",
        close_alone: true,
    },
    // Command A with experts.
    Marks {
        open: "<|START_TEXT|>",
        close: "<|END_TEXT|>",
        close_alone: true,
    },
    // Granite 3.3, behind its thoughts alone. No prompt opens it, and without thoughts an answer may be XML.
    Marks {
        open: "<response>",
        close: "</response>",
        close_alone: false,
    },
];
