//! Finds tool calls in an answer.
//!
//! A call begins with a tag, or with `{` or `[` at the very start of the answer. From there on the text
//! is held until a JSON object (or a block of tagged parameters) is complete; if it calls a known tool
//! it becomes a call. What a call is in detail: [`super::call`].
//!
//! Text that began with a tag and became no call, because it was cut or calls no tool there is, is of
//! no use to a reader: it is left out. What began like plain JSON is content after all.

use llmsrv_api::native::Tool;

use super::{
    Bound, blocks,
    call::{self, Call},
    python,
    whole::{self, Whole},
};
use crate::marks::TAGS;

/// Splits one answer into content and calls.
#[derive(Debug)]
pub(super) struct ToolSplitter {
    tags: Vec<String>,
    tools: Vec<Tool>,
    bound: Bound,
    state: State,
    /// There was a call.
    called: bool,
    /// Bytes of calls that were none.
    n_left_out: usize,
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
    /// In an answer that may be calls as a whole.
    Whole(Whole),
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
    /// A splitter for an answer that is bound to something or not; `tag` comes from the template.
    pub(super) fn new(tag: &str, tools: &[Tool], bound: Bound) -> Self {
        // Tags in these brackets are control tokens, which may be missing from the text.
        let is_bare =
            tag.starts_with(['{', '[']) || tag.starts_with("<|") || tag.starts_with("<｜");
        let bare = is_bare && bound != Bound::Format;
        let mut tags: Vec<String> = TAGS.iter().map(|&tag| tag.to_owned()).collect();
        if tag != "{" && tag != "[" {
            tags.push(tag.to_owned());
        }
        ToolSplitter {
            tags,
            tools: tools.to_vec(),
            bound,
            state: State::Start { bare },
            called: false,
            n_left_out: 0,
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
            State::Whole(whole) => {
                if !whole.push(c, &self.tools) {
                    self.state = State::Text;
                    self.text(&mut split);
                }
            }
            State::After => self.after(&mut split),
        }
        split
    }

    /// The end of the answer: returns the calls that it was as a whole, and the held text that turned
    /// out to be content.
    pub(super) fn finish(&mut self) -> Split {
        let held = std::mem::take(&mut self.held);
        let mut split = Split::default();
        let is_after =
            matches!(self.state, State::After) && is_structure(held.trim_start_matches(SEPARATORS));
        let is_content = match std::mem::replace(&mut self.state, State::After) {
            State::Whole(whole) => {
                let (calls, was_cut) = whole.finish();
                let is_call = was_cut || !calls.is_empty();
                self.called |= !calls.is_empty();
                split.calls = calls;
                !is_call
            }
            State::Start { .. } | State::Text => !self.is_cut_tag(held.trim_start()),
            State::Lead { bare: true } => true,
            State::Lead { bare: false } => self.is_prose(&held),
            State::Object(object) => {
                let json = &held[object.start..];
                let is_bare = !self.called && self.tag_of(&held).is_none();
                is_bare && !whole::began_a_call(json, &self.tools)
            }
            State::Python(_) | State::After => false,
        };
        // Whoever must call has nothing else to say.
        if is_content && self.bound != Bound::Calls {
            split.content = held;
        } else if split.calls.is_empty() && !is_after {
            self.leave_out(&held);
        }
        split
    }

    /// Returns how many bytes of calls became neither call nor content.
    pub(super) fn n_left_out(&self) -> usize {
        self.n_left_out
    }

    fn leave_out(&mut self, text: &str) {
        self.n_left_out += text.trim_matches(SEPARATORS).len();
    }

    /// The tag that a text begins with.
    fn tag_of(&self, text: &str) -> Option<&str> {
        let text = text.trim_start();
        let tags = self.tags.iter().filter(|tag| text.starts_with(*tag));
        tags.max_by_key(|tag| tag.len()).map(String::as_str)
    }

    /// Whether a text is the begin of a tag, long enough to be nothing else.
    fn is_cut_tag(&self, text: &str) -> bool {
        text.len() >= MIN_TAG_BYTES && self.tags.iter().any(|tag| tag.starts_with(text))
    }

    /// Whether somebody writes about a tag: words follow it instead of a call.
    fn is_prose(&self, held: &str) -> bool {
        let tag = self.tag_of(held).unwrap_or_default();
        let lead = held.trim_start().strip_prefix(tag).unwrap_or_default();
        if let Some(block) = blocks::opened_by(tag) {
            let is_syntax = lead.contains(block.mark) || lead.contains(['<', '{']);
            return !is_syntax && lead.split_whitespace().count() > 1;
        }
        let is_syntax = lead.contains(['<', '[', '{']) || lead.contains("```");
        !is_syntax && !tag.ends_with('=') && lead.split_whitespace().count() > 1
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
            if self.bound != Bound::Format {
                let mut whole = Whole::default();
                if seen.chars().all(|c| whole.push(c, &self.tools)) {
                    self.state = State::Whole(whole);
                    return;
                }
            }
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
        let tag = self.tag_of(&self.held).unwrap_or_default();
        if let Some(block) = blocks::opened_by(tag) {
            if block.is_whole(&self.held) {
                let calls = block.calls(&self.held, &self.tools);
                self.close(calls, split);
            } else if self.held.len() > MAX_LEAD_BYTES && !self.held.contains(block.mark) {
                self.release(split);
            }
            return;
        }
        let inner = self.held.trim_start().get(tag.len()..).unwrap_or_default();
        let first = inner.find('<').and_then(|at| inner.get(at..));
        if first.is_some_and(|first| first.starts_with("<arg_key>")) {
            if c == '>' && self.held.ends_with(PAIRS_END) {
                let calls = self.pairs();
                self.close(calls, split);
            }
            return;
        }
        let parameters = self.held.contains("<parameter=");
        if c == '{' && !parameters {
            let start = self.held.len() - 1;
            return self.open_object(start, bare);
        }
        let tagged = self.held.contains("<function=");
        if tagged {
            if c == '>' && self.held.ends_with("</function>") {
                let calls = call::parse_tagged(&self.held, &self.tools);
                self.close(calls, split);
            } else if !parameters && self.held.len() > MAX_LEAD_BYTES {
                self.release(split);
            }
            return;
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
        let last_tag = self.held.rfind('<').map_or("", |i| &self.held[i..]);
        if c == '>' && last_tag.starts_with("</") {
            // A call without arguments.
            let calls = if last_tag == PAIRS_END {
                self.pairs()
            } else {
                Vec::new()
            };
            self.close(calls, split);
        } else if self.held.len() > MAX_LEAD_BYTES {
            self.release(split);
        }
    }

    /// The call of which the name and the arguments in pairs of tags are held.
    fn pairs(&self) -> Vec<Call> {
        let tag = self.tag_of(&self.held).unwrap_or_default();
        let inner = self.held.trim_start().strip_prefix(tag);
        let inner = inner.and_then(|inner| inner.strip_suffix(PAIRS_END));
        call::parse_pairs(inner.unwrap_or_default(), &self.tools)
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
            let (start, depth) = (object.start, object.depth);
            if matches!(c, '>' | ']') && self.begins_anew() {
                return;
            }
            if depth == 0 {
                let (lead, json) = self.held.split_at(start);
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

    /// A tag where none can be: the model gave a call up and begins with the next.
    fn begins_anew(&mut self) -> bool {
        let tags = self.tags.iter().filter(|tag| self.held.ends_with(*tag));
        let Some(tag) = tags.max_by_key(|tag| tag.len()).cloned() else {
            return false;
        };
        let given_up = self.held[..self.held.len() - tag.len()].to_owned();
        self.leave_out(&given_up);
        self.held = tag;
        self.state = State::Lead { bare: false };
        true
    }

    /// Ends a call. If it was none, its text is content where it had no tag.
    fn close(&mut self, calls: Vec<Call>, split: &mut Split) {
        if !calls.is_empty() {
            self.held.clear();
            self.called = true;
            split.calls.extend(calls);
            self.state = State::After;
            return;
        }
        let start = self.held.find(['{', '[']).unwrap_or(self.held.len());
        let is_call =
            self.tag_of(&self.held).is_some() && !self.is_prose(&self.held[..start.max(1)]);
        if is_call {
            let held = std::mem::take(&mut self.held);
            self.leave_out(&held);
            // A closing tag may follow.
            self.state = State::After;
        } else {
            self.release(split);
        }
    }

    /// What is held is content after all.
    fn release(&mut self, split: &mut Split) {
        split.content.push_str(&std::mem::take(&mut self.held));
        self.state = State::Text;
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

/// Ends a call whose arguments are pairs of tags.
const PAIRS_END: &str = "</tool_call>";

/// What may stand between calls.
const SEPARATORS: [char; 12] = [
    ' ', '\n', '\r', '\t', ',', ';', ']', ')', '`', '\u{b}', '\u{c}', '\u{a0}',
];
/// How closing tags and control tokens begin.
const STRUCTURE: [&str; 4] = ["</", "<|", "<｜", "[/"];
/// Longest closing tag or control token.
const MAX_STRUCTURE_BYTES: usize = 64;
/// Shorter begins of a tag may be anything.
const MIN_TAG_BYTES: usize = 3;
/// Longest text between a tag and the JSON of its call.
const MAX_LEAD_BYTES: usize = 1024;
