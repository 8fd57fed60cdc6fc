//! Log-probabilities of tokens under the model itself: over the whole vocabulary and before any
//! filter, penalty or mask.

use super::{Candidates, SampleError};
use crate::TokenId;

/// A row of logits with its normaliser, kept while the sampler changes the original.
#[derive(Debug, Default)]
pub struct LogProbs {
    logits: Vec<f32>,
    log_total: f64,
}

impl LogProbs {
    /// Takes a copy of a row of logits, one for each token of the vocabulary.
    pub fn measure(&mut self, logits: &[f32]) {
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        let best = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let total: f64 = logits
            .iter()
            .map(|logit| (f64::from(*logit) - best).exp())
            .sum();
        self.log_total = best + total.ln();
    }

    /// Returns the natural logarithm of the probability of `token`: minus infinity for an id beyond
    /// the row.
    pub fn of(&self, token: TokenId) -> f32 {
        let logit = self
            .logits
            .get(token as usize)
            .copied()
            .unwrap_or(f32::NEG_INFINITY);
        (f64::from(logit) - self.log_total) as f32
    }

    /// Returns the `n` most probable tokens, best first, with the natural logarithms of their
    /// probabilities.
    ///
    /// # Errors
    ///
    /// [`SampleError::NotFinite`] if a logit of the row is not a number or positive infinity.
    pub fn top(
        &self,
        n: usize,
        candidates: &mut Candidates,
    ) -> Result<Vec<(TokenId, f32)>, SampleError> {
        if n == 0 {
            return Ok(Vec::new());
        }
        candidates.fill(&self.logits, n)?;
        Ok(candidates
            .first(n)
            .map(|token| (token, self.of(token)))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up() {
        let mut probs = LogProbs::default();
        probs.measure(&[1.0, 3.0, -1.0, 3.0, f32::NEG_INFINITY]);
        let total: f32 = (0..5).map(|token| probs.of(token).exp()).sum();
        assert!((total - 1.0).abs() < 1e-5, "{total}");
        let top = probs.top(3, &mut Candidates::default()).unwrap();
        assert_eq!(
            top.iter().map(|(token, _)| *token).collect::<Vec<_>>(),
            [1, 3, 0]
        );
        assert_eq!(top[0].1, probs.of(1));
        assert_eq!(probs.of(99), f32::NEG_INFINITY);
        assert!(probs.top(0, &mut Candidates::default()).unwrap().is_empty());
        assert_eq!(probs.top(99, &mut Candidates::default()).unwrap().len(), 4);
    }
}
