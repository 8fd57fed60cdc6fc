//! The loop that serves all requests of one model, step by step.
//!
//! Each round takes new requests, forgets those that nobody waits for, plans a step, lets the
//! model compute it, and turns each row of logits into a token and its events. No part calls
//! back: what a function needs is handed to it, what it decides is returned.

use std::{
    borrow::{Borrow, BorrowMut},
    collections::VecDeque,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use llmsrv_tokenizer::Tokenizer;
use parking_lot::Mutex;

use crate::{
    EmbeddingSpec, EngineOptions, FinishReason, Loaded, MemoryAccount, Model, ModelError,
    Speculation, Stats, TokenId,
    blocks::Blocks,
    embed::{self, EmbedInput, Pooler},
    output_state::{Next, OutputState, SamplerScratch},
    prefill_throughput::PrefillThroughput,
    sample::{Candidates, LogProbs},
    scheduler::{Scheduler, Step},
    sequence::Sequence,
    speculation::{DraftModel, DraftState, Proposer, StepCosts},
    submission::{Submission, Work},
};

mod speculate;

/// Everything the engine thread owns.
pub(crate) struct Engine {
    model: Box<dyn Model>,
    draft: Option<DraftModel>,
    tokenizer: Arc<Tokenizer>,
    scheduler: Scheduler,
    step_target: Duration,
    throughput: PrefillThroughput,
    blocks: Blocks,
    max_blocks: usize,
    n_reserved: usize,
    max_states: usize,
    n_reserved_states: usize,
    /// Those that become text, oldest first; then those that become vectors, likewise.
    requests: Vec<Request>,
    /// Inputs to become vectors, oldest first. A few at a time join the requests, so that a long list
    /// of them does not keep a later request from its turn.
    inputs: VecDeque<EmbedInput>,
    step: Step,
    /// The part of the step that is for vectors.
    embed_step: Step,
    logits: Vec<f32>,
    speculation: Speculation,
    step_costs: StepCosts,
    memory: Memory,
    stats: Stats,
    published: Arc<Mutex<Stats>>,
    /// Why nothing can be computed any more.
    lost: Option<String>,
    /// Inputs that the device was lost with. They end with the engine, when others can know why.
    unanswered: Vec<(Pooler, Vec<TokenId>)>,
    /// The last member: it is dropped when the model is gone.
    account: Box<dyn MemoryAccount>,
}

/// Why an engine serves no longer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nobody can send a request any more, and all are answered.
    Unused,
    /// What computes the model is gone, and why. Its requests are not answered.
    DeviceLost(String),
}

/// One request: its part of the plan and its part of the output.
struct Request {
    sequence: Sequence,
    proposer: Proposer,
    draft_state: DraftState,
    output: Output,
}

/// What the tokens of a request become.
enum Output {
    Text(Box<OutputState>),
    Vector(Pooler),
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
        loaded: Loaded,
        options: EngineOptions,
        account: Box<dyn MemoryAccount>,
        published: Arc<Mutex<Stats>>,
    ) -> Engine {
        let Loaded {
            model,
            draft,
            tokenizer,
            ..
        } = loaded;
        let block_size = model.spec().block_size;
        let keeps_state = model.spec().state_bytes > 0;
        // What was stored for a draft token that is not accepted is written over, but a recurrent state
        // that it went into cannot be taken back: that would take a checkpoint after each draft token,
        // tens of megabytes in large models. So such models neither carry draft tokens nor make them.
        let draft = draft.filter(|draft| {
            let drafts = !keeps_state && draft.spec().state_bytes == 0;
            if !drafts {
                tracing::warn!("no draft model is used with models that keep a recurrent state");
            }
            drafts
        });
        let draft = draft.map(|draft| DraftModel::new(draft, model.spec(), &options));
        let speculation = if keeps_state {
            Speculation::Off
        } else {
            options.speculation
        };
        let mut blocks = Blocks::new(
            block_size,
            options.kv_blocks,
            options.max_kv_blocks,
            options.prefix_cache,
        )
        .keeping(options.prefix_cache_blocks);
        if keeps_state {
            blocks = blocks.with_states(options.max_states);
        }
        let mut engine = Engine {
            model,
            draft,
            tokenizer,
            scheduler: Scheduler {
                max_sequences: options.max_sequences,
                step_tokens: options.step_tokens,
            },
            step_target: options.step_target,
            throughput: PrefillThroughput::default(),
            blocks,
            max_blocks: options.max_kv_blocks,
            n_reserved: 0,
            max_states: options.max_states,
            n_reserved_states: 0,
            requests: Vec::new(),
            inputs: VecDeque::new(),
            step: Step::default(),
            embed_step: Step::default(),
            logits: Vec::new(),
            speculation,
            step_costs: StepCosts::default(),
            memory: Memory::default(),
            stats: Stats::default(),
            published,
            lost: None,
            unanswered: Vec::new(),
            account,
        };
        // Who asks before the first step hears of the memory, too.
        engine.publish();
        engine
    }

    /// Serves requests until nobody can send one any more and all are answered, or the device is lost.
    pub(crate) fn serve(&mut self, submissions: &mpsc::Receiver<Work>) -> Ended {
        if let Err(error) = self.reserve() {
            tracing::warn!(%error, "KV blocks cannot be reserved");
            self.note_loss(error);
        }
        loop {
            if let Some(reason) = self.lost.take() {
                return Ended::DeviceLost(reason);
            }
            if self.requests.is_empty() && self.inputs.is_empty() {
                let Ok(work) = submissions.recv() else {
                    return Ended::Unused;
                };
                self.take(work);
            }
            while let Ok(work) = submissions.try_recv() {
                self.take(work);
            }
            if self.lost.is_none() {
                self.step();
            }
        }
    }

    /// Remembers that nothing can be computed any more, if the error says so.
    fn note_loss(&mut self, error: ModelError) {
        if let ModelError::DeviceLost(reason) = error {
            self.lost = Some(reason);
        }
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Generate(submission) => self.admit(*submission),
            Work::Embed(inputs) => self.admit_inputs(inputs),
            Work::DeviceLost(reason) => self.lost = Some(reason),
        }
    }

    /// Takes inputs to be embedded into their queue.
    pub(crate) fn admit_inputs(&mut self, inputs: Vec<EmbedInput>) {
        self.stats.requests += 1;
        let n_tokens: usize = inputs.iter().map(|input| input.tokens.len()).sum();
        self.stats.prompt_tokens += n_tokens as u64;
        self.inputs.extend(inputs);
    }

    /// Takes a request into the queue.
    pub(crate) fn admit(&mut self, submission: Submission) {
        if self.requests.is_empty() {
            // Memory that was short may have come back.
            self.blocks.raise_bound(self.max_blocks);
            self.blocks.raise_state_bound(self.max_states);
            if let Some(draft) = &mut self.draft {
                draft.raise_bound();
            }
        }
        let (mut reply, sequence) = OutputState::new(submission);
        self.stats.requests += 1;
        self.stats.prompt_tokens += sequence.tokens().len() as u64;
        if reply.is_empty() {
            reply.finish(
                FinishReason::Length,
                None,
                &mut self.memory.tools(&self.tokenizer),
            );
        } else {
            let n_texts = self
                .requests
                .partition_point(|request| matches!(request.output, Output::Text(_)));
            let request = Request {
                sequence,
                proposer: Proposer::new(),
                draft_state: DraftState::default(),
                output: Output::Text(Box::new(reply)),
            };
            self.requests.insert(n_texts, request);
        }
    }

    /// Computes one step for all sequences that fit into it. Returns whether there is more to do.
    pub(crate) fn step(&mut self) -> bool {
        self.remove(|request| request.output.is_cancelled());
        self.inputs.retain(|input| !input.result.is_closed());
        match self.model.spec().embedding {
            Some(spec) if spec.bidirectional => self.embed_whole(spec),
            spec => {
                let n_vectors = spec.map_or(0, |spec| self.start_embeddings(spec));
                if !self.requests.is_empty() {
                    self.compute(n_vectors);
                }
            }
        }
        self.publish();
        !self.requests.is_empty() || !self.inputs.is_empty()
    }

    /// Plans a step and computes it. `n_vectors` of the requests are to become vectors: they do not
    /// take the places of those that become text.
    fn compute(&mut self, n_vectors: usize) {
        let scheduler = Scheduler {
            max_sequences: self.scheduler.max_sequences + n_vectors,
            step_tokens: self.step_tokens(),
        };
        self.propose(scheduler.max_sequences);
        scheduler.plan(&mut self.requests, &mut self.blocks, &mut self.step);
        self.stats.preemptions += self.step.n_preempted as u64;
        if self.step.sequences.is_empty() {
            // Not even the oldest fits: less memory could be had than was promised.
            self.fail_first("not enough memory for the KV cache");
            return;
        }
        if let Err(error) = self.reserve().and_then(|()| self.reserve_states()) {
            // Planned again with the blocks there are.
            tracing::warn!(%error, n_blocks = self.n_reserved, "the KV cache stays smaller");
            self.note_loss(error);
            return;
        }
        let requests = &self.requests;
        embed::split(
            &mut self.step,
            &mut self.embed_step,
            |seq_idx| match &requests.get(seq_idx)?.output {
                Output::Vector(pooler) => Some(pooler),
                Output::Text(_) => None,
            },
        );
        if !self.step.sequences.is_empty() {
            let start = Instant::now();
            let computed = self.forward();
            let plan = &self.step.plan;
            if computed.is_ok() {
                let (n_rows, took) = (plan.tokens.len(), start.elapsed());
                if plan.logit_rows.len() == n_rows {
                    // Every row is the next token of a sequence, or a draft token.
                    self.step_costs.note(n_rows, took.as_secs_f32());
                } else {
                    self.throughput.note(n_rows, took);
                }
            }
            match computed {
                Ok(()) => self.commit(),
                // All requests end with the engine.
                Err(error @ ModelError::DeviceLost(_)) => return self.note_loss(error),
                Err(error) => fail(&self.step, &mut self.requests, &error),
            }
        }
        if !self.embed_step.sequences.is_empty() {
            match self.forward_embeddings() {
                Ok(()) => self.commit_embeddings(),
                Err(error @ ModelError::DeviceLost(_)) => return self.note_loss(error),
                Err(error) => fail(&self.embed_step, &mut self.requests, &error),
            }
        }
        self.stats.steps += 1;
        self.remove(|request| request.sequence.has_ended());
    }

    /// Returns how many tokens to compute in a step: fewer where answers that are being written would
    /// wait too long for it.
    fn step_tokens(&self) -> usize {
        if !self.requests.iter().any(Request::is_written) {
            return self.scheduler.step_tokens;
        }
        let in_time = self.throughput.rows_within(self.step_target);
        self.scheduler.step_tokens.min(in_time)
    }

    /// Lets the oldest inputs become requests. Returns how many requests are to become vectors.
    fn start_embeddings(&mut self, spec: EmbeddingSpec) -> usize {
        let is_vector = |request: &&Request| matches!(request.output, Output::Vector(_));
        let n_vectors = self.requests.iter().filter(is_vector).count();
        let n_new = MAX_VECTORS.saturating_sub(n_vectors).min(self.inputs.len());
        for input in self.inputs.drain(..n_new) {
            let (pooler, tokens) = Pooler::new(input, spec);
            self.requests.push(Request {
                sequence: pooler.sequence(tokens),
                proposer: Proposer::new(),
                draft_state: DraftState::default(),
                output: Output::Vector(pooler),
            });
        }
        n_vectors + n_new
    }

    /// Computes as many of the oldest inputs as fit into a step, but at least one.
    fn embed_whole(&mut self, spec: EmbeddingSpec) {
        let mut n_tokens = 0;
        let n_inputs = self.inputs.iter().take_while(|input| {
            n_tokens += input.tokens.len();
            n_tokens <= self.scheduler.step_tokens
        });
        let n_inputs = n_inputs.count().max(1).min(self.inputs.len());
        let mut batch: Vec<_> = self
            .inputs
            .drain(..n_inputs)
            .map(|input| Pooler::new(input, spec))
            .collect();
        if batch.is_empty() {
            return;
        }
        let plan = embed::plan_whole(&batch);
        self.logits.resize(plan.logit_rows.len() * spec.width, 0.0);
        match self.model.embed(&plan, &mut self.logits) {
            Ok(()) => {
                let mut rest = &self.logits[..];
                for (span, (pooler, _)) in plan.spans.iter().zip(&mut batch) {
                    rest = pooler.take(span, rest);
                }
                self.stats.embeddings += n_inputs as u64;
            }
            Err(error @ ModelError::DeviceLost(_)) => {
                self.note_loss(error);
                self.unanswered = batch;
            }
            Err(error) => {
                tracing::error!(%error, "step failed");
                for (pooler, _) in &mut batch {
                    pooler.fail(error.to_string());
                }
            }
        }
        self.stats.steps += 1;
    }

    /// Gives the model the blocks that the pool has grown by. When it has not the memory for all
    /// of them, the pool shrinks to those it has; what was planned in the others is not computed
    /// yet.
    fn reserve(&mut self) -> Result<(), ModelError> {
        let n_wanted = self.blocks.total();
        let failed = reserve_most(n_wanted, &mut self.n_reserved, |n_more, n_all| {
            let bytes = self.model.spec().kv_blocks(n_more);
            if !self.account.grow(&bytes) {
                return Err(ModelError::OutOfMemory(n_more));
            }
            let reserved = self.model.reserve_blocks(n_all);
            reserved.inspect_err(|_| self.account.shrink(&bytes))
        })?;
        let n_reserved = self.n_reserved;
        if n_reserved < n_wanted {
            for Request { sequence, .. } in &mut self.requests {
                let mut blocks = sequence.blocks().iter();
                if blocks.any(|id| id.0 as usize >= n_reserved) {
                    sequence.release(&mut self.blocks);
                }
            }
            self.blocks.shrink(n_reserved);
        }
        failed.map_or(Ok(()), Err)
    }

    /// As [`Engine::reserve`], for recurrent states.
    fn reserve_states(&mut self) -> Result<(), ModelError> {
        let n_wanted = self.blocks.total_states();
        let failed = reserve_most(n_wanted, &mut self.n_reserved_states, |n_more, n_all| {
            let bytes = self.model.spec().states(n_more);
            if !self.account.grow(&bytes) {
                return Err(ModelError::OutOfStates(n_more));
            }
            let reserved = self.model.reserve_states(n_all);
            reserved.inspect_err(|_| self.account.shrink(&bytes))
        })?;
        let n_reserved = self.n_reserved_states;
        if n_reserved < n_wanted {
            for Request { sequence, .. } in &mut self.requests {
                if sequence.held_states().any(|id| id.0 as usize >= n_reserved) {
                    sequence.release(&mut self.blocks);
                }
            }
            self.blocks.shrink_states(n_reserved);
        }
        failed.map_or(Ok(()), Err)
    }

    fn forward(&mut self) -> Result<(), ModelError> {
        let plan = &self.step.plan;
        tracing::trace!(
            sequences = plan.spans.len(),
            tokens = plan.tokens.len(),
            "step"
        );
        for &seq_idx in &self.step.sequences {
            let Request {
                sequence, output, ..
            } = &mut self.requests[seq_idx];
            if let Output::Text(reply) = output
                && reply.note_planned(sequence.computed())
            {
                self.stats.prefix_hit_tokens += sequence.computed() as u64;
            }
        }
        self.logits
            .resize(plan.logit_rows.len() * self.model.spec().vocab_size, 0.0);
        self.model.forward(plan, &mut self.logits)
    }

    fn forward_embeddings(&mut self) -> Result<(), ModelError> {
        let plan = &self.embed_step.plan;
        tracing::trace!(
            inputs = plan.spans.len(),
            tokens = plan.tokens.len(),
            "embedding step"
        );
        let width = self.model.spec().embedding.map_or(0, |spec| spec.width);
        self.logits.resize(plan.logit_rows.len() * width, 0.0);
        self.model.embed(plan, &mut self.logits)
    }

    /// Notes what is computed now, and lets each sequence that has caught up choose its next token.
    fn commit(&mut self) {
        let mut rows = self.logits.chunks_exact_mut(self.model.spec().vocab_size);
        let mut scratch = self.memory.tools(&self.tokenizer);
        for (span, &seq_idx) in self.step.plan.spans.iter().zip(&self.step.sequences) {
            let Request {
                sequence,
                proposer,
                output,
                ..
            } = &mut self.requests[seq_idx];
            let draft = sequence.draft().to_vec();
            sequence.set_draft(&[]);
            sequence.commit(span.rows.len() - draft.len(), &mut self.blocks);
            let Output::Text(reply) = output else {
                continue;
            };
            if sequence.pending() > 0 {
                continue;
            }
            self.stats.drafted_tokens += draft.len() as u64;
            let mut draft_tokens = draft.iter();
            // An accepted draft token gives the next row its meaning; the others are forgotten, and
            // what was stored for them is written over.
            let mut own_rows = rows.by_ref().take(1 + draft.len());
            for row in own_rows.by_ref() {
                self.stats.generated_tokens += 1;
                match reply.advance(sequence.tokens().len(), row, &mut scratch) {
                    Next::Continue(token) => {
                        sequence.push(token);
                        proposer.check(token);
                        if draft_tokens.next() != Some(&token) {
                            break;
                        }
                        sequence.commit(1, &mut self.blocks);
                        self.stats.accepted_tokens += 1;
                    }
                    Next::Shift { token, n_keep } => {
                        sequence.push(token);
                        sequence.shift(n_keep, &mut self.blocks);
                        break;
                    }
                    Next::End => {
                        sequence.end();
                        break;
                    }
                }
            }
            own_rows.for_each(drop);
            reply.flush();
        }
    }

    /// Notes what is computed now, and ends each sequence whose vector is complete.
    fn commit_embeddings(&mut self) {
        let Step {
            plan, sequences, ..
        } = &self.embed_step;
        let mut rest = &self.logits[..];
        for (span, &seq_idx) in plan.spans.iter().zip(sequences) {
            let Request {
                sequence, output, ..
            } = &mut self.requests[seq_idx];
            let Output::Vector(pooler) = output else {
                continue;
            };
            rest = pooler.take(span, rest);
            sequence.commit(span.rows.len(), &mut self.blocks);
            if sequence.pending() == 0 {
                self.stats.embeddings += 1;
                sequence.end();
            }
        }
    }

    fn fail_first(&mut self, message: &str) {
        if let Some(Request {
            sequence, output, ..
        }) = self.requests.first_mut()
        {
            output.fail(message);
            sequence.end();
        }
        self.remove(|request| request.sequence.has_ended());
    }

    /// Removes the requests that `is_over` selects and gives their blocks back.
    fn remove(&mut self, is_over: impl Fn(&Request) -> bool) {
        let (blocks, draft) = (&mut self.blocks, &mut self.draft);
        self.requests.retain_mut(|request| {
            let is_over = is_over(request);
            if is_over {
                request.sequence.release(blocks);
                if let Some(draft) = draft {
                    draft.release(&mut request.draft_state);
                }
            }
            !is_over
        });
        if cfg!(debug_assertions) {
            self.blocks.assert_consistent(
                self.requests
                    .iter()
                    .flat_map(|request| request.sequence.held()),
            );
            let sequences = || self.requests.iter().map(|request| &request.sequence);
            self.blocks.assert_states_consistent(
                sequences().flat_map(Sequence::held_states),
                sequences().filter_map(Sequence::read_state),
            );
            if let Some(draft) = &self.draft {
                draft.assert_consistent(self.requests.iter().map(|request| &request.draft_state));
            }
        }
    }

    fn publish(&mut self) {
        self.stats.running = self
            .requests
            .iter()
            .filter(|request| request.sequence.is_running())
            .count();
        self.stats.waiting = self.requests.len() + self.inputs.len() - self.stats.running;
        self.stats.kv_blocks_used = self.blocks.used();
        self.stats.kv_blocks_cached = self.blocks.cached();
        self.stats.kv_blocks_total = self.blocks.total();
        self.stats.states_total = self.blocks.total_states();
        self.stats.checkpoints = self.blocks.checkpoints();
        *self.published.lock() = self.stats;
    }
}

/// Fails the sequences of a step that could not be computed.
fn fail(step: &Step, requests: &mut [Request], error: &ModelError) {
    tracing::error!(%error, "step failed");
    for &seq_idx in &step.sequences {
        let Request {
            sequence, output, ..
        } = &mut requests[seq_idx];
        output.fail(&error.to_string());
        sequence.end();
    }
}

impl Request {
    /// Returns whether its next token is one of its answer.
    fn is_written(&self) -> bool {
        let is_text = matches!(self.output, Output::Text(_));
        is_text && self.sequence.is_running() && self.sequence.pending() == 1
    }
}

impl Output {
    fn is_cancelled(&self) -> bool {
        match self {
            Output::Text(reply) => reply.is_cancelled(),
            Output::Vector(pooler) => pooler.is_cancelled(),
        }
    }

    fn fail(&mut self, message: &str) {
        match self {
            Output::Text(reply) => reply.fail(message.into()),
            Output::Vector(pooler) => pooler.fail(message.into()),
        }
    }
}

impl Memory {
    fn tools<'a>(&'a mut self, tokenizer: &'a Tokenizer) -> SamplerScratch<'a> {
        let Memory {
            candidates,
            log_probs,
            released,
        } = self;
        SamplerScratch {
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

/// Reserves what is wanted beyond `n_reserved`, else half as much, and so on: `reserve` gets how many more, and how many
/// that makes. Returns why it was not all; the error is a lost device.
fn reserve_most(
    n_wanted: usize,
    n_reserved: &mut usize,
    mut reserve: impl FnMut(usize, usize) -> Result<(), ModelError>,
) -> Result<Option<ModelError>, ModelError> {
    let mut n_more = n_wanted.saturating_sub(*n_reserved);
    let mut failed = None;
    while n_more > 0 {
        match reserve(n_more, *n_reserved + n_more) {
            Ok(()) => {
                *n_reserved += n_more;
                break;
            }
            Err(error @ ModelError::DeviceLost(_)) => return Err(error),
            Err(error) => failed = Some(error),
        }
        n_more /= 2;
    }
    Ok(failed)
}

/// Inputs that are embedded together beside the generations.
const MAX_VECTORS: usize = 16;

#[cfg(test)]
mod tests;
