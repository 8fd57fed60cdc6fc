//! Blanks secrets before they reach any queue: by the name of what holds them, and by their form.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock, OnceLock},
};

use regex::Regex;
use serde_json::Value;

use crate::{Entry, Text};

/// What stands in place of a secret.
pub const REDACTED: &str = "***REDACTED***";

/// Finds secrets.
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

    /// The built-in rules.
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

    /// Arguments of a command line: `--token x`, `--token=x`, `TOKEN=x` and secrets within texts.
    pub fn redact_args<S: AsRef<str>>(&self, args: &[S]) -> Vec<String> {
        let mut after_key = false;
        args.iter()
            .map(|arg| {
                let arg = arg.as_ref();
                let is_key = arg.starts_with('-')
                    && !arg.contains(['=', ' '])
                    && self.is_sensitive_key(arg.trim_start_matches('-'));
                let is_value = std::mem::replace(&mut after_key, is_key);
                if is_value && !is_key {
                    REDACTED.to_owned()
                } else {
                    self.redact_string(arg).into_owned()
                }
            })
            .collect()
    }

    /// Blanks secrets within a text: `key=value`, `key: value`, `--key value`, credentials in
    /// addresses, access keys, private keys, signed tokens.
    pub fn redact_string<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !may_hold_secret(text) {
            return Cow::Borrowed(text);
        }
        let mut text = Cow::Borrowed(text);
        for form in FORMS.iter() {
            if !text.contains(form.hint) {
                continue;
            }
            if let Cow::Owned(scrubbed) = form.regex.replace_all(&text, form.replace) {
                text = Cow::Owned(scrubbed);
            }
        }
        match self.redact_pairs(&text) {
            Some(scrubbed) => Cow::Owned(scrubbed),
            None => text,
        }
    }

    /// Blanks a JSON value: keys to depth 4, texts everywhere.
    pub fn redact_json(&self, value: &mut Value) {
        self.redact_json_at(value, 0);
    }

    /// Blanks all texts of an entry that come from the program.
    pub fn redact_entry(&self, entry: &mut Entry) {
        for text in [
            &mut entry.args,
            &mut entry.kwargs,
            &mut entry.return_value,
            &mut entry.exception,
            &mut entry.traceback,
        ] {
            self.redact_text(text);
        }
        for (key, value) in &mut entry.extra {
            if self.is_sensitive_key(key) {
                *value = REDACTED.into();
            } else {
                self.redact_json_at(value, 1);
            }
        }
    }

    pub(crate) fn redact_text(&self, text: &mut Text) {
        if let Cow::Owned(redacted) = self.redact_string(text) {
            *text = redacted.into();
        }
    }

    fn redact_json_at(&self, value: &mut Value, depth: usize) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact_string(text) {
                    *text = redacted;
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.redact_json_at(value, depth + 1);
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    if depth < MAX_DEPTH && self.is_sensitive_key(key) {
                        *value = REDACTED.into();
                    } else {
                        self.redact_json_at(value, depth + 1);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Blanks what follows the name of a secret; `None` if there is none.
    fn redact_pairs(&self, text: &str) -> Option<String> {
        let bytes = text.as_bytes();
        let mut out: Option<String> = None;
        let mut copied = 0;
        let mut at = 0;
        while let Some(found) = bytes[at..]
            .iter()
            .position(|byte| matches!(byte, b':' | b'=' | b'-'))
        {
            let mark = at + found;
            at = mark + 1;
            let Some((key, value)) = pair_at(text, mark) else {
                continue;
            };
            if !self.is_sensitive_key(key) {
                continue;
            }
            let end = value_end(text, value, key);
            if end > value && end > copied && value >= copied && &text[value..end] != REDACTED {
                let (value, end) = inside_quotes(text, value, end);
                let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
                out.push_str(&text[copied..value]);
                out.push_str(REDACTED);
                copied = end;
                at = at.max(end);
            }
        }
        out.map(|mut out| {
            out.push_str(&text[copied..]);
            out
        })
    }
}

/// True if what has that name is a secret, by the built-in rules.
pub fn is_sensitive_key(name: &str) -> bool {
    may_be_secret(name) && is_secret(&segments(name))
}

/// False for most names that are none of a secret, without an allocation.
fn may_be_secret(name: &str) -> bool {
    // Other letters may have these as their lower case.
    !name.is_ascii()
        || (0..name.len()).any(|at| {
            let rest = &name.as_bytes()[at..];
            PARTS.iter().any(|part| {
                rest.len() >= part.len() && rest[..part.len()].eq_ignore_ascii_case(part)
            })
        })
}

/// How deep names of nested values are looked at.
const MAX_DEPTH: usize = 4;
/// A name is not longer than that.
const MAX_NAME: usize = 64;

/// A segment that makes a name secret.
const SECRET: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "credential",
    "credentials",
    "cookie",
];
/// Two neighbours that make a name secret.
const SECRET_PAIRS: &[(&str, &str)] = &[
    ("api", "key"),
    ("private", "key"),
    ("access", "key"),
    ("secret", "key"),
    ("session", "id"),
    ("auth", "header"),
];
/// Whatever is secret holds one of these.
const PARTS: [&[u8]; 9] = [
    b"pass", b"pwd", b"secret", b"token", b"key", b"auth", b"cred", b"cookie", b"session",
];
/// Names that are secret as a whole.
const SECRET_NAMES: &[&str] = &["pass", "auth"];

struct Form {
    /// Compiled when a text has the hint: programs that end soon need none.
    regex: LazyLock<Regex, Box<dyn FnOnce() -> Regex + Send>>,
    /// Without that text there is no match.
    hint: &'static str,
    replace: &'static str,
}

/// Secrets that show by their form. The engine's time is linear in the text.
#[expect(
    clippy::expect_used,
    reason = "the patterns are constants; a test compiles them"
)]
static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    [
        (
            "PRIVATE KEY",
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
            REDACTED,
        ),
        (
            "://",
            r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\x22]*):[^\s/'\x22]+@",
            "$1:***REDACTED***@",
        ),
        ("AKIA", r"\bAKIA[0-9A-Z]{16}\b", REDACTED),
        (
            "eyJ",
            r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*",
            REDACTED,
        ),
        (
            "earer ",
            r"\b([Bb]earer) [A-Za-z0-9._~+/=-]{8,}",
            "$1 ***REDACTED***",
        ),
    ]
    .into_iter()
    .map(|(hint, pattern, replace)| Form {
        regex: LazyLock::new(Box::new(move || {
            Regex::new(pattern).expect("a pattern of ours")
        })),
        hint,
        replace,
    })
    .collect()
});

/// False if no rule can match; most values are short and plain.
fn may_hold_secret(text: &str) -> bool {
    // Marks of pairs and addresses; letters of `AKIA`, `eyJ` and `KEY`; the blank of `bearer x`.
    let mut before = 0;
    text.bytes().any(|byte| {
        let found =
            matches!(byte, b':' | b'=' | b'-' | b'K' | b'J') || (byte == b' ' && before == b'r');
        before = byte;
        found
    })
}

/// Splits a name at `_`, `-`, `.` and changes of case; lower case.
fn segments(name: &str) -> Vec<String> {
    let mut segments = Vec::new();
    let mut segment = String::new();
    let chars: Vec<char> = name.trim().chars().take(MAX_NAME).collect();
    for (idx, &c) in chars.iter().enumerate() {
        let is_separator = !c.is_alphanumeric();
        let before = idx.checked_sub(1).map(|idx| chars[idx]);
        let after = chars.get(idx + 1);
        let starts_word = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if (is_separator || starts_word) && !segment.is_empty() {
            segments.push(std::mem::take(&mut segment));
        }
        if !is_separator {
            segment.extend(c.to_lowercase());
        }
    }
    if !segment.is_empty() {
        segments.push(segment);
    }
    segments
}

fn is_secret(segments: &[String]) -> bool {
    segments
        .iter()
        .any(|segment| SECRET.contains(&segment.as_str()))
        || segments
            .windows(2)
            .any(|pair| SECRET_PAIRS.contains(&(pair[0].as_str(), pair[1].as_str())))
        || matches!(segments, [name] if SECRET_NAMES.contains(&name.as_str()))
}

/// The name before the mark at `mark`, and where its value starts.
fn pair_at(text: &str, mark: usize) -> Option<(&str, usize)> {
    let bytes = text.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if bytes[mark] == b'-' {
        // `--key value`; with `=` the other mark finds it.
        if bytes.get(mark + 1) != Some(&b'-') {
            return None;
        }
        let start = mark + 2;
        let length = bytes[start..]
            .iter()
            .take(MAX_NAME)
            .take_while(|byte| is_name(**byte))
            .count();
        let end = start + length;
        let n_blanks = bytes[end..]
            .iter()
            .take_while(|byte| **byte == b' ')
            .count();
        let value = end + n_blanks;
        let follows = n_blanks > 0 && !matches!(bytes.get(value), None | Some(b'-'));
        return (length > 0 && follows).then(|| (&text[start..end], value));
    }
    // `path::of::something` is no pair, nor is `==`.
    let mark_byte = bytes[mark];
    if bytes.get(mark + 1) == Some(&mark_byte) || (mark > 0 && bytes[mark - 1] == mark_byte) {
        return None;
    }
    let mut end = mark;
    for skipped in [&b" "[..], b"\"'", b"\\"] {
        if end > 0 && skipped.contains(&bytes[end - 1]) {
            end -= 1;
        }
    }
    let length = bytes[..end]
        .iter()
        .rev()
        .take(MAX_NAME)
        .take_while(|byte| is_name(**byte))
        .count();
    let n_blanks = bytes[mark + 1..]
        .iter()
        .take_while(|byte| **byte == b' ')
        .count();
    (length > 0).then(|| (&text[end - length..end], mark + 1 + n_blanks))
}

/// Where the value that starts at `start` ends.
fn value_end(text: &str, start: usize, key: &str) -> usize {
    let bytes = text.as_bytes();
    let whole_line = {
        let last = segments(key).pop();
        matches!(last.as_deref(), Some("cookie" | "authorization"))
    };
    if let Some(end) = quoted_end(bytes, start) {
        return end;
    }
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\n' | b'\r' => break,
            b'"' | b'\'' if depth == 0 && at > start => break,
            b'"' | b'\'' => {
                at = quoted_end(bytes, at).unwrap_or(bytes.len());
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            b' ' | b'\t' | b',' | b';' | b'&' if depth == 0 && !whole_line => break,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Where the quoted text at `start` ends, its closing quote included. Quotes may themselves be
/// escaped, as in a text within a text.
fn quoted_end(bytes: &[u8], start: usize) -> Option<usize> {
    let n_escapes = bytes
        .get(start..)?
        .iter()
        .take_while(|byte| **byte == b'\\')
        .count();
    let open = start + n_escapes;
    let quote = *bytes
        .get(open)
        .filter(|byte| matches!(byte, b'"' | b'\''))?;
    let mut at = open + 1;
    let mut escapes = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte == quote && escapes == n_escapes {
            return Some(at);
        }
        escapes = if byte == b'\\' && (escapes < n_escapes || n_escapes == 0) {
            escapes + 1
        } else {
            0
        };
        if n_escapes == 0 && escapes == 1 {
            // The escaped character is no end.
            at += 1;
            escapes = 0;
        }
    }
    Some(bytes.len())
}

/// Keeps the quotes around a blanked value.
fn inside_quotes(text: &str, start: usize, end: usize) -> (usize, usize) {
    let bytes = text.as_bytes();
    let quoted =
        end - start >= 2 && matches!(bytes[start], b'"' | b'\'') && bytes[end - 1] == bytes[start];
    if quoted {
        (start + 1, end - 1)
    } else {
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_rule_is_lost_to_the_quick_look() {
        let pairs = SECRET_PAIRS.iter().map(|(a, b)| format!("{a}_{b}"));
        let names = SECRET
            .iter()
            .chain(SECRET_NAMES)
            .map(|name| (*name).to_owned());
        for name in pairs.chain(names) {
            assert!(is_sensitive_key(&name), "{name}");
            assert!(is_sensitive_key(&name.to_uppercase()), "{name}");
        }
    }

    #[test]
    fn names_of_secrets() {
        for name in [
            "user_token",
            "apiKey",
            "DB_PASSWORD",
            "password",
            "X-API-Key",
            "APIKey",
            "sessionId",
            "aws.secret",
            "pass",
            "auth",
            "privateKey",
            "Set-Cookie",
            "client_secret",
        ] {
            assert!(is_sensitive_key(name), "{name}");
        }
        for name in [
            "max_tokens",
            "tokenizer",
            "author",
            "passenger",
            "session_count",
            "key",
            "bypass_auth",
            "passed",
            "",
            "keys",
        ] {
            assert!(!is_sensitive_key(name), "{name}");
        }
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
