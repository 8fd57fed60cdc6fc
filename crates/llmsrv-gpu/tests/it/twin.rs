//! The kernels' arithmetic in plain Rust, in the same order.
//!
//! lavapipe does not fuse `fma`, and its square root, division and conversions are exact, so results are equal to the
//! last bit.

use std::ops::Range;

use half::f16;
use llmsrv_gguf::TensorType;
use llmsrv_gpu::{Attention, Function, Gating, Routing};

fn fma(a: f32, b: f32, c: f32) -> f32 {
    a * b + c
}

/// As `exponential` in `prelude.wgsl`.
pub(crate) fn exponential(x: f32) -> f32 {
    let bounded = x.min(88.0);
    let shifted = fma(bounded, std::f32::consts::LOG2_E, 12_582_912.0);
    let n = shifted - 12_582_912.0;
    let r = fma(n, 2.121_944_4e-4, fma(n, -0.693_359_4, bounded));
    let polynomial = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        5e-1,
    ];
    let sum = polynomial
        .into_iter()
        .reduce(|sum, next| fma(sum, r, next))
        .unwrap();
    let of_r = fma(sum, r * r, r + 1.0);
    let exponent = shifted
        .to_bits()
        .wrapping_sub(12_582_912.0_f32.to_bits() - 127);
    let value = of_r * f32::from_bits(exponent << 23);
    if x < -87.0 { 0.0 } else { value }
}

/// As `activated` in `elements.wgsl`.
pub(crate) fn activated(function: Function, x: f32) -> f32 {
    match function {
        Function::Silu => x / (1.0 + exponential(-x)),
        Function::Gelu => x / (1.0 + exponential(-1.595_769 * (x + 0.044_715 * x * x * x))),
        Function::ClampedSwiglu => {
            let bounded = x.min(7.0);
            bounded / (1.0 + exponential(-1.702 * bounded))
        }
        Function::ReluSquared => x.max(0.0) * x.max(0.0),
        Function::Sigmoid => 1.0 / (1.0 + exponential(-x)),
        Function::Identity => x,
        Function::Relu => x.max(0.0),
        Function::Tanh => 1.0 - 2.0 / (exponential(2.0 * x) + 1.0),
    }
}

/// One element of a product with the unpacked weights of a row, in the order of `layout`.
pub(crate) fn dot(weights: &[f32], x: &[f32], layout: Layout) -> f32 {
    let mut lanes = [0.0; 32];
    match layout {
        Layout::Values => {
            for (i, (weight, x)) in weights.iter().zip(x).enumerate() {
                lanes[i % 32] = fma(*weight, *x, lanes[i % 32]);
            }
        }
        Layout::Units(order) => {
            let mut sums = [[0.0; 4]; 32];
            for unit in 0..weights.len() / 8 {
                let [first, second] = order(unit);
                for vector in [first, second] {
                    for part in 0..4 {
                        let sum = &mut sums[unit % 32][part];
                        *sum = fma(weights[vector * 4 + part], x[vector * 4 + part], *sum);
                    }
                }
            }
            for (lane, [a, b, c, d]) in lanes.iter_mut().zip(sums) {
                *lane = (a + b) + (c + d);
            }
        }
    }
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}

/// In which order a kernel takes the weights of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// One by one, in turns.
    Values,
    /// Two vectors of four for each unit: the function names both.
    Units(fn(usize) -> [usize; 2]),
}

/// Types with integer products: where the scale of a block is, and that of its minimums.
pub(crate) const INT8: [(TensorType, usize, Option<usize>); 13] = [
    (TensorType::Q4_0, 0, None),
    (TensorType::Q4_1, 0, Some(2)),
    (TensorType::Q5_0, 0, None),
    (TensorType::Q5_1, 0, Some(2)),
    (TensorType::Q8_0, 0, None),
    (TensorType::IQ4_NL, 0, None),
    (TensorType::MXFP4, 0, None),
    (TensorType::Q2_K, 80, Some(82)),
    (TensorType::Q3_K, 108, None),
    (TensorType::Q4_K, 0, Some(2)),
    (TensorType::Q5_K, 0, Some(2)),
    (TensorType::Q6_K, 208, None),
    (TensorType::IQ4_XS, 0, None),
];

/// One element of an integer product with a row of weights as it is in a file; `None` for types without any. `FUSED` says
/// whether products and sums with scales are rounded once.
pub(crate) fn int8_product<const FUSED: bool>(
    dtype: TensorType,
    row: &[u8],
    x: &[f32],
) -> Option<f32> {
    let (_, scale_at, minimum_at) = INT8.into_iter().find(|(of, ..)| *of == dtype)?;
    let fma = |a: f32, b: f32, c: f32| if FUSED { a.mul_add(b, c) } else { a * b + c };
    let (len, n_bytes) = (dtype.block_len(), dtype.block_bytes());
    let half = |block: &[u8], at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let blocks = row.chunks_exact(n_bytes).zip(x.chunks_exact(len));
    Some(blocks.fold(0.0, |mut total, (block, x)| {
        let (bytes, of_x) = rounded(x);
        // With scales of 1 and 0 what a block unpacks to is whole.
        let sum = |scale: f32, minimum: f32| {
            let mut whole = block.to_vec();
            let mut set = |at: usize, value: f32| {
                whole[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
            };
            match (dtype, minimum_at) {
                // Twice its steps are whole.
                (TensorType::MXFP4, _) => whole[0] = 128,
                (_, None) => set(scale_at, scale),
                (_, Some(minimum_at)) => {
                    set(scale_at, scale);
                    set(minimum_at, minimum);
                }
            }
            let mut weights = vec![0.0; len];
            llmsrv_kernels::dequantize(dtype, &whole, &mut weights).unwrap();
            let products = weights.iter().zip(&bytes);
            products.map(|(w, x)| *w as i32 * x).sum::<i32>() as f32
        };
        let scale = match dtype {
            TensorType::MXFP4 => 2_f64.powi(i32::from(block[0]) - 128) as f32,
            _ => half(block, scale_at),
        };
        total = fma(sum(1.0, 0.0), scale * of_x, total);
        match minimum_at {
            None => total,
            Some(at) if len == 32 => {
                let of_bytes = of_x * bytes.iter().sum::<i32>() as f32;
                fma(half(block, at), of_bytes, total)
            }
            // It is taken away, so what a block with the scale 0 unpacks to is negative.
            Some(at) => fma(sum(0.0, 1.0), half(block, at) * of_x, total),
        }
    }))
}

/// Rounds the elements of a block to signed bytes, the largest of which is 127; returns them and what one counts.
fn rounded(x: &[f32]) -> (Vec<i32>, f32) {
    let largest = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    if largest < 1e-30 {
        return (vec![0; x.len()], 0.0);
    }
    let inverse = 127.0 / largest;
    // Halves to the even number, as the sum with 1.5 * 2^23.
    let bytes = x.iter().map(|x| (x * inverse).round_ties_even() as i32);
    (bytes.collect(), largest / 127.0)
}

fn over_lanes<const LANES: usize>(x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    for (i, x) in x.iter().enumerate() {
        lanes[i % LANES] = add(lanes[i % LANES], *x);
    }
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}

pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let total = over_lanes::<128>(x, |sum, x| fma(x, x, sum));
    let scale = 1.0 / (total / x.len() as f32 + eps).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, weight)| x * scale * weight)
        .collect()
}

pub(crate) fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f32> {
    let mean = over_lanes::<128>(x, |sum, x| sum + x) / x.len() as f32;
    let total = over_lanes::<128>(x, |sum, x| fma(x - mean, x - mean, sum));
    let scale = 1.0 / (total / x.len() as f32 + eps).sqrt();
    let each = x.iter().zip(weight).zip(bias);
    each.map(|((x, weight), bias)| (x - mean) * scale * weight + bias)
        .collect()
}

/// How much longer a row is than another one.
pub(crate) fn length_ratio(x: &[f32], like: &[f32]) -> f32 {
    let length = |x: &[f32]| over_lanes::<128>(x, |sum, x| fma(x, x, sum)).sqrt();
    length(like) / length(x).max(1e-30)
}

/// What of a row is above its mean by so many standard deviations.
pub(crate) fn peaks(x: &[f32], deviations: f32) -> Vec<f32> {
    let mean = over_lanes::<128>(x, |sum, x| sum + x) / x.len() as f32;
    let total = over_lanes::<128>(x, |sum, x| fma(x - mean, x - mean, sum));
    let floor = mean + deviations * (total / (x.len().max(2) - 1) as f32).sqrt();
    x.iter().map(|x| (x - floor).max(0.0)).collect()
}

/// How much one stream counts in another: coefficients of the scores, and what is added.
pub(crate) fn stream_factor(weights: &[f32], scores: &[f32]) -> f32 {
    let (last, weights) = weights.split_last().unwrap();
    let products = weights.iter().zip(scores);
    last + products.fold(0.0, |sum, (weight, score)| {
        sum + weight * activated(Function::Tanh, *score)
    })
}

/// Rotates one head; the rest behind the pairs stays.
pub(crate) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], interleaved: bool) {
    for pair in 0..cos.len() {
        let (at, other) = if interleaved {
            (2 * pair, 2 * pair + 1)
        } else {
            (pair, pair + cos.len())
        };
        let (a, b) = (head[at], head[other]);
        head[at] = a * cos[pair] - b * sin[pair];
        head[other] = b * cos[pair] + a * sin[pair];
    }
}

/// What is left of keys or values that are kept in f16.
pub(crate) fn f16_of(row: &[f32]) -> Vec<f32> {
    row.iter().map(|x| f16::from_f32(*x).to_f32()).collect()
}

/// As [`f16_of`], in `Q8_0`: bytes, with a scale for each 32.
pub(crate) fn q8_0_of(row: &[f32]) -> Vec<f32> {
    let blocks = row.chunks(32).flat_map(|block| {
        let most = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let scale = most / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let kept = f16::from_f32(scale).to_f32();
        let whole = |x: f32| {
            if x < 0.0 {
                (x - 0.5).ceil()
            } else {
                (x + 0.5).floor()
            }
        };
        block.iter().map(move |x| kept * whole(x * inverse))
    });
    blocks.collect()
}

/// What a head has beside its queries and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfHead {
    Nothing,
    /// A score without a value.
    Sink(f32),
    /// The window is on both sides, and scores fall by so much for each position of distance.
    BothSides(f32),
}

/// One query head. `keys` and `values` are those of its key head at all positions of its sequence, as they are kept.
pub(crate) fn attend(
    query: &[f32],
    keys: &[Vec<f32>],
    values: &[Vec<f32>],
    of_head: OfHead,
    (position, end): (usize, usize),
    shape: &Attention,
) -> Vec<f32> {
    let mut end = if shape.causal {
        end.min(position + 1)
    } else {
        end
    };
    let mut slope = 0.0;
    let mut sink = None;
    match of_head {
        OfHead::Nothing => {}
        OfHead::Sink(score) => sink = Some(score),
        OfHead::BothSides(falls) => {
            slope = falls;
            end = end.min(position.saturating_add(shape.window.unwrap_or(usize::MAX)));
        }
    }
    let first = match (shape.chunk, shape.window) {
        (Some(chunk), _) => position - position % chunk,
        (None, Some(window)) => (position + 1).saturating_sub(window),
        (None, None) => 0,
    };
    let (mut most, mut total) = sink.map_or((NOTHING, 0.0), |sink| (sink, 1.0));
    let mut sum = vec![0.0; query.len()];
    for part in (first / PART * PART..end).step_by(PART) {
        let seen = first.max(part)..end.min(part + PART);
        let (of_part, part_most, part_total) =
            sum_part(query, (keys, values), slope, (position, seen), shape);
        let higher = most.max(part_most);
        let (fade, gain) = (exponential(most - higher), exponential(part_most - higher));
        most = higher;
        total = total * fade + part_total * gain;
        for (sum, of_part) in sum.iter_mut().zip(of_part) {
            *sum = *sum * fade + of_part * gain;
        }
    }
    sum.iter().map(|sum| sum / total).collect()
}

/// The weighted values of the positions of a part, their highest score, and the sum of what scores count.
fn sum_part(
    query: &[f32],
    (keys, values): (&[Vec<f32>], &[Vec<f32>]),
    slope: f32,
    (position, seen): (usize, Range<usize>),
    shape: &Attention,
) -> (Vec<f32>, f32, f32) {
    let (mut most, mut total) = (NOTHING, 0.0);
    let mut sum = vec![0.0; query.len()];
    for segment in (seen.start / 64 * 64..seen.end).step_by(64) {
        let mut scores = [NOTHING; 64];
        for (at, score) in (segment..)
            .zip(&mut scores)
            .filter(|(at, _)| seen.contains(at))
        {
            let mut products = [0.0; 2];
            for (i, query) in query.iter().enumerate() {
                products[i % 2] = fma(*query, keys[at][i], products[i % 2]);
            }
            *score = (products[0] + products[1]) * shape.scale;
            *score -= slope * position.abs_diff(at) as f32;
            if let Some(cap) = shape.softcap {
                *score = cap * (1.0 - 2.0 / (exponential(2.0 * (*score / cap)) + 1.0));
            }
        }
        let higher = scores
            .iter()
            .fold(most, |most: f32, score| most.max(*score));
        let fade = exponential(most - higher);
        most = higher;
        let shares = (segment..).zip(scores);
        let shares: Vec<f32> = shares
            .map(|(at, score)| {
                if seen.contains(&at) {
                    exponential(score - higher)
                } else {
                    0.0
                }
            })
            .collect();
        total = shares
            .iter()
            .fold(total * fade, |total, share| total + share);
        for (i, sum) in sum.iter_mut().enumerate() {
            let mut here = *sum * fade;
            for (at, share) in (segment..).zip(&shares).filter(|(_, share)| **share > 0.0) {
                here = fma(*share, values[at][i], here);
            }
            *sum = here;
        }
    }
    (sum, most, total)
}

/// As in `attention.wgsl`.
const NOTHING: f32 = -3.4e38;
/// As in `attention.wgsl`.
const PART: usize = 256;

/// As `logarithm` in `states.wgsl`.
fn logarithm(x: f32) -> f32 {
    let bits = x.to_bits();
    let mut n = (bits >> 23) as f32 - 127.0;
    let mut m = f32::from_bits(bits & 0x7f_ffff | 0x3f80_0000);
    if m > std::f32::consts::SQRT_2 {
        m *= 0.5;
        n += 1.0;
    }
    let f = m - 1.0;
    let square = f * f;
    let polynomial = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_84e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let sum = polynomial.into_iter().reduce(|sum, next| sum * f + next);
    let rest = (sum.unwrap() * f * square - n * 2.121_944_4e-4) - square * 0.5;
    (f + rest) + n * 0.693_359_4
}

/// As in `states.wgsl`.
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 {
        return x;
    }
    let e = exponential(x);
    let u = 1.0 + e;
    logarithm(u) + (e - (u - 1.0)) / u
}

/// One channel; `before` are its last inputs, which become those after `x`.
pub(crate) fn short_conv(
    x: &[f32],
    before: &mut Vec<f32>,
    (taps, bias): (&[f32], f32),
    silu: bool,
) -> Vec<f32> {
    let all = [before, x].concat();
    let results = all.windows(taps.len()).map(|inputs| {
        let inputs = taps.iter().zip(inputs);
        let sum = inputs.fold(bias, |sum, (tap, x)| fma(*tap, *x, sum));
        if silu {
            activated(Function::Silu, sum)
        } else {
            sum
        }
    });
    let results = results.collect();
    *before = all[x.len()..].to_vec();
    results
}

/// One value head and row; `state` is `[elements of a key][elements of a value]`.
pub(crate) fn delta_rule(
    (query, key, value): (&[f32], &[f32], &[f32]),
    (forget, learn): (f32, f32),
    eps: f32,
    state: &mut [f32],
) -> Vec<f32> {
    let dim = key.len();
    let length = |x: &[f32]| 1.0 / (over_lanes::<64>(x, |sum, x| fma(x, x, sum)) + eps).sqrt();
    let (of_key, of_query) = (length(key), length(query) / (dim as f32).sqrt());
    let (kept, learned) = (exponential(forget), 1.0 / (1.0 + exponential(-learn)));
    let columns = (0..dim).map(|j| {
        let mut found = 0.0;
        for i in 0..dim {
            found = fma(key[i] * of_key, state[i * dim + j], found);
        }
        let new = learned * fma(-kept, found, value[j]);
        let mut result = 0.0;
        for i in 0..dim {
            let now = fma(key[i] * of_key, new, kept * state[i * dim + j]);
            state[i * dim + j] = now;
            result = fma(query[i] * of_query, now, result);
        }
        result
    });
    columns.collect()
}

/// One head and row; `state` is `[what is kept][elements of a head]`.
pub(crate) fn selective_scan(
    x: &[f32],
    (written, read): (&[f32], &[f32]),
    (step, decay, skip): (f32, f32, f32),
    state: &mut [f32],
) -> Vec<f32> {
    let (kept, dim) = (exponential(decay * step), x.len());
    let each = x.iter().enumerate().map(|(j, x)| {
        let mut result = skip * x;
        for i in 0..written.len() {
            let at = i * dim + j;
            state[at] = fma(written[i] * step, *x, kept * state[at]);
            result = fma(read[i], state[at], result);
        }
        result
    });
    each.collect()
}

/// Which experts a row takes, ascending, and how much each counts: as `choose_experts` in `experts.wgsl`.
pub(crate) fn choose(scores: &[f32], bias: Option<&[f32]>, routing: &Routing) -> Vec<(usize, f32)> {
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    let mut lanes = [0.0; 128];
    for (expert, score) in scores.iter().enumerate() {
        lanes[expert % 128] += exponential(score - most);
    }
    let total = lanes.iter().fold(0.0, |sum, lane| sum + lane);
    let probability = |score: f32| match routing.gating {
        Gating::Sigmoid => 1.0 / (1.0 + exponential(-score)),
        Gating::Softmax | Gating::SparseMixer => exponential(score - most) / total,
    };
    let by_score =
        routing.gating == Gating::SparseMixer || (bias.is_none() && routing.groups.is_none());
    let rank = |(expert, score): (usize, &f32)| match bias {
        _ if by_score => *score,
        Some(bias) => probability(*score) + bias[expert],
        None => probability(*score),
    };
    let mut ranks: Vec<f32> = scores.iter().enumerate().map(rank).collect();
    if let Some((n, n_used)) = routing.groups {
        let size = ranks.len() / n;
        let worth = |group: &[f32]| {
            let mut sorted = group.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted.iter().take(2).copied().reduce(|a, b| a + b).unwrap()
        };
        let mut worths: Vec<(usize, f32)> = ranks.chunks(size).map(worth).enumerate().collect();
        worths.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (group, _) in &worths[n_used..] {
            ranks[group * size..][..size].fill(f32::NEG_INFINITY);
        }
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| ranks[*b].total_cmp(&ranks[*a]));
    let picks = &order[..routing.n_used];
    let sum = picks
        .iter()
        .fold(0.0, |sum, pick| sum + probability(scores[*pick]));
    let scale = if routing.normalize {
        routing.scale / sum.max(6.103_515_6e-5)
    } else {
        routing.scale
    };
    let factor = |(at, pick): (usize, &usize)| {
        let score = scores[*pick];
        if routing.gating != Gating::SparseMixer {
            return (*pick, scale * probability(score));
        }
        let left = (0..scores.len()).filter(|expert| !picks[..at].contains(expert));
        let near = left.map(|expert| scores[expert]);
        let near = near.filter(|other| {
            // Two zeros are not far from each other.
            let is_far = (score - other) / other.abs().max(score) > 0.02;
            !is_far
        });
        (
            *pick,
            1.0 / near.fold(0.0, |sum, other| sum + exponential(other - score)),
        )
    };
    let mut chosen: Vec<(usize, f32)> = picks.iter().enumerate().map(factor).collect();
    chosen.sort_by_key(|(expert, _)| *expert);
    chosen
}
