//! Byte-pair encoding: words are cut by a pre-tokenizer, then neighbours merge by rank.
//!
//! Most vocabularies spell words byte by byte (see `spelling`). A few keep the
//! characters and fall back to the tokens `<0x00>` to `<0xFF>` for characters they do not have.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::{
    Vocab,
    ids::Ids,
    merge::{Merge, Merger},
    pretokenize::Pretokenizer,
    spelling::{self, byte_char},
    words::Words,
};

/// The merges of a vocabulary and the way it cuts words.
#[derive(Debug)]
pub(crate) struct Bpe {
    pretokenizer: Pretokenizer,
    alphabet: Alphabet,
    /// By the ids of the two symbols, see [`key`].
    merges: HashMap<u64, Merge, RandomState>,
    cut_at_spaces: bool,
}

/// The symbols that words begin as. Ids beyond the vocabulary name symbols that have no token.
#[derive(Debug)]
enum Alphabet {
    Bytes(Vec<u32>),
    Characters(HashMap<char, u32, RandomState>),
}

impl Bpe {
    pub(crate) fn new(vocab: &Vocab, ids: &Ids) -> Bpe {
        let pretokenizer = Pretokenizer::new(&vocab.pre);
        let mut symbols = Symbols {
            ids,
            extra: HashMap::default(),
            next: vocab.tokens.len() as u32,
        };
        let mut merges: HashMap<u64, Merge, RandomState> =
            HashMap::with_capacity_and_hasher(vocab.merges.len(), RandomState::default());
        let mut cut_at_spaces = !pretokenizer.spells_bytes();
        let mut merged = String::new();
        for (text, rank) in vocab.merges.iter().zip(0..) {
            let Some((left, right)) = split_merge(text) else {
                continue;
            };
            merged.clear();
            merged.push_str(left);
            merged.push_str(right);
            cut_at_spaces &= !spelling::crosses_cut(&merged);
            let pair = key(symbols.id(left), symbols.id(right));
            let id = symbols.id(&merged);
            merges.entry(pair).or_insert(Merge { priority: rank, id });
        }
        let alphabet = if pretokenizer.spells_bytes() {
            Alphabet::Bytes(
                (0..=255)
                    .map(|b| symbols.id(byte_char(b).encode_utf8(&mut [0; 4])))
                    .collect(),
            )
        } else {
            let single = |text: &str| {
                let mut chars = text.chars();
                chars.next().filter(|_| chars.next().is_none())
            };
            let texts = vocab.tokens.iter().map(String::as_str);
            let merged = vocab.merges.iter().filter_map(|text| split_merge(text));
            let chars: Vec<char> = texts
                .chain(merged.flat_map(|(left, right)| [left, right]))
                .filter_map(single)
                .collect();
            let id = |c: char| (c, symbols.id(c.encode_utf8(&mut [0; 4])));
            Alphabet::Characters(chars.into_iter().map(id).collect())
        };
        Bpe {
            pretokenizer,
            alphabet,
            merges,
            cut_at_spaces,
        }
    }

    /// Returns whether the vocabulary spells words byte by byte.
    pub(crate) fn spells_bytes(&self) -> bool {
        self.pretokenizer.spells_bytes()
    }

    /// Returns whether white space becomes no token.
    pub(crate) fn drops_spaces(&self) -> bool {
        self.pretokenizer.drops_spaces()
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, text: &str, ids: &Ids, words: &mut Words, out: &mut Vec<u32>) {
        let mut word = |word: &str| {
            words.tokens(word, out, |word, merger, out| {
                self.encode_word(word, ids, merger, out);
            });
        };
        if self.pretokenizer.spells_bytes() {
            self.pretokenizer.split(text, &mut word);
            return;
        }
        if self.drops_spaces() {
            return self.pretokenizer.split(text, &mut |piece| {
                if !piece.starts_with(char::is_whitespace) {
                    word(piece);
                }
            });
        }
        let escaped = text.replace(' ', "\u{2581}");
        self.pretokenizer.split(&escaped, &mut |line| {
            if self.cut_at_spaces {
                spelling::cut_at_spaces(line).for_each(&mut word);
            } else {
                word(line);
            }
        });
    }

    fn encode_word(&self, word: &str, ids: &Ids, merger: &mut Merger, out: &mut Vec<u32>) {
        let is_whole = match &self.alphabet {
            Alphabet::Bytes(_) => self.pretokenizer.prefers_whole_words(),
            Alphabet::Characters(_) => word.bytes().all(|byte| byte == b'\n'),
        };
        if is_whole && let Some(id) = ids.textual(&self.spell(word)) {
            out.push(id);
            return;
        }
        match &self.alphabet {
            Alphabet::Bytes(symbols) => {
                let symbol = |byte: u8| symbols.get(usize::from(byte)).copied();
                word.bytes()
                    .for_each(|byte| merger.push(symbol(byte).unwrap_or(u32::MAX), 1));
            }
            Alphabet::Characters(symbols) => {
                let symbol = |c: char| symbols.get(&c).copied();
                word.chars()
                    .for_each(|c| merger.push(symbol(c).unwrap_or(u32::MAX), c.len_utf8()));
            }
        }
        for symbol in merger.run(|left, right| self.merges.get(&key(left.id, right.id)).copied()) {
            if ids.is_textual(symbol.id) {
                out.push(symbol.id);
                continue;
            }
            let bytes = word
                .as_bytes()
                .get(symbol.start as usize..symbol.end as usize);
            for &byte in bytes.unwrap_or_default() {
                match &self.alphabet {
                    Alphabet::Bytes(symbols) => {
                        let id = symbols.get(usize::from(byte)).copied();
                        out.extend(id.filter(|&id| ids.is_textual(id)));
                    }
                    Alphabet::Characters(_) => out.extend(ids.byte(byte)),
                }
            }
        }
    }

    /// Returns a word as the vocabulary spells it.
    fn spell(&self, word: &str) -> String {
        match &self.alphabet {
            Alphabet::Bytes(_) => word.bytes().map(byte_char).collect(),
            Alphabet::Characters(_) => word.to_owned(),
        }
    }
}

/// Gives every symbol of the merges an id: its token's, or one beyond the vocabulary.
struct Symbols<'a> {
    ids: &'a Ids,
    extra: HashMap<String, u32, RandomState>,
    next: u32,
}

impl Symbols<'_> {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self
            .ids
            .find(text)
            .or_else(|| self.extra.get(text).copied())
        {
            return id;
        }
        let id = self.next;
        self.next = self.next.saturating_add(1);
        self.extra.insert(text.to_owned(), id);
        id
    }
}

/// Splits a merge at its space; the first character may itself be one.
fn split_merge(text: &str) -> Option<(&str, &str)> {
    let first = text.chars().next()?.len_utf8();
    let at = first + text.get(first..)?.find(' ')?;
    let right = text.get(at + 1..)?;
    (!right.is_empty()).then_some((text.get(..at)?, right))
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_split_at_their_space() {
        for (text, expected) in [
            ("a b", Some(("a", "b"))),
            ("  b", Some((" ", "b"))),
            ("é ü", Some(("é", "ü"))),
            ("a b c", Some(("a", "b c"))),
            ("ab", None),
            ("a ", None),
            (" ", None),
            ("", None),
        ] {
            assert_eq!(split_merge(text), expected, "{text:?}");
        }
    }
}
