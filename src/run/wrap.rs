//! Word wrap of text that arrives in pieces.
//!
//! A word is held back until it ends, so that it can go to the next line whole. Code between fences
//! stays as it is. Worked example, width 10: the pieces `hello wo`, `rld again` become
//! `hello`, line end, `world`, line end, `again`.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// State between two pieces.
#[derive(Debug, Default)]
pub struct Wrapper {
    /// Columns; `None` = never wrap.
    width: Option<usize>,
    /// Column the cursor is at.
    column: usize,
    /// A word that may not be complete, with its styles.
    word: String,
    /// Its columns.
    word_width: usize,
    /// Spaces before the word.
    spaces: String,
    /// Start of the current line, as far as needed to see a fence.
    line_start: String,
    in_code: bool,
}

impl Wrapper {
    /// Wraps at `width` columns, or never.
    pub fn new(width: Option<usize>) -> Wrapper {
        Wrapper {
            width: width.filter(|width| *width >= 20),
            ..Wrapper::default()
        }
    }

    /// Takes a piece of text and returns what can be printed.
    pub fn push(&mut self, text: &str, style: Style) -> String {
        let mut out = String::new();
        let Some(width) = self.width else {
            styled(text, style, &mut out);
            return out;
        };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let is_blank = |c| matches!(c, '\n' | ' ' | '\t');
            let length = match c {
                '\n' => {
                    self.flush_word(width, &mut out);
                    out.push('\n');
                    if self.line_start.trim_start().starts_with("```") {
                        self.in_code = !self.in_code;
                    }
                    self.line_start.clear();
                    self.spaces.clear();
                    self.column = 0;
                    1
                }
                ' ' | '\t' => {
                    self.flush_word(width, &mut out);
                    self.spaces.push(c);
                    1
                }
                _ => {
                    let end = rest.find(is_blank).unwrap_or(rest.len());
                    self.word(&rest[..end], style, width, &mut out);
                    end
                }
            };
            if c != '\n' && self.line_start.len() < 40 {
                self.line_start.push_str(&rest[..length]);
            }
            rest = &rest[length..];
        }
        out
    }

    /// Takes a part of a word. Text without spaces (many scripts have none) must not wait for ever.
    fn word(&mut self, part: &str, style: Style, width: usize, out: &mut String) {
        let mut start = 0;
        for (at, c) in part.char_indices() {
            self.word_width += c.width().unwrap_or(0);
            if self.word_width >= width {
                let end = at + c.len_utf8();
                styled(&part[start..end], style, &mut self.word);
                self.flush_word(width, out);
                start = end;
            }
        }
        styled(&part[start..], style, &mut self.word);
    }

    /// Forgets what is held back.
    pub fn forget(&mut self) {
        self.word.clear();
        self.word_width = 0;
        self.spaces.clear();
    }

    /// Returns what was held back.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.flush_word(self.width.unwrap_or(usize::MAX), &mut out);
        out += &std::mem::take(&mut self.spaces);
        self.column = 0;
        self.line_start.clear();
        self.in_code = false;
        out
    }

    fn flush_word(&mut self, width: usize, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word_width);
        let spaces = self.spaces.width();
        if !self.in_code && self.column > 0 && self.column + spaces + word > width {
            out.push('\n');
            self.column = 0;
            self.spaces.clear();
        }
        self.column += self.spaces.width() + word;
        out.push_str(&self.spaces);
        out.push_str(&self.word);
        self.spaces.clear();
        self.word.clear();
    }
}

/// Appends a text with its style.
fn styled(text: &str, style: Style, out: &mut String) {
    if style.is_plain() || text.is_empty() {
        out.push_str(text);
    } else {
        let _ = write!(out, "{style}{text}{style:#}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrap(width: usize, pieces: &[&str]) -> String {
        let mut wrapper = Wrapper::new(Some(width));
        let mut out: String = pieces
            .iter()
            .map(|piece| wrapper.push(piece, Style::new()))
            .collect();
        out += &wrapper.finish();
        out
    }

    #[test]
    fn words_move_to_the_next_line_whole() {
        let text = "The quick brown fox jumps over it";
        assert_eq!(wrap(20, &[text]), "The quick brown fox\njumps over it");
        assert_eq!(
            wrap(20, &["The quick bro", "wn fox ju", "mps over it"]),
            wrap(20, &[text])
        );
        assert_eq!(wrap(20, &["a  b\n\n  c "]), "a  b\n\n  c ");
    }

    #[test]
    fn code_is_left_alone() {
        let text =
            "```\na line of code that is longer than the width\n```\nthese words are wrapped again";
        assert_eq!(
            wrap(20, &[text]),
            "```\na line of code that is longer than the width\n```\nthese words are\nwrapped again"
        );
    }

    proptest! {
        #[test]
        fn only_spaces_change_and_cuts_do_not_matter(text in "([a-z]{1,30}|[ \n`]{1,3}|[äö模]{1,3}){0,20}", cut in 0_usize..100) {
            let whole = wrap(24, &[&text]);
            let cut = text.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(text.len());
            prop_assert_eq!(&wrap(24, &[&text[..cut], &text[cut..]]), &whole);
            let dense = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(dense(&whole), dense(&text));
        }

        #[test]
        fn lines_of_short_words_fit(text in "([a-z]{1,9} ){0,30}") {
            prop_assert!(wrap(24, &[&text]).lines().all(|line| line.trim_end().len() <= 24));
        }
    }
}
