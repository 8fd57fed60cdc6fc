//! Modelfiles: the text from which a model is made.
//!
//! ```text
//! # comment
//! FROM ./weights.gguf
//! PARAMETER temperature 0.2
//! SYSTEM """You are brief.
//! You are polite."""
//! ```
//!
//! An instruction begins a line, in any letter case. Its value reaches to the end of the line, or
//! stands in `"` or `"""` and may then have several lines; such a value ends at the first line end
//! before which the closing quotes stand. There are no escapes. What is parsed can be printed and
//! gives the same when parsed again. No file named here is looked at.

use std::{borrow::Cow, fmt::Write as _};

use serde_json::{Map, Value, json};

use crate::options::{self, TypedValue};

/// The instructions of a Modelfile, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modelfile {
    /// One for each line with an instruction; comments and empty lines are gone.
    pub instructions: Vec<Instruction>,
}

/// One instruction and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// What the model is made from: the name of a model, a file or a folder. May repeat.
    From(String),
    /// An option; `stop` may repeat.
    Parameter {
        /// Name in the API.
        name: String,
        /// The value as it is written.
        value: String,
    },
    /// The Go template that makes a prompt of a conversation.
    Template(String),
    /// The system prompt where a conversation has none.
    System(String),
    /// Text of a license; may repeat.
    License(String),
    /// A file or folder with a LoRA adapter.
    Adapter(String),
    /// A message before those of a conversation; repeats.
    Message {
        /// `system`, `user` or `assistant`.
        role: String,
        /// The text of the message.
        content: String,
    },
    /// Oldest version of the server that runs the model.
    Requires(String),
    /// A small model that drafts tokens; for servers that take it from here.
    Draft(String),
    /// Name of a built-in prompt renderer.
    Renderer(String),
    /// Name of a built-in output parser.
    Parser(String),
}

/// A Modelfile that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A line cannot be understood.
    #[error("(line {line}): {reason}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing says what the model is made from.
    #[error("no FROM line")]
    NoFrom,
    /// The bytes are no text.
    #[error("the Modelfile is neither UTF-8 nor UTF-16 text")]
    Encoding,
    /// A text that no kind of quotes can hold, so that it cannot be printed.
    #[error("a text with lines ending in `\"` and in `\"\"\"` cannot be written in a Modelfile")]
    Unquotable,
}

impl Modelfile {
    /// Parses the bytes of a file: UTF-8, or UTF-16 with a byte order mark.
    pub fn parse(bytes: &[u8]) -> Result<Modelfile, Error> {
        let text = decode(bytes)?;
        let mut reader = Reader {
            text: &text,
            at: 0,
            line: 0,
        };
        let mut instructions = Vec::new();
        while let Some((start, end)) = reader.next_line() {
            let start = end - text[start..end].trim_start().len();
            if start == end || text[start..].starts_with('#') {
                continue;
            }
            let line = reader.line;
            let instruction = reader
                .instruction(start, end)
                .map_err(|reason| Error::Line { line, reason })?;
            instructions.push(instruction);
        }
        let modelfile = Modelfile { instructions };
        if modelfile.from().next().is_none() {
            return Err(Error::NoFrom);
        }
        Ok(modelfile)
    }

    /// Returns the text of the file. Parsing it gives the same instructions again.
    pub fn print(&self) -> Result<String, Error> {
        // Writing to a text cannot fail.
        let mut text = String::new();
        for instruction in &self.instructions {
            let mut head = instruction.name().to_uppercase();
            let value = match instruction {
                Instruction::Parameter { name, value } => {
                    let _ = write!(head, " {name}");
                    value
                }
                Instruction::Message { role, content } => {
                    let _ = write!(head, " {role}");
                    content
                }
                Instruction::From(value)
                | Instruction::Template(value)
                | Instruction::System(value)
                | Instruction::License(value)
                | Instruction::Adapter(value)
                | Instruction::Requires(value)
                | Instruction::Draft(value)
                | Instruction::Renderer(value)
                | Instruction::Parser(value) => value,
            };
            let value = quoted(value).ok_or(Error::Unquotable)?;
            let _ = writeln!(text, "{head} {value}");
        }
        Ok(text)
    }

    /// Returns what the model is made from.
    pub fn from(&self) -> impl Iterator<Item = &str> {
        self.instructions
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::From(value) => Some(value.as_str()),
                _ => None,
            })
    }

    /// Returns the files and folders of adapters, as they are written.
    pub fn adapters(&self) -> impl Iterator<Item = &str> {
        self.instructions
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::Adapter(value) => Some(value.as_str()),
                _ => None,
            })
    }

    /// Returns the names of draft models, as they are written.
    pub fn drafts(&self) -> impl Iterator<Item = &str> {
        self.instructions
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::Draft(value) => Some(value.as_str()),
                _ => None,
            })
    }

    /// Returns the names of options that have no effect any more.
    pub fn ignored_parameters(&self) -> impl Iterator<Item = &str> {
        self.instructions
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::Parameter { name, .. } if options::is_legacy(name) => {
                    Some(name.as_str())
                }
                _ => None,
            })
    }

    /// Returns the members of a create request that do not name files: all but `from`, `files` and
    /// `adapters`. Of instructions that do not repeat the last one counts.
    pub fn request(&self) -> Map<String, Value> {
        let mut request = Map::new();
        let (mut licenses, mut messages, mut parameters) = (Vec::new(), Vec::new(), Map::new());
        for instruction in &self.instructions {
            let (member, text) = match instruction {
                Instruction::From(_) | Instruction::Adapter(_) | Instruction::Draft(_) => continue,
                Instruction::Parameter { name, value } => {
                    match options::value_from_text(name, value) {
                        Ok(TypedValue::One(value)) => {
                            parameters.insert(name.clone(), value);
                        }
                        Ok(TypedValue::Element(value)) => {
                            let list = parameters.entry(name.clone()).or_insert_with(|| json!([]));
                            if let Value::Array(list) = list {
                                list.push(value);
                            }
                        }
                        // What was parsed is right; what a caller put in is the server's to refuse.
                        Ok(TypedValue::Legacy) | Err(_) => {}
                    }
                    continue;
                }
                Instruction::License(text) => {
                    licenses.push(json!(text));
                    continue;
                }
                Instruction::Message { role, content } => {
                    messages.push(json!({ "role": role, "content": content }));
                    continue;
                }
                Instruction::Template(text) => ("template", text),
                Instruction::System(text) => ("system", text),
                Instruction::Requires(text) => ("requires", text),
                Instruction::Renderer(text) => ("renderer", text),
                Instruction::Parser(text) => ("parser", text),
            };
            request.insert(member.to_owned(), json!(text));
        }
        if !licenses.is_empty() {
            request.insert("license".to_owned(), licenses.into());
        }
        if !messages.is_empty() {
            request.insert("messages".to_owned(), messages.into());
        }
        if !parameters.is_empty() {
            request.insert("parameters".to_owned(), parameters.into());
        }
        request
    }
}

impl Instruction {
    /// Returns its name in lower case.
    pub fn name(&self) -> &'static str {
        match self {
            Instruction::From(_) => "from",
            Instruction::Parameter { .. } => "parameter",
            Instruction::Template(_) => "template",
            Instruction::System(_) => "system",
            Instruction::License(_) => "license",
            Instruction::Adapter(_) => "adapter",
            Instruction::Message { .. } => "message",
            Instruction::Requires(_) => "requires",
            Instruction::Draft(_) => "draft",
            Instruction::Renderer(_) => "renderer",
            Instruction::Parser(_) => "parser",
        }
    }
}

/// Goes through a text.
struct Reader<'a> {
    text: &'a str,
    /// Where the next line begins.
    at: usize,
    /// Number of the present line, from 1.
    line: usize,
}

impl<'a> Reader<'a> {
    /// Steps to the next line and returns where it begins and ends, its end mark left out.
    fn next_line(&mut self) -> Option<(usize, usize)> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = rest.find(['\r', '\n']).unwrap_or(rest.len());
        let mark = match rest.as_bytes().get(length..length + 2) {
            Some(b"\r\n") => 2,
            _ => 1,
        };
        let start = self.at;
        self.at = start + length + mark;
        self.line += 1;
        Some((start, start + length))
    }

    /// Reads the value that begins at `start` in the line that ends at `end`, and the lines it
    /// goes on in.
    fn value(&mut self, start: usize, mut end: usize) -> Result<&'a str, String> {
        let line = &self.text[start..end];
        let Some(quotes) = QUOTES.into_iter().find(|quotes| line.starts_with(quotes)) else {
            return Ok(line.trim());
        };
        let start = start + quotes.len();
        loop {
            if let Some(value) = self.text[start..end].trim_end().strip_suffix(quotes) {
                return Ok(value);
            }
            (_, end) = self
                .next_line()
                .ok_or_else(|| format!("the text has no closing {quotes}"))?;
        }
    }

    /// Reads the instruction that begins at `start` in the line that ends at `end`.
    fn instruction(&mut self, start: usize, end: usize) -> Result<Instruction, String> {
        let (name, at) = self.word(start, end);
        // First the name: of an unknown instruction the value means nothing.
        let name = name.to_ascii_lowercase();
        if !INSTRUCTIONS.contains(&name.as_str()) {
            return Err(UNKNOWN_INSTRUCTION.to_owned());
        }
        let (word, at) = match name.as_str() {
            "parameter" | "message" => self.word(at, end),
            _ => ("", at),
        };
        let value = self.value(at, end)?.to_owned();
        let required = |what: &str| {
            let missing = value.trim().is_empty();
            missing.then(|| format!("{} needs {what}", name.to_uppercase()))
        };
        let refusal = match name.as_str() {
            "from" => required("a model name, a file or a folder"),
            "adapter" => required("a file or a folder"),
            "requires" => required("a version"),
            "draft" | "renderer" | "parser" => required("a name"),
            "parameter" if word.is_empty() => Some("PARAMETER needs a name and a value".to_owned()),
            "parameter" => options::value_from_text(word, &value).err(),
            "message" if !ROLES.contains(&word.to_ascii_lowercase().as_str()) => Some(
                "message role must be one of \"system\", \"user\", or \"assistant\"".to_owned(),
            ),
            _ => None,
        };
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        Ok(match name.as_str() {
            "from" => Instruction::From(value),
            "parameter" => Instruction::Parameter {
                name: word.to_owned(),
                value,
            },
            "template" => Instruction::Template(value),
            "system" => Instruction::System(value),
            "license" => Instruction::License(value),
            "adapter" => Instruction::Adapter(value),
            "message" => Instruction::Message {
                role: word.to_ascii_lowercase(),
                content: value,
            },
            "requires" => Instruction::Requires(value),
            "draft" => Instruction::Draft(value),
            "renderer" => Instruction::Renderer(value),
            _ => Instruction::Parser(value),
        })
    }

    /// Splits a word off; returns it and where the next one begins.
    fn word(&self, start: usize, end: usize) -> (&'a str, usize) {
        let line = &self.text[start..end];
        let word = line.split(char::is_whitespace).next().unwrap_or_default();
        let rest = line[word.len()..].trim_start();
        (word, end - rest.len())
    }
}

/// Decodes the text by its byte order mark, without the mark.
fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes.as_chunks::<2>();
        let text = char::decode_utf16(units.iter().map(|bytes| unit(*bytes))).collect();
        match (text, rest) {
            (Ok(text), []) => Ok(Cow::Owned(text)),
            _ => Err(Error::Encoding),
        }
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => std::str::from_utf8(rest)
            .map(Cow::Borrowed)
            .map_err(|_| Error::Encoding),
    }
}

/// Writes a value so that it is read as it is; bare if possible.
fn quoted(value: &str) -> Option<String> {
    let bare = !value.is_empty()
        && value.trim().len() == value.len()
        && !value.contains(['\r', '\n'])
        && !value.starts_with('"');
    if bare {
        return Some(value.to_owned());
    }
    QUOTES
        .into_iter()
        .map(|quotes| (quotes, format!("{quotes}{value}{quotes}")))
        .find(|(quotes, text)| {
            let opens = QUOTES.into_iter().find(|opens| text.starts_with(opens));
            let closes_early = value
                .match_indices(['\r', '\n'])
                .any(|(at, _)| value[..at].trim_end().ends_with(quotes));
            opens == Some(quotes) && !closes_early
        })
        .map(|(_, text)| text)
}

/// What can stand around a value; the longer ones first.
const QUOTES: [&str; 2] = ["\"\"\"", "\""];
const ROLES: [&str; 3] = ["system", "user", "assistant"];
/// The names of all instructions, in small letters.
pub const INSTRUCTIONS: [&str; 11] = [
    "from",
    "license",
    "template",
    "system",
    "adapter",
    "draft",
    "renderer",
    "parser",
    "parameter",
    "message",
    "requires",
];
/// The reference server's words, for clients that look for them.
const UNKNOWN_INSTRUCTION: &str = "command must be one of \"from\", \"license\", \"template\", \"system\", \"adapter\", \
    \"draft\", \"renderer\", \"parser\", \"parameter\", \"message\", or \"requires\"";

#[cfg(test)]
mod tests;
