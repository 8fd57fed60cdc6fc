//! How deep the syntax tree of a template can become, found before anything recursive sees its text.
//!
//! Parser, compiler and the tree's own `drop` call themselves once for each level. The parser bounds
//! brackets and blocks, but neither chains (`- - - 1`, `a|b|c`, `a.b.c`, `a + b + c`, `a if b else c
//! if …`) nor `elif`. So the tokens are counted first, one after another, with a stack of our own.

use minijinja::machinery::{self, Token};
use minijinja::syntax::SyntaxConfig;

use crate::error::{Error, Result};

/// Fails if the tree could be deeper than what is known to fit.
pub(super) fn check(source: &str, syntax: &SyntaxConfig) -> Result<()> {
    let mut blocks = Blocks::default();
    let mut tag = Tag::new();
    for token in machinery::tokenize(source, false, syntax.clone()) {
        // The parser says what is wrong; it reads no further than this either.
        let Ok((token, _)) = token else {
            return Ok(());
        };
        match token {
            Token::VariableStart | Token::BlockStart => tag = Tag::new(),
            Token::BlockEnd => blocks.pass(&tag)?,
            token => tag.pass(&token)?,
        }
    }
    Ok(())
}

/// The inside of `{{ }}` or `{% %}`.
struct Tag<'a> {
    keyword: Option<&'a str>,
    /// Whether `=` stands outside of all brackets.
    assigns: bool,
    /// From the outside to the innermost bracket.
    levels: Vec<Level>,
    /// Sum of all links.
    height: usize,
}

/// What stands within one pair of brackets.
#[derive(Default)]
struct Level {
    /// Links of the expression at hand: operators, and what is in brackets that were closed.
    links: usize,
    /// Links of the highest expression before the last comma.
    highest: usize,
}

impl<'a> Tag<'a> {
    fn new() -> Tag<'a> {
        Tag {
            keyword: None,
            assigns: false,
            levels: vec![Level::default()],
            height: 0,
        }
    }

    fn pass(&mut self, token: &Token<'a>) -> Result<()> {
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                self.link(1);
                self.levels.push(Level::default());
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                if self.levels.len() > 1
                    && let Some(inner) = self.levels.pop()
                {
                    self.height -= inner.links;
                    self.link(inner.links.max(inner.highest));
                }
            }
            Token::Comma | Token::Colon => {
                if let Some(level) = self.levels.last_mut() {
                    self.height -= level.links;
                    level.highest = level.highest.max(std::mem::take(&mut level.links));
                }
            }
            Token::Assign => self.assigns |= self.levels.len() == 1,
            Token::Ident(word) => {
                let is_first = self.keyword.is_none();
                self.keyword.get_or_insert(word);
                if !is_first && OPERATORS.contains(word) {
                    self.link(1);
                }
            }
            Token::TemplateData(_)
            | Token::VariableStart
            | Token::VariableEnd
            | Token::BlockStart
            | Token::BlockEnd
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_) => {}
            Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::FloorDiv
            | Token::Pow
            | Token::Mod
            | Token::Dot
            | Token::Tilde
            | Token::Pipe
            | Token::Eq
            | Token::Ne
            | Token::Gt
            | Token::Gte
            | Token::Lt
            | Token::Lte => self.link(1),
        }
        if self.height > MAX_LINKS {
            return Err(Error::Limit("400 operators in one expression"));
        }
        Ok(())
    }

    fn link(&mut self, n_links: usize) {
        self.height += n_links;
        if let Some(level) = self.levels.last_mut() {
            level.links += n_links;
        }
    }
}

/// Blocks that are open: each counts itself and its `elif`s, which the parser nests.
#[derive(Default)]
struct Blocks {
    open: Vec<usize>,
    depth: usize,
}

impl Blocks {
    fn pass(&mut self, tag: &Tag<'_>) -> Result<()> {
        match tag.keyword {
            Some("set") if tag.assigns => {}
            Some("elif") => {
                if let Some(block) = self.open.last_mut() {
                    *block += 1;
                    self.depth += 1;
                }
            }
            Some(word) if word.starts_with("end") => {
                self.depth -= self.open.pop().unwrap_or(0);
            }
            Some(word) if BLOCKS.contains(&word) => {
                self.open.push(1);
                self.depth += 1;
            }
            _ => {}
        }
        if self.depth > MAX_BLOCKS {
            return Err(Error::Limit("100 nested blocks"));
        }
        Ok(())
    }
}

/// Words that make an expression deeper. The first word of a tag is none: it may begin an expression
/// with `not`, which is one link less than counted here.
const OPERATORS: [&str; 7] = ["and", "else", "if", "in", "is", "not", "or"];
const BLOCKS: [&str; 9] = [
    "autoescape",
    "block",
    "call",
    "filter",
    "for",
    "if",
    "macro",
    "set",
    "with",
];
/// Far more than published templates have: the longest expressions of those have about forty.
const MAX_LINKS: usize = 400;
const MAX_BLOCKS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn deep(source: &str) -> bool {
        let syntax = SyntaxConfig::builder().build().unwrap();
        match check(source, &syntax) {
            Ok(()) => false,
            Err(Error::Limit(_)) => true,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_nests_is_counted() {
        let n = MAX_LINKS + 2;
        for (open, middle, close) in [
            ("{{ ", "-", "1 }}"),
            ("{{ ", "not ", "1 }}"),
            ("{{ 1", "~'a'", " }}"),
            ("{{ 'a'", "|upper", " }}"),
            ("{{ a", ".b", " }}"),
            ("{{ a", "()", " }}"),
            ("{{ a", "[0]", " }}"),
            ("{{ a", " and a", " }}"),
            ("{{ a", " is defined", " }}"),
            ("{{ a", " if b else c", " }}"),
            ("{{ a", " if b", " }}"),
            ("{{ ", "(", " }}"),
            ("{{ ", "[", " }}"),
            ("{{ ", "{1:", " }}"),
            ("{{ f(1, ", "-", "1, 2) }}"),
            ("{{ ((1)", " + (1)", ") }}"),
            ("{% set x = ", "-", "1 %}"),
            ("{% if ", "not ", "1 %}{% endif %}"),
            ("{% if x %}", "{% elif x %}", "{% endif %}"),
            ("", "{% if x %}", ""),
            ("", "{% set x %}", ""),
            ("", "{% set x | replace(a=1) %}", ""),
            ("", "{% for x in y %}{% if z %}{% elif z %}{% endif %}", ""),
        ] {
            let source = format!("{open}{}{close}", middle.repeat(n));
            assert!(deep(&source), "{middle}");
        }
    }

    #[test]
    fn what_stands_side_by_side_is_not() {
        for source in [
            "{{ a + b }}".repeat(2000),
            "{% if x %}{% elif y %}{% else %}{% endif %}".repeat(2000),
            "{% set x = 1 %}{% set y %}{% endset %}".repeat(2000),
            format!("{{{{ [{}] }}}}", "a + 1, ".repeat(2000)),
            format!("{{{{ {{{}}} }}}}", "'a': b.c, ".repeat(2000)),
            format!("{{{{ f({}) }}}}", "g(-1, 2), ".repeat(2000)),
            format!("{{{{ {} }}}}", "'a' ".repeat(2000)),
        ] {
            assert!(!deep(&source), "{}", &source[..40]);
        }
    }
}
