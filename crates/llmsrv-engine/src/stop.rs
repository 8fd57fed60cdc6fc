//! Texts that end a generation, found across the borders of tokens.
//!
//! Each byte moves one automaton for each stop text (Knuth, Morris, Pratt). Its state is how much
//! of the stop text the output ends with, so the longest state is what must be held back. Example:
//! with the stop text `END`, the tokens `the E` and `N` give `the `, then nothing; a `D` ends the
//! generation with the text `the `, any other byte releases `EN`.

use std::collections::VecDeque;

/// The stop texts of one request and the bytes held back because one may have begun.
#[derive(Debug, Default)]
pub struct StopFinder {
    patterns: Vec<Pattern>,
    held: VecDeque<u8>,
}

/// What [`StopFinder::push`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct StopMatch {
    /// Which of the texts.
    pub text_idx: usize,
    /// How many of the bytes just pushed belong to the stop text or come before it.
    pub n_consumed: usize,
}

impl StopFinder {
    /// Looks for `texts`; empty ones are never found.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> StopFinder {
        StopFinder {
            patterns: texts.into_iter().map(Pattern::new).collect(),
            held: VecDeque::new(),
        }
    }

    /// Adds bytes and appends those to `released` that are no part of a stop text. The stop text
    /// that is complete first wins, of several the longest; what follows it is dropped.
    pub fn push(&mut self, bytes: &[u8], released: &mut Vec<u8>) -> Option<StopMatch> {
        for (byte_idx, &byte) in bytes.iter().enumerate() {
            self.held.push_back(byte);
            let mut longest = 0;
            let mut found: Option<(usize, usize)> = None;
            for (text_idx, pattern) in self.patterns.iter_mut().enumerate() {
                let matched = pattern.advance(byte);
                longest = longest.max(matched);
                if matched == pattern.bytes.len()
                    && matched > 0
                    && found.is_none_or(|(_, length)| matched > length)
                {
                    found = Some((text_idx, matched));
                }
            }
            let n_kept = found.map_or(longest, |(_, length)| length);
            released.extend(self.held.drain(..self.held.len() - n_kept));
            if let Some((text_idx, _)) = found {
                self.held.clear();
                return Some(StopMatch {
                    text_idx,
                    n_consumed: byte_idx + 1,
                });
            }
        }
        None
    }

    /// Ends the search: what was held back is text.
    pub fn finish(&mut self, released: &mut Vec<u8>) {
        released.extend(self.held.drain(..));
    }
}

#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// For each length of a match, the length of the next shorter one that ends at the same byte.
    shorter: Vec<usize>,
    matched: usize,
}

impl Pattern {
    fn new(text: &str) -> Pattern {
        let bytes = text.as_bytes().to_vec();
        let mut shorter = vec![0; bytes.len() + 1];
        let mut length = 0;
        for end in 1..bytes.len() {
            while length > 0 && bytes[length] != bytes[end] {
                length = shorter[length];
            }
            length += usize::from(bytes[length] == bytes[end]);
            shorter[end + 1] = length;
        }
        Pattern {
            bytes,
            shorter,
            matched: 0,
        }
    }

    /// Returns how much of the pattern the bytes so far end with.
    fn advance(&mut self, byte: u8) -> usize {
        while self.bytes.get(self.matched) != Some(&byte) {
            if self.matched == 0 {
                return 0;
            }
            self.matched = self.shorter[self.matched];
        }
        self.matched += 1;
        self.matched
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns what is output after each piece, and which stop text ended it.
    fn run(stops: &[&str], pieces: &[&[u8]]) -> (Vec<String>, Option<usize>) {
        let mut finder = StopFinder::new(stops.iter().copied());
        let mut output = Vec::new();
        for piece in pieces {
            let mut released = Vec::new();
            let found = finder.push(piece, &mut released);
            output.push(String::from_utf8_lossy(&released).into_owned());
            if let Some(found) = found {
                return (output, Some(found.text_idx));
            }
        }
        let mut released = Vec::new();
        finder.finish(&mut released);
        output.push(String::from_utf8_lossy(&released).into_owned());
        (output, None)
    }

    #[test]
    fn holds_back_only_what_may_become_a_stop_text() {
        type Case = (
            &'static [&'static str],
            &'static [&'static [u8]],
            &'static [&'static str],
            Option<usize>,
        );
        let cases: &[Case] = &[
            (
                &["END"],
                &[b"the E", b"N", b"D and more"],
                &["the ", "", ""],
                Some(0),
            ),
            (
                &["END"],
                &[b"the E", b"N", b"X"],
                &["the ", "", "ENX", ""],
                None,
            ),
            (&["END"], &[b"EEN", b"D"], &["E", ""], Some(0)),
            (&["aab"], &[b"aaa", b"b"], &["a", ""], Some(0)),
            (&[], &[b"abc"], &["abc", ""], None),
            (&[""], &[b"abc"], &["abc", ""], None),
            (&["xyz", "y"], &[b"x", b"y"], &["", "x"], Some(1)),
            (&["b", "ab"], &[b"a", b"b"], &["", ""], Some(1)),
            (
                &["\n\n"],
                &[b"a\n", b"b\n", b"\n"],
                &["a", "\nb", ""],
                Some(0),
            ),
            (&["EN"], &[b"a", b"E"], &["a", "", "E"], None),
        ];
        for (stops, pieces, output, stop) in cases {
            let found = run(stops, pieces);
            assert_eq!(
                (
                    found
                        .0
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>()
                        .as_slice(),
                    found.1
                ),
                (*output, *stop),
                "{stops:?} {pieces:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_search_in_the_whole_text(
            stops in prop::collection::vec("[ab]{1,4}", 0..4),
            text in "[abc]{0,40}",
            cut in 1usize..6,
        ) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
            let (output, stop) = run(&stops.iter().map(String::as_str).collect::<Vec<_>>(), &pieces);
            let first = stops.iter().enumerate()
                .filter_map(|(idx, stop)| text.find(stop.as_str()).map(|at| (at + stop.len(), at, idx)))
                .min();
            match first {
                None => {
                    prop_assert_eq!(stop, None);
                    prop_assert_eq!(output.concat(), text);
                }
                Some((_, at, idx)) => {
                    prop_assert_eq!(stop, Some(idx));
                    prop_assert_eq!(output.concat(), &text[..at]);
                }
            }
        }
    }
}
