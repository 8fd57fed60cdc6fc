//! Speculative decoding: which sequences carry draft tokens in a step, how many, and from which source.

use super::{Engine, Output, Request};
use crate::{
    Speculation,
    speculation::{Budget, DraftModel, DraftTask, MAX_DRAFT_TOKENS, Source},
};

impl Engine {
    /// Proposes draft tokens for the first sequences.
    pub(super) fn propose(&mut self, max_sequences: usize) {
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
            request.proposer.clear();
            request.sequence.set_draft(&[]);
            if !request.is_written() {
                continue;
            }
            let Request {
                sequence,
                proposer,
                draft_state,
                output: Output::Text(reply),
            } = request
            else {
                continue;
            };
            let tokens = sequence.tokens();
            let most = reply.room_for_draft(tokens.len()).min(MAX_DRAFT_TOKENS);
            // Looking for them takes longer than a prompt lookup.
            let forced = if most > 0 && (is_time || self.speculation != Speculation::Auto) {
                reply.forced_tokens(&self.tokenizer)
            } else {
                Vec::new()
            };
            proposer.look_up(tokens, &forced, most);
            // A draft model proposes no tokens beyond the last KV block, and none before the sequence has decoded
            // for as long as the draft model's own prefill would take: a short answer would not pay for it.
            let n_slots = tokens.len().next_multiple_of(block_size) - tokens.len();
            let can_read = |model: &&mut DraftModel| {
                sequence.images().is_empty() && model.can_read(sequence.tokens())
            };
            let model = self.draft.as_mut().filter(can_read).map(|model| {
                let is_worth_it =
                    draft_state.waited() >= model.seconds_to_read(draft_state, tokens);
                (model.per_draft_token(), is_worth_it)
            });
            let (source, n_draft_tokens) = match self.speculation {
                Speculation::Always(n) if model.is_some() => {
                    (Source::Model, n.min(most).min(n_slots))
                }
                Speculation::Always(n) => (Source::Lookup, n.min(proposer.draft_tokens().len())),
                Speculation::Auto if is_time => {
                    let found = proposer.draft_tokens().len();
                    let looked_up =
                        budget.consider(proposer.acceptance_rate(proposer.source()), found, 0.0);
                    let model = model.filter(|(_, is_worth_it)| *is_worth_it);
                    let drafted = model.map(|(per_draft_token, _)| {
                        let acceptance_rate = proposer.acceptance_rate(Source::Model);
                        budget.consider(acceptance_rate, most.min(n_slots), per_draft_token)
                    });
                    let drafted = drafted.filter(|choice| {
                        choice.n_draft_tokens > 0
                            && (looked_up.n_draft_tokens == 0 || choice.speed > looked_up.speed)
                    });
                    match drafted {
                        Some(choice) => (Source::Model, budget.take(choice)),
                        None => (Source::Lookup, budget.take(looked_up)),
                    }
                }
                Speculation::Auto | Speculation::Off => (Source::Lookup, 0),
            };
            if source == Source::Model && n_draft_tokens > 0 {
                proposer.ask_model();
                tasks.push(DraftTask {
                    tokens: sequence.tokens(),
                    n_draft_tokens,
                    draft_state,
                    proposer,
                });
            } else {
                if n_slots > 0 {
                    proposer.skip_model();
                }
                draft_state.wait(self.step_costs.of(n_first));
                sequence.set_draft(
                    &proposer.draft_tokens()[..n_draft_tokens.min(proposer.draft_tokens().len())],
                );
            }
        }
        let Some(model) = &mut self.draft else {
            return;
        };
        if tasks.is_empty() {
            model.rest();
            return;
        }
        model.propose(&mut tasks, self.step_target, &mut *self.account);
        for Request {
            sequence, proposer, ..
        } in &mut self.requests[..n_first]
        {
            if proposer.source() == Source::Model {
                sequence.set_draft(proposer.draft_tokens());
            }
        }
    }
}
