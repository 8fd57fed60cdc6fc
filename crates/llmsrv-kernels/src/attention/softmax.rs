//! Softmax over keys that come strip by strip. Scores are to the base 2: times the binary logarithm
//! of e, since `2^x` is cheaper than `exp(x)`.

use std::{array::from_fn, f32::consts::LOG2_E, ops::Range};

use super::STRIP;
use crate::{
    exp::{exp, exp2_below_1},
    tier::{fma, tiered},
};

/// Where the softmax of one query stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct State {
    /// The highest score so far.
    pub max: f32,
    /// The sum of `2^(score - max)`.
    pub sum: f32,
}

impl State {
    /// Nothing was seen.
    pub(super) const EMPTY: State = State {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };
}

tiered! {
    /// Takes in the scores of a strip. `scores` has a row of [`STRIP`] for each query, of which it
    /// sees those in `visible`; with a `softcap` they are not yet to the base 2. They become weights relative to the new maximum. What was summed with
    /// the weights before must be multiplied by `keep`.
    ///
    /// A row of which nothing is visible changes nothing, bit for bit.
    pub(super) fn take_strip(
        scores: &mut [f32],
        visible: &[Range<usize>],
        softcap: Option<f32>,
        states: &mut [State],
        keep: &mut [f32],
    ) = take_rows;
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "it takes the instructions of its caller"
)]
fn take_rows<const FUSED: bool>(
    scores: &mut [f32],
    visible: &[Range<usize>],
    softcap: Option<f32>,
    states: &mut [State],
    keep: &mut [f32],
) {
    let rows = scores.as_chunks_mut::<STRIP>().0.iter_mut();
    let queries = rows.zip(visible).zip(states).zip(keep);
    for (((scores, visible), state), keep) in queries {
        if let Some(cap) = softcap {
            for score in scores.iter_mut() {
                *score = cap * LOG2_E * tanh::<FUSED>(*score / cap);
            }
        }
        if visible.start > 0 || visible.end < STRIP {
            for (slot, score) in scores.iter_mut().enumerate() {
                let is_visible = slot >= visible.start && slot < visible.end;
                *score = if is_visible {
                    *score
                } else {
                    f32::NEG_INFINITY
                };
            }
        }
        let of_strip = fold(scores, |a, b| if a > b { a } else { b });
        // A score that is not a number stays in the sum.
        let max = if of_strip > state.max {
            of_strip
        } else {
            state.max
        };
        let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
        *keep = if state.max == max {
            1.0
        } else {
            exp2_below_1::<FUSED>(state.max - base)
        };
        for score in scores.iter_mut() {
            *score = exp2_below_1::<FUSED>(*score - base);
        }
        let sum = fold(scores, |a, b| a + b);
        state.sum = fma::<FUSED>(state.sum, *keep, sum);
        state.max = max;
    }
}

tiered! {
    /// Adds what a later part of the keys gave to what the parts before gave: for each query its state
    /// and its sum of values, `width` elements.
    pub(super) fn merge(
        states: &mut [State],
        sums: &mut [f32],
        later_states: &[State],
        later_sums: &[f32],
        width: usize,
    ) = merge_rows;
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "it takes the instructions of its caller"
)]
fn merge_rows<const FUSED: bool>(
    states: &mut [State],
    sums: &mut [f32],
    later_states: &[State],
    later_sums: &[f32],
    width: usize,
) {
    let width = width.max(1);
    let before = states.iter_mut().zip(sums.chunks_exact_mut(width));
    let later = later_states.iter().zip(later_sums.chunks_exact(width));
    for ((state, sums), (later_state, later_sums)) in before.zip(later) {
        if *later_state == State::EMPTY {
            continue;
        }
        if *state == State::EMPTY {
            *state = *later_state;
            sums.copy_from_slice(later_sums);
            continue;
        }
        let max = if later_state.max > state.max {
            later_state.max
        } else {
            state.max
        };
        let keep = exp2_below_1::<FUSED>(state.max - max);
        let add = exp2_below_1::<FUSED>(later_state.max - max);
        state.max = max;
        state.sum = fma::<FUSED>(state.sum, keep, later_state.sum * add);
        for (sum, later) in sums.iter_mut().zip(later_sums) {
            *sum = fma::<FUSED>(*sum, keep, later * add);
        }
    }
}

/// `1 - 2 / (exp(2 x) + 1)`; the argument is kept where `exp` is exact enough and tanh is not yet 1.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "it takes the instructions of its caller"
)]
fn tanh<const FUSED: bool>(x: f32) -> f32 {
    1.0 - 2.0 / (exp::<FUSED>(2.0 * x) + 1.0)
}

/// Joins all lanes, first those that are 16 apart, then halves: the same order for all vectors.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "it takes the instructions of its caller"
)]
fn fold(lanes: &[f32; STRIP], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut of_16 = [0.0; 16];
    of_16.copy_from_slice(&lanes[..16]);
    for lanes in lanes[16..].as_chunks::<16>().0 {
        for (a, b) in of_16.iter_mut().zip(lanes) {
            *a = join(*a, *b);
        }
    }
    let of_8: [f32; 8] = from_fn(|lane| join(of_16[lane], of_16[lane + 8]));
    let of_4: [f32; 4] = from_fn(|lane| join(of_8[lane], of_8[lane + 4]));
    join(join(of_4[0], of_4[2]), join(of_4[1], of_4[3]))
}
