//! Which sequences guess ahead in a step, how far, and from what.

use super::{Engine, Output, Request};
use crate::{
    Speculation,
    speculation::{Budget, DraftModel, MOST_GUESSES, Source, Task},
};

impl Engine {
    /// Lets the first sequences guess what comes after their next token.
    pub(super) fn guess(&mut self, max_sequences: usize) {
        if self.speculation == Speculation::Off {
            return;
        }
        let n_first = self.requests.len().min(max_sequences);
        let first = &mut self.requests[..n_first];
        // Beside prompts that are read, rows are not free.
        let is_time = first.iter().all(Request::is_written);
        let block_size = self.blocks.block_size();
        let mut budget = Budget::new(&self.step_costs, n_first);
        let mut tasks = Vec::new();
        for request in first {
            request.drafter.clear();
            request.sequence.set_draft(&[]);
            if !request.is_written() {
                continue;
            }
            let Request {
                sequence,
                drafter,
                shadow,
                output: Output::Text(reply),
            } = request
            else {
                continue;
            };
            let tokens = sequence.tokens();
            let most = reply.room_for_draft(tokens.len()).min(MOST_GUESSES);
            drafter.look_up(tokens, most);
            // A small model is not asked for guesses that find no place in the last block, nor before
            // as much was waited as reading the sequence takes: a short answer is not paid for.
            let n_slots = tokens.len().next_multiple_of(block_size) - tokens.len();
            let can_read = |model: &&mut DraftModel| {
                sequence.images().is_empty() && model.can_read(sequence.tokens())
            };
            let model = self.draft.as_mut().filter(can_read).map(|model| {
                let is_worth_it = shadow.waited() >= model.seconds_to_read(shadow, tokens);
                (model.per_guess(), is_worth_it)
            });
            let (source, n_guesses) = match self.speculation {
                Speculation::Always(n) if model.is_some() => {
                    (Source::Model, n.min(most).min(n_slots))
                }
                Speculation::Always(n) => (Source::Lookup, n.min(drafter.guesses().len())),
                Speculation::Auto if is_time => {
                    let found = drafter.guesses().len();
                    let looked_up = budget.consider(drafter.chance(Source::Lookup), found, 0.0);
                    let model = model.filter(|(_, is_worth_it)| *is_worth_it);
                    let guessed = model.map(|(per_guess, _)| {
                        let chance = drafter.chance(Source::Model);
                        budget.consider(chance, most.min(n_slots), per_guess)
                    });
                    let guessed = guessed.filter(|choice| {
                        choice.n_guesses > 0
                            && (looked_up.n_guesses == 0 || choice.speed > looked_up.speed)
                    });
                    match guessed {
                        Some(choice) => (Source::Model, budget.take(choice)),
                        None => (Source::Lookup, budget.take(looked_up)),
                    }
                }
                Speculation::Auto | Speculation::Off => (Source::Lookup, 0),
            };
            if source == Source::Model && n_guesses > 0 {
                drafter.ask_model();
                tasks.push(Task {
                    tokens: sequence.tokens(),
                    n_guesses,
                    shadow,
                    drafter,
                });
            } else {
                if n_slots > 0 {
                    drafter.skip_model();
                }
                shadow.wait(self.step_costs.of(n_first));
                sequence.set_draft(&drafter.guesses()[..n_guesses.min(drafter.guesses().len())]);
            }
        }
        let Some(model) = &mut self.draft else {
            return;
        };
        if tasks.is_empty() {
            model.rest();
            return;
        }
        model.guess(&mut tasks, self.step_target, &mut *self.account);
        for Request {
            sequence, drafter, ..
        } in &mut self.requests[..n_first]
        {
            if drafter.source() == Source::Model {
                sequence.set_draft(drafter.guesses());
            }
        }
    }
}
