//! Whether the blocks of a Go template are closed. gotmpl does not say: it takes the end of the text for
//! any missing `end`, and drops what follows an `end` too many.

use crate::error::{Error, Result};

/// Checks a text that gotmpl has accepted, so that its strings and comments are known to be closed.
pub(super) fn check(source: &str) -> Result<()> {
    let mut open: Vec<Block> = Vec::new();
    for (line, action) in actions(source) {
        let mut words = action.split(|c: char| !c.is_alphanumeric() && c != '_');
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
fn actions(source: &str) -> impl Iterator<Item = (usize, &str)> {
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
            quote @ (b'"' | b'\'' | b'`') => {
                i += 1;
                while i < bytes.len() && bytes[i] != quote {
                    i += if bytes[i] == b'\\' && quote != b'`' {
                        2
                    } else {
                        1
                    };
                }
                i += 1;
            }
            _ => i += 1,
        }
    }
    text.len()
}

fn syntax(line: usize, text: &str) -> Error {
    Error::Syntax(format!("template: {line}: {text}"))
}
