//! Makes tokens that were there before less likely.

use std::collections::{HashMap, VecDeque};

use crate::{SamplingParams, TokenId};

/// The last tokens of a sequence, counted.
#[derive(Debug)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    limit: usize,
    window: VecDeque<TokenId>,
    counts: HashMap<TokenId, u32>,
}

impl Penalties {
    /// Returns nothing when all penalties are off. Values that are no sensible penalty are off.
    pub(super) fn new(
        params: &SamplingParams,
        prompt: &[TokenId],
        num_ctx: usize,
    ) -> Option<Penalties> {
        let finite = |value: f32| if value.is_finite() { value } else { 0.0 };
        let repeat = if params.repeat_penalty.is_finite() && params.repeat_penalty > 0.0 {
            params.repeat_penalty
        } else {
            1.0
        };
        let (presence, frequency) = (
            finite(params.presence_penalty),
            finite(params.frequency_penalty),
        );
        let limit = params.repeat_last_n.unwrap_or(num_ctx).min(num_ctx);
        if limit == 0 || (repeat == 1.0 && presence == 0.0 && frequency == 0.0) {
            return None;
        }
        let mut penalties = Penalties {
            repeat,
            presence,
            frequency,
            limit,
            window: VecDeque::new(),
            counts: HashMap::new(),
        };
        for &token in &prompt[prompt.len().saturating_sub(limit)..] {
            penalties.accept(token);
        }
        Some(penalties)
    }

    pub(super) fn accept(&mut self, token: TokenId) {
        if self.window.len() == self.limit
            && let Some(oldest) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.window.push_back(token);
        *self.counts.entry(token).or_default() += 1;
    }

    /// The repeat penalty divides what is likely and multiplies what is not (Keskar et al. 2019,
    /// arXiv:1909.05858, with the sign rule of the reference engine); the others are subtracted.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        for (&token, &count) in &self.counts {
            change(logits, token, |logit| {
                let repeated = if logit <= 0.0 {
                    logit * self.repeat
                } else {
                    logit / self.repeat
                };
                repeated - (count as f32 * self.frequency + self.presence)
            });
        }
    }
}

/// Changes the logit of a token that is possible; it stays finite whatever the options say.
pub(super) fn change(logits: &mut [f32], token: TokenId, how: impl Fn(f32) -> f32) {
    if let Some(logit) = logits
        .get_mut(token as usize)
        .filter(|logit| logit.is_finite())
    {
        *logit = how(*logit).clamp(f32::MIN, f32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn penalised(params: SamplingParams, prompt: &[TokenId], logits: &[f32]) -> Vec<f32> {
        let mut logits = logits.to_vec();
        if let Some(penalties) = Penalties::new(&params, prompt, 100) {
            penalties.apply(&mut logits);
        }
        logits
    }

    #[test]
    fn each_penalty_does_its_part() {
        let off = SamplingParams {
            repeat_last_n: Some(3),
            ..SamplingParams::default()
        };
        let prompt = [0, 1, 1, 2];
        let logits = [4.0, 4.0, -4.0, 4.0];
        assert_eq!(penalised(off.clone(), &prompt, &logits), logits);
        let repeat = SamplingParams {
            repeat_penalty: 2.0,
            ..off.clone()
        };
        assert_eq!(
            penalised(repeat.clone(), &prompt, &logits),
            [4.0, 2.0, -8.0, 4.0],
            "token 0 is out of the window"
        );
        let whole = SamplingParams {
            repeat_last_n: None,
            ..repeat.clone()
        };
        assert_eq!(penalised(whole, &prompt, &logits), [2.0, 2.0, -8.0, 4.0]);
        let none = SamplingParams {
            repeat_last_n: Some(0),
            ..repeat
        };
        assert_eq!(penalised(none, &prompt, &logits), logits);
        let presence = SamplingParams {
            presence_penalty: 1.0,
            ..off.clone()
        };
        assert_eq!(penalised(presence, &prompt, &logits), [4.0, 3.0, -5.0, 4.0]);
        let frequency = SamplingParams {
            frequency_penalty: 1.0,
            ..off.clone()
        };
        assert_eq!(
            penalised(frequency, &prompt, &logits),
            [4.0, 2.0, -5.0, 4.0]
        );
        let nonsense = SamplingParams {
            repeat_penalty: 0.0,
            presence_penalty: f32::NAN,
            ..off
        };
        assert_eq!(penalised(nonsense, &prompt, &logits), logits);
    }

    #[test]
    fn the_window_moves() {
        let params = SamplingParams {
            repeat_last_n: Some(2),
            presence_penalty: 1.0,
            ..SamplingParams::default()
        };
        let mut penalties = Penalties::new(&params, &[0], 100).unwrap();
        for token in [1, 1, 2, 9] {
            penalties.accept(token);
        }
        let mut logits = [0.0; 4];
        penalties.apply(&mut logits);
        assert_eq!(
            logits,
            [0.0, 0.0, -1.0, 0.0],
            "token 9 is outside the row and ignored"
        );
    }
}
