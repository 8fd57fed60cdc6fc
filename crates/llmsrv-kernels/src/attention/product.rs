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

/// Rows of a tile, `k` from `first` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel<'a> {
    /// The rows, [`KV_BLOCK`] elements each.
    pub rows: Tiles<'a>,
    /// Which element of each row of the left side meets the first of them.
    pub first: usize,
    /// What will be needed soon: as long as `rows`, or empty.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only kernels for x86-64 ask for what is ahead")
    )]
    pub ahead: Tiles<'a>,
}

impl Panel<'_> {
    /// No rows.
    pub(super) const NONE: Panel<'static> = Panel {
        rows: Tiles::NONE,
        first: 0,
        ahead: Tiles::NONE,
    };
}

/// Computes `out[row][column] = keep[row] * out[row][column] + sum of a[row][k] * panel[k][column]` over
/// the rows `k` of all panels in order, or without the first part if there is no `keep`. Rows of `out`
/// are `out_stride` apart; [`KV_BLOCK`] elements of each are computed. All panels have one type.
///
/// # Panics
/// If a slice is shorter than the others demand.
pub(super) fn multiply(
    tier: Tier,
    a: Rows<'_>,
    panels: &[Panel<'_>],
    keep: Option<&[f32]>,
    out: &mut [f32],
    out_stride: usize,
) {
    if a.n == 0 {
        return;
    }
    let depth = panels.iter().map(|panel| panel.first + panel.rows.n_rows());
    assert!(a.values.len() >= (a.n - 1) * a.stride + depth.max().unwrap_or(0));
    assert!(out.len() >= (a.n - 1) * out_stride + KV_BLOCK);
    assert!(keep.is_none_or(|keep| keep.len() >= a.n));
    #[cfg(target_arch = "x86_64")]
    if tier != Tier::Scalar && tier.is_available() {
        return x86::multiply(tier, a, panels, keep, out, out_stride);
    }
    let _ = tier;
    plain::<SCALAR_IS_FUSED>(a, panels, keep, out, out_stride);
}

/// The definition.
fn plain<const FUSED: bool>(
    a: Rows<'_>,
    panels: &[Panel<'_>],
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
        let mut add = |a: f32, row: &mut dyn Iterator<Item = f32>| {
            for (out, value) in out.iter_mut().zip(row) {
                *out = fma::<FUSED>(a, value, *out);
            }
        };
        for panel in panels {
            let a = &a[panel.first..];
            match panel.rows {
                Tiles::F32(rows) => {
                    for (a, row) in a.iter().zip(rows.chunks_exact(KV_BLOCK)) {
                        add(*a, &mut row.iter().copied());
                    }
                }
                Tiles::F16(rows) => {
                    for (a, row) in a.iter().zip(rows.chunks_exact(KV_BLOCK)) {
                        let mut row = row.iter().map(|bits| f16::from_bits(*bits).to_f32());
                        add(*a, &mut row);
                    }
                }
                Tiles::Packed(_) => {}
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(
        unsafe_code,
        reason = "vector instructions read and write through pointers"
    )]
    #![expect(
        clippy::cast_ptr_alignment,
        reason = "the loads used here need no alignment"
    )]

    use std::arch::x86_64::{
        __m128i, __m256, __m256i, __m512, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch,
        _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps,
        _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm512_cvtph_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{KV_BLOCK, Panel, Rows, Tier, Tiles};

    /// A block of rows as the kernels see it. All pointers are good for what the lengths say: `n` rows
    /// at `a`, which the panels do not leave, `n` rows of [`KV_BLOCK`] at `out`, and `n` elements at
    /// `keep` unless it is null.
    #[derive(Clone, Copy)]
    struct Block<'a> {
        a: *const f32,
        a_stride: usize,
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
        let is_half = panels
            .iter()
            .all(|panel| matches!(panel.rows, Tiles::F16(_)));
        let is_full = panels
            .iter()
            .all(|panel| matches!(panel.rows, Tiles::F32(_)));
        let kernels: &[Kernel] = match (tier, is_half, is_full) {
            (Tier::Avx512, true, _) => AVX512_HALF,
            (Tier::Avx512, _, true) => AVX512_FULL,
            (_, true, _) => AVX2_HALF,
            (_, _, true) => AVX2_FULL,
            _ => return super::plain::<true>(a, panels, keep, out, out_stride),
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

    /// Returns where the rows of tiles begin, their bytes each, and how many there are.
    fn raw(tiles: Tiles<'_>) -> (*const u8, usize, usize) {
        match tiles {
            Tiles::F32(tiles) => (tiles.as_ptr().cast(), 4 * KV_BLOCK, tiles.len() / KV_BLOCK),
            Tiles::F16(tiles) => (tiles.as_ptr().cast(), 2 * KV_BLOCK, tiles.len() / KV_BLOCK),
            Tiles::Packed(_) => (std::ptr::null(), 0, 0),
        }
    }

    /// Fetches row `k` of what is ahead. No address is wrong for that.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is one or two instructions")]
    fn fetch((ahead, row_bytes, n_rows): (*const u8, usize, usize), k: usize) {
        if k < n_rows {
            for line in 0..row_bytes / LINE {
                let at = ahead.wrapping_add(k * row_bytes + line * LINE);
                // SAFETY: every x86-64 processor has the instruction, and it reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
            }
        }
    }

    /// Bytes of a cache line.
    const LINE: usize = 64;

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
    unsafe fn avx512<const N: usize, const HALF: bool>(block: Block<'_>) {
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
            for panel in block.panels {
                let (tile, _, depth) = raw(panel.rows);
                let ahead = raw(panel.ahead);
                let a = block.a.add(panel.first);
                for k in 0..depth {
                    if block.fetches {
                        fetch(ahead, k);
                    }
                    let load = |idx: usize| -> __m512 {
                        let at = k * KV_BLOCK + idx * LANES;
                        if HALF {
                            let halves = tile.cast::<u16>().add(at).cast::<__m256i>();
                            _mm512_cvtph_ps(_mm256_loadu_si256(halves))
                        } else {
                            _mm512_loadu_ps(tile.cast::<f32>().add(at))
                        }
                    };
                    let row = [load(0), load(1)];
                    for (idx, sums) in sums.iter_mut().enumerate() {
                        let a = _mm512_set1_ps(*a.add(idx * block.a_stride + k));
                        for (sum, value) in sums.iter_mut().zip(row) {
                            *sum = _mm512_fmadd_ps(a, value, *sum);
                        }
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
    unsafe fn avx2<const N: usize, const HALF: bool>(block: Block<'_>) {
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
            for panel in block.panels {
                let (tile, _, depth) = raw(panel.rows);
                let ahead = raw(panel.ahead);
                let a = block.a.add(panel.first);
                for k in 0..depth {
                    if block.fetches {
                        fetch(ahead, k);
                    }
                    let load = |idx: usize| -> __m256 {
                        let at = k * KV_BLOCK + idx * LANES;
                        if HALF {
                            let halves = tile.cast::<u16>().add(at).cast::<__m128i>();
                            _mm256_cvtph_ps(_mm_loadu_si128(halves))
                        } else {
                            _mm256_loadu_ps(tile.cast::<f32>().add(at))
                        }
                    };
                    let row = [load(0), load(1), load(2), load(3)];
                    for (idx, sums) in sums.iter_mut().enumerate() {
                        let a = _mm256_set1_ps(*a.add(idx * block.a_stride + k));
                        for (sum, value) in sums.iter_mut().zip(row) {
                            *sum = _mm256_fmadd_ps(a, value, *sum);
                        }
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
            n in 1_usize..30, depth in 1_usize..70, cut in 0_usize..70, extra in 0_usize..3, with_keep: bool, is_half: bool, seed in 0_usize..1000,
        ) {
            let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0;
            let a: Vec<f32> = (0..n * (depth + extra)).map(value).collect();
            let a = Rows { values: &a, stride: depth + extra, n };
            let full: Vec<f32> = (0..depth * KV_BLOCK).map(|i| value(i + 13)).collect();
            let halves: Vec<u16> = full.iter().map(|v| f16::from_f32(*v).to_bits()).collect();
            let cut = cut.min(depth);
            let rows = |at: std::ops::Range<usize>| {
                let at = at.start * KV_BLOCK..at.end * KV_BLOCK;
                if is_half { Tiles::F16(&halves[at]) } else { Tiles::F32(&full[at]) }
            };
            let panel = |at: std::ops::Range<usize>| Panel { first: at.start, rows: rows(at.clone()), ahead: rows(at) };
            let panels = [panel(0..cut), panel(cut..depth)];
            let keep: Vec<f32> = (0..n).map(|i| value(i + 7) / 2.0).collect();
            let keep = with_keep.then_some(&keep[..]);
            let stride = KV_BLOCK + extra;
            let before: Vec<f32> = (0..n * stride).map(|i| value(i + 3)).collect();
            let mut expected = before.clone();
            plain::<true>(a, &panels, keep, &mut expected, stride);
            for tier in [Tier::Avx2, Tier::Avx512].into_iter().filter(|tier| tier.is_available()) {
                let mut out = before.clone();
                multiply(tier, a, &panels, keep, &mut out, stride);
                prop_assert_eq!(&out, &expected, "{:?}", tier);
            }
            let mut out = before.clone();
            multiply(Tier::Scalar, a, &panels, keep, &mut out, stride);
            for (out, expected) in out.iter().zip(&expected) {
                prop_assert!((out - expected).abs() < 1e-3);
            }
        }
    }
}
