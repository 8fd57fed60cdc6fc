//! Values as text: the notation of Python literals, which the schema shares with other languages.

use std::fmt::Write;

use serde_json::Value;

/// Characters kept of a rendered field unless something else is asked for.
pub const MAX_REPR_LENGTH: usize = 2048;

/// A string literal: `'ok'`, `"it's"`, `'a\nb'`.
pub fn repr_str(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_str(&mut out, text);
    out
}

/// A tuple of strings: `('a', 'b')`, `('a',)`, `()`. [`parse_tuple`] is its inverse.
pub fn repr_tuple<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| repr_str(item.as_ref())).collect();
    repr_items(&items)
}

/// A tuple of values that are rendered already: `(3, 7)`, `(1,)`, `()`.
pub fn repr_items<S: AsRef<str>>(items: &[S]) -> String {
    let mut out = String::from("(");
    for (idx, item) in items.iter().enumerate() {
        if idx > 0 {
            out.push_str(", ");
        }
        out.push_str(item.as_ref());
    }
    if items.len() == 1 {
        out.push(',');
    }
    out.push(')');
    out
}

/// A dictionary of strings: `{'name': 'x'}`.
pub fn repr_dict<K: AsRef<str>, V: AsRef<str>>(items: impl IntoIterator<Item = (K, V)>) -> String {
    let mut out = String::from("{");
    for (idx, (key, value)) in items.into_iter().enumerate() {
        if idx > 0 {
            out.push_str(", ");
        }
        write_str(&mut out, key.as_ref());
        out.push_str(": ");
        write_str(&mut out, value.as_ref());
    }
    out.push('}');
    out
}

/// A JSON value as a Python literal: `{'a': [1, True, None]}`.
pub fn repr_json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

/// The strings of a tuple as [`repr_tuple`] writes it; what is no string literal is given as it
/// stands. `None` if the text is no complete tuple, such as a truncated one.
pub fn parse_tuple(text: &str) -> Option<Vec<String>> {
    let mut items = Vec::new();
    let mut rest = text.trim().strip_prefix('(')?;
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix(')') {
            return end.is_empty().then_some(items);
        }
        let (item, after) = parse_item(rest)?;
        items.push(item);
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with(')') => {}
            None => return None,
        }
    }
}

/// Keys and values of a dictionary as [`repr_dict`] writes it; see [`parse_tuple`].
pub fn parse_dict(text: &str) -> Option<Vec<(String, String)>> {
    let mut items = Vec::new();
    let mut rest = text.trim().strip_prefix('{')?;
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix('}') {
            return end.is_empty().then_some(items);
        }
        let (key, after) = parse_item(rest)?;
        let (value, after) = parse_item(after.trim_start().strip_prefix(':')?.trim_start())?;
        items.push((key, value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// The string that a literal stands for; `None` if the text is no string literal.
pub fn parse_str(text: &str) -> Option<String> {
    match parse_literal(text)? {
        (value, "") => Some(value),
        _ => None,
    }
}

/// The JSON value that a rendered value stands for: `(1, 'x')` is `[1, "x"]`, `{'a': None}` is
/// `{"a": null}`. What is no literal, such as `Point { x: 1 }` or a truncated text, is a string of
/// itself.
pub fn to_json(text: &str) -> Value {
    literal(text.trim(), 0).unwrap_or_else(|| text.into())
}

/// Values within values that [`to_json`] looks into.
const MAX_DEPTH: usize = 64;

fn literal(text: &str, depth: usize) -> Option<Value> {
    match text {
        "None" => return Some(Value::Null),
        "True" | "true" => return Some(true.into()),
        "False" | "false" => return Some(false.into()),
        _ if depth > MAX_DEPTH => return None,
        _ => {}
    }
    // What is within a container and no literal itself stands as its own text.
    let inner = |text: &str| literal(text, depth + 1).unwrap_or_else(|| text.into());
    match text.chars().next()? {
        '\'' | '"' => parse_str(text).map(Value::from),
        '(' => items(text, '(', ')')?
            .into_iter()
            .map(|item| Some(inner(item)))
            .collect(),
        '[' => items(text, '[', ']')?
            .into_iter()
            .map(|item| Some(inner(item)))
            .collect(),
        '{' => {
            let mut map = serde_json::Map::new();
            for pair in items(text, '{', '}')? {
                let (key, after) = raw_item(pair)?;
                let value = after.trim_start().strip_prefix(':')?.trim_start();
                let key = parse_str(key).unwrap_or_else(|| key.to_owned());
                map.insert(key, inner(value));
            }
            Some(Value::Object(map))
        }
        '-' | '0'..='9' => {
            let number: serde_json::Number = text.parse().ok()?;
            // A number that JSON would round stays the text it is.
            let is_exact = !text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
                || number.is_i64()
                || number.is_u64();
            is_exact.then_some(Value::Number(number))
        }
        _ => None,
    }
}

/// The items between the brackets, as they stand; those of a dictionary are its pairs.
fn items(text: &str, open: char, close: char) -> Option<Vec<&str>> {
    let mut items = Vec::new();
    let mut rest = text.strip_prefix(open)?;
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix(close) {
            return end.is_empty().then_some(items);
        }
        let start = rest;
        rest = raw_item(rest)?.1.trim_start();
        if close == '}' {
            rest = raw_item(rest.strip_prefix(':')?.trim_start())?.1;
        }
        items.push(start[..start.len() - rest.len()].trim_end());
        rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with(close) => {}
            None => return None,
        }
    }
}

/// The first `limit` characters and a note of how many were cut. No limit with 0.
pub fn truncate(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((cut, _)) if limit > 0 => {
            let n_cut = text[cut..].chars().count();
            format!("{}... [truncated {n_cut} chars]", &text[..cut])
        }
        _ => text.to_owned(),
    }
}

pub(crate) fn write_str(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if is_printable(c) => out.push(c),
            c => {
                let code = c as u32;
                // Writing to a string does not fail.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// False for what cannot be seen or moves other text: controls, blanks other than the blank, marks
/// of direction, tags, private use.
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || c.is_whitespace()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{10ffff}'))
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_str(out, text),
        Value::Array(values) => {
            out.push('[');
            for (idx, value) in values.iter().enumerate() {
                if idx > 0 {
                    out.push_str(", ");
                }
                write_json(out, value);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (idx, (key, value)) in map.iter().enumerate() {
                if idx > 0 {
                    out.push_str(", ");
                }
                write_str(out, key);
                out.push_str(": ");
                write_json(out, value);
            }
            out.push('}');
        }
    }
}

/// One item of a tuple, and what follows it.
fn parse_item(text: &str) -> Option<(String, &str)> {
    if text.starts_with(['\'', '"']) {
        return parse_literal(text);
    }
    raw_item(text).map(|(item, rest)| (item.to_owned(), rest))
}

/// As [`parse_item`], without taking the quotes of a string away.
fn raw_item(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match c {
            '\'' | '"' => {
                rest = parse_literal(rest)?.1;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ',' | ':' | ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    let item = text[..text.len() - rest.len()].trim_end();
    (!item.is_empty() && depth == 0).then_some((item, rest))
}

/// The string of the literal at the start, and what follows it.
fn parse_literal(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut value = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let (_, escape) = chars.next()?;
                let n_digits = match escape {
                    'n' => {
                        value.push('\n');
                        0
                    }
                    'r' => {
                        value.push('\r');
                        0
                    }
                    't' => {
                        value.push('\t');
                        0
                    }
                    '0' => {
                        value.push('\0');
                        0
                    }
                    '\\' | '\'' | '"' => {
                        value.push(escape);
                        0
                    }
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => return None,
                };
                if n_digits > 0 {
                    let mut code = 0;
                    for _ in 0..n_digits {
                        code = code * 16 + chars.next()?.1.to_digit(16)?;
                    }
                    value.push(char::from_u32(code)?);
                }
            }
            c if c == quote => return Some((value, &text[1 + at + 1..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn literals_look_like_those_of_python() {
        for (text, literal) in [
            ("", "''"),
            ("ok", "'ok'"),
            ("it's", "\"it's\""),
            ("it's \"x\"", "'it\\'s \"x\"'"),
            (
                "a\nb\t\\\r\0\u{7f}\u{a0}",
                "'a\\nb\\t\\\\\\r\\x00\\x7f\\xa0'",
            ),
            ("ż 漢 🎉 e\u{301}", "'ż 漢 🎉 e\u{301}'"),
            ("\u{202e}\u{feff}\u{e0001}", "'\\u202e\\ufeff\\U000e0001'"),
        ] {
            assert_eq!(repr_str(text), literal);
            assert_eq!(parse_str(literal).as_deref(), Some(text));
        }
        assert_eq!(repr_tuple(&["a"]), "('a',)");
        assert_eq!(repr_items::<&str>(&[]), "()");
        assert_eq!(repr_items(&["3", "7"]), "(3, 7)");
        assert_eq!(
            repr_json(&serde_json::json!({"a": [1, true, null, "x"]})),
            "{'a': [1, True, None, 'x']}"
        );
        assert_eq!(
            parse_tuple("(1, [2, ')'], 'x')"),
            Some(vec!["1".into(), "[2, ')']".into(), "x".into()])
        );
        assert_eq!(parse_tuple("('a', 'b... [truncated 7 chars]"), None);
    }

    #[test]
    fn rendered_values_become_json() {
        use serde_json::json;

        for (text, value) in [
            (
                "(3, 'it\\'s', [1.5, None, True])",
                json!([3, "it's", [1.5, null, true]]),
            ),
            ("(1,)", json!([1])),
            ("()", json!([])),
            (
                "{'a': {'b': (1, 2)}, 3: 'x'}",
                json!({"a": {"b": [1, 2]}, "3": "x"}),
            ),
            ("{}", json!({})),
            ("'ok'", json!("ok")),
            ("None", json!(null)),
            ("-12e3", json!(-12e3)),
            ("18446744073709551616", json!("18446744073709551616")),
            // Rust's notation.
            (
                "(\"x\", Some(3), Point { x: 1 })",
                json!(["x", "Some(3)", "Point { x: 1 }"]),
            ),
            ("<Socket>", json!("<Socket>")),
            (
                "('a', 'b... [truncated 7 chars]",
                json!("('a', 'b... [truncated 7 chars]"),
            ),
        ] {
            assert_eq!(to_json(text), value, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let _ = to_json(&deep);
    }

    #[test]
    fn truncation_counts_characters() {
        assert_eq!(truncate("żółć", 4), "żółć");
        assert_eq!(truncate("żółć", 3), "żół... [truncated 1 chars]");
        assert_eq!(truncate("żółć", 0), "żółć");
    }

    proptest! {
        #[test]
        fn tuples_and_dicts_come_back(items in proptest::collection::vec("(?s).*", 0..5)) {
            prop_assert_eq!(parse_tuple(&repr_tuple(&items)), Some(items.clone()));
            let pairs: Vec<_> = items.iter().map(|item| (item.clone(), item.clone())).collect();
            prop_assert_eq!(parse_dict(&repr_dict(pairs.clone())), Some(pairs));
        }

        #[test]
        fn parsers_survive_anything(text in "(?s)[('\"\\\\xu,){:}a0]{0,20}|.*") {
            let _ = (parse_tuple(&text), parse_dict(&text), parse_str(&text), to_json(&text));
        }

        #[test]
        fn json_comes_back(texts in proptest::collection::vec("(?s).*", 0..4), n in any::<i64>(), on in any::<bool>()) {
            let value = serde_json::json!({"list": texts, "n": n, "on": on, "none": null, "in": [[{"k": texts}]]});
            prop_assert_eq!(to_json(&repr_json(&value)), value);
        }
    }
}
