//! Finds special tokens in text.
//!
//! User-defined tokens are found always, control tokens only where the caller trusts the text.
//! At each place the longest token wins.

use std::collections::HashSet;

use crate::{TokenKind, Vocab, prefix::PrefixTable};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    /// Text between special tokens, never empty.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// The special tokens of a vocabulary.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    user_defined: PrefixTable,
    all: PrefixTable,
    strip_left: HashSet<u32>,
    strip_right: HashSet<u32>,
}

impl SpecialTokens {
    pub(crate) fn new(vocab: &Vocab) -> SpecialTokens {
        let table = |kinds: &[TokenKind]| {
            let entries = vocab.tokens.iter().zip(&vocab.kinds).zip(0..);
            PrefixTable::new(
                entries
                    .filter(|((_, kind), _)| kinds.contains(kind))
                    .map(|((text, _), id)| (text.as_str(), id)),
            )
        };
        SpecialTokens {
            user_defined: table(&[TokenKind::UserDefined]),
            all: table(&[
                TokenKind::UserDefined,
                TokenKind::Control,
                TokenKind::Unknown,
            ]),
            strip_left: vocab.strip_left.iter().copied().collect(),
            strip_right: vocab.strip_right.iter().copied().collect(),
        }
    }

    /// Cuts `text` at its special tokens; at control tokens only with `with_control`.
    pub(crate) fn split<'t>(&self, text: &'t str, with_control: bool) -> Vec<Fragment<'t>> {
        let table = if with_control {
            &self.all
        } else {
            &self.user_defined
        };
        let mut fragments = Vec::new();
        let mut done = 0;
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let found = if table.starts_with(byte) {
                text.as_bytes()
                    .get(at..)
                    .and_then(|rest| table.longest(rest))
            } else {
                None
            };
            let Some((len, id)) = found else {
                at += 1;
                continue;
            };
            let mut before = text.get(done..at).unwrap_or_default();
            if self.strip_left.contains(&id) {
                before = before.trim_end_matches(is_c_space);
            }
            if !before.is_empty() {
                fragments.push(Fragment::Text(before));
            }
            fragments.push(Fragment::Token(id));
            at += len;
            if self.strip_right.contains(&id) {
                let rest = text.get(at..).unwrap_or_default();
                at += rest.len() - rest.trim_start_matches(is_c_space).len();
            }
            done = at;
        }
        match text.get(done..) {
            Some(rest) if !rest.is_empty() => fragments.push(Fragment::Text(rest)),
            _ => {}
        }
        fragments
    }
}

/// White space as C's `isspace` sees it, which is what the tokens' strip flags mean.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_token_wins_and_control_needs_trust() {
        let tokens = [
            ("a", TokenKind::Normal),
            ("<x>", TokenKind::Control),
            ("<x><y>", TokenKind::Control),
        ];
        let mut vocab = Vocab {
            tokens: tokens.iter().map(|(text, _)| (*text).into()).collect(),
            kinds: tokens.iter().map(|(_, kind)| *kind).collect(),
            ..Vocab::default()
        };
        vocab.tokens.push("<u>".into());
        vocab.kinds.push(TokenKind::UserDefined);
        vocab.strip_right = vec![1];
        vocab.strip_left = vec![2];
        let special = SpecialTokens::new(&vocab);
        use Fragment::{Text, Token};
        let check = |text, with_control, expected: &[Fragment<'_>]| {
            assert_eq!(special.split(text, with_control), expected, "{text:?}");
        };
        check("", true, &[]);
        check("a<x>\n b", true, &[Text("a"), Token(1), Text("b")]);
        check("a \t<x><y> b", true, &[Text("a"), Token(2), Text(" b")]);
        check("é<x", true, &[Text("é<x")]);
        check("<x><u>", false, &[Text("<x>"), Token(3)]);
        check("<u><u>\n", true, &[Token(3), Token(3), Text("\n")]);
    }
}
