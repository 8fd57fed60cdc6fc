//! Values within texts that stand beside the name of a secret: `key=value`, `key: value`,
//! `--key value`, `<key>value</key>`.

use std::ops::Range;

use super::{
    REDACTED, Redactor,
    names::{MAX_NAME, is_secret_parameter, may_be_count, takes_line},
};

/// A name and what stands beside it.
struct Pair<'a> {
    name: &'a str,
    /// Where the value starts.
    value: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Option,
    Named,
    /// In the query of an address.
    Parameter,
    Element,
}

/// The places of secrets that stand beside their names, in order.
pub(super) fn find(redactor: &Redactor, text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    // `name="password" value="…"`: the value of what was named there.
    let mut named_until = 0;
    let mut at = 0;
    while let Some(mark) = bytes[at..]
        .iter()
        .position(|byte| matches!(byte, b':' | b'=' | b'-' | b'<'))
    {
        let mark = at + mark;
        at = mark + 1;
        let Some(pair) = pair_at(text, mark) else {
            continue;
        };
        let is_named = mark < named_until && pair.name.eq_ignore_ascii_case("value");
        let is_secret =
            is_named || redactor.is_sensitive_key(pair.name) || is_secret_by_value(text, &pair);
        if !is_secret {
            if matches!(
                pair.name,
                "name" | "key" | "Name" | "Key" | "header" | "field"
            ) {
                // A name is short; what is not closed ends somewhere.
                let rest = text.floor_char_boundary(pair.value + 2 * MAX_NAME);
                let end = value_end(&text[..rest], pair.value, pair.name, pair.kind);
                let value = text[pair.value..end].trim_matches(['"', '\'', '\\']);
                if redactor.is_sensitive_key(value) {
                    named_until = end + 64;
                }
            }
            continue;
        }
        let end = value_end(text, pair.value, pair.name, pair.kind);
        if end <= pair.value || found.last().is_some_and(|last| pair.value < last.end) {
            continue;
        }
        let place = inside_quotes(text, pair.value, end);
        if is_no_secret(&text[place.clone()], pair.name) {
            continue;
        }
        at = at.max(place.end);
        found.push(place);
    }
    found
}

/// True for names that are those of a secret only beside some values: `tokens: abcd1234`, `?key=…`.
fn is_secret_by_value(text: &str, pair: &Pair<'_>) -> bool {
    let is_parameter = pair.kind == Kind::Parameter && is_secret_parameter(pair.name);
    if !is_parameter && !pair.name.eq_ignore_ascii_case("tokens") {
        return false;
    }
    let rest = &text.as_bytes()[pair.value..];
    let word = rest
        .iter()
        .skip_while(|byte| matches!(byte, b'"' | b'\'' | b'\\'))
        .take_while(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%' | b'+' | b'/' | b'=')
        });
    let (n, n_digits, n_letters) = word.take(64).fold((0, 0, 0), |(n, digits, letters), byte| {
        (
            n + 1,
            digits + usize::from(byte.is_ascii_digit()),
            letters + usize::from(byte.is_ascii_alphabetic()),
        )
    });
    n >= 8 && n_letters > 0 && (n_digits > 0 || n >= 20)
}

/// What programs write where a secret could be, but is none.
fn is_no_secret(value: &str, name: &str) -> bool {
    const NONE: &[&str] = &[
        "none",
        "null",
        "nil",
        "undefined",
        "true",
        "false",
        "str",
        "string",
        "&str",
        "bytes",
        "int",
        "bool",
        "option<string>",
        "...",
    ];
    if value.len() > MAX_NAME {
        return false;
    }
    let value = value.trim();
    // A line of a file: `token.rs:12`.
    let is_line = value.starts_with(|c: char| c.is_ascii_digit())
        && name
            .rsplit_once('.')
            .is_some_and(|(_, ending)| SOURCES.contains(&ending));
    if is_line {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let place = lower.trim_start_matches("some(");
    value.is_empty()
        || value.starts_with(REDACTED)
        || NONE.contains(&lower.as_str())
        || value.bytes().all(|byte| matches!(byte, b'*' | b'.' | b'-'))
        // A value that is taken from elsewhere: `password=password`, `token=self.token`.
        || value == name
        || ["self.", "args.", "config.", "settings.", "os.", "env.", "process.env."]
            .iter()
            .any(|start| place.starts_with(start))
        || value.starts_with("${")
        || (value.starts_with('{') && value.ends_with('}') && !value.contains([':', ' ', '"', '\'']))
        || value == "%s"
        || (may_be_count(name)
            && value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',')))
        || (name.to_ascii_lowercase().ends_with("pwd") && value.starts_with(['/', '~']))
}

fn is_name(byte: u8) -> bool {
    // Letters of other scripts, too.
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 0x80
}

/// The name beside the mark at `mark`, and where its value starts.
fn pair_at(text: &str, mark: usize) -> Option<Pair<'_>> {
    let bytes = text.as_bytes();
    match bytes[mark] {
        b'-' => option_at(text, mark),
        b'<' => element_at(text, mark),
        mark_byte => {
            // `path::of::something` is no pair, nor is `==`.
            let next = bytes.get(mark + 1).copied();
            let before = mark.checked_sub(1).map(|at| bytes[at]);
            if next == Some(mark_byte) || before == Some(mark_byte) {
                return None;
            }
            // `!=`, `<=` and the second half of `:=`
            if mark_byte == b'=' && matches!(before, Some(b'!' | b'<' | b'>' | b':')) {
                return None;
            }
            let arrow = match (mark_byte, next) {
                (b'=', Some(b'>')) | (b':', Some(b'=')) => 1,
                _ => 0,
            };
            let mut end = mark;
            if end > 0 && bytes[end - 1] == b' ' {
                end -= 1;
            }
            while end > 0
                && mark - end < MAX_ESCAPES
                && matches!(bytes[end - 1], b'"' | b'\'' | b'\\' | b']')
            {
                end -= 1;
            }
            let length = bytes[..end]
                .iter()
                .rev()
                .take(MAX_NAME)
                .take_while(|byte| is_name(**byte))
                .count();
            let start = text.ceil_char_boundary(end - length);
            let kind = match start.checked_sub(1).map(|at| bytes[at]) {
                Some(b'?' | b'&') if mark_byte == b'=' => Kind::Parameter,
                _ => Kind::Named,
            };
            (start < end).then(|| Pair {
                name: &text[start..end],
                value: value_start(text, mark + 1 + arrow),
                kind,
            })
        }
    }
}

/// `--key value`; with `=` the other mark finds it.
fn option_at(text: &str, mark: usize) -> Option<Pair<'_>> {
    let bytes = text.as_bytes();
    if bytes.get(mark + 1) != Some(&b'-') {
        return None;
    }
    let start = mark + 2;
    let length = bytes[start..]
        .iter()
        .take(MAX_NAME)
        .take_while(|byte| is_name(**byte))
        .count();
    let end = text.floor_char_boundary(start + length);
    // In a list of arguments the name and the value have quotes of their own.
    let rest = &text[end..];
    let n_blanks = rest.len() - rest.trim_start_matches(' ').len();
    let gap = if n_blanks > 0 {
        n_blanks
    } else {
        let gaps = ["', '", "\", \"", "','", "\",\""];
        gaps.iter().find(|gap| rest.starts_with(**gap))?.len() - 1
    };
    let value = end + gap;
    let first = rest[gap..].trim_start_matches(['\'', '"']).bytes().next();
    let is_value = !matches!(first, None | Some(b'-'));
    (start < end && is_value).then(|| Pair {
        name: &text[start..end],
        value,
        kind: Kind::Option,
    })
}

/// `<key>value</key>`
fn element_at(text: &str, mark: usize) -> Option<Pair<'_>> {
    let bytes = text.as_bytes();
    let start = mark + 1;
    let rest = bytes.get(start..)?;
    let length = rest
        .iter()
        .take(MAX_NAME)
        .take_while(|byte| is_name(**byte) || **byte == b':')
        .count();
    let name_end = text.floor_char_boundary(start + length);
    let closes = bytes[name_end..]
        .iter()
        .take(MAX_TAG)
        .position(|byte| matches!(byte, b'>' | b'<'))?;
    let end = name_end + closes;
    if length == 0 || bytes[end] != b'>' || bytes[end - 1] == b'/' {
        return None;
    }
    let name = &text[start..name_end];
    let name = name.rsplit(':').next().unwrap_or(name);
    // Types have parameters that look like elements; they are not closed.
    let value = end + 1;
    let is_closed = bytes[value..]
        .iter()
        .position(|byte| *byte == b'<')
        .is_some_and(|at| {
            bytes[value + at..].starts_with(b"</") || bytes[value + at..].starts_with(b"<!")
        });
    is_closed.then_some(Pair {
        name,
        value,
        kind: Kind::Element,
    })
}

/// Where a value starts after its mark: on the same line, or alone on the next one.
fn value_start(text: &str, after: usize) -> usize {
    let bytes = text.as_bytes();
    let blanks = |from: usize| {
        let rest = &bytes[from..];
        from + rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count()
    };
    let start = blanks(after);
    // The break of a line, as it is or within a text.
    let next = match &bytes[start..] {
        [b'|' | b'>' | b'\r', b'\n', ..] | [b'\\', b'n', ..] => start + 2,
        [b'\n', ..] => start + 1,
        _ => return start,
    };
    let next = blanks(next);
    let line = &text[next..];
    let line = &line[..line.find(['\n', '\r']).unwrap_or(line.len())];
    let line = line.split("\\n").next().unwrap_or_default().trim_end();
    let is_alone = !line.is_empty()
        && !line.contains(char::is_whitespace)
        && !line.ends_with([':', ')', '}', ']', '{', '[', '(', '>'])
        && line.find(['=', ':']).is_none_or(|at| at + 2 >= line.len());
    if is_alone { next } else { start }
}

/// Where the value that starts at `start` ends.
fn value_end(text: &str, start: usize, name: &str, kind: Kind) -> usize {
    let bytes = text.as_bytes();
    if kind == Kind::Element {
        let rest = &bytes[start..];
        return start
            + rest
                .iter()
                .position(|byte| *byte == b'<')
                .unwrap_or(rest.len());
    }
    if kind == Kind::Parameter {
        let is_end = |byte: &u8| {
            matches!(
                byte,
                b'&' | b' '
                    | b'"'
                    | b'\''
                    | b'#'
                    | b'\n'
                    | b'\r'
                    | b'<'
                    | b'>'
                    | b')'
                    | b']'
                    | b'}'
                    | b','
            )
        };
        let rest = &bytes[start..];
        return start + rest.iter().position(is_end).unwrap_or(rest.len());
    }
    if let Some(end) = quoted_end(bytes, start) {
        return end;
    }
    let whole_line = takes_line(name);
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\n' | b'\r' => break,
            // The end of a line within a text.
            b'\\' if matches!(bytes.get(at + 1), Some(b'n' | b'r')) => break,
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
fn inside_quotes(text: &str, start: usize, end: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let quoted =
        end - start >= 2 && matches!(bytes[start], b'"' | b'\'') && bytes[end - 1] == bytes[start];
    if quoted {
        start + 1..end - 1
    } else {
        start..end
    }
}

/// The places of passwords among the options of commands: `curl -u name:secret`, `mysql -pSECRET`.
pub(super) fn in_options(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    if !text.contains("-u") && !text.contains("-p") && !text.contains("-U") {
        return found;
    }
    let programs = Programs::in_text(text);
    let mut at = 0;
    let mut user_follows = false;
    let is_blank =
        |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ',' | '(' | ')' | '[' | ']');
    for word in text.split(is_blank) {
        let start = at;
        at += word.len()
            + text[start + word.len()..]
                .chars()
                .next()
                .map_or(0, char::len_utf8);
        if word.is_empty() {
            continue;
        }
        if let Some(secret) = in_option(word, user_follows, programs) {
            found.push(start + secret.start..start + secret.end);
        }
        user_follows = takes_user(word);
    }
    found
}

/// Programs whose options are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Programs {
    mysql: bool,
    curl: bool,
}

impl Programs {
    pub(super) fn in_text(text: &str) -> Programs {
        let holds = |names: &[&str]| names.iter().any(|name| text.contains(name));
        Programs {
            mysql: holds(&["mysql", "mariadb", "sshpass"]),
            curl: holds(&["curl"]),
        }
    }

    pub(super) fn and(self, other: Programs) -> Programs {
        Programs {
            mysql: self.mysql || other.mysql,
            curl: self.curl || other.curl,
        }
    }
}

/// True for options that take `name:secret`.
pub(super) fn takes_user(word: &str) -> bool {
    matches!(word, "-u" | "-U" | "--user" | "--proxy-user")
}

/// The secret of one word of a command.
pub(super) fn in_option(
    word: &str,
    user_follows: bool,
    programs: Programs,
) -> Option<Range<usize>> {
    let joined = word.strip_prefix("-u").filter(|_| programs.curl);
    let user = match joined.or_else(|| word.strip_prefix("--user=")) {
        _ if user_follows => Some(word),
        other => other,
    };
    if let Some((name, secret)) = user.and_then(|user| user.split_once(':')) {
        // Numbers are ids of users and groups, and a path is none.
        let is_secret = !secret.is_empty()
            && !name.is_empty()
            && !(name
                .bytes()
                .chain(secret.bytes())
                .all(|byte| byte.is_ascii_digit()))
            && !secret.starts_with("//");
        return is_secret.then_some(word.len() - secret.len()..word.len());
    }
    let secret = word.strip_prefix("-p").filter(|_| programs.mysql)?;
    (!secret.is_empty()).then_some(2..word.len())
}

/// What the names of files with programs end with.
const SOURCES: &[&str] = &[
    "c", "cc", "cpp", "cs", "dart", "ex", "go", "h", "hpp", "java", "js", "jsx", "kt", "lua",
    "mjs", "php", "pl", "py", "rb", "rs", "scala", "sh", "sql", "swift", "ts", "tsx", "vue", "zig",
];
/// Quotes of texts within texts within texts.
const MAX_ESCAPES: usize = 64;
/// Attributes of an element.
const MAX_TAG: usize = 256;
