//! What templates expect of Python: methods, `json.dumps`, and a block that only training needs.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::bounded;

/// Methods of strings, lists and maps.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    bounded::method(method, value, args)?;
    let result = pycompat::unknown_method_callback(state, value, method, args);
    match (result, value.as_str()) {
        (Err(error), Some(text)) if error.kind() == ErrorKind::UnknownMethod => {
            string_method(text, method, args)
        }
        (result, _) => result,
    }
}

/// String methods that the compatibility layer lacks.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let argument = args.first().and_then(Value::as_str);
    let value = match (method, argument) {
        ("removeprefix", Some(prefix)) => text.strip_prefix(prefix).unwrap_or(text).into(),
        ("removesuffix", Some(suffix)) => text.strip_suffix(suffix).unwrap_or(text).into(),
        ("partition", Some(separator)) => match text.split_once(separator) {
            Some((before, after)) => strings([before, separator, after]),
            None => strings([text, "", ""]),
        },
        ("rpartition", Some(separator)) => match text.rsplit_once(separator) {
            Some((before, after)) => strings([before, separator, after]),
            None => strings(["", "", text]),
        },
        ("rsplit", Some(separator)) if !separator.is_empty() => {
            let most = args.get(1).and_then(Value::as_i64).unwrap_or(-1);
            let n_parts = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
            let mut parts: Vec<&str> = text.rsplitn(n_parts, separator).collect();
            parts.reverse();
            strings(parts)
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    };
    Ok(value)
}

fn strings<'a>(parts: impl IntoIterator<Item = &'a str>) -> Value {
    parts.into_iter().map(Value::from).collect()
}

/// The `tojson` filter of the transformers library: `json.dumps` with `ensure_ascii=False`.
pub(super) fn to_json_filter(
    value: &Value,
    ensure_ascii: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let named_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;

    let indent = indent
        .filter(|value| !value.is_none())
        .map(|value| match value.as_i64() {
            Some(n) => " ".repeat(usize::try_from(n).unwrap_or(0).min(64)),
            None => value.to_string(),
        });
    if indent
        .as_ref()
        .is_some_and(|indent| indent.len() > MAX_MARK_BYTES)
        || separators
            .iter()
            .flatten()
            .any(|text| text.len() > MAX_MARK_BYTES)
    {
        return Err(invalid("tojson: indent or separator too long"));
    }
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.as_str(), key.as_str()),
        Some(_) => return Err(invalid("tojson: separators must be two strings")),
        None => (default_item, ": "),
    };
    let mut writer = JsonWriter {
        out: String::new(),
        item,
        key,
        indent: indent.as_deref(),
        ascii: named_ascii.or(ensure_ascii).unwrap_or(false),
        sort_keys: sort_keys.unwrap_or(false),
        depth: 0,
    };
    writer.write(value)?;
    Ok(writer.out)
}

/// Replaces the `generation` block of training templates, which marks text and prints its body, by
/// a block that just prints its body.
pub(super) fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, block) = rest.split_at(start + 2);
        out.push_str(before);
        let sign = usize::from(block.starts_with(['-', '+']));
        let word_start = block.len() - block[sign..].trim_start().len();
        let (lead, tail) = block.split_at(word_start);
        out.push_str(lead);
        rest = tail;
        for (word, replacement) in [("generation", "if true"), ("endgeneration", "endif")] {
            let after = tail.strip_prefix(word).map(str::trim_start);
            if after.is_some_and(|after| after.starts_with(['-', '+', '%'])) {
                out.push_str(replacement);
                rest = &tail[word.len()..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Writes what Python's `json.dumps` writes.
struct JsonWriter<'a> {
    out: String,
    item: &'a str,
    key: &'a str,
    indent: Option<&'a str>,
    ascii: bool,
    sort_keys: bool,
    depth: usize,
}

impl JsonWriter<'_> {
    fn write(&mut self, value: &Value) -> Result<(), Error> {
        if self.out.len() > MAX_JSON_BYTES || self.depth > MAX_DEPTH {
            return Err(invalid("tojson: value too large"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
                self.write_container('[', ']', items.len(), |writer, i| writer.write(&items[i]))?;
            }
            ValueKind::Map => {
                let mut members = Vec::new();
                for key in value.try_iter()?.checked() {
                    let key = key?;
                    let member = value.get_item(&key)?;
                    members.push((key_text(&key)?, member));
                }
                if self.sort_keys {
                    members.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.write_container('{', '}', members.len(), |writer, i| {
                    let (key, member) = &members[i];
                    writer.write_string(key);
                    writer.out.push_str(writer.key);
                    writer.write(member)
                })?;
            }
            other => return Err(invalid(&format!("tojson: {other} is not JSON"))),
        }
        Ok(())
    }

    fn write_container(
        &mut self,
        open: char,
        close: char,
        len: usize,
        mut member: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        self.depth += 1;
        for i in 0..len {
            if i > 0 {
                self.out.push_str(self.item);
            }
            self.break_line();
            member(self, i)?;
        }
        self.depth -= 1;
        if len > 0 {
            self.break_line();
        }
        self.out.push(close);
        Ok(())
    }

    fn break_line(&mut self) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push_str(indent);
            }
        }
    }

    fn write_string(&mut self, text: &str) {
        use std::fmt::Write as _;

        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => Ok(number(key)),
        other => Err(invalid(&format!("tojson: {other} cannot be a key"))),
    }
}

/// A number as Python prints it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else {
        return value.to_string();
    };
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{float:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

fn invalid(text: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.to_owned())
}

/// Longest text of one value.
const MAX_JSON_BYTES: usize = 32 << 20;
/// Longest indent and separator.
const MAX_MARK_BYTES: usize = 64;
/// Nesting of values that can be written.
const MAX_DEPTH: usize = 256;
