//! The loop shared by byte-level BPE and SPM: merge the best pair of neighbours until none is left.
//!
//! A word of n symbols takes O(n log n): candidates wait in a heap, and one whose symbols have
//! changed in the meantime is recognised by its boundaries and dropped. A long word is most often a
//! run of one character: its candidates come in order and have few priorities, so they wait in a line
//! for each priority, which takes O(n).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

/// A piece of the word that is one symbol of the alphabet or the result of merges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Meaning is up to the caller.
    pub(crate) id: u32,
    /// First byte in the word.
    pub(crate) start: u32,
    /// One past the last byte; equal to `start` once merged into the symbol on the left.
    pub(crate) end: u32,
    prev: u32,
    next: u32,
}

/// What a pair of neighbours may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The smallest comes first; among equals the leftmost.
    pub(crate) priority: u32,
    /// Id of the merged symbol.
    pub(crate) id: u32,
}

/// A possible merge of the symbols `start..middle` and `middle..end`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: u32,
    left: u32,
    middle: u32,
    end: u32,
    id: u32,
}

/// Reusable memory of the loop.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: Queue,
}

/// Candidates, of which the smallest is taken first.
#[derive(Debug, Default)]
struct Queue {
    heap: BinaryHeap<Reverse<Candidate>>,
    /// The lines of a long word, by priority; none of a short one.
    lines: Option<BTreeMap<u32, Line>>,
}

/// Candidates of one priority.
#[derive(Debug, Default)]
struct Line {
    /// Those that came in order.
    ordered: VecDeque<Candidate>,
    others: BinaryHeap<Reverse<Candidate>>,
}

impl Queue {
    /// Forgets all candidates, and prepares for those of a word of `n_symbols`.
    fn begin(&mut self, n_symbols: usize) {
        self.heap.clear();
        self.lines = (n_symbols >= LONG_WORD).then(BTreeMap::new);
    }

    fn push(&mut self, candidate: Candidate) {
        let Some(lines) = &mut self.lines else {
            self.heap.push(Reverse(candidate));
            return;
        };
        let line = lines.entry(candidate.priority).or_default();
        if line.ordered.back().is_none_or(|last| *last <= candidate) {
            line.ordered.push_back(candidate);
        } else {
            line.others.push(Reverse(candidate));
        }
    }

    fn pop(&mut self) -> Option<Candidate> {
        let Some(lines) = &mut self.lines else {
            return self.heap.pop().map(|Reverse(candidate)| candidate);
        };
        loop {
            let mut first = lines.first_entry()?;
            let line = first.get_mut();
            let is_ordered = match (line.ordered.front(), line.others.peek()) {
                (Some(ordered), Some(Reverse(other))) => ordered <= other,
                (ordered, _) => ordered.is_some(),
            };
            let candidate = if is_ordered {
                line.ordered.pop_front()
            } else {
                line.others.pop().map(|Reverse(candidate)| candidate)
            };
            if candidate.is_some() {
                return candidate;
            }
            first.remove();
        }
    }
}

const NONE: u32 = u32::MAX;
/// Symbols from which on a word has lines.
const LONG_WORD: usize = 4096;

impl Merger {
    /// Forgets the last word.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.begin(0);
    }

    /// Appends a symbol of `len` bytes.
    pub(crate) fn push(&mut self, id: u32, len: usize) {
        let idx = self.symbols.len() as u32;
        let start = self.symbols.last().map_or(0, |last| last.end);
        if let Some(last) = self.symbols.last_mut() {
            last.next = idx;
        }
        let prev = idx.wrapping_sub(1);
        self.symbols.push(Symbol {
            id,
            start,
            end: start + len as u32,
            prev,
            next: NONE,
        });
    }

    /// Merges with the rule `pair` and returns the symbols that remain, in order.
    pub(crate) fn run(
        &mut self,
        pair: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
    ) -> impl Iterator<Item = &Symbol> {
        self.queue.begin(self.symbols.len());
        self.merge(pair)
    }

    fn merge(
        &mut self,
        pair: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
    ) -> impl Iterator<Item = &Symbol> {
        for idx in 1..self.symbols.len() as u32 {
            self.consider(idx - 1, idx, &pair);
        }
        while let Some(candidate) = self.queue.pop() {
            let Some(&left) = self.symbols.get(candidate.left as usize) else {
                continue;
            };
            let Some(&right) = self.symbols.get(left.next as usize) else {
                continue;
            };
            if left.start == left.end || left.end != candidate.middle || right.end != candidate.end
            {
                continue;
            }
            if let Some(dead) = self.symbols.get_mut(left.next as usize) {
                dead.end = dead.start;
            }
            if let Some(merged) = self.symbols.get_mut(candidate.left as usize) {
                (merged.id, merged.end, merged.next) = (candidate.id, right.end, right.next);
            }
            if let Some(after) = self.symbols.get_mut(right.next as usize) {
                after.prev = candidate.left;
            }
            self.consider(left.prev, candidate.left, &pair);
            self.consider(candidate.left, right.next, &pair);
        }
        self.symbols
            .iter()
            .filter(|symbol| symbol.start < symbol.end)
    }

    fn consider(
        &mut self,
        left: u32,
        right: u32,
        pair: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
    ) {
        let (Some(first), Some(second)) = (
            self.symbols.get(left as usize),
            self.symbols.get(right as usize),
        ) else {
            return;
        };
        if let Some(Merge { priority, id }) = pair(first, second) {
            let (middle, end) = (first.end, second.end);
            self.queue.push(Candidate {
                priority,
                left,
                middle,
                end,
                id,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Merges by the definition: again and again the best pair, of equal ones the leftmost.
    fn defined(word: &[u32], rule: impl Fn(u32, u32) -> Option<Merge>) -> Vec<u32> {
        let mut word = word.to_vec();
        loop {
            let best = (1..word.len())
                .filter_map(|at| Some((rule(word[at - 1], word[at])?, at)))
                .min_by_key(|(merge, at)| (merge.priority, *at));
            let Some((merge, at)) = best else {
                return word;
            };
            word[at - 1] = merge.id;
            word.remove(at);
        }
    }

    fn merged(word: &[u32], lines: bool, rule: impl Fn(u32, u32) -> Option<Merge>) -> Vec<u32> {
        let mut merger = Merger::default();
        for id in word {
            merger.push(*id, 1);
        }
        merger.queue.begin(if lines { LONG_WORD } else { 0 });
        let symbols = merger.merge(|left, right| rule(left.id, right.id));
        symbols.map(|symbol| symbol.id).collect()
    }

    /// A rule of few symbols with any priorities: `seed` tells which pairs merge, and into what.
    fn rule(seed: u64) -> impl Fn(u32, u32) -> Option<Merge> {
        move |left, right| {
            let mixed = (seed ^ u64::from(left * 31 + right)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 60 < 9).then_some(Merge {
                priority: (mixed >> 40) as u32 % 7,
                id: (mixed >> 20) as u32 % 12,
            })
        }
    }

    proptest! {
        #[test]
        fn both_queues_merge_as_defined(
            word in prop::collection::vec(0_u32..4, 0..80), run in 0_usize..80, seed in any::<u64>(),
        ) {
            for word in [word, vec![1; run]] {
                let expected = defined(&word, rule(seed));
                prop_assert_eq!(&merged(&word, false, rule(seed)), &expected);
                prop_assert_eq!(&merged(&word, true, rule(seed)), &expected);
            }
        }
    }

    #[test]
    fn a_long_run_waits_in_order() {
        // Powers of two up to 2^5, as vocabularies have them for blanks.
        let doubles = |left: u32, right: u32| {
            (left == right && left < 5).then_some(Merge {
                priority: left,
                id: left + 1,
            })
        };
        let word = vec![0; 3 * LONG_WORD + 7];
        let mut merger = Merger::default();
        for id in &word {
            merger.push(*id, 1);
        }
        let n_asked = std::cell::Cell::new(0);
        let ids: Vec<u32> = merger
            .run(|left, right| {
                n_asked.set(n_asked.get() + 1);
                doubles(left.id, right.id)
            })
            .map(|symbol| symbol.id)
            .collect();
        assert_eq!(ids, merged(&word, false, doubles));
        assert_eq!(ids.len(), 3 * LONG_WORD / 32 + 3);
        // The work grows with the length alone: each pair is asked for once, and each merge asks for
        // its two neighbours. Of what waits, nothing has to be sorted.
        assert!(n_asked.get() <= 3 * word.len(), "{}", n_asked.get());
        let lines = merger.queue.lines.unwrap_or_default();
        assert!(lines.values().all(|line| line.others.is_empty()));
    }
}
