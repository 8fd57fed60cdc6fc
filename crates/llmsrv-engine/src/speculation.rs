//! Guessing ahead, from what a sequence has said before (prompt lookup) or with a small model
//! ([`draft`]).
//!
//! Code that is edited, text that is summarised and JSON repeat long stretches of what is there
//! already, and a small model knows many of the words of a big one. A step over a few positions reads
//! the weights once, so guesses that come true are nearly free. A guess becomes output only where it is
//! the token that its row's logits give anyway: the output is the one without guessing, random draws
//! included, since one is made for each token that stands and none for the others.
//!
//! Whether guesses pay is measured: how often those of a sequence come true, and what a step over so
//! many rows takes here.

mod costs;
mod draft;

use crate::TokenId;

pub(crate) use costs::{Budget, StepCosts};
pub(crate) use draft::{DraftModel, Shadow, Task};

/// Whether and how far the engine guesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// Never.
    Off,
    /// As far as it pays.
    #[default]
    Auto,
    /// Always so many tokens, where there is something to guess from.
    Always(usize),
}

/// The guesses of one sequence.
#[derive(Debug)]
pub(crate) struct Drafter {
    source: Source,
    /// Chance that a guess comes true, of those tried lately, by source.
    chances: [f32; 2],
    guesses: Vec<TokenId>,
    n_checked: usize,
}

/// Where guesses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What followed before.
    Lookup,
    /// A small model.
    Model,
}

impl Drafter {
    pub(crate) fn new() -> Drafter {
        Drafter {
            source: Source::Lookup,
            chances: [0.5; 2],
            guesses: Vec::new(),
            n_checked: 0,
        }
    }

    /// Forgets the guesses of the step before.
    pub(crate) fn clear(&mut self) {
        self.guesses.clear();
        self.n_checked = 0;
    }

    /// Guesses up to `most` tokens after `tokens`: those that followed when the last few came before.
    pub(crate) fn look_up(&mut self, tokens: &[TokenId], most: usize) {
        self.clear();
        self.source = Source::Lookup;
        self.guesses.extend_from_slice(followers(tokens, most));
    }

    /// Prepares for guesses of a model, which are added one by one.
    pub(crate) fn ask_model(&mut self) {
        self.clear();
        self.source = Source::Model;
    }

    /// Adds a guess.
    pub(crate) fn add(&mut self, guess: TokenId) {
        self.guesses.push(guess);
    }

    /// Returns where the guesses come from.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Returns what was guessed.
    pub(crate) fn guesses(&self) -> &[TokenId] {
        &self.guesses
    }

    /// Returns the chance that a guess from there comes true.
    pub(crate) fn chance(&self, source: Source) -> f32 {
        self.chances[source as usize]
    }

    /// Notes that a model might have guessed, but did not: it is tried again some day.
    pub(crate) fn skip_model(&mut self) {
        let chance = &mut self.chances[Source::Model as usize];
        *chance += (0.5 - *chance).max(0.0) / FORGETTING;
    }

    /// Compares the next token with its guess, also where the guess was not used.
    pub(crate) fn check(&mut self, token: TokenId) {
        if let Some(guess) = self.guesses.get(self.n_checked) {
            let hit = if *guess == token { 1.0 } else { 0.0 };
            let chance = &mut self.chances[self.source as usize];
            *chance += (hit - *chance) / MEMORY;
            // What follows a wrong guess says nothing.
            self.n_checked = match hit {
                1.0 => self.n_checked + 1,
                _ => usize::MAX,
            };
        }
    }
}

/// Returns what followed the last occurrence of the longest end of `tokens` that came before.
fn followers(tokens: &[TokenId], most: usize) -> &[TokenId] {
    let recent = &tokens[tokens.len().saturating_sub(FARTHEST)..];
    for length in (SHORTEST..=LONGEST).rev() {
        let Some(before) = recent.len().checked_sub(length) else {
            continue;
        };
        let end = &recent[before..];
        let last = recent[..recent.len() - 1]
            .windows(length)
            .rposition(|part| part == end);
        if let Some(at) = last {
            let from = &recent[at + length..];
            return &from[..from.len().min(most)];
        }
    }
    &[]
}

/// Most tokens guessed at a time.
pub(crate) const MOST_GUESSES: usize = 7;
/// Tokens that must come again before the next ones are guessed.
const SHORTEST: usize = 2;
const LONGEST: usize = 4;
/// Tokens that are looked through.
const FARTHEST: usize = 1 << 14;
/// Over how many samples averages go.
const MEMORY: f32 = 8.0;
/// Over how many steps what is not measured is forgotten.
const FORGETTING: f32 = 512.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_came_before_is_guessed_from_the_longest_end_and_the_last_time() {
        let guess = |tokens: &[TokenId], most| followers(tokens, most).to_vec();
        assert_eq!(guess(&[1, 2, 3, 4, 5, 1, 2], 3), [3, 4, 5]);
        assert_eq!(
            guess(&[1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 1),
            [4],
            "the last time"
        );
        assert_eq!(
            guess(&[5, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2], 1),
            [3],
            "the longer end"
        );
        assert_eq!(guess(&[7, 7, 7], 4), [7], "it may overlap what is there");
        assert!(guess(&[1, 2, 3], 4).is_empty());
        assert!(guess(&[1], 4).is_empty());
        assert!(guess(&[], 4).is_empty());
    }

    #[test]
    fn the_chance_follows_what_comes_true() {
        let mut drafter = Drafter::new();
        for _ in 0..40 {
            drafter.look_up(&[1, 2, 3, 4, 1, 2], 2);
            drafter.check(3);
            drafter.check(4);
        }
        assert!(drafter.chance(Source::Lookup) > 0.95);
        for _ in 0..40 {
            drafter.look_up(&[1, 2, 3, 4, 1, 2], 2);
            drafter.check(9);
            // Not compared: it follows a wrong guess.
            drafter.check(4);
        }
        assert!(drafter.chance(Source::Lookup) < 0.05);
        assert!((0.5..0.51).contains(&drafter.chance(Source::Model)));
    }

    proptest! {
        #[test]
        fn guesses_are_a_part_of_the_tokens_that_follows_their_end(
            tokens in prop::collection::vec(0u32..3, 0..60), most in 0usize..9,
        ) {
            let guesses = followers(&tokens, most);
            prop_assert!(guesses.len() <= most);
            if !guesses.is_empty() {
                let n = tokens.len();
                let found = tokens.windows(2 + guesses.len())
                    .any(|part| part[..2] == tokens[n - 2..] && part[2..] == *guesses);
                prop_assert!(found);
            }
        }
    }
}
