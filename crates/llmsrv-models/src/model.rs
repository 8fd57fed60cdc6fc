//! A decoder as the engine sees it: checks each plan, then computes it.

use llmsrv_engine::{ImageRows, Model, ModelError, ModelSpec, StepPlan};

use crate::{arch::ArchConfig, decoder, ops::Ops, weights::Weights};

/// Positions in one KV block.
pub(crate) const BLOCK_SIZE: usize = llmsrv_kernels::KV_BLOCK;

/// A loaded decoder on the device of `O`.
pub(crate) struct Decoder<O: Ops> {
    spec: ModelSpec,
    arch: ArchConfig,
    weights: Weights<O>,
    ops: O,
    n_blocks: usize,
}

impl<O: Ops> Decoder<O> {
    /// Joins what the loader made.
    pub(crate) fn new(
        spec: ModelSpec,
        arch: ArchConfig,
        weights: Weights<O>,
        ops: O,
    ) -> Decoder<O> {
        Decoder {
            spec,
            arch,
            weights,
            ops,
            n_blocks: 0,
        }
    }

    /// Checks everything that the arithmetic relies on.
    fn check(&self, plan: &StepPlan, out: &[f32], width: usize) -> Result<(), &'static str> {
        let n_rows = plan.tokens.len();
        if plan.positions.len() != n_rows {
            return Err("a position for each token is needed");
        }
        if plan
            .tokens
            .iter()
            .any(|token| *token as usize >= self.spec.vocab_size)
        {
            return Err("a token is not in the vocabulary");
        }
        let mut next_row = 0;
        for span in &plan.spans {
            if span.rows.start != next_row || span.rows.is_empty() || span.rows.end > n_rows {
                return Err("spans do not cover the rows in order");
            }
            next_row = span.rows.end;
            if span.blocks.len() < span.kv_len().div_ceil(self.spec.block_size) {
                return Err("a span has too few KV blocks");
            }
            if span
                .blocks
                .iter()
                .chain(&span.tail)
                .any(|block| block.0 as usize >= self.n_blocks)
            {
                return Err("a KV block was not reserved");
            }
            let positions = plan.positions.get(span.rows.clone()).unwrap_or_default();
            if !positions
                .iter()
                .copied()
                .eq((span.start..).take(positions.len()))
            {
                return Err("positions of a span do not ascend from its start");
            }
            let ends = plan.ends.get(span.rows.clone()).unwrap_or_default();
            let in_reach = |(at, end): (&u32, &u32)| at < end && (*end as usize) <= span.kv_len();
            if ends.len() != positions.len() || !positions.iter().zip(ends).all(in_reach) {
                return Err("a row attends to positions that are not stored");
            }
        }
        for image in &plan.images {
            let ImageRows { rows, first, image } = image;
            let width = self.arch.width;
            let fits = rows.end <= n_rows && first.saturating_add(rows.len()) <= image.rows;
            if !fits || image.rows.checked_mul(width) != Some(image.embedding.len()) {
                return Err("an image does not fit its rows");
            }
        }
        let ascending = plan.logit_rows.is_sorted_by(|a, b| a < b);
        let last = plan.logit_rows.last().map_or(0, |row| *row as usize + 1);
        if next_row != n_rows || !ascending || last > n_rows {
            return Err("rows without a span, or logits without a row");
        }
        if out.len() != plan.logit_rows.len() * width {
            return Err("the result has another length than the plan asks for");
        }
        Ok(())
    }

    /// Copies what the sequences of the step have in common with blocks of others.
    fn copy_tails(&mut self, plan: &StepPlan) -> Result<(), ModelError> {
        let copies = plan.spans.iter();
        for (from, to, _) in copies.filter_map(|span| span.copy(self.spec.block_size)) {
            self.ops.copy_block(from, to)?;
        }
        Ok(())
    }
}

impl<O> Model for Decoder<O>
where
    O: Ops,
    O::Matrix: Send,
    O::Vector: Send,
{
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        if n_blocks > self.n_blocks {
            self.ops.reserve_blocks(n_blocks)?;
            self.n_blocks = n_blocks;
        }
        Ok(())
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError> {
        let checked = self.check(plan, logits, self.spec.vocab_size);
        checked.map_err(|reason| ModelError::Compute(format!("invalid plan: {reason}")))?;
        if plan.tokens.is_empty() {
            return Ok(());
        }
        self.copy_tails(plan)?;
        decoder::forward(&self.arch, &self.weights, &mut self.ops, plan, logits)
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let checked = self.check(plan, rows, self.arch.width);
        checked.map_err(|reason| ModelError::Compute(format!("invalid plan: {reason}")))?;
        if plan.tokens.is_empty() {
            return Ok(());
        }
        self.copy_tails(plan)?;
        decoder::embed(&self.arch, &self.weights, &mut self.ops, plan, rows)
    }
}
