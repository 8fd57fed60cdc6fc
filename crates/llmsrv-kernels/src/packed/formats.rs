//! How each type of weights is packed, and the one kernel for each kind of block.
//!
//! Sixteen rows of weights make a row panel; a row panel is a sequence of blocks of the type's own length, each
//! with the blocks of all 16 rows. A vector of 64 bytes holds four bytes of every row: lane `r` belongs
//! to row `r`. So a vector of quants meets four activations that are the same for all lanes, and sums
//! need no shuffling: lanes are outputs. Nothing is expanded: a row panel is as long as its rows in the file,
//! except for the types of [`grids`], of TQ1_0, and zeros where the last row panel is not full.
//!
//! Row panels of numbers with a floating point have 32 rows, and each activation that is fetched meets two
//! vectors: with one, fetching would take longer than multiplying.
//!
//! The scales of a block (its head) are 16 or 32 numbers of half precision. Heads of 32 bytes of two
//! blocks share a cache line, so that all vectors are aligned:
//!
//! | type | head | body of a block (vectors) |
//! |---|---|---|
//! | Q4_0, Q4_1 | scale (, minimum) | 4 of nibbles |
//! | Q5_0, Q5_1 | scale (, minimum) | 4 of nibbles, 1 of fifth bits |
//! | Q8_0 | scale | 8 of bytes, of which 128 is to be taken away |
//! | IQ4_NL | scale | 4 of nibbles |
//! | MXFP4 | scale, of BF16 | 4 of nibbles |
//! | Q2_K | scale, scale of minimums | 4 of sub-block scales, 8 times 2 of quants of two bits |
//! | Q3_K | scale | 3 of sub-block scales, 8 times 3 of quants of three bits |
//! | Q4_K | scale, scale of minimums | 3 of sub-block scales, 8 times 4 of nibbles |
//! | Q5_K | scale, scale of minimums | 3 of sub-block scales, 8 times (4 of nibbles, 1 of fifth bits) |
//! | Q6_K | scale | 4 of sub-block scales, 8 times (4 of nibbles, 2 of two high bits) |
//! | IQ4_XS | scale, upper bits of sub-block scales | 1 of sub-block scales, 8 times 4 of nibbles |
//! | IQ1_S | scale | 1 of sub-block scales, 8 times 2 of quants of two bits |
//! | IQ2_XXS | scale | 1 of sub-block scales, 8 times 3 of quants of three bits |
//! | IQ1_M, IQ2_XS, IQ2_S | scale | 2 of sub-block scales, 8 times 3 of quants of three bits |
//! | IQ3_XXS, IQ3_S | scale | 1 of sub-block scales, 8 times 4 of nibbles |
//! | TQ1_0, TQ2_0 | scale | 8 times 2 of quants of two bits |
//! | F32, F16 | none | 32 times 32 numbers, one of each row |
//! | BF16 | none | 16 times 32 pairs of numbers, one of each row |
//!
//! F32 and F16 meet activations as they are, and BF16 meets them rounded to BF16, 32 elements at a time;
//! a last block that is shorter is filled up with zeros. The products of a block are added up by
//! themselves, which keeps chains of additions short, and processors work on several at a time.
//!
//! Vector `v` of nibbles of 32 elements has the elements `4v..4v + 4` in its low and `16 + 4v..` in its
//! high halves; bit `g` of a byte of the fifth bits belongs to the elements `4g..4g + 4`. The two bits from
//! `2v` on in a byte of the first vector of such quants belong to the elements `4v..4v + 4`, in the second one
//! to `16 + 4v..`. Vector `v` of quants of three bits has the elements `4v..` in its bits 0 to 2 and `16 + 4v..`
//! in 3 to 5; the last eight elements are what is left: bits 6 and 7 of the first vector for `12..16`, of the
//! second for `28..32`, and in the third the upper bit of both. Sub-block scales that the file counts from -32
//! are signed here.

mod blocks;
mod floating;
mod grids;
mod super_blocks;

use std::sync::atomic::{Ordering, compiler_fence};

use llmsrv_gguf::TensorType;

pub(super) use self::{
    blocks::{IQ4NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0},
    floating::{BF16, F16, F32},
    grids::{IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS},
    super_blocks::{IQ4XS, Q2K, Q3K, Q4K, Q5K, Q6K, TQ},
};
use super::isa::Isa;

/// What packed weights are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationFormat {
    /// Signed bytes with a scale for each 32 elements.
    Q8Block32,
    /// Signed bytes with a scale for each 256 elements.
    Q8Block256,
    /// The elements as they are.
    F32,
    /// The elements rounded to BF16.
    Bf16,
}

impl ActivationFormat {
    /// All formats.
    pub const ALL: [ActivationFormat; 4] = [
        ActivationFormat::Q8Block32,
        ActivationFormat::Q8Block256,
        ActivationFormat::F32,
        ActivationFormat::Bf16,
    ];

    /// Returns what weights of a type are multiplied with; `None` if they cannot be packed.
    pub fn of(ty: TensorType) -> Option<ActivationFormat> {
        Some(match ty {
            TensorType::F32 | TensorType::F16 => ActivationFormat::F32,
            TensorType::BF16 => ActivationFormat::Bf16,
            ty if layout(ty).is_none() => return None,
            ty if ty.block_len() == 32 => ActivationFormat::Q8Block32,
            _ => ActivationFormat::Q8Block256,
        })
    }

    /// Returns the elements of a block.
    pub(super) fn block_len(self) -> usize {
        match self {
            ActivationFormat::Q8Block32 | ActivationFormat::F32 | ActivationFormat::Bf16 => 32,
            ActivationFormat::Q8Block256 => 256,
        }
    }
}

/// Sizes of a packed block, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Scales: 32, 64 or none.
    pub(super) head: usize,
    /// The rest: whole vectors.
    pub(super) body: usize,
    /// Rows of a row panel: 16 or, where there is no head, 32.
    pub(super) rows: usize,
}

impl Layout {
    /// Returns the bytes of a row panel of `n_blocks` blocks.
    pub(super) const fn row_panel_bytes(self, n_blocks: usize) -> usize {
        (n_blocks * self.head).next_multiple_of(64) + n_blocks * self.body
    }

    /// Returns where head and body of a block of a row panel begin.
    pub(super) const fn block(self, idx: usize) -> (usize, usize) {
        if self.head == 0 {
            return (idx * self.body, idx * self.body);
        }
        let per_line = 64 / self.head;
        let line = idx / per_line * (64 + per_line * self.body);
        let within = idx % per_line;
        (line + within * self.head, line + 64 + within * self.body)
    }
}

/// Returns how a type is packed; `None` if it is not.
pub(super) fn layout(ty: TensorType) -> Option<Layout> {
    fn of<F: Format>() -> Layout {
        F::LAYOUT
    }
    Some(match ty {
        TensorType::Q4_0 => of::<Q4_0>(),
        TensorType::Q4_1 => of::<Q4_1>(),
        TensorType::Q5_0 => of::<Q5_0>(),
        TensorType::Q5_1 => of::<Q5_1>(),
        TensorType::Q8_0 => of::<Q8_0>(),
        TensorType::IQ4_NL => of::<IQ4NL>(),
        TensorType::MXFP4 => of::<MXFP4>(),
        TensorType::Q2_K => of::<Q2K>(),
        TensorType::Q3_K => of::<Q3K>(),
        TensorType::Q4_K => of::<Q4K>(),
        TensorType::Q5_K => of::<Q5K>(),
        TensorType::Q6_K => of::<Q6K>(),
        TensorType::IQ4_XS => of::<IQ4XS>(),
        TensorType::IQ1_S => of::<IQ1S>(),
        TensorType::IQ1_M => of::<IQ1M>(),
        TensorType::IQ2_XXS => of::<IQ2XXS>(),
        TensorType::IQ2_XS => of::<IQ2XS>(),
        TensorType::IQ2_S => of::<IQ2S>(),
        TensorType::IQ3_XXS => of::<IQ3XXS>(),
        TensorType::IQ3_S => of::<IQ3S>(),
        TensorType::TQ1_0 | TensorType::TQ2_0 => of::<TQ>(),
        TensorType::F32 => of::<F32>(),
        TensorType::F16 => of::<F16>(),
        TensorType::BF16 => of::<BF16>(),
        _ => return None,
    })
}

/// A type of packed weights.
pub(super) trait Format {
    /// Sizes of a block.
    const LAYOUT: Layout;
    /// Whether the kernel uses [`Isa::dot_bf16`], and so is compiled for it where it has an instruction.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only x86-64 has kernels of their own for it")
    )]
    const IS_BF16: bool = false;
    /// Bytes of a row in a vector.
    const LANE_BYTES: usize = 4;
    /// Activations of one token for one block.
    type Block;

    /// Adds to `sums` the products of as many rows of one block as `I` has lanes with `C` tokens, whose
    /// blocks lie at `x`.
    ///
    /// # Safety
    /// Head and body are those of the first of the rows in a block as long as [`Format::LAYOUT`] says, `x`
    /// has `C` blocks, and the processor has the instructions of `I`.
    unsafe fn block<I: Isa, const C: usize>(
        head: *const u8,
        body: *const u8,
        x: *const Self::Block,
        sums: &mut Sums<I, C>,
    );
}

/// Sums for `C` tokens: those of some of the first 16 rows of a row panel, and of 16 more if it has them.
pub(super) type Sums<I, const C: usize> = [[<I as Isa>::Float; C]; 2];

/// Multiplies a row panel with a column panel of `C` tokens: for each token, results of all rows go to `out`.
///
/// # Safety
/// The row panel and `x` have `n_blocks` blocks, `out` has room for `C` times the rows of a row panel, and the
/// processor has the instructions of `I`.
#[inline(always)]
pub(super) unsafe fn multiply_row_panel<I: Isa, F: Format, const C: usize>(
    row_panel: *const u8,
    n_blocks: usize,
    x: *const u8,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe { multiply_columns::<I, F, C>(row_panel, n_blocks, x.cast(), C, out) }
}

/// As [`multiply_row_panel`], with `C` neighbouring tokens of a column panel of `width`.
///
/// # Safety
/// As there; `x` is the first block of the first of these tokens.
#[inline(always)]
pub(super) unsafe fn multiply_columns<I: Isa, F: Format, const C: usize>(
    row_panel: *const u8,
    n_blocks: usize,
    mut x: *const F::Block,
    width: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promise; the steps are those of `Layout::block`.
    unsafe {
        let mut sums = [[[I::zeros(); C]; 2]; 4];
        let mut heads = row_panel;
        let mut left = n_blocks;
        while left > 0 {
            let (n, mut body) = match F::LAYOUT.head {
                0 => (left, heads),
                head => (left.min(64 / head), heads.add(64)),
            };
            for idx in 0..n {
                let head = heads.add(idx * F::LAYOUT.head);
                unrolled!(PART in [0 1 2 3] {
                    let row = I::LANES * PART;
                    if row < 16 {
                        if row > 0 {
                            keep_order();
                        }
                        let (head, body) = (head.add(2 * row), body.add(F::LANE_BYTES * row));
                        F::block::<I, C>(head, body, x, &mut sums[PART]);
                    }
                });
                body = body.add(F::LAYOUT.body);
                // Behind the last token of a column panel there may be nothing.
                x = x.wrapping_add(width);
            }
            heads = body;
            left -= n;
        }
        unrolled!(PART in [0 1 2 3] {
            let row = I::LANES * PART;
            if row < 16 {
                let sums = sums[PART].into_iter().take(F::LAYOUT.rows / 16);
                for (half, sums) in sums.enumerate() {
                    for (token, sums) in sums.into_iter().enumerate() {
                        I::store(out.add(F::LAYOUT.rows * token + 16 * half + row), sums);
                    }
                }
            }
        });
    }
}

/// Keeps reads in the order of memory: the compiler would spread them over whole blocks, and memory be
/// asked for them in no order. Nor does it keep activations in registers that other rows need.
#[inline(always)]
fn keep_order() {
    compiler_fence(Ordering::SeqCst);
}

/// How the quants of 32 elements lie.
pub(super) trait Quants {
    /// Bytes of 16 rows.
    const QUANTS: usize;
    /// Whether 128 is to be taken away from quants.
    const HAVE_OFFSET: bool = false;

    /// Reads the quants of elements `4v..` and of `16 + 4v..`.
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2];

    /// Begins the sum of quants times activations, given the negated sum of the activations.
    #[inline(always)]
    unsafe fn start<I: Isa>(minus_sum: i32) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            if Self::HAVE_OFFSET {
                I::start_offset(minus_sum)
            } else {
                I::splat(0)
            }
        }
    }
}
