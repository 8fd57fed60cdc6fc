//! Answers that are calls as a whole, although the model's template has a tag for calls: bare JSON, or
//! JSON in one code fence. Qwen2.5-Coder answers so.
//!
//! Such an answer is one or more objects, or a list of them, of exactly the members of a call, each of
//! a tool that was offered. Text is held only as long as it can still become that.

use llmsrv_api::native::Tool;

use super::call::{self, Call};

/// An answer that may be calls.
#[derive(Debug, Default)]
pub(super) struct Whole {
    phase: Phase,
    is_fenced: bool,
    is_list: bool,
    reader: Reader,
    /// The object that is being read.
    json: String,
    calls: Vec<Call>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Begin,
    /// After so many backticks.
    Fence(usize),
    /// In the word after an opening fence.
    Language(String),
    /// Before an object.
    Before,
    Object,
    /// After an object.
    After,
    /// After a list.
    End,
    /// After so many backticks of the closing fence.
    Closing(usize),
}

impl Whole {
    /// Takes the next character; `false` when the answer is something else.
    pub(super) fn push(&mut self, c: char, tools: &[Tool]) -> bool {
        let next = match (&mut self.phase, c) {
            (Phase::Object, c) => return self.object(c, tools),
            (Phase::Begin | Phase::Before | Phase::After | Phase::End, c) if c.is_whitespace() => {
                return true;
            }
            (Phase::Closing(FENCE), c) => return c.is_whitespace(),
            (Phase::Begin, '`') => Phase::Fence(1),
            (Phase::Fence(n), '`') if *n + 1 == FENCE => {
                self.is_fenced = true;
                Phase::Language(String::new())
            }
            (Phase::Fence(n) | Phase::Closing(n), '`') => {
                *n += 1;
                return true;
            }
            (Phase::Language(word), c) if c.is_whitespace() => {
                if !word.is_empty() && !LANGUAGES.contains(&word.as_str()) {
                    return false;
                }
                Phase::Before
            }
            (Phase::Language(word), c) if !matches!(c, '{' | '[') => {
                word.push(c);
                return LANGUAGES
                    .iter()
                    .any(|known| known.starts_with(word.as_str()));
            }
            (Phase::Begin | Phase::Language(_) | Phase::Before, '[') if !self.is_list => {
                self.is_list = true;
                Phase::Before
            }
            (Phase::Begin | Phase::Language(_) | Phase::Before, '{') => return self.open(tools),
            // One call after another.
            (Phase::After, '{') if !self.is_list => return self.open(tools),
            (Phase::After, ',') if self.is_list => Phase::Before,
            (Phase::After, ']') if self.is_list => {
                self.is_list = false;
                Phase::End
            }
            (Phase::After | Phase::End, '`') if self.is_fenced && !self.is_list => {
                Phase::Closing(1)
            }
            _ => return false,
        };
        self.phase = next;
        true
    }

    fn open(&mut self, tools: &[Tool]) -> bool {
        self.phase = Phase::Object;
        self.reader = Reader::default();
        self.json.clear();
        self.object('{', tools)
    }

    fn object(&mut self, c: char, tools: &[Tool]) -> bool {
        self.json.push(c);
        match self.reader.push(c, tools) {
            Read::More => true,
            Read::No => false,
            Read::Done => {
                let call = call::object(&self.json).and_then(|object| call::exact(object, tools));
                self.phase = Phase::After;
                let is_call = call.is_some();
                self.calls.extend(call);
                is_call
            }
        }
    }

    /// The end of the answer: returns its calls, and whether it is a call that was cut.
    pub(super) fn finish(self) -> (Vec<Call>, bool) {
        let is_cut = self.calls.is_empty() && self.reader.names_a_tool();
        (self.calls, is_cut)
    }
}

/// Tells whether a JSON object that was cut began to call one of the tools.
pub(super) fn began_a_call(json: &str, tools: &[Tool]) -> bool {
    let mut reader = Reader::default();
    let mut read = json.chars().map(|c| reader.push(c, tools));
    read.all(|read| matches!(read, Read::More)) && reader.names_a_tool()
}

/// Follows a JSON object as far as it takes to know that it is no call.
#[derive(Debug, Default)]
struct Reader {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The next string is a key.
    is_key: bool,
    /// The string that is being read, or was read last.
    string: String,
    /// The last key of a call, and that of the object around it.
    key: String,
    outer: String,
    named: bool,
}

enum Read {
    More,
    Done,
    No,
}

impl Reader {
    fn push(&mut self, c: char, tools: &[Tool]) -> Read {
        if self.in_string {
            return self.in_string(c, tools);
        }
        match c {
            '"' => {
                self.in_string = true;
                self.string.clear();
            }
            '{' | '[' => {
                self.depth += 1;
                self.is_key = c == '{';
                if self.depth == 2 {
                    self.outer.clone_from(&self.key);
                }
            }
            '}' | ']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Read::Done;
                }
            }
            ',' => self.is_key = true,
            ':' => self.is_key = false,
            _ => {}
        }
        Read::More
    }

    fn in_string(&mut self, c: char, tools: &[Tool]) -> Read {
        let is_of_call = self.depth == 1 || (self.depth == 2 && self.outer == "function");
        let is_name = is_of_call && !self.is_key && self.key == "name";
        if self.escaped || (c != '"' && c != '\\') {
            self.escaped = false;
            if is_of_call && (self.is_key || is_name) {
                self.string.push(c);
            }
            let is_other = if is_name {
                !call::may_be_named(&self.string, tools)
            } else {
                is_of_call && self.is_key && !KEYS.iter().any(|key| key.starts_with(&self.string))
            };
            return if is_other { Read::No } else { Read::More };
        }
        if c == '\\' {
            self.escaped = true;
            return Read::More;
        }
        self.in_string = false;
        if is_of_call && self.is_key {
            if !KEYS.contains(&self.string.as_str()) {
                return Read::No;
            }
            self.key.clone_from(&self.string);
        } else if is_name {
            if call::known(&self.string, tools).is_none() {
                return Read::No;
            }
            self.named = true;
        }
        Read::More
    }

    /// Whether the name of a tool was read, or the begin of one.
    fn names_a_tool(&self) -> bool {
        let is_being_named = self.in_string && !self.is_key && self.key == "name";
        self.named || (is_being_named && !self.string.is_empty())
    }
}

/// The members of a call.
const KEYS: [&str; 6] = ["name", "arguments", "parameters", "type", "id", "function"];
/// What code fences around calls say of their content.
const LANGUAGES: [&str; 5] = ["json", "tool_call", "tool_calls", "text", "plaintext"];
/// Backticks of a fence.
const FENCE: usize = 3;
