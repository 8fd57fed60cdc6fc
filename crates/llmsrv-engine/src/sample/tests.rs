//! The sampler against a plain version that sorts everything.

use proptest::prelude::*;

use super::*;

fn pick(params: &SamplingParams, logits: &[f32]) -> Result<TokenId, SampleError> {
    Sampler::new(params.clone(), &[], 100).pick(
        &mut logits.to_vec(),
        None,
        &mut Candidates::default(),
    )
}

/// Returns the tokens that pass all filters with their probabilities, most probable first.
fn plain(params: &SamplingParams, logits: &[f32]) -> Vec<(TokenId, f64)> {
    let mut list: Vec<(TokenId, f64)> = (0..)
        .zip(logits)
        .filter(|(_, logit)| **logit > f32::NEG_INFINITY)
        .map(|(id, logit)| (id, f64::from(*logit)))
        .collect();
    let by_logit = |list: &mut Vec<(TokenId, f64)>| {
        list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    };
    let softmax = |list: &[(TokenId, f64)], temperature: f64| -> Vec<f64> {
        let best = list
            .iter()
            .map(|(_, logit)| *logit)
            .fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = list
            .iter()
            .map(|(_, logit)| ((logit - best) / temperature).exp())
            .collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    };
    by_logit(&mut list);
    if params.top_n_sigma > 0.0 {
        let n = list.len() as f64;
        let mean = list.iter().map(|(_, logit)| logit).sum::<f64>() / n;
        let squares = list.iter().map(|(_, logit)| (logit - mean).powi(2));
        let deviation = (squares.sum::<f64>() / n).sqrt();
        let lowest = list
            .first()
            .map(|(_, best)| best - f64::from(params.top_n_sigma) * deviation);
        list.retain(|(_, logit)| Some(*logit) >= lowest);
    }
    if params.top_k > 0 {
        list.truncate(params.top_k);
    }
    if params.typical_p < 1.0 {
        let probs = softmax(&list, 1.0);
        let entropy: f64 = probs.iter().map(|p| -p * p.ln()).sum();
        let mut order: Vec<usize> = (0..list.len()).collect();
        let distance = |idx: usize| (-probs[idx].ln() - entropy).abs();
        order.sort_by(|a, b| {
            distance(*a)
                .total_cmp(&distance(*b))
                .then(list[*a].0.cmp(&list[*b].0))
        });
        let mut sum = 0.0;
        let n = order.iter().position(|idx| {
            sum += probs[*idx];
            sum > f64::from(params.typical_p)
        });
        order.truncate(n.map_or(order.len(), |n| n + 1));
        list = order.into_iter().map(|idx| list[idx]).collect();
        by_logit(&mut list);
    }
    if params.top_p < 1.0 {
        let mut sum = 0.0;
        let n = softmax(&list, 1.0).iter().position(|p| {
            sum += p;
            sum >= f64::from(params.top_p)
        });
        list.truncate(n.map_or(list.len(), |n| n + 1));
    }
    if params.min_p > 0.0 {
        let probs = softmax(&list, 1.0);
        let n = probs
            .iter()
            .filter(|p| **p >= f64::from(params.min_p) * probs[0] * (1.0 - 1e-6))
            .count();
        list.truncate(n);
    }
    let probs = softmax(&list, f64::from(params.temperature));
    list.into_iter().map(|(id, _)| id).zip(probs).collect()
}

fn off() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        seed: Some(0),
        ..SamplingParams::default()
    }
}

#[test]
fn greedy_takes_the_best_with_the_lowest_id() {
    let greedy = SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    };
    for (logits, best) in [
        (vec![1.0, 3.0, 3.0], 1),
        (vec![-5.0], 0),
        (vec![0.0, -0.0, 0.0], 0),
        (vec![f32::NEG_INFINITY, -9.0], 1),
    ] {
        assert_eq!(pick(&greedy, &logits), Ok(best), "{logits:?}");
    }
    let mut long = vec![0.0; 10_000];
    long[7777] = 1.0;
    long[9999] = 1.0;
    assert_eq!(pick(&greedy, &long), Ok(7777));
}

#[test]
fn invalid_rows_are_errors() {
    for params in [
        off(),
        SamplingParams::default(),
        SamplingParams {
            temperature: 0.0,
            ..off()
        },
    ] {
        for (row, error) in [
            (vec![f32::NAN], SampleError::NotFinite),
            (vec![0.0, f32::INFINITY], SampleError::NotFinite),
            (vec![f32::NEG_INFINITY; 3], SampleError::NothingAllowed),
            (vec![], SampleError::NothingAllowed),
        ] {
            assert_eq!(pick(&params, &row), Err(error), "{row:?}");
        }
        for at in [0, 15, 16, 255, 256, 999] {
            let mut row = vec![1.0; 1000];
            row[at] = f32::NAN;
            assert_eq!(pick(&params, &row), Err(SampleError::NotFinite), "at {at}");
        }
    }
}

#[test]
fn senseless_parameters_do_no_harm() {
    let values = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -1.0,
        0.0,
        1e-45,
        1e38,
        2.0,
    ];
    for value in values {
        for params in [
            SamplingParams {
                temperature: value,
                ..off()
            },
            SamplingParams {
                top_p: value,
                ..off()
            },
            SamplingParams {
                min_p: value,
                ..off()
            },
            SamplingParams {
                top_n_sigma: value,
                ..off()
            },
            SamplingParams {
                typical_p: value,
                ..off()
            },
            SamplingParams {
                repeat_penalty: value,
                presence_penalty: value,
                frequency_penalty: value,
                ..off()
            },
            SamplingParams {
                top_k: usize::MAX,
                logit_bias: vec![(1, value), (99, 1.0)],
                ..off()
            },
        ] {
            let mut sampler = Sampler::new(params.clone(), &[1, 1], 100);
            let token = sampler.pick(&mut [0.5, 1.0, -3.0], None, &mut Candidates::default());
            assert!(matches!(token, Ok(0..3)), "{params:?}: {token:?}");
        }
    }
}

#[test]
fn bias_and_mask_decide_before_the_filters() {
    let greedy = SamplingParams {
        temperature: 0.0,
        ..off()
    };
    let biased = SamplingParams {
        logit_bias: vec![(0, -100.0), (2, 5.0)],
        ..greedy.clone()
    };
    assert_eq!(pick(&biased, &[9.0, 1.0, 0.0]), Ok(2));
    let mut row: Vec<f32> = (0..100).map(|idx| idx as f32).collect();
    let mut mask = SimpleVob::alloc(70);
    for token in [3, 31, 32, 64] {
        mask.allow_token(token);
    }
    let mut sampler = Sampler::new(greedy, &[], 10);
    assert_eq!(
        sampler.pick(&mut row, Some(&mask), &mut Candidates::default()),
        Ok(64)
    );
    assert_eq!(
        row.iter().filter(|logit| logit.is_finite()).count(),
        4,
        "tokens beyond the mask are not allowed"
    );
    let none = SimpleVob::alloc(100);
    let refused = sampler.pick(&mut row, Some(&none), &mut Candidates::default());
    assert_eq!(refused, Err(SampleError::NothingAllowed));
}

#[test]
fn top_n_sigma_measures_all_possible_tokens() {
    let kept = |params: &SamplingParams, logits: &[f32], mask: Option<&SimpleVob>| {
        let mut candidates = Candidates::default();
        let mut sampler = Sampler::new(params.clone(), &[], 100);
        let picked = sampler.pick(&mut logits.to_vec(), mask, &mut candidates);
        let ids: Vec<TokenId> = candidates
            .probabilities()
            .iter()
            .map(|(id, _)| *id)
            .collect();
        assert!(ids.contains(&picked.unwrap()));
        ids
    };
    let impossible = f32::NEG_INFINITY;
    // Mean 0, deviation 5.
    let row = [1.0, -7.0, 7.0, -1.0];
    for (top_n_sigma, top_k, logits, expected) in [
        (0.0, 0, &row[..], &[2, 0, 3, 1][..]),
        (-1.0, 0, &row, &[2, 0, 3, 1]),
        (f32::INFINITY, 0, &row, &[2, 0, 3, 1]),
        (1.0, 0, &row, &[2]),
        (1.5, 0, &row, &[2, 0]),
        (2.0, 0, &row, &[2, 0, 3]),
        (3.0, 0, &row, &[2, 0, 3, 1]),
        // The two best alone have a deviation of 3.
        (1.5, 2, &row, &[2, 0]),
        (3.0, 2, &row, &[2, 0]),
        // Exactly at the border is inside, and what is impossible does not count.
        (2.0, 0, &[3.0, impossible, 1.0, impossible], &[0, 2]),
        (1.9, 0, &[3.0, impossible, 1.0, impossible], &[0]),
        // A deviation of 0: equal ones stay, in the order of their ids.
        (1e-45, 0, &[-2.0, -2.0, impossible, -2.0], &[0, 1, 3]),
        (f32::INFINITY, 0, &[2.0, 2.0], &[0, 1]),
        (1.0, 0, &[impossible, -9.0], &[1]),
        (1.0, 0, &[f32::MAX, f32::MIN], &[0]),
    ] {
        let params = SamplingParams {
            top_n_sigma,
            top_k,
            ..off()
        };
        let found = kept(&params, logits, None);
        assert_eq!(found, expected, "{top_n_sigma} {top_k} {logits:?}");
    }
    // Of what a grammar allows, and the same whatever the temperature.
    let mut mask = SimpleVob::alloc(4);
    mask.allow_token(0);
    mask.allow_token(1);
    for temperature in [0.1, 1.0, 100.0] {
        for (top_n_sigma, expected) in [(1.9, &[0][..]), (2.0, &[0, 1])] {
            let params = SamplingParams {
                temperature,
                top_n_sigma,
                ..off()
            };
            assert_eq!(kept(&params, &row, Some(&mask)), expected);
        }
    }
    let params = SamplingParams {
        top_n_sigma: 1.0,
        ..off()
    };
    for (row, error) in [
        (&[1.0, f32::NAN][..], SampleError::NotFinite),
        (&[1.0, f32::INFINITY], SampleError::NotFinite),
        (&[impossible; 3], SampleError::NothingAllowed),
    ] {
        assert_eq!(pick(&params, row), Err(error), "{row:?}");
    }
}

#[test]
fn draws_follow_the_probabilities() {
    let logits = [0.0f32, 1.0, 2.0, -1.0];
    let params = SamplingParams {
        temperature: 0.7,
        ..off()
    };
    let expected = plain(&params, &logits);
    let mut sampler = Sampler::new(params, &[], 100);
    let mut candidates = Candidates::default();
    let mut counts = [0.0; 4];
    let n = 20_000;
    for _ in 0..n {
        counts[sampler
            .pick(&mut logits.to_vec(), None, &mut candidates)
            .unwrap() as usize] += 1.0;
    }
    for (id, p) in expected {
        let found = counts[id as usize] / f64::from(n);
        assert!(
            (found - p).abs() < 0.015,
            "token {id}: {found} instead of {p}"
        );
    }
}

#[test]
fn the_seed_decides() {
    let draw = |seed| {
        let mut sampler = Sampler::new(SamplingParams { seed, ..off() }, &[], 10);
        let mut candidates = Candidates::default();
        (0..20)
            .map(|_| sampler.pick(&mut [0.0; 50], None, &mut candidates).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(Some(7)), draw(Some(7)));
    assert_ne!(draw(Some(7)), draw(Some(8)));
    assert_ne!(draw(None), draw(None));
}

/// Logits, some of them equal, some impossible.
fn rows(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        9 => -8.0f32..8.0,
        1 => (-3i8..3).prop_map(f32::from),
        1 => Just(f32::NEG_INFINITY),
    ];
    prop::collection::vec(logit, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the sampler's filters keep is what the plain ones keep, with the same probabilities.
    #[test]
    fn filters_agree_with_plain_ones(
        logits in prop_oneof![4 => rows(1..700), 1 => rows(700..12_000)],
        top_n_sigma in prop_oneof![Just(0.0f32), 0.0f32..3.0],
        top_k in prop_oneof![Just(0usize), 1usize..80, 80usize..800],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..0.5],
        typical_p in prop_oneof![3 => Just(1.0f32), 1 => 0.1f32..1.0],
        temperature in 0.1f32..3.0,
        seed in any::<u64>(),
    ) {
        let seed = Some(seed);
        let params = SamplingParams { temperature, top_n_sigma, top_k, top_p, min_p, typical_p, seed, ..off() };
        let expected = plain(&params, &logits);
        prop_assume!(!expected.is_empty());
        let mut candidates = Candidates::default();
        let mut sampler = Sampler::new(params, &[], 100);
        let token = sampler.pick(&mut logits.clone(), None, &mut candidates).unwrap();
        let probs = candidates.probabilities();
        prop_assert_eq!(probs.len(), expected.len());
        for ((found, p), (id, q)) in probs.iter().zip(&expected) {
            prop_assert_eq!(found, id);
            prop_assert!((p - q).abs() < 1e-5, "{} {}", p, q);
        }
        prop_assert!(probs.iter().any(|(id, _)| *id == token));
    }
}
