//! Encoders: models in which every token sees all others, and which make vectors, not text.
//!
//! Read in this order: `config` (what distinguishes them, as data), `weights` (which tensors that
//! needs), `forward` (the one pass). This file is the engine's view.

mod config;
mod forward;
mod weights;

use llmsrv_engine::{EmbeddingSpec, LoadError, Model, ModelError, ModelSpec, Pooling, StepPlan};
use llmsrv_tokenizer::{Algorithm, Tokenizer};

pub(crate) use self::config::architectures;
pub(crate) use self::config::{EncoderConfig, pooling, read, scores_pairs};
pub(crate) use self::weights::EncoderWeights;
use crate::{
    adapter::{Adapter, with_adapters},
    arch::BLOCK_SIZE,
    ops::Ops,
    source::Source,
};

/// A loaded encoder on the device of `O`.
pub(crate) struct Encoder<O: Ops> {
    spec: ModelSpec,
    config: EncoderConfig,
    weights: EncoderWeights<O>,
    ops: O,
    /// Ends the first text of a pair, where the second has a token type of its own.
    separator: Option<u32>,
}

impl<O: Ops> Encoder<O> {
    /// Loads the weights onto the device of `ops`.
    pub(crate) fn load(
        source: &Source,
        adapters: &[Adapter],
        config: EncoderConfig,
        tokenizer: &Tokenizer,
        mut ops: O,
    ) -> Result<Encoder<O>, LoadError> {
        let n_vocab = tokenizer.vocab_size();
        let weights = EncoderWeights::load(source, adapters, &config, n_vocab, &mut ops)?;
        let width = match (config.pooling, &weights.head) {
            (Pooling::Rank, Some(head)) => head.n_outputs,
            _ => config.width,
        };
        let gpus = ops.gpus();
        let spec = ModelSpec {
            vocab_size: n_vocab,
            block_size: BLOCK_SIZE,
            context_length: config.context_length,
            kv_block_bytes: 0,
            state_bytes: 0,
            weight_bytes: with_adapters(source.tensor_bytes(), adapters)
                .saturating_add(ops.extra_weight_bytes())
                .saturating_sub(ops.moved_bytes())
                .saturating_add(gpus.iter().map(|gpu| gpu.weight_bytes).sum()),
            embedding: Some(EmbeddingSpec {
                width,
                pooling: config.pooling,
                bidirectional: true,
            }),
            n_layers: config.n_layers + 1,
            gpus,
            npu: false,
        };
        // Only BERT's own tokenizer goes with BERT's two kinds of segments.
        let vocab = tokenizer.vocab();
        let has_segments = vocab.algorithm == Algorithm::WordPiece
            && config.pooling == Pooling::Rank
            && weights.n_types() > 1;
        Ok(Encoder {
            spec,
            separator: vocab.separator.or(vocab.eos).filter(|_| has_segments),
            config,
            weights,
            ops,
        })
    }
}

/// Checks everything that the arithmetic of whole inputs relies on.
pub(crate) fn check(spec: &ModelSpec, plan: &StepPlan, rows: &[f32]) -> Result<(), &'static str> {
    let n_rows = plan.tokens.len();
    let unknown = |token: &u32| *token as usize >= spec.vocab_size;
    if plan.tokens.iter().any(unknown) {
        return Err("a token is not in the vocabulary");
    }
    let mut next_row = 0;
    for span in &plan.spans {
        if span.rows.start != next_row || span.rows.is_empty() || span.rows.end > n_rows {
            return Err("spans do not cover the rows in order");
        }
        next_row = span.rows.end;
        let n_tokens = span.rows.len();
        if n_tokens > spec.context_length {
            return Err("an input is longer than the context");
        }
        let positions = plan.positions.get(span.rows.clone()).unwrap_or_default();
        if span.start != 0 || !positions.iter().copied().eq(0..n_tokens as u32) {
            return Err("an input is not whole");
        }
    }
    let ascending = plan.logit_rows.is_sorted_by(|a, b| a < b);
    let last = plan.logit_rows.last().map_or(0, |row| *row as usize + 1);
    if next_row != n_rows || plan.positions.len() != n_rows || !ascending || last > n_rows {
        return Err("rows without a span, or wanted rows that do not exist");
    }
    let width = spec.embedding.map_or(0, |spec| spec.width);
    if rows.len() != plan.logit_rows.len() * width {
        return Err("the result has another length than the plan asks for");
    }
    Ok(())
}

impl<O> Model for Encoder<O>
where
    O: Ops,
    O::Matrix: Send,
    O::Vector: Send,
{
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// There is nothing to keep between steps.
    fn reserve_blocks(&mut self, _n_blocks: usize) -> Result<(), ModelError> {
        Ok(())
    }

    fn forward(&mut self, _plan: &StepPlan, _logits: &mut [f32]) -> Result<(), ModelError> {
        Err(ModelError::NoText)
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let checked = check(&self.spec, plan, rows);
        checked.map_err(|reason| ModelError::Compute(format!("invalid plan: {reason}")))?;
        if plan.logit_rows.is_empty() {
            return Ok(());
        }
        let types = self.token_types(plan);
        let (config, weights) = (&self.config, &self.weights);
        forward::forward(config, weights, &mut self.ops, plan, &types, rows)
    }
}

impl<O: Ops> Encoder<O> {
    /// Returns the token type of each row: 1 for the second text of a pair, else 0.
    fn token_types(&self, plan: &StepPlan) -> Vec<u32> {
        let mut types = vec![0; plan.tokens.len()];
        let Some(separator) = self.separator else {
            return types;
        };
        for span in &plan.spans {
            let rows = span.rows.clone();
            let tokens = plan.tokens.get(rows.clone()).unwrap_or_default();
            let n_first = tokens
                .iter()
                .position(|token| *token == separator)
                .map_or(tokens.len(), |at| at + 1);
            if let Some(second) = types.get_mut(rows.start + n_first..rows.end) {
                second.fill(1);
            }
        }
        types
    }
}
