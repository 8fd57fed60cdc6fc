//! The loop shared by byte-level BPE and SPM: merge the best pair of neighbours until none is left.
//!
//! A word of n symbols takes O(n log n): candidates wait in a heap, and one whose symbols have
//! changed in the meantime is recognised by its boundaries and dropped.

use std::{cmp::Reverse, collections::BinaryHeap};

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
    queue: BinaryHeap<Reverse<Candidate>>,
}

const NONE: u32 = u32::MAX;

impl Merger {
    /// Forgets the last word.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
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
        for idx in 1..self.symbols.len() as u32 {
            self.consider(idx - 1, idx, &pair);
        }
        while let Some(Reverse(candidate)) = self.queue.pop() {
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
            self.queue.push(Reverse(Candidate {
                priority,
                left,
                middle,
                end,
                id,
            }));
        }
    }
}
