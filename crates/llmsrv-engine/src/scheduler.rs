//! Chooses what the next step computes. Pure: it reads sequences and moves block ids.
//!
//! Sequences are served in the order of their arrival, so the running ones come first and the
//! waiting ones follow, first come, first served. Each gets some of its uncomputed tokens until
//! the budget of the step is spent. When blocks run out, the youngest running sequence gives its
//! own back and is computed again later; the oldest can therefore always go on.

use std::borrow::BorrowMut;

use crate::{BlockId, Span, StepPlan, blocks::Blocks, sequence::Sequence};

/// The limits of a step.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    /// Most sequences in a step, at least 1.
    pub max_sequences: usize,
    /// Most tokens in a step, at least 1.
    pub step_tokens: usize,
}

/// A plan and whose it is. Its buffers are used again for each step.
#[derive(Debug, Default)]
pub struct Step {
    /// What the model computes.
    pub plan: StepPlan,
    /// Index of the sequence of each span, ascending.
    pub sequences: Vec<usize>,
    /// Sequences that lost their blocks while this step was planned.
    pub n_preempted: usize,
    spare_tables: Vec<Vec<BlockId>>,
}

impl Scheduler {
    /// Plans a step for `sequences`, oldest first, into `step`. The plan is empty only when there
    /// is no sequence, or not even the oldest fits into the blocks there may be.
    pub fn plan<S: BorrowMut<Sequence>>(
        &self,
        sequences: &mut [S],
        blocks: &mut Blocks,
        step: &mut Step,
    ) {
        step.clear();
        let mut budget = self.step_tokens.max(1);
        for seq_idx in 0..sequences.len().min(self.max_sequences.max(1)) {
            let Some((sequence, younger)) = sequences[seq_idx..].split_first_mut() else {
                break;
            };
            let sequence = sequence.borrow_mut();
            while !sequence.acquire(blocks) {
                let running = |other: &&mut S| Sequence::is_running((**other).borrow());
                let Some(youngest) = younger.iter_mut().rev().find(running) else {
                    return;
                };
                youngest.borrow_mut().release(blocks);
                step.n_preempted += 1;
            }
            // A long prompt leaves each younger sequence that runs already its next token.
            let n_running = younger
                .iter()
                .take(self.max_sequences)
                .filter(|other| (**other).borrow().is_running())
                .count();
            let n_rows = sequence
                .pending()
                .min(budget.saturating_sub(n_running).max(1));
            step.add(seq_idx, sequence, n_rows);
            budget -= n_rows;
            if budget == 0 {
                return;
            }
        }
    }
}

impl Step {
    fn clear(&mut self) {
        self.spare_tables
            .extend(self.plan.spans.drain(..).map(|span| span.blocks));
        self.plan.tokens.clear();
        self.plan.positions.clear();
        self.plan.logit_rows.clear();
        self.sequences.clear();
        self.n_preempted = 0;
    }

    fn add(&mut self, seq_idx: usize, sequence: &Sequence, n_rows: usize) {
        let (start, first_row) = (sequence.computed(), self.plan.tokens.len());
        let end = start + n_rows;
        self.plan
            .tokens
            .extend_from_slice(&sequence.tokens()[start..end]);
        self.plan.positions.extend(start as u32..end as u32);
        if end == sequence.tokens().len() {
            self.plan.logit_rows.push((first_row + n_rows - 1) as u32);
        }
        let mut table = self.spare_tables.pop().unwrap_or_default();
        table.clear();
        table.extend_from_slice(sequence.blocks());
        self.plan.spans.push(Span {
            rows: first_row..first_row + n_rows,
            start: start as u32,
            blocks: table,
        });
        self.sequences.push(seq_idx);
    }
}
