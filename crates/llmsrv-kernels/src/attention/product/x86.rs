//! [`super::multiply`] with vectors.
#![expect(
    unsafe_code,
    reason = "vector instructions read and write through pointers"
)]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "the loads used here need no alignment"
)]

use std::{
    arch::x86_64::{_MM_HINT_T1, _mm_prefetch},
    mem::discriminant,
};

use super::{Elements, KV_BLOCK, Panel, Rows, Tier, Tiles};
use crate::kv::Part;

/// A block of rows as the kernels see it. All pointers are good for what the lengths say: `n` rows
/// at `a`, which the panels do not leave, `n` rows of [`KV_BLOCK`] at `out`, and `n` elements at
/// `keep` unless it is null.
#[derive(Clone, Copy)]
struct Block<'a> {
    a: *const u8,
    /// From one row to the next, and from one element to the next, in bytes.
    a_stride: usize,
    a_bytes: usize,
    panels: &'a [Panel<'a>],
    keep: *const f32,
    out: *mut f32,
    out_stride: usize,
    /// Whether to fetch what is ahead.
    fetches: bool,
}

type Kernel = unsafe fn(Block<'_>);

/// As [`super::multiply`], which has checked all lengths and the tier.
pub(super) fn multiply(
    tier: Tier,
    a: Rows<'_>,
    panels: &[Panel<'_>],
    keep: Option<&[f32]>,
    out: &mut [f32],
    out_stride: usize,
) {
    let (left, a_bytes) = match a.values {
        Elements::F32(values) => (values.as_ptr().cast::<u8>(), 4),
        Elements::Bf16(values) => (values.as_ptr().cast::<u8>(), 2),
    };
    // The type of all of them.
    let rows = panels.first().map_or(Tiles::NONE, |panel| panel.rows);
    let is_one = |panel: &Panel<'_>| discriminant(&panel.rows) == discriminant(&rows);
    let is_wide = tier >= Tier::Avx512;
    let kernels: &[Kernel] = match (a.values, rows) {
        _ if !panels.iter().all(is_one) => &[],
        (Elements::Bf16(_), Tiles::Bf16(_)) if tier == Tier::Avx512Bf16 => AVX512_BF16,
        (Elements::F32(_), Tiles::Bf16(_)) if is_wide => AVX512_HALVES,
        (Elements::F32(_), Tiles::Bf16(_)) => AVX2_HALVES,
        (Elements::F32(_), Tiles::F16(_)) if is_wide => AVX512_F16,
        (Elements::F32(_), Tiles::F16(_)) => AVX2_F16,
        (Elements::F32(_), Tiles::F32(_)) if is_wide => AVX512_F32,
        (Elements::F32(_), Tiles::F32(_)) => AVX2_F32,
        (Elements::F32(_), Tiles::Q8(rows)) => match (rows.part(), is_wide) {
            (Part::Keys, true) => AVX512_Q8_KEYS,
            (Part::Values, true) => AVX512_Q8_VALUES,
            (Part::Keys, false) => AVX2_Q8_KEYS,
            (Part::Values, false) => AVX2_Q8_VALUES,
        },
        (Elements::Bf16(_), _) | (_, Tiles::Packed(_)) => &[],
    };
    if kernels.is_empty() {
        return super::plain::<true>(a, panels, keep, out, out_stride);
    }
    // Blocks of nearly the same size: a block of one row would leave the items idle.
    let n_blocks = a.n.div_ceil(kernels.len());
    let mut row = 0;
    for block_idx in 0..n_blocks {
        let end = a.n * (block_idx + 1) / n_blocks;
        // SAFETY: rows up to `a.n` are within the slices, as `super::multiply` asserted.
        let block = unsafe {
            Block {
                a: left.add(row * a.stride * a_bytes),
                a_stride: a.stride * a_bytes,
                a_bytes,
                panels,
                keep: keep.map_or(std::ptr::null(), |keep| keep.as_ptr().add(row)),
                out: out.as_mut_ptr().add(row * out_stride),
                out_stride,
                fetches: row == 0,
            }
        };
        // SAFETY: the processor has the tier's instructions, the block has as many rows as the
        // kernel computes, and all its panels have the kernel's type.
        unsafe { kernels[end - row - 1](block) };
        row = end;
    }
}

/// Returns where the rows of tiles begin, their bytes each, and how many there are; a pair counts as one. The bytes of
/// Q8_0 have the scales among them.
fn raw(tiles: Tiles<'_>) -> (*const u8, usize, usize) {
    match tiles {
        Tiles::F32(tiles) => (tiles.as_ptr().cast(), 4 * KV_BLOCK, tiles.len() / KV_BLOCK),
        Tiles::F16(tiles) => (tiles.as_ptr().cast(), 2 * KV_BLOCK, tiles.len() / KV_BLOCK),
        Tiles::Bf16(tiles) => {
            let n_pairs = tiles.len() / (2 * KV_BLOCK);
            (tiles.as_ptr().cast(), 4 * KV_BLOCK, n_pairs)
        }
        Tiles::Q8(rows) => rows.memory(),
        Tiles::Packed(_) => (std::ptr::null(), 0, 0),
    }
}

/// Fetches row `k` of what is ahead. No address is wrong for that.
#[inline(always)]
fn fetch((ahead, row_bytes, n_rows): (*const u8, usize, usize), k: usize) {
    if k < n_rows {
        for line in 0..row_bytes.div_ceil(LINE) {
            let at = ahead.wrapping_add(k * row_bytes + line * LINE);
            // SAFETY: every x86-64 processor has the instruction, and it reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

macro_rules! kernels {
    ($isa:ident::$kernel:ident; $($n:literal)*) => { &[$($isa::$kernel::<$n>),*] };
    ($isa:ident::$kernel:ident, $flag:literal; $($n:literal)*) => { &[$($isa::$kernel::<$n, $flag>),*] };
}
const AVX512_BF16: &[Kernel] = kernels!(avx512::bf16; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_HALVES: &[Kernel] = kernels!(avx512::halves; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_F16: &[Kernel] = kernels!(avx512::floats, true; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_F32: &[Kernel] = kernels!(avx512::floats, false; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_Q8_KEYS: &[Kernel] = kernels!(avx512::q8, true; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_Q8_VALUES: &[Kernel] = kernels!(avx512::q8, false; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX2_HALVES: &[Kernel] = kernels!(avx2::halves; 1 2 3);
const AVX2_F16: &[Kernel] = kernels!(avx2::floats, true; 1 2 3);
const AVX2_F32: &[Kernel] = kernels!(avx2::floats, false; 1 2 3);
const AVX2_Q8_KEYS: &[Kernel] = kernels!(avx2::q8, true; 1 2 3);
const AVX2_Q8_VALUES: &[Kernel] = kernels!(avx2::q8, false; 1 2 3);

/// The upper number of a pair.
const UPPER: i32 = 0xffff_0000_u32.cast_signed();

/// The kernels of a set of instructions, in a module in which these have the names used here.
macro_rules! kernels_of {
    ($features:literal) => {
        /// f32 in a vector.
        const LANES: usize = size_of::<Floats>() / size_of::<f32>();
        /// Vectors of a row.
        const VECTORS: usize = KV_BLOCK / LANES;

        /// # Safety
        /// The instructions; a block of `N` rows of f32, and panels of bf16.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn halves<const N: usize>(block: Block<'_>) {
            // SAFETY: within the lengths of a block.
            unsafe {
                let mut sums = begin::<N>(block);
                let upper = |pairs| as_floats(and(pairs, splat_word(UPPER)));
                let lower = |pairs| as_floats(shift_left::<16>(pairs));
                for panel in block.panels {
                    let (tile, row_bytes, depth) = raw(panel.rows);
                    let ahead = raw(panel.ahead);
                    let a = block.a.add(panel.first * block.a_bytes);
                    for k in 0..depth {
                        if block.fetches {
                            fetch(ahead, k);
                        }
                        let load = |idx: usize| {
                            load_words(tile.add(k * row_bytes + idx * 4 * LANES).cast())
                        };
                        // Two vectors at a time: AVX2 has not the registers for four.
                        let mut add = |first: usize| {
                            let row = [load(first), load(first + 1)];
                            let (uppers, lowers) = (row.map(upper), row.map(lower));
                            for (idx, sums) in sums.iter_mut().enumerate() {
                                let a = a.add(idx * block.a_stride).cast::<f32>().add(2 * k);
                                let (of_lower, of_upper) = (splat(*a), splat(*a.add(1)));
                                for (sum, values) in sums[first..].iter_mut().zip(uppers) {
                                    *sum = fmadd(of_upper, values, *sum);
                                }
                                for (sum, values) in sums[first..].iter_mut().zip(lowers) {
                                    *sum = fmadd(of_lower, values, *sum);
                                }
                            }
                        };
                        add(0);
                        if VECTORS > 2 {
                            add(2);
                        }
                    }
                }
                end(block, &sums);
            }
        }

        /// # Safety
        /// The instructions; a block of `N` rows, of f16 if `HALF`, else of f32.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn floats<const N: usize, const HALF: bool>(block: Block<'_>) {
            // SAFETY: within the lengths of a block.
            unsafe {
                let mut sums = begin::<N>(block);
                for panel in block.panels {
                    let (tile, _, depth) = raw(panel.rows);
                    let ahead = raw(panel.ahead);
                    let a = block.a.add(panel.first * block.a_bytes);
                    for k in 0..depth {
                        if block.fetches {
                            fetch(ahead, k);
                        }
                        let mut row = [zero(); VECTORS];
                        for (idx, values) in row.iter_mut().enumerate() {
                            let at = k * KV_BLOCK + idx * LANES;
                            *values = if HALF {
                                widen(load_halves(tile.cast::<u16>().add(at).cast()))
                            } else {
                                load(tile.cast::<f32>().add(at))
                            };
                        }
                        add_row(block, &mut sums, a, k, row);
                    }
                }
                end(block, &sums);
            }
        }

        /// # Safety
        /// The instructions; a block of `N` rows, of Q8_0: of keys if `KEYS`, else of values.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn q8<const N: usize, const KEYS: bool>(block: Block<'_>) {
            // SAFETY: within the lengths of a block; rows and scales have 32 elements.
            unsafe {
                let mut sums = begin::<N>(block);
                for panel in block.panels {
                    let Tiles::Q8(rows) = panel.rows else {
                        continue;
                    };
                    let ahead = raw(panel.ahead);
                    let a = block.a.add(panel.first * block.a_bytes);
                    let mut k = 0;
                    for piece in rows.pieces() {
                        let mut scales = [0.0_f32; KV_BLOCK];
                        for first in (0..KV_BLOCK).step_by(LANES) {
                            let halves = load_halves(piece.scales.as_ptr().add(2 * first).cast());
                            store(scales.as_mut_ptr().add(first), widen(halves));
                        }
                        for (codes, of_row) in piece.rows.iter().zip(&scales[piece.first..]) {
                            if block.fetches {
                                fetch(ahead, k);
                            }
                            let mut row = [zero(); VECTORS];
                            for (idx, values) in row.iter_mut().enumerate() {
                                let codes = load_codes(codes.as_ptr().add(LANES * idx).cast());
                                let scale = if KEYS {
                                    load(scales.as_ptr().add(LANES * idx))
                                } else {
                                    splat(*of_row)
                                };
                                *values = mul(to_floats(widen_codes(codes)), scale);
                            }
                            add_row(block, &mut sums, a, k, row);
                            k += 1;
                        }
                    }
                }
                end(block, &sums);
            }
        }

        /// Multiplies element `k` of each row, which begin at `a`, with a row of a panel.
        ///
        /// # Safety
        /// The instructions; a block of `N` rows of f32.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn add_row<const N: usize>(
            block: Block<'_>,
            sums: &mut [[Floats; VECTORS]; N],
            a: *const u8,
            k: usize,
            row: [Floats; VECTORS],
        ) {
            for (idx, sums) in sums.iter_mut().enumerate() {
                // SAFETY: within the lengths of a block.
                let a = unsafe { splat(*a.add(idx * block.a_stride).cast::<f32>().add(k)) };
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum = fmadd(a, value, *sum);
                }
            }
        }

        /// What the sums of a block begin with.
        ///
        /// # Safety
        /// The instructions; a block of `N` rows.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn begin<const N: usize>(block: Block<'_>) -> [[Floats; VECTORS]; N] {
            let mut sums = [[zero(); VECTORS]; N];
            if block.keep.is_null() {
                return sums;
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                for (idx, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: within the lengths of a block.
                    unsafe {
                        let out = block.out.add(row * block.out_stride + idx * LANES);
                        *sum = mul(load(out), splat(*block.keep.add(row)));
                    }
                }
            }
            sums
        }

        /// Stores the sums of a block.
        ///
        /// # Safety
        /// The instructions; a block of `N` rows.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn end<const N: usize>(block: Block<'_>, sums: &[[Floats; VECTORS]; N]) {
            for (row, sums) in sums.iter().enumerate() {
                for (idx, sum) in sums.iter().enumerate() {
                    // SAFETY: within the lengths of a block.
                    unsafe { store(block.out.add(row * block.out_stride + idx * LANES), *sum) };
                }
            }
        }
    };
}

/// With AVX-512 F, BW and VL.
mod avx512 {
    use std::{
        arch::x86_64::{
            __m512 as Floats, __m512bh, __m512i, _mm_loadu_si128 as load_codes,
            _mm256_loadu_si256 as load_halves, _mm512_and_si512 as and,
            _mm512_castsi512_ps as as_floats, _mm512_cvtepi8_epi32 as widen_codes,
            _mm512_cvtepi32_ps as to_floats, _mm512_cvtph_ps as widen, _mm512_dpbf16_ps,
            _mm512_fmadd_ps as fmadd, _mm512_loadu_ps as load, _mm512_loadu_si512 as load_words,
            _mm512_mul_ps as mul, _mm512_set1_epi32 as splat_word, _mm512_set1_ps as splat,
            _mm512_setzero_ps as zero, _mm512_slli_epi32 as shift_left, _mm512_storeu_ps as store,
        },
        mem::transmute,
    };

    use super::{Block, KV_BLOCK, LINE, Tiles, UPPER, fetch, raw};

    kernels_of!("avx512f,avx512bw,avx512vl,avx2,fma,f16c");

    /// # Safety
    /// AVX-512 F and BF16; a block of `N` rows and panels of bf16.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma,f16c")]
    pub(super) unsafe fn bf16<const N: usize>(block: Block<'_>) {
        // SAFETY: within the lengths of a block; all 512 bits are numbers of bf16.
        unsafe {
            let mut sums = begin::<N>(block);
            for panel in block.panels {
                let (tile, row_bytes, depth) = raw(panel.rows);
                let ahead = raw(panel.ahead);
                let a = block.a.add(panel.first * block.a_bytes);
                for k in 0..depth {
                    if block.fetches {
                        fetch(ahead, k);
                    }
                    let load = |idx: usize| -> __m512bh {
                        let at = tile.add(k * row_bytes + idx * LINE).cast::<__m512i>();
                        transmute(load_words(at))
                    };
                    let row = [load(0), load(1)];
                    for (idx, sums) in sums.iter_mut().enumerate() {
                        let a = a.add(idx * block.a_stride).cast::<i32>().add(k);
                        let a: __m512bh = transmute(splat_word(a.read_unaligned()));
                        for (sum, values) in sums.iter_mut().zip(row) {
                            *sum = _mm512_dpbf16_ps(*sum, a, values);
                        }
                    }
                }
            }
            end(block, &sums);
        }
    }
}

/// With AVX2, FMA and F16C.
mod avx2 {
    use std::arch::x86_64::{
        __m256 as Floats, _mm_loadl_epi64 as load_codes, _mm_loadu_si128 as load_halves,
        _mm256_and_si256 as and, _mm256_castsi256_ps as as_floats,
        _mm256_cvtepi8_epi32 as widen_codes, _mm256_cvtepi32_ps as to_floats,
        _mm256_cvtph_ps as widen, _mm256_fmadd_ps as fmadd, _mm256_loadu_ps as load,
        _mm256_loadu_si256 as load_words, _mm256_mul_ps as mul, _mm256_set1_epi32 as splat_word,
        _mm256_set1_ps as splat, _mm256_setzero_ps as zero, _mm256_slli_epi32 as shift_left,
        _mm256_storeu_ps as store,
    };

    use super::{Block, KV_BLOCK, Tiles, UPPER, fetch, raw};

    kernels_of!("avx2,fma,f16c");
}
