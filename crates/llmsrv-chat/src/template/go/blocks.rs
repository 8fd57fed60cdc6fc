//! The blocks of a Go template, found without parsing it: how deep they are, and whether they are closed.
//!
//! gotmpl bounds the nesting of blocks and brackets, but its parser calls itself for each `else if` of a
//! chain. And it does not say whether blocks are closed: it takes the end of the text for any missing
//! `end`, and drops what follows an `end` too many.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// Fails if the blocks of a text that gotmpl is about to parse nest too deeply; each `else if` counts.
pub(super) fn check_depth(source: &str) -> Result<()> {
    let mut open: Vec<usize> = Vec::new();
    let mut depth = 0;
    for (_, action) in actions(source) {
        let mut words = words(action);
        match words.next().unwrap_or_default() {
            "if" | "with" | "range" | "define" | "block" => {
                open.push(1);
                depth += 1;
            }
            "end" => depth -= open.pop().unwrap_or(0),
            "else" if words.next().is_some() => {
                if let Some(block) = open.last_mut() {
                    *block += 1;
                    depth += 1;
                }
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Error::Limit("100 nested blocks"));
        }
    }
    Ok(())
}

/// What a text reads.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Lower-case names of all fields.
    pub(super) fields: BTreeSet<String>,
    /// Whether `.Thinking` is read where the innermost loop runs over the messages.
    pub(super) reads_thinking: bool,
}

impl Facts {
    /// Looks at the actions one after another; of a text that does not parse it tells anything.
    pub(super) fn of(source: &str) -> Facts {
        let mut facts = Facts::default();
        // Whether the innermost loop runs over the messages, for each open block.
        let mut open = Vec::new();
        for (_, action) in actions(source) {
            let names: Vec<&str> = fields(action).collect();
            let around = open.last().copied().unwrap_or(false);
            let mut inside = around;
            match words(action).next().unwrap_or_default() {
                "range" => {
                    inside = names.contains(&"Messages");
                    open.push(inside);
                }
                "if" | "with" => open.push(around),
                "define" | "block" => open.push(false),
                "end" => {
                    open.pop();
                }
                _ => {}
            }
            facts.reads_thinking |= inside && names.contains(&"Thinking");
            facts
                .fields
                .extend(names.into_iter().map(str::to_lowercase));
        }
        facts
    }
}

/// The fields that an action reads: the words behind dots, outside of strings.
fn fields(action: &str) -> impl Iterator<Item = &str> {
    let mut position = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &action[position..];
            let next = rest.find(['.', '"', '\'', '`'])?;
            if !rest[next..].starts_with('.') {
                position += next + string(&rest[next..]);
                continue;
            }
            let name = &rest[next + 1..];
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            let name = &name[..end.unwrap_or(name.len())];
            position += next + 1 + name.len();
            if name.starts_with(|c: char| !c.is_ascii_digit()) {
                return Some(name);
            }
        }
    })
}

/// Length of the string that a text begins with, its quotes included.
fn string(text: &str) -> usize {
    let mut chars = text.char_indices();
    let quote = chars.next().map(|(_, quote)| quote);
    while let Some((at, c)) = chars.next() {
        if Some(c) == quote {
            return at + c.len_utf8();
        }
        if c == '\\' && quote != Some('`') {
            chars.next();
        }
    }
    text.len()
}

/// The words of an action.
pub(super) fn words(action: &str) -> impl Iterator<Item = &str> {
    action
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Checks a text that gotmpl has accepted, so that its strings and comments are known to be closed.
pub(super) fn check(source: &str) -> Result<()> {
    let mut open: Vec<Block> = Vec::new();
    for (line, action) in actions(source) {
        let mut words = words(action);
        let keyword = words.next().unwrap_or_default();
        let fail = || Err(syntax(line, &format!("unexpected {{{{{keyword}}}}}")));
        match keyword {
            "if" | "with" => open.push(Block::Branch { has_else: false }),
            "range" => open.push(Block::Range { has_else: false }),
            "define" | "block" => open.push(Block::Definition),
            "end" => {
                let Some(_) = open.pop() else {
                    return fail();
                };
            }
            "else" => match open.last_mut() {
                Some(Block::Branch { has_else } | Block::Range { has_else }) if !*has_else => {
                    *has_else = !matches!(words.next(), Some("if" | "with"));
                }
                _ => return fail(),
            },
            "break" | "continue" => {
                let mut around = open
                    .iter()
                    .rev()
                    .take_while(|block| **block != Block::Definition);
                if !around.any(|block| matches!(block, Block::Range { .. })) {
                    return fail();
                }
            }
            _ => {}
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(syntax(
            source.matches('\n').count() + 1,
            "unexpected end of text, {{end}} is missing",
        ))
    }
}

#[derive(PartialEq)]
enum Block {
    Branch { has_else: bool },
    Range { has_else: bool },
    Definition,
}

/// The actions of a template, from their first word on, with their lines. Comments are left out.
pub(super) fn actions(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut position = 0;
    let mut line = 1;
    std::iter::from_fn(move || {
        loop {
            let start = position + source[position..].find("{{")?;
            line += source[position..start].matches('\n').count();
            let after = &source[start + 2..];
            let inside = after.strip_prefix('-').unwrap_or(after).trim_start();
            let is_comment = inside.starts_with("/*");
            let length = if is_comment {
                comment(inside)
            } else {
                action(inside)
            };
            let begin = source.len() - inside.len();
            position = (begin + length).max(start + 2);
            let action_line = line;
            line += source[start..position].matches('\n').count();
            if !is_comment {
                return Some((action_line, &source[begin..begin + length]));
            }
        }
    })
}

/// Length of a comment.
fn comment(text: &str) -> usize {
    text.find("*/").map_or(text.len(), |end| end + 2)
}

/// Length of an action up to its closing braces, which do not count inside strings.
fn action(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'}' if bytes.get(i + 1) == Some(&b'}') => return i,
            b'"' | b'\'' | b'`' => i += string(&text[i..]),
            _ => i += 1,
        }
    }
    text.len()
}

fn syntax(line: usize, text: &str) -> Error {
    Error::Syntax(format!("template: {line}: {text}"))
}

/// Blocks within blocks, as gotmpl's own bound.
const MAX_DEPTH: usize = 100;
