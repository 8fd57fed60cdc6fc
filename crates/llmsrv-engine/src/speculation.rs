//! Guessing ahead from what a sequence has said before (prompt lookup).
//!
//! Code that is edited, text that is summarised and JSON repeat long stretches of what is there
//! already. A step over a few positions reads the weights once, so guesses that come true are nearly
//! free. A guess becomes output only where it is the token that its row's logits give anyway: the
//! output is the one without guessing, random draws included, since one is made for each token that
//! stands and none for the others.
//!
//! Whether guesses pay is measured: how often those of a sequence come true, and what a step over so
//! many rows takes here.

use crate::TokenId;

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
    /// Chance that a guess comes true, of those tried lately.
    chance: f32,
    guesses: Vec<TokenId>,
    n_checked: usize,
}

impl Drafter {
    pub(crate) fn new() -> Drafter {
        Drafter {
            chance: 0.5,
            guesses: Vec::new(),
            n_checked: 0,
        }
    }

    /// Forgets the guesses of the step before, and guesses up to `most` tokens after `tokens`: those
    /// that followed when the last few came before.
    pub(crate) fn guess(&mut self, tokens: &[TokenId], most: usize) {
        self.guesses.clear();
        self.n_checked = 0;
        self.guesses.extend_from_slice(followers(tokens, most));
    }

    /// Returns what was guessed.
    pub(crate) fn guesses(&self) -> &[TokenId] {
        &self.guesses
    }

    /// Compares the next token with its guess, also where the guess was not used.
    pub(crate) fn check(&mut self, token: TokenId) {
        if let Some(guess) = self.guesses.get(self.n_checked) {
            let hit = if *guess == token { 1.0 } else { 0.0 };
            self.chance += (hit - self.chance) / MEMORY;
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

/// What a step takes by the number of its rows, as measured lately.
#[derive(Debug)]
pub(crate) struct StepCosts {
    /// Seconds; 0 = never measured.
    seconds: [f32; MOST_ROWS + 1],
}

impl Default for StepCosts {
    fn default() -> StepCosts {
        StepCosts {
            seconds: [0.0; MOST_ROWS + 1],
        }
    }
}

impl StepCosts {
    /// Notes how long a step took in which every row gave logits.
    pub(crate) fn note(&mut self, n_rows: usize, seconds: f32) {
        if n_rows > MOST_ROWS || seconds <= 0.0 {
            return;
        }
        let known = self.seconds[n_rows];
        self.seconds[n_rows] = match known {
            0.0 => seconds,
            // One step during which the machine did something else says little.
            known => known + (seconds.min(2.0 * known) - known) / MEMORY,
        };
        // What was too slow once is tried again some day.
        let floor = self.seconds[n_rows];
        for other in &mut self.seconds[n_rows + 1..] {
            if *other > floor {
                *other -= (*other - floor) / FORGETTING;
            }
        }
    }

    /// Returns the seconds of a step of so many rows. One that was never measured costs as much as
    /// the next smaller one: it is tried, and then known.
    fn of(&self, n_rows: usize) -> f32 {
        let known = &self.seconds[..=n_rows.min(MOST_ROWS)];
        known
            .iter()
            .rev()
            .copied()
            .find(|seconds| *seconds > 0.0)
            .unwrap_or(0.0)
    }
}

/// Shares out the guesses of one step.
#[derive(Debug)]
pub(crate) struct Budget<'a> {
    costs: &'a StepCosts,
    n_rows: usize,
    /// Tokens that the step is expected to give.
    expected: f32,
}

impl Budget<'_> {
    /// Begins with a step of one row for each of so many sequences.
    pub(crate) fn new(costs: &StepCosts, n_sequences: usize) -> Budget<'_> {
        Budget {
            costs,
            n_rows: n_sequences,
            expected: n_sequences as f32,
        }
    }

    /// Returns how many of a sequence's guesses to try: as many as give the most tokens a second.
    pub(crate) fn take(&mut self, drafter: &Drafter) -> usize {
        if self.n_rows > MOST_ROWS || self.costs.seconds[self.n_rows] == 0.0 {
            return 0;
        }
        let most = drafter.guesses.len().min(MOST_ROWS - self.n_rows);
        let mut best = (0, self.expected / self.costs.of(self.n_rows) * WORTH_IT);
        let (mut expected, mut chance) = (self.expected, 1.0);
        let mut best_expected = expected;
        for n in 1..=most {
            chance *= drafter.chance;
            expected += chance;
            let speed = expected / self.costs.of(self.n_rows + n);
            if speed > best.1 {
                best = (n, speed);
                best_expected = expected;
            }
        }
        self.n_rows += best.0;
        self.expected = best_expected;
        best.0
    }
}

/// Most tokens guessed at a time.
pub(crate) const MOST_GUESSES: usize = 7;
/// Tokens that must come again before the next ones are guessed.
const SHORTEST: usize = 2;
const LONGEST: usize = 4;
/// Tokens that are looked through.
const FARTHEST: usize = 1 << 14;
/// Steps with more rows are not made longer by guesses.
const MOST_ROWS: usize = 32;
/// Over how many samples averages go.
const MEMORY: f32 = 8.0;
/// Over how many steps a cost that is not measured falls back.
const FORGETTING: f32 = 512.0;
/// By how much a step must become faster to be made longer.
const WORTH_IT: f32 = 1.03;

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

    fn drafter(chance: f32) -> Drafter {
        Drafter {
            chance,
            guesses: vec![0; MOST_GUESSES],
            n_checked: 0,
        }
    }

    #[test]
    fn as_many_are_tried_as_pay() {
        let mut costs = StepCosts::default();
        assert_eq!(
            Budget::new(&costs, 1).take(&drafter(1.0)),
            0,
            "nothing is known yet"
        );
        costs.note(1, 0.010);
        assert_eq!(
            Budget::new(&costs, 1).take(&drafter(0.5)),
            MOST_GUESSES,
            "what is not known is tried"
        );
        // As where every row takes as long as a step.
        for rows in 2..=32 {
            costs.note(rows, 0.010 * rows as f32);
        }
        assert_eq!(Budget::new(&costs, 1).take(&drafter(0.9)), 0);
        // As where memory is the limit: four rows for less than two.
        let mut costs = StepCosts::default();
        for rows in 1..=32 {
            costs.note(
                rows,
                0.010
                    * if rows <= 4 {
                        1.0 + 0.1 * rows as f32
                    } else {
                        rows as f32
                    },
            );
        }
        assert_eq!(Budget::new(&costs, 1).take(&drafter(0.95)), 3);
        assert_eq!(Budget::new(&costs, 1).take(&drafter(0.02)), 0);
        let mut shared = Budget::new(&costs, 2);
        assert_eq!(shared.take(&drafter(0.95)) + shared.take(&drafter(0.95)), 2);
    }

    #[test]
    fn a_slow_step_is_tried_again_some_day() {
        let mut costs = StepCosts::default();
        costs.note(1, 0.010);
        costs.note(2, 1.0);
        assert_eq!(Budget::new(&costs, 1).take(&drafter(0.0)), 0);
        let mut chosen = 0;
        for _ in 0..5000 {
            costs.note(1, 0.010);
            let mut one = drafter(0.9);
            one.guesses.truncate(1);
            chosen = Budget::new(&costs, 1).take(&one);
        }
        assert_eq!(chosen, 1);
    }

    #[test]
    fn the_chance_follows_what_comes_true() {
        let mut drafter = Drafter::new();
        for _ in 0..40 {
            drafter.guess(&[1, 2, 3, 4, 1, 2], 2);
            drafter.check(3);
            drafter.check(4);
        }
        assert!(drafter.chance > 0.95);
        for _ in 0..40 {
            drafter.guess(&[1, 2, 3, 4, 1, 2], 2);
            drafter.check(9);
            // Not compared: it follows a wrong guess.
            drafter.check(4);
        }
        assert!(drafter.chance < 0.05);
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
