//! Which rows go to which experts, and how much each expert counts.

use std::iter::repeat;

use crate::arch::{ExpertGroups, ExpertsConfig, Gating};

/// The choices of all rows of a step, sorted by expert.
#[derive(Debug)]
pub(crate) struct Choices {
    /// Expert `e` owns `starts[e]..starts[e + 1]` of the two lists below.
    starts: Vec<usize>,
    rows: Vec<u32>,
    factors: Vec<f32>,
}

impl Choices {
    /// Chooses from `scores`: one row of `n_experts` for each row of the step. What is chosen has the
    /// highest probability, with its `bias` where there is one, within the best groups; of equal ones the
    /// lower index wins. How much it counts is a matter of probabilities alone.
    pub(crate) fn new(scores: &[f32], bias: Option<&[f32]>, config: &ExpertsConfig) -> Choices {
        let n_rows = scores.len() / config.n_experts.max(1);
        let mut chosen: Vec<(usize, u32, f32)> = Vec::with_capacity(n_rows * config.n_used);
        let mut order: Vec<usize> = Vec::with_capacity(config.n_experts);
        let mut ranks: Vec<f32> = Vec::with_capacity(config.n_experts);
        for (row, scores) in scores.chunks_exact(config.n_experts).enumerate() {
            let score = |expert: &usize| scores.get(*expert).copied().unwrap_or(0.0);
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = scores.iter().map(|score| (score - max).exp()).sum();
            if config.gating == Gating::SparseMixer {
                let picks = sparse_mixer(scores, config.n_used);
                let choice = |(expert, factor): (usize, f32)| (expert, row as u32, factor);
                chosen.extend(picks.into_iter().map(choice));
                continue;
            }
            let of_score = |score: f32| match config.gating {
                Gating::Softmax | Gating::SparseMixer => (score - max).exp() / total,
                Gating::Sigmoid => 1.0 / (1.0 + (-score).exp()),
            };
            let probability = |expert: &usize| of_score(score(expert));
            ranks.clear();
            match (bias, config.groups) {
                // Scores are in the order of their probabilities, and differ where those are all 0 or 1.
                (None, None) => ranks.extend(scores),
                (bias, _) => {
                    let bias = bias.unwrap_or_default().iter().copied();
                    let biased = scores.iter().zip(bias.chain(repeat(0.0)));
                    ranks.extend(biased.map(|(score, bias)| of_score(*score) + bias));
                }
            }
            if let Some(groups) = config.groups {
                exclude(&mut ranks, groups);
            }
            order.clear();
            order.extend(0..config.n_experts);
            let rank = |expert: &usize| ranks.get(*expert).copied().unwrap_or(0.0);
            order.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
            order.truncate(config.n_used);
            let mut scale = config.weight_scale;
            if config.normalize {
                let sum: f32 = order.iter().map(probability).sum();
                scale /= sum.max(SMALLEST_SUM);
            }
            let choice = |expert: &usize| (*expert, row as u32, scale * probability(expert));
            chosen.extend(order.iter().map(choice));
        }
        chosen.sort_by_key(|(expert, row, _)| (*expert, *row));
        let starts = (0..=config.n_experts)
            .map(|expert| chosen.partition_point(|choice| choice.0 < expert))
            .collect();
        Choices {
            starts,
            rows: chosen.iter().map(|choice| choice.1).collect(),
            factors: chosen.iter().map(|choice| choice.2).collect(),
        }
    }

    /// Returns the rows that chose an expert, ascending, and how much it counts for each.
    pub(crate) fn of(&self, expert: usize) -> (&[u32], &[f32]) {
        let bounds = (self.starts.get(expert), self.starts.get(expert + 1));
        let (Some(&start), Some(&end)) = bounds else {
            return (&[], &[]);
        };
        let rows = self.rows.get(start..end).unwrap_or_default();
        (rows, self.factors.get(start..end).unwrap_or_default())
    }
}

/// Picks experts one after the other: the best of those that are left. It counts as much as its part in the
/// softmax over those whose score is near its own.
fn sparse_mixer(scores: &[f32], n_used: usize) -> Vec<(usize, f32)> {
    let mut left: Vec<usize> = (0..scores.len()).collect();
    let score = |expert: &usize| scores.get(*expert).copied().unwrap_or(0.0);
    let mut picks = Vec::with_capacity(n_used);
    for _ in 0..n_used.min(scores.len()) {
        // Of equal ones the first.
        let best = left.iter().rev().copied();
        let Some(best) = best.max_by(|a, b| score(a).total_cmp(&score(b))) else {
            break;
        };
        let max = score(&best);
        let near = |expert: &&usize| {
            let score = score(expert);
            // Where scores are not numbers, none is far.
            let is_far = (max - score) / score.abs().max(max) > 2.0 * JITTER;
            !is_far
        };
        let near = left.iter().filter(near);
        let total: f32 = near.map(|expert| (score(expert) - max).exp()).sum();
        picks.push((best, 1.0 / total));
        left.retain(|expert| *expert != best);
    }
    picks
}

/// Sets the ranks of all experts outside the best groups below all others.
fn exclude(ranks: &mut [f32], groups: ExpertGroups) {
    let size = (ranks.len() / groups.n.max(1)).max(1);
    let mut worths: Vec<(usize, f32)> = ranks.chunks(size).map(worth).enumerate().collect();
    worths.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (group, _) in worths.iter().skip(groups.n_used) {
        if let Some(ranks) = ranks.chunks_mut(size).nth(*group) {
            ranks.fill(f32::NEG_INFINITY);
        }
    }
}

/// Returns the sum of the two best ranks.
fn worth(ranks: &[f32]) -> f32 {
    let (first, second) = ranks.iter().fold(
        (f32::NEG_INFINITY, f32::NEG_INFINITY),
        |(first, second), rank| {
            if *rank > first {
                (*rank, first)
            } else {
                (first, second.max(*rank))
            }
        },
    );
    if ranks.len() > 1 {
        first + second
    } else {
        first
    }
}

/// How far apart scores may be, relative to the larger one, half of what counts as near
/// (`router_jitter_noise` of the published model).
const JITTER: f32 = 0.01;

/// Keeps a sum of probabilities that all vanished from dividing by zero.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ExpertsInput;

    fn config(n_used: usize, normalize: bool) -> ExpertsConfig {
        ExpertsConfig {
            n_experts: 4,
            n_used,
            width: 1,
            gating: Gating::Softmax,
            groups: None,
            gated: true,
            latent: None,
            reads: ExpertsInput::Usual,
            normalize,
            weight_scale: 1.0,
            weigh_input: false,
            shared: None,
            beside: None,
        }
    }

    #[test]
    fn rows_are_listed_under_their_best_experts() {
        let scores = [0.0, 2.0, 1.0, -1.0, 5.0, 0.0, 1.0, 0.0];
        let choices = Choices::new(&scores, None, &config(2, true));
        let rows: Vec<&[u32]> = (0..5).map(|expert| choices.of(expert).0).collect();
        assert_eq!(rows, [&[1][..], &[0], &[0, 1], &[], &[]]);
        let weight = |expert: usize, idx: usize| choices.of(expert).1[idx];
        assert!((weight(1, 0) + weight(2, 0) - 1.0).abs() < 1e-6);
        assert!((weight(1, 0) / weight(2, 0) - 1f32.exp()).abs() < 1e-5);
    }

    #[test]
    fn without_normalising_all_probabilities_sum_to_one() {
        let choices = Choices::new(&[0.5, -3.0, 1.0, 0.0], None, &config(4, false));
        let sum: f32 = (0..4).map(|expert| choices.of(expert).1[0]).sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }

    #[test]
    fn broken_scores_still_choose_the_right_number() {
        let groups = ExpertGroups { n: 2, n_used: 1 };
        for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (bias, gating, groups) in [
                (None, Gating::Softmax, None),
                (None, Gating::SparseMixer, None),
                (Some(&[score; 4][..]), Gating::Sigmoid, None),
                (Some(&[score][..]), Gating::Sigmoid, Some(groups)),
            ] {
                let config = ExpertsConfig {
                    gating,
                    groups,
                    ..config(2, true)
                };
                let choices = Choices::new(&[score; 4], bias, &config);
                let n: usize = (0..4).map(|expert| choices.of(expert).0.len()).sum();
                assert_eq!(n, 2);
            }
        }
    }

    /// Two scores within a fiftieth of each other share; the others do not count.
    #[test]
    fn a_sparse_mixer_picks_one_expert_after_the_other() {
        let config = ExpertsConfig {
            gating: Gating::SparseMixer,
            ..config(2, true)
        };
        let choices = Choices::new(&[4.0, 3.95, -9.0, 3.0], None, &config);
        let rows: Vec<&[u32]> = (0..4).map(|expert| choices.of(expert).0).collect();
        assert_eq!(rows, [&[0][..], &[0], &[], &[]]);
        let expected = 1.0 / (1.0 + (-0.05f32).exp());
        assert!((choices.of(0).1[0] - expected).abs() < 1e-6);
        assert_eq!(choices.of(1).1, [1.0]);
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let config = ExpertsConfig {
            gating: Gating::Sigmoid,
            ..config(2, false)
        };
        let bias = [0.0, 0.0, 0.9, -0.9];
        let choices = Choices::new(&[1.0, 0.0, -1.0, 2.0], Some(&bias), &config);
        let rows: Vec<&[u32]> = (0..4).map(|expert| choices.of(expert).0).collect();
        assert_eq!(rows, [&[0][..], &[], &[0], &[]]);
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        assert!((choices.of(0).1[0] - sigmoid(1.0)).abs() < 1e-6);
        assert!((choices.of(2).1[0] - sigmoid(-1.0)).abs() < 1e-6);
    }

    /// The best expert of all is in a group that is worth less than the other.
    #[test]
    fn the_two_best_of_a_group_make_its_worth() {
        let groups = ExpertGroups { n: 2, n_used: 1 };
        let config = ExpertsConfig {
            gating: Gating::Sigmoid,
            groups: Some(groups),
            ..config(2, true)
        };
        let choices = Choices::new(&[3.0, -3.0, 1.0, 1.5], None, &config);
        let rows: Vec<&[u32]> = (0..4).map(|expert| choices.of(expert).0).collect();
        assert_eq!(rows, [&[][..], &[], &[0], &[0]]);
        let mut ranks = [0.9, 0.1, 0.6, 0.6, 0.5, 0.2];
        exclude(&mut ranks, ExpertGroups { n: 3, n_used: 2 });
        assert_eq!(ranks[..4], [0.9, 0.1, 0.6, 0.6]);
        assert_eq!(ranks[4..], [f32::NEG_INFINITY; 2]);
    }
}
