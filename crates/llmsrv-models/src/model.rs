//! A decoder as the engine sees it: checks each plan, then computes it.

use llmsrv_engine::{ImageRows, Model, ModelError, ModelSpec, Span, StepPlan};

use crate::{arch::ArchConfig, decoder, encoder, ops::Ops, weights::Weights};

/// A loaded decoder on the device of `O`.
pub(crate) struct Decoder<O: Ops> {
    spec: ModelSpec,
    arch: ArchConfig,
    weights: Weights<O>,
    ops: O,
    n_blocks: usize,
    n_states: usize,
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
            n_states: 0,
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
        if !plan.coordinates.is_empty() && plan.coordinates.len() != n_rows {
            return Err("coordinates for each token are needed, or for none");
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
            self.check_state(span)?;
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
            let width = self.arch.width * (1 + self.arch.deepstack);
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

    /// Checks what a span says about its recurrent state.
    fn check_state(&self, span: &Span) -> Result<(), &'static str> {
        let Some(state) = &span.state else {
            return match self.spec.state_bytes {
                0 => Ok(()),
                _ => Err("a span has no recurrent state"),
            };
        };
        if self.spec.state_bytes == 0 {
            return Err("a span has a recurrent state where there are none");
        }
        let saves = || state.saves.iter().map(|(_, to)| to);
        let mut all = saves().chain(&state.from).chain([&state.slot]);
        if all.any(|id| id.0 as usize >= self.n_states) {
            return Err("a recurrent state was not reserved");
        }
        if saves().chain(&state.from).any(|id| *id == state.slot) {
            return Err("a recurrent state is copied to itself");
        }
        let ends = state.saves.iter().map(|(n_rows, _)| *n_rows);
        if !ends.clone().is_sorted_by(|a, b| a < b)
            || !ends.into_iter().all(|n| (1..=span.rows.len()).contains(&n))
        {
            return Err("checkpoints do not ascend within their span");
        }
        Ok(())
    }

    /// Copies what the sequences of the step have in common with others, and begins the states of those
    /// that begin.
    fn begin(&mut self, plan: &StepPlan) -> Result<(), ModelError> {
        for (span, state) in plan
            .spans
            .iter()
            .filter_map(|span| Some((span, span.state.as_ref()?)))
        {
            match state.from {
                _ if span.start == 0 => self.ops.clear_state(state.slot)?,
                Some(from) => self.ops.copy_state(from, state.slot)?,
                None => {}
            }
        }
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

    fn reserve_states(&mut self, n_states: usize) -> Result<(), ModelError> {
        if n_states > self.n_states {
            self.ops.reserve_states(n_states)?;
            self.n_states = n_states;
        }
        Ok(())
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError> {
        if self.arch.bidirectional {
            return Err(ModelError::NoText);
        }
        let checked = self.check(plan, logits, self.spec.vocab_size);
        checked.map_err(|reason| ModelError::Compute(format!("invalid plan: {reason}")))?;
        if plan.tokens.is_empty() {
            return Ok(());
        }
        self.begin(plan)?;
        decoder::forward(&self.arch, &self.weights, &mut self.ops, plan, logits)
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let checked = if self.arch.bidirectional {
            encoder::check(&self.spec, plan, rows)
        } else {
            self.check(plan, rows, self.spec.embedding.map_or(0, |spec| spec.width))
        };
        checked.map_err(|reason| ModelError::Compute(format!("invalid plan: {reason}")))?;
        if plan.tokens.is_empty() {
            return Ok(());
        }
        if !self.arch.bidirectional {
            self.begin(plan)?;
        }
        decoder::embed(&self.arch, &self.weights, &mut self.ops, plan, rows)
    }
}
