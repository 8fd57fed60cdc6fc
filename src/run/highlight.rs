//! Colours for code in a terminal: comments, texts, numbers and the words of a language. A line at a
//! time, and no more than a look at it: code comes in pieces, and often not whole.

use anstyle::{AnsiColor, Style};

use crate::{
    run::markdown::Span,
    term::{BAD, FAINT, GOOD},
};

/// What is known of a language.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// What begins a comment to the end of the line.
    comment: &'static str,
    words: &'static [&'static str],
    /// `'` is a mark of one letter, or of something else.
    is_quote_short: bool,
    is_diff: bool,
}

const TEXT: Style = AnsiColor::Green.on_default();
const NUMBER: Style = AnsiColor::Yellow.on_default();
const WORD: Style = Style::new().bold();

const RUST: &[&str] = &[
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "false",
    "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref",
    "return", "self", "Self", "static", "struct", "super", "trait", "true", "type", "unsafe",
    "use", "where", "while",
];
const PYTHON: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "False", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "None", "nonlocal", "not", "or", "pass", "raise", "return", "True", "try", "while",
    "with", "yield",
];
const CURLY: &[&str] = &[
    "abstract",
    "async",
    "await",
    "bool",
    "break",
    "case",
    "catch",
    "chan",
    "char",
    "class",
    "const",
    "continue",
    "def",
    "default",
    "defer",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "final",
    "finally",
    "float",
    "for",
    "func",
    "fun",
    "function",
    "go",
    "if",
    "implements",
    "import",
    "in",
    "int",
    "interface",
    "let",
    "long",
    "map",
    "namespace",
    "new",
    "nil",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "range",
    "return",
    "select",
    "short",
    "static",
    "string",
    "struct",
    "super",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "unsigned",
    "using",
    "val",
    "var",
    "void",
    "while",
    "yield",
];
const SHELL: &[&str] = &[
    "case", "do", "done", "elif", "else", "esac", "exit", "export", "fi", "for", "function", "if",
    "in", "local", "return", "set", "then", "until", "while",
];
const SQL: &[&str] = &[
    "add",
    "all",
    "alter",
    "and",
    "as",
    "asc",
    "begin",
    "between",
    "by",
    "case",
    "commit",
    "create",
    "delete",
    "desc",
    "distinct",
    "drop",
    "else",
    "end",
    "exists",
    "from",
    "group",
    "having",
    "in",
    "index",
    "inner",
    "insert",
    "into",
    "is",
    "join",
    "key",
    "left",
    "like",
    "limit",
    "not",
    "null",
    "on",
    "or",
    "order",
    "outer",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "set",
    "table",
    "then",
    "union",
    "unique",
    "update",
    "values",
    "view",
    "when",
    "where",
    "with",
];
const VALUES: &[&str] = &["true", "false", "null", "yes", "no"];

impl Language {
    /// Returns what is known of a language by the word after a fence.
    pub fn named(word: &str) -> Language {
        let word = word.split([' ', ',', '{']).next().unwrap_or_default();
        let (comment, words) = match word.to_ascii_lowercase().as_str() {
            "rust" | "rs" => ("//", RUST),
            "python" | "py" | "python3" => ("#", PYTHON),
            "bash" | "sh" | "shell" | "zsh" | "fish" | "console" | "dockerfile" | "make" => {
                ("#", SHELL)
            }
            "sql" | "sqlite" | "postgresql" | "mysql" => ("--", SQL),
            "yaml" | "yml" | "toml" | "ini" => ("#", VALUES),
            "json" | "jsonc" => ("//", VALUES),
            "javascript" | "js" | "jsx" | "typescript" | "ts" | "tsx" | "go" | "java"
            | "kotlin" | "c" | "h" | "cpp" | "c++" | "cs" | "csharp" | "swift" | "php"
            | "scala" | "dart" => ("//", CURLY),
            _ => ("", &[][..]),
        };
        Language {
            comment,
            words,
            is_quote_short: words == RUST,
            is_diff: word == "diff" || word == "patch",
        }
    }

    /// Returns the spans of a line, all of its characters.
    pub fn line(&self, line: &str) -> Vec<Span> {
        let span = |text: &str, style| Span {
            text: text.to_owned(),
            style,
        };
        if self.is_diff {
            let style = match line.as_bytes().first() {
                Some(b'+') => GOOD,
                Some(b'-') => BAD,
                Some(b'@') => FAINT,
                _ => Style::new(),
            };
            return vec![span(line, style)];
        }
        let mut spans = Vec::new();
        let (mut plain, mut at) = (0, 0);
        while let Some(c) = line[at..].chars().next() {
            let rest = &line[at..];
            let found = if !self.comment.is_empty() && rest.starts_with(self.comment) {
                Some((rest.trim_end_matches('\n').len(), FAINT))
            } else if matches!(c, '"' | '\'' | '`') {
                self.quoted(rest, c).map(|length| (length, TEXT))
            } else if c.is_alphanumeric() || c == '_' {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let word = &rest[..length];
                if c.is_ascii_digit() {
                    Some((length, NUMBER))
                } else if self.knows(word) {
                    Some((length, WORD))
                } else {
                    at += length;
                    continue;
                }
            } else {
                None
            };
            let Some((length, style)) = found else {
                at += c.len_utf8();
                continue;
            };
            if plain < at {
                spans.push(span(&line[plain..at], Style::new()));
            }
            spans.push(span(&rest[..length], style));
            at += length;
            plain = at;
        }
        if plain < line.len() {
            spans.push(span(&line[plain..], Style::new()));
        }
        spans
    }

    /// SQL is written in either case.
    fn knows(&self, word: &str) -> bool {
        self.words.contains(&word)
            || self.words == SQL && SQL.iter().any(|known| known.eq_ignore_ascii_case(word))
    }

    /// Returns the bytes of a text between quotes, if it ends in this line.
    fn quoted(&self, text: &str, quote: char) -> Option<usize> {
        let mut escaped = false;
        for (n, (at, c)) in text.char_indices().enumerate().skip(1) {
            if quote == '\'' && self.is_quote_short && n > 3 && !text[1..].starts_with('\\') {
                return None;
            }
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Some(at + c.len_utf8()),
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marked(language: &str, line: &str) -> String {
        let spans = Language::named(language).line(line);
        let mark = |span: &Span| match span.style {
            style if style == TEXT => format!("t<{}>", span.text),
            style if style == NUMBER => format!("n<{}>", span.text),
            style if style == WORD => format!("w<{}>", span.text),
            style if style == FAINT => format!("c<{}>", span.text),
            _ => span.text.clone(),
        };
        spans.iter().map(mark).collect()
    }

    #[test]
    fn words_texts_numbers_and_comments_are_told_apart() {
        for (language, line, wanted) in [
            (
                "python",
                "def f(x): return x+1  # one",
                "w<def> f(x): w<return> x+n<1>  c<# one>",
            ),
            (
                "rust",
                "let c: &'a str = 'x';",
                "w<let> c: &'a str = t<'x'>;",
            ),
            ("rs", "x1 + \"a\\\"b\" // \"", "x1 + t<\"a\\\"b\"> c<// \">"),
            (
                "sql",
                "Select * FROM t -- all",
                "w<Select> * w<FROM> t c<-- all>",
            ),
            ("sh", "for x in 'a b'; do", "w<for> x w<in> t<'a b'>; w<do>"),
            ("unknown", "if x == \"open", "if x == \"open"),
        ] {
            assert_eq!(marked(language, line), wanted, "{language}");
        }
    }

    proptest! {
        #[test]
        fn no_character_is_lost(line in "([a-z_]{0,6}|[0-9.]{1,3}|[\"'`\\\\#/-]{1,2}|[ äöμ]|let ){0,12}\n?",
                                language in "rust|python|sql|js|diff|") {
            let spans = Language::named(&language).line(&line);
            let text: String = spans.iter().map(|span| span.text.as_str()).collect();
            prop_assert_eq!(text, line);
        }
    }
}
