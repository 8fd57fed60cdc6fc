//! Packing into super-blocks of 256 elements, with a search for the scales that lose least.
//!
//! What a sub-block of 16 or 32 elements loses is a weighted sum of squares; large elements weigh more,
//! since they matter more to a product. For a given assignment of elements to steps the best scale is
//! a linear least-squares problem with a closed form. The search tries several assignments, each
//! improved once by assigning again with the scale found, and takes the best. Then the scales of the
//! sub-blocks are rounded to the few bits that they have, and their neighbours are tried too.

use half::f16;

use super::blocks::IQ4_STEPS;

/// Small scales and minimums (4 bits each) of 16 sub-blocks; 2-bit elements; scale; scale of minimums.
pub(super) fn q2_k(values: &[f32], out: &mut [u8]) {
    each::<256, 84>(values, out, |values, block| {
        let lines = lines::<16, 16>(values, 3.0, 15);
        for (byte, (scale, min)) in block.iter_mut().zip(lines.packed) {
            *byte = scale | min << 4;
        }
        low_two_bits(&lines.q, &mut block[16..80]);
        block[80..82].copy_from_slice(&lines.d.to_le_bytes());
        block[82..].copy_from_slice(&lines.dmin.to_le_bytes());
    });
}

/// The third bits of all elements, inverted; 2 low bits; 6-bit scales of 16 sub-blocks; scale.
pub(super) fn q3_k(values: &[f32], out: &mut [u8]) {
    each::<256, 110>(values, out, |values, block| {
        let scaled = scaled::<ThreeBits, 16, 16>(values, [-32, 31]);
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
pub(super) fn q4_k(values: &[f32], out: &mut [u8]) {
    each::<256, 144>(values, out, |values, block| {
        let lines = lines::<32, 8>(values, 15.0, 63);
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
pub(super) fn q5_k(values: &[f32], out: &mut [u8]) {
    each::<256, 176>(values, out, |values, block| {
        let lines = lines::<32, 8>(values, 31.0, 63);
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
pub(super) fn q6_k(values: &[f32], out: &mut [u8]) {
    each::<256, 210>(values, out, |values, block| {
        let scaled = scaled::<SixBits, 16, 16>(values, [-128, 127]);
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
pub(super) fn iq4_xs(values: &[f32], out: &mut [u8]) {
    each::<256, 136>(values, out, |values, block| {
        let scaled = scaled::<Iq4, 32, 8>(values, [-32, 31]);
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
pub(super) fn iq4_nl(values: &[f32], out: &mut [u8]) {
    each::<32, 18>(values, out, |values, block| {
        let weights = importance(values);
        let d = half_at_most(fit_scale::<Iq4, 32>(values, &weights));
        let inverse = inverse(d.to_f32());
        let q = values.map(|value| Iq4::nearest(value * inverse));
        block[..2].copy_from_slice(&d.to_le_bytes());
        iq4_nibbles(&q, &mut block[2..]);
    });
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
fn lines<const L: usize, const N: usize>(values: &[f32; 256], top: f32, limit: u8) -> Lines<N> {
    const { assert!(L * N == 256) }
    let (sub_blocks, _) = values.as_chunks::<L>();
    let mut weights = [[0.0; L]; N];
    let mut lines = [Line::default(); N];
    for ((values, weights), line) in sub_blocks.iter().zip(&mut weights).zip(&mut lines) {
        *weights = importance(values);
        *line = fit_line(values, weights, top);
    }
    let largest = |of: fn(&Line) -> f32| lines.iter().map(of).fold(0.0, f32::max);
    let d = half_at_most(largest(|line| line.step) / f32::from(limit));
    let dmin = half_at_most(largest(|line| line.min) / f32::from(limit));
    let (step_unit, min_unit) = (d.to_f32(), dmin.to_f32());

    let mut packed = [(0, 0); N];
    let mut q = [0; 256];
    for (j, q) in q.as_chunks_mut::<L>().0.iter_mut().enumerate() {
        let near = |value: f32, unit: f32| {
            let limit = i32::from(limit);
            let middle = (value * inverse(unit)).round().clamp(0.0, limit as f32) as i32;
            [middle, middle - 1, middle + 1].map(|near| near.clamp(0, limit))
        };
        let mut best = (f32::INFINITY, 0, 0);
        for scale in near(lines[j].step, step_unit) {
            for min in near(lines[j].min, min_unit) {
                let line = Line {
                    step: step_unit * scale as f32,
                    min: min_unit * min as f32,
                };
                let error = line.error(&sub_blocks[j], &weights[j], top);
                if error < best.0 {
                    best = (error, scale, min);
                }
            }
        }
        let (scale, min) = (best.1 as u8, best.2 as u8);
        packed[j] = (scale, min);
        let line = Line {
            step: step_unit * f32::from(scale),
            min: min_unit * f32::from(min),
        };
        let inverse = inverse(line.step);
        for (q, value) in q.iter_mut().zip(&sub_blocks[j]) {
            *q = step_of(*value + line.min, inverse, top) as u8;
        }
    }
    Lines { d, dmin, packed, q }
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

/// Finds the line of least error for steps from 0 to `top`.
fn fit_line<const L: usize>(values: &[f32; L], weights: &[f32; L], top: f32) -> Line {
    let low = values.iter().copied().fold(0.0, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if high <= low {
        // All elements are equal and not above zero.
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
        if determinant <= 0.0 || min < 0.0 {
            (step, min) = (if sqq > 0.0 { sxq / sqq } else { 0.0 }, 0.0);
        }
        let error =
            sxx + step * (step * sqq - 2.0 * sxq) + min * (min * sw + 2.0 * (sx - step * sq));
        (Line { step, min }, error)
    };
    let mut best = (Line::default(), sxx);
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

struct ThreeBits;

impl Steps for ThreeBits {
    const FARTHEST: &[(f32, f32)] = &[(-3.0, -0.2)];

    fn nearest(value: f32) -> f32 {
        round(value.clamp(-4.0, 3.0))
    }
}

struct SixBits;

impl Steps for SixBits {
    const FARTHEST: &[(f32, f32)] = &[(-31.0, -0.2)];

    fn nearest(value: f32) -> f32 {
        round(value.clamp(-32.0, 31.0))
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
    limits: [i32; 2],
) -> Scaled<N> {
    const { assert!(L * N == 256) }
    let (sub_blocks, _) = values.as_chunks::<L>();
    let mut weights = [[0.0; L]; N];
    let mut fitted = [0.0_f32; N];
    for ((values, weights), scale) in sub_blocks.iter().zip(&mut weights).zip(&mut fitted) {
        *weights = importance(values);
        *scale = fit_scale::<S, L>(values, weights);
    }
    // The scale farthest from zero takes the negative limit, which is farther than the positive one.
    let [low, high] = limits;
    let d = half_at_most(farthest(&fitted) / low as f32);
    let unit = d.to_f32();

    let mut scales = [0; N];
    let mut q = [0.0; 256];
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
        let inverse = inverse(unit * scales[j] as f32);
        *q = sub_blocks[j].map(|value| S::nearest(value * inverse));
    }
    Scaled { d, scales, q }
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

/// Weights of the errors of the elements of a sub-block.
fn importance<const N: usize>(values: &[f32; N]) -> [f32; N] {
    let squares: f32 = values.iter().map(|value| value * value).sum();
    let typical = (squares / N as f32).sqrt();
    values.map(|value| typical + value.abs())
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

fn inverse(step: f32) -> f32 {
    if step == 0.0 { 0.0 } else { 1.0 / step }
}

/// Half precision, at the end of its range for what lies beyond.
fn half_at_most(value: f32) -> f16 {
    let limit = f16::MAX.to_f32();
    f16::from_f32(value.clamp(-limit, limit))
}

fn each<const LEN: usize, const BYTES: usize>(
    values: &[f32],
    out: &mut [u8],
    pack: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    for (values, block) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        pack(values, block);
    }
}

/// Assignments that are tried, by number of steps between the farthest elements.
const LINE_ATTEMPTS: usize = 11;
const SCALE_ATTEMPTS: usize = 11;
