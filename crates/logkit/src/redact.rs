//! Blanks secrets before they reach any queue: by the name of what holds them, and by their form.

use std::{
    borrow::Cow,
    ops::Range,
    sync::{Arc, OnceLock},
};

use serde_json::{Map, Value};

use crate::{Entry, Text};

mod addresses;
mod names;
mod pairs;
mod tokens;

pub use names::is_sensitive_key;
use names::{is_secret, segments};
use pairs::Programs;

/// What stands in place of a secret.
pub const REDACTED: &str = "***REDACTED***";

/// Finds the places of secrets in a text, in order.
type Finder = fn(&str) -> Vec<Range<usize>>;

/// What shows by its form.
const FINDERS: [Finder; 5] = [
    private_keys,
    addresses::in_addresses,
    tokens::find,
    addresses::in_schemes,
    pairs::in_options,
];

/// Finds secrets and puts [`REDACTED`] in their place.
///
/// ```
/// use logkit::{REDACTED, Redactor};
///
/// let redactor = Redactor::new(["pin"]); // beside the built-in names
/// assert_eq!(
///     redactor.redact_string("user=ann password=hunter2"),
///     "user=ann password=***REDACTED***"
/// );
/// assert_eq!(redactor.redact_value("customer_pin", "1234"), REDACTED);
/// assert_eq!(redactor.redact_args(&["--token", "x1", "run"]), ["--token", REDACTED, "run"]);
/// assert!(!redactor.is_sensitive_key("max_tokens"));
/// ```
///
/// A logger takes it from [`Builder::redactor`](crate::Builder::redactor).
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// More names, in segments.
    more: Vec<Vec<String>>,
}

impl Redactor {
    /// The built-in rules, and more names: `pin`, `customer_id`.
    pub fn new<S: AsRef<str>>(more: impl IntoIterator<Item = S>) -> Redactor {
        Redactor {
            more: more
                .into_iter()
                .map(|name| segments(name.as_ref()))
                .filter(|segments| !segments.is_empty())
                .collect(),
        }
    }

    /// The built-in rules and no more names, as loggers share them.
    pub fn shared() -> Arc<Redactor> {
        static SHARED: OnceLock<Arc<Redactor>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(Arc::default))
    }

    /// True if what has that name is a secret.
    pub fn is_sensitive_key(&self, name: &str) -> bool {
        if self.more.is_empty() {
            return is_sensitive_key(name);
        }
        let found = segments(name);
        is_secret(&found)
            || self.more.iter().any(|wanted| {
                found
                    .windows(wanted.len())
                    .any(|window| window == wanted.as_slice())
            })
    }

    /// The value, or the mark of a secret if its name is that of one.
    pub fn redact_value<'a>(&self, name: &str, value: &'a str) -> Cow<'a, str> {
        if self.is_sensitive_key(name) {
            Cow::Borrowed(REDACTED)
        } else {
            self.redact_string(value)
        }
    }

    /// Blanks values of named arguments.
    pub fn redact_kwargs<K: AsRef<str>>(&self, kwargs: &mut [(K, String)]) {
        for (name, value) in kwargs {
            if let Cow::Owned(redacted) = self.redact_value(name.as_ref(), value) {
                *value = redacted;
            } else if self.is_sensitive_key(name.as_ref()) {
                REDACTED.clone_into(value);
            }
        }
    }

    /// Arguments of a command line: `--token x`, `--token=x`, `TOKEN=x`, `-u name:x` and secrets within
    /// texts.
    pub fn redact_args<S: AsRef<str>>(&self, args: &[S]) -> Vec<String> {
        self.redact_command("", args)
    }

    /// Like [`Redactor::redact_args`] where the program is known, or is the first argument: `mysql -px`.
    pub fn redact_command<S: AsRef<str>>(&self, program: &str, args: &[S]) -> Vec<String> {
        let programs = args
            .iter()
            .map(|arg| Programs::in_text(arg.as_ref()))
            .fold(Programs::in_text(program), Programs::and);
        let mut after_key = false;
        let mut after_user = false;
        args.iter()
            .map(|arg| {
                let arg = arg.as_ref();
                let is_key = arg.starts_with('-')
                    && !arg.contains(['=', ' '])
                    && self.is_sensitive_key(arg.trim_start_matches('-'));
                let is_value = std::mem::replace(&mut after_key, is_key);
                let is_user = std::mem::replace(&mut after_user, pairs::takes_user(arg));
                if is_value && !is_key {
                    return REDACTED.to_owned();
                }
                match pairs::in_option(arg, is_user, programs) {
                    Some(secret) => format!("{}{REDACTED}", &arg[..secret.start]),
                    None => self.redact_string(arg).into_owned(),
                }
            })
            .collect()
    }

    /// Blanks secrets within a text: `key=value`, `key: value`, `--key value`, `<key>value</key>`,
    /// credentials in addresses and headers, private keys, and tokens whose form shows who issued them.
    /// The time is linear in the text.
    pub fn redact_string<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !may_hold_secret(text) {
            return Cow::Borrowed(text);
        }
        let mut text = Cow::Borrowed(text);
        // A pair ends where its value does, which is clearer when what is within is blanked already.
        for find in FINDERS {
            if let Some(blanked) = blank(&text, find(&text)) {
                text = Cow::Owned(blanked);
            }
        }
        match blank(&text, pairs::find(self, &text)) {
            Some(blanked) => Cow::Owned(blanked),
            None => text,
        }
    }

    /// Blanks a JSON value: by the names in objects, and within all texts, names included.
    pub fn redact_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact_string(text) {
                    *text = redacted;
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.redact_json(value);
                }
            }
            Value::Object(map) => self.redact_map(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn redact_map(&self, map: &mut Map<String, Value>) {
        // `{"name": "password", "value": "…"}`
        let is_named = ["name", "key", "header", "field"].iter().any(|key| {
            let name = map.get(*key).and_then(Value::as_str);
            name.is_some_and(|name| self.is_sensitive_key(name))
        });
        let mut is_renamed = false;
        for (key, value) in &mut *map {
            is_renamed |= matches!(self.redact_string(key), Cow::Owned(_));
            let is_count = value.is_number() && names::may_be_count(key);
            let is_secret = self.is_sensitive_key(key) || (is_named && key == "value");
            if is_secret && !is_count && !value.is_null() {
                *value = REDACTED.into();
            } else {
                self.redact_json(value);
            }
        }
        if is_renamed {
            *map = std::mem::take(map)
                .into_iter()
                .map(|(key, value)| (self.redact_string(&key).into_owned(), value))
                .collect();
        }
    }

    /// Blanks all texts of an entry.
    pub fn redact_entry(&self, entry: &mut Entry) {
        entry.for_each_text(|text| self.redact_text(text));
        if !entry.extra.is_empty() {
            self.redact_map(&mut entry.extra);
        }
    }

    pub(crate) fn redact_text(&self, text: &mut Text) {
        if let Cow::Owned(redacted) = self.redact_string(text) {
            *text = redacted.into();
        }
    }
}

/// The text with the mark in these places, which are in order; `None` if there are none.
fn blank(text: &str, places: Vec<Range<usize>>) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    for place in places {
        let is_blank = place.is_empty() || text[place.clone()].starts_with(REDACTED);
        if is_blank || place.start < copied {
            continue;
        }
        if out.is_empty() {
            out.reserve(text.len());
        }
        out.push_str(&text[copied..place.start]);
        out.push_str(REDACTED);
        copied = place.end;
    }
    (copied > 0).then(|| {
        out.push_str(&text[copied..]);
        out
    })
}

/// The places of private keys, of PEM and of PGP; one that has no end reaches to the end of the text.
fn private_keys(text: &str) -> Vec<Range<usize>> {
    const BEGIN: &str = "-----BEGIN ";
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find(BEGIN) {
        let start = at + begin;
        at = start + BEGIN.len();
        let label = text[at..].split("-----").next().unwrap_or_default();
        let is_private = label.ends_with("PRIVATE KEY") || label.ends_with("PRIVATE KEY BLOCK");
        if !is_private || label.len() > 64 {
            continue;
        }
        let end = format!("-----END {label}-----");
        at = text[at..]
            .find(&end)
            .map_or(text.len(), |found| at + found + end.len());
        found.push(start..at);
    }
    found
}

/// False if no rule can match; most values are short and plain.
fn may_hold_secret(text: &str) -> bool {
    // Marks of pairs, options, addresses and elements; `_`, `-` and `.` within tokens, `J` of those that
    // are signed, `A` of Amazon's and Google's; the blank after `bearer` and `basic`.
    let mut before = 0;
    text.bytes().any(|byte| {
        let found = match byte {
            b':' | b'=' | b'-' | b'<' | b'_' | b'J' => true,
            b'.' => matches!(before, b'9' | b'G' | b's' | b'b' | b'e'),
            b'K' | b'S' | b'I' | b'B' | b'C' | b'R' => before == b'A',
            b' ' => matches!(before, b'r' | b'R' | b'c' | b'C'),
            _ => false,
        };
        before = byte;
        found
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_names_can_be_given() {
        let more = Redactor::new(["pin", "customerId"]);
        assert!(more.is_sensitive_key("user_pin") && more.is_sensitive_key("customer_id"));
        assert!(!more.is_sensitive_key("pinned"));
    }

    #[test]
    fn secrets_within_texts() {
        let redactor = Redactor::default();
        for (text, expected) in [
            ("password=hunter2 user=x", "password=*** user=x"),
            ("note: password: hunter2", "note: password: ***"),
            (
                "{'password': 'hun\\'ter2', 'n': 1}",
                "{'password': '***', 'n': 1}",
            ),
            (
                "User { id: 1, api_key: \"abc\" }",
                "User { id: 1, api_key: \"***\" }",
            ),
            (
                "User { token: Some(\"a b\"), id: 1 }",
                "User { token: ***, id: 1 }",
            ),
            ("curl --token abc --retry 3", "curl --token *** --retry 3"),
            ("curl --token=abc", "curl --token=***"),
            (
                "Authorization: Bearer abc.def\nHost: x",
                "Authorization: ***\nHost: x",
            ),
            ("Cookie: a=b; c=d\nHost: x", "Cookie: ***\nHost: x"),
            ("postgres://me:s3cret@host/db", "postgres://me:***@host/db"),
            ("key AKIAABCDEFGHIJKLMNOP.", "key ***."),
            ("eyJhbGciOi.eyJzdWIiOi.sflKxwRJ x", "*** x"),
            ("sent Bearer abcdefghij", "sent Bearer ***"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- x",
                "*** x",
            ),
            (
                "{\"body\": \"{\\\"token\\\": \\\"abc\\\"}\"}",
                "{\"body\": \"{\\\"token\\\": ***}\"}",
            ),
            (
                "token::Kind max_tokens=5 a==b",
                "token::Kind max_tokens=5 a==b",
            ),
            ("password=", "password="),
            ("http://host:8080/x?a=b", "http://host:8080/x?a=b"),
        ] {
            let redacted = redactor.redact_string(text);
            assert_eq!(redacted.replace(REDACTED, "***"), expected);
            assert_eq!(redactor.redact_string(&redacted), redacted, "twice");
        }
        assert_eq!(
            redactor.redact_args(&["login", "--password", "x y", "--retries", "3", "TOKEN=a"]),
            [
                "login",
                "--password",
                REDACTED,
                "--retries",
                "3",
                &format!("TOKEN={REDACTED}")
            ]
        );
    }

    proptest! {
        #[test]
        fn anything_may_come(text in "(?s).*|[-=:'\"\\\\ a(){}]{0,30}|password[=:].*") {
            let redactor = Redactor::default();
            let _ = redactor.redact_string(&text).into_owned();
        }

        #[test]
        fn no_quoted_secret_is_left(secret in "[a-z]{12}", key in "api_key|password|authToken|X-Api-Key") {
            prop_assume!(key != "authToken" || is_sensitive_key(&key));
            for text in [
                format!("{{'{key}': '{secret}'}}"),
                format!("x {key}={secret}, y"),
                format!("{key}: {secret}"),
                format!("--{key} {secret}"),
                format!("S {{ {key}: Some(\"{secret}\") }}"),
            ] {
                let redacted = Redactor::default().redact_string(&text).into_owned();
                prop_assert!(!redacted.contains(&secret), "{}", redacted);
            }
        }
    }
}
