//! Whether draft tokens pay: what steps take, and how many draft tokens make the most of that.

use super::{FORGETTING, MEMORY};

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
    pub(crate) fn of(&self, n_rows: usize) -> f32 {
        let known = &self.seconds[..=n_rows.min(MOST_ROWS)];
        known
            .iter()
            .rev()
            .copied()
            .find(|seconds| *seconds > 0.0)
            .unwrap_or(0.0)
    }
}

/// Shares out the draft tokens of one step.
#[derive(Debug)]
pub(crate) struct Budget<'a> {
    costs: &'a StepCosts,
    n_rows: usize,
    /// Tokens that the step is expected to give.
    expected: f32,
    /// Seconds that a small model needs for the draft tokens.
    speculation: f32,
}

/// How far to draft for one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) n_draft_tokens: usize,
    /// Tokens a second that the step is then expected to give.
    pub(crate) speed: f32,
    expected: f32,
    speculation: f32,
}

impl Budget<'_> {
    /// Begins with a step of one row for each of so many sequences.
    pub(crate) fn new(costs: &StepCosts, n_sequences: usize) -> Budget<'_> {
        Budget {
            costs,
            n_rows: n_sequences,
            expected: n_sequences as f32,
            speculation: 0.0,
        }
    }

    /// Returns how many of a sequence's draft tokens to try, at most `most`: as many as give the most
    /// tokens a second. Each is accepted with the probability `acceptance_rate`, and takes `seconds` to be made; sequences make
    /// theirs at the same time.
    pub(crate) fn consider(&self, acceptance_rate: f32, most: usize, seconds: f32) -> Choice {
        let mut best = Choice {
            n_draft_tokens: 0,
            speed: 0.0,
            expected: self.expected,
            speculation: self.speculation,
        };
        if self.n_rows > MOST_ROWS || self.costs.seconds[self.n_rows] == 0.0 {
            return best;
        }
        best.speed = self.expected / (self.costs.of(self.n_rows) + self.speculation) * WORTH_IT;
        let most = most.min(MOST_ROWS - self.n_rows);
        let (mut expected, mut all_true) = (self.expected, 1.0);
        for n in 1..=most {
            all_true *= acceptance_rate;
            expected += all_true;
            let speculation = self.speculation.max(n as f32 * seconds);
            let speed = expected / (self.costs.of(self.n_rows + n) + speculation);
            if speed > best.speed {
                best = Choice {
                    n_draft_tokens: n,
                    speed,
                    expected,
                    speculation,
                };
            }
        }
        best
    }

    /// Takes what was chosen into the step.
    pub(crate) fn take(&mut self, choice: Choice) -> usize {
        self.n_rows += choice.n_draft_tokens;
        self.expected = choice.expected;
        self.speculation = choice.speculation;
        choice.n_draft_tokens
    }
}

/// Steps with more rows are not made longer by draft tokens.
const MOST_ROWS: usize = 32;
/// By how much a step must become faster to be made longer.
const WORTH_IT: f32 = 1.03;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculation::MAX_DRAFT_TOKENS;

    fn chosen(costs: &StepCosts, acceptance_rate: f32, seconds: f32) -> usize {
        let choice = Budget::new(costs, 1).consider(acceptance_rate, MAX_DRAFT_TOKENS, seconds);
        choice.n_draft_tokens
    }

    #[test]
    fn as_many_are_tried_as_pay() {
        let mut costs = StepCosts::default();
        assert_eq!(chosen(&costs, 1.0, 0.0), 0, "nothing is known yet");
        costs.note(1, 0.010);
        assert_eq!(
            chosen(&costs, 0.5, 0.0),
            MAX_DRAFT_TOKENS,
            "what is not known is tried"
        );
        // As where every row takes as long as a step.
        for rows in 2..=32 {
            costs.note(rows, 0.010 * rows as f32);
        }
        assert_eq!(chosen(&costs, 0.9, 0.0), 0);
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
        assert_eq!(chosen(&costs, 0.95, 0.0), 3);
        assert_eq!(chosen(&costs, 0.02, 0.0), 0);
        let mut shared = Budget::new(&costs, 2);
        let mut n_shared = 0;
        for _ in 0..2 {
            n_shared += shared.take(shared.consider(0.95, MAX_DRAFT_TOKENS, 0.0));
        }
        assert_eq!(n_shared, 2);
        // What a draft token takes to be made counts.
        assert_eq!(chosen(&costs, 0.95, 0.001), 3);
        assert_eq!(chosen(&costs, 0.95, 0.010), 0);
    }

    #[test]
    fn a_slow_step_is_tried_again_some_day() {
        let mut costs = StepCosts::default();
        costs.note(1, 0.010);
        costs.note(2, 1.0);
        assert_eq!(chosen(&costs, 0.0, 0.0), 0);
        let mut n = 0;
        for _ in 0..5000 {
            costs.note(1, 0.010);
            n = Budget::new(&costs, 1).consider(0.9, 1, 0.0).n_draft_tokens;
        }
        assert_eq!(n, 1);
    }
}
