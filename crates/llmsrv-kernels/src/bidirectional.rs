//! Attention in which every position of a sequence sees all of them, as in encoders.
//!
//! Keys and values lie beside the queries, row after row; nothing is kept. The order of all sums
//! depends on the sequence alone, so a result does not depend on what is computed beside it.

use std::{cell::RefCell, ops::Range};

use crate::{Error, Pool, dot};

/// How queries meet keys in one layer of an encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BidirectionalAttention<'a> {
    /// Heads of queries.
    pub n_heads: usize,
    /// Heads of keys and values; divides `n_heads`. Consecutive heads of queries share one.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Factor of the scores before the softmax, mostly `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// How much the score of each head falls for each position of distance (ALiBi,
    /// <https://arxiv.org/abs/2108.12409>), `n_heads` numbers; `None` = not at all.
    pub slopes: Option<&'a [f32]>,
    /// How many positions before and after its own a query sees; `None` = all of its sequence.
    pub reach: Option<usize>,
}

/// Attends within each of `sequences`, which are rows of `query` (`[rows, n_heads * head_dim]`), `key`
/// and `value` (`[rows, n_kv_heads * head_dim]`) and cover all rows in order. `out` has the shape of
/// `query`.
///
/// # Errors
///
/// [`Error::Length`] if a slice is not as long as the sequences say, the sequences do not follow each
/// other from row 0 on, the heads of keys do not divide those of queries, or there is not one slope for
/// each head. Nothing is written then.
pub fn attend_bidirectional(
    query: &[f32],
    key: &[f32],
    value: &[f32],
    sequences: &[Range<usize>],
    attention: &BidirectionalAttention<'_>,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    let BidirectionalAttention {
        n_heads,
        n_kv_heads,
        head_dim,
        ..
    } = *attention;
    let (width, kv_width) = (n_heads * head_dim, n_kv_heads * head_dim);
    let n_rows = sequences.iter().map(Range::len).sum::<usize>();
    for (what, got, expected) in [
        ("elements of the queries", query.len(), n_rows * width),
        ("elements of the keys", key.len(), n_rows * kv_width),
        ("elements of the values", value.len(), n_rows * kv_width),
        ("elements of the results", out.len(), n_rows * width),
        (
            "heads beyond those of the keys",
            n_heads % n_kv_heads.max(1),
            0,
        ),
    ] {
        if got != expected {
            return Err(Error::Length {
                what,
                got,
                expected,
            });
        }
    }
    let mut next_row = 0;
    for sequence in sequences {
        if sequence.start != next_row {
            return Err(Error::Length {
                what: "rows before a sequence",
                got: sequence.start,
                expected: next_row,
            });
        }
        next_row = sequence.end;
    }
    if let Some(slopes) = attention.slopes.filter(|slopes| slopes.len() != n_heads) {
        return Err(Error::Length {
            what: "slopes",
            got: slopes.len(),
            expected: n_heads,
        });
    }
    let reach = attention.reach.unwrap_or(usize::MAX);
    let group = n_heads / n_kv_heads.max(1);
    let n_seen = |len: usize| len.min(reach.saturating_mul(2).saturating_add(1));
    let work = sequences.iter().map(|s| s.len() * n_seen(s.len()) * width);
    let work: usize = work.sum();
    let of_row: Vec<&Range<usize>> = sequences
        .iter()
        .flat_map(|sequence| std::iter::repeat_n(sequence, sequence.len()))
        .collect();
    pool.for_each_chunk_mut(out, head_dim, work >= PARALLEL_WORK, |index, out| {
        let (row, head) = (index / n_heads.max(1), index % n_heads.max(1));
        let sequence = of_row[row];
        let start = row.saturating_sub(reach).max(sequence.start);
        let end = row
            .saturating_add(reach)
            .saturating_add(1)
            .min(sequence.end);
        let query = &query[row * width + head * head_dim..][..head_dim];
        let at = |row: usize| {
            let start = row * kv_width + head / group * head_dim;
            start..start + head_dim
        };
        let slope = attention.slopes.map_or(0.0, |slopes| slopes[head]);
        SCORES.with_borrow_mut(|scores| {
            scores.clear();
            scores.extend((start..end).map(|other| {
                dot(query, &key[at(other)]) * attention.scale - slope * row.abs_diff(other) as f32
            }));
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            out.fill(0.0);
            for (score, other) in scores.iter().zip(start..end) {
                let weight = (score - max).exp();
                sum += weight;
                for (out, value) in out.iter_mut().zip(&value[at(other)]) {
                    *out += weight * value;
                }
            }
            let inverse = 1.0 / sum;
            for out in out {
                *out *= inverse;
            }
        });
    });
    Ok(())
}

thread_local! {
    /// The scores of one query in one head.
    static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Less work than this is over before a second thread is awake.
const PARALLEL_WORK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0)
            .collect()
    }

    proptest! {
        #[test]
        fn it_follows_the_formula_and_knows_no_neighbours(
            lengths in prop::collection::vec(1usize..12, 1..4),
            n_kv_heads in 1usize..3,
            group in 1usize..3,
            head_dim in 1usize..20,
            with_slopes: bool,
            reach in prop_oneof![Just(None), (0usize..5).prop_map(Some)],
            n_threads in 1usize..3,
        ) {
            let n_heads = n_kv_heads * group;
            let (width, kv_width) = (n_heads * head_dim, n_kv_heads * head_dim);
            let n_rows: usize = lengths.iter().sum();
            let (query, key, value) =
                (values(n_rows * width, 1), values(n_rows * kv_width, 2), values(n_rows * kv_width, 3));
            let slopes: Vec<f32> = (1..=n_heads).map(|head| 1.0 / (1 << head) as f32).collect();
            let attention = BidirectionalAttention {
                n_heads,
                n_kv_heads,
                head_dim,
                scale: 0.3,
                slopes: with_slopes.then_some(&slopes[..]),
                reach,
            };
            let mut start = 0;
            let sequences: Vec<Range<usize>> = lengths.iter().map(|len| {
                start += len;
                start - len..start
            }).collect();
            let pool = Pool::new(n_threads);
            let mut out = vec![0.0; n_rows * width];
            attend_bidirectional(&query, &key, &value, &sequences, &attention, &mut out, &pool).unwrap();
            for sequence in &sequences {
                let part = sequence.start * width..sequence.end * width;
                let of_keys = sequence.start * kv_width..sequence.end * kv_width;
                let mut alone = vec![0.0; part.len()];
                let (q, k, v) = (&query[part.clone()], &key[of_keys.clone()], &value[of_keys]);
                let all = 0..sequence.len();
                attend_bidirectional(q, k, v, std::slice::from_ref(&all), &attention, &mut alone, &pool).unwrap();
                prop_assert_eq!(&alone[..], &out[part]);
                for i in 0..sequence.len() {
                    for (head, slope) in slopes.iter().enumerate().take(n_heads) {
                        let at = i * width + head * head_dim;
                        let of = |j: usize| j * kv_width + head / group * head_dim;
                        let weights: Vec<f64> = (0..sequence.len()).map(|j| {
                            let dot: f64 = (0..head_dim).map(|d| f64::from(q[at + d]) * f64::from(k[of(j) + d])).sum();
                            let slope = if with_slopes { f64::from(*slope) } else { 0.0 };
                            let sees = reach.is_none_or(|reach| i.abs_diff(j) <= reach);
                            if sees { (dot * 0.3 - slope * i.abs_diff(j) as f64).exp() } else { 0.0 }
                        }).collect();
                        let sum: f64 = weights.iter().sum();
                        for d in 0..head_dim {
                            let expected: f64 = weights.iter().enumerate().map(|(j, w)| w / sum * f64::from(v[of(j) + d])).sum();
                            prop_assert!((f64::from(alone[at + d]) - expected).abs() < 1e-4);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let attention = BidirectionalAttention {
            n_heads: 2,
            n_kv_heads: 2,
            head_dim: 4,
            scale: 1.0,
            slopes: None,
            reach: None,
        };
        let pool = Pool::new(1);
        let x = values(24, 0);
        let mut out = vec![0.0; 24];
        let mut attend = |key: &[f32], sequences: &[Range<usize>], slopes: Option<&[f32]>| {
            let attention = BidirectionalAttention {
                slopes,
                ..attention
            };
            attend_bidirectional(&x, key, &x, sequences, &attention, &mut out, &pool).is_ok()
        };
        let all = 0..3;
        assert!(attend(&x, std::slice::from_ref(&all), None));
        assert!(!attend(&x[1..], std::slice::from_ref(&all), None));
        assert!(!attend(&x, &[0..1, 2..4], None));
        assert!(!attend(&x, &[0..1, 1..4], None));
        assert!(!attend(&x, std::slice::from_ref(&all), Some(&[1.0])));
        let odd = BidirectionalAttention {
            n_heads: 3,
            n_kv_heads: 2,
            ..attention
        };
        let (query, mut out) = (values(36, 0), vec![0.0; 36]);
        let all = std::slice::from_ref(&all);
        assert!(attend_bidirectional(&query, &x, &x, all, &odd, &mut out, &pool).is_err());
    }
}
