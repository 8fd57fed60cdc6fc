//! Secrets of addresses and of requests: `https://user:secret@host`, `Bearer secret`, `Basic …`.

use std::ops::Range;

/// The places of secrets before the `@` of addresses, in order.
pub(super) fn in_addresses(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(mark) = text[at..].find("://") {
        let start = at + mark + 3;
        at = start;
        let scheme = &text[..start - 3];
        let has_scheme = scheme.ends_with(|c: char| c.is_ascii_alphanumeric());
        // Longer ones are none, and many in one run must not be looked at again and again: another
        // address on the same line has its own turn.
        let rest = &text[start..text.floor_char_boundary(start + MAX_ADDRESS)];
        let rest = rest.find("://").map_or(rest, |next| &rest[..next]);
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>' | '`'))
            .unwrap_or(rest.len());
        if !has_scheme || length == 0 {
            continue;
        }
        let run = &rest[..length];
        let is_web = scheme.ends_with("http") || scheme.ends_with("https");
        if let Some(secret) = userinfo(run, is_web) {
            at = start + secret.end;
            found.push(start + secret.start..start + secret.end);
        }
    }
    found
}

/// Bytes of an address that are looked at.
const MAX_ADDRESS: usize = 4096;

/// The secret of what stands before the host.
fn userinfo(run: &str, is_web: bool) -> Option<Range<usize>> {
    // Where a text of this notation ends: 'a', or {'a': ….
    let run = ["',", "':", "')", "']", "'}"]
        .iter()
        .filter_map(|end| run.find(end))
        .min()
        .map_or(run, |end| &run[..end]);
    let authority = run.find(['/', '?', '#']).map_or(run, |end| &run[..end]);
    let (info, colon) = if let Some(end) = authority.rfind('@') {
        (&authority[..end], authority[..end].find(':'))
    } else {
        // A password may hold these characters as they are; a port is a number.
        let colon = authority.find(':')?;
        let is_port = authority[colon + 1..]
            .bytes()
            .all(|byte| byte.is_ascii_digit());
        let end = run.rfind('@').filter(|_| !is_port)?;
        (&run[..end], Some(colon))
    };
    if let Some(colon) = colon {
        return (colon + 1 < info.len()).then_some(colon + 1..info.len());
    }
    let is_token =
        info.len() >= 20 || (info.len() >= 8 && info.bytes().any(|byte| byte.is_ascii_digit()));
    (is_web && is_token && !info.contains('@')).then_some(0..info.len())
}

/// The places of what follows `Bearer` and `Basic`, in order.
pub(super) fn in_schemes(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(blank) = bytes[at..].iter().position(|byte| *byte == b' ') {
        let end = at + blank;
        at = end + 1;
        let scheme = |name: &str| {
            end.checked_sub(name.len()).is_some_and(|start| {
                bytes[start..end].eq_ignore_ascii_case(name.as_bytes())
                    && (start == 0 || !bytes[start - 1].is_ascii_alphanumeric())
            })
        };
        let (is_bearer, is_basic) = (scheme("bearer"), scheme("basic"));
        if !is_bearer && !is_basic {
            continue;
        }
        let start = end
            + bytes[end..]
                .iter()
                .take_while(|byte| **byte == b' ')
                .count();
        let length = bytes[start..]
            .iter()
            .take_while(|byte| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'-')
            })
            .count();
        let token = &text[start..start + length];
        let is_secret = if is_bearer {
            is_bearer_token(token, bytes[end - "bearer".len()] == b'B')
        } else {
            is_basic_token(token)
        };
        if is_secret {
            at = start + length;
            found.push(start..at);
        }
    }
    found
}

/// Prose speaks of bearers, too.
fn is_bearer_token(token: &str, is_proper: bool) -> bool {
    const PROSE: &[&str] = &[
        "token",
        "tokens",
        "auth",
        "authentication",
        "authorization",
        "scheme",
        "of",
        "error",
        "format",
        "header",
        "headers",
        "is",
        "was",
        "not",
        "or",
        "and",
        "key",
        "keys",
        "required",
        "missing",
        "invalid",
        "expired",
        "prefix",
        "type",
        "in",
        "for",
        "with",
        "to",
        "the",
        "a",
        "may",
        "must",
        "can",
        "only",
        "challenge",
        "credentials",
        "credential",
        "method",
        "flow",
        "security",
        "schemes",
        "value",
        "values",
        "string",
        "from",
        "on",
        "at",
    ];
    let token = token.trim_end_matches(['.', '/', '-']);
    let lower = token.to_ascii_lowercase();
    if token.is_empty() || PROSE.contains(&lower.as_str()) || lower.starts_with("realm=") {
        return false;
    }
    is_proper || token.len() >= 8 || token.bytes().any(|byte| !byte.is_ascii_alphabetic())
}

/// User and password in base64.
fn is_basic_token(token: &str) -> bool {
    let mut bits = 0_u32;
    let mut n_bits = 0;
    let mut decoded = Vec::new();
    for byte in token.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        bits = (bits << 6) | u32::from(value);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            decoded.push((bits >> n_bits) as u8);
        }
    }
    std::str::from_utf8(&decoded)
        .is_ok_and(|text| text.contains(':') && text.len() >= 3 && !text.contains(char::is_control))
}
