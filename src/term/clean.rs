//! Text of others on its way to a terminal.
//!
//! A terminal takes orders from what it shows: it can be told to change its title, to clear itself,
//! to type for the user. So nothing that is printed has control characters, but line ends, tabs, and
//! the colours of this program.

use std::{borrow::Cow, fmt::Write as _};

/// Numbers of the styles that this program uses: none, bold, faint, italic, underlined, colours.
const STYLES: &[&str] = &["0", "1", "2", "3", "4", "31", "32", "33", "36"];

/// Removes what could take over a terminal, or show text in another order than it is in.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_harmful) {
        let (before, from) = rest.split_at(at);
        clean.push_str(before);
        let style = style(from);
        clean.push_str(style);
        let skipped = from.chars().next().map_or(0, char::len_utf8);
        rest = from.get(style.len().max(skipped)..).unwrap_or_default();
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

/// Writes the same characters of a JSON text as escapes: a script reads what was there.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_harmful) {
        return Cow::Borrowed(json);
    }
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        if is_harmful(c) {
            let _ = write!(clean, "\\u{:04x}", u32::from(c));
        } else {
            clean.push(c);
        }
    }
    Cow::Owned(clean)
}

/// Makes one line of a text.
pub fn one_line(text: &str) -> String {
    let blank = |c| if matches!(c, '\n' | '\t') { ' ' } else { c };
    clean(text).chars().map(blank).collect()
}

/// Control characters of both sets, and those that turn the direction of text.
fn is_harmful(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the sequence at the start of a text if it is one of this program's styles.
fn style(text: &str) -> &str {
    let end = text.bytes().take(LONGEST).position(|byte| byte == b'm');
    let sequence = end.and_then(|end| text.get(..=end)).unwrap_or_default();
    let numbers = sequence
        .strip_prefix("\x1b[")
        .and_then(|rest| rest.strip_suffix('m'));
    let is_ours = |numbers: &str| numbers.split(';').all(|number| STYLES.contains(&number));
    if numbers.is_some_and(is_ours) {
        sequence
    } else {
        ""
    }
}

/// Bytes of the longest sequence that sets a style.
const LONGEST: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_line_ends_tabs_and_our_styles_are_left() {
        for (text, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("größer 模型 👍🏽", "größer 模型 👍🏽"),
            ("\x1b]0;title\x07after", "]0;titleafter"),
            ("\x1b[2J\x1b[Hgone", "[2J[Hgone"),
            ("\u{9b}31mred\u{9d}0;t\u{9c}", "31mred0;t"),
            ("over\rwritten\x08", "overwritten"),
            ("\x1b[1mstrong\x1b[0m", "\x1b[1mstrong\x1b[0m"),
            ("\x1b[1;31mbad\x1b[0m", "\x1b[1;31mbad\x1b[0m"),
            ("\x1b[8mhidden\x1b[m", "[8mhidden[m"),
            ("\x1b\x1b[1m", "\x1b[1m"),
            ("a\u{202e}b\u{2066}c", "abc"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        assert_eq!(one_line("a\nb\tc\x1b"), "a b c");
        assert_eq!(clean_json("\"\u{9b}\u{202e}\""), "\"\\u009b\\u202e\"");
    }

    proptest! {
        #[test]
        fn no_order_gets_through(text in "(\\x1b|\\[|m|;|[0-9]|\\]|\\x07|\\r|\\u{9b}|[a-c]){0,40}") {
            let clean = clean(&text);
            // Cleaned once more it is the same, and every order is a style of ours.
            prop_assert_eq!(super::clean(&clean), clean.as_ref());
            for part in clean.split('\x1b').skip(1) {
                let numbers = part.strip_prefix('[').and_then(|part| part.split_once('m'));
                let (numbers, _) = numbers.unwrap();
                prop_assert!(numbers.split(';').all(|it| STYLES.contains(&it)), "{clean:?}");
            }
            let others = |c: char| c != '\x1b' && is_harmful(c);
            prop_assert!(!clean.contains(others), "{clean:?}");
        }
    }
}
