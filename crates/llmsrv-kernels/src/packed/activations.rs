//! Activations as signed bytes or, for weights with a floating point, as they are or rounded to BF16.
//!
//! A stretch of 32 or of 256 elements, as long as the blocks of the weights it will meet, has one scale:
//! its largest magnitude becomes 127. Tokens lie in panels of as many as a kernel computes together,
//! block by block, so that a kernel reads them in the order they lie in.

use super::{formats::Kind, isa::Instructions};
use crate::{Error, Pool, brain};

/// Rows of activations for products with packed weights of one [`Kind`].
///
/// The memory is kept from one use to the next.
#[derive(Debug, Default)]
pub struct Activations {
    n_rows: usize,
    n_cols: usize,
    /// The kind of the content, and its blocks.
    there: Option<(Kind, usize)>,
    short: Vec<Short>,
    long: Vec<Long>,
    plain: Vec<Plain>,
    brain: Vec<Brain>,
}

/// 32 elements of a token.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct Short {
    pub(super) codes: [i8; 32],
    /// What a code counts.
    pub(super) scale: f32,
    /// The scale times the sum of the codes.
    pub(super) scaled_sum: f32,
    /// The negated sum of the codes.
    pub(super) minus_sum: i32,
}

/// 256 elements of a token.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct Long {
    pub(super) codes: [i8; 256],
    /// The sums of each 16 codes.
    pub(super) sums_of_16: [i16; 16],
    /// The sums of each 32 codes.
    pub(super) sums: [i16; 8],
    /// What a code counts.
    pub(super) scale: f32,
}

/// 32 elements of a token as they are.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct Plain {
    pub(super) values: [f32; 32],
}

/// 32 elements of a token in BF16, in their order: a kernel reads two at a time.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Brain {
    pub(super) values: [u16; 32],
}

impl Activations {
    /// Replaces the content by the rows of `x`, each of `n_cols` elements.
    ///
    /// # Errors
    /// If the rows are not whole, or not of whole blocks where there are scales.
    pub fn quantize(
        &mut self,
        x: &[f32],
        n_cols: usize,
        kind: Kind,
        pool: &Pool,
    ) -> Result<(), Error> {
        self.quantize_at(Instructions::best(), x, n_cols, kind, pool)
    }

    /// As [`Activations::quantize`], with chosen instructions.
    pub(super) fn quantize_at(
        &mut self,
        tier: Instructions,
        x: &[f32],
        n_cols: usize,
        kind: Kind,
        pool: &Pool,
    ) -> Result<(), Error> {
        if n_cols == 0 || !x.len().is_multiple_of(n_cols) {
            return Err(Error::Length {
                what: "activations",
                got: x.len(),
                expected: x.len() / n_cols.max(1) * n_cols,
            });
        }
        if matches!(kind, Kind::Short | Kind::Long) && !n_cols.is_multiple_of(kind.block_len()) {
            return Err(Error::Length {
                what: "elements of whole blocks",
                got: n_cols,
                expected: n_cols.next_multiple_of(kind.block_len()),
            });
        }
        (self.n_rows, self.n_cols) = (x.len() / n_cols, n_cols);
        let n_tokens: usize = panels(self.n_rows).map(|panel| panel.width).sum();
        let n = n_tokens * n_cols.div_ceil(kind.block_len());
        self.there = Some((kind, n));
        match kind {
            Kind::Short => {
                let blocks = room(&mut self.short, n, Short::ZERO);
                fill(blocks, x, n_cols, kind, pool, |x, out| {
                    if let Some(x) = x.first_chunk() {
                        short(tier, x, out);
                    }
                });
            }
            Kind::Long => {
                let blocks = room(&mut self.long, n, Long::ZERO);
                fill(blocks, x, n_cols, kind, pool, |x, out| {
                    if let Some(x) = x.first_chunk() {
                        long(tier, x, out);
                    }
                });
            }
            Kind::Plain => {
                let blocks = room(&mut self.plain, n, Plain { values: [0.0; 32] });
                fill(blocks, x, n_cols, kind, pool, |x, out| {
                    let (values, padding) = out.values.split_at_mut(x.len());
                    values.copy_from_slice(x);
                    padding.fill(0.0);
                });
            }
            Kind::Brain => {
                let blocks = room(&mut self.brain, n, Brain { values: [0; 32] });
                fill(blocks, x, n_cols, kind, pool, |x, out| {
                    if let Some(x) = x.first_chunk() {
                        brain(tier, x, out);
                    } else {
                        let mut whole = [0.0; 32];
                        whole[..x.len()].copy_from_slice(x);
                        brain(tier, &whole, out);
                    }
                });
            }
        }
        Ok(())
    }

    /// Writes what [`Activations::quantize`] leaves of `x`, which are whole blocks where there are scales:
    /// a second quantised row which, added to the first, makes activations of 16 bits.
    pub fn rest(x: &[f32], kind: Kind, out: &mut [f32]) {
        match kind {
            Kind::Short => rest::<32>(x, out),
            Kind::Long => rest::<256>(x, out),
            Kind::Plain => out.fill(0.0),
            Kind::Brain => {
                for (out, x) in out.iter_mut().zip(x) {
                    *out = x - brain::expand(brain::round(*x));
                }
            }
        }
    }

    /// Returns where the blocks of a kind begin, the bytes of one, and how many there are.
    pub(super) fn blocks(&self, kind: Kind) -> (*const u8, usize, usize) {
        fn of<T>(blocks: &[T]) -> (*const u8, usize, usize) {
            (blocks.as_ptr().cast(), size_of::<T>(), blocks.len())
        }
        let n = match self.there {
            Some((there, n)) if there == kind => n,
            _ => 0,
        };
        match kind {
            Kind::Short => of(&self.short[..n]),
            Kind::Long => of(&self.long[..n]),
            Kind::Plain => of(&self.plain[..n]),
            Kind::Brain => of(&self.brain[..n]),
        }
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Returns the elements of a row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }
}

/// Tokens that are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panel {
    /// The first token.
    pub(super) first: usize,
    /// Tokens there are.
    pub(super) n_tokens: usize,
    /// Tokens there is room for: one of [`WIDTHS`].
    pub(super) width: usize,
}

/// How many tokens a kernel computes together.
pub(super) const WIDTHS: [usize; 6] = [1, 2, 3, 4, 6, WIDEST];
pub(super) const WIDEST: usize = 8;

/// Cuts `n` tokens into panels.
pub(super) fn panels(n: usize) -> impl Iterator<Item = Panel> {
    (0..n).step_by(WIDEST).map(move |first| {
        let n_tokens = (n - first).min(WIDEST);
        let width = WIDTHS.into_iter().find(|width| *width >= n_tokens);
        Panel {
            first,
            n_tokens,
            width: width.unwrap_or(WIDEST),
        }
    })
}

/// Returns the first `n` blocks of a memory that only grows. They hold anything: what is not written
/// belongs to tokens that do not exist, whose results nobody reads.
fn room<B: Clone>(memory: &mut Vec<B>, n: usize, zero: B) -> &mut [B] {
    if memory.len() < n {
        memory.resize(n, zero);
    }
    &mut memory[..n]
}

/// Fills blocks panel by panel; those of tokens that do not exist stay as they are.
fn fill<B: Send>(
    blocks: &mut [B],
    x: &[f32],
    n_cols: usize,
    kind: Kind,
    pool: &Pool,
    quantize: impl Fn(&[f32], &mut B) + Sync,
) {
    let n_blocks = n_cols.div_ceil(kind.block_len());
    let parallel = x.len() >= PARALLEL_WORK;
    // Panels before the last one are all of the widest kind.
    pool.for_each_chunk_mut(blocks, n_blocks * WIDEST, parallel, |idx, blocks| {
        let tokens = x.get(idx * WIDEST * n_cols..).unwrap_or_default();
        let width = blocks.len() / n_blocks;
        for (token, x) in tokens.chunks_exact(n_cols).take(width).enumerate() {
            let blocks = blocks.iter_mut().skip(token).step_by(width.max(1));
            for (x, block) in x.chunks(kind.block_len()).zip(blocks) {
                quantize(x, block);
            }
        }
    });
}

/// Elements from which on a second thread pays.
const PARALLEL_WORK: usize = 1 << 15;

impl Short {
    const ZERO: Short = Short {
        codes: [0; 32],
        scale: 0.0,
        scaled_sum: 0.0,
        minus_sum: 0,
    };
}

impl Long {
    const ZERO: Long = Long {
        codes: [0; 256],
        sums_of_16: [0; 16],
        sums: [0; 8],
        scale: 0.0,
    };
}

/// Makes a function for each set of instructions out of one that is inlined into them.
macro_rules! compiled_for_each_tier {
    ($name:ident, $plain:ident, $x:ty, $out:ty) => {
        fn $name(tier: Instructions, x: &$x, out: &mut $out) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
                fn avx512(x: &$x, out: &mut $out) {
                    $plain(x, out);
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2(x: &$x, out: &mut $out) {
                    $plain(x, out);
                }
                match tier {
                    Instructions::Avx512 | Instructions::Avx512Bf16 => {
                        // SAFETY: a tier is only chosen where the processor has its instructions.
                        return unsafe { avx512(x, out) };
                    }
                    // SAFETY: as above.
                    Instructions::Avx2 => return unsafe { avx2(x, out) },
                    _ => {}
                }
            }
            let _ = tier;
            $plain(x, out);
        }
    };
}

compiled_for_each_tier!(short, quantize_short, [f32; 32], Short);
compiled_for_each_tier!(long, quantize_long, [f32; 256], Long);
compiled_for_each_tier!(brain, round_brain, [f32; 32], Brain);

#[inline(always)]
fn quantize_short(x: &[f32; 32], out: &mut Short) {
    out.scale = codes(x, &mut out.codes);
    let sum: i32 = out.codes.iter().map(|code| i32::from(*code)).sum();
    out.minus_sum = -sum;
    out.scaled_sum = out.scale * sum as f32;
}

#[inline(always)]
fn quantize_long(x: &[f32; 256], out: &mut Long) {
    out.scale = codes(x, &mut out.codes);
    for (sum, codes) in out.sums_of_16.iter_mut().zip(out.codes.as_chunks::<16>().0) {
        *sum = codes.iter().map(|code| i16::from(*code)).sum();
    }
    for (sum, halves) in out.sums.iter_mut().zip(out.sums_of_16.as_chunks::<2>().0) {
        *sum = halves[0] + halves[1];
    }
}

#[inline(always)]
fn round_brain(x: &[f32; 32], out: &mut Brain) {
    for (out, x) in out.values.iter_mut().zip(x) {
        *out = brain::round(*x);
    }
}

fn rest<const LEN: usize>(x: &[f32], out: &mut [f32]) {
    let blocks = x.as_chunks::<LEN>().0;
    for (x, out) in blocks.iter().zip(out.as_chunks_mut::<LEN>().0) {
        let mut rounded = [0; LEN];
        let scale = codes(x, &mut rounded);
        for ((out, x), code) in out.iter_mut().zip(x).zip(rounded) {
            *out = x - f32::from(code) * scale;
        }
    }
}

/// Writes codes and returns what one counts; not a number if an element is not finite.
#[inline(always)]
fn codes<const LEN: usize>(x: &[f32; LEN], codes: &mut [i8; LEN]) -> f32 {
    // As integers, magnitudes are in the same order, and what is not a number is the largest.
    let largest = x
        .iter()
        .fold(0, |largest: u32, x| largest.max(x.to_bits() & !SIGN));
    let largest = f32::from_bits(largest);
    if largest < SMALLEST {
        codes.fill(0);
        return 0.0;
    }
    let inverse = 127.0 / largest;
    for (code, x) in codes.iter_mut().zip(x) {
        // The sum's last bits are the nearest integer.
        *code = (x * inverse + ROUNDER).to_bits() as i8;
    }
    if largest.is_finite() {
        largest / 127.0
    } else {
        f32::NAN
    }
}

const SIGN: u32 = 1 << 31;
/// Below this the scale's inverse would not be finite; no activation that matters is.
const SMALLEST: f32 = 1e-30;
/// 1.5 * 2^23: neighbours of its size are 1 apart.
const ROUNDER: f32 = 12_582_912.0;
