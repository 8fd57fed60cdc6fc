//! SentencePiece BPE: neighbours merge while the result is a token, the one of the highest score
//! first. Characters without a token become byte tokens.

use crate::{
    Vocab,
    ids::Ids,
    merge::{Merge, Merger, Symbol},
    spelling,
    words::Words,
};

/// The scores of a vocabulary, as merge priorities.
#[derive(Debug)]
pub(crate) struct Spm {
    priorities: Vec<u32>,
    unknown: Option<u32>,
    longest: usize,
    cut_at_spaces: bool,
}

impl Spm {
    pub(crate) fn new(vocab: &Vocab, ids: &Ids) -> Spm {
        let textual = || {
            vocab
                .tokens
                .iter()
                .zip(0..)
                .filter(|&(_, id)| ids.is_textual(id))
        };
        Spm {
            priorities: vocab.scores.iter().copied().map(priority).collect(),
            unknown: vocab.unknown,
            longest: textual()
                .map(|(text, _)| text.len())
                .max()
                .unwrap_or(0)
                .min(MAX_TOKEN_BYTES),
            cut_at_spaces: !textual().any(|(text, _)| spelling::crosses_cut(text)),
        }
    }

    /// Appends the tokens of `text`, in which spaces are escaped.
    pub(crate) fn encode(&self, text: &str, ids: &Ids, words: &mut Words, out: &mut Vec<u32>) {
        let mut word = |word: &str| {
            words.tokens(word, out, |word, merger, out| {
                self.encode_word(word, ids, merger, out);
            });
        };
        if self.cut_at_spaces {
            spelling::cut_at_spaces(text).for_each(word);
        } else {
            word(text);
        }
    }

    fn encode_word(&self, word: &str, ids: &Ids, merger: &mut Merger, out: &mut Vec<u32>) {
        for c in word.chars() {
            let id = ids.textual(c.encode_utf8(&mut [0; 4])).unwrap_or(u32::MAX);
            merger.push(id, c.len_utf8());
        }
        let merge = |left: &Symbol, right: &Symbol| {
            if (right.end - left.start) as usize > self.longest {
                return None;
            }
            let id = ids.textual(word.get(left.start as usize..right.end as usize)?)?;
            let priority = self
                .priorities
                .get(id as usize)
                .copied()
                .unwrap_or(priority(0.0));
            Some(Merge { priority, id })
        };
        let mut after_unknown = false;
        for symbol in merger.run(merge) {
            if ids.is_textual(symbol.id) {
                out.push(symbol.id);
                after_unknown = false;
                continue;
            }
            let text = word
                .get(symbol.start as usize..symbol.end as usize)
                .unwrap_or_default();
            let before = out.len();
            out.extend(text.bytes().map_while(|byte| ids.byte(byte)));
            if out.len() - before == text.len() {
                after_unknown = false;
            } else {
                out.truncate(before);
                out.extend(self.unknown.filter(|_| !after_unknown));
                after_unknown = true;
            }
        }
    }
}

/// Longer tokens are not reached by merging: a bound for hostile vocabularies.
const MAX_TOKEN_BYTES: usize = 1024;

/// Orders scores: the highest gives the smallest number.
fn priority(score: f32) -> u32 {
    // Adding 0 makes -0 and 0 equal. The bits of positive floats grow with their value, those of
    // negative ones with their magnitude.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 {
        (!bits) ^ (1 << 31)
    } else {
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_come_first() {
        let scores = [
            f32::INFINITY,
            1e9,
            1.0,
            1e-30,
            0.0,
            -1e-30,
            -1.0,
            -2.0,
            -1e9,
            f32::NEG_INFINITY,
        ];
        assert!(
            scores
                .windows(2)
                .all(|pair| priority(pair[0]) < priority(pair[1]))
        );
        assert_eq!(priority(0.0), priority(-0.0));
    }
}
