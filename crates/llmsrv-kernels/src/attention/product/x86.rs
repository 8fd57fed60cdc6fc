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
    arch::x86_64::{
        __m128i, __m256, __m256i, __m512, __m512bh, __m512i, _MM_HINT_T1, _mm_loadl_epi64,
        _mm_loadu_si128, _mm_prefetch, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cvtepi8_epi32,
        _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
        _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32,
        _mm256_storeu_ps, _mm512_and_si512, _mm512_castsi512_ps, _mm512_cvtepi8_epi32,
        _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
        _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_slli_epi32, _mm512_storeu_ps,
    },
    mem::{discriminant, transmute},
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
    ($kernel:ident; $($n:literal)*) => { &[$($kernel::<$n>),*] };
    ($kernel:ident, $half:literal; $($n:literal)*) => { &[$($kernel::<$n, $half>),*] };
}
const AVX512_BF16: &[Kernel] = kernels!(avx512_bf16; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_HALVES: &[Kernel] = kernels!(avx512_halves; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_F16: &[Kernel] = kernels!(avx512, true; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_F32: &[Kernel] = kernels!(avx512, false; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX2_HALVES: &[Kernel] = kernels!(avx2_halves; 1 2 3);
const AVX2_F16: &[Kernel] = kernels!(avx2, true; 1 2 3);
const AVX2_F32: &[Kernel] = kernels!(avx2, false; 1 2 3);

const AVX512_Q8_KEYS: &[Kernel] = kernels!(avx512_q8, true; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX512_Q8_VALUES: &[Kernel] = kernels!(avx512_q8, false; 1 2 3 4 5 6 7 8 9 10 11 12);
const AVX2_Q8_KEYS: &[Kernel] = kernels!(avx2_q8, true; 1 2 3);
const AVX2_Q8_VALUES: &[Kernel] = kernels!(avx2_q8, false; 1 2 3);

/// The upper number of a pair.
const UPPER: i32 = 0xffff_0000_u32.cast_signed();

/// # Safety
/// AVX-512 F and BF16; a block of `N` rows and panels of bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn avx512_bf16<const N: usize>(block: Block<'_>) {
    // SAFETY: within the lengths of a block; all 512 bits are numbers of bf16.
    unsafe {
        let mut sums = avx512_begin::<N>(block);
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
                    transmute(_mm512_loadu_si512(at))
                };
                let row = [load(0), load(1)];
                for (idx, sums) in sums.iter_mut().enumerate() {
                    let a = a.add(idx * block.a_stride).cast::<i32>().add(k);
                    let a: __m512bh = transmute(_mm512_set1_epi32(a.read_unaligned()));
                    for (sum, values) in sums.iter_mut().zip(row) {
                        *sum = _mm512_dpbf16_ps(*sum, a, values);
                    }
                }
            }
        }
        avx512_end(block, &sums);
    }
}

/// # Safety
/// AVX-512 F; a block of `N` rows of f32, and panels of bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
unsafe fn avx512_halves<const N: usize>(block: Block<'_>) {
    // SAFETY: within the lengths of a block.
    unsafe {
        let mut sums = avx512_begin::<N>(block);
        let upper = |pairs| _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(UPPER)));
        let lower = |pairs| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs));
        for panel in block.panels {
            let (tile, row_bytes, depth) = raw(panel.rows);
            let ahead = raw(panel.ahead);
            let a = block.a.add(panel.first * block.a_bytes);
            for k in 0..depth {
                if block.fetches {
                    fetch(ahead, k);
                }
                let load = |idx: usize| -> __m512i {
                    _mm512_loadu_si512(tile.add(k * row_bytes + idx * LINE).cast())
                };
                let row = [load(0), load(1)];
                let (uppers, lowers) = (row.map(upper), row.map(lower));
                for (idx, sums) in sums.iter_mut().enumerate() {
                    let a = a.add(idx * block.a_stride).cast::<f32>().add(2 * k);
                    let (of_lower, of_upper) = (_mm512_set1_ps(*a), _mm512_set1_ps(*a.add(1)));
                    for (sum, values) in sums.iter_mut().zip(uppers) {
                        *sum = _mm512_fmadd_ps(of_upper, values, *sum);
                    }
                    for (sum, values) in sums.iter_mut().zip(lowers) {
                        *sum = _mm512_fmadd_ps(of_lower, values, *sum);
                    }
                }
            }
        }
        avx512_end(block, &sums);
    }
}

/// # Safety
/// AVX-512 F; a block of `N` rows, of f16 if `HALF`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
unsafe fn avx512<const N: usize, const HALF: bool>(block: Block<'_>) {
    // SAFETY: within the lengths of a block.
    unsafe {
        let mut sums = avx512_begin::<N>(block);
        for panel in block.panels {
            let (tile, _, depth) = raw(panel.rows);
            let ahead = raw(panel.ahead);
            let a = block.a.add(panel.first * block.a_bytes);
            for k in 0..depth {
                if block.fetches {
                    fetch(ahead, k);
                }
                let load = |idx: usize| -> __m512 {
                    let at = k * KV_BLOCK + idx * 16;
                    if HALF {
                        let halves = tile.cast::<u16>().add(at).cast::<__m256i>();
                        _mm512_cvtph_ps(_mm256_loadu_si256(halves))
                    } else {
                        _mm512_loadu_ps(tile.cast::<f32>().add(at))
                    }
                };
                let row = [load(0), load(1)];
                for (idx, sums) in sums.iter_mut().enumerate() {
                    let a = a.add(idx * block.a_stride).cast::<f32>().add(k);
                    let a = _mm512_set1_ps(*a);
                    for (sum, value) in sums.iter_mut().zip(row) {
                        *sum = _mm512_fmadd_ps(a, value, *sum);
                    }
                }
            }
        }
        avx512_end(block, &sums);
    }
}

/// # Safety
/// AVX-512 F; a block of `N` rows, of Q8_0: of keys if `KEYS`, else of values.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
unsafe fn avx512_q8<const N: usize, const KEYS: bool>(block: Block<'_>) {
    // SAFETY: within the lengths of a block; rows and scales have 32 elements.
    unsafe {
        let mut sums = avx512_begin::<N>(block);
        for panel in block.panels {
            let Tiles::Q8(rows) = panel.rows else {
                continue;
            };
            let ahead = raw(panel.ahead);
            let a = block.a.add(panel.first * block.a_bytes);
            let mut k = 0;
            for piece in rows.pieces() {
                let scales = piece.scales.as_ptr().cast::<__m256i>();
                let of_columns =
                    [0, 1].map(|idx| _mm512_cvtph_ps(_mm256_loadu_si256(scales.add(idx))));
                let mut of_rows = [0.0_f32; KV_BLOCK];
                for (idx, scales) in of_columns.into_iter().enumerate() {
                    _mm512_storeu_ps(of_rows.as_mut_ptr().add(16 * idx), scales);
                }
                for (codes, of_row) in piece.rows.iter().zip(&of_rows[piece.first..]) {
                    if block.fetches {
                        fetch(ahead, k);
                    }
                    let load = |idx: usize| -> __m512 {
                        let codes = _mm_loadu_si128(codes.as_ptr().add(16 * idx).cast());
                        let scale = if KEYS {
                            of_columns[idx]
                        } else {
                            _mm512_set1_ps(*of_row)
                        };
                        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), scale)
                    };
                    let row = [load(0), load(1)];
                    for (idx, sums) in sums.iter_mut().enumerate() {
                        let a = a.add(idx * block.a_stride).cast::<f32>().add(k);
                        let a = _mm512_set1_ps(*a);
                        for (sum, value) in sums.iter_mut().zip(row) {
                            *sum = _mm512_fmadd_ps(a, value, *sum);
                        }
                    }
                    k += 1;
                }
            }
        }
        avx512_end(block, &sums);
    }
}

/// What the sums of a block begin with.
///
/// # Safety
/// AVX-512 F; a block of `N` rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_begin<const N: usize>(block: Block<'_>) -> [[__m512; KV_BLOCK / 16]; N] {
    let mut sums = [[_mm512_setzero_ps(); KV_BLOCK / 16]; N];
    if block.keep.is_null() {
        return sums;
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        for (idx, sum) in sums.iter_mut().enumerate() {
            // SAFETY: within the lengths of a block.
            unsafe {
                let out = block.out.add(row * block.out_stride + idx * 16);
                let keep = _mm512_set1_ps(*block.keep.add(row));
                *sum = _mm512_mul_ps(_mm512_loadu_ps(out), keep);
            }
        }
    }
    sums
}

/// Stores the sums of a block.
///
/// # Safety
/// AVX-512 F; a block of `N` rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn avx512_end<const N: usize>(block: Block<'_>, sums: &[[__m512; KV_BLOCK / 16]; N]) {
    for (row, sums) in sums.iter().enumerate() {
        for (idx, sum) in sums.iter().enumerate() {
            // SAFETY: within the lengths of a block.
            unsafe {
                let out = block.out.add(row * block.out_stride + idx * 16);
                _mm512_storeu_ps(out, *sum);
            }
        }
    }
}

/// # Safety
/// AVX2 and FMA; a block of `N` rows of f32, and panels of bf16.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2_halves<const N: usize>(block: Block<'_>) {
    // SAFETY: within the lengths of a block.
    unsafe {
        let mut sums = avx2_begin::<N>(block);
        let upper = |pairs| _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(UPPER)));
        let lower = |pairs| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs));
        for panel in block.panels {
            let (tile, row_bytes, depth) = raw(panel.rows);
            let ahead = raw(panel.ahead);
            let a = block.a.add(panel.first * block.a_bytes);
            for k in 0..depth {
                if block.fetches {
                    fetch(ahead, k);
                }
                let load = |idx: usize| -> __m256i {
                    _mm256_loadu_si256(tile.add(k * row_bytes + idx * LINE / 2).cast())
                };
                // Two of four vectors at a time: there are not registers for more.
                let mut add = |first: usize| {
                    let row = [load(first), load(first + 1)];
                    let (uppers, lowers) = (row.map(upper), row.map(lower));
                    for (idx, sums) in sums.iter_mut().enumerate() {
                        let a = a.add(idx * block.a_stride).cast::<f32>().add(2 * k);
                        let (of_lower, of_upper) = (_mm256_set1_ps(*a), _mm256_set1_ps(*a.add(1)));
                        let sum = _mm256_fmadd_ps(of_upper, uppers[0], sums[first]);
                        sums[first] = _mm256_fmadd_ps(of_lower, lowers[0], sum);
                        let sum = _mm256_fmadd_ps(of_upper, uppers[1], sums[first + 1]);
                        sums[first + 1] = _mm256_fmadd_ps(of_lower, lowers[1], sum);
                    }
                };
                add(0);
                add(2);
            }
        }
        avx2_end(block, &sums);
    }
}

/// # Safety
/// AVX2, FMA and F16C; a block of `N` rows, of f16 if `HALF`.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<const N: usize, const HALF: bool>(block: Block<'_>) {
    // SAFETY: within the lengths of a block.
    unsafe {
        let mut sums = avx2_begin::<N>(block);
        for panel in block.panels {
            let (tile, _, depth) = raw(panel.rows);
            let ahead = raw(panel.ahead);
            let a = block.a.add(panel.first * block.a_bytes);
            for k in 0..depth {
                if block.fetches {
                    fetch(ahead, k);
                }
                let load = |idx: usize| -> __m256 {
                    let at = k * KV_BLOCK + idx * 8;
                    if HALF {
                        let halves = tile.cast::<u16>().add(at).cast::<__m128i>();
                        _mm256_cvtph_ps(_mm_loadu_si128(halves))
                    } else {
                        _mm256_loadu_ps(tile.cast::<f32>().add(at))
                    }
                };
                let row = [load(0), load(1), load(2), load(3)];
                for (idx, sums) in sums.iter_mut().enumerate() {
                    let a = a.add(idx * block.a_stride).cast::<f32>().add(k);
                    let a = _mm256_set1_ps(*a);
                    for (sum, value) in sums.iter_mut().zip(row) {
                        *sum = _mm256_fmadd_ps(a, value, *sum);
                    }
                }
            }
        }
        avx2_end(block, &sums);
    }
}

/// # Safety
/// AVX2, FMA and F16C; a block of `N` rows, of Q8_0: of keys if `KEYS`, else of values.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2_q8<const N: usize, const KEYS: bool>(block: Block<'_>) {
    // SAFETY: within the lengths of a block; rows and scales have 32 elements.
    unsafe {
        let mut sums = avx2_begin::<N>(block);
        for panel in block.panels {
            let Tiles::Q8(rows) = panel.rows else {
                continue;
            };
            let ahead = raw(panel.ahead);
            let a = block.a.add(panel.first * block.a_bytes);
            let mut k = 0;
            for piece in rows.pieces() {
                let mut scales = [0.0_f32; KV_BLOCK];
                for idx in 0..KV_BLOCK / 8 {
                    let halves = _mm_loadu_si128(piece.scales.as_ptr().add(16 * idx).cast());
                    _mm256_storeu_ps(scales.as_mut_ptr().add(8 * idx), _mm256_cvtph_ps(halves));
                }
                for (codes, of_row) in piece.rows.iter().zip(&scales[piece.first..]) {
                    if block.fetches {
                        fetch(ahead, k);
                    }
                    let load = |idx: usize| -> __m256 {
                        let codes = _mm_loadl_epi64(codes.as_ptr().add(8 * idx).cast());
                        let scale = if KEYS {
                            _mm256_loadu_ps(scales.as_ptr().add(8 * idx))
                        } else {
                            _mm256_set1_ps(*of_row)
                        };
                        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), scale)
                    };
                    let row = [load(0), load(1), load(2), load(3)];
                    for (idx, sums) in sums.iter_mut().enumerate() {
                        let a = a.add(idx * block.a_stride).cast::<f32>().add(k);
                        let a = _mm256_set1_ps(*a);
                        for (sum, value) in sums.iter_mut().zip(row) {
                            *sum = _mm256_fmadd_ps(a, value, *sum);
                        }
                    }
                    k += 1;
                }
            }
        }
        avx2_end(block, &sums);
    }
}

/// As [`avx512_begin`].
///
/// # Safety
/// AVX2; a block of `N` rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn avx2_begin<const N: usize>(block: Block<'_>) -> [[__m256; KV_BLOCK / 8]; N] {
    let mut sums = [[_mm256_setzero_ps(); KV_BLOCK / 8]; N];
    if block.keep.is_null() {
        return sums;
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        for (idx, sum) in sums.iter_mut().enumerate() {
            // SAFETY: within the lengths of a block.
            unsafe {
                let out = block.out.add(row * block.out_stride + idx * 8);
                let keep = _mm256_set1_ps(*block.keep.add(row));
                *sum = _mm256_mul_ps(_mm256_loadu_ps(out), keep);
            }
        }
    }
    sums
}

/// As [`avx512_end`].
///
/// # Safety
/// AVX2; a block of `N` rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn avx2_end<const N: usize>(block: Block<'_>, sums: &[[__m256; KV_BLOCK / 8]; N]) {
    for (row, sums) in sums.iter().enumerate() {
        for (idx, sum) in sums.iter().enumerate() {
            // SAFETY: within the lengths of a block.
            unsafe {
                let out = block.out.add(row * block.out_stride + idx * 8);
                _mm256_storeu_ps(out, *sum);
            }
        }
    }
}
