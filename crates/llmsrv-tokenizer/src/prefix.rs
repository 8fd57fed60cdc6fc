//! Finds the vocabulary entries that a text begins with.

use std::ops::Range;

/// Entries in byte order, so that all entries with a common prefix are neighbours.
#[derive(Debug)]
pub(crate) struct PrefixTable {
    texts: Vec<Box<[u8]>>,
    ids: Vec<u32>,
    /// Entries by their first byte.
    first: Vec<Range<usize>>,
}

impl PrefixTable {
    /// Builds a table; of entries with the same text the last wins, empty ones are left out.
    pub(crate) fn new<'a>(entries: impl Iterator<Item = (&'a str, u32)>) -> PrefixTable {
        let mut sorted: Vec<(&str, u32)> = entries.filter(|(text, _)| !text.is_empty()).collect();
        sorted.sort_unstable_by_key(|&(text, id)| (text, std::cmp::Reverse(id)));
        sorted.dedup_by_key(|(text, _)| *text);
        let texts: Vec<Box<[u8]>> = sorted
            .iter()
            .map(|(text, _)| text.as_bytes().into())
            .collect();
        let first = (0..=255u8)
            .map(|byte| {
                let start = texts.partition_point(|text| text.first() < Some(&byte));
                start..texts.partition_point(|text| text.first() <= Some(&byte))
            })
            .collect();
        PrefixTable {
            texts,
            ids: sorted.into_iter().map(|(_, id)| id).collect(),
            first,
        }
    }

    /// Returns whether an entry begins with `byte`.
    pub(crate) fn starts_with(&self, byte: u8) -> bool {
        self.first
            .get(usize::from(byte))
            .is_some_and(|range| !range.is_empty())
    }

    /// Returns length and id of every entry that `text` begins with, the shortest first.
    pub(crate) fn matches<'a>(&'a self, text: &'a [u8]) -> Matches<'a> {
        let first = text
            .first()
            .and_then(|&byte| self.first.get(usize::from(byte)));
        Matches {
            table: self,
            text,
            range: first.cloned().unwrap_or_default(),
            depth: 1,
        }
    }

    /// Returns length and id of the longest entry that `text` begins with.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        self.matches(text).last()
    }
}

/// See [`PrefixTable::matches`].
pub(crate) struct Matches<'a> {
    table: &'a PrefixTable,
    text: &'a [u8],
    /// Entries that agree with the first `depth` bytes of the text.
    range: Range<usize>,
    depth: usize,
}

impl Iterator for Matches<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        loop {
            let candidates = self.table.texts.get(self.range.clone())?;
            let shortest = candidates.first()?;
            let depth = self.depth;
            if shortest.len() == depth {
                let id = *self.table.ids.get(self.range.start)?;
                self.range.start += 1;
                return Some((depth, id));
            }
            let byte = self.text.get(depth)?;
            let start = candidates.partition_point(|entry| entry.get(depth) < Some(byte));
            let len = candidates
                .get(start..)?
                .partition_point(|entry| entry.get(depth) <= Some(byte));
            self.range = self.range.start + start..self.range.start + start + len;
            self.depth += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn matches_are_exactly_the_prefixes(
            entries in proptest::collection::vec("[abé]{0,4}", 0..12),
            text in "[abé]{0,6}",
        ) {
            let table = PrefixTable::new(entries.iter().map(String::as_str).zip(0..));
            let found: Vec<_> = table.matches(text.as_bytes()).collect();
            let mut expected: Vec<_> = (1..=text.len())
                .filter_map(|len| {
                    let prefix = text.as_bytes().get(..len)?;
                    let id = entries.iter().rposition(|entry| entry.as_bytes() == prefix)?;
                    Some((len, id as u32))
                })
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(table.longest(text.as_bytes()), expected.last().copied());
        }
    }
}
