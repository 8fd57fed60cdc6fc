//! Finds tool calls in an answer.
//!
//! A call begins with a tag, or with `{` or `[` at the very start of the answer. From there on the text
//! is held until a JSON object (or a block of tagged parameters) is complete; if it calls a known tool
//! it becomes a call, else the held text is content after all. What a call is in detail: [`super::call`].

use llmsrv_api::native::Tool;

use super::{
    call::{self, Call},
    python,
};

/// Splits one answer into content and calls.
#[derive(Debug)]
pub(super) struct ToolSplitter {
    tags: Vec<String>,
    tools: Vec<Tool>,
    state: State,
    /// Text that is not decided: whitespace at the start, a part of a tag, or a call so far.
    held: String,
}

/// What a character made certain.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) content: String,
    pub(super) calls: Vec<Call>,
}

#[derive(Debug)]
enum State {
    /// Whitespace and a part of a tag so far; a bare call may begin if the model's calls are bare.
    Start { bare: bool },
    /// Content, and maybe a part of a tag.
    Text,
    /// Between the begin of a call and its JSON; bare after `[` instead of a tag.
    Lead { bare: bool },
    /// In a JSON object.
    Object(Object),
    /// In a list of calls that look like Python.
    Python(List),
    /// After a call: separators, closing tags, more calls.
    After,
}

/// An object that is being read.
#[derive(Debug, Default)]
struct Object {
    /// Where it starts in the held text.
    start: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where its first key starts. Watched in bare calls only: a first key that no call has tells
    /// early that the answer is plain JSON.
    first_key: Option<usize>,
    bare: bool,
}

/// A list that is being read.
#[derive(Debug, Default)]
struct List {
    /// Where it starts in the held text.
    start: usize,
    depth: usize,
    quote: Option<char>,
    escaped: bool,
}

impl ToolSplitter {
    /// A splitter for an answer; `tag` comes from the template.
    pub(super) fn new(tag: &str, tools: &[Tool]) -> Self {
        // Tags in these brackets are control tokens, which may be missing from the text.
        let bare = tag.starts_with(['{', '[']) || tag.starts_with("<|") || tag.starts_with("<｜");
        let mut tags: Vec<String> = TAGS.iter().map(|&tag| tag.to_owned()).collect();
        if tag != "{" && tag != "[" {
            tags.push(tag.to_owned());
        }
        ToolSplitter {
            tags,
            tools: tools.to_vec(),
            state: State::Start { bare },
            held: String::new(),
        }
    }

    /// Takes the next character.
    pub(super) fn push(&mut self, c: char) -> Split {
        let mut split = Split::default();
        self.held.push(c);
        match &mut self.state {
            State::Start { bare } => {
                let bare = *bare;
                self.start(bare, &mut split);
            }
            State::Text => self.text(&mut split),
            State::Lead { bare } => {
                let bare = *bare;
                self.lead(c, bare, &mut split);
            }
            State::Object(_) => self.object(c, &mut split),
            State::Python(_) => self.python(c, &mut split),
            State::After => self.after(&mut split),
        }
        split
    }

    /// The end of the answer: returns the held text that turned out to be content.
    pub(super) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::After if is_structure(held.trim_start_matches(SEPARATORS)) => String::new(),
            _ => held,
        }
    }

    fn start(&mut self, bare: bool, split: &mut Split) {
        let seen = self.held.trim_start();
        if seen.is_empty() {
            return;
        }
        if bare && seen == "{" {
            let start = self.held.len() - 1;
            self.open_object(start, true);
        } else if bare && seen == "[" {
            self.state = State::Lead { bare: true };
        } else if self.tags.iter().any(|tag| tag == seen) {
            self.state = State::Lead { bare: false };
        } else if !self.tags.iter().any(|tag| tag.starts_with(seen)) {
            let text = seen.to_owned();
            split
                .content
                .push_str(&self.held[..self.held.len() - text.len()]);
            self.held = text;
            self.state = State::Text;
            self.text(split);
        }
    }

    /// Releases held text up to where a tag may begin.
    fn text(&mut self, split: &mut Split) {
        let mut begin = 0;
        let may_begin = |rest: &str| self.tags.iter().any(|tag| tag.starts_with(rest));
        while begin < self.held.len() && !may_begin(&self.held[begin..]) {
            begin += self.held[begin..].chars().next().map_or(1, char::len_utf8);
        }
        split.content.extend(self.held.drain(..begin));
        if self.tags.contains(&self.held) {
            self.state = State::Lead { bare: false };
        }
    }

    fn lead(&mut self, c: char, bare: bool, split: &mut Split) {
        let parameters = self.held.contains("<parameter=");
        if c == '{' && !parameters {
            let start = self.held.len() - 1;
            return self.open_object(start, bare);
        }
        let list = self.held.rfind('[').unwrap_or(self.held.len());
        let names = self.tools.iter().map(|tool| tool.function.name.as_str());
        let may_be_python = python::may_become(&self.held[list..], names);
        if may_be_python && c == '(' {
            self.state = State::Python(List {
                start: list,
                depth: 2,
                ..List::default()
            });
            return;
        }
        if bare {
            if !c.is_whitespace() && !may_be_python {
                // It may be a tag that begins with `[`.
                self.state = State::Text;
                self.text(split);
            }
            return;
        }
        let tagged = self.held.contains("<function=");
        if c == '>' && tagged && self.held.ends_with("</function>") {
            let calls = call::parse_tagged(&self.held, &self.tools);
            return self.close(calls, split);
        }
        let last_tag = self.held.rfind('<').map_or("", |i| &self.held[i..]);
        let closed = c == '>' && last_tag.starts_with("</") && !tagged;
        if closed || (!parameters && self.held.len() > MAX_LEAD_BYTES) {
            self.close(Vec::new(), split);
        }
    }

    fn open_object(&mut self, start: usize, bare: bool) {
        self.state = State::Object(Object {
            start,
            depth: 1,
            bare,
            ..Object::default()
        });
    }

    fn object(&mut self, c: char, split: &mut Split) {
        let State::Object(object) = &mut self.state else {
            return;
        };
        if object.escaped {
            object.escaped = false;
        } else if object.in_string {
            match c {
                '\\' => object.escaped = true,
                '"' => {
                    object.in_string = false;
                    let key = object.first_key.map(|start| &self.held[start..]);
                    if key.is_some_and(|key| !call::may_be_first_key(key, &self.tools)) {
                        return self.close(Vec::new(), split);
                    }
                    object.bare = false;
                    object.first_key = None;
                }
                _ => {}
            }
        } else {
            match c {
                '"' => {
                    object.in_string = true;
                    object.first_key = object.bare.then_some(self.held.len() - 1);
                }
                '{' => object.depth += 1,
                '}' => object.depth -= 1,
                _ => {}
            }
            if object.depth == 0 {
                let (lead, json) = self.held.split_at(object.start);
                let calls = call::parse(lead, json, &self.tools);
                self.close(calls, split);
            }
        }
    }

    fn python(&mut self, c: char, split: &mut Split) {
        let State::Python(list) = &mut self.state else {
            return;
        };
        match (list.quote, c) {
            (Some(_), _) if list.escaped => list.escaped = false,
            (Some(_), '\\') => list.escaped = true,
            (Some(quote), c) if c == quote => list.quote = None,
            (None, '"' | '\'') => list.quote = Some(c),
            (None, '(' | '[' | '{') => list.depth += 1,
            (None, ')' | ']' | '}') => list.depth -= 1,
            (Some(_) | None, _) => {}
        }
        if list.depth == 0 {
            let calls = call::parse_python(&self.held[list.start..], &self.tools);
            self.close(calls, split);
        }
    }

    /// Ends a call: if it was none, its text is content.
    fn close(&mut self, calls: Vec<Call>, split: &mut Split) {
        let held = std::mem::take(&mut self.held);
        if calls.is_empty() {
            split.content.push_str(&held);
            self.state = State::Text;
        } else {
            split.calls.extend(calls);
            self.state = State::After;
        }
    }

    fn after(&mut self, split: &mut Split) {
        let seen = self.held.trim_start_matches(SEPARATORS);
        let array = seen.strip_prefix('[').map(str::trim_start);
        if seen.is_empty() {
            self.held.clear();
        } else if seen == "{" || array == Some("{") {
            let start = self.held.len() - 1;
            self.open_object(start, false);
        } else if self.tags.iter().any(|tag| tag == seen) {
            self.held = seen.to_owned();
            self.state = State::Lead { bare: false };
        } else if is_structure(seen) && seen.len() <= MAX_STRUCTURE_BYTES {
            if seen.ends_with(['>', ']']) {
                self.held.clear();
            }
        } else if seen != "<"
            && array != Some("")
            && !self.tags.iter().any(|tag| tag.starts_with(seen))
        {
            self.held = seen.to_owned();
            self.state = State::Text;
            self.text(split);
        }
    }
}

/// Whether a text begins like a closing tag or a control token.
fn is_structure(text: &str) -> bool {
    STRUCTURE.iter().any(|begin| text.starts_with(begin))
}

/// Texts that announce calls in families of models. They are looked for whatever the template says:
/// answers hold them only to call.
pub(crate) const TAGS: &[&str] = &[
    // Hermes, Qwen.
    "<tool_call>",
    // Mistral.
    "[TOOL_CALLS]",
    // Granite.
    "<|tool_call|>",
    // DeepSeek.
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    // Kimi.
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    // LFM.
    "<|tool_call_start|>",
    // Command R.
    "<|START_ACTION|>",
    // Llama 3.1 and later.
    "<|python_tag|>",
    // Qwen coder; Llama 3.1 with the user's tools.
    "<function=",
];

/// What may stand between calls.
const SEPARATORS: [char; 12] = [
    ' ', '\n', '\r', '\t', ',', ';', ']', ')', '`', '\u{b}', '\u{c}', '\u{a0}',
];
/// How closing tags and control tokens begin.
const STRUCTURE: [&str; 4] = ["</", "<|", "<｜", "[/"];
/// Longest closing tag or control token.
const MAX_STRUCTURE_BYTES: usize = 64;
/// Longest text between a tag and the JSON of its call.
const MAX_LEAD_BYTES: usize = 1024;
