//! From logits to a token. The order of the parts is that of the reference engine: bias, grammar
//! mask, penalties, then `top_n_sigma`, `top_k`, `typical_p`, `top_p`, `min_p`, temperature, and one
//! random draw.
//!
//! A sampler's state is its seed and the tokens it has seen, nothing else: the same request gives
//! the same text whatever else is computed at the time.

mod filters;
mod logprobs;
mod penalties;

use rand::{RngCore, SeedableRng, rngs::StdRng};
use rand_chacha::ChaCha8Rng;
use toktrie::SimpleVob;

use crate::{SamplingParams, TokenId};

pub use filters::Candidates;
pub use logprobs::LogProbs;
use penalties::{Penalties, change};

/// Logits from which no token can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The model computed something that is not a number.
    #[error("the model computed invalid logits")]
    NotFinite,
    /// The grammar allows no token at all.
    #[error("no token fits the requested format")]
    NothingAllowed,
}

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub struct Sampler {
    params: SamplingParams,
    rng: ChaCha8Rng,
    penalties: Option<Penalties>,
}

impl Sampler {
    /// Makes a sampler for a sequence that begins with `prompt` in a context of `num_ctx` tokens.
    /// Bias that is not a number is ignored.
    pub fn new(mut params: SamplingParams, prompt: &[TokenId], num_ctx: usize) -> Sampler {
        params.logit_bias.retain(|(_, bias)| bias.is_finite());
        let seed = params
            .seed
            .unwrap_or_else(|| StdRng::from_os_rng().next_u64());
        let penalties = Penalties::new(&params, prompt, num_ctx);
        Sampler {
            params,
            rng: ChaCha8Rng::seed_from_u64(seed),
            penalties,
        }
    }

    /// Chooses a token from a row of logits, one for each token of the vocabulary, which it changes.
    /// `mask` names the allowed tokens, `candidates` is working memory.
    ///
    /// # Errors
    ///
    /// [`SampleError::NotFinite`] if a logit is not a number or positive infinity;
    /// [`SampleError::NothingAllowed`] if bias and mask leave no token.
    pub fn pick(
        &mut self,
        logits: &mut [f32],
        mask: Option<&SimpleVob>,
        candidates: &mut Candidates,
    ) -> Result<TokenId, SampleError> {
        for &(token, bias) in &self.params.logit_bias {
            change(logits, token, |logit| logit + bias);
        }
        if let Some(mask) = mask {
            forbid(logits, mask);
        }
        if let Some(penalties) = &self.penalties {
            penalties.apply(logits);
        }
        self.draw(logits, candidates)
    }

    /// Chooses a token from a row of logits as [`Sampler::pick`] left it: where one that was picked
    /// is not wanted.
    pub(crate) fn draw(
        &mut self,
        logits: &[f32],
        candidates: &mut Candidates,
    ) -> Result<TokenId, SampleError> {
        let is_greedy = self.params.temperature.is_nan() || self.params.temperature <= 0.0;
        let top_k = match self.params.top_k {
            _ if is_greedy => 1,
            0 => usize::MAX,
            k => k,
        };
        if candidates.fill(logits, top_k)? == 0 {
            return Err(SampleError::NothingAllowed);
        }
        if is_greedy {
            return Ok(candidates.best());
        }
        candidates.top_n_sigma(self.params.top_n_sigma, logits);
        candidates.typical_p(self.params.typical_p);
        candidates.top_p(self.params.top_p);
        candidates.min_p(self.params.min_p);
        // 53 random bits make an evenly spaced number in 0..1.
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        Ok(candidates.draw(self.params.temperature, uniform))
    }

    /// Notes that `token` is part of the sequence.
    pub fn accept(&mut self, token: TokenId) {
        if let Some(penalties) = &mut self.penalties {
            penalties.accept(token);
        }
    }
}

/// Makes every token impossible that is not in `mask`.
fn forbid(logits: &mut [f32], mask: &SimpleVob) {
    let mut words = mask.as_slice().iter();
    for chunk in logits.chunks_mut(32) {
        match words.next().copied().unwrap_or(0) {
            0 => chunk.fill(f32::NEG_INFINITY),
            u32::MAX => {}
            word => {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
