//! Memory that outlives a call: the tokens of words seen before, and the buffers of the merge loop.
//!
//! Text repeats its words, so most of them are answered from here without merging anything.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::merge::Merger;

/// Tokens of recent words, bounded.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// Where the tokens of a word are in `ids`.
    known: HashMap<Box<str>, (u32, u32), RandomState>,
    ids: Vec<u32>,
    merger: Merger,
}

impl Words {
    /// Appends the tokens of `word` to `out`; asks `compute` when they are not known. The result
    /// of `compute` must depend on the word alone.
    pub(crate) fn tokens(
        &mut self,
        word: &str,
        out: &mut Vec<u32>,
        compute: impl FnOnce(&str, &mut Merger, &mut Vec<u32>),
    ) {
        if word.len() > MAX_WORD_BYTES && !is_run(word) {
            self.merger.clear();
            compute(word, &mut self.merger, out);
            return;
        }
        if let Some(&(start, end)) = self.known.get(word) {
            out.extend_from_slice(
                self.ids
                    .get(start as usize..end as usize)
                    .unwrap_or_default(),
            );
            return;
        }
        let start = out.len();
        self.merger.clear();
        compute(word, &mut self.merger, out);
        if self.known.len() >= MAX_WORDS {
            self.known.clear();
            self.ids.clear();
        }
        let place = self.ids.len() as u32;
        self.ids
            .extend_from_slice(out.get(start..).unwrap_or_default());
        self.known
            .insert(word.into(), (place, self.ids.len() as u32));
    }
}

/// Tells whether a word is one character repeated, not too often: blanks before a line, a line of dashes. There are many
/// of those, of few lengths, and long ones take the longest to merge.
fn is_run(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() <= MAX_RUN_BYTES && bytes.windows(2).all(|pair| pair[0] == pair[1])
}

/// Longer words are rare and would fill the memory.
const MAX_WORD_BYTES: usize = 48;
const MAX_RUN_BYTES: usize = 512;
/// About 4 MB when full of words, 16 MB when full of runs.
const MAX_WORDS: usize = 1 << 15;
