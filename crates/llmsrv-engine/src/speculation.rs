//! Speculative decoding: draft tokens from what a sequence has said before (prompt lookup), from a grammar that leaves no
//! choice, or with a small model ([`draft`]).
//!
//! Code that is edited, text that is summarised and JSON repeat long stretches of what is there
//! already, a schema says the names of what it wants, and a small model knows many of the words of a
//! big one. A step over a few positions reads the weights once, so accepted draft tokens are nearly free. A draft token becomes output only where it is
//! the token that its row's logits give anyway: the output is the one without speculation, random draws
//! included, since one is made for each token that stands and none for the others.
//!
//! Whether draft tokens pay is measured: how many of a sequence's are accepted, and what a step over so
//! many rows takes here.

mod costs;
mod draft;

use crate::TokenId;

pub(crate) use costs::{Budget, StepCosts};
pub(crate) use draft::{DraftModel, DraftState, DraftTask};

/// The draft tokens of one sequence.
#[derive(Debug)]
pub(crate) struct Proposer {
    source: Source,
    /// Share of the draft tokens that were accepted lately, by source.
    acceptance_rates: [f32; 3],
    draft_tokens: Vec<TokenId>,
    n_checked: usize,
}

/// Where draft tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What followed before.
    Lookup,
    /// A small model.
    Model,
    /// What a grammar leaves no choice about.
    Grammar,
}

impl Proposer {
    pub(crate) fn new() -> Proposer {
        Proposer {
            source: Source::Lookup,
            acceptance_rates: [0.5; 3],
            draft_tokens: Vec::new(),
            n_checked: 0,
        }
    }

    /// Forgets the draft tokens of the step before.
    pub(crate) fn clear(&mut self) {
        self.draft_tokens.clear();
        self.n_checked = 0;
    }

    /// Proposes up to `most` tokens after `tokens`: those that followed when the last few came before, or those that a
    /// grammar leaves no choice about, if it says something else.
    pub(crate) fn look_up(&mut self, tokens: &[TokenId], forced: &[TokenId], most: usize) {
        self.clear();
        let found = followers(tokens, most);
        let forced = &forced[..forced.len().min(most)];
        let (source, draft_tokens) = if found.starts_with(forced) {
            (Source::Lookup, found)
        } else {
            (Source::Grammar, forced)
        };
        self.source = source;
        self.draft_tokens.extend_from_slice(draft_tokens);
    }

    /// Prepares for draft tokens of a model, which are added one by one.
    pub(crate) fn ask_model(&mut self) {
        self.clear();
        self.source = Source::Model;
    }

    /// Adds a draft token.
    pub(crate) fn add(&mut self, draft_token: TokenId) {
        self.draft_tokens.push(draft_token);
    }

    /// Returns where the draft tokens come from.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Returns what was drafted.
    pub(crate) fn draft_tokens(&self) -> &[TokenId] {
        &self.draft_tokens
    }

    /// Returns the share of draft tokens from a source that were accepted lately.
    pub(crate) fn acceptance_rate(&self, source: Source) -> f32 {
        self.acceptance_rates[source as usize]
    }

    /// Notes that a model might have drafted, but did not: it is tried again some day.
    pub(crate) fn skip_model(&mut self) {
        let rate = &mut self.acceptance_rates[Source::Model as usize];
        *rate += (0.5 - *rate).max(0.0) / FORGETTING;
    }

    /// Compares the next token with its draft token, also where the draft token was not used.
    pub(crate) fn check(&mut self, token: TokenId) {
        if let Some(draft_token) = self.draft_tokens.get(self.n_checked) {
            let hit = if *draft_token == token { 1.0 } else { 0.0 };
            let rate = &mut self.acceptance_rates[self.source as usize];
            *rate += (hit - *rate) / MEMORY;
            // What follows a wrong draft token says nothing.
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

/// Most tokens drafted at a time.
pub(crate) const MAX_DRAFT_TOKENS: usize = 7;
/// Tokens that must come again before the next ones are drafted.
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
        let draft_token = |tokens: &[TokenId], most| followers(tokens, most).to_vec();
        assert_eq!(draft_token(&[1, 2, 3, 4, 5, 1, 2], 3), [3, 4, 5]);
        assert_eq!(
            draft_token(&[1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 1),
            [4],
            "the last time"
        );
        assert_eq!(
            draft_token(&[5, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2], 1),
            [3],
            "the longer end"
        );
        assert_eq!(
            draft_token(&[7, 7, 7], 4),
            [7],
            "it may overlap what is there"
        );
        assert!(draft_token(&[1, 2, 3], 4).is_empty());
        assert!(draft_token(&[1], 4).is_empty());
        assert!(draft_token(&[], 4).is_empty());
    }

    #[test]
    fn the_chance_follows_what_comes_true() {
        let mut proposer = Proposer::new();
        for _ in 0..40 {
            proposer.look_up(&[1, 2, 3, 4, 1, 2], &[], 2);
            proposer.check(3);
            proposer.check(4);
        }
        assert!(proposer.acceptance_rate(Source::Lookup) > 0.95);
        for _ in 0..40 {
            proposer.look_up(&[1, 2, 3, 4, 1, 2], &[], 2);
            proposer.check(9);
            // Not compared: it follows a wrong draft token.
            proposer.check(4);
        }
        assert!(proposer.acceptance_rate(Source::Lookup) < 0.05);
        assert!((0.5..0.51).contains(&proposer.acceptance_rate(Source::Model)));
    }

    #[test]
    fn what_a_grammar_forces_comes_before_other_guesses_and_has_a_rate_of_its_own() {
        let mut proposer = Proposer::new();
        let tokens = [1, 2, 3, 4, 5, 6, 1, 2];
        for _ in 0..40 {
            proposer.look_up(&tokens, &[7, 8, 9], 2);
            assert_eq!(proposer.draft_tokens(), [7, 8]);
            proposer.check(7);
            proposer.check(8);
        }
        assert!(proposer.acceptance_rate(Source::Grammar) > 0.95);
        assert!((0.5..0.51).contains(&proposer.acceptance_rate(Source::Lookup)));
        proposer.look_up(&tokens, &[3], 4);
        assert_eq!(proposer.draft_tokens(), [3, 4, 5, 6], "both agree");
        assert_eq!(proposer.source(), Source::Lookup);
        proposer.look_up(&[], &[], 2);
        assert!(proposer.draft_tokens().is_empty());
    }

    proptest! {
        #[test]
        fn guesses_are_a_part_of_the_tokens_that_follows_their_end(
            tokens in prop::collection::vec(0u32..3, 0..60), most in 0usize..9,
        ) {
            let draft_tokens = followers(&tokens, most);
            prop_assert!(draft_tokens.len() <= most);
            if !draft_tokens.is_empty() {
                let n = tokens.len();
                let found = tokens.windows(2 + draft_tokens.len())
                    .any(|part| part[..2] == tokens[n - 2..] && part[2..] == *draft_tokens);
                prop_assert!(found);
            }
        }
    }
}
