//! The loop that serves all requests of one model, step by step.
//!
//! Each round takes new requests, forgets those that nobody waits for, plans a step, lets the
//! model compute it, and turns each row of logits into a token and its events. No part calls
//! back: what a function needs is handed to it, what it decides is returned.

use std::{
    borrow::{Borrow, BorrowMut},
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use llmsrv_tokenizer::Tokenizer;

use crate::{
    EngineOptions, FinishReason, Model, ModelError, Stats,
    blocks::Blocks,
    handle::Submission,
    reply::{Next, Reply, Tools},
    sample::{Candidates, LogProbs},
    scheduler::{Scheduler, Step},
    sequence::Sequence,
};

/// Everything the engine thread owns.
pub(crate) struct Engine {
    model: Box<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    scheduler: Scheduler,
    blocks: Blocks,
    n_reserved: usize,
    /// All requests, oldest first.
    requests: Vec<Request>,
    step: Step,
    logits: Vec<f32>,
    memory: Memory,
    stats: Stats,
    published: Arc<Mutex<Stats>>,
}

/// One request: its part of the plan and its part of the output.
struct Request {
    sequence: Sequence,
    reply: Reply,
}

/// Working memory of the replies.
#[derive(Default)]
struct Memory {
    candidates: Candidates,
    log_probs: LogProbs,
    released: Vec<u8>,
}

impl Engine {
    pub(crate) fn new(
        model: Box<dyn Model>,
        tokenizer: Arc<Tokenizer>,
        options: EngineOptions,
        published: Arc<Mutex<Stats>>,
    ) -> Engine {
        let block_size = model.spec().block_size;
        Engine {
            model,
            tokenizer,
            scheduler: Scheduler {
                max_sequences: options.max_sequences,
                step_tokens: options.step_tokens,
            },
            blocks: Blocks::new(
                block_size,
                options.kv_blocks,
                options.max_kv_blocks,
                options.prefix_cache,
            ),
            n_reserved: 0,
            requests: Vec::new(),
            step: Step::default(),
            logits: Vec::new(),
            memory: Memory::default(),
            stats: Stats::default(),
            published,
        }
    }

    /// Serves requests until nobody can send one any more and all are answered.
    pub(crate) fn serve(&mut self, submissions: &mpsc::Receiver<Submission>) {
        if let Err(error) = self.reserve() {
            tracing::warn!(%error, "KV blocks cannot be reserved");
        }
        loop {
            if self.requests.is_empty() {
                let Ok(submission) = submissions.recv() else {
                    return;
                };
                self.admit(submission);
            }
            while let Ok(submission) = submissions.try_recv() {
                self.admit(submission);
            }
            self.step();
        }
    }

    /// Takes a request into the queue.
    pub(crate) fn admit(&mut self, submission: Submission) {
        let (mut reply, tokens) = Reply::new(submission);
        self.stats.requests += 1;
        self.stats.prompt_tokens += tokens.len() as u64;
        if reply.is_empty() {
            reply.finish(
                FinishReason::Length,
                None,
                &mut self.memory.tools(&self.tokenizer),
            );
        } else {
            self.requests.push(Request {
                sequence: Sequence::new(tokens),
                reply,
            });
        }
    }

    /// Computes one step for all sequences that fit into it. Returns whether there is more to do.
    pub(crate) fn step(&mut self) -> bool {
        self.remove(|request| request.reply.is_cancelled());
        self.scheduler
            .plan(&mut self.requests, &mut self.blocks, &mut self.step);
        self.stats.preemptions += self.step.n_preempted as u64;
        if self.step.sequences.is_empty() {
            // Not even the oldest fits: less memory could be had than was promised.
            self.fail_first("not enough memory for the KV cache");
        } else if let Err(error) = self.reserve() {
            // Planned again with the blocks there are.
            tracing::warn!(%error, n_blocks = self.n_reserved, "the KV cache stays smaller");
        } else {
            match self.forward() {
                Ok(()) => self.commit(),
                Err(error) => self.fail_step(&error),
            }
            self.stats.steps += 1;
        }
        self.publish();
        !self.requests.is_empty()
    }

    /// Gives the model the blocks that the pool has grown by. When it has not the memory for all
    /// of them, the pool shrinks to those it has; what was planned in the others is not computed
    /// yet.
    fn reserve(&mut self) -> Result<(), ModelError> {
        let n_wanted = self.blocks.total();
        let mut n_more = n_wanted.saturating_sub(self.n_reserved);
        let mut outcome = Ok(());
        while n_more > 0 {
            match self.model.reserve_blocks(self.n_reserved + n_more) {
                Ok(()) => {
                    self.n_reserved += n_more;
                    break;
                }
                Err(error) => outcome = Err(error),
            }
            n_more /= 2;
        }
        if self.n_reserved < n_wanted {
            for Request { sequence, .. } in &mut self.requests {
                if sequence
                    .blocks()
                    .iter()
                    .any(|id| id.0 as usize >= self.n_reserved)
                {
                    sequence.release(&mut self.blocks);
                }
            }
            self.blocks.shrink(self.n_reserved);
        }
        outcome
    }

    fn forward(&mut self) -> Result<(), ModelError> {
        let plan = &self.step.plan;
        tracing::trace!(
            sequences = plan.spans.len(),
            tokens = plan.tokens.len(),
            "step"
        );
        for &seq_idx in &self.step.sequences {
            let Request { sequence, reply } = &mut self.requests[seq_idx];
            if reply.note_planned(sequence.computed()) {
                self.stats.prefix_hit_tokens += sequence.computed() as u64;
            }
        }
        self.logits
            .resize(plan.logit_rows.len() * self.model.spec().vocab_size, 0.0);
        self.model.forward(plan, &mut self.logits)
    }

    /// Notes what is computed now, and lets each sequence that has caught up choose its next token.
    fn commit(&mut self) {
        let mut rows = self.logits.chunks_exact_mut(self.model.spec().vocab_size);
        let mut tools = self.memory.tools(&self.tokenizer);
        for (span, &seq_idx) in self.step.plan.spans.iter().zip(&self.step.sequences) {
            let Request { sequence, reply } = &mut self.requests[seq_idx];
            sequence.commit(span.rows.len(), &mut self.blocks);
            if sequence.pending() > 0 {
                continue;
            }
            let Some(row) = rows.next() else { break };
            self.stats.generated_tokens += 1;
            match reply.advance(sequence.tokens().len(), row, &mut tools) {
                Next::Continue(token) => sequence.push(token),
                Next::Shift { token, n_keep } => {
                    sequence.push(token);
                    sequence.shift(n_keep, &mut self.blocks);
                }
                Next::End => sequence.end(),
            }
        }
        self.remove(|request| request.sequence.has_ended());
    }

    /// Fails the sequences of a step that could not be computed.
    fn fail_step(&mut self, error: &ModelError) {
        tracing::error!(%error, "step failed");
        for &seq_idx in &self.step.sequences {
            let Request { sequence, reply } = &mut self.requests[seq_idx];
            reply.fail(error.to_string());
            sequence.end();
        }
        self.remove(|request| request.sequence.has_ended());
    }

    fn fail_first(&mut self, message: &str) {
        if let Some(Request { sequence, reply }) = self.requests.first_mut() {
            reply.fail(message.into());
            sequence.end();
        }
        self.remove(|request| request.sequence.has_ended());
    }

    /// Removes the requests that `is_over` selects and gives their blocks back.
    fn remove(&mut self, is_over: impl Fn(&Request) -> bool) {
        let blocks = &mut self.blocks;
        self.requests.retain_mut(|request| {
            let is_over = is_over(request);
            if is_over {
                request.sequence.release(blocks);
            }
            !is_over
        });
        if cfg!(debug_assertions) {
            self.blocks.assert_consistent(
                self.requests
                    .iter()
                    .map(|request| request.sequence.blocks()),
            );
        }
    }

    fn publish(&mut self) {
        self.stats.running = self
            .requests
            .iter()
            .filter(|request| request.sequence.is_running())
            .count();
        self.stats.waiting = self.requests.len() - self.stats.running;
        self.stats.kv_blocks_used = self.blocks.used();
        self.stats.kv_blocks_cached = self.blocks.cached();
        self.stats.kv_blocks_total = self.blocks.total();
        *self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = self.stats;
    }
}

impl Memory {
    fn tools<'a>(&'a mut self, tokenizer: &'a Tokenizer) -> Tools<'a> {
        let Memory {
            candidates,
            log_probs,
            released,
        } = self;
        Tools {
            tokenizer,
            candidates,
            log_probs,
            released,
        }
    }
}

impl Borrow<Sequence> for Request {
    fn borrow(&self) -> &Sequence {
        &self.sequence
    }
}

impl BorrowMut<Sequence> for Request {
    fn borrow_mut(&mut self) -> &mut Sequence {
        &mut self.sequence
    }
}

#[cfg(test)]
mod tests;
