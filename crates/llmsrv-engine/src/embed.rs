//! Vectors instead of text: an input on its way through the engine, and the wait for the result.
//!
//! A model whose tokens see only what was before them computes an input as it computes a prompt: cut
//! into steps, in KV blocks, beside running generations. Where every token sees all others, an input
//! is computed whole. Both give rows of hidden values, and pooling makes one vector of them.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use tokio::sync::oneshot;

use crate::{
    EmbeddingSpec, ImageRows, Pooling, Span, StepPlan, TokenId, scheduler::Step, sequence::Sequence,
};

/// The vectors of one call. Dropping it cancels what is not computed yet.
#[derive(Debug)]
pub struct Embeddings {
    pub(crate) results: Vec<oneshot::Receiver<Result<Vec<f32>, String>>>,
    /// Why the engine ended, if its device was lost.
    pub(crate) lost: Arc<OnceLock<String>>,
}

/// An input that could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// It failed, and would again.
    #[error("{0}")]
    Failed(String),
    /// What computed the model is gone. The same inputs may be sent again: the model is loaded anew for them.
    #[error("the device is lost: {0}")]
    DeviceLost(String),
}

impl Embeddings {
    /// Waits for all vectors, in the order of the inputs: [`EmbeddingSpec::width`] elements each.
    ///
    /// # Errors
    ///
    /// An input could not be computed, for want of KV blocks or because the device failed, or the
    /// engine's thread ended. The vectors of the others are lost.
    pub async fn wait(self) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(self.results.len());
        for result in self.results {
            vectors.push(check(result.await, &self.lost)?);
        }
        Ok(vectors)
    }

    /// Waits for all vectors on a thread that is not part of an async runtime.
    ///
    /// # Errors
    ///
    /// As [`Embeddings::wait`].
    ///
    /// # Panics
    ///
    /// On a thread of an async runtime, which it would block.
    pub fn blocking_wait(self) -> Result<Vec<Vec<f32>>, EmbedError> {
        let results = self.results.into_iter();
        results
            .map(|result| check(result.blocking_recv(), &self.lost))
            .collect()
    }
}

/// A channel that closes without a result means that the engine's thread failed.
fn check<E>(
    result: Result<Result<Vec<f32>, String>, E>,
    lost: &OnceLock<String>,
) -> Result<Vec<f32>, EmbedError> {
    match (result, lost.get()) {
        (Ok(result), _) => result.map_err(EmbedError::Failed),
        (Err(_), Some(reason)) => Err(EmbedError::DeviceLost(reason.clone())),
        (Err(_), None) => Err(EmbedError::Failed("the model stopped unexpectedly".into())),
    }
}

/// A checked input on its way to the engine thread.
pub(crate) struct EmbedInput {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) result: oneshot::Sender<Result<Vec<f32>, String>>,
}

/// The output side of one input: collects rows until the vector is complete.
pub(crate) struct Pooler {
    spec: EmbeddingSpec,
    n_tokens: usize,
    sum: Vec<f32>,
    n_rows: usize,
    /// `None` once the result is sent.
    result: Option<oneshot::Sender<Result<Vec<f32>, String>>>,
}

impl Pooler {
    /// Takes over an input and returns it with its tokens.
    pub(crate) fn new(input: EmbedInput, spec: EmbeddingSpec) -> (Pooler, Vec<TokenId>) {
        let pooler = Pooler {
            spec,
            n_tokens: input.tokens.len(),
            sum: vec![0.0; spec.width],
            n_rows: 0,
            result: Some(input.result),
        };
        (pooler, input.tokens)
    }

    /// Makes the sequence of an input. A vector of all rows needs even those of a known prefix.
    pub(crate) fn sequence(&self, tokens: Vec<TokenId>) -> Sequence {
        match self.spec.pooling {
            Pooling::Last | Pooling::Rank => Sequence::new(tokens, Vec::new()),
            Pooling::Mean | Pooling::Cls => Sequence::computed_in_full(tokens),
        }
    }

    /// Returns whether nobody waits for the vector any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.result.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Returns the rows of `span` that the vector is made of.
    pub(crate) fn wanted(&self, span: &Span) -> Range<usize> {
        self.spec.rows(span, self.n_tokens)
    }

    /// Takes the wanted rows of `span` from the front of `rows` and sends the vector after the last.
    /// Returns the rows of others.
    pub(crate) fn take<'a>(&mut self, span: &Span, rows: &'a [f32]) -> &'a [f32] {
        let n_elements = self.wanted(span).len() * self.spec.width;
        let (own, others) = rows.split_at(n_elements.min(rows.len()));
        if span.start == 0 {
            // Also after a preemption.
            self.sum.fill(0.0);
            self.n_rows = 0;
        }
        for row in own.chunks_exact(self.spec.width.max(1)) {
            for (sum, value) in self.sum.iter_mut().zip(row) {
                *sum += value;
            }
            self.n_rows += 1;
        }
        if span.kv_len() < self.n_tokens {
            return others;
        }
        if self.spec.pooling == Pooling::Mean {
            let share = 1.0 / self.n_rows.max(1) as f32;
            for value in &mut self.sum {
                *value *= share;
            }
        }
        let vector = std::mem::take(&mut self.sum);
        self.send(Ok(vector));
        others
    }

    /// Ends with an error.
    pub(crate) fn fail(&mut self, message: String) {
        self.send(Err(message));
    }

    fn send(&mut self, result: Result<Vec<f32>, String>) {
        if let Some(sender) = self.result.take() {
            let _ = sender.send(result);
        }
    }
}

impl EmbeddingSpec {
    /// Returns the rows of `span` that the vector of a sequence of `n_tokens` is made of.
    fn rows(&self, span: &Span, n_tokens: usize) -> Range<usize> {
        let Range { start, end } = span.rows;
        let first = start..start + usize::from(span.start == 0);
        let last = end - usize::from(span.kv_len() == n_tokens)..end;
        match self.pooling {
            Pooling::Mean => start..end,
            Pooling::Cls => first,
            Pooling::Rank if self.bidirectional => first,
            Pooling::Last | Pooling::Rank => last,
        }
    }
}

/// Makes the plan that computes whole inputs together.
pub(crate) fn plan_whole(inputs: &[(Pooler, Vec<TokenId>)]) -> StepPlan {
    let mut plan = StepPlan::default();
    for (pooler, tokens) in inputs {
        let first_row = plan.tokens.len();
        plan.tokens.extend_from_slice(tokens);
        plan.positions.extend(0..tokens.len() as u32);
        let ends = std::iter::repeat_n(tokens.len() as u32, tokens.len());
        plan.ends.extend(ends);
        let span = Span {
            rows: first_row..plan.tokens.len(),
            start: 0,
            blocks: Vec::new(),
            tail: None,
            state: None,
        };
        let wanted = pooler.wanted(&span);
        plan.logit_rows.extend(wanted.map(|row| row as u32));
        plan.spans.push(span);
    }
    plan
}

/// Takes the spans of embeddings out of a step into `embed_step`, whose wanted rows are then those
/// that vectors are made of. `pooler` returns the output side of a sequence that is one.
pub(crate) fn split<'a>(
    step: &mut Step,
    embed_step: &mut Step,
    pooler: impl Fn(usize) -> Option<&'a Pooler>,
) {
    embed_step.clear();
    if step.sequences.iter().all(|idx| pooler(*idx).is_none()) {
        return;
    }
    let mixed = std::mem::take(step);
    step.n_preempted = mixed.n_preempted;
    let mut wanted = mixed.plan.logit_rows.iter().copied().peekable();
    for (span, seq_idx) in mixed.plan.spans.into_iter().zip(mixed.sequences) {
        let rows = span.rows.clone();
        let pooler = pooler(seq_idx);
        let to = match pooler {
            Some(_) => &mut *embed_step,
            None => &mut *step,
        };
        let first_row = to.plan.tokens.len();
        to.plan
            .tokens
            .extend_from_slice(&mixed.plan.tokens[rows.clone()]);
        to.plan
            .positions
            .extend_from_slice(&mixed.plan.positions[rows.clone()]);
        to.plan
            .ends
            .extend_from_slice(&mixed.plan.ends[rows.clone()]);
        let coordinates = mixed.plan.coordinates.get(rows.clone());
        to.plan
            .coordinates
            .extend_from_slice(coordinates.unwrap_or_default());
        let moved_row = |row: usize| row - rows.start + first_row;
        let images = mixed.plan.images.iter();
        let images = images.filter(|image| rows.contains(&image.rows.start));
        to.plan.images.extend(images.map(|image| ImageRows {
            rows: moved_row(image.rows.start)..moved_row(image.rows.end),
            ..image.clone()
        }));
        let moved = Span {
            rows: first_row..first_row + rows.len(),
            ..span
        };
        while let Some(row) = wanted.next_if(|row| (*row as usize) < rows.end) {
            if pooler.is_none() {
                to.plan.logit_rows.push(moved_row(row as usize) as u32);
            }
        }
        if let Some(pooler) = pooler {
            let rows = pooler.wanted(&moved);
            to.plan.logit_rows.extend(rows.map(|row| row as u32));
        }
        to.plan.spans.push(moved);
        to.sequences.push(seq_idx);
    }
}

#[cfg(test)]
mod tests;
