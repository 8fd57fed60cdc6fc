//! The tokens still in the choice, and the filters that make them fewer.
//!
//! Candidates are ordered by logit, equal ones by id, so every choice is defined. Nothing sorts a
//! whole vocabulary unless a filter needs that: `top_k` selects, `top_p` sorts as much of the top
//! as it takes.

use std::cmp::Ordering;

use super::SampleError;
use crate::TokenId;

/// Working memory of the sampler, used again for each row.
#[derive(Debug, Default)]
pub struct Candidates {
    /// The choice; its first `n_sorted` entries are the best ones, in order.
    list: Vec<Candidate>,
    n_sorted: usize,
    weights: Vec<(f64, Candidate)>,
    /// The largest logit of each chunk of a row, and room to select among them.
    maxima: Vec<f32>,
    selected: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    logit: f32,
    id: TokenId,
}

impl Candidates {
    /// Takes the `top_k` best tokens of a row, in order (or all possible ones when `top_k` is the
    /// whole row or more, in no order). Returns how many.
    pub(super) fn fill(&mut self, logits: &[f32], top_k: usize) -> Result<usize, SampleError> {
        self.list.clear();
        self.n_sorted = 0;
        if top_k >= logits.len() {
            check_finite(logits)?;
            let possible = logits
                .iter()
                .zip(0..)
                .filter(|(logit, _)| **logit > f32::NEG_INFINITY);
            self.list
                .extend(possible.map(|(&logit, id)| Candidate { logit, id }));
            return Ok(self.list.len());
        }
        // Where `top_k` chunks have a logit of at least `lowest`, so have the `top_k` best tokens. That leaves few chunks
        // to look through, and the maximum of a chunk is cheap.
        self.maxima.clear();
        for chunk in logits.chunks(CHUNK) {
            self.maxima.push(maximum(chunk)?);
        }
        let lowest = if top_k > self.maxima.len() {
            f32::NEG_INFINITY
        } else {
            self.selected.clone_from(&self.maxima);
            let descending = |a: &f32, b: &f32| b.total_cmp(a);
            *self
                .selected
                .select_nth_unstable_by(top_k - 1, descending)
                .1
        };
        // A later token needs a higher logit to get in.
        let room = (4 * top_k).max(64);
        let mut threshold = lowest.next_down();
        for (chunk_idx, (chunk, best)) in logits.chunks(CHUNK).zip(&self.maxima).enumerate() {
            if *best <= threshold {
                continue;
            }
            let groups = chunk
                .chunks(LANES)
                .zip((chunk_idx * CHUNK..).step_by(LANES));
            for (group, first) in groups {
                // Counted, not looked for: without a branch for each the compiler compares vectors.
                let n_above: u32 = group
                    .iter()
                    .map(|logit| u32::from(*logit > threshold))
                    .sum();
                if n_above == 0 {
                    continue;
                }
                for (logit, id) in group.iter().zip(first as TokenId..) {
                    if *logit > threshold {
                        self.list.push(Candidate { logit: *logit, id });
                    }
                }
            }
            if self.list.len() >= room {
                self.list
                    .select_nth_unstable_by(top_k - 1, Candidate::better);
                self.list.truncate(top_k);
                threshold = self.list[top_k - 1].logit;
            }
        }
        self.sort(top_k);
        self.list.truncate(top_k);
        Ok(self.list.len())
    }

    /// Returns the best token; there is one.
    pub(super) fn best(&mut self) -> TokenId {
        self.sort(1);
        self.list.first().map_or(0, |best| best.id)
    }

    /// Returns the `n` best tokens, best first.
    pub(super) fn first(&mut self, n: usize) -> impl Iterator<Item = TokenId> {
        self.sort(n);
        self.list.iter().take(n).map(|candidate| candidate.id)
    }

    /// Keeps the tokens whose logit is at most `n` standard deviations below the best one (Tang et
    /// al. 2024, arXiv:2411.07641). 0 = off. The deviation is that of all possible tokens of the
    /// row that the choice was taken from: that of the `top_k` best alone says nothing of the noise.
    /// Both keep the best of one order, so it makes no difference that `top_k` chose first.
    pub(super) fn top_n_sigma(&mut self, n: f32, logits: &[f32]) {
        // Infinitely many deviations keep everything, also where the deviation is 0.
        if !n.is_finite() || n <= 0.0 {
            return;
        }
        self.sort(1);
        let Some(best) = self.list.first().map(|best| f64::from(best.logit)) else {
            return;
        };
        self.keep_from(best - f64::from(n) * deviation(logits));
    }

    /// Keeps the tokens whose information is nearest to the expected one until they have the
    /// probability `p` (Meister et al. 2022, arXiv:2202.00666). 1 = off.
    pub(super) fn typical_p(&mut self, p: f32) {
        if p.is_nan() || p >= 1.0 {
            return;
        }
        let total = self.weigh(1.0);
        let entropy: f64 = self
            .weights
            .iter()
            .map(|(weight, _)| weight / total)
            .filter(|p| *p > 0.0)
            .map(|p| -p * p.ln())
            .sum();
        let distance = |weight: f64| (-(weight / total).ln() - entropy).abs();
        self.weights.sort_unstable_by(|a, b| {
            distance(a.0)
                .total_cmp(&distance(b.0))
                .then(a.1.id.cmp(&b.1.id))
        });
        let mut sum = 0.0;
        self.list.clear();
        self.n_sorted = 0;
        for (weight, candidate) in &self.weights {
            self.list.push(*candidate);
            sum += weight / total;
            if sum > f64::from(p) {
                break;
            }
        }
    }

    /// Keeps the most probable tokens until they have the probability `p` (Holtzman et al. 2020,
    /// arXiv:1904.09751). 1 = off; at least one token stays.
    pub(super) fn top_p(&mut self, p: f32) {
        if p.is_nan() || p >= 1.0 {
            return;
        }
        self.sort(self.list.len().min(SORT_FIRST));
        let Some(best) = self.list.first().map(|best| f64::from(best.logit)) else {
            return;
        };
        let total: f64 = self
            .list
            .iter()
            .map(|candidate| (f64::from(candidate.logit) - best).exp())
            .sum();
        let mut sum = 0.0;
        for idx in 0..self.list.len() {
            if idx == self.n_sorted {
                self.sort(idx.saturating_mul(8));
            }
            sum += (f64::from(self.list[idx].logit) - best).exp();
            if sum >= f64::from(p) * total {
                self.list.truncate(idx + 1);
                self.n_sorted = self.n_sorted.min(idx + 1);
                return;
            }
        }
    }

    /// Keeps the tokens with at least `p` times the probability of the best one (Nguyen et al.
    /// 2024, arXiv:2407.01082). 0 = off.
    pub(super) fn min_p(&mut self, p: f32) {
        if p.is_nan() || p <= 0.0 {
            return;
        }
        self.sort(1);
        let Some(best) = self.list.first().map(|best| best.logit) else {
            return;
        };
        self.keep_from(f64::from(best + p.min(1.0).ln()));
    }

    /// Draws a token with the probabilities that `temperature` gives; `uniform` is in 0..1.
    pub(super) fn draw(&mut self, temperature: f32, uniform: f64) -> TokenId {
        let total = self.weigh(f64::from(temperature));
        let mut rest = uniform * total;
        for (weight, candidate) in &self.weights {
            rest -= weight;
            if rest < 0.0 {
                return candidate.id;
            }
        }
        // Rounding may leave a crumb: it belongs to the last token that can be drawn at all.
        self.weights
            .iter()
            .rev()
            .find(|(weight, _)| *weight > 0.0)
            .map_or(0, |(_, candidate)| candidate.id)
    }

    /// Returns the tokens of the last draw and their probabilities, best first.
    #[cfg(test)]
    pub(super) fn probabilities(&mut self) -> Vec<(TokenId, f64)> {
        let total: f64 = self.weights.iter().map(|(weight, _)| weight).sum();
        self.weights.sort_by(|a, b| a.1.better(&b.1));
        self.weights
            .iter()
            .map(|(weight, candidate)| (candidate.id, weight / total))
            .collect()
    }

    /// Fills `weights` with exp((logit - best) / temperature) and returns their sum.
    fn weigh(&mut self, temperature: f64) -> f64 {
        let best = self
            .list
            .iter()
            .map(|candidate| candidate.logit)
            .fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| (f64::from(logit - best) / temperature).exp();
        self.weights.clear();
        self.weights.extend(
            self.list
                .iter()
                .map(|candidate| (weight(candidate.logit), *candidate)),
        );
        self.weights.iter().map(|(weight, _)| weight).sum()
    }

    /// Keeps the tokens whose logit is at least `lowest`, in the order they have.
    fn keep_from(&mut self, lowest: f64) {
        let passes = |candidate: &Candidate| f64::from(candidate.logit) >= lowest;
        let sorted = &self.list[..self.n_sorted];
        self.n_sorted = sorted.iter().filter(|candidate| passes(candidate)).count();
        self.list.retain(passes);
    }

    /// Makes the first `n` candidates the best ones, in order.
    fn sort(&mut self, n: usize) {
        let n = n.min(self.list.len());
        if n <= self.n_sorted {
            return;
        }
        let rest = &mut self.list[self.n_sorted..];
        let n_new = n - self.n_sorted;
        if n_new < rest.len() {
            rest.select_nth_unstable_by(n_new - 1, Candidate::better);
        }
        rest[..n_new].sort_unstable_by(Candidate::better);
        self.n_sorted = n;
    }
}

impl Candidate {
    /// Orders the more likely candidate first, then the lower id.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that sorting wants"
    )]
    fn better(&self, other: &Candidate) -> Ordering {
        other
            .logit
            .partial_cmp(&self.logit)
            .unwrap_or(Ordering::Equal)
            .then(self.id.cmp(&other.id))
    }
}

/// Refuses rows with NaN or positive infinity.
fn check_finite(logits: &[f32]) -> Result<(), SampleError> {
    logits
        .chunks(CHUNK)
        .try_for_each(|chunk| maximum(chunk).map(|_| ()))
}

/// Returns the largest value, or an error when one is NaN or infinite. Written in lanes so that
/// the compiler uses vectors.
fn maximum(chunk: &[f32]) -> Result<f32, SampleError> {
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut is_nan = [0_u32; LANES];
    let (groups, rest) = chunk.as_chunks::<LANES>();
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    for group in groups {
        for lane in 0..LANES {
            best[lane] = larger(group[lane], best[lane]);
            is_nan[lane] |= u32::from(group[lane].is_nan());
        }
    }
    let mut n = LANES;
    while n > 1 {
        n /= 2;
        for lane in 0..n {
            best[lane] = larger(best[lane + n], best[lane]);
            is_nan[lane] |= is_nan[lane + n];
        }
    }
    let best = rest.iter().copied().fold(best[0], larger);
    let is_nan = is_nan[0] != 0 || rest.iter().any(|value| value.is_nan());
    if is_nan || best == f32::INFINITY {
        Err(SampleError::NotFinite)
    } else {
        Ok(best)
    }
}

/// Returns the standard deviation of the logits of all possible tokens.
fn deviation(logits: &[f32]) -> f64 {
    let n = sum(logits, |_| 1.0).max(1.0);
    let mean = sum(logits, |logit| logit) / n;
    let variance = sum(logits, |logit| (logit - mean) * (logit - mean)) / n;
    variance.sqrt()
}

/// Adds up a value of each possible token. Written in lanes so that the compiler uses vectors.
fn sum(logits: &[f32], value: impl Fn(f64) -> f64) -> f64 {
    let value = |logit: f32| {
        if logit > f32::NEG_INFINITY {
            value(f64::from(logit))
        } else {
            0.0
        }
    };
    let mut sums = [0.0; LANES];
    let (groups, rest) = logits.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            sums[lane] += value(group[lane]);
        }
    }
    let rest = rest.iter().map(|logit| value(*logit));
    sums.into_iter().chain(rest).sum()
}

const LANES: usize = 16;
const CHUNK: usize = 256;
/// How many of the best tokens `top_p` sorts at first; most often they are enough.
const SORT_FIRST: usize = 128;
