//! Products of a few rows with a tile of the cache: of queries with keys, and of weights with values.
//!
//! Each element of the result is one chain of fused multiply-adds in ascending order, so it is the same
//! bit for bit in every tier (but an unfused scalar one) and with any number of rows beside it. With
//! tiles of bf16 the left side holds such numbers too, and the chain takes two elements at a time, the second
//! before the first, as the instruction for them does. That instruction makes 0 of a sum below the
//! normal numbers of f32; such sums alone may differ between tiers.

#[cfg(target_arch = "x86_64")]
mod x86;

use half::{
    f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};

use crate::{
    KV_BLOCK, Tier, bf16,
    kv::Tiles,
    tier::{SCALAR_IS_FUSED, fma},
};

/// Elements of the left side.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elements<'a> {
    F32(&'a [f32]),
    /// The bits of bf16, for the instruction that multiplies these with tiles of bf16. Where there is
    /// none, the same numbers as f32 are faster.
    Bf16(&'a [u16]),
}

impl Elements<'_> {
    fn len(self) -> usize {
        match self {
            Elements::F32(values) => values.len(),
            Elements::Bf16(values) => values.len(),
        }
    }

    fn at(self, idx: usize) -> f32 {
        match self {
            Elements::F32(values) => values[idx],
            Elements::Bf16(values) => bf16::expand(values[idx]),
        }
    }
}

/// Rows in a larger memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// Begins with the first row.
    pub values: Elements<'a>,
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

/// Tells whether a tier multiplies with tiles of Q8_0 as they are. Without vectors of its own it is faster to unpack
/// them once, to the same numbers.
pub(super) fn reads_q8(tier: Tier) -> bool {
    cfg!(target_arch = "x86_64") && tier != Tier::Scalar
}

/// The definition. Rows of the tile are arrays, of which compilers make vectors.
fn plain<const FUSED: bool>(
    a: Rows<'_>,
    panels: &[Panel<'_>],
    keep: Option<&[f32]>,
    out: &mut [f32],
    out_stride: usize,
) {
    for row in 0..a.n {
        let out = &mut out[row * out_stride..][..KV_BLOCK];
        let mut sums = [0.0; KV_BLOCK];
        if let Some(keep) = keep {
            for (sum, out) in sums.iter_mut().zip(&*out) {
                *sum = out * keep[row];
            }
        }
        for panel in panels {
            for k in 0..panel.rows.n_rows() {
                // The second row of a pair comes first.
                let k = if matches!(panel.rows, Tiles::Bf16(_)) {
                    k ^ 1
                } else {
                    k
                };
                let a = a.values.at(row * a.stride + panel.first + k);
                let values = tile_row(panel.rows, k);
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = fma::<FUSED>(a, value, *sum);
                }
            }
        }
        out.copy_from_slice(&sums);
    }
}

/// Returns row `k` of a tile.
fn tile_row(tiles: Tiles<'_>, k: usize) -> [f32; KV_BLOCK] {
    let mut row = [0.0; KV_BLOCK];
    match tiles {
        Tiles::F32(tiles) => row.copy_from_slice(&tiles[k * KV_BLOCK..][..KV_BLOCK]),
        Tiles::F16(tiles) => {
            let halves = tiles[k * KV_BLOCK..][..KV_BLOCK].reinterpret_cast::<f16>();
            halves.convert_to_f32_slice(&mut row);
        }
        Tiles::Bf16(tiles) => {
            let pairs = &tiles[k / 2 * 2 * KV_BLOCK..][..2 * KV_BLOCK];
            for (value, pair) in row.iter_mut().zip(pairs.as_chunks::<2>().0) {
                *value = bf16::expand(pair[k % 2]);
            }
        }
        Tiles::Q8(_) => {
            if let Tiles::Q8(one) = tiles.rows(k..k + 1) {
                one.unpack(&mut row);
            }
        }
        Tiles::Packed(_) => {}
    }
    row
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_tier_gives_the_bits_of_the_definition(
            n in 1_usize..30, depth in 1_usize..70, cut in 0_usize..70, extra in 0_usize..3, with_keep: bool, form in 0..4, seed in 0_usize..1000,
        ) {
            // Rows of bf16 come in pairs.
            let step = if form >= 2 { 2 } else { 1 };
            let (depth, extra) = (depth * step, extra * step);
            let cut = (cut * step).min(depth);
            let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0;
            let values: Vec<f32> = (0..n * (depth + extra)).map(value).collect();
            let rounded: Vec<u16> = values.iter().map(|v| bf16::round(*v)).collect();
            let expanded: Vec<f32> = rounded.iter().map(|v| bf16::expand(*v)).collect();
            let a = match form {
                2 => Elements::Bf16(&rounded),
                3 => Elements::F32(&expanded),
                _ => Elements::F32(&values),
            };
            let a = Rows { values: a, stride: depth + extra, n };
            let full: Vec<f32> = (0..depth * KV_BLOCK).map(|i| value(i + 13)).collect();
            let halves: Vec<u16> = full.iter().map(|v| f16::from_f32(*v).to_bits()).collect();
            let pairs: Vec<u16> = full.iter().map(|v| bf16::round(*v)).collect();
            let rows = |at: std::ops::Range<usize>| {
                let at = at.start * KV_BLOCK..at.end * KV_BLOCK;
                match form {
                    0 => Tiles::F32(&full[at]),
                    1 => Tiles::F16(&halves[at]),
                    _ => Tiles::Bf16(&pairs[at]),
                }
            };
            let panel = |at: std::ops::Range<usize>| Panel { first: at.start, rows: rows(at.clone()), ahead: rows(at) };
            let panels = [panel(0..cut), panel(cut..depth)];
            let keep: Vec<f32> = (0..n).map(|i| value(i + 7) / 2.0).collect();
            let keep = with_keep.then_some(&keep[..]);
            let stride = KV_BLOCK + extra;
            let before: Vec<f32> = (0..n * stride).map(|i| value(i + 3)).collect();
            let mut expected = before.clone();
            plain::<true>(a, &panels, keep, &mut expected, stride);
            for tier in Tier::VECTORS.into_iter().filter(|tier| tier.is_available()) {
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

    /// The definition itself, against sums of products in f64.
    #[test]
    fn pairs_meet_pairs() {
        let value = |i: usize| bf16::round((i * 37 % 101) as f32 / 16.0 - 3.0);
        let a: Vec<u16> = (0..6).map(value).collect();
        let tile: Vec<u16> = (0..4 * KV_BLOCK).map(|i| value(i + 50)).collect();
        let panel = Panel {
            rows: Tiles::Bf16(&tile),
            first: 2,
            ahead: Tiles::NONE,
        };
        let rows = Rows {
            values: Elements::Bf16(&a),
            stride: 6,
            n: 1,
        };
        let mut out = [9.0; KV_BLOCK];
        multiply(Tier::best(), rows, &[panel], None, &mut out, KV_BLOCK);
        for (column, out) in out.iter().enumerate() {
            let product = |k: usize| {
                let of_tile = tile[k / 2 * 2 * KV_BLOCK + 2 * column + k % 2];
                f64::from(bf16::expand(a[2 + k])) * f64::from(bf16::expand(of_tile))
            };
            let expected: f64 = (0..4).map(product).sum();
            assert!(
                (f64::from(*out) - expected).abs() < 1e-5,
                "{out} {expected}"
            );
        }
    }
}
