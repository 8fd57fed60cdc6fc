//! The channels of gpt-oss: each message is a header and a text.
//!
//! ```text
//! <|channel|>analysis<|message|>They ask for …<|end|>
//! <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>
//! <|start|>assistant<|channel|>final<|message|>It rains.<|return|>
//! ```
//!
//! `analysis` is thinking, a message `to` a tool is a call, the rest is content.

use llmsrv_api::native::Tool;

use super::{
    call::{self, Call},
    thinking,
};

/// Splits one answer.
#[derive(Debug)]
pub(super) struct HarmonySplitter {
    tools: Vec<Tool>,
    state: State,
    /// Bytes of calls that were none.
    n_left_out: usize,
    /// A header, the arguments of a call, or what may become a control token.
    held: String,
}

#[derive(Debug, PartialEq)]
enum State {
    /// In a header, or at the start of an answer.
    Header,
    Thinking,
    Content,
    /// In the arguments of a call of this tool; `None` = of one that was not offered.
    Call(Option<String>),
}

/// What a character made certain.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) text: thinking::Split,
    pub(super) calls: Vec<Call>,
}

impl HarmonySplitter {
    /// A splitter for an answer to a prompt that ends in `prompt_tail`.
    pub(super) fn new(prompt_tail: &str, tools: &[Tool]) -> Self {
        let mut splitter = HarmonySplitter {
            tools: tools.to_vec(),
            state: State::Header,
            n_left_out: 0,
            held: String::new(),
        };
        // The prompt may have opened a channel.
        let open = prompt_tail.rsplit("<|end|>").next().unwrap_or_default();
        if let Some(at) = open.find("<|channel|>") {
            for c in open[at..].chars() {
                splitter.push(c);
            }
        }
        splitter
    }

    /// Takes the next character.
    pub(super) fn push(&mut self, c: char) -> Split {
        let mut split = Split::default();
        self.held.push(c);
        match self.state {
            State::Header => self.header(&mut split),
            State::Call(_) => {
                if ENDS.iter().any(|end| self.held.ends_with(end)) {
                    self.end(&mut split);
                }
            }
            State::Thinking | State::Content => self.text(&mut split),
        }
        split
    }

    /// The end of the answer: returns what was held back.
    pub(super) fn finish(&mut self) -> Split {
        let mut split = Split::default();
        match self.state {
            // A header that was not finished is no text for people.
            State::Header if self.held.trim_start().starts_with('<') => self.held.clear(),
            State::Header | State::Content => {
                split.text.content = std::mem::take(&mut self.held);
            }
            State::Call(_) => self.end(&mut split),
            State::Thinking => split.text.thinking = std::mem::take(&mut self.held),
        }
        split
    }

    /// Returns how many bytes of calls became neither call nor content.
    pub(super) fn n_left_out(&self) -> usize {
        self.n_left_out
    }

    fn header(&mut self, split: &mut Split) {
        if let Some(header) = self.held.strip_suffix("<|message|>") {
            let to = header.split_once("to=").map(|(_, to)| {
                let end = to.find(|c: char| c.is_whitespace() || c == '<');
                to[..end.unwrap_or(to.len())].to_owned()
            });
            let tool = |to: String| {
                let tool = call::known(&to, &self.tools);
                tool.map(|tool| tool.function.name.clone())
            };
            self.state = match to {
                Some(to) => State::Call(tool(to)),
                None if header.contains("<|channel|>analysis") => State::Thinking,
                None => State::Content,
            };
            self.held.clear();
        } else if ENDS[..3].iter().any(|end| self.held.ends_with(end)) {
            self.held.clear();
        } else {
            let seen = self.held.trim_start();
            let is_header = seen.is_empty()
                || HEADERS
                    .iter()
                    .any(|begin| begin.starts_with(seen) || seen.starts_with(begin));
            if !is_header || seen.len() > MAX_HEADER_BYTES {
                split.text.content = std::mem::take(&mut self.held);
                self.state = State::Content;
            }
        }
    }

    /// Releases text up to where a control token may begin.
    fn text(&mut self, split: &mut Split) {
        let mut released = String::new();
        while !ENDS.iter().any(|end| end.starts_with(&self.held)) {
            released.push(self.held.remove(0));
        }
        match self.state {
            State::Thinking => split.text.thinking = released,
            _ => split.text.content = released,
        }
        if ENDS.contains(&self.held.as_str()) {
            self.end(split);
        }
    }

    /// Ends a message; one token is its end or the begin of the next.
    fn end(&mut self, split: &mut Split) {
        let held = std::mem::take(&mut self.held);
        let end = ENDS.iter().find(|end| held.ends_with(**end)).copied();
        let end = end.unwrap_or_default();
        if let State::Call(name) = std::mem::replace(&mut self.state, State::Header) {
            let json = held.strip_suffix(end).unwrap_or(&held);
            let arguments = match call::object(json) {
                None if json.trim().is_empty() && !end.is_empty() => Some(serde_json::Map::new()),
                arguments => arguments,
            };
            match (name, arguments) {
                (Some(name), Some(arguments)) => split.calls.push(Call { name, arguments }),
                _ => self.n_left_out += json.len(),
            }
        }
        if matches!(end, "<|start|>" | "<|channel|>") {
            end.clone_into(&mut self.held);
        }
    }
}

/// How a header may begin.
const HEADERS: [&str; 4] = ["<|start|>", "<|channel|>", "<|constrain|>", "assistant"];
/// What ends a message. The last two begin the next one.
const ENDS: [&str; 5] = [
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|start|>",
    "<|channel|>",
];
const MAX_HEADER_BYTES: usize = 512;
