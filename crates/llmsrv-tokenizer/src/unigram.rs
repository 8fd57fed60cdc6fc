//! Unigram model: the segmentation of the highest total score, found with Viterbi's algorithm.
//!
//! Kudo, "Subword Regularization" (2018). A character that no token covers costs ten more than
//! the worst token; neighbouring characters of this kind are one unknown token.

use crate::{
    Error, TokenKind, Vocab,
    charsmap::Charsmap,
    prefix::PrefixTable,
    spelling::{self, SPACE},
    words::Words,
};

/// The tokens and scores of a vocabulary and its normalisation.
#[derive(Debug)]
pub(crate) struct Unigram {
    charsmap: Charsmap,
    tokens: PrefixTable,
    scores: Vec<f64>,
    unknown: Option<u32>,
    unknown_score: f64,
    add_space_prefix: bool,
    remove_extra_whitespaces: bool,
    cut_at_spaces: bool,
}

/// The best segmentation that ends at a place.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Where its last token begins.
    start: usize,
    /// Its last token; `None` = unknown.
    id: Option<u32>,
}

impl Unigram {
    pub(crate) fn new(vocab: &Vocab) -> Result<Unigram, Error> {
        let score = |id: u32| vocab.scores.get(id as usize).copied().unwrap_or(0.0);
        let mut lowest = f32::MAX;
        let mut scores = Vec::with_capacity(vocab.tokens.len());
        for (kind, id) in vocab.kinds.iter().zip(0..) {
            // User-defined tokens beat any segmentation, scores being negative.
            scores.push(if *kind == TokenKind::UserDefined {
                0.0
            } else {
                f64::from(score(id))
            });
            if *kind == TokenKind::Normal {
                lowest = lowest.min(score(id));
            }
        }
        let entries = || {
            vocab
                .tokens
                .iter()
                .zip(&vocab.kinds)
                .zip(0..)
                .filter_map(|((text, kind), id)| {
                    let textual = matches!(
                        kind,
                        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused
                    );
                    (textual && text.len() <= MAX_TOKEN_BYTES).then_some((text.as_str(), id))
                })
        };
        Ok(Unigram {
            charsmap: Charsmap::parse(&vocab.charsmap)?,
            tokens: PrefixTable::new(entries()),
            scores,
            unknown: vocab.unknown,
            unknown_score: f64::from(lowest - 10.0),
            add_space_prefix: vocab.add_space_prefix,
            remove_extra_whitespaces: vocab.remove_extra_whitespaces,
            cut_at_spaces: !entries().any(|(text, _)| spelling::crosses_cut(text)),
        })
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, text: &str, words: &mut Words, out: &mut Vec<u32>) {
        let normalised = self.normalise(text);
        let mut after_unknown = false;
        let mut word_ids = Vec::new();
        let mut word = |word: &str| {
            word_ids.clear();
            words.tokens(word, &mut word_ids, |word, _, ids| {
                self.encode_word(word, ids);
            });
            for &id in &word_ids {
                let is_unknown = Some(id) == self.unknown;
                if !(is_unknown && after_unknown) {
                    out.push(id);
                }
                after_unknown = is_unknown;
            }
        };
        if self.cut_at_spaces {
            spelling::cut_at_spaces(&normalised).for_each(word);
        } else {
            word(&normalised);
        }
    }

    /// Applies the table and the rules for spaces, and escapes spaces.
    fn normalise(&self, text: &str) -> String {
        let mapped = self.charsmap.apply(text);
        let mut normalised = String::with_capacity(mapped.len() + mapped.len() / 2);
        let mut in_word = false;
        let mut has_prefix = !self.add_space_prefix;
        for c in mapped.chars() {
            if c == ' ' {
                in_word = false;
                if !self.remove_extra_whitespaces {
                    normalised.push(SPACE);
                }
                continue;
            }
            if !in_word && (!has_prefix || self.remove_extra_whitespaces) {
                normalised.push(SPACE);
                has_prefix = true;
            }
            in_word = true;
            normalised.push(c);
        }
        normalised
    }

    fn encode_word(&self, word: &str, out: &mut Vec<u32>) {
        let unreached = Best {
            score: f64::MIN,
            start: 0,
            id: None,
        };
        let mut best = vec![unreached; word.len() + 1];
        if let Some(first) = best.first_mut() {
            first.score = 0.0;
        }
        for (start, c) in word.char_indices() {
            let Some(&Best { score: before, .. }) = best.get(start) else {
                break;
            };
            let mut offer = |len: usize, id: Option<u32>, score: f64| {
                let score = before + score;
                if let Some(end) = best.get_mut(start + len).filter(|end| score > end.score) {
                    *end = Best { score, start, id };
                }
            };
            let mut covered = false;
            for (len, id) in self
                .tokens
                .matches(word.as_bytes().get(start..).unwrap_or_default())
            {
                covered |= len == c.len_utf8();
                offer(
                    len,
                    Some(id),
                    self.scores.get(id as usize).copied().unwrap_or(0.0),
                );
            }
            if !covered {
                offer(c.len_utf8(), None, self.unknown_score);
            }
        }
        let first = out.len();
        let mut end = word.len();
        while let Some(step) = best.get(end).filter(|_| end > 0) {
            out.extend(step.id.or(self.unknown));
            end = step.start;
        }
        if let Some(added) = out.get_mut(first..) {
            added.reverse();
        }
    }
}

/// Longer tokens are not found: a bound for hostile vocabularies.
const MAX_TOKEN_BYTES: usize = 256;
