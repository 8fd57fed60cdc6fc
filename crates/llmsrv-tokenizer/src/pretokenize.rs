//! Cuts text into the words that byte-level BPE merges inside.
//!
//! A pre-tokenizer is a list of patterns. Each cuts every piece that the one before left: what it
//! matches and what lies between two matches are pieces of their own. All patterns run on finite
//! automata in linear time. They are written here as published, although automata know no
//! look-ahead: the only ones in use end the alternation and say that a run of white space leaves
//! its last character to the word behind it, which [`Tail`] does by hand.

use regex_automata::{Anchored, Input, meta::Regex};

use crate::pretokenizers::{self, CASCADE, Pattern, Rules};

/// The way a vocabulary cuts words.
#[derive(Debug)]
pub(crate) struct Pretokenizer {
    rules: &'static Rules,
    stages: Vec<Stage>,
}

impl Pretokenizer {
    /// Builds the pre-tokenizer of this name; the default one for names that are not known.
    pub(crate) fn new(name: &str) -> Pretokenizer {
        let rules = pretokenizers::find(name).unwrap_or_else(pretokenizers::default);
        let stages = rules.patterns.iter().filter_map(Stage::new).collect();
        Pretokenizer { rules, stages }
    }

    /// Returns whether words are spelled byte by byte.
    pub(crate) fn spells_bytes(&self) -> bool {
        !self.rules.keeps_characters
    }

    /// Returns whether white space parts words and is no part of any.
    pub(crate) fn drops_spaces(&self) -> bool {
        self.rules.drops_spaces
    }

    /// Returns whether a word that is a token as a whole is taken without merging.
    pub(crate) fn prefers_whole_words(&self) -> bool {
        self.rules.prefers_whole_words
    }

    /// Calls `word` with each word of `text`, in order; together they are the text.
    pub(crate) fn split<'t>(&self, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        split(&self.stages, text, word);
    }
}

fn split<'t>(stages: &[Stage], text: &'t str, word: &mut dyn FnMut(&'t str)) {
    match stages.split_first() {
        Some((stage, rest)) => stage.split(text, &mut |piece| split(rest, piece, word)),
        None => word(text),
    }
}

/// One pattern, compiled.
#[derive(Debug)]
struct Stage {
    regex: Regex,
    tail: Tail,
}

/// What happens to a match beyond the automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// It is a word.
    Keep,
    /// White space leaves its last character to the word behind it. With `newlines`, an earlier
    /// alternative has taken everything up to the last line end, so this one never ends with one.
    GiveBack { newlines: bool },
    /// As `GiveBack`, then cut into runs whose lengths are powers of two.
    Cascade,
    /// It is cut into threes from the right.
    Thousands,
}

impl Stage {
    fn new(pattern: &Pattern) -> Option<Stage> {
        let (alternatives, tail) = match *pattern {
            Pattern::Thousands(digits) => {
                return Some(Stage {
                    regex: compile(digits)?,
                    tail: Tail::Thousands,
                });
            }
            Pattern::Words(text) => {
                let newlines = text.contains(r"\s*[\r\n]");
                let give_back = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)"]
                    .iter()
                    .find_map(|end| text.strip_suffix(end));
                match (give_back, text.strip_suffix(CASCADE)) {
                    (Some(alternatives), _) => (alternatives, Tail::GiveBack { newlines }),
                    (None, Some(alternatives)) => (alternatives, Tail::Cascade),
                    (None, None) => {
                        return Some(Stage {
                            regex: compile(text)?,
                            tail: Tail::Keep,
                        });
                    }
                }
            }
        };
        Some(Stage {
            regex: compile(&format!(r"{alternatives}|\s+"))?,
            tail,
        })
    }

    fn split<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        let mut done = 0;
        let mut at = 0;
        while let Some((start, end)) = self.find(text, at) {
            emit(text, done, start, piece);
            done = self.cut(text, start, end, piece);
            at = done;
        }
        emit(text, done, text.len(), piece);
    }

    /// Returns the next match that is not empty. Most patterns match everywhere, so the place at
    /// hand is tried first: an anchored search reads the word once, a free one twice.
    fn find(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        let input = Input::new(text).range(at..);
        let here = self
            .regex
            .search_half(&input.clone().anchored(Anchored::Yes));
        match here {
            Some(end) => Some((at, end.offset())),
            None => self
                .regex
                .search(&input)
                .map(|found| (found.start(), found.end())),
        }
        .filter(|(start, end)| start < end)
    }

    /// Emits the match `start..end`, or what the tail leaves of it, and returns where that ends.
    fn cut<'t>(
        &self,
        text: &'t str,
        start: usize,
        end: usize,
        piece: &mut dyn FnMut(&'t str),
    ) -> usize {
        let matched = text.get(start..end).unwrap_or_default();
        let newlines = match self.tail {
            Tail::Keep => {
                piece(matched);
                return end;
            }
            Tail::Thousands => {
                let n_digits = matched.chars().count();
                let mut from = 0;
                for (idx, (at, _)) in matched.char_indices().enumerate().skip(1) {
                    if (n_digits - idx).is_multiple_of(3) {
                        emit(matched, from, at, piece);
                        from = at;
                    }
                }
                emit(matched, from, matched.len(), piece);
                return end;
            }
            Tail::GiveBack { newlines } => newlines,
            Tail::Cascade => true,
        };
        let is_space = matched
            .chars()
            .next_back()
            .is_some_and(|c| c.is_whitespace() && !(newlines && matches!(c, '\r' | '\n')));
        if !is_space {
            piece(matched);
            return end;
        }
        let lasts = matched.chars().next_back().map_or(0, char::len_utf8);
        let kept = if end < text.len() && lasts < matched.len() {
            end - lasts
        } else {
            end
        };
        let spaces = text.get(start..kept).unwrap_or_default();
        if self.tail == Tail::Cascade {
            let mut rest = spaces;
            let mut left = rest.chars().count();
            for run in CASCADE_RUNS {
                while left >= run {
                    let len: usize = rest.chars().take(run).map(char::len_utf8).sum();
                    emit(rest, 0, len, piece);
                    rest = rest.get(len..).unwrap_or_default();
                    left -= run;
                }
            }
        } else {
            piece(spaces);
        }
        kept
    }
}

fn emit<'t>(text: &'t str, start: usize, end: usize, piece: &mut dyn FnMut(&'t str)) {
    if let Some(part) = text.get(start..end).filter(|part| !part.is_empty()) {
        piece(part);
    }
}

/// The lengths that [`CASCADE`] names.
const CASCADE_RUNS: [usize; 10] = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];

/// Compiles a pattern of a table; a test proves that all of them compile.
pub(crate) fn compile(pattern: &str) -> Option<Regex> {
    let lazy = Regex::config()
        .nfa_size_limit(Some(64 << 20))
        .hybrid_cache_capacity(8 << 20);
    Regex::builder().configure(lazy).build(pattern).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same rules on a backtracking engine that knows look-ahead.
    fn reference(patterns: &[fancy_regex::Regex], text: &str) -> Vec<String> {
        let Some((pattern, rest)) = patterns.split_first() else {
            return vec![text.to_owned()];
        };
        let mut pieces = Vec::new();
        let mut done = 0;
        for found in pattern.find_iter(text) {
            let found = found.unwrap();
            pieces.extend([
                &text[done..found.start()],
                &text[found.start()..found.end()],
            ]);
            done = found.end();
        }
        pieces.push(&text[done..]);
        pieces.retain(|piece| !piece.is_empty());
        pieces
            .into_iter()
            .flat_map(|piece| reference(rest, piece))
            .collect()
    }

    fn split(pretokenizer: &Pretokenizer, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        pretokenizer.split(text, &mut |word| words.push(word.to_owned()));
        words
    }

    /// Every pre-tokenizer beside its published patterns.
    fn all() -> Vec<(Pretokenizer, Vec<fancy_regex::Regex>)> {
        pretokenizers::TABLE
            .iter()
            .map(|rules| {
                let pretokenizer = Pretokenizer::new(rules.names[0]);
                assert_eq!(
                    pretokenizer.stages.len(),
                    rules.patterns.len(),
                    "{:?}",
                    rules.names
                );
                let published = |pattern: &Pattern| {
                    let text = match *pattern {
                        Pattern::Words(text) => text.to_owned(),
                        // Digits that stand before a multiple of three others of the same run.
                        Pattern::Thousands(digits) => {
                            let digit = digits.trim_end_matches(r"\b").trim_end_matches('+');
                            let end = if digits.ends_with(r"\b") { r"\b" } else { "" };
                            format!("{digit}{{1,3}}(?=(?:{digit}{{3}})*(?!{digit}){end})")
                        }
                    };
                    fancy_regex::Regex::new(&text).unwrap()
                };
                (pretokenizer, rules.patterns.iter().map(published).collect())
            })
            .collect()
    }

    #[test]
    fn words_are_those_of_the_published_patterns() {
        let all = all();
        let char = prop_oneof![
            4 => proptest::sample::select("aZé中ー٣1²'sTLe \n\r\t\u{a0}\u{301}।!$_./<👩\u{200d}ʰǅſ".chars().collect::<Vec<_>>()),
            1 => any::<char>(),
        ];
        let text = proptest::collection::vec((char, 1..4usize), 0..24);
        let config = ProptestConfig {
            cases: 300,
            ..ProptestConfig::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        runner
            .run(&text, |parts| {
                let text: String = parts
                    .into_iter()
                    .flat_map(|(c, n)| std::iter::repeat_n(c, n))
                    .collect();
                for (pretokenizer, published) in &all {
                    let expected = reference(published, &text);
                    prop_assert_eq!(
                        split(pretokenizer, &text),
                        expected,
                        "{:?}",
                        pretokenizer.rules.names
                    );
                }
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn long_runs_take_linear_time() {
        for (pretokenizer, _) in all() {
            for unit in ["a", "1", " ", "\n", " \n", "!", "中", "a ", "'"] {
                let text = unit.repeat(60_000 / unit.len());
                assert_eq!(split(&pretokenizer, &text).concat(), text);
                let text = format!("{text}x");
                assert_eq!(split(&pretokenizer, &text).concat(), text);
            }
        }
    }
}
