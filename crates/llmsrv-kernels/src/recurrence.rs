//! Layers that keep a state: convolutions over the last rows of a sequence, the gated delta rule, and
//! selective scans.
//!
//! A state goes through the rows one after the other, also in long prompts. Forms that compute blocks
//! of rows at once are faster on GPUs, but their results depend on where a prompt is cut. Here the
//! order of all sums is fixed by the sizes of a head alone.

use std::ops::Range;

use crate::{
    Error, Pool, Tier,
    elementwise::silu_of,
    exp::exp,
    pool::Parts,
    tier::{fma, tiered},
};

/// Rows of one sequence, and the state before them, which becomes the one after them.
#[derive(Debug)]
pub struct Stretch<'a> {
    /// Rows of the step.
    pub rows: Range<usize>,
    /// The state of one layer.
    pub state: &'a mut [f32],
}

/// A convolution of each channel with its last inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortConv<'a> {
    /// `[taps][channels]`; the last tap meets the row itself.
    pub weights: &'a [f32],
    /// `[channels]`, or empty.
    pub bias: &'a [f32],
    /// Channels of a row.
    pub n_channels: usize,
    /// The results go through `x * sigmoid(x)`.
    pub silu: bool,
}

/// A gated delta rule (<https://arxiv.org/abs/2412.06464>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaRule<'a> {
    /// Heads of queries and keys; divides `n_value_heads`.
    pub n_key_heads: usize,
    /// Heads of values; each has a state.
    pub n_value_heads: usize,
    /// Elements of a query, a key and a value.
    pub head_dim: usize,
    /// Value heads `h, h + n_key_heads, …` belong to key head `h`; else consecutive ones do.
    pub interleaved: bool,
    /// How fast each value head forgets; below 0.
    pub decay: &'a [f32],
    /// Added to what decides how much a row makes each value head forget.
    pub decay_bias: &'a [f32],
    /// Added to the sum of squares of queries and keys.
    pub eps: f32,
}

/// A selective scan as in Mamba 2 (<https://arxiv.org/abs/2405.21060>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectiveScan<'a> {
    /// Heads; each has a state.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What is kept of each element.
    pub state_dim: usize,
    /// Consecutive heads that share what is written and read; divides `n_heads`.
    pub n_groups: usize,
    /// How fast each head forgets; below 0.
    pub decay: &'a [f32],
    /// Added to the step of each head.
    pub step_bias: &'a [f32],
    /// How much of its input each head adds to the result.
    pub skip: &'a [f32],
}

impl SelectiveScan<'_> {
    /// Returns the elements of a state: `[heads][what is kept][elements of a head]`.
    pub fn state_len(&self) -> usize {
        self.n_heads * self.state_dim * self.head_dim
    }

    /// Returns the elements of a row: all heads, then what each group writes, then what it reads.
    pub fn row_len(&self) -> usize {
        self.n_heads * self.head_dim + 2 * self.n_groups * self.state_dim
    }
}

impl ShortConv<'_> {
    /// Returns the rows that one result is made of.
    fn taps(&self) -> usize {
        self.weights.len() / self.n_channels.max(1)
    }

    /// Returns the elements of a state: the last inputs, oldest first.
    pub fn state_len(&self) -> usize {
        self.taps().saturating_sub(1) * self.n_channels
    }
}

impl DeltaRule<'_> {
    /// Returns the elements of a state: `[value heads][elements of a key][elements of a value]`.
    pub fn state_len(&self) -> usize {
        self.n_value_heads * self.head_dim * self.head_dim
    }

    /// Returns the elements of a row of queries, keys and values.
    pub fn row_len(&self) -> usize {
        (2 * self.n_key_heads + self.n_value_heads) * self.head_dim
    }
}

/// Convolves the rows of each stretch with those before them. `x` and `out` are `[rows][channels]`.
///
/// # Errors
/// Lengths that do not fit each other.
pub fn short_conv(
    x: &[f32],
    stretches: &mut [Stretch<'_>],
    conv: &ShortConv<'_>,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    let n = conv.n_channels;
    expect("taps of a convolution", conv.weights.len(), conv.taps() * n)?;
    if !conv.bias.is_empty() {
        expect("elements of a bias", conv.bias.len(), n)?;
    }
    let n_rows = x.len() / n.max(1);
    expect("elements of the results", out.len(), x.len())?;
    check(stretches, n_rows, conv.state_len())?;
    for Stretch { rows, state } in stretches {
        let x = &x[rows.start * n..rows.end * n];
        let out = &mut out[rows.start * n..rows.end * n];
        let parallel = out.len() >= PARALLEL_WORK;
        let before = &**state;
        pool.for_each_chunk_mut(out, n, parallel, |row, out| {
            conv_row(Tier::best(), conv, before, x, row, out);
        });
        // The last inputs are those of the next rows.
        let n_kept = state.len().min(x.len());
        state.copy_within(n_kept.., 0);
        let at = state.len() - n_kept;
        state[at..].copy_from_slice(&x[x.len() - n_kept..]);
    }
    Ok(())
}

/// Sends the rows of each stretch through the states of all heads. Shapes: `x` `[rows][q|k|v]`, with
/// all heads of each part together; `alpha` (how much to forget) and `beta` (how much to learn), before
/// their functions, `[rows][value heads]`; `out` `[rows][value heads * head_dim]`.
///
/// Queries and keys are made as long as 1, and queries divided by the root of their elements. For each
/// row and value head, with `g = exp(decay * softplus(alpha + decay_bias))` and `b = sigmoid(beta)`, the
/// state becomes `S' = g S + k (b (v - g S k))`, and the result is `S' q`.
///
/// # Errors
/// Lengths that do not fit each other.
pub fn delta_rule(
    x: &[f32],
    (alpha, beta): (&[f32], &[f32]),
    stretches: &mut [Stretch<'_>],
    rule: &DeltaRule<'_>,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    let (n_heads, dim) = (rule.n_value_heads, rule.head_dim);
    let n_rows = x.len() / rule.row_len().max(1);
    for (what, got, expected) in [
        (
            "elements of queries, keys and values",
            x.len(),
            n_rows * rule.row_len(),
        ),
        ("elements of alpha", alpha.len(), n_rows * n_heads),
        ("elements of beta", beta.len(), n_rows * n_heads),
        ("elements of the decay", rule.decay.len(), n_heads),
        (
            "elements of the bias of the decay",
            rule.decay_bias.len(),
            n_heads,
        ),
        ("elements of the results", out.len(), n_rows * n_heads * dim),
        ("value heads", n_heads % rule.n_key_heads.max(1), 0),
    ] {
        expect(what, got, expected)?;
    }
    check(stretches, n_rows, rule.state_len())?;
    let work = |row: usize, head: usize, state: &mut [f32], out: &mut [f32]| {
        let x = &x[row * rule.row_len()..(row + 1) * rule.row_len()];
        let at = row * n_heads + head;
        let gates = (alpha[at], beta[at]);
        delta_row(Tier::best(), rule, head, x, gates, state, out);
    };
    for_each_head(stretches, (n_heads, dim), out, pool, work);
    Ok(())
}

/// Sends the rows of each stretch through the states of all heads. Shapes: `x` `[rows][heads|written|read]`;
/// `steps`, before their function, `[rows][heads]`; `out` `[rows][heads * head_dim]`.
///
/// For each row and head, with `d = softplus(step + step_bias)`, the state becomes `S' = exp(decay d) S +
/// written (d x)`, and the result is `S' read + skip x`.
///
/// # Errors
/// Lengths that do not fit each other.
pub fn selective_scan(
    x: &[f32],
    steps: &[f32],
    stretches: &mut [Stretch<'_>],
    scan: &SelectiveScan<'_>,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    let (n_heads, dim) = (scan.n_heads, scan.head_dim);
    let n_rows = x.len() / scan.row_len().max(1);
    for (what, got, expected) in [
        ("elements of the inputs", x.len(), n_rows * scan.row_len()),
        ("elements of the steps", steps.len(), n_rows * n_heads),
        ("elements of the decay", scan.decay.len(), n_heads),
        (
            "elements of the bias of the steps",
            scan.step_bias.len(),
            n_heads,
        ),
        ("elements of what is added", scan.skip.len(), n_heads),
        ("elements of the results", out.len(), n_rows * n_heads * dim),
        ("heads", n_heads % scan.n_groups.max(1), 0),
    ] {
        expect(what, got, expected)?;
    }
    check(stretches, n_rows, scan.state_len())?;
    let work = |row: usize, head: usize, state: &mut [f32], out: &mut [f32]| {
        let x = &x[row * scan.row_len()..(row + 1) * scan.row_len()];
        let step = steps[row * n_heads + head];
        scan_row(Tier::best(), scan, head, x, step, state, out);
    };
    for_each_head(stretches, (n_heads, dim), out, pool, work);
    Ok(())
}

/// Calls `work` with each row of each stretch and head, the head's part of the state and of the result:
/// the rows of a head one after the other, heads and stretches at the same time. The stretches have been
/// checked.
fn for_each_head(
    stretches: &mut [Stretch<'_>],
    (n_heads, dim): (usize, usize),
    out: &mut [f32],
    pool: &Pool,
    work: impl Fn(usize, usize, &mut [f32], &mut [f32]) + Sync,
) {
    let n_states: usize = stretches
        .iter()
        .map(|stretch| stretch.rows.len() * stretch.state.len())
        .sum();
    let states: Vec<(Range<usize>, usize, Parts<'_, f32>)> = stretches
        .iter_mut()
        .map(|stretch| {
            let len = stretch.state.len() / n_heads.max(1);
            (stretch.rows.clone(), len, Parts::new(stretch.state))
        })
        .collect();
    let out = Parts::new(out);
    let task = |idx: usize| {
        let (rows, len, states) = &states[idx / n_heads];
        let head = idx % n_heads;
        #[expect(
            unsafe_code,
            reason = "the compiler cannot see that heads are disjoint"
        )]
        // SAFETY: no two stretches have the same state (they are borrowed apart), and within a stretch
        // no two tasks have the same head.
        let state = unsafe { states.part(head * len..(head + 1) * len) };
        for row in rows.clone() {
            let at = (row * n_heads + head) * dim;
            #[expect(unsafe_code, reason = "as above")]
            // SAFETY: stretches do not overlap (`check`), so no two tasks have the same row and head.
            let out = unsafe { out.part(at..at + dim) };
            work(row, head, state, out);
        }
    };
    let n_tasks = states.len() * n_heads;
    if n_states >= PARALLEL_WORK {
        pool.for_each_task(n_tasks, task);
    } else {
        (0..n_tasks).for_each(task);
    }
}

fn expect(what: &'static str, got: usize, expected: usize) -> Result<(), Error> {
    if got == expected {
        return Ok(());
    }
    Err(Error::Length {
        what,
        got,
        expected,
    })
}

/// Checks that stretches follow each other within the rows, and have whole states.
fn check(stretches: &[Stretch<'_>], n_rows: usize, state_len: usize) -> Result<(), Error> {
    let mut next = 0;
    for Stretch { rows, state } in stretches {
        expect("elements of a state", state.len(), state_len)?;
        if rows.start < next || rows.end < rows.start || rows.end > n_rows {
            return Err(Error::Length {
                what: "rows of a stretch",
                got: rows.end,
                expected: n_rows,
            });
        }
        next = rows.end;
    }
    Ok(())
}

tiered! {
    fn conv_row(conv: &ShortConv<'_>, before: &[f32], x: &[f32], row: usize, out: &mut [f32]) {
        let n = conv.n_channels;
        let n_before = before.len() / n.max(1);
        if conv.bias.is_empty() {
            out.fill(0.0);
        } else {
            out.copy_from_slice(conv.bias);
        }
        for (tap, weights) in conv.weights.chunks_exact(n.max(1)).enumerate() {
            // Row `row + tap` of the inputs before the stretch and those of it together.
            let at = row + tap;
            let input = match at.checked_sub(n_before) {
                None => &before[at * n..(at + 1) * n],
                Some(at) => &x[at * n..(at + 1) * n],
            };
            for ((out, weight), input) in out.iter_mut().zip(weights).zip(input) {
                *out = fma::<FUSED>(*weight, *input, *out);
            }
        }
        if conv.silu {
            for out in out {
                *out = silu_of::<FUSED>(*out);
            }
        }
    }
}

tiered! {
    fn delta_row(
        rule: &DeltaRule<'_>,
        head: usize,
        x: &[f32],
        gates: (f32, f32),
        state: &mut [f32],
        out: &mut [f32],
    ) {
        let (alpha, beta) = gates;
        let (dim, n_keys) = (rule.head_dim, rule.n_key_heads);
        let key_head = if rule.interleaved {
            head % n_keys
        } else {
            head / (rule.n_value_heads / n_keys)
        };
        let (queries, rest) = x.split_at(n_keys * dim);
        let (keys, values) = rest.split_at(n_keys * dim);
        let query = &queries[key_head * dim..(key_head + 1) * dim];
        let key = &keys[key_head * dim..(key_head + 1) * dim];
        let value = &values[head * dim..(head + 1) * dim];
        let length = |x: &[f32]| {
            let squares = x.iter().fold(0.0, |sum, x| fma::<FUSED>(*x, *x, sum));
            1.0 / (squares + rule.eps).sqrt()
        };
        let of_key = length(key);
        let of_query = length(query) / (dim as f32).sqrt();
        let kept = exp::<FUSED>(rule.decay[head] * softplus(alpha + rule.decay_bias[head]));
        let learned = 1.0 / (1.0 + exp::<FUSED>(-beta));
        let mut start = 0;
        while start + LANES <= dim {
            columns::<FUSED, LANES>(
                (state, dim, start),
                (query, of_query),
                (key, of_key),
                (value, kept, learned),
                out,
            );
            start += LANES;
        }
        while start < dim {
            columns::<FUSED, 1>(
                (state, dim, start),
                (query, of_query),
                (key, of_key),
                (value, kept, learned),
                out,
            );
            start += 1;
        }
    }
}

tiered! {
    fn scan_row(scan: &SelectiveScan<'_>, head: usize, x: &[f32], step: f32, state: &mut [f32], out: &mut [f32]) {
        let (dim, n_kept) = (scan.head_dim, scan.state_dim);
        let group = head / (scan.n_heads / scan.n_groups);
        let (heads, rest) = x.split_at(scan.n_heads * dim);
        let (written, read) = rest.split_at(scan.n_groups * n_kept);
        let x = &heads[head * dim..(head + 1) * dim];
        let written = &written[group * n_kept..(group + 1) * n_kept];
        let read = &read[group * n_kept..(group + 1) * n_kept];
        let step = softplus(step + scan.step_bias[head]);
        let kept = exp::<FUSED>(scan.decay[head] * step);
        for (out, x) in out.iter_mut().zip(x) {
            *out = scan.skip[head] * x;
        }
        for ((row, written), read) in state.chunks_exact_mut(dim).zip(written).zip(read) {
            let written = written * step;
            for ((state, x), out) in row.iter_mut().zip(x).zip(&mut *out) {
                *state = fma::<FUSED>(written, *x, kept * *state);
                *out = fma::<FUSED>(*read, *state, *out);
            }
        }
    }
}

/// Computes `N` elements of a row's result, from `start` on, and what the row does to their columns of
/// the state. Sums go over the elements of the key, in order.
#[inline(always)]
fn columns<const FUSED: bool, const N: usize>(
    (state, dim, start): (&mut [f32], usize, usize),
    (query, of_query): (&[f32], f32),
    (key, of_key): (&[f32], f32),
    (value, kept, learned): (&[f32], f32, f32),
    out: &mut [f32],
) {
    let mut found = [0.0; N];
    for (row, key) in state.chunks_exact(dim).zip(key) {
        let key = key * of_key;
        for (found, state) in found.iter_mut().zip(&row[start..start + N]) {
            *found = fma::<FUSED>(key, *state, *found);
        }
    }
    let mut new = [0.0; N];
    for ((new, found), value) in new.iter_mut().zip(found).zip(&value[start..start + N]) {
        *new = learned * fma::<FUSED>(-kept, found, *value);
    }
    let mut result = [0.0; N];
    for ((row, key), query) in state.chunks_exact_mut(dim).zip(key).zip(query) {
        let (key, query) = (key * of_key, query * of_query);
        for ((state, new), result) in row[start..start + N].iter_mut().zip(&new).zip(&mut result) {
            *state = fma::<FUSED>(key, *new, kept * *state);
            *result = fma::<FUSED>(query, *state, *result);
        }
    }
    out[start..start + N].copy_from_slice(&result);
}

/// `ln(1 + exp(x))`, which is `x` where that is large.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Elements of a result that are computed together: what registers hold.
const LANES: usize = 32;
/// Less work than this is over before a second thread is awake.
const PARALLEL_WORK: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers that a test can write down: a xorshift generator.
    fn numbers(seed: u64, n: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// Calls `work` with the rows cut at `cuts`.
    fn in_stretches(
        n_rows: usize,
        cuts: &[usize],
        state: &mut [f32],
        mut work: impl FnMut(&mut [Stretch<'_>]),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (n_rows + 1)).collect();
        cuts.extend([0, n_rows]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            let rows = pair[0]..pair[1];
            work(&mut [Stretch { rows, state }]);
        }
    }

    proptest! {
        #[test]
        fn a_convolution_is_the_plain_one_however_it_is_cut(
            seed: u64, n_rows in 1usize..9, n_channels in 1usize..40, taps in 1usize..5,
            silu: bool, has_bias: bool, cuts in prop::collection::vec(0usize..10, 0..4),
        ) {
            let weights = numbers(seed, taps * n_channels);
            let bias = numbers(seed ^ 1, if has_bias { n_channels } else { 0 });
            let conv = ShortConv { weights: &weights, bias: &bias, n_channels, silu };
            let x = numbers(seed ^ 2, n_rows * n_channels);
            let before = numbers(seed ^ 3, conv.state_len());
            let pool = Pool::new(2);
            let run = |cuts: &[usize]| {
                let (mut out, mut state) = (vec![0.0; x.len()], before.clone());
                in_stretches(n_rows, cuts, &mut state, |stretches| {
                    short_conv(&x, stretches, &conv, &mut out, &pool).unwrap();
                });
                (out, state)
            };
            let whole = run(&[]);
            prop_assert_eq!(&run(&cuts), &whole);
            let all = [before.clone(), x.clone()].concat();
            prop_assert_eq!(&whole.1[..], &all[all.len() - before.len()..]);
            for (idx, found) in whole.0.iter().enumerate() {
                let (row, channel) = (idx / n_channels, idx % n_channels);
                let sum: f64 = (0..taps).map(|tap| {
                    f64::from(weights[tap * n_channels + channel])
                        * f64::from(all[(row + tap) * n_channels + channel])
                }).sum();
                let sum = sum + bias.get(channel).map_or(0.0, |bias| f64::from(*bias));
                let expected = if silu { sum / (1.0 + (-sum).exp()) } else { sum };
                prop_assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
            }
        }

        #[test]
        fn the_delta_rule_is_the_plain_one_however_it_is_cut(
            seed: u64, n_rows in 1usize..7, n_key_heads in 1usize..3, group in 1usize..4,
            head_dim in prop_oneof![Just(5usize), Just(32), Just(40)],
            interleaved: bool, n_threads in 1usize..3, cuts in prop::collection::vec(0usize..8, 0..3),
        ) {
            let n_value_heads = n_key_heads * group;
            let decay: Vec<f32> = numbers(seed, n_value_heads).iter().map(|x| -x.abs()).collect();
            let decay_bias = numbers(seed ^ 1, n_value_heads);
            let rule = DeltaRule {
                n_key_heads, n_value_heads, head_dim, interleaved,
                decay: &decay, decay_bias: &decay_bias, eps: 1e-6,
            };
            let x = numbers(seed ^ 2, n_rows * rule.row_len());
            let alpha = numbers(seed ^ 3, n_rows * n_value_heads);
            let beta = numbers(seed ^ 4, n_rows * n_value_heads);
            let before = numbers(seed ^ 5, rule.state_len());
            let width = n_value_heads * head_dim;
            let run = |cuts: &[usize], n_threads| {
                let pool = Pool::new(n_threads);
                let (mut out, mut state) = (vec![0.0; n_rows * width], before.clone());
                in_stretches(n_rows, cuts, &mut state, |stretches| {
                    delta_rule(&x, (&alpha, &beta), stretches, &rule, &mut out, &pool).unwrap();
                });
                (out, state)
            };
            let whole = run(&[], 1);
            prop_assert_eq!(&run(&cuts, n_threads), &whole);
            let mut state: Vec<f64> = before.iter().map(|x| f64::from(*x)).collect();
            let part = |row: usize, at: usize| {
                let start = row * rule.row_len() + at * head_dim;
                let list: Vec<f64> = x[start..start + head_dim].iter().map(|x| f64::from(*x)).collect();
                list
            };
            let unit = |list: Vec<f64>| {
                let length = (list.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                list.into_iter().map(|x| x / length).collect::<Vec<f64>>()
            };
            for row in 0..n_rows {
                for head in 0..n_value_heads {
                    let key_head = if interleaved { head % n_key_heads } else { head / group };
                    let query = unit(part(row, key_head));
                    let key = unit(part(row, n_key_heads + key_head));
                    let value = part(row, 2 * n_key_heads + head);
                    let at = row * n_value_heads + head;
                    let softplus = (f64::from(alpha[at]) + f64::from(decay_bias[head])).exp().ln_1p();
                    let kept = (f64::from(decay[head]) * softplus).exp();
                    let learned = 1.0 / (1.0 + (-f64::from(beta[at])).exp());
                    let state = &mut state[head * head_dim * head_dim..][..head_dim * head_dim];
                    for j in 0..head_dim {
                        let found: f64 = (0..head_dim).map(|i| kept * state[i * head_dim + j] * key[i]).sum();
                        let mut result = 0.0;
                        for i in 0..head_dim {
                            let cell = &mut state[i * head_dim + j];
                            *cell = kept * *cell + key[i] * learned * (value[j] - found);
                            result += *cell * query[i] / (head_dim as f64).sqrt();
                        }
                        let found = f64::from(whole.0[row * width + head * head_dim + j]);
                        prop_assert!((found - result).abs() < 1e-4, "{row} {head} {j}: {found} {result}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_scan_is_the_plain_one_however_it_is_cut(
            seed: u64, n_rows in 1usize..7, n_groups in 1usize..3, of_group in 1usize..4,
            head_dim in prop_oneof![Just(5usize), Just(32)], state_dim in 1usize..20,
            n_threads in 1usize..3, cuts in prop::collection::vec(0usize..8, 0..3),
        ) {
            let n_heads = n_groups * of_group;
            let decay: Vec<f32> = numbers(seed, n_heads).iter().map(|x| -x.abs()).collect();
            let (step_bias, skip) = (numbers(seed ^ 1, n_heads), numbers(seed ^ 6, n_heads));
            let scan = SelectiveScan {
                n_heads, head_dim, state_dim, n_groups,
                decay: &decay, step_bias: &step_bias, skip: &skip,
            };
            let x = numbers(seed ^ 2, n_rows * scan.row_len());
            let steps = numbers(seed ^ 3, n_rows * n_heads);
            let before = numbers(seed ^ 5, scan.state_len());
            let width = n_heads * head_dim;
            let run = |cuts: &[usize], n_threads| {
                let pool = Pool::new(n_threads);
                let (mut out, mut state) = (vec![0.0; n_rows * width], before.clone());
                in_stretches(n_rows, cuts, &mut state, |stretches| {
                    selective_scan(&x, &steps, stretches, &scan, &mut out, &pool).unwrap();
                });
                (out, state)
            };
            let whole = run(&[], 1);
            prop_assert_eq!(&run(&cuts, n_threads), &whole);
            let mut state: Vec<f64> = before.iter().map(|x| f64::from(*x)).collect();
            for row in 0..n_rows {
                let x = &x[row * scan.row_len()..(row + 1) * scan.row_len()];
                for head in 0..n_heads {
                    let group = head / of_group;
                    let step = f64::from(steps[row * n_heads + head]) + f64::from(step_bias[head]);
                    let step = step.exp().ln_1p();
                    let kept = (f64::from(decay[head]) * step).exp();
                    for p in 0..head_dim {
                        let input = f64::from(x[head * head_dim + p]);
                        let mut result = f64::from(skip[head]) * input;
                        for n in 0..state_dim {
                            let at = width + group * state_dim + n;
                            let cell = &mut state[(head * state_dim + n) * head_dim + p];
                            *cell = kept * *cell + step * input * f64::from(x[at]);
                            result += *cell * f64::from(x[at + n_groups * state_dim]);
                        }
                        let found = f64::from(whole.0[row * width + head * head_dim + p]);
                        prop_assert!((found - result).abs() < 1e-4, "{row} {head} {p}: {found} {result}");
                    }
                }
            }
        }
    }

    fn stretch(rows: Range<usize>, state: &mut [f32]) -> Stretch<'_> {
        Stretch { rows, state }
    }

    #[test]
    fn stretches_do_not_see_each_other() {
        let rule = DeltaRule {
            n_key_heads: 1,
            n_value_heads: 2,
            head_dim: 32,
            interleaved: true,
            decay: &[-1.0, -0.5],
            decay_bias: &[0.0, 0.1],
            eps: 1e-6,
        };
        let (x, gates) = (numbers(1, 5 * rule.row_len()), numbers(2, 10));
        let pool = Pool::new(2);
        let mut states = [numbers(3, rule.state_len()), numbers(4, rule.state_len())];
        let mut alone = states.clone();
        let mut together = vec![0.0; 5 * 64];
        let [first, second] = &mut states;
        let mut both = [
            stretch(0..2, &mut first[..]),
            stretch(2..5, &mut second[..]),
        ];
        delta_rule(&x, (&gates, &gates), &mut both, &rule, &mut together, &pool).unwrap();
        let mut apart = vec![0.0; 5 * 64];
        for (rows, state) in [(2..5, 1), (0..2, 0)] {
            let mut one = [stretch(rows, &mut alone[state][..])];
            delta_rule(&x, (&gates, &gates), &mut one, &rule, &mut apart, &pool).unwrap();
        }
        assert_eq!(together, apart);
        assert_eq!(states, alone);
        // Overlapping rows, and states of another size.
        let mut state = states.clone();
        let [first, second] = &mut state;
        let mut wrong = [
            stretch(0..3, &mut first[..]),
            stretch(2..5, &mut second[..]),
        ];
        assert!(delta_rule(&x, (&gates, &gates), &mut wrong, &rule, &mut apart, &pool).is_err());
        let mut short = [stretch(0..2, &mut first[1..])];
        assert!(delta_rule(&x, (&gates, &gates), &mut short, &rule, &mut apart, &pool).is_err());
    }
}
