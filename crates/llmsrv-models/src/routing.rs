//! Which rows go to which experts, and how much each expert counts.

use crate::arch::ExpertsConfig;

/// The choices of all rows of a step, sorted by expert.
#[derive(Debug)]
pub(crate) struct Choices {
    /// Expert `e` owns `starts[e]..starts[e + 1]` of the two lists below.
    starts: Vec<usize>,
    rows: Vec<u32>,
    factors: Vec<f32>,
}

impl Choices {
    /// Chooses from `scores`: one row of `n_experts` for each row of the step. Probabilities are
    /// the softmax over all experts; of equal ones the lower index wins.
    pub(crate) fn new(scores: &[f32], config: &ExpertsConfig) -> Choices {
        let n_rows = scores.len() / config.n_experts.max(1);
        let mut chosen: Vec<(usize, u32, f32)> = Vec::with_capacity(n_rows * config.n_used);
        let mut order: Vec<usize> = Vec::with_capacity(config.n_experts);
        for (row, scores) in scores.chunks_exact(config.n_experts).enumerate() {
            let score = |expert: &usize| scores.get(*expert).copied().unwrap_or(0.0);
            order.clear();
            order.extend(0..config.n_experts);
            order.sort_by(|a, b| score(b).total_cmp(&score(a)));
            let max = order.first().map_or(0.0, score);
            let total: f32 = scores.iter().map(|score| (score - max).exp()).sum();
            order.truncate(config.n_used);
            let probability = |expert: &usize| (score(expert) - max).exp() / total;
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

/// Keeps a sum of probabilities that all vanished from dividing by zero.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;

#[cfg(test)]
mod tests {
    use super::*;

    fn config(n_used: usize, normalize: bool) -> ExpertsConfig {
        ExpertsConfig {
            n_experts: 4,
            n_used,
            width: 1,
            normalize,
            weight_scale: 1.0,
            shared: None,
            beside: None,
        }
    }

    #[test]
    fn rows_are_listed_under_their_best_experts() {
        let scores = [0.0, 2.0, 1.0, -1.0, 5.0, 0.0, 1.0, 0.0];
        let choices = Choices::new(&scores, &config(2, true));
        let rows: Vec<&[u32]> = (0..5).map(|expert| choices.of(expert).0).collect();
        assert_eq!(rows, [&[1][..], &[0], &[0, 1], &[], &[]]);
        let weight = |expert: usize, idx: usize| choices.of(expert).1[idx];
        assert!((weight(1, 0) + weight(2, 0) - 1.0).abs() < 1e-6);
        assert!((weight(1, 0) / weight(2, 0) - 1f32.exp()).abs() < 1e-5);
    }

    #[test]
    fn without_normalising_all_probabilities_sum_to_one() {
        let choices = Choices::new(&[0.5, -3.0, 1.0, 0.0], &config(4, false));
        let sum: f32 = (0..4).map(|expert| choices.of(expert).1[0]).sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }

    #[test]
    fn broken_scores_still_choose_the_right_number() {
        for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let choices = Choices::new(&[score; 4], &config(2, true));
            let n: usize = (0..4).map(|expert| choices.of(expert).0.len()).sum();
            assert_eq!(n, 2);
        }
    }
}
