//! `logkit diff`: calls with the same arguments that ended differently in another version.

use std::collections::{BTreeMap, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

use logkit::{
    Entry,
    query::{Filter, Reader},
};
use serde_json::json;

use crate::{args::DiffArgs, failure::Failure, render, settings::Database};

/// The last outcome of a call in a version.
type Outcomes = BTreeMap<Key, String>;

/// A call: its function and its arguments. Arguments may be large, so that they are kept as a hash
/// with their start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    function: String,
    args: String,
    hash: u64,
}

/// Characters of arguments that are shown.
const SHOWN: usize = 200;

/// Does `diff`; returns the exit status.
pub(crate) fn run(args: &DiffArgs) -> Result<u8, Failure> {
    let reader = Database::find(&args.database)?.reader()?;
    let function = args.function.as_deref();
    let old = outcomes(&reader, &args.old, function)?;
    let new = outcomes(&reader, &args.new, function)?;
    for (version, outcomes) in [(&args.old, &old), (&args.new, &new)] {
        if outcomes.is_empty() {
            render::warning(format_args!("nothing was logged with version {version}"));
        }
    }
    let mut n_compared = 0;
    let mut n_differ = 0;
    render::results(|out| {
        for (key, before) in &old {
            let Some(after) = new.get(key) else {
                continue;
            };
            n_compared += 1;
            if before == after {
                continue;
            }
            n_differ += 1;
            if args.json {
                let difference = json!({
                    "function": key.function, "args": key.args,
                    "old_version": args.old, "old": before,
                    "new_version": args.new, "new": after,
                });
                writeln!(out, "{difference}")?;
            } else {
                let text = format!(
                    "DIFF: {}({}) {}→{before} vs {}→{after}",
                    key.function, key.args, args.old, args.new
                );
                writeln!(out, "{}", render::one_line(&text))?;
            }
        }
        if !args.json {
            let line_before = if n_differ > 0 { "\n" } else { "" };
            writeln!(
                out,
                "{line_before}({n_differ} of {n_compared} calls of both versions differ)"
            )?;
        }
        Ok::<(), Failure>(())
    })?;
    Ok(u8::from(args.exit_code && n_differ > 0))
}

fn outcomes(reader: &Reader, version: &str, function: Option<&str>) -> Result<Outcomes, Failure> {
    let mut outcomes = Outcomes::new();
    let filter = Filter {
        version: Some(version.to_owned()),
        function: function.map(str::to_owned),
        ..Filter::default()
    };
    // As written: the last outcome of a call stays.
    reader.for_each(&filter, |row| {
        outcomes.insert(key(&row.entry), outcome(&row.entry));
        true
    })?;
    Ok(outcomes)
}

fn key(entry: &Entry) -> Key {
    let args = without_addresses(&entry.args);
    let kwargs = without_addresses(&entry.kwargs);
    let mut hasher = DefaultHasher::new();
    (&args, &kwargs).hash(&mut hasher);
    let mut shown = args;
    if kwargs != "{}" {
        shown.push_str(", ");
        shown.push_str(&kwargs);
    }
    Key {
        function: entry.function_name.clone().into_owned(),
        args: cut(shown),
        hash: hasher.finish(),
    }
}

/// What a call came to: its result, or `!` and the error.
fn outcome(entry: &Entry) -> String {
    if entry.exception_type.is_empty() {
        return without_addresses(&entry.return_value);
    }
    format!("!{}", entry.exception_type)
}

fn cut(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Addresses of objects differ in every run and mean nothing.
fn without_addresses(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(" at 0x") {
        let digits = &rest[at + 6..];
        let end = digits
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(digits.len());
        masked.push_str(&rest[..at]);
        masked.push_str(" at 0x");
        rest = &digits[end..];
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_no_difference() {
        assert_eq!(
            without_addresses("<a.B object at 0x7f00aa>, <C at 0x1>"),
            "<a.B object at 0x>, <C at 0x>"
        );
        assert_eq!(without_addresses("met at 0x"), "met at 0x");
    }
}
