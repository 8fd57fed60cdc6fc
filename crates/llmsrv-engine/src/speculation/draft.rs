//! Draft tokens of a small model with the same vocabulary.
//!
//! The small model has KV blocks and a prefix cache of its own, and follows each sequence with a
//! draft state: a sequence of the same tokens. What it computes to draft stays in its cache; where the
//! draft tokens were accepted it counts as computed, elsewhere it is written over.

use std::time::{Duration, Instant};

use super::{FORGETTING, MEMORY, Proposer};
use crate::{
    EngineOptions, MemoryAccount, Model, ModelError, ModelSpec, Span, StepPlan, TokenId,
    blocks::Blocks, prefill_throughput::PrefillThroughput, sequence::Sequence,
};

/// A small model and its part of the cache.
pub(crate) struct DraftModel {
    model: Box<dyn Model>,
    blocks: Blocks,
    max_blocks: usize,
    n_reserved: usize,
    plan: StepPlan,
    logits: Vec<f32>,
    throughput: PrefillThroughput,
    /// Seconds of a step with one row for each sequence; 0 = never measured.
    per_draft_token: f32,
    vocabulary: Vocabulary,
    /// It is not asked again.
    has_failed: bool,
}

/// Tokens that the small model knows, and those that the big one knows as well.
#[derive(Debug)]
struct Vocabulary {
    n_logits: usize,
    n_common: usize,
}

/// What a small model knows of a sequence.
#[derive(Debug, Default)]
pub(crate) struct DraftState {
    sequence: Sequence,
    /// Computed after what counts as computed: the last tokens, and draft tokens.
    ahead: Vec<TokenId>,
    /// Seconds of steps that were waited for without draft tokens.
    waited: f32,
}

/// What is to be drafted for one sequence.
pub(crate) struct DraftTask<'a> {
    pub(crate) tokens: &'a [TokenId],
    pub(crate) n_draft_tokens: usize,
    pub(crate) draft_state: &'a mut DraftState,
    /// Gets the draft tokens.
    pub(crate) proposer: &'a mut Proposer,
}

impl DraftModel {
    /// Prepares a model that drafts for one as `big` describes. Its cache holds as many tokens.
    pub(crate) fn new(
        model: Box<dyn Model>,
        big: &ModelSpec,
        options: &EngineOptions,
    ) -> DraftModel {
        let spec = model.spec();
        let block_size = spec.block_size.max(1);
        let as_many = |n_blocks: usize| {
            let n_tokens = n_blocks.saturating_mul(big.block_size);
            n_tokens.div_ceil(block_size)
        };
        let bound = as_many(options.max_kv_blocks);
        let blocks = Blocks::new(block_size, 0, bound, options.prefix_cache);
        let vocabulary = Vocabulary {
            n_logits: spec.vocab_size,
            n_common: spec.vocab_size.min(big.vocab_size),
        };
        DraftModel {
            blocks: blocks.keeping(as_many(options.prefix_cache_blocks)),
            vocabulary,
            max_blocks: bound,
            model,
            n_reserved: 0,
            plan: StepPlan::default(),
            logits: Vec::new(),
            throughput: PrefillThroughput::default(),
            per_draft_token: 0.0,
            has_failed: false,
        }
    }

    /// Lets the cache grow again: memory that was short may have come back.
    pub(crate) fn raise_bound(&mut self) {
        self.blocks.raise_bound(self.max_blocks);
    }

    /// Returns the seconds that one more draft token takes, as measured lately.
    pub(crate) fn per_draft_token(&self) -> f32 {
        self.per_draft_token
    }

    /// Notes a step without draft tokens: what was too slow once is tried again some day.
    pub(crate) fn rest(&mut self) {
        self.per_draft_token *= 1.0 - 1.0 / FORGETTING;
    }

    /// Returns whether the model can draft what comes after `tokens`.
    pub(crate) fn can_read(&self, tokens: &[TokenId]) -> bool {
        !self.has_failed && tokens.len() < self.model.spec().context_length
    }

    /// Returns the seconds that the model needs to read what it does not know of a sequence; 0 where
    /// that is no more than the tokens of a few steps, or was never measured.
    pub(crate) fn seconds_to_read(&mut self, draft_state: &DraftState, tokens: &[TokenId]) -> f32 {
        let mut n_known = draft_state.sequence.computed();
        if n_known == 0 {
            let mut table = Vec::new();
            let prefix = self.blocks.find_prefix(tokens, &[], &mut table);
            prefix
                .tail
                .into_iter()
                .for_each(|id| self.blocks.give_back(id));
            self.blocks.release_all(&mut table);
            n_known = prefix.n_tokens;
        }
        let n_behind = tokens.len().saturating_sub(n_known);
        self.throughput.seconds(n_behind.saturating_sub(CLOSE))
    }

    /// Proposes tokens for each task, but for those whose sequence is not read yet: of that a piece is read
    /// that takes about `target`. Makes fewer draft tokens, or none, where memory or the model fails.
    pub(crate) fn propose(
        &mut self,
        tasks: &mut [DraftTask<'_>],
        target: Duration,
        account: &mut dyn MemoryAccount,
    ) {
        if self.has_failed {
            return;
        }
        if let Err(error) = self.try_propose(tasks, target, account) {
            tracing::warn!(%error, "the draft model failed; its draft_tokens are done without");
            self.has_failed = true;
        }
    }

    fn try_propose(
        &mut self,
        tasks: &mut [DraftTask<'_>],
        target: Duration,
        account: &mut dyn MemoryAccount,
    ) -> Result<(), ModelError> {
        for task in tasks.iter_mut() {
            task.draft_state.follow(task.tokens, &mut self.blocks);
            let n_known = self.model.spec().vocab_size;
            let is_known = |token: &TokenId| (*token as usize) < n_known;
            let draft_state = &mut *task.draft_state;
            let unread = &draft_state.sequence.tokens()[draft_state.sequence.computed()..];
            // Draft tokens take no blocks of their own.
            let fits =
                unread.iter().all(is_known) && draft_state.sequence.acquire(&mut self.blocks);
            let n_slots = draft_state.sequence.blocks().len() * self.blocks.block_size();
            let n_slots = n_slots.min(self.model.spec().context_length);
            let n_most = (n_slots + 1).saturating_sub(task.tokens.len());
            task.n_draft_tokens = if fits {
                task.n_draft_tokens.min(n_most)
            } else {
                0
            };
        }
        if !self.reserve(account) {
            for task in tasks.iter_mut() {
                task.draft_state.release(&mut self.blocks);
            }
            self.blocks.shrink(self.n_reserved);
            return Ok(());
        }
        self.read(tasks, target)?;
        let most = tasks.iter().map(|task| task.n_draft_tokens).max();
        for n_done in 1..most.unwrap_or(0) {
            let start = Instant::now();
            self.plan.clear();
            for task in tasks.iter_mut().filter(|task| task.n_draft_tokens > n_done) {
                let draft_token = task
                    .proposer
                    .draft_tokens()
                    .last()
                    .copied()
                    .unwrap_or_default();
                let DraftState {
                    sequence, ahead, ..
                } = &mut *task.draft_state;
                add(
                    &mut self.plan,
                    sequence,
                    sequence.computed() + ahead.len(),
                    &[draft_token],
                );
                ahead.push(draft_token);
            }
            self.compute()?;
            let tasks = tasks.iter_mut().filter(|task| task.n_draft_tokens > n_done);
            take_draft_tokens(tasks, &self.logits, &self.vocabulary);
            let seconds = start.elapsed().as_secs_f32();
            self.per_draft_token = match self.per_draft_token {
                0.0 => seconds,
                known => known + (seconds.min(2.0 * known) - known) / MEMORY,
            };
        }
        Ok(())
    }

    /// Reads what the sequences have said since. Those that come to their end make their first draft token,
    /// the others none.
    fn read(&mut self, tasks: &mut [DraftTask<'_>], target: Duration) -> Result<(), ModelError> {
        let start = Instant::now();
        let mut n_free = self.throughput.rows_within(target);
        self.plan.clear();
        let mut read = Vec::with_capacity(tasks.len());
        for task in tasks.iter_mut().filter(|task| task.n_draft_tokens > 0) {
            let sequence = &task.draft_state.sequence;
            let (from, n_rows) = (sequence.computed(), sequence.pending().min(n_free));
            n_free -= n_rows;
            if n_rows < sequence.pending() {
                task.n_draft_tokens = 0;
            }
            if n_rows > 0 {
                let rows = &sequence.tokens()[from..from + n_rows];
                add(&mut self.plan, sequence, from, rows);
                if task.n_draft_tokens == 0 {
                    self.plan.logit_rows.pop();
                }
                read.push((task, n_rows));
            }
        }
        if read.is_empty() {
            return Ok(());
        }
        self.compute()?;
        self.throughput
            .note(self.plan.tokens.len(), start.elapsed());
        for (task, n_rows) in &mut read {
            let DraftState {
                sequence, ahead, ..
            } = &mut *task.draft_state;
            // In the books the last token stays to be computed, as that of any sequence.
            let n_kept = usize::from(task.n_draft_tokens > 0);
            ahead.extend(sequence.tokens().last().filter(|_| n_kept > 0));
            sequence.commit(*n_rows - n_kept, &mut self.blocks);
        }
        let tasks = read.into_iter().map(|(task, _)| task);
        take_draft_tokens(
            tasks.filter(|task| task.n_draft_tokens > 0),
            &self.logits,
            &self.vocabulary,
        );
        Ok(())
    }

    fn compute(&mut self) -> Result<(), ModelError> {
        let n_logits = self.plan.logit_rows.len() * self.model.spec().vocab_size;
        self.logits.resize(n_logits, 0.0);
        self.model.forward(&self.plan, &mut self.logits)
    }

    /// Gives the model the blocks that the pool has grown by; `false` = there is no memory.
    fn reserve(&mut self, account: &mut dyn MemoryAccount) -> bool {
        let n_more = self.blocks.total().saturating_sub(self.n_reserved);
        if n_more == 0 {
            return true;
        }
        let bytes = self.model.spec().kv_blocks(n_more);
        if !account.grow(&bytes) {
            return false;
        }
        if self.model.reserve_blocks(self.blocks.total()).is_err() {
            account.shrink(&bytes);
            return false;
        }
        self.n_reserved = self.blocks.total();
        true
    }

    /// Forgets the draft state of a sequence that is over.
    pub(crate) fn release(&mut self, draft_state: &mut DraftState) {
        draft_state.release(&mut self.blocks);
    }

    /// Checks that the draft states and the books agree; panics if not.
    pub(crate) fn assert_consistent<'a>(&self, draft_states: impl Iterator<Item = &'a DraftState>) {
        let held = draft_states.flat_map(|draft_state| draft_state.sequence.held());
        self.blocks.assert_consistent(held);
    }
}

impl DraftState {
    /// Notes the time of a step that gave the sequence one token.
    pub(crate) fn wait(&mut self, seconds: f32) {
        self.waited += seconds;
    }

    /// Returns the seconds of steps without draft tokens.
    pub(crate) fn waited(&self) -> f32 {
        self.waited
    }

    /// Takes over the tokens of the sequence, and what was computed for those that came true.
    fn follow(&mut self, tokens: &[TokenId], blocks: &mut Blocks) {
        let n_known = self.sequence.tokens().len();
        match tokens.strip_prefix(self.sequence.tokens()) {
            Some(new) if n_known > 0 => new.iter().for_each(|token| self.sequence.push(*token)),
            // The first time, or after a context shift.
            _ => {
                self.release(blocks);
                self.sequence = Sequence::new(tokens.to_vec(), Vec::new());
            }
        }
        let unread = &tokens[self.sequence.computed()..tokens.len().saturating_sub(1)];
        let pairs = self.ahead.iter().zip(unread);
        let n_true = pairs.take_while(|(own, token)| own == token).count();
        if n_true > 0 {
            self.sequence.commit(n_true, blocks);
        }
        self.ahead.clear();
    }

    fn release(&mut self, blocks: &mut Blocks) {
        self.sequence.release(blocks);
        self.ahead.clear();
    }
}

/// Adds rows of a sequence to a plan, of which the last one gives logits.
fn add(plan: &mut StepPlan, sequence: &Sequence, start: usize, rows: &[TokenId]) {
    let first_row = plan.tokens.len();
    let end = start + rows.len();
    plan.tokens.extend_from_slice(rows);
    plan.positions.extend(start as u32..end as u32);
    plan.ends.extend(start as u32 + 1..=end as u32);
    plan.spans.push(Span {
        rows: first_row..plan.tokens.len(),
        start: start as u32,
        blocks: sequence.blocks().to_vec(),
        tail: sequence.tail(),
        // A draft model has no recurrent state: `Engine::new` takes none that has.
        state: None,
    });
    plan.logit_rows.push(plan.tokens.len() as u32 - 1);
}

/// Adds the most likely token of each row to the draft tokens of its task.
fn take_draft_tokens<'a, 'b: 'a>(
    tasks: impl Iterator<Item = &'a mut DraftTask<'b>>,
    logits: &[f32],
    vocabulary: &Vocabulary,
) {
    for (task, row) in tasks.zip(logits.chunks_exact(vocabulary.n_logits)) {
        let best = (0..)
            .zip(&row[..vocabulary.n_common])
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        task.proposer.add(best.map_or(0, |(token, _)| token));
    }
}

/// Tokens that are read without asking whether it pays: those of a few steps.
const CLOSE: usize = 16;
