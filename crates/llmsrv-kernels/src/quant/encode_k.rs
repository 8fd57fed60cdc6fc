//! Packing into super-blocks of 256 elements, with a search for the scales that lose least.
//!
//! What a stretch of 16 or 32 elements loses is a weighted sum of squares; large elements weigh more,
//! since they matter more to a product. For a given assignment of elements to steps the best scale is
//! a linear least-squares problem with a closed form. The search tries several assignments, each
//! improved once by assigning again with the scale found, and takes the best. Then the scales of the
//! stretches are rounded to the few bits that they have, and their neighbours are tried too.

use half::f16;

/// Scale; scale of minimums; 6-bit scales and minimums of 8 stretches; nibbles.
pub(super) fn q4_k(values: &[f32], out: &mut [u8]) {
    each::<144>(values, out, |values, block| {
        let q = lines(values, 15.0, &mut block[..16]);
        for (q, bytes) in q
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
    each::<176>(values, out, |values, block| {
        let q = lines(values, 31.0, &mut block[..16]);
        let (fifths, nibbles) = block[16..].split_at_mut(32);
        fifths.fill(0);
        let pairs = q
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

/// 4 low bits; 2 high bits; 8-bit scales of 16 stretches; scale.
pub(super) fn q6_k(values: &[f32], out: &mut [u8]) {
    each::<210>(values, out, |values, block| {
        let q = scaled(values, block);
        block[..192].fill(0);
        for (part, q) in q.as_chunks::<128>().0.iter().enumerate() {
            for (at, q) in q.iter().enumerate() {
                let (quarter, l) = (at / 32, at % 32);
                block[part * 64 + quarter % 2 * 32 + l] |= (q & 15) << (quarter / 2 * 4);
                block[128 + part * 32 + l] |= (q >> 4) << (2 * quarter);
            }
        }
    });
}

/// `step * q - min` for the elements of a stretch.
#[derive(Clone, Copy, Default)]
struct Line {
    step: f32,
    /// Not negative: the format stores it without sign.
    min: f32,
}

/// Chooses the scales and minimums of 8 stretches, writes them to `head` (scale, scale of minimums,
/// 6 bits each of both) and returns the elements, from 0 to `top`.
fn lines(values: &[f32; 256], top: f32, head: &mut [u8]) -> [u8; 256] {
    let (stretches, _) = values.as_chunks::<32>();
    let mut weights = [[0.0; 32]; 8];
    let mut lines = [Line::default(); 8];
    for ((values, weights), line) in stretches.iter().zip(&mut weights).zip(&mut lines) {
        *weights = importance(values);
        *line = fit_line(values, weights, top);
    }
    let largest = |of: fn(&Line) -> f32| lines.iter().map(of).fold(0.0, f32::max);
    let d = half_at_most(largest(|line| line.step) / 63.0);
    let dmin = half_at_most(largest(|line| line.min) / 63.0);
    head[..2].copy_from_slice(&d.to_le_bytes());
    head[2..4].copy_from_slice(&dmin.to_le_bytes());
    let (d, dmin) = (d.to_f32(), dmin.to_f32());

    let packed = &mut head[4..];
    packed.fill(0);
    let mut q = [0; 256];
    for (j, q) in q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let near = |value: f32, unit: f32| {
            let middle = (value * inverse(unit)).round().clamp(0.0, 63.0) as i32;
            [middle, middle - 1, middle + 1].map(|near| near.clamp(0, 63))
        };
        let mut best = (f32::INFINITY, 0, 0);
        for scale in near(lines[j].step, d) {
            for min in near(lines[j].min, dmin) {
                let line = Line {
                    step: d * scale as f32,
                    min: dmin * min as f32,
                };
                let error = line.error(&stretches[j], &weights[j], top);
                if error < best.0 {
                    best = (error, scale, min);
                }
            }
        }
        let (scale, min) = (best.1 as u8, best.2 as u8);
        let line = Line {
            step: d * f32::from(scale),
            min: dmin * f32::from(min),
        };
        let inverse = inverse(line.step);
        for (q, value) in q.iter_mut().zip(&stretches[j]) {
            *q = step_of(*value + line.min, inverse, top) as u8;
        }
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
    q
}

impl Line {
    fn error(&self, values: &[f32; 32], weights: &[f32; 32], top: f32) -> f32 {
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
fn fit_line(values: &[f32; 32], weights: &[f32; 32], top: f32) -> Line {
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

/// Chooses the scales of 16 stretches, writes them (8 bits each, and the scale of all) to the end of a
/// block of Q6_K and returns the elements, moved by 32 to lie from 0 to 63.
fn scaled(values: &[f32; 256], block: &mut [u8; 210]) -> [u8; 256] {
    let (stretches, _) = values.as_chunks::<16>();
    let mut weights = [[0.0; 16]; 16];
    let mut scales = [0.0_f32; 16];
    for ((values, weights), scale) in stretches.iter().zip(&mut weights).zip(&mut scales) {
        *weights = importance(values);
        *scale = fit_scale(values, weights);
    }
    // The scale farthest from zero becomes -128, which is farther than 127.
    let farthest = scales.iter().fold(
        0.0_f32,
        |far, scale| if scale.abs() > far.abs() { *scale } else { far },
    );
    let d = half_at_most(farthest / -128.0);
    block[208..].copy_from_slice(&d.to_le_bytes());
    let d = d.to_f32();

    let mut q = [0; 256];
    for (j, q) in q.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let middle = (scales[j] * inverse(d)).round().clamp(-128.0, 127.0) as i32;
        let mut best = (f32::INFINITY, 0);
        for scale in [middle, middle - 1, middle + 1] {
            let scale = scale.clamp(-128, 127);
            let step = d * scale as f32;
            let inverse = inverse(step);
            let terms = stretches[j].iter().zip(&weights[j]).map(|(value, weight)| {
                let lost = step * signed_step_of(*value, inverse) - value;
                weight * lost * lost
            });
            let error: f32 = terms.sum();
            if error < best.0 {
                best = (error, scale);
            }
        }
        block[192 + j] = (best.1 as i8).cast_unsigned();
        let inverse = inverse(d * best.1 as f32);
        for (q, value) in q.iter_mut().zip(&stretches[j]) {
            *q = (signed_step_of(*value, inverse) + 32.0) as u8;
        }
    }
    q
}

/// Finds the scale of least error for steps from -32 to 31.
fn fit_scale(values: &[f32; 16], weights: &[f32; 16]) -> f32 {
    let farthest = values.iter().fold(
        0.0_f32,
        |far, value| if value.abs() > far.abs() { *value } else { far },
    );
    if farthest == 0.0 {
        return 0.0;
    }
    // The best scale for an assignment, and by how much it lowers the error.
    let solve = |step: f32| {
        let inverse = inverse(step);
        let (mut sqq, mut sxq) = (0.0, 0.0);
        for (value, weight) in values.iter().zip(weights) {
            let q = signed_step_of(*value, inverse);
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
    for attempt in 0..SCALE_ATTEMPTS {
        let n_steps = -31.0 - 0.2 * attempt as f32;
        let first = solve(farthest / n_steps);
        let second = solve(first.0);
        for found in [first, second] {
            if found.1 > best.1 {
                best = found;
            }
        }
    }
    best.0
}

/// Weights of the errors of the elements of a stretch.
fn importance<const N: usize>(values: &[f32; N]) -> [f32; N] {
    let squares: f32 = values.iter().map(|value| value * value).sum();
    let typical = (squares / N as f32).sqrt();
    values.map(|value| typical + value.abs())
}

fn step_of(value: f32, inverse: f32, top: f32) -> f32 {
    round((value * inverse).clamp(0.0, top))
}

fn signed_step_of(value: f32, inverse: f32) -> f32 {
    round((value * inverse).clamp(-32.0, 31.0))
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

fn each<const BYTES: usize>(
    values: &[f32],
    out: &mut [u8],
    pack: impl Fn(&[f32; 256], &mut [u8; BYTES]),
) {
    for (values, block) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        pack(values, block);
    }
}

/// Assignments that are tried, by number of steps between the farthest elements.
const LINE_ATTEMPTS: usize = 11;
const SCALE_ATTEMPTS: usize = 11;
