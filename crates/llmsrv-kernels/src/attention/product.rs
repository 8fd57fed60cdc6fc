//! Products of a few rows of f32 with a tile of the cache: of queries with keys, and of weights with
//! values.
//!
//! Each element of the result is one chain of fused multiply-adds in ascending order, so it is the same
//! bit for bit in every tier (but an unfused scalar one) and with any number of rows beside it.

use half::f16;

use crate::{
    KV_BLOCK, Tier,
    kv::Tiles,
    tier::{SCALAR_IS_FUSED, fma},
};

/// Rows of f32 in a larger memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// Begins with the first row.
    pub values: &'a [f32],
    /// From one row to the next.
    pub stride: usize,
    /// How many rows.
    pub n: usize,
}

/// Computes `out[row][column] = keep[row] * out[row][column] + sum of a[row][k] * tile[k][column]` over
/// all rows `k` of the tile, or without the first part if there is no `keep`. Rows of `out` are
/// `out_stride` apart; [`KV_BLOCK`] elements of each are computed.
///
/// # Panics
/// If a slice is shorter than the others demand.
pub(super) fn multiply(
    tier: Tier,
    a: Rows<'_>,
    tile: Tiles<'_>,
    keep: Option<&[f32]>,
    out: &mut [f32],
    out_stride: usize,
) {
    let depth = match tile {
        Tiles::F32(tile) => tile.len(),
        Tiles::F16(tile) => tile.len(),
        Tiles::Packed(_) => 0,
    } / KV_BLOCK;
    if a.n == 0 || depth == 0 {
        return;
    }
    assert!(a.values.len() >= (a.n - 1) * a.stride + depth);
    assert!(out.len() >= (a.n - 1) * out_stride + KV_BLOCK);
    assert!(keep.is_none_or(|keep| keep.len() >= a.n));
    #[cfg(target_arch = "x86_64")]
    if tier != Tier::Scalar && tier.is_available() {
        // The lengths are those that the blocks of rows below need.
        return x86::multiply(tier, a, tile, depth, keep, out, out_stride);
    }
    let _ = tier;
    plain::<SCALAR_IS_FUSED>(a, tile, keep, out, out_stride);
}

/// The definition.
fn plain<const FUSED: bool>(
    a: Rows<'_>,
    tile: Tiles<'_>,
    keep: Option<&[f32]>,
    out: &mut [f32],
    out_stride: usize,
) {
    for row in 0..a.n {
        let a = &a.values[row * a.stride..];
        let out = &mut out[row * out_stride..][..KV_BLOCK];
        match keep {
            Some(keep) => out.iter_mut().for_each(|out| *out *= keep[row]),
            None => out.fill(0.0),
        }
        let mut add = |a: f32, tile: &mut dyn Iterator<Item = f32>| {
            for (out, value) in out.iter_mut().zip(tile) {
                *out = fma::<FUSED>(a, value, *out);
            }
        };
        match tile {
            Tiles::F32(tile) => {
                for (a, tile) in a.iter().zip(tile.chunks_exact(KV_BLOCK)) {
                    add(*a, &mut tile.iter().copied());
                }
            }
            Tiles::F16(tile) => {
                for (a, tile) in a.iter().zip(tile.chunks_exact(KV_BLOCK)) {
                    add(
                        *a,
                        &mut tile.iter().map(|bits| f16::from_bits(*bits).to_f32()),
                    );
                }
            }
            Tiles::Packed(_) => {}
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(
        unsafe_code,
        reason = "vector instructions read and write through pointers"
    )]

    use std::arch::x86_64::{
        __m128i, __m256, __m256i, __m512, _mm_loadu_si128, _mm256_cvtph_ps, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps,
        _mm256_storeu_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps,
        _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{KV_BLOCK, Rows, Tier, Tiles};

    /// A block of rows as the kernels see it. All pointers are good for what the lengths say: `n` rows
    /// of `depth` elements at `a`, `depth` rows of [`KV_BLOCK`] at `tile` (f16 or f32), `n` rows of
    /// [`KV_BLOCK`] at `out`, and `n` elements at `keep` unless it is null.
    #[derive(Clone, Copy)]
    struct Block {
        a: *const f32,
        a_stride: usize,
        tile: *const u8,
        depth: usize,
        keep: *const f32,
        out: *mut f32,
        out_stride: usize,
    }

    type Kernel = unsafe fn(Block);

    /// As [`super::multiply`], which has checked all lengths and the tier.
    pub(super) fn multiply(
        tier: Tier,
        a: Rows<'_>,
        tile: Tiles<'_>,
        depth: usize,
        keep: Option<&[f32]>,
        out: &mut [f32],
        out_stride: usize,
    ) {
        let (tile, is_half) = match tile {
            Tiles::F32(tile) => (tile.as_ptr().cast(), false),
            Tiles::F16(tile) => (tile.as_ptr().cast(), true),
            Tiles::Packed(_) => return,
        };
        let kernels: &[Kernel] = match (tier, is_half) {
            (Tier::Avx512, true) => AVX512_HALF,
            (Tier::Avx512, false) => AVX512_FULL,
            (_, true) => AVX2_HALF,
            (_, false) => AVX2_FULL,
        };
        // Blocks of nearly the same size: a block of one row would leave the units idle.
        let n_blocks = a.n.div_ceil(kernels.len());
        let mut row = 0;
        for block_idx in 0..n_blocks {
            let end = a.n * (block_idx + 1) / n_blocks;
            // SAFETY: rows up to `a.n` are within the slices, as `super::multiply` asserted.
            let block = unsafe {
                Block {
                    a: a.values.as_ptr().add(row * a.stride),
                    a_stride: a.stride,
                    tile,
                    depth,
                    keep: keep.map_or(std::ptr::null(), |keep| keep.as_ptr().add(row)),
                    out: out.as_mut_ptr().add(row * out_stride),
                    out_stride,
                }
            };
            // SAFETY: the processor has the tier's instructions, and the block has as many rows as
            // the kernel computes.
            unsafe { kernels[end - row - 1](block) };
            row = end;
        }
    }

    macro_rules! kernels {
        ($kernel:ident, $half:literal, $($n:literal)*) => { &[$($kernel::<$n, $half>),*] };
    }
    const AVX512_HALF: &[Kernel] = kernels!(avx512, true, 1 2 3 4 5 6 7 8 9 10 11 12);
    const AVX512_FULL: &[Kernel] = kernels!(avx512, false, 1 2 3 4 5 6 7 8 9 10 11 12);
    const AVX2_HALF: &[Kernel] = kernels!(avx2, true, 1 2 3);
    const AVX2_FULL: &[Kernel] = kernels!(avx2, false, 1 2 3);

    /// # Safety
    /// AVX-512 F; a block of `N` rows, of f16 if `HALF`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
    unsafe fn avx512<const N: usize, const HALF: bool>(block: Block) {
        const LANES: usize = 16;
        // SAFETY: within the lengths of a block.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); KV_BLOCK / LANES]; N];
            if !block.keep.is_null() {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let keep = _mm512_set1_ps(*block.keep.add(row));
                    let out = block.out.add(row * block.out_stride);
                    for (idx, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_mul_ps(_mm512_loadu_ps(out.add(idx * LANES)), keep);
                    }
                }
            }
            for k in 0..block.depth {
                let load = |idx: usize| -> __m512 {
                    let at = k * KV_BLOCK + idx * LANES;
                    if HALF {
                        let halves = block.tile.cast::<u16>().add(at).cast::<__m256i>();
                        _mm512_cvtph_ps(_mm256_loadu_si256(halves))
                    } else {
                        _mm512_loadu_ps(block.tile.cast::<f32>().add(at))
                    }
                };
                let tile = [load(0), load(1)];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm512_set1_ps(*block.a.add(row * block.a_stride + k));
                    for (sum, tile) in sums.iter_mut().zip(tile) {
                        *sum = _mm512_fmadd_ps(a, tile, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let out = block.out.add(row * block.out_stride);
                for (idx, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.add(idx * LANES), *sum);
                }
            }
        }
    }

    /// # Safety
    /// AVX2, FMA and F16C; a block of `N` rows, of f16 if `HALF`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn avx2<const N: usize, const HALF: bool>(block: Block) {
        const LANES: usize = 8;
        // SAFETY: within the lengths of a block.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); KV_BLOCK / LANES]; N];
            if !block.keep.is_null() {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let keep = _mm256_set1_ps(*block.keep.add(row));
                    let out = block.out.add(row * block.out_stride);
                    for (idx, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm256_mul_ps(_mm256_loadu_ps(out.add(idx * LANES)), keep);
                    }
                }
            }
            for k in 0..block.depth {
                let load = |idx: usize| -> __m256 {
                    let at = k * KV_BLOCK + idx * LANES;
                    if HALF {
                        let halves = block.tile.cast::<u16>().add(at).cast::<__m128i>();
                        _mm256_cvtph_ps(_mm_loadu_si128(halves))
                    } else {
                        _mm256_loadu_ps(block.tile.cast::<f32>().add(at))
                    }
                };
                let tile = [load(0), load(1), load(2), load(3)];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm256_set1_ps(*block.a.add(row * block.a_stride + k));
                    for (sum, tile) in sums.iter_mut().zip(tile) {
                        *sum = _mm256_fmadd_ps(a, tile, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let out = block.out.add(row * block.out_stride);
                for (idx, sum) in sums.iter().enumerate() {
                    _mm256_storeu_ps(out.add(idx * LANES), *sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_tier_gives_the_bits_of_the_definition(
            n in 1_usize..30, depth in 1_usize..70, extra in 0_usize..3, with_keep: bool, is_half: bool, seed in 0_usize..1000,
        ) {
            let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0;
            let a: Vec<f32> = (0..n * (depth + extra)).map(value).collect();
            let a = Rows { values: &a, stride: depth + extra, n };
            let full: Vec<f32> = (0..depth * KV_BLOCK).map(|i| value(i + 13)).collect();
            let halves: Vec<u16> = full.iter().map(|v| f16::from_f32(*v).to_bits()).collect();
            let tile = if is_half { Tiles::F16(&halves) } else { Tiles::F32(&full) };
            let keep: Vec<f32> = (0..n).map(|i| value(i + 7) / 2.0).collect();
            let keep = with_keep.then_some(&keep[..]);
            let stride = KV_BLOCK + extra;
            let before: Vec<f32> = (0..n * stride).map(|i| value(i + 3)).collect();
            let mut expected = before.clone();
            plain::<true>(a, tile, keep, &mut expected, stride);
            for tier in [Tier::Avx2, Tier::Avx512].into_iter().filter(|tier| tier.is_available()) {
                let mut out = before.clone();
                multiply(tier, a, tile, keep, &mut out, stride);
                prop_assert_eq!(&out, &expected, "{:?}", tier);
            }
            let mut out = before.clone();
            multiply(Tier::Scalar, a, tile, keep, &mut out, stride);
            for (out, expected) in out.iter().zip(&expected) {
                prop_assert!((out - expected).abs() < 1e-3);
            }
        }
    }
}
