//! Calls that look like Python: `[get_weather(city="Rome", days=3), say_hello()]`.

use serde_json::{Map, Number, Value};

/// Calls in a text: names and arguments. Nothing if it is anything else.
pub(super) fn parse(text: &str) -> Option<Vec<(String, Map<String, Value>)>> {
    let mut reader = Reader { rest: text.trim() };
    reader.expect('[')?;
    let mut calls = Vec::new();
    while !reader.take(']') {
        calls.push(reader.call()?);
        if !reader.take(',') && !reader.rest.trim_start().starts_with(']') {
            return None;
        }
    }
    reader.rest.trim().is_empty().then_some(calls)
}

/// As [`parse`], without brackets around the calls and perhaps without commas between them.
pub(super) fn parse_lines(text: &str) -> Option<Vec<(String, Map<String, Value>)>> {
    let mut reader = Reader { rest: text.trim() };
    let mut calls = Vec::new();
    while !reader.rest.trim_start().is_empty() {
        calls.push(reader.call()?);
        reader.take(',');
    }
    Some(calls)
}

/// Whether `text`, which begins with `[`, may become calls of tools with these names.
pub(super) fn may_become<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> bool {
    let Some(inner) = text.trim_start().strip_prefix('[') else {
        return false;
    };
    let inner = inner.trim_start();
    match inner.split_once('(') {
        Some((name, _)) => names.into_iter().any(|known| known == name.trim_end()),
        None => names.into_iter().any(|known| known.starts_with(inner)),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, c: char) -> bool {
        let trimmed = self.rest.trim_start();
        let found = trimmed.strip_prefix(c);
        self.rest = found.unwrap_or(trimmed);
        found.is_some()
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.take(c).then_some(())
    }

    /// A name and its arguments.
    fn call(&mut self) -> Option<(String, Map<String, Value>)> {
        let name = self.name()?;
        self.expect('(')?;
        let mut arguments = Map::new();
        while !self.take(')') {
            let key = self.name()?;
            self.expect('=')?;
            arguments.insert(key, self.value(MAX_DEPTH)?);
            if !self.take(',') && !self.rest.trim_start().starts_with(')') {
                return None;
            }
        }
        Some((name, arguments))
    }

    /// An identifier; tools may have dots and hyphens in their names.
    fn name(&mut self) -> Option<String> {
        let text = self.rest.trim_start();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
        self.rest = &text[end..];
        (end > 0).then(|| text[..end].to_owned())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let text = self.rest.trim_start();
        match text.chars().next()? {
            quote @ ('"' | '\'') => self.string(quote).map(Value::from),
            '[' | '(' => {
                let close = if text.starts_with('[') { ']' } else { ')' };
                self.rest = &text[1..];
                let mut items = Vec::new();
                while !self.take(close) {
                    items.push(self.value(depth)?);
                    if !self.take(',') && !self.rest.starts_with(close) {
                        return None;
                    }
                }
                Some(items.into())
            }
            '{' => {
                self.rest = &text[1..];
                let mut members = Map::new();
                while !self.take('}') {
                    let Value::String(key) = self.value(depth)? else {
                        return None;
                    };
                    self.expect(':')?;
                    members.insert(key, self.value(depth)?);
                    if !self.take(',') && !self.rest.starts_with('}') {
                        return None;
                    }
                }
                Some(members.into())
            }
            _ => {
                let ends = |c: char| matches!(c, ',' | ')' | ']' | '}' | ':') || c.is_whitespace();
                let end = text.find(ends).unwrap_or(text.len());
                self.rest = &text[end..];
                word(&text[..end])
            }
        }
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let text = self.rest.trim_start();
        let mut value = String::new();
        let mut chars = text.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &text[at + 1..];
                return Some(value);
            }
            if c != '\\' {
                value.push(c);
                continue;
            }
            match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                'b' => value.push('\u{8}'),
                'f' => value.push('\u{c}'),
                '\n' => {}
                c @ ('x' | 'u') => {
                    let n_digits = if c == 'x' { 2 } else { 4 };
                    let mut unit = || {
                        (0..n_digits)
                            .try_fold(0, |code, _| Some(code * 16 + chars.next()?.1.to_digit(16)?))
                    };
                    let code = unit()?;
                    value.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                c @ ('\\' | '"' | '\'' | '/') => value.push(c),
                c => value.extend(['\\', c]),
            }
        }
        None
    }
}

/// A number or a word of Python or JSON.
fn word(text: &str) -> Option<Value> {
    match text {
        "True" | "true" => Some(true.into()),
        "False" | "false" => Some(false.into()),
        "None" | "null" => Some(Value::Null),
        _ => {
            let number: Number = text.parse().ok()?;
            Some(number.into())
        }
    }
}

const MAX_DEPTH: usize = 64;
