//! Softmax over keys that come row panel by row panel. Scores are to the base 2: times the binary logarithm
//! of e, since `2^x` is cheaper than `exp(x)`.

use std::{array::from_fn, f32::consts::LOG2_E, hint::black_box, ops::Range};

use super::ROW_PANEL;
use crate::{
    exp::{exp, exp2_below_1, exp2_bf16},
    tier::{fma, tiered},
};

/// Where the softmax of one query stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct State {
    /// The highest score so far.
    pub max: f32,
    /// Sums of `2^(score - max)`: that of the scores whose positions are this lane's, modulo the lanes.
    pub sums: [f32; LANES],
}

impl State {
    /// Nothing was seen.
    pub(super) const EMPTY: State = State {
        max: f32::NEG_INFINITY,
        sums: [0.0; LANES],
    };

    /// The sum of `2^(score - max)`.
    pub(super) fn sum(&self) -> f32 {
        join_lanes(self.sums, |a, b| a + b)
    }
}

tiered! {
    /// Takes in the scores of a row panel. `scores` has a row of [`ROW_PANEL`] for each query, of which it
    /// sees those in `visible`; with a `softcap` they are not yet to the base 2. They become weights
    /// relative to the new maximum, rounded to bf16 if there is a place for that in `bf16`, which is as
    /// long as `scores` or empty. What was summed with the weights before must be multiplied by `keep`.
    ///
    /// A row of which nothing is visible changes nothing, bit for bit.
    pub(super) fn take_row_panel(
        scores: &mut [f32],
        bf16: &mut [u16],
        visible: &[Range<usize>],
        softcap: Option<f32>,
        states: &mut [State],
        keep: &mut [f32],
    ) {
        let scores = scores.as_chunks_mut::<ROW_PANEL>().0;
        // Each of these loops is over all rows: what one row must wait for, others fill.
        for ((scores, visible), highest) in scores.iter_mut().zip(visible).zip(&mut *keep) {
            let vectors = vectors(visible);
            if let Some(cap) = softcap {
                for score in &mut scores[vectors.start * LANES..vectors.end * LANES] {
                    *score = cap * LOG2_E * tanh::<FUSED>(*score / cap);
                }
            }
            if visible.len() < ROW_PANEL {
                let (start, len) = (visible.start as u32, visible.len() as u32);
                for (score, column) in scores.iter_mut().zip(0_u32..) {
                    let is_visible = column.wrapping_sub(start) < len;
                    *score = if is_visible {
                        *score
                    } else {
                        f32::NEG_INFINITY
                    };
                }
            }
            let scores = &scores.as_chunks::<LANES>().0[vectors];
            *highest = join(scores, f32::NEG_INFINITY, higher);
        }
        for (state, keep) in states.iter_mut().zip(&mut *keep) {
            // A score that is not a number stays in the sum.
            let max = higher(*keep, state.max);
            *keep = if state.max == max {
                1.0
            } else {
                exp2_below_1::<FUSED>(state.max - base(max))
            };
            state.max = max;
        }
        let mut bf16 = bf16.as_chunks_mut::<ROW_PANEL>().0.iter_mut();
        let rows = scores.iter_mut().zip(visible).zip(states).zip(keep);
        for (((scores, visible), state), keep) in rows {
            let scores = clear_rest(scores.as_chunks_mut::<LANES>().0, visible);
            let base = base(state.max);
            let sums = match bf16.next() {
                Some(bf16) => {
                    let bf16 = clear_rest(bf16.as_chunks_mut::<LANES>().0, visible);
                    weigh_rounded::<FUSED>(scores, bf16, base)
                }
                None => weigh::<FUSED>(scores, base),
            };
            for (sum, new) in state.sums.iter_mut().zip(sums) {
                *sum = fma::<FUSED>(*sum, *keep, new);
            }
        }
    }
}

/// The vectors of a row in which something is visible. Others are not computed, and weigh nothing.
fn vectors(visible: &Range<usize>) -> Range<usize> {
    visible.start / LANES..visible.end.div_ceil(LANES)
}

/// Makes the other vectors 0; returns those with something visible.
#[inline(always)]
fn clear_rest<'a, T: Copy + Default>(
    row: &'a mut [[T; LANES]],
    visible: &Range<usize>,
) -> &'a mut [[T; LANES]] {
    let vectors = vectors(visible);
    if vectors.len() < row.len() {
        row[..vectors.start].fill([T::default(); LANES]);
        row[vectors.end..].fill([T::default(); LANES]);
    }
    &mut row[vectors]
}

/// What is subtracted from scores whose maximum is `max`.
#[inline(always)]
fn base(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Makes weights of scores. Returns their sums.
#[inline(always)]
fn weigh<const FUSED: bool>(scores: &mut [[f32; LANES]], base: f32) -> [f32; LANES] {
    for score in scores.as_flattened_mut() {
        *score = exp2_below_1::<FUSED>(*score - base);
    }
    sum_vectors(scores)
}

/// Makes weights of scores and rounds them to bf16. Returns the sums of the rounded ones, since these are
/// what will be divided by them.
#[inline(always)]
fn weigh_rounded<const FUSED: bool>(
    scores: &mut [[f32; LANES]],
    weights: &mut [[u16; LANES]],
    base: f32,
) -> [f32; LANES] {
    let weights = weights.as_flattened_mut().iter_mut();
    for (score, weight) in scores.as_flattened_mut().iter_mut().zip(weights) {
        // Half of the last digit more, and what is behind it is cut off: what is not a number has
        // nothing there, since scores are sums of products of bf16.
        let exact = exp2_bf16::<FUSED>(*score - base);
        let rounded = exact.to_bits().wrapping_add(0x8000) & 0xffff_0000;
        *score = f32::from_bits(rounded);
        *weight = (rounded >> 16) as u16;
    }
    sum_vectors(scores)
}

#[inline(always)]
fn sum_vectors(vectors: &[[f32; LANES]]) -> [f32; LANES] {
    let mut sums = [0.0; LANES];
    for vector in vectors {
        for (sum, value) in sums.iter_mut().zip(vector) {
            *sum += value;
        }
    }
    sums
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
            for (sum, later) in state.sums.iter_mut().zip(&later_state.sums) {
                *sum = fma::<FUSED>(*sum, keep, later * add);
            }
            for (sum, later) in sums.iter_mut().zip(later_sums) {
                *sum = fma::<FUSED>(*sum, keep, later * add);
            }
        }
    }
}

/// `1 - 2 / (exp(2 x) + 1)`; the argument is kept where `exp` is exact enough and tanh is not yet 1.
#[inline(always)]
fn tanh<const FUSED: bool>(x: f32) -> f32 {
    1.0 - 2.0 / (exp::<FUSED>(2.0 * x) + 1.0)
}

#[inline(always)]
fn higher(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Joins all numbers: first those in the same lane, in order, then the lanes by halves.
#[inline(always)]
fn join(vectors: &[[f32; LANES]], first: f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [first; LANES];
    for vector in vectors {
        for (a, b) in lanes.iter_mut().zip(vector) {
            *a = join(*a, *b);
        }
    }
    join_lanes(lanes, join)
}

#[inline(always)]
fn join_lanes(lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    // Through memory: the compiler would mix the joining of lanes with the loop before it, in short vectors.
    let lanes = black_box(lanes);
    let of_8: [f32; 8] = from_fn(|lane| join(lanes[lane], lanes[lane + 8]));
    let of_4: [f32; 4] = from_fn(|lane| join(of_8[lane], of_8[lane + 4]));
    join(join(of_4[0], of_4[2]), join(of_4[1], of_4[3]))
}

/// Scores that are computed at once.
const LANES: usize = 16;
