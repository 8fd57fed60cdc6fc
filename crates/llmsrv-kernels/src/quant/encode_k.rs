//! Packing into super-blocks of 256 elements, with a search for the scales that lose least.
//!
//! What a sub-block of 16 or 32 elements loses is a weighted sum of squares; large elements weigh more,
//! since they matter more to a product. Where an importance matrix says how large the inputs of each column are,
//! that weighs, too. For a given assignment of elements to steps the best scale is
//! a linear least-squares problem with a closed form. The search tries several assignments, each
//! improved once by assigning again with the scale found, and takes the best. Then the scales of the
//! sub-blocks are rounded to the few bits that they have, and their neighbours are tried too. What they are
//! multiples of is at last fitted to all elements together, and the search for neighbours begins again.

use half::f16;

use super::{
    blocks::IQ4_STEPS,
    encode::{fifths, nibbles},
};

/// Small scales and minimums (4 bits each) of 16 sub-blocks; 2-bit elements; scale; scale of minimums.
pub(super) fn q2_k(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<256, 84>(values, weights, out, |values, weights, block| {
        let lines = lines::<16, 16>(values, weights, 3.0, 15);
        for (byte, (scale, min)) in block.iter_mut().zip(lines.packed) {
            *byte = scale | min << 4;
        }
        low_two_bits(&lines.q, &mut block[16..80]);
        block[80..82].copy_from_slice(&lines.d.to_le_bytes());
        block[82..].copy_from_slice(&lines.dmin.to_le_bytes());
    });
}

/// The third bits of all elements, inverted; 2 low bits; 6-bit scales of 16 sub-blocks; scale.
pub(super) fn q3_k(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<256, 110>(values, weights, out, |values, weights, block| {
        let scaled = scaled::<Whole<4>, 16, 16>(values, weights, [-32, 31]);
        let q = scaled.q.map(|q| (q + 4.0) as u8);
        block[..32].fill(0);
        for (at, q) in q.iter().enumerate() {
            block[at % 32] |= (q >> 2) << (at / 32);
        }
        low_two_bits(&q, &mut block[32..96]);
        block[96..108].fill(0);
        for (j, scale) in scaled.scales.iter().enumerate() {
            let scale = (scale + 32) as u8;
            block[96 + j % 8] |= (scale & 15) << (j / 8 * 4);
            block[104 + j % 4] |= (scale >> 4) << (j / 4 * 2);
        }
        block[108..].copy_from_slice(&scaled.d.to_le_bytes());
    });
}

/// Two bits of each element: element 128 a + 32 b + c at bit 2 b of byte 32 a + c.
fn low_two_bits(q: &[u8; 256], bytes: &mut [u8]) {
    bytes.fill(0);
    for (at, q) in q.iter().enumerate() {
        bytes[at / 128 * 32 + at % 32] |= (q & 3) << (at % 128 / 32 * 2);
    }
}

/// Scale; scale of minimums; 6-bit scales and minimums of 8 sub-blocks; nibbles.
pub(super) fn q4_k(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<256, 144>(values, weights, out, |values, weights, block| {
        let lines = lines::<32, 8>(values, weights, 15.0, 63);
        lines.write_head(&mut block[..16]);
        for (q, bytes) in lines
            .q
            .as_chunks::<64>()
            .0
            .iter()
            .zip(block[16..].as_chunks_mut::<32>().0)
        {
            for (byte, (low, high)) in bytes.iter_mut().zip(q[..32].iter().zip(&q[32..])) {
                *byte = low | high << 4;
            }
        }
    });
}

/// As Q4_K, with the fifth bits of all elements between scales and nibbles.
pub(super) fn q5_k(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<256, 176>(values, weights, out, |values, weights, block| {
        let lines = lines::<32, 8>(values, weights, 31.0, 63);
        lines.write_head(&mut block[..16]);
        let (fifths, nibbles) = block[16..].split_at_mut(32);
        fifths.fill(0);
        let pairs = lines
            .q
            .as_chunks::<64>()
            .0
            .iter()
            .zip(nibbles.as_chunks_mut::<32>().0);
        for (pair, (q, bytes)) in pairs.enumerate() {
            for (at, (byte, fifth)) in bytes.iter_mut().zip(&mut *fifths).enumerate() {
                let (low, high) = (q[at], q[at + 32]);
                *byte = low & 15 | high << 4;
                *fifth |= (low >> 4 | high >> 4 << 1) << (2 * pair);
            }
        }
    });
}

/// 4 low bits; 2 high bits; 8-bit scales of 16 sub-blocks; scale.
pub(super) fn q6_k(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<256, 210>(values, weights, out, |values, weights, block| {
        let scaled = scaled::<Whole<32>, 16, 16>(values, weights, [-128, 127]);
        block[..192].fill(0);
        for (part, q) in scaled.q.as_chunks::<128>().0.iter().enumerate() {
            for (at, q) in q.iter().enumerate() {
                let q = (q + 32.0) as u8;
                let (quarter, l) = (at / 32, at % 32);
                block[part * 64 + quarter % 2 * 32 + l] |= (q & 15) << (quarter / 2 * 4);
                block[128 + part * 32 + l] |= (q >> 4) << (2 * quarter);
            }
        }
        for (byte, scale) in block[192..208].iter_mut().zip(scaled.scales) {
            *byte = (scale as i8).cast_unsigned();
        }
        block[208..].copy_from_slice(&scaled.d.to_le_bytes());
    });
}

/// Scale; 6-bit scales of 8 sub-blocks, split into 2 high and 4 low bits; indices of steps.
pub(super) fn iq4_xs(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<256, 136>(values, weights, out, |values, weights, block| {
        let scaled = scaled::<Iq4, 32, 8>(values, weights, [-32, 31]);
        let mut tops = 0_u16;
        block[4..8].fill(0);
        for (j, scale) in scaled.scales.iter().enumerate() {
            let scale = (scale + 32) as u8;
            block[4 + j / 2] |= (scale & 15) << (j % 2 * 4);
            tops |= u16::from(scale >> 4) << (2 * j);
        }
        block[..2].copy_from_slice(&scaled.d.to_le_bytes());
        block[2..4].copy_from_slice(&tops.to_le_bytes());
        for (q, bytes) in scaled
            .q
            .as_chunks::<32>()
            .0
            .iter()
            .zip(block[8..].as_chunks_mut::<16>().0)
        {
            iq4_nibbles(q, bytes);
        }
    });
}

/// Scale; indices of steps of 32 elements.
pub(super) fn iq4_nl(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    each::<32, 18>(values, weights, out, |values, weights, block| {
        let (d, q) = one_scale::<Iq4>(values, weights);
        block[..2].copy_from_slice(&d.to_le_bytes());
        iq4_nibbles(&q, &mut block[2..]);
    });
}

/// Scale; nibbles.
pub(super) fn q4_0(values: &[f32], weights: &[f32], out: &mut [u8]) {
    each::<32, 18>(values, Some(weights), out, |values, weights, block| {
        let (d, q) = one_scale::<Whole<8>>(values, weights);
        block[..2].copy_from_slice(&d.to_le_bytes());
        nibbles(&q.map(|q| (q + 8.0) as u8), &mut block[2..]);
    });
}

/// Scale; the fifth bits of all elements; nibbles.
pub(super) fn q5_0(values: &[f32], weights: &[f32], out: &mut [u8]) {
    each::<32, 22>(values, Some(weights), out, |values, weights, block| {
        let (d, q) = one_scale::<Whole<16>>(values, weights);
        let q = q.map(|q| (q + 16.0) as u8);
        block[..2].copy_from_slice(&d.to_le_bytes());
        block[2..6].copy_from_slice(&fifths(&q).to_le_bytes());
        nibbles(&q, &mut block[6..]);
    });
}

/// Scale; minimum; nibbles.
pub(super) fn q4_1(values: &[f32], weights: &[f32], out: &mut [u8]) {
    each::<32, 20>(values, Some(weights), out, |values, weights, block| {
        let (d, min, q) = one_line(values, weights, 15.0);
        block[..2].copy_from_slice(&d.to_le_bytes());
        block[2..4].copy_from_slice(&min.to_le_bytes());
        nibbles(&q, &mut block[4..]);
    });
}

/// Scale; minimum; the fifth bits of all elements; nibbles.
pub(super) fn q5_1(values: &[f32], weights: &[f32], out: &mut [u8]) {
    each::<32, 24>(values, Some(weights), out, |values, weights, block| {
        let (d, min, q) = one_line(values, weights, 31.0);
        block[..2].copy_from_slice(&d.to_le_bytes());
        block[2..4].copy_from_slice(&min.to_le_bytes());
        block[4..8].copy_from_slice(&fifths(&q).to_le_bytes());
        nibbles(&q, &mut block[8..]);
    });
}

/// The scale of a block that has one, and its elements in units of it.
fn one_scale<S: Steps>(values: &[f32; 32], weights: Option<&[f32; 32]>) -> (f16, [f32; 32]) {
    let [weights] = importance::<32, 1, 32>(values, weights, Plain::Square);
    let d = half_at_most(fit_scale::<S, 32>(values, &weights));
    let inverse = inverse(d.to_f32());
    (d, values.map(|value| S::nearest(value * inverse)))
}

/// The scale of a block that has one, its minimum, and its elements in units of the scale, from the minimum on.
fn one_line(values: &[f32; 32], weights: Option<&[f32; 32]>, top: f32) -> (f16, f16, [u8; 32]) {
    let [weights] = importance::<32, 1, 32>(values, weights, Plain::Linear);
    let line = fit_line::<32, false>(values, &weights, top);
    let (d, min) = (half_at_most(line.step), half_at_most(-line.min));
    let (inverse, least) = (inverse(d.to_f32()), min.to_f32());
    let q = values.map(|value| step_of(value - least, inverse, top) as u8);
    (d, min, q)
}

/// The indices of 32 steps of IQ4, the first half in the low bits.
fn iq4_nibbles(steps: &[f32; 32], bytes: &mut [u8]) {
    let index = |step: f32| IQ4_STEPS.iter().filter(|other| **other < step).count() as u8;
    for (byte, (low, high)) in bytes.iter_mut().zip(steps[..16].iter().zip(&steps[16..])) {
        *byte = index(*low) | index(*high) << 4;
    }
}

/// `step * q - min` for the elements of a sub-block.
#[derive(Clone, Copy, Default)]
struct Line {
    step: f32,
    /// Not negative: the format stores it without sign.
    min: f32,
}

/// A super-block of `N` sub-blocks of `L` elements, as lines.
struct Lines<const N: usize> {
    d: f16,
    dmin: f16,
    /// Scale and minimum of each sub-block, in units of `d` and `dmin`.
    packed: [(u8, u8); N],
    q: [u8; 256],
}

impl Lines<8> {
    /// Scale, scale of minimums, and 6 bits each of the scales and minimums of 8 sub-blocks.
    fn write_head(&self, head: &mut [u8]) {
        head[..2].copy_from_slice(&self.d.to_le_bytes());
        head[2..4].copy_from_slice(&self.dmin.to_le_bytes());
        let packed = &mut head[4..];
        packed.fill(0);
        for (j, (scale, min)) in self.packed.into_iter().enumerate() {
            // The last four have their two upper bits in the bytes of the first four.
            if j < 4 {
                packed[j] |= scale;
                packed[j + 4] |= min;
            } else {
                packed[j + 4] |= scale & 15 | min << 4;
                packed[j - 4] |= scale >> 4 << 6;
                packed[j] |= min >> 4 << 6;
            }
        }
    }
}

/// Chooses the scales and minimums of `N` sub-blocks of `L` elements: elements from 0 to `top`, scales
/// and minimums from 0 to `limit`.
fn lines<const L: usize, const N: usize>(
    values: &[f32; 256],
    weights: Option<&[f32; 256]>,
    top: f32,
    limit: u8,
) -> Lines<N> {
    const { assert!(L * N == 256) }
    let (sub_blocks, _) = values.as_chunks::<L>();
    let weights = importance::<L, N, 256>(values, weights, Plain::Linear);
    let mut fitted = [Line::default(); N];
    for ((values, weights), line) in sub_blocks.iter().zip(&weights).zip(&mut fitted) {
        *line = fit_line::<L, true>(values, weights, top);
    }
    let largest = |of: fn(&Line) -> f32| fitted.iter().map(of).fold(0.0, f32::max);
    let units = Line {
        step: largest(|line| line.step) / f32::from(limit),
        min: largest(|line| line.min) / f32::from(limit),
    };
    let rounded = |units: Line| {
        let (d, dmin) = (half_at_most(units.step), half_at_most(units.min));
        rounded_lines::<L, N>(sub_blocks, &weights, &fitted, (d, dmin), (top, limit))
    };
    let (mut best, mut least) = rounded(units);
    for _ in 0..REFINEMENTS {
        let (lines, error) = rounded(best.fit_units::<L>(sub_blocks, &weights));
        if error >= least {
            break;
        }
        (best, least) = (lines, error);
    }
    best
}

/// Rounds scales and minimums to multiples of `d` and `dmin`; returns the error, too.
fn rounded_lines<const L: usize, const N: usize>(
    sub_blocks: &[[f32; L]],
    weights: &[[f32; L]; N],
    fitted: &[Line; N],
    (d, dmin): (f16, f16),
    (top, limit): (f32, u8),
) -> (Lines<N>, f32) {
    let (step_unit, min_unit) = (d.to_f32(), dmin.to_f32());
    let near = |value: f32, unit: f32| {
        let limit = i32::from(limit);
        let middle = (value * inverse(unit)).round().clamp(0.0, limit as f32) as i32;
        [middle, middle - 1, middle + 1].map(|near| near.clamp(0, limit))
    };
    let mut packed = [(0, 0); N];
    let mut q = [0; 256];
    let mut total = 0.0;
    for (j, q) in q.as_chunks_mut::<L>().0.iter_mut().enumerate() {
        let line = |scale: i32, min: i32| Line {
            step: step_unit * scale as f32,
            min: min_unit * min as f32,
        };
        let mut best = (f32::INFINITY, 0, 0);
        for scale in near(fitted[j].step, step_unit) {
            for min in near(fitted[j].min, min_unit) {
                let error = line(scale, min).error(&sub_blocks[j], &weights[j], top);
                if error < best.0 {
                    best = (error, scale, min);
                }
            }
        }
        total += best.0;
        packed[j] = (best.1 as u8, best.2 as u8);
        let line = line(best.1, best.2);
        let inverse = inverse(line.step);
        for (q, value) in q.iter_mut().zip(&sub_blocks[j]) {
            *q = step_of(*value + line.min, inverse, top) as u8;
        }
    }
    let lines = Lines { d, dmin, packed, q };
    (lines, total)
}

impl<const N: usize> Lines<N> {
    /// Returns the units of scales and minimums of least error, all else as it is.
    fn fit_units<const L: usize>(&self, sub_blocks: &[[f32; L]], weights: &[[f32; L]; N]) -> Line {
        let (mut ss, mut mm, mut sm, mut sx, mut mx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let steps = self.q.as_chunks::<L>().0;
        for (((values, weights), q), (scale, min)) in
            sub_blocks.iter().zip(weights).zip(steps).zip(self.packed)
        {
            let (scale, min) = (f32::from(scale), f32::from(min));
            for ((value, weight), q) in values.iter().zip(weights).zip(q) {
                let step = scale * f32::from(*q);
                ss += weight * step * step;
                mm += weight * min * min;
                sm += weight * step * min;
                sx += weight * step * value;
                mx += weight * min * value;
            }
        }
        let determinant = ss * mm - sm * sm;
        let both = Line {
            step: (sx * mm - sm * mx) / determinant,
            min: (sm * sx - ss * mx) / determinant,
        };
        if determinant > 0.0 && both.step > 0.0 && both.min >= 0.0 {
            return both;
        }
        Line {
            step: if ss > 0.0 { (sx / ss).max(0.0) } else { 0.0 },
            min: 0.0,
        }
    }
}

impl Line {
    fn error<const L: usize>(self, values: &[f32; L], weights: &[f32; L], top: f32) -> f32 {
        let inverse = inverse(self.step);
        let terms = values.iter().zip(weights).map(|(value, weight)| {
            let q = step_of(value + self.min, inverse, top);
            let lost = self.step * q - self.min - value;
            weight * lost * lost
        });
        terms.sum()
    }
}

/// Finds the line of least error for steps from 0 to `top`. With `BELOW` it begins at zero or below.
fn fit_line<const L: usize, const BELOW: bool>(
    values: &[f32; L],
    weights: &[f32; L],
    top: f32,
) -> Line {
    let least = if BELOW { 0.0 } else { f32::INFINITY };
    let low = values.iter().copied().fold(least, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if high <= low {
        // All elements are equal (and not above zero, where the line begins below).
        return Line {
            step: 0.0,
            min: -low,
        };
    }
    let (mut sw, mut sx, mut sxx) = (0.0, 0.0, 0.0);
    for (value, weight) in values.iter().zip(weights) {
        sw += weight;
        sx += weight * value;
        sxx += weight * value * value;
    }
    // The best line for an assignment, and its error.
    let solve = |line: Line| {
        let inverse = inverse(line.step);
        let (mut sq, mut sqq, mut sxq) = (0.0, 0.0, 0.0);
        for (value, weight) in values.iter().zip(weights) {
            let q = step_of(value + line.min, inverse, top);
            sq += weight * q;
            sqq += weight * q * q;
            sxq += weight * q * value;
        }
        let determinant = sw * sqq - sq * sq;
        let (mut step, mut min) = (0.0, 0.0);
        if determinant > 0.0 {
            step = (sw * sxq - sx * sq) / determinant;
            min = (sq * sxq - sqq * sx) / determinant;
        }
        if determinant <= 0.0 || (BELOW && min < 0.0) {
            (step, min) = (if sqq > 0.0 { sxq / sqq } else { 0.0 }, 0.0);
        }
        let error =
            sxx + step * (step * sqq - 2.0 * sxq) + min * (min * sw + 2.0 * (sx - step * sq));
        (Line { step, min }, error)
    };
    let mut best = (Line::default(), f32::INFINITY);
    if BELOW {
        best.1 = sxx;
    }
    for attempt in 0..LINE_ATTEMPTS {
        let n_steps = top - 1.0 + 0.2 * attempt as f32;
        let (first, error) = solve(Line {
            step: (high - low) / n_steps,
            min: -low,
        });
        if error < best.1 && first.step > 0.0 {
            best = (first, error);
        }
        if first.step > 0.0 {
            let (second, error) = solve(first);
            if error < best.1 && second.step > 0.0 {
                best = (second, error);
            }
        }
    }
    best.0
}

/// The steps that the elements of a sub-block can have, in multiples of its scale; signed.
trait Steps {
    /// Where the element farthest from zero may come to lie: the first, and how far apart the next.
    const FARTHEST: &[(f32, f32)];

    /// Returns the step nearest to a value.
    fn nearest(value: f32) -> f32;
}

/// Steps from `-HALF` to `HALF - 1`.
struct Whole<const HALF: i8>;

impl<const HALF: i8> Steps for Whole<HALF> {
    const FARTHEST: &[(f32, f32)] = &[(1.0 - HALF as f32, -0.2)];

    fn nearest(value: f32) -> f32 {
        let half = f32::from(HALF);
        round(value.clamp(-half, half - 1.0))
    }
}

struct Iq4;

impl Steps for Iq4 {
    const FARTHEST: &[(f32, f32)] = &[(-100.0, -4.0), (100.0, 4.0)];

    fn nearest(value: f32) -> f32 {
        IQ4_STEPS.windows(2).fold(IQ4_STEPS[0], |near, pair| {
            let is_past = value > (pair[0] + pair[1]) * 0.5;
            if is_past { pair[1] } else { near }
        })
    }
}

/// A super-block of `N` sub-blocks as multiples of their scales.
struct Scaled<const N: usize> {
    d: f16,
    /// The scale of each sub-block, in units of `d`.
    scales: [i32; N],
    /// The elements, in units of their scales.
    q: [f32; 256],
}

/// Chooses the scales of `N` sub-blocks of `L` elements, within `limits`.
fn scaled<S: Steps, const L: usize, const N: usize>(
    values: &[f32; 256],
    weights: Option<&[f32; 256]>,
    limits: [i32; 2],
) -> Scaled<N> {
    const { assert!(L * N == 256) }
    let (sub_blocks, _) = values.as_chunks::<L>();
    let weights = importance::<L, N, 256>(values, weights, Plain::Square);
    let mut fitted = [0.0_f32; N];
    for ((values, weights), scale) in sub_blocks.iter().zip(&weights).zip(&mut fitted) {
        *scale = fit_scale::<S, L>(values, weights);
    }
    // The scale farthest from zero takes the negative limit, which is farther than the positive one.
    let unit = farthest(&fitted) / limits[0] as f32;
    let rounded =
        |unit: f32| rounded_scales::<S, L, N>(sub_blocks, &weights, &fitted, unit, limits);
    let (mut best, mut least) = rounded(unit);
    for _ in 0..REFINEMENTS {
        let (scaled, error) = rounded(best.fit_unit::<L>(sub_blocks, &weights));
        if error >= least {
            break;
        }
        (best, least) = (scaled, error);
    }
    best
}

/// Rounds scales to multiples of a unit; returns the error, too.
fn rounded_scales<S: Steps, const L: usize, const N: usize>(
    sub_blocks: &[[f32; L]],
    weights: &[[f32; L]; N],
    fitted: &[f32; N],
    unit: f32,
    [low, high]: [i32; 2],
) -> (Scaled<N>, f32) {
    let d = half_at_most(unit);
    let unit = d.to_f32();
    let mut scales = [0; N];
    let mut q = [0.0; 256];
    let mut total = 0.0;
    for (j, q) in q.as_chunks_mut::<L>().0.iter_mut().enumerate() {
        let middle = (fitted[j] * inverse(unit)).round();
        let middle = middle.clamp(low as f32, high as f32) as i32;
        let mut best = f32::INFINITY;
        for scale in [middle, middle - 1, middle + 1] {
            let scale = scale.clamp(low, high);
            let step = unit * scale as f32;
            let inverse = inverse(step);
            let terms = sub_blocks[j]
                .iter()
                .zip(&weights[j])
                .map(|(value, weight)| {
                    let lost = step * S::nearest(value * inverse) - value;
                    weight * lost * lost
                });
            let error: f32 = terms.sum();
            if error < best {
                (best, scales[j]) = (error, scale);
            }
        }
        total += best;
        let inverse = inverse(unit * scales[j] as f32);
        *q = sub_blocks[j].map(|value| S::nearest(value * inverse));
    }
    (Scaled { d, scales, q }, total)
}

impl<const N: usize> Scaled<N> {
    /// Returns the unit of the scales of least error, all else as it is.
    fn fit_unit<const L: usize>(&self, sub_blocks: &[[f32; L]], weights: &[[f32; L]; N]) -> f32 {
        let (mut qq, mut qx) = (0.0, 0.0);
        let steps = self.q.as_chunks::<L>().0;
        for (((values, weights), q), scale) in
            sub_blocks.iter().zip(weights).zip(steps).zip(self.scales)
        {
            for ((value, weight), q) in values.iter().zip(weights).zip(q) {
                let step = scale as f32 * q;
                qq += weight * step * step;
                qx += weight * step * value;
            }
        }
        if qq > 0.0 { qx / qq } else { 0.0 }
    }
}

/// Finds the scale of least error.
fn fit_scale<S: Steps, const L: usize>(values: &[f32; L], weights: &[f32; L]) -> f32 {
    let farthest = farthest(values);
    if farthest == 0.0 {
        return 0.0;
    }
    // The best scale for an assignment, and by how much it lowers the error.
    let solve = |step: f32| {
        let inverse = inverse(step);
        let (mut sqq, mut sxq) = (0.0, 0.0);
        for (value, weight) in values.iter().zip(weights) {
            let q = S::nearest(value * inverse);
            sqq += weight * q * q;
            sxq += weight * q * value;
        }
        if sqq > 0.0 {
            (sxq / sqq, sxq * sxq / sqq)
        } else {
            (0.0, 0.0)
        }
    };
    let mut best = (0.0, 0.0);
    for (first, apart) in S::FARTHEST {
        for attempt in 0..SCALE_ATTEMPTS {
            let first = solve(farthest / (first + apart * attempt as f32));
            let second = solve(first.0);
            for found in [first, second] {
                if found.1 > best.1 {
                    best = found;
                }
            }
        }
    }
    best.0
}

fn farthest(values: &[f32]) -> f32 {
    let farther = |far: f32, value: &f32| if value.abs() > far.abs() { *value } else { far };
    values.iter().fold(0.0, farther)
}

/// How elements count where nothing is known of their columns.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Plain {
    /// As much as a typical one of their sub-block, and more as they are larger: for lines, which reach both ends.
    Linear,
    /// As their squares: a scale alone misses the largest first, and what those add to a product is most of it.
    Square,
}

/// Weights of the errors of the elements of a block of `LEN`, for each of its `N` sub-blocks of `L`.
///
/// With weights of the columns an element counts as its column, times the root of a typical square of the block and
/// its own.
pub(super) fn importance<const L: usize, const N: usize, const LEN: usize>(
    values: &[f32; LEN],
    columns: Option<&[f32; LEN]>,
    plain: Plain,
) -> [[f32; L]; N] {
    const { assert!(L * N == LEN) }
    let mut weights = [[0.0; L]; N];
    // As shares of the largest, so that no square overflows.
    let shrink = inverse(farthest(values).abs());
    let shares = values.map(|value| value * shrink);
    let mean_square = |values: &[f32]| {
        values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32
    };
    let sub_blocks = weights.iter_mut().zip(shares.as_chunks::<L>().0);
    match (columns, plain) {
        (None, Plain::Linear) => {
            for (weights, values) in sub_blocks {
                let typical = mean_square(values).sqrt();
                *weights = values.map(|value| typical + value.abs());
            }
        }
        (None, Plain::Square) => {
            for (weights, values) in sub_blocks {
                *weights = values.map(|value| value * value);
            }
        }
        (Some(columns), _) => {
            let typical = mean_square(&shares);
            for ((weights, values), columns) in sub_blocks.zip(columns.as_chunks::<L>().0) {
                let elements = values.iter().zip(columns);
                for (weight, (value, column)) in weights.iter_mut().zip(elements) {
                    *weight = column * (typical + value * value).sqrt();
                }
            }
        }
    }
    weights
}

fn step_of(value: f32, inverse: f32, top: f32) -> f32 {
    round((value * inverse).clamp(0.0, top))
}

/// Rounds a number of less than 2^22 to the nearest whole one: beyond 2^23 an f32 has no fraction.
/// Unlike `f32::round` it needs no call, so that loops over it become vector instructions.
fn round(value: f32) -> f32 {
    const SHIFT: f32 = 1.5 * (1 << 23) as f32;
    (value + SHIFT) - SHIFT
}

pub(super) fn inverse(step: f32) -> f32 {
    if step == 0.0 { 0.0 } else { 1.0 / step }
}

/// Half precision, at the end of its range for what lies beyond.
pub(super) fn half_at_most(value: f32) -> f16 {
    let limit = f16::MAX.to_f32();
    f16::from_f32(value.clamp(-limit, limit))
}

/// Packs the blocks of a row.
fn each<const LEN: usize, const BYTES: usize>(
    values: &[f32],
    weights: Option<&[f32]>,
    out: &mut [u8],
    pack: impl Fn(&[f32; LEN], Option<&[f32; LEN]>, &mut [u8; BYTES]),
) {
    let weights = weights.map(|weights| weights.as_chunks().0);
    let blocks = values.as_chunks().0.iter().zip(out.as_chunks_mut().0);
    for (idx, (values, block)) in blocks.enumerate() {
        pack(values, weights.and_then(|weights| weights.get(idx)), block);
    }
}

/// Assignments that are tried, by number of steps between the farthest elements.
const LINE_ATTEMPTS: usize = 11;
const SCALE_ATTEMPTS: usize = 11;
/// How often units are fitted to what was rounded.
const REFINEMENTS: usize = 3;
