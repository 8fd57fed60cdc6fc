//! Markdown on its way to a terminal, piece by piece.
//!
//! Markers become styles: a heading and `**this**` are bold, `*this*` is italic, `` `this` `` has a
//! colour. Fences stay where they are, faint, and the code between them is coloured. What is not
//! surely a marker stays text, so nothing that was said is lost. A line is printed as it comes; only
//! what may still turn out to be marked is held back, up to [`HELD`] bytes.

use anstyle::{AnsiColor, Style};

use crate::{run::highlight::Language, term::FAINT};

/// A text, and how it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Without control sequences of its own.
    pub text: String,
    /// Its style.
    pub style: Style,
}

/// Longest text that waits for its end, in bytes.
const HELD: usize = 4096;
const CODE: Style = AnsiColor::Cyan.on_default();

/// State between two pieces.
#[derive(Debug)]
pub struct Markdown {
    held: String,
    at_line_start: bool,
    fence: Option<Fence>,
    /// Style of the line, outside of marked words.
    line: Style,
    /// The line is no Markdown: a table, whose columns would move.
    is_raw: bool,
    /// What stands before `held` in its line.
    before: Option<char>,
}

/// The opening line of a block of code.
#[derive(Debug)]
struct Fence {
    marker: char,
    length: usize,
    language: Language,
}

impl Markdown {
    /// Starts a text.
    pub fn new() -> Markdown {
        Markdown {
            held: String::new(),
            at_line_start: true,
            fence: None,
            line: Style::new(),
            is_raw: false,
            before: None,
        }
    }

    /// Takes a piece and returns what can be printed.
    pub fn push(&mut self, text: &str) -> Vec<Span> {
        self.held += text;
        self.take(false)
    }

    /// Returns what was held back.
    pub fn finish(&mut self) -> Vec<Span> {
        let spans = self.take(true);
        *self = Markdown::new();
        spans
    }

    /// Forgets what is held back.
    pub fn forget(&mut self) {
        *self = Markdown::new();
    }

    fn take(&mut self, is_end: bool) -> Vec<Span> {
        let mut spans = Vec::new();
        while !self.held.is_empty() {
            let is_end = is_end || self.held.len() > HELD;
            let went_on = if self.at_line_start {
                self.begin(is_end, &mut spans)
            } else {
                self.go_on(is_end, &mut spans)
            };
            if !went_on {
                break;
            }
        }
        spans
    }

    /// Finds out what the line is that begins here. Tells whether that could be said.
    fn begin(&mut self, is_end: bool, spans: &mut Vec<Span>) -> bool {
        if let Some(fence) = &self.fence {
            let Some(line) = whole_line(&self.held, is_end) else {
                return false;
            };
            if fence.closes(line) {
                spans.push(faint(line));
                self.fence = None;
            } else {
                spans.extend(fence.language.line(line));
            }
            self.held.drain(..line.len());
            return true;
        }
        let text = self.held.trim_start_matches(' ');
        let indent = self.held.len() - text.len();
        let Some(first) = text.chars().next() else {
            return is_end && self.as_text(is_end, spans);
        };
        let run = text.chars().take_while(|c| *c == first).count();
        let after = text.chars().nth(run);
        // The line may go on with more of the same.
        let is_open = after.is_none() && !is_end;
        match first {
            '`' | '~' | '#' | '-' | '*' | '+' if is_open => false,
            '`' | '~' if run >= 3 => {
                let Some(line) = whole_line(&self.held, is_end) else {
                    return false;
                };
                self.fence = Some(Fence {
                    marker: first,
                    length: run,
                    language: Language::named(line.trim().trim_start_matches(first)),
                });
                spans.push(faint(line));
                self.held.drain(..line.len());
                true
            }
            '#' if run <= 6 && after == Some(' ') => {
                self.held.drain(..=indent + run);
                self.line = Style::new().bold();
                self.at_line_start = false;
                true
            }
            '>' => {
                let n_blanks = usize::from(text[1..].starts_with(' '));
                if text.len() == 1 && !is_end {
                    return false;
                }
                spans.push(faint(&format!("{}│ ", &self.held[..indent])));
                self.held.drain(..indent + 1 + n_blanks);
                true
            }
            '-' | '*' if run >= 3 && after == Some('\n') => {
                let line = self.held[..=indent + run].to_owned();
                spans.push(faint(&line));
                self.held.drain(..line.len());
                true
            }
            '-' | '*' | '+' if run == 1 && after == Some(' ') => {
                spans.push(plain(&format!("{}• ", &self.held[..indent])));
                self.held.drain(..indent + 2);
                self.at_line_start = false;
                self.before = Some(' ');
                true
            }
            '|' => {
                self.is_raw = true;
                self.as_text(is_end, spans)
            }
            _ => self.as_text(is_end, spans),
        }
    }

    fn as_text(&mut self, is_end: bool, spans: &mut Vec<Span>) -> bool {
        self.at_line_start = false;
        self.go_on(is_end, spans)
    }

    /// Goes on with a line. Tells whether there was anything that could be printed.
    fn go_on(&mut self, is_end: bool, spans: &mut Vec<Span>) -> bool {
        let line_end = self.held.find('\n');
        let text = &self.held[..line_end.unwrap_or(self.held.len())];
        let is_whole = line_end.is_some() || is_end;
        let n_taken = if self.is_raw {
            spans.push(plain(text));
            text.len()
        } else {
            inline(text, self.line, self.before, is_whole, spans)
        };
        self.before = text[..n_taken].chars().next_back().or(self.before);
        if n_taken < text.len() || line_end.is_none() {
            self.held.drain(..n_taken);
            return n_taken > 0;
        }
        spans.push(plain("\n"));
        self.held.drain(..=n_taken);
        self.at_line_start = true;
        self.line = Style::new();
        self.is_raw = false;
        self.before = None;
        true
    }
}

impl Fence {
    fn closes(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.marker)
    }
}

/// Returns the first line with its end; without one only at the end of the text.
fn whole_line(text: &str, is_end: bool) -> Option<&str> {
    match text.find('\n') {
        Some(at) => Some(&text[..=at]),
        None => is_end.then_some(text),
    }
}

/// Appends the spans of a line, or of the part of one; returns the bytes that are done with. What is
/// left may be marked by what comes, unless the line is whole.
fn inline(
    text: &str,
    style: Style,
    before: Option<char>,
    is_whole: bool,
    spans: &mut Vec<Span>,
) -> usize {
    let mut done = 0;
    let mut before = before;
    while done < text.len() {
        let rest = &text[done..];
        let at = rest.find(['`', '*', '_', '\\']).unwrap_or(rest.len());
        if at > 0 {
            push(spans, &rest[..at], style);
            before = rest[..at].chars().next_back();
            done += at;
            continue;
        }
        let Some(found) = marked(rest, before, is_whole) else {
            return done;
        };
        match found {
            Found::Text(length) => push(spans, &rest[..length], style),
            Found::Escaped(length) => push(spans, &rest[1..length], style),
            Found::Code { run, length } => {
                let inner = &rest[run..length - run];
                let trimmed = inner
                    .strip_prefix(' ')
                    .and_then(|inner| inner.strip_suffix(' '));
                push(spans, trimmed.unwrap_or(inner), CODE);
            }
            Found::Strong { run, length } => {
                let style = match run {
                    1 => style.italic(),
                    2 => style.bold(),
                    _ => style.bold().italic(),
                };
                inline(&rest[run..length - run], style, None, true, spans);
            }
        }
        let length = found.length();
        before = rest[..length].chars().next_back();
        done += length;
    }
    done
}

/// What a text begins with, in bytes with the markers.
#[derive(Clone, Copy)]
enum Found {
    /// Nothing that is marked.
    Text(usize),
    /// A backslash and what it keeps from being a marker.
    Escaped(usize),
    Code {
        run: usize,
        length: usize,
    },
    Strong {
        run: usize,
        length: usize,
    },
}

impl Found {
    fn length(self) -> usize {
        match self {
            Found::Text(length)
            | Found::Escaped(length)
            | Found::Code { length, .. }
            | Found::Strong { length, .. } => length,
        }
    }
}

/// Reads the marker that a text begins with; nothing while that cannot be said.
fn marked(text: &str, before: Option<char>, is_whole: bool) -> Option<Found> {
    let marker = text.chars().next()?;
    if marker == '\\' {
        return match text[1..].chars().next() {
            Some('*' | '_' | '`' | '#') => Some(Found::Escaped(2)),
            None if !is_whole => None,
            _ => Some(Found::Text(1)),
        };
    }
    let run = text.chars().take_while(|c| *c == marker).count();
    let Some(next) = text[run..].chars().next() else {
        return is_whole.then_some(Found::Text(run));
    };
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    if marker != '`' && (run > 3 || next.is_whitespace() || is_word(before)) {
        return Some(Found::Text(run));
    }
    let mut from = run;
    while let Some(at) = text[from..].find(marker) {
        let start = from + at;
        let length = text[start..].chars().take_while(|c| *c == marker).count();
        let end = start + length;
        let (left, right) = (&text[..start], text[end..].chars().next());
        // More of the same may come.
        if right.is_none() && !is_whole {
            return None;
        }
        if marker == '`' && length == run {
            return Some(Found::Code { run, length: end });
        }
        let ends_word = !left.ends_with(char::is_whitespace) && !is_word(right);
        if marker != '`' && length >= run && ends_word {
            let length = start + run;
            return Some(Found::Strong { run, length });
        }
        from = end;
    }
    is_whole.then_some(Found::Text(run))
}

fn push(spans: &mut Vec<Span>, text: &str, style: Style) {
    if !text.is_empty() {
        let text = text.to_owned();
        spans.push(Span { text, style });
    }
}

fn plain(text: &str) -> Span {
    Span {
        text: text.to_owned(),
        style: Style::new(),
    }
}

fn faint(text: &str) -> Span {
    Span {
        text: text.to_owned(),
        style: FAINT,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &[&str]) -> Vec<Span> {
        let mut markdown = Markdown::new();
        let mut spans: Vec<Span> = pieces
            .iter()
            .flat_map(|piece| markdown.push(piece))
            .collect();
        spans.extend(markdown.finish());
        spans
    }

    fn text(spans: &[Span]) -> String {
        spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// The characters and how each is shown.
    fn styled(spans: &[Span]) -> Vec<(char, Style)> {
        let chars = |span: &Span| {
            let style = span.style;
            let chars: Vec<_> = span.text.chars().map(|c| (c, style)).collect();
            chars
        };
        spans.iter().flat_map(chars).collect()
    }

    #[test]
    fn markers_become_styles() {
        let bold = Style::new().bold();
        for (markdown, shown, word, style) in [
            ("# A *title*\n", "A title\n", "A ", bold),
            ("some **bold** text", "some bold text", "bold", bold),
            ("an *old* word", "an old word", "old", Style::new().italic()),
            ("an _old_ word", "an old word", "old", Style::new().italic()),
            ("type `a*b*c`.", "type a*b*c.", "a*b*c", CODE),
            ("`` a`b ``", "a`b", "a`b", CODE),
            ("- **one**: 1\n  * two", "• one: 1\n  • two", "one", bold),
            ("> quoted", "│ quoted", "│ ", FAINT),
            ("a\n---\nb", "a\n---\nb", "---\n", FAINT),
            ("**a `b` c**", "a b c", "b", CODE),
        ] {
            let spans = all(&[markdown]);
            assert_eq!(text(&spans), shown, "{markdown}");
            let found = spans.iter().find(|span| span.text == word);
            assert_eq!(found.map(|span| span.style), Some(style), "{spans:?}");
        }
    }

    #[test]
    fn what_is_no_marker_stays() {
        for markdown in [
            "2 * 3 * 4 and 2*3*4",
            "snake_case_name and __init",
            "a ** b",
            "an *open one\nand the next* line",
            "`open",
            "#no heading\n####### seven",
            "| a | **b** |\n|---|---|",
            "C:\\dir and \\(x\\)",
            "-5 and -x",
            "***",
            "1. one\n2. two\n",
        ] {
            assert_eq!(text(&all(&[markdown])), markdown);
        }
        assert_eq!(text(&all(&["\\*not\\*"])), "*not*");
    }

    #[test]
    fn code_keeps_every_character() {
        let code = "Look:\n```rust\nlet x = \"**a**\"; // `b`\n\n# no heading\n```\nand *on*\n";
        let spans = all(&[code]);
        assert_eq!(text(&spans), code.replace("*on*", "on"));
        let styles = styled(&spans);
        assert!(
            styles
                .iter()
                .any(|(c, style)| *c == 'l' && *style == Style::new().bold())
        );
        // A fence that nobody closes is code to the end.
        assert_eq!(text(&all(&["~~~\n**a**\n```\n"])), "~~~\n**a**\n```\n");
    }

    #[test]
    fn words_come_before_their_line_ends() {
        let mut markdown = Markdown::new();
        let mut shown = String::new();
        for piece in ["Hello wor", "ld, **bo", "ld** an", "d"] {
            shown += &text(&markdown.push(piece));
        }
        assert_eq!(shown, "Hello world, bold and");
        // Nothing waits for ever.
        let long = format!("**{}", "x".repeat(2 * HELD));
        assert!(text(&markdown.push(&long)).len() > HELD);
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_cuts_do_not_matter(
            source in "([a-zä0-9 ]{0,6}|[*_`]{1,3}|\n|\n```[a-z]{0,3}\n|\n[-#>|~] ?|\\\\|[()\"'/]){0,24}",
            cut in 0_usize..80,
        ) {
            let whole = all(&[&source]);
            let words = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
            prop_assert_eq!(words(&text(&whole)), words(&source));
            let cut = source.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(source.len());
            let cut = all(&[&source[..cut], &source[cut..]]);
            prop_assert_eq!(styled(&cut), styled(&whole));
        }
    }
}
