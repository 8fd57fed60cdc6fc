//! Activations as signed bytes or, for weights with a floating point, as they are or rounded to BF16.
//!
//! A stretch of 32 or of 256 elements, as long as the blocks of the weights it will meet, has one scale:
//! its largest magnitude becomes 127. Tokens lie in column panels of as many as a kernel computes together,
//! block by block, so that a kernel reads them in the order they lie in. Instructions that multiply two
//! tokens `a` and `b` at once want their bytes interleaved by eight, here for 32 elements:
//!
//! ```text
//! a0..a7  b0..b7  a16..a23  b16..b23  |  a8..a15  b8..b15  a24..a31  b24..b31
//! ```

use super::formats::ActivationFormat;
use crate::{Error, Instructions, Pool, bf16, elementwise::rms_scale, tier::SCALAR_IS_FUSED};

/// Rows of activations for products with packed weights of one [`ActivationFormat`].
///
/// The memory is kept from one use to the next.
#[derive(Debug, Default)]
pub struct Activations {
    n_rows: usize,
    n_cols: usize,
    residual: Residual,
    /// The kind of the content, whether tokens are in pairs, and the number of blocks.
    there: Option<(ActivationFormat, bool, usize)>,
    q8_block32: Vec<Q8Block32>,
    q8_block256: Vec<Q8Block256>,
    f32: Vec<F32Block>,
    bf16: Vec<Bf16Block>,
}

/// What becomes of the residual that rounding leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// It is dropped.
    #[default]
    Dropped,
    /// It is rounded too, and behind each row as a row of its own: together activations of 16 bits. The products of both
    /// are added.
    Kept,
}

impl Residual {
    /// Returns how many tokens of a kernel each row of activations is.
    pub(super) fn n_tokens(self) -> usize {
        match self {
            Residual::Dropped => 1,
            Residual::Kept => 2,
        }
    }
}

/// 32 elements of a token.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct Q8Block32 {
    pub(super) quants: [i8; 32],
    /// What a code counts.
    pub(super) scale: f32,
    /// The scale times the sum of the quants.
    pub(super) scaled_sum: f32,
    /// The negated sum of the quants.
    pub(super) minus_sum: i32,
}

/// 256 elements of a token.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct Q8Block256 {
    pub(super) quants: [i8; 256],
    /// The sums of each 16 quants.
    pub(super) sums_of_16: [i16; 16],
    /// The sums of each 32 quants.
    pub(super) sums: [i16; 8],
    /// What a code counts.
    pub(super) scale: f32,
}

/// 32 elements of a token as they are.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct F32Block {
    pub(super) values: [f32; 32],
}

/// 32 elements of a token in BF16, in their order: a kernel reads two at a time.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Bf16Block {
    pub(super) values: [u16; 32],
}

impl Activations {
    /// Replaces the content by the rows of `x`, which is `[rows, n_cols]`.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the rows are not whole, or not of whole blocks where there are scales (of
    /// 32 or 256 elements). The content stays as it was then.
    pub fn quantize(
        &mut self,
        x: &[f32],
        n_cols: usize,
        kind: ActivationFormat,
        residual: Residual,
        pool: &Pool,
    ) -> Result<(), Error> {
        self.quantize_at(Instructions::best(), x, n_cols, (kind, residual), pool)
    }

    /// As [`Activations::quantize`], of rows divided by their root mean square and multiplied with
    /// `weight`, as [`crate::rms_norm`] does it; they are never written anywhere else.
    ///
    /// # Errors
    ///
    /// As there; a row is as long as `weight`.
    pub fn quantize_normed(
        &mut self,
        x: &[f32],
        weight: &[f32],
        eps: f32,
        kind: ActivationFormat,
        residual: Residual,
        pool: &Pool,
    ) -> Result<(), Error> {
        let rows = Rows {
            x,
            norm: Some(Norm { weight, eps }),
            n_cols: weight.len(),
            residual,
        };
        self.replace(Instructions::best(), rows, kind, pool)
    }

    /// As [`Activations::quantize`], for products with chosen instructions.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Unavailable`] if the processor lacks the instructions.
    pub fn quantize_at(
        &mut self,
        tier: Instructions,
        x: &[f32],
        n_cols: usize,
        (kind, residual): (ActivationFormat, Residual),
        pool: &Pool,
    ) -> Result<(), Error> {
        if !tier.are_available() {
            return Err(Error::Unavailable(tier));
        }
        let rows = Rows {
            x,
            norm: None,
            n_cols,
            residual,
        };
        self.replace(tier, rows, kind, pool)
    }

    fn replace(
        &mut self,
        tier: Instructions,
        rows: Rows<'_>,
        kind: ActivationFormat,
        pool: &Pool,
    ) -> Result<(), Error> {
        let Rows { x, n_cols, .. } = rows;
        if n_cols == 0 || !x.len().is_multiple_of(n_cols) {
            return Err(Error::Length {
                what: "activations",
                got: x.len(),
                expected: x.len() / n_cols.max(1) * n_cols,
            });
        }
        if matches!(
            kind,
            ActivationFormat::Q8Block32 | ActivationFormat::Q8Block256
        ) && !n_cols.is_multiple_of(kind.block_len())
        {
            return Err(Error::Length {
                what: "elements of whole blocks",
                got: n_cols,
                expected: n_cols.next_multiple_of(kind.block_len()),
            });
        }
        (self.n_rows, self.n_cols, self.residual) = (x.len() / n_cols, n_cols, rows.residual);
        let n_tokens: usize = column_panels(self.n_tokens())
            .map(|column_panel| column_panel.width)
            .sum();
        let n = n_tokens * n_cols.div_ceil(kind.block_len());
        self.there = Some((kind, tier.wants_pairs(), n));
        match kind {
            ActivationFormat::Q8Block32 => fill(
                room(&mut self.q8_block32, n, Q8Block32::ZERO),
                rows,
                tier,
                pool,
            ),
            ActivationFormat::Q8Block256 => fill(
                room(&mut self.q8_block256, n, Q8Block256::ZERO),
                rows,
                tier,
                pool,
            ),
            ActivationFormat::F32 => fill(room(&mut self.f32, n, F32Block::ZERO), rows, tier, pool),
            ActivationFormat::Bf16 => {
                fill(room(&mut self.bf16, n, Bf16Block::ZERO), rows, tier, pool);
            }
        }
        Ok(())
    }

    /// Returns where the blocks of a kind begin, the bytes of one, and how many there are for products
    /// with chosen instructions.
    pub(super) fn blocks(
        &self,
        kind: ActivationFormat,
        tier: Instructions,
    ) -> (*const u8, usize, usize) {
        fn of<T>(blocks: &[T]) -> (*const u8, usize, usize) {
            (blocks.as_ptr().cast(), size_of::<T>(), blocks.len())
        }
        let n = match self.there {
            Some((there, pairs, n)) if there == kind && pairs == tier.wants_pairs() => n,
            _ => 0,
        };
        match kind {
            ActivationFormat::Q8Block32 => of(&self.q8_block32[..n]),
            ActivationFormat::Q8Block256 => of(&self.q8_block256[..n]),
            ActivationFormat::F32 => of(&self.f32[..n]),
            ActivationFormat::Bf16 => of(&self.bf16[..n]),
        }
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Returns how many tokens kernels compute for them.
    pub(super) fn n_tokens(&self) -> usize {
        self.n_rows * self.residual.n_tokens()
    }

    /// Returns what became of the residual.
    pub(super) fn residual(&self) -> Residual {
        self.residual
    }

    /// Returns the number of elements of a row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }
}

/// Tokens that are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnPanel {
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

/// Cuts `n` tokens into column panels.
pub(super) fn column_panels(n: usize) -> impl Iterator<Item = ColumnPanel> {
    (0..n).step_by(WIDEST).map(move |first| {
        let n_tokens = (n - first).min(WIDEST);
        let width = WIDTHS.into_iter().find(|width| *width >= n_tokens);
        ColumnPanel {
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

/// What blocks are made of.
#[derive(Clone, Copy)]
struct Rows<'a> {
    x: &'a [f32],
    norm: Option<Norm<'a>>,
    n_cols: usize,
    residual: Residual,
}

/// A norm of whole rows, by their root mean square.
#[derive(Clone, Copy)]
struct Norm<'a> {
    weight: &'a [f32],
    eps: f32,
}

/// Some blocks of the tokens of a column panel.
#[derive(Clone, Copy)]
struct Part {
    first_token: usize,
    first_block: usize,
    width: usize,
}

/// Fills blocks column panel by column panel; those of tokens that do not exist hold anything.
fn fill<const LEN: usize, B: Block<LEN>>(
    blocks: &mut [B],
    rows: Rows<'_>,
    tier: Instructions,
    pool: &Pool,
) {
    let n_tokens = rows.x.len() / rows.n_cols * rows.residual.n_tokens();
    let n_blocks = rows.n_cols.div_ceil(LEN);
    let parallel = rows.x.len() >= PARALLEL_WORK;
    // A task is a column panel or, where there is only one, a part of it: some blocks of all its tokens.
    let (n_parts, width) = if parallel && n_tokens <= WIDEST {
        (PARTS * pool.n_threads(), blocks.len() / n_blocks)
    } else {
        (1, WIDEST.min(blocks.len() / n_blocks))
    };
    let per_part = n_blocks.div_ceil(n_parts);
    pool.for_each_chunk_mut(blocks, per_part * width, parallel, |idx, blocks| {
        let (column_panel, first_block) = if n_parts > 1 {
            (0, idx * per_part)
        } else {
            (idx, 0)
        };
        let part = Part {
            first_token: column_panel * WIDEST,
            first_block,
            // Column panels before the last one are all of the widest kind.
            width: blocks.len() / per_part.min(n_blocks - first_block),
        };
        fill_part(tier, rows, part, blocks);
        if tier.wants_pairs() {
            for tokens in blocks.chunks_exact_mut(part.width) {
                for [a, b] in tokens.as_chunks_mut().0 {
                    a.pair(b);
                }
            }
        }
    });
}

/// Parts of a column panel for each thread.
const PARTS: usize = 4;
/// Elements from which on a second thread pays.
const PARALLEL_WORK: usize = 1 << 15;

/// A stretch of a token as a kernel reads it, made of `LEN` elements.
trait Block<const LEN: usize>: Clone + Send {
    const ZERO: Self;
    /// Replaces the content.
    ///
    /// # Safety
    /// The processor has the instructions of `Q`.
    unsafe fn put<Q: Quantizer>(&mut self, x: &[f32; LEN]);
    /// Returns what is left of `x` when that is taken away which [`Block::put`] kept of it.
    fn residual(&self, x: &[f32; LEN]) -> [f32; LEN];
    /// Lays the quants of two tokens side by side; numbers with a floating point stay where they are.
    fn pair(&mut self, other: &mut Self) {
        let _ = other;
    }
}

/// [`fill_f32`], compiled for a tier.
fn fill_part<const LEN: usize, B: Block<LEN>>(
    tier: Instructions,
    rows: Rows<'_>,
    part: Part,
    blocks: &mut [B],
) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
        fn avx512<const LEN: usize, B: Block<LEN>>(rows: Rows<'_>, part: Part, blocks: &mut [B]) {
            // SAFETY: it has those of this function.
            unsafe { fill_f32::<Avx2, true, LEN, B>(rows, part, blocks) }
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2<const LEN: usize, B: Block<LEN>>(rows: Rows<'_>, part: Part, blocks: &mut [B]) {
            // SAFETY: it has those of this function.
            unsafe { fill_f32::<Avx2, true, LEN, B>(rows, part, blocks) }
        }
        match tier {
            Instructions::Avx512 | Instructions::Avx512Bf16 => {
                // SAFETY: a tier is only chosen where the processor has its instructions.
                return unsafe { avx512(rows, part, blocks) };
            }
            Instructions::Avx2 | Instructions::AvxVnni => {
                // SAFETY: as above.
                return unsafe { avx2(rows, part, blocks) };
            }
            _ => {}
        }
    }
    let _ = tier;
    // SAFETY: every processor has its instructions.
    unsafe { fill_f32::<Scalar, SCALAR_IS_FUSED, LEN, B>(rows, part, blocks) }
}

/// # Safety
/// The processor has the instructions of `Q`.
#[inline(always)]
unsafe fn fill_f32<Q: Quantizer, const FUSED: bool, const LEN: usize, B: Block<LEN>>(
    rows: Rows<'_>,
    part: Part,
    blocks: &mut [B],
) {
    let of_row = rows.residual.n_tokens();
    let first_row = part.first_token / of_row;
    let all = rows.x.chunks_exact(rows.n_cols);
    let x = all.skip(first_row).take(part.width / of_row);
    let mut scales = [0.0; WIDEST];
    if let Some(norm) = rows.norm {
        for (scale, x) in scales.iter_mut().zip(x.clone()) {
            *scale = rms_scale::<FUSED>(x, norm.eps);
        }
    }
    let (mut last, mut last_weights) = ([0.0; LEN], [0.0; LEN]);
    let starts = (part.first_block * LEN..rows.n_cols).step_by(LEN);
    // Block by block, so that memory is written in the order it lies in.
    for (start, tokens) in starts.zip(blocks.chunks_exact_mut(part.width)) {
        let norm = rows.norm;
        let weight = norm.map(|norm| stretch(norm.weight, start, &mut last_weights));
        let tokens = tokens.chunks_exact_mut(of_row);
        for ((x, scale), tokens) in x.clone().zip(&scales).zip(tokens) {
            let mut x = stretch(x, start, &mut last);
            let of_norm;
            if let Some(weight) = weight {
                of_norm = normed(x, *scale, weight);
                x = &of_norm;
            }
            match tokens {
                // SAFETY: as of this function.
                [block] => unsafe { block.put::<Q>(x) },
                // SAFETY: as of this function.
                [block, residual] => unsafe {
                    block.put::<Q>(x);
                    residual.put::<Q>(&block.residual(x));
                },
                _ => {}
            }
        }
    }
}

/// Returns the elements from `start` on. Where too few are left they become the first of `last`, whose others are zeros.
#[inline(always)]
fn stretch<'a, const LEN: usize>(
    x: &'a [f32],
    start: usize,
    last: &'a mut [f32; LEN],
) -> &'a [f32; LEN] {
    let rest = x.get(start..).unwrap_or_default();
    if let Some(whole) = rest.first_chunk() {
        return whole;
    }
    for (last, x) in last.iter_mut().zip(rest) {
        *last = *x;
    }
    last
}

#[inline(always)]
fn normed<const LEN: usize>(x: &[f32; LEN], scale: f32, weight: &[f32; LEN]) -> [f32; LEN] {
    let mut normed = [0.0; LEN];
    for ((normed, x), weight) in normed.iter_mut().zip(x).zip(weight) {
        *normed = x * scale * weight;
    }
    normed
}

impl Block<32> for Q8Block32 {
    const ZERO: Q8Block32 = Q8Block32 {
        quants: [0; 32],
        scale: 0.0,
        scaled_sum: 0.0,
        minus_sum: 0,
    };

    #[inline(always)]
    unsafe fn put<Q: Quantizer>(&mut self, x: &[f32; 32]) {
        let mut sums = [0; 2];
        // SAFETY: as of this function.
        self.scale = unsafe { Q::quantize(x, &mut self.quants, &mut sums) };
        let sum = i32::from(sums[0]) + i32::from(sums[1]);
        self.minus_sum = -sum;
        self.scaled_sum = self.scale * sum as f32;
    }

    #[inline(always)]
    fn residual(&self, x: &[f32; 32]) -> [f32; 32] {
        residual(x, &self.quants, self.scale)
    }

    fn pair(&mut self, other: &mut Q8Block32) {
        side_by_side(&mut self.quants, &mut other.quants);
    }
}

impl Block<256> for Q8Block256 {
    const ZERO: Q8Block256 = Q8Block256 {
        quants: [0; 256],
        sums_of_16: [0; 16],
        sums: [0; 8],
        scale: 0.0,
    };

    #[inline(always)]
    unsafe fn put<Q: Quantizer>(&mut self, x: &[f32; 256]) {
        // SAFETY: as of this function.
        self.scale = unsafe { Q::quantize(x, &mut self.quants, &mut self.sums_of_16) };
        let halves = self.sums_of_16.as_chunks::<2>().0;
        for (sum, halves) in self.sums.iter_mut().zip(halves) {
            *sum = halves[0] + halves[1];
        }
    }

    #[inline(always)]
    fn residual(&self, x: &[f32; 256]) -> [f32; 256] {
        residual(x, &self.quants, self.scale)
    }

    fn pair(&mut self, other: &mut Q8Block256) {
        side_by_side(&mut self.quants, &mut other.quants);
    }
}

impl Block<32> for F32Block {
    const ZERO: F32Block = F32Block { values: [0.0; 32] };

    #[inline(always)]
    unsafe fn put<Q: Quantizer>(&mut self, x: &[f32; 32]) {
        self.values = *x;
    }

    #[inline(always)]
    fn residual(&self, _x: &[f32; 32]) -> [f32; 32] {
        [0.0; 32]
    }
}

impl Block<32> for Bf16Block {
    const ZERO: Bf16Block = Bf16Block { values: [0; 32] };

    #[inline(always)]
    unsafe fn put<Q: Quantizer>(&mut self, x: &[f32; 32]) {
        for (value, x) in self.values.iter_mut().zip(x) {
            *value = bf16::round(*x);
        }
    }

    #[inline(always)]
    fn residual(&self, x: &[f32; 32]) -> [f32; 32] {
        x.map(|x| x - bf16::expand(bf16::round(x)))
    }
}

/// Makes of each 16 bytes of one token and 16 of another eight of the one and eight of the other.
fn side_by_side(a: &mut [i8], b: &mut [i8]) {
    for (a, b) in a.chunks_exact_mut(16).zip(b.chunks_exact_mut(16)) {
        a[8..].swap_with_slice(&mut b[..8]);
    }
}

#[inline(always)]
fn residual<const LEN: usize>(x: &[f32; LEN], quants: &[i8; LEN], scale: f32) -> [f32; LEN] {
    let mut rest = *x;
    for (rest, code) in rest.iter_mut().zip(quants) {
        *rest -= f32::from(*code) * scale;
    }
    rest
}

/// Instructions that make quants of elements.
trait Quantizer {
    /// Replaces `quants`, and `sums` by the sums of each 16 of them. Returns what one counts: not a number if an
    /// element is not finite.
    ///
    /// # Safety
    /// The processor has these instructions.
    unsafe fn quantize<const LEN: usize, const SUMS: usize>(
        x: &[f32; LEN],
        quants: &mut [i8; LEN],
        sums: &mut [i16; SUMS],
    ) -> f32;
}

/// What every processor has: the definition.
struct Scalar;

impl Quantizer for Scalar {
    #[inline(always)]
    unsafe fn quantize<const LEN: usize, const SUMS: usize>(
        x: &[f32; LEN],
        quants: &mut [i8; LEN],
        sums: &mut [i16; SUMS],
    ) -> f32 {
        // As integers, magnitudes are in the same order, and what is not a number is the largest.
        let largest = x
            .iter()
            .fold(0, |largest: u32, x| largest.max(x.to_bits() & !SIGN));
        let Some((inverse, scale)) = scale_of(f32::from_bits(largest)) else {
            (*quants, *sums) = ([0; LEN], [0; SUMS]);
            return 0.0;
        };
        for (code, x) in quants.iter_mut().zip(x) {
            // The sum's last bits are the nearest integer.
            *code = (x * inverse + ROUNDER).to_bits() as i8;
        }
        for (sum, quants) in sums.iter_mut().zip(quants.as_chunks::<16>().0) {
            *sum = quants.iter().map(|code| i16::from(*code)).sum();
        }
        scale
    }
}

/// 32 elements at a time. Of [`Scalar`] compilers make code that takes bytes out of vectors one after the other.
#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Quantizer for Avx2 {
    #[inline(always)]
    unsafe fn quantize<const LEN: usize, const SUMS: usize>(
        x: &[f32; LEN],
        quants: &mut [i8; LEN],
        sums: &mut [i16; SUMS],
    ) -> f32 {
        use std::arch::x86_64::{
            _mm_cvtsi128_si32, _mm_max_epu32, _mm_shuffle_epi32, _mm256_add_epi64, _mm256_add_ps,
            _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_si128, _mm256_cvtsi256_si32,
            _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_max_epu32,
            _mm256_mul_ps, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32,
            _mm256_sad_epu8, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps,
            _mm256_setr_epi32, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srai_epi32,
            _mm256_storeu_si256, _mm256_unpackhi_epi64, _mm256_xor_si256,
        };

        // SAFETY: the processor has the instructions, and each read and write is of a whole array.
        unsafe {
            let mut largest = _mm256_setzero_si256();
            for x in x.as_chunks::<8>().0 {
                let x = _mm256_loadu_si256(x.as_ptr().cast());
                let magnitudes = _mm256_and_si256(x, _mm256_set1_epi32(!SIGN.cast_signed()));
                largest = _mm256_max_epu32(largest, magnitudes);
            }
            let upper = _mm256_extracti128_si256::<1>(largest);
            let largest = _mm_max_epu32(_mm256_castsi256_si128(largest), upper);
            let largest = _mm_max_epu32(largest, _mm_shuffle_epi32::<0b_11_10>(largest));
            let largest = _mm_max_epu32(largest, _mm_shuffle_epi32::<0b_01>(largest));
            let largest = f32::from_bits(_mm_cvtsi128_si32(largest).cast_unsigned());
            let Some((inverse, scale)) = scale_of(largest) else {
                (*quants, *sums) = ([0; LEN], [0; SUMS]);
                return 0.0;
            };
            let (inverse, rounder) = (_mm256_set1_ps(inverse), _mm256_set1_ps(ROUNDER));
            let codes = |x: &[f32; 8]| {
                let x = _mm256_mul_ps(_mm256_loadu_ps(x.as_ptr()), inverse);
                let last_bits = _mm256_castps_si256(_mm256_add_ps(x, rounder));
                _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(last_bits))
            };
            let stretches = x.as_chunks::<32>().0.iter();
            let stretches = stretches.zip(quants.as_chunks_mut::<32>().0);
            for ((x, quants), sums) in stretches.zip(sums.as_chunks_mut::<2>().0) {
                let [a, b, c, d] = x.as_chunks::<8>().0 else {
                    continue;
                };
                let (ab, cd) = (
                    _mm256_packs_epi32(codes(a), codes(b)),
                    _mm256_packs_epi32(codes(c), codes(d)),
                );
                // Packing takes the halves of vectors in turn.
                let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                let codes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(ab, cd), in_order);
                _mm256_storeu_si256(quants.as_mut_ptr().cast(), codes);
                // Bytes without sign are added eight at a time: each is 128 more than the code.
                let bytes = _mm256_xor_si256(codes, _mm256_set1_epi8(i8::MIN));
                let eights = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
                let of_16 = _mm256_add_epi64(eights, _mm256_unpackhi_epi64(eights, eights));
                let upper = _mm256_extracti128_si256::<1>(of_16);
                sums[0] = (_mm256_cvtsi256_si32(of_16) - 16 * 128) as i16;
                sums[1] = (_mm_cvtsi128_si32(upper) - 16 * 128) as i16;
            }
            scale
        }
    }
}

/// Returns what elements are multiplied with to become quants, and what one of these counts, or `None` where all of them
/// are zero.
#[inline(always)]
fn scale_of(largest: f32) -> Option<(f32, f32)> {
    if largest < SMALLEST {
        return None;
    }
    let scale = if largest.is_finite() {
        largest / 127.0
    } else {
        f32::NAN
    };
    Some((127.0 / largest, scale))
}

const SIGN: u32 = 1 << 31;
/// Below this the scale's inverse would not be finite; no activation that matters is.
const SMALLEST: f32 = 1e-30;
/// 1.5 * 2^23: neighbours of its size are 1 apart.
const ROUNDER: f32 = 12_582_912.0;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::{Avx2, Quantizer, Scalar};
    use crate::Instructions;

    fn same<const LEN: usize, const SUMS: usize>(x: [f32; LEN]) {
        let (mut quants, mut sums) = ([[1; LEN]; 2], [[1; SUMS]; 2]);
        // SAFETY: the caller asked for the instructions.
        let (wanted, got) = unsafe {
            (
                Scalar::quantize(&x, &mut quants[0], &mut sums[0]),
                Avx2::quantize(&x, &mut quants[1], &mut sums[1]),
            )
        };
        assert_eq!(wanted.to_bits(), got.to_bits());
        assert_eq!(quants[0], quants[1]);
        assert_eq!(sums[0], sums[1]);
    }

    proptest! {
        #[test]
        fn quants_are_the_same_with_vectors(
            usual in proptest::array::uniform32(-1e3_f32..1e3),
            any in proptest::collection::vec(any::<u32>().prop_map(f32::from_bits), 256),
            n_zeros in 0_usize..=256,
        ) {
            if Instructions::Avx2.are_available() {
                same::<32, 2>(usual);
                let mut any: [f32; 256] = any.try_into().unwrap();
                any[..n_zeros].fill(0.0);
                same::<256, 16>(any);
            }
        }
    }
}
