//! Packing into blocks of 256 elements that are points of a grid: IQ2 and IQ3.
//!
//! Signs are chosen first: those of the elements, but for the formats that store seven of eight, where the element that
//! costs least takes the other sign if need be. What remains is to find, for the stretches of a block, the scale and
//! the points of least error. The nearest levels of eight (or four) elements are a number, and mostly no point of the
//! grid; for each number the points near it are listed once, and the one of least weighted error is taken. Scales are
//! fitted as in [`super::encode_k`]: the best one for given points has a closed form, several beginnings are tried, and
//! what all scales are multiples of is fitted again after they are rounded.

use std::sync::OnceLock;

use half::f16;

use super::{
    encode_k::{Plain, half_at_most, importance, inverse},
    grid_blocks::{GridFormat, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs},
    grids,
};

/// A format of points that can be written.
pub(super) trait GridPack: GridFormat {
    /// Signs are stored for seven of eight elements: the number of negative ones is even.
    const EVEN: bool;

    /// Returns the points of the grid.
    fn book() -> &'static Book;

    /// Writes a block, which has [`GridFormat::BYTES`] bytes.
    fn write(chosen: &Chosen, block: &mut [u8]);
}

/// What a block is to hold.
pub(super) struct Chosen {
    d: f16,
    /// Numbers of the stretches.
    stretches: [u8; 16],
    /// Indices of the points, one after the other.
    points: [u16; 64],
    /// A bit for each of eight elements; 1 = negative.
    signs: [u8; 32],
}

/// Packs the blocks of a row.
pub(super) fn pack<T: GridPack>(values: &[f32], weights: Option<&[f32]>, out: &mut [u8]) {
    let weights = weights.map(|weights| weights.as_chunks().0);
    let blocks = values
        .as_chunks()
        .0
        .iter()
        .zip(out.chunks_exact_mut(T::BYTES));
    for (idx, (values, block)) in blocks.enumerate() {
        let weights = weights.and_then(|weights| weights.get(idx));
        T::write(&choose::<T>(values, weights), block);
    }
}

/// Chooses scales, points and signs of a block.
fn choose<T: GridPack>(values: &[f32; 256], columns: Option<&[f32; 256]>) -> Chosen {
    let book = T::book();
    let [weights] = importance::<256, 1, 256>(values, columns, Plain::Square);
    let (signs, sizes) = split_signs(values, &weights, T::EVEN);
    let n_stretches = 256 / T::STRETCH;
    let of_stretch = |idx: usize| {
        let elements = idx * T::STRETCH..(idx + 1) * T::STRETCH;
        (&sizes[elements.clone()], &weights[elements])
    };
    let mut fitted = [0.0_f32; 16];
    for (idx, scale) in fitted.iter_mut().take(n_stretches).enumerate() {
        *scale = fit(book, of_stretch(idx));
    }
    let largest = fitted.iter().copied().fold(0.0, f32::max);
    let rounded = |unit: f32| {
        // What a scale of a stretch is an odd multiple of is `d * UNIT`.
        let d = half_at_most(unit / T::UNIT);
        let unit = d.to_f32() * T::UNIT;
        let mut chosen = Chosen {
            d,
            stretches: [0; 16],
            points: [0; 64],
            signs,
        };
        let (mut total, mut qq, mut qx) = (0.0, 0.0, 0.0);
        let n_points = T::STRETCH / book.len;
        for (idx, fitted) in fitted.iter().take(n_stretches).enumerate() {
            let odd = (fitted * inverse(unit) - 1.0) * 0.5;
            let middle = odd.round().clamp(0.0, 15.0) as i32;
            let mut best: Option<(Assigned, u8)> = None;
            for number in [middle, middle - 1, middle + 1] {
                let number = number.clamp(0, 15) as u8;
                let scale = unit * f32::from(2 * number + 1);
                let found = assign(book, of_stretch(idx), scale);
                if best.as_ref().is_none_or(|best| found.error < best.0.error) {
                    best = Some((found, number));
                }
            }
            let Some((found, number)) = best else {
                continue;
            };
            let times = f32::from(2 * number + 1);
            total += found.error;
            qq += times * times * found.qq;
            qx += times * found.qx;
            chosen.stretches[idx] = number;
            let places = idx * n_points..(idx + 1) * n_points;
            chosen.points[places].copy_from_slice(&found.points[..n_points]);
        }
        let unit = if qq > 0.0 { qx / qq } else { 0.0 };
        (chosen, total, unit)
    };
    // The largest scale is 31 units.
    let mut best = rounded(largest / 31.0);
    for _ in 0..REFINEMENTS {
        let next = rounded(best.2);
        if next.1 >= best.1 {
            break;
        }
        best = next;
    }
    best.0
}

/// Returns the signs of each eight elements, and the elements without them: an element whose sign was changed is below
/// zero.
fn split_signs(values: &[f32; 256], weights: &[f32; 256], even: bool) -> ([u8; 32], [f32; 256]) {
    let mut signs = [0; 32];
    let mut sizes = values.map(f32::abs);
    let eights = values
        .as_chunks::<8>()
        .0
        .iter()
        .zip(weights.as_chunks::<8>().0);
    let eights = eights.zip(sizes.as_chunks_mut::<8>().0).zip(&mut signs);
    for (((values, weights), sizes), signs) in eights {
        for (element, value) in values.iter().enumerate() {
            *signs |= u8::from(*value < 0.0) << element;
        }
        if even && signs.count_ones() % 2 == 1 {
            let mut cheapest = (0, f32::INFINITY);
            for (element, (value, weight)) in values.iter().zip(weights).enumerate() {
                let cost = weight * value * value;
                if cost < cheapest.1 {
                    cheapest = (element, cost);
                }
            }
            *signs ^= 1 << cheapest.0;
            sizes[cheapest.0] = -sizes[cheapest.0];
        }
    }
    (signs, sizes)
}

/// Finds the scale of least error of a stretch.
fn fit(book: &Book, stretch: (&[f32], &[f32])) -> f32 {
    let largest = stretch.0.iter().copied().fold(0.0, f32::max);
    let mut best = (0.0, 0.0);
    for attempt in 0..ATTEMPTS {
        // Where the largest element comes to lie: from below the highest level to far above it.
        let place = book.top * (book.first + book.apart * attempt as f32);
        let mut scale = largest / place;
        for _ in 0..2 {
            let found = assign(book, stretch, scale);
            if found.qq <= 0.0 || found.qx <= 0.0 {
                break;
            }
            scale = found.qx / found.qq;
            let gain = found.qx * scale;
            if gain > best.1 {
                best = (scale, gain);
            }
        }
    }
    best.0
}

/// The points of a stretch for a scale.
struct Assigned {
    points: [u16; 8],
    error: f32,
    /// Sums of weighted squares of levels, and of levels times elements.
    qq: f32,
    qx: f32,
}

/// Chooses the points of a stretch.
fn assign(book: &Book, (sizes, weights): (&[f32], &[f32]), scale: f32) -> Assigned {
    let inverse = inverse(scale);
    let mut assigned = Assigned {
        points: [0; 8],
        error: 0.0,
        qq: 0.0,
        qx: 0.0,
    };
    let parts = sizes
        .chunks_exact(book.len)
        .zip(weights.chunks_exact(book.len));
    for ((sizes, weights), point) in parts.zip(&mut assigned.points) {
        let (idx, levels) = book.nearest(sizes, weights, inverse);
        *point = idx;
        for ((size, weight), level) in sizes.iter().zip(weights).zip(levels) {
            let lost = scale * level - size;
            assigned.error += weight * lost * lost;
            assigned.qq += weight * level * level;
            assigned.qx += weight * level * size;
        }
    }
    assigned
}

/// The points of a grid, and which of them are near what elements may be.
pub(super) struct Book {
    /// Elements of a point: 4 or 8.
    len: usize,
    /// The levels of a point's elements.
    points: Vec<[f32; 8]>,
    /// Between which values the next level begins to be nearer.
    bounds: Vec<f32>,
    /// For each number whose digits are the nearest levels of elements: points, nearest first. A number that is a point
    /// has only that.
    near: Vec<[u16; NEAR]>,
    /// The highest level.
    top: f32,
    /// Where the largest element is tried to lie, in highest levels: the first, and how far apart the next.
    first: f32,
    apart: f32,
}

impl Book {
    fn new<const LEN: usize>(grid: &[[u8; LEN]], levels: &[i8], first: f32, last: f32) -> Book {
        let levels: Vec<f32> = levels.iter().map(|level| f32::from(*level)).collect();
        let with_levels = |point: &[u8]| {
            let mut values = [0.0; 8];
            for (value, level) in values.iter_mut().zip(point) {
                *value = levels[usize::from(*level)];
            }
            values
        };
        let points: Vec<[f32; 8]> = grid.iter().map(|point| with_levels(point)).collect();
        let n_numbers = levels.len().pow(LEN as u32);
        let near = (0..n_numbers).map(|number| {
            let mut digits = [0; LEN];
            let mut rest = number;
            for digit in &mut digits {
                *digit = (rest % levels.len()) as u8;
                rest /= levels.len();
            }
            let place = with_levels(&digits);
            let mut near: Vec<(f32, u16)> = points
                .iter()
                .zip(0..)
                .map(|(point, idx)| {
                    let distances = point.iter().zip(place).map(|(a, b)| (a - b) * (a - b));
                    (distances.sum(), idx)
                })
                .collect();
            near.select_nth_unstable_by(NEAR - 1, |a, b| a.0.total_cmp(&b.0));
            near.truncate(NEAR);
            near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            if near[0].0 == 0.0 {
                let own = near[0].1;
                return [own; NEAR];
            }
            let mut ids = [0; NEAR];
            for (id, (_, idx)) in ids.iter_mut().zip(near) {
                *id = idx;
            }
            ids
        });
        let bounds = levels.windows(2).map(|pair| (pair[0] + pair[1]) * 0.5);
        Book {
            len: LEN,
            near: near.collect(),
            bounds: bounds.collect(),
            top: levels.last().copied().unwrap_or(1.0),
            points,
            first,
            apart: (last - first) / (ATTEMPTS - 1) as f32,
        }
    }

    /// Returns the point of least weighted error for elements times `inverse`, and its levels.
    fn nearest(&self, sizes: &[f32], weights: &[f32], inverse: f32) -> (u16, &[f32]) {
        let n_levels = self.bounds.len() + 1;
        let mut number = 0;
        for size in sizes.iter().rev() {
            let scaled = size * inverse;
            let level = self.bounds.iter().filter(|bound| scaled > **bound).count();
            number = number * n_levels + level;
        }
        let near = &self.near[number];
        let mut best = (f32::INFINITY, near[0]);
        if near[0] != near[1] {
            for idx in near {
                let point = &self.points[usize::from(*idx)];
                let terms = sizes.iter().zip(weights).zip(point);
                let error: f32 = terms
                    .map(|((size, weight), level)| {
                        let lost = level - size * inverse;
                        weight * lost * lost
                    })
                    .sum();
                if error < best.0 {
                    best = (error, *idx);
                }
            }
        }
        (best.1, &self.points[usize::from(best.1)][..self.len])
    }
}

/// Returns the seven signs of each of four eights, one after the other, and the number of their stretch above them.
fn word(signs: &[u8], stretch: u8) -> [u8; 4] {
    let seven = signs
        .iter()
        .rev()
        .fold(0, |word, signs| word << 7 | u32::from(signs & 127));
    (seven | u32::from(stretch) << 28).to_le_bytes()
}

/// Writes the numbers of stretches, two in a byte.
fn nibbles(stretches: &[u8], out: &mut [u8]) {
    for (byte, pair) in out.iter_mut().zip(stretches.as_chunks::<2>().0) {
        *byte = pair[0] | pair[1] << 4;
    }
}

macro_rules! book {
    ($grid:ident, $levels:expr, $first:literal, $last:literal) => {{
        static BOOK: OnceLock<Book> = OnceLock::new();
        BOOK.get_or_init(|| Book::new(&grids::$grid, &$levels, $first, $last))
    }};
}

impl GridPack for Iq2Xxs {
    const EVEN: bool = true;

    fn book() -> &'static Book {
        book!(IQ2_XXS, Iq2Xxs::LEVELS[..3], 0.8, 1.8)
    }

    fn write(chosen: &Chosen, block: &mut [u8]) {
        block[..2].copy_from_slice(&chosen.d.to_le_bytes());
        for (idx, part) in block[2..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let points = &chosen.points[4 * idx..][..4];
            for (byte, point) in part.iter_mut().zip(points) {
                *byte = *point as u8;
            }
            let signs = &chosen.signs[4 * idx..][..4];
            part[4..].copy_from_slice(&word(signs, chosen.stretches[idx]));
        }
    }
}

impl GridPack for Iq2Xs {
    const EVEN: bool = true;

    fn book() -> &'static Book {
        book!(IQ2_XS, Iq2Xs::LEVELS[..3], 0.8, 1.8)
    }

    fn write(chosen: &Chosen, block: &mut [u8]) {
        block[..2].copy_from_slice(&chosen.d.to_le_bytes());
        let words = block[2..66].as_chunks_mut::<2>().0.iter_mut();
        for ((word, point), signs) in words.zip(chosen.points).zip(chosen.signs) {
            *word = (point | u16::from(signs & 127) << 9).to_le_bytes();
        }
        nibbles(&chosen.stretches, &mut block[66..]);
    }
}

impl GridPack for Iq2S {
    const EVEN: bool = false;

    fn book() -> &'static Book {
        book!(IQ2_S, Iq2S::LEVELS[..3], 0.8, 1.8)
    }

    fn write(chosen: &Chosen, block: &mut [u8]) {
        block[..2].copy_from_slice(&chosen.d.to_le_bytes());
        block[66..74].fill(0);
        for (eight, point) in chosen.points[..32].iter().enumerate() {
            block[2 + eight] = *point as u8;
            block[66 + eight / 4] |= ((point >> 8) as u8) << (2 * (eight % 4));
        }
        block[34..66].copy_from_slice(&chosen.signs);
        nibbles(&chosen.stretches, &mut block[74..]);
    }
}

impl GridPack for Iq3Xxs {
    const EVEN: bool = true;

    fn book() -> &'static Book {
        book!(IQ3_XXS, Iq3Xxs::LEVELS[..8], 0.7, 1.4)
    }

    fn write(chosen: &Chosen, block: &mut [u8]) {
        block[..2].copy_from_slice(&chosen.d.to_le_bytes());
        for (byte, point) in block[2..66].iter_mut().zip(chosen.points) {
            *byte = point as u8;
        }
        for (idx, part) in block[66..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *part = word(&chosen.signs[4 * idx..][..4], chosen.stretches[idx]);
        }
    }
}

impl GridPack for Iq3S {
    const EVEN: bool = false;

    fn book() -> &'static Book {
        book!(IQ3_S, Iq3S::LEVELS[..8], 0.7, 1.4)
    }

    fn write(chosen: &Chosen, block: &mut [u8]) {
        block[..2].copy_from_slice(&chosen.d.to_le_bytes());
        block[66..74].fill(0);
        for (four, point) in chosen.points.iter().enumerate() {
            block[2 + four] = *point as u8;
            block[66 + four / 8] |= ((point >> 8) as u8) << (four % 8);
        }
        block[74..106].copy_from_slice(&chosen.signs);
        nibbles(&chosen.stretches[..8], &mut block[106..]);
    }
}

/// Points that are looked at where the nearest levels are none.
const NEAR: usize = 16;
/// Beginnings of the search for a scale.
const ATTEMPTS: usize = 13;
/// How often the unit of the scales is fitted to what was rounded.
const REFINEMENTS: usize = 2;
