//! The model alone: no sampling, no text, no scheduler.

use std::time::{Duration, Instant};

use llmsrv_engine::{BlockId, Model, Span, SpanState, StateId, StepPlan, TokenId};

use crate::{Error, Test, cost::STEP_TOKENS};

/// A model with room for the sequences of all tests.
pub(crate) struct Raw {
    model: Box<dyn Model>,
    /// Blocks of each sequence.
    tables: Vec<Vec<BlockId>>,
    /// Positions of each sequence that hold keys and values, from the first on.
    filled: Vec<usize>,
    logits: Vec<f32>,
    next_token: u32,
}

impl Raw {
    /// Reserves the KV cache for `tests`.
    pub(crate) fn new(mut model: Box<dyn Model>, tests: &[Test]) -> Result<Raw, Error> {
        let spec = model.spec();
        if !spec.generates() {
            return Err(llmsrv_engine::ModelError::NoText.into());
        }
        let longest = tests.iter().map(|test| test.positions()).max().unwrap_or(0);
        if longest > spec.context_length {
            return Err(Error::Invalid(format!(
                "the model has room for {} tokens, a test needs {longest}",
                spec.context_length
            )));
        }
        let most = tests.iter().map(|test| test.sequences()).max().unwrap_or(0);
        let mut tables = Vec::new();
        let mut n_blocks = 0;
        for sequence in 0..most {
            // A batch is no longer than it must be: its memory adds up.
            let needs = tests.iter().filter(|test| test.sequences() > sequence);
            let positions = needs.map(|test| test.positions()).max().unwrap_or(0);
            let n_own = positions.div_ceil(spec.block_size);
            tables.push(
                (n_blocks..n_blocks + n_own)
                    .map(|id| BlockId(id as u32))
                    .collect(),
            );
            n_blocks += n_own;
        }
        let keeps_state = spec.state_bytes > 0;
        model.reserve_blocks(n_blocks)?;
        if keeps_state {
            model.reserve_states(most)?;
        }
        Ok(Raw {
            filled: vec![0; tables.len()],
            model,
            tables,
            logits: Vec::new(),
            next_token: 1,
        })
    }

    /// Makes the positions before a test, and runs a few rows as it will.
    pub(crate) fn prepare(&mut self, test: Test) -> Result<(), Error> {
        for sequence in 0..test.sequences() {
            let from = self.filled[sequence];
            if from < test.depth() {
                self.prefill(sequence, from, test.depth() - from)?;
            }
        }
        match test {
            Test::Prefill { n, depth } => self.prefill(0, depth, n.min(WARM_UP)),
            Test::Decode { n, depth, batch } => self.decode(depth, n.min(2), batch),
        }
    }

    /// Runs a test once. Returns how long it took.
    pub(crate) fn run(&mut self, test: Test) -> Result<Duration, Error> {
        let start = Instant::now();
        match test {
            Test::Prefill { n, depth } => self.prefill(0, depth, n)?,
            Test::Decode { n, depth, batch } => self.decode(depth, n, batch)?,
        }
        Ok(start.elapsed())
    }

    /// Computes `n` tokens of a sequence from position `from` on, with logits for the last one.
    fn prefill(&mut self, sequence: usize, from: usize, n: usize) -> Result<(), Error> {
        let end = from + n;
        let mut at = from;
        while at < end {
            let n_rows = (end - at).min(STEP_TOKENS);
            let mut plan = StepPlan::default();
            self.add(&mut plan, sequence, at, n_rows);
            at += n_rows;
            if at == end {
                plan.logit_rows.push((n_rows - 1) as u32);
            }
            self.forward(&plan)?;
        }
        self.filled[sequence] = self.filled[sequence].max(end);
        Ok(())
    }

    /// Computes `n` tokens, one after the other, for each of the first sequences.
    fn decode(&mut self, from: usize, n: usize, batch: usize) -> Result<(), Error> {
        for at in from..from + n {
            let mut plan = StepPlan::default();
            for sequence in 0..batch {
                self.add(&mut plan, sequence, at, 1);
                plan.logit_rows.push(sequence as u32);
            }
            self.forward(&plan)?;
        }
        for filled in &mut self.filled[..batch] {
            *filled = (*filled).max(from + n);
        }
        Ok(())
    }

    fn add(&mut self, plan: &mut StepPlan, sequence: usize, start: usize, n_rows: usize) {
        let first_row = plan.tokens.len();
        for position in start..start + n_rows {
            let token = self.token();
            plan.tokens.push(token);
            plan.positions.push(position as u32);
            plan.ends.push(position as u32 + 1);
        }
        plan.spans.push(Span {
            rows: first_row..first_row + n_rows,
            start: start as u32,
            blocks: self.tables[sequence].clone(),
            tail: None,
            // A test that begins at a depth again goes on with the state it left there: the work is
            // the same.
            state: (self.model.spec().state_bytes > 0)
                .then(|| SpanState::new(StateId(sequence as u32))),
        });
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<(), Error> {
        let n_logits = plan.logit_rows.len() * self.model.spec().vocab_size;
        self.logits.resize(n_logits, 0.0);
        self.model.forward(plan, &mut self.logits)?;
        Ok(())
    }

    /// Any tokens do, as long as they differ (Numerical Recipes' generator).
    fn token(&mut self) -> TokenId {
        self.next_token = self
            .next_token
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        (self.next_token >> 8) % self.model.spec().vocab_size as u32
    }
}

/// Rows that are computed before a prompt is measured.
pub(crate) const WARM_UP: usize = 64;
