//! Calls between an opening tag and a closing tag that is another one, in syntaxes that are not JSON.

use llmsrv_api::native::Tool;
use serde_json::{Map, Value};

use super::{
    call::{self, Call},
    python,
    typed::{is_text, typed},
};

/// A block of calls.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// Stands in every block that holds a call.
    pub(super) mark: &'static str,
    read: Read,
}

#[derive(Clone, Copy, Debug)]
enum Read {
    /// `call:name{key:value}`, strings between these quotes.
    Braces(&'static str),
    /// `<invoke name="f">` and `<parameter name="k">`, with this behind each `<` and `</`.
    Invokes(&'static str),
    /// `name(key=value)`, one call after the other.
    Python,
    /// `f"><param name="k">v</param>`, where a value may be CDATA.
    Params,
}

/// Every kind of block.
const BLOCKS: &[Block] = &[
    // Gemma 4.
    Block {
        open: "<|tool_call>",
        close: "<tool_call|>",
        mark: "call:",
        read: Read::Braces("<|\"|>"),
    },
    // FunctionGemma.
    Block {
        open: "<start_function_call>",
        close: "<end_function_call>",
        mark: "call:",
        read: Read::Braces("<escape>"),
    },
    // MiniMax M2.
    Block {
        open: "<minimax:tool_call>",
        close: "</minimax:tool_call>",
        mark: "invoke name=",
        read: Read::Invokes(""),
    },
    // DeepSeek V3.2.
    Block {
        open: "<｜DSML｜function_calls>",
        close: "</｜DSML｜function_calls>",
        mark: "invoke name=",
        read: Read::Invokes("｜DSML｜"),
    },
    // DeepSeek V4.
    Block {
        open: "<｜DSML｜tool_calls>",
        close: "</｜DSML｜tool_calls>",
        mark: "invoke name=",
        read: Read::Invokes("｜DSML｜"),
    },
    // OLMo 3.
    Block {
        open: "<function_calls>",
        close: "</function_calls>",
        mark: "(",
        read: Read::Python,
    },
    // MiniCPM 5.
    Block {
        open: "<function name=\"",
        close: "</function>",
        mark: "\">",
        read: Read::Params,
    },
];

/// The kind of block that a tag opens.
pub(super) fn opened_by(tag: &str) -> Option<&'static Block> {
    BLOCKS.iter().find(|block| block.open == tag)
}

impl Block {
    /// Whether what began with the opening tag ends here: a closing tag in CDATA is text.
    pub(super) fn is_whole(&self, block: &str) -> bool {
        let is_in_cdata = || match self.read {
            Read::Params => {
                let last = block.rsplit_once("\"><![CDATA[");
                last.is_some_and(|(_, text)| !text.contains(CDATA_END))
            }
            Read::Braces(_) | Read::Invokes(_) | Read::Python => false,
        };
        block.ends_with(self.close) && !is_in_cdata()
    }

    /// The calls in a whole block; none if one of them names no known tool.
    pub(super) fn calls(&self, block: &str, tools: &[Tool]) -> Vec<Call> {
        let inner = block.trim_start();
        let inner = inner.strip_prefix(self.open).unwrap_or(inner);
        let inner = inner.strip_suffix(self.close).unwrap_or(inner);
        let calls = match self.read {
            Read::Braces(quote) => braces(inner, quote).map(|call| vec![call]),
            Read::Invokes(prefix) => return invokes(inner, prefix, tools),
            Read::Python => python::parse_lines(inner),
            Read::Params => return params(inner, tools),
        };
        let calls = calls.unwrap_or_default().into_iter();
        let calls = calls.map(|(name, arguments)| {
            let name = call::known(&name, tools)?.function.name.clone();
            Some(Call { name, arguments })
        });
        calls.collect::<Option<_>>().unwrap_or_default()
    }
}

/// The call in `call:name{key:value,…}`.
fn braces(text: &str, quote: &str) -> Option<(String, Map<String, Value>)> {
    let text = text.trim().strip_prefix("call:")?;
    let start = text.find('{')?;
    let mut reader = Braces {
        rest: &text[start..],
        quote,
    };
    let Value::Object(arguments) = reader.value(MAX_DEPTH)? else {
        return None;
    };
    reader
        .rest
        .trim()
        .is_empty()
        .then(|| (text[..start].trim().to_owned(), arguments))
}

/// Reads values whose strings have quotes of their own and whose keys have none.
struct Braces<'a> {
    rest: &'a str,
    quote: &'a str,
}

impl<'a> Braces<'a> {
    fn take(&mut self, text: &str) -> bool {
        let trimmed = self.rest.trim_start();
        let found = trimmed.strip_prefix(text);
        self.rest = found.unwrap_or(trimmed);
        found.is_some()
    }

    /// The text before one of these characters.
    fn until(&mut self, ends: &[char]) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let end = text.find(ends)?;
        self.rest = &text[end..];
        Some(text[..end].trim_end())
    }

    /// The rest of a string whose quote was read.
    fn string(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(self.quote)?;
        self.rest = rest;
        Some(text)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let quote = self.quote;
        if self.take(quote) {
            return self.string().map(Value::from);
        }
        if self.take("{") {
            let mut members = Map::new();
            while !self.take("}") {
                let key = if self.take(quote) {
                    self.string()?
                } else {
                    self.until(&[':'])?
                };
                if !self.take(":") {
                    return None;
                }
                members.insert(key.to_owned(), self.value(depth)?);
                if !self.take(",") && !self.rest.starts_with('}') {
                    return None;
                }
            }
            return Some(members.into());
        }
        if self.take("[") {
            let mut items = Vec::new();
            while !self.take("]") {
                items.push(self.value(depth)?);
                if !self.take(",") && !self.rest.starts_with(']') {
                    return None;
                }
            }
            return Some(items.into());
        }
        serde_json::from_str(self.until(&[',', '}', ']'])?).ok()
    }
}

/// The calls in `<invoke name="f"> <parameter name="k">v</parameter> … </invoke> …`; none if one of them
/// names no known tool. A value is text where it says so (`string="true"`), else what the tool's schema says.
fn invokes(text: &str, prefix: &str, tools: &[Tool]) -> Vec<Call> {
    let open = |name: &str| format!("<{prefix}{name} name=\"");
    let close = |name: &str| format!("</{prefix}{name}>");
    let (invoke, parameter) = (open("invoke"), open("parameter"));
    let (end, value_end) = (close("invoke"), close("parameter"));
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(&invoke) {
        let (mut body, next) = after.split_once(&end).unwrap_or((after, ""));
        let name = body.split_once('"').map(|(name, _)| name);
        let Some(tool) = name.and_then(|name| call::known(name, tools)) else {
            return Vec::new();
        };
        let mut arguments = Map::new();
        while let Some((_, after)) = body.split_once(&parameter) {
            let Some((key, after)) = after.split_once('"') else {
                return Vec::new();
            };
            let Some((attributes, after)) = after.split_once('>') else {
                return Vec::new();
            };
            let (value, after) = after.split_once(&value_end).unwrap_or((after, ""));
            let value = if attributes.contains("string=\"true\"") {
                value.into()
            } else {
                typed(tool, key, value)
            };
            arguments.insert(key.to_owned(), value);
            body = after;
        }
        calls.push(Call {
            name: tool.function.name.clone(),
            arguments,
        });
        rest = next;
    }
    calls
}

/// The call in `f"><param name="k">v</param> …`; none if it names no known tool. A value is text where the
/// tool's schema says so, in CDATA as it is there, else JSON if it is JSON.
fn params(text: &str, tools: &[Tool]) -> Vec<Call> {
    let Some((name, mut rest)) = text.split_once("\">") else {
        return Vec::new();
    };
    let Some(tool) = call::known(name.trim(), tools) else {
        return Vec::new();
    };
    let mut arguments = Map::new();
    while let Some((_, after)) = rest.split_once("<param name=\"") {
        let Some((key, after)) = after.split_once("\">") else {
            return Vec::new();
        };
        let wrapped = after.strip_prefix(CDATA);
        let (body, end) = match wrapped {
            Some(text) => (text, CDATA_END),
            None => (after, "</param>"),
        };
        let (value, after) = body.split_once(end).unwrap_or((body, ""));
        let value = if wrapped.is_some() && is_text(tool, key) {
            value.into()
        } else {
            typed(tool, key, value)
        };
        arguments.insert(key.to_owned(), value);
        rest = after;
    }
    vec![Call {
        name: tool.function.name.clone(),
        arguments,
    }]
}

const MAX_DEPTH: usize = 64;
/// What stands around text whose characters are no tags.
const CDATA: &str = "<![CDATA[";
const CDATA_END: &str = "]]>";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::TAGS;

    #[test]
    fn every_block_is_looked_for() {
        for block in BLOCKS {
            assert!(TAGS.contains(&block.open), "{}", block.open);
        }
    }
}
