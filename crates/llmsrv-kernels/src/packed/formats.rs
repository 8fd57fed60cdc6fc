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

mod grids;

use std::{
    array,
    hint::black_box,
    sync::atomic::{Ordering, compiler_fence},
};

use llmsrv_gguf::TensorType;

pub(super) use self::grids::{IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS};
use super::{
    activations::{Bf16Block, F32Block, Q8Block32, Q8Block256},
    isa::{AHEAD, Isa},
};
use crate::quant::{IQ4_STEPS, MXFP4_DOUBLED};

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
    let mut x = x.cast::<F::Block>();
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
                x = x.add(C);
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

/// Types with blocks of 32 elements.
trait Block32Quants: Quants {
    /// Whether the head has minimums.
    const HAS_MINIMUM: bool = false;

    /// Reads the scales.
    #[inline(always)]
    unsafe fn scales<I: Isa>(head: *const u8) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::halves(head) }
    }
}

impl<T: Block32Quants> Format for T {
    const LAYOUT: Layout = Layout {
        head: if T::HAS_MINIMUM { 64 } else { 32 },
        body: T::QUANTS,
        rows: 16,
    };
    type Block = Q8Block32;

    #[inline(always)]
    unsafe fn block<I: Isa, const C: usize>(
        head: *const u8,
        body: *const u8,
        x: *const Q8Block32,
        sums: &mut Sums<I, C>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut dots = [[I::splat(0); C]];
            for (token, dot) in dots[0].iter_mut().enumerate() {
                *dot = T::start::<I>((*x.add(token)).minus_sum);
            }
            let x_quants = (&raw const (*x).quants).cast();
            I::dots::<T, C, 1>(&mut dots, body, x_quants, size_of::<Q8Block32>());
            let [dots] = dots;
            let scales = T::scales::<I>(head);
            for token in 0..C {
                let scale = I::multiply(scales, I::splat_float((*x.add(token)).scale));
                sums[0][token] = I::fused(sums[0][token], I::float(dots[token]), scale);
            }
            if T::HAS_MINIMUM {
                let minimums = I::halves(head.add(32));
                for (token, sum) in sums[0].iter_mut().enumerate() {
                    let scaled_sum = I::splat_float((*x.add(token)).scaled_sum);
                    *sum = I::fused(*sum, minimums, scaled_sum);
                }
            }
        }
    }
}

/// Reads vector `v` of nibbles: low and high halves.
#[inline(always)]
unsafe fn nibbles<I: Isa>(body: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let both = I::load_ahead(body.add(64 * v));
        let mask = I::splat(0x0f0f_0f0f);
        [I::and(both, mask), I::and(I::shr(both, 4), mask)]
    }
}

/// As [`nibbles`], with the fifth bits behind them.
#[inline(always)]
unsafe fn five_bits<I: Isa>(body: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high] = nibbles::<I>(body, v);
        let fifth = once_ahead::<I>(body.add(256), v);
        let mask = I::splat(0x1010_1010);
        let v = v as u32;
        [
            I::or(low, I::and(I::shl(fifth, 4 - v), mask)),
            I::or(high, I::and(I::shr(fifth, v), mask)),
        ]
    }
}

/// Reads bits that all four vectors of nibbles share; only the first asks for what comes later.
#[inline(always)]
unsafe fn once_ahead<I: Isa>(from: *const u8, v: usize) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        match v {
            0 => I::load_ahead(from),
            _ => I::load(from),
        }
    }
}

pub(super) struct Q4_0;
impl Quants for Q4_0 {
    const QUANTS: usize = 256;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<I>(quants, v) }
    }
    #[inline(always)]
    unsafe fn start<I: Isa>(minus_sum: i32) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::shl(I::splat(minus_sum), 3) }
    }
}
impl Block32Quants for Q4_0 {}

pub(super) struct Q4_1;
impl Quants for Q4_1 {
    const QUANTS: usize = 256;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<I>(quants, v) }
    }
}
impl Block32Quants for Q4_1 {
    const HAS_MINIMUM: bool = true;
}

pub(super) struct Q5_0;
impl Quants for Q5_0 {
    const QUANTS: usize = 320;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { five_bits::<I>(quants, v) }
    }
    #[inline(always)]
    unsafe fn start<I: Isa>(minus_sum: i32) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::shl(I::splat(minus_sum), 4) }
    }
}
impl Block32Quants for Q5_0 {}

pub(super) struct Q5_1;
impl Quants for Q5_1 {
    const QUANTS: usize = 320;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { five_bits::<I>(quants, v) }
    }
}
impl Block32Quants for Q5_1 {
    const HAS_MINIMUM: bool = true;
}

pub(super) struct Q8_0;
impl Quants for Q8_0 {
    const QUANTS: usize = 512;
    const HAVE_OFFSET: bool = true;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                I::load_ahead(quants.add(64 * v)),
                I::load_ahead(quants.add(256 + 64 * v)),
            ]
        }
    }
}
impl Block32Quants for Q8_0 {}

pub(super) struct IQ4NL;
impl Quants for IQ4NL {
    const QUANTS: usize = 256;
    const HAVE_OFFSET: bool = true;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { steps::<I>(&STEPS, quants, v) }
    }
}
impl Block32Quants for IQ4NL {}

pub(super) struct MXFP4;
impl Quants for MXFP4 {
    const QUANTS: usize = 256;
    const HAVE_OFFSET: bool = true;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { steps::<I>(&MXFP4_STEPS, quants, v) }
    }
}
impl Block32Quants for MXFP4 {
    /// The exponents of numbers of half precision do not reach far enough.
    #[inline(always)]
    unsafe fn scales<I: Isa>(head: *const u8) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::from_bits(I::shl(I::shorts(head), 16)) }
    }
}

/// As [`nibbles`], with the steps that they stand for, of which 128 is to be taken away.
#[inline(always)]
unsafe fn steps<I: Isa>(steps: &[u8; 16], body: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high] = nibbles::<I>(body, v);
        [I::lookup(steps, low), I::lookup(steps, high)]
    }
}

/// The steps of the IQ4 formats, to which 128 is added.
static STEPS: [u8; 16] = with_offset(&IQ4_STEPS);
/// Twice the steps of MXFP4, to which 128 is added.
static MXFP4_STEPS: [u8; 16] = with_offset(&MXFP4_DOUBLED);

const fn with_offset(steps: &[f32; 16]) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut idx = 0;
    while idx < 16 {
        bytes[idx] = (steps[idx] + 128.0) as u8;
        idx += 1;
    }
    bytes
}

/// Types with blocks of 256 elements and sub-block scales for stretches of them. Vectors of sub-block scales lie
/// before the quants.
trait SuperBlockQuants: Quants {
    const HEAD: usize;
    /// Vectors of sub-block scales.
    const SMALL: usize;
    /// Elements of a stretch: 16 or 32.
    const STRETCH: usize;
    /// Bits of a small scale.
    const SCALE_BITS: u32 = 8;
    /// What is to be taken away from the products.
    const EXCESS: Excess;
    /// What the products count, as a share of the scale in the head: a power of two.
    const UNIT: f32 = 1.0;

    /// Reads the sub-block scales of a quad, which is four stretches: signed numbers, each in the upper bits
    /// of its byte.
    unsafe fn scales<I: Isa>(head: *const u8, body: *const u8, quad: usize) -> I::Int;

    /// Reads the small minimums of a quad, as signed bytes.
    #[inline(always)]
    unsafe fn minimums<I: Isa>(body: *const u8, quad: usize) -> I::Int {
        let _ = (body, quad);
        // SAFETY: the caller's promise.
        unsafe { I::splat(0) }
    }
}

/// What is taken away from the products of a block, by means of the sums of activations.
enum Excess {
    /// Nothing.
    None,
    /// This much times the sub-block scales.
    Offset(i32),
    /// The small minimums, whose scale is in the head.
    Minimums,
    /// The small minimums, whose scale is that of the products.
    SameMinimums,
}

macro_rules! long_formats {
    ($($name:ident)*) => {$(
        impl Format for $name {
            const LAYOUT: Layout = Layout {
                head: <$name as SuperBlockQuants>::HEAD,
                body: 64 * $name::SMALL + 8 * $name::QUANTS,
                rows: 16,
            };
            type Block = Q8Block256;
            #[inline(always)]
            unsafe fn block<I: Isa, const C: usize>(
                head: *const u8,
                body: *const u8,
                x: *const Q8Block256,
                sums: &mut Sums<I, C>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { long_block::<I, $name, C>(head, body, x, sums) }
            }
        }
    )*};
}

long_formats!(Q2K Q3K Q4K Q5K Q6K IQ4XS IQ1S TQ);

#[inline(always)]
unsafe fn long_block<I: Isa, T: SuperBlockQuants, const C: usize>(
    head: *const u8,
    body: *const u8,
    x: *const Q8Block256,
    sums: &mut Sums<I, C>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for vector in 0..T::SMALL {
            I::prefetch(body.wrapping_add(64 * vector + AHEAD));
        }
        // In 32 elements: one of all of them, or one of the low and one of the high quants.
        let n_stretches = 32 / T::STRETCH;
        let n_quads = 2 * n_stretches;
        let mut totals = [I::splat(0); C];
        let mut quants = body.add(64 * T::SMALL);
        let mut at = 0;
        for quad in 0..n_quads {
            let mut scales = T::scales::<I>(head, body, quad);
            // A count that the compiler knows would make it mix stretches until registers are too few.
            for _ in 0..black_box(4 / n_stretches) {
                let mut dots = [[I::splat(0); C]; 2];
                for (token, dot) in dots[0].iter_mut().enumerate() {
                    let sums = (&raw const (*x.add(token)).sums).cast::<i16>();
                    *dot = T::start::<I>(-i32::from(sums.add(at / 32).read()));
                }
                let x_quants = (&raw const (*x).quants).cast::<i8>().add(at);
                if n_stretches == 1 {
                    let lows = array::from_mut(&mut dots[0]);
                    I::dots::<T, C, 1>(lows, quants, x_quants, size_of::<Q8Block256>());
                } else {
                    I::dots::<T, C, 2>(&mut dots, quants, x_quants, size_of::<Q8Block256>());
                }
                let [lows, highs] = dots;
                let first = I::sra(I::shl(scales, 24), 32 - T::SCALE_BITS);
                let second = I::sra(I::shl(scales, 16), 32 - T::SCALE_BITS);
                for token in 0..C {
                    totals[token] = I::multiply_add(totals[token], lows[token], first);
                    if n_stretches == 2 {
                        totals[token] = I::multiply_add(totals[token], highs[token], second);
                    }
                }
                scales = I::shr(scales, 8 * n_stretches as u32);
                quants = quants.add(T::QUANTS);
                at += 32;
                keep_order();
            }
        }
        if let Excess::Offset(_) | Excess::SameMinimums = T::EXCESS {
            let offset = match T::EXCESS {
                Excess::Offset(offset) => offset,
                _ => 1,
            };
            let excess = excess::<I, T, C>(head, body, x);
            for token in 0..C {
                totals[token] = I::multiply_add(totals[token], excess[token], I::splat(-offset));
            }
        }
        let mut scales = I::halves(head);
        if T::UNIT != 1.0 {
            scales = I::multiply(scales, I::splat_float(T::UNIT));
        }
        for token in 0..C {
            let scale = I::multiply(scales, I::splat_float((*x.add(token)).scale));
            sums[0][token] = I::fused(sums[0][token], I::float(totals[token]), scale);
        }
        if let Excess::Minimums = T::EXCESS {
            let excess = excess::<I, T, C>(head, body, x);
            let scales = I::halves(head.add(32));
            for token in 0..C {
                let scale = I::multiply(scales, I::splat_float((*x.add(token)).scale));
                sums[0][token] = I::fused_minus(sums[0][token], I::float(excess[token]), scale);
            }
        }
    }
}

/// Sums what is taken away times sums of activations.
#[inline(always)]
unsafe fn excess<I: Isa, T: SuperBlockQuants, const C: usize>(
    head: *const u8,
    body: *const u8,
    x: *const Q8Block256,
) -> [I::Int; C] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut excess = [I::splat(0); C];
        for quad in 0..64 / T::STRETCH {
            let (factors, bits) = match T::EXCESS {
                Excess::Minimums | Excess::SameMinimums => (T::minimums::<I>(body, quad), 8),
                Excess::None | Excess::Offset(_) => {
                    (T::scales::<I>(head, body, quad), T::SCALE_BITS)
                }
            };
            for pair in 0..2 {
                let pairs = pairs::<I>(factors, pair, bits);
                for (token, excess) in excess.iter_mut().enumerate() {
                    let x = x.add(token);
                    let sums = match T::STRETCH {
                        32 => (&raw const (*x).sums).cast::<i16>(),
                        _ => (&raw const (*x).sums_of_16).cast(),
                    };
                    *excess = I::dot_pairs(*excess, pairs, sums.add(4 * quad + 2 * pair));
                }
            }
        }
        excess
    }
}

/// Turns two neighbouring bytes of each lane, whose upper bits are signed numbers, into 16-bit pairs.
#[inline(always)]
unsafe fn pairs<I: Isa>(bytes: I::Int, pair: usize, bits: u32) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        let shift = 16 - 16 * pair as u32;
        let low = I::sra(I::shl(bytes, shift + 8), 16 - bits);
        let high = I::sra(I::shl(bytes, shift), 16 - bits);
        let upper = I::splat(0xffff_0000_u32.cast_signed());
        I::or(I::shr(low, 16), I::and(high, upper))
    }
}

pub(super) struct Q2K;
impl Quants for Q2K {
    const QUANTS: usize = 128;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { two_bits::<I>(quants, v) }
    }
}
impl SuperBlockQuants for Q2K {
    const HEAD: usize = 64;
    const SMALL: usize = 4;
    const STRETCH: usize = 16;
    const EXCESS: Excess = Excess::Minimums;
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::and(I::load(body.add(64 * quad)), I::splat(0x0f0f_0f0f)) }
    }
    #[inline(always)]
    unsafe fn minimums<I: Isa>(body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            let both = I::load(body.add(64 * quad));
            I::and(I::shr(both, 4), I::splat(0x0f0f_0f0f))
        }
    }
}

pub(super) struct Q3K;
impl Quants for Q3K {
    const QUANTS: usize = 192;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { three_bits::<I>(quants, v) }
    }
}
impl SuperBlockQuants for Q3K {
    const HEAD: usize = 32;
    const SMALL: usize = 3;
    const STRETCH: usize = 16;
    const SCALE_BITS: u32 = 6;
    const EXCESS: Excess = Excess::Offset(4);
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            let four = I::load(body.add(64 * (quad % 2)));
            let four = if quad < 2 {
                I::shl(four, 2)
            } else {
                I::shr(four, 2)
            };
            let two = I::shl(I::load(body.add(128)), 6 - 2 * quad as u32);
            six_bit_scales::<I>(four, two)
        }
    }
}

/// Puts four and two bits of each byte together; what else is in them is left out.
#[inline(always)]
unsafe fn six_bit_scales<I: Isa>(four: I::Int, two: I::Int) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        I::or(
            I::and(four, I::splat(0x3c3c_3c3c)),
            I::and(two, I::splat(0xc0c0_c0c0_u32.cast_signed())),
        )
    }
}

pub(super) type Q4K = Q45K<false>;
pub(super) type Q5K = Q45K<true>;
/// Q4_K, or Q5_K, which has fifth bits.
pub(super) struct Q45K<const QH: bool>;
impl<const QH: bool> Quants for Q45K<QH> {
    const QUANTS: usize = if QH { 320 } else { 256 };
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            if QH {
                five_bits::<I>(quants, v)
            } else {
                nibbles::<I>(quants, v)
            }
        }
    }
}
impl<const QH: bool> SuperBlockQuants for Q45K<QH> {
    const HEAD: usize = 64;
    const SMALL: usize = 3;
    const STRETCH: usize = 32;
    const EXCESS: Excess = Excess::Minimums;
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { with_far_bits::<I>(I::load(body), I::load(body.add(128)), quad) }
    }
    #[inline(always)]
    unsafe fn minimums<I: Isa>(body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            let low = I::shr(I::load(body.add(128)), 4);
            with_far_bits::<I>(I::load(body.add(64)), low, quad)
        }
    }
}

/// Numbers of 6 bits of the first quad, or of the second one: their upper two bits lie above those.
#[inline(always)]
unsafe fn with_far_bits<I: Isa>(first: I::Int, low: I::Int, quad: usize) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        if quad == 0 {
            return I::and(first, I::splat(0x3f3f_3f3f));
        }
        let top = I::and(I::shr(first, 2), I::splat(0x3030_3030));
        I::or(I::and(low, I::splat(0x0f0f_0f0f)), top)
    }
}

pub(super) struct Q6K;
impl Quants for Q6K {
    const QUANTS: usize = 384;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { six_bits::<I>(quants, v) }
    }
}
impl SuperBlockQuants for Q6K {
    const HEAD: usize = 32;
    const SMALL: usize = 4;
    const STRETCH: usize = 16;
    const EXCESS: Excess = Excess::Offset(32);
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::load(body.add(64 * quad)) }
    }
}

pub(super) struct IQ4XS;
impl Quants for IQ4XS {
    const QUANTS: usize = 256;
    const HAVE_OFFSET: bool = true;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { steps::<I>(&STEPS, quants, v) }
    }
}
impl SuperBlockQuants for IQ4XS {
    const HEAD: usize = 64;
    const SMALL: usize = 1;
    const STRETCH: usize = 32;
    const SCALE_BITS: u32 = 6;
    const EXCESS: Excess = Excess::None;
    #[inline(always)]
    unsafe fn scales<I: Isa>(head: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            // Of 16 bits, the first pair for each of two bytes is on top, then the second one, and so on:
            // shifted copies bring each to the top of its byte.
            let two = I::shorts(head.add(32));
            let two = I::or(two, I::shl(two, 18));
            let four = I::load(body);
            if quad == 0 {
                six_bit_scales::<I>(I::shl(four, 2), two)
            } else {
                six_bit_scales::<I>(I::shr(four, 2), I::shl(two, 4))
            }
        }
    }
}

/// TQ1_0 and TQ2_0: two bits, 1 = zero, and no sub-block scales.
pub(super) struct TQ;
impl Quants for TQ {
    const QUANTS: usize = 128;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe { two_bits::<I>(quants, v) }
    }
    #[inline(always)]
    unsafe fn start<I: Isa>(minus_sum: i32) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::splat(minus_sum) }
    }
}
impl SuperBlockQuants for TQ {
    const HEAD: usize = 32;
    const SMALL: usize = 0;
    const STRETCH: usize = 32;
    const EXCESS: Excess = Excess::None;
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, _: *const u8, _: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::splat(0x0101_0101) }
    }
}

/// Reads the quants of two bits of elements `4v..` and of `16 + 4v..`.
#[inline(always)]
unsafe fn two_bits<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let (mask, by) = (I::splat(0x0303_0303), 2 * v as u32);
        let (low, high) = (
            once_ahead::<I>(quants, v),
            once_ahead::<I>(quants.add(64), v),
        );
        [
            I::and(I::shr(low, by), mask),
            I::and(I::shr(high, by), mask),
        ]
    }
}

/// As [`two_bits`], of three bits.
#[inline(always)]
unsafe fn three_bits<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = I::splat(0x0707_0707);
        if v < 3 {
            let both = I::load_ahead(quants.add(64 * v));
            return [I::and(both, mask), I::and(I::shr(both, 3), mask)];
        }
        let (two, one) = (I::splat(0x0303_0303), I::splat(0x0404_0404));
        let (low, high) = (I::load(quants), I::load(quants.add(64)));
        let tops = I::load(quants.add(128));
        [
            I::or(I::and(I::shr(low, 6), two), I::and(I::shr(tops, 4), one)),
            I::or(I::and(I::shr(high, 6), two), I::and(I::shr(tops, 5), one)),
        ]
    }
}

/// As [`nibbles`], with two high bits behind them: of the low halves, then of the high ones.
#[inline(always)]
unsafe fn six_bits<I: Isa>(body: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high] = nibbles::<I>(body, v);
        let mask = I::splat(0x3030_3030);
        let low_top = I::and(
            to_fifth_bit::<I>(once_ahead::<I>(body.add(256), v), v),
            mask,
        );
        let high_top = I::and(
            to_fifth_bit::<I>(once_ahead::<I>(body.add(320), v), v),
            mask,
        );
        [I::or(low, low_top), I::or(high, high_top)]
    }
}

/// Moves the bits `2v` and `2v + 1` of each byte to the bits 4 and 5.
#[inline(always)]
unsafe fn to_fifth_bit<I: Isa>(bits: I::Int, v: usize) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        if v < 2 {
            I::shl(bits, 4 - 2 * v as u32)
        } else {
            I::shr(bits, 2 * v as u32 - 4)
        }
    }
}

/// Numbers with a floating point.
pub(super) trait Floating {
    /// Activations of one token for one block: four bytes for each step.
    type Block;
    /// Steps of a block. In each, a vector of 16 rows and then one of 16 more meet activations.
    const STEPS: usize;
    /// Bytes of a vector.
    const BYTES: usize;
    /// Whether [`Floating::add`] is [`Isa::dot_bf16`].
    const IS_BF16: bool = false;
    /// A vector.
    type Weights<I: Isa>: Copy;

    /// Reads a vector.
    unsafe fn read<I: Isa>(from: *const u8) -> Self::Weights<I>;
    /// Adds the products of a vector with the four bytes at `x`.
    unsafe fn add<I: Isa>(sum: I::Float, weights: Self::Weights<I>, x: *const i32) -> I::Float;
}

/// F32.
pub(super) struct F32;
impl Floating for F32 {
    type Block = F32Block;
    const STEPS: usize = 32;
    const BYTES: usize = 64;
    type Weights<I: Isa> = I::Float;

    #[inline(always)]
    unsafe fn read<I: Isa>(from: *const u8) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::numbers(from) }
    }

    #[inline(always)]
    unsafe fn add<I: Isa>(sum: I::Float, weights: I::Float, x: *const i32) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::fused(sum, weights, I::splat_float(x.cast::<f32>().read())) }
    }
}

/// F16.
pub(super) struct F16;
impl Floating for F16 {
    type Block = F32Block;
    const STEPS: usize = 32;
    const BYTES: usize = 32;
    type Weights<I: Isa> = I::Float;

    #[inline(always)]
    unsafe fn read<I: Isa>(from: *const u8) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::halves(from) }
    }

    #[inline(always)]
    unsafe fn add<I: Isa>(sum: I::Float, weights: I::Float, x: *const i32) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::fused(sum, weights, I::splat_float(x.cast::<f32>().read())) }
    }
}

/// BF16.
pub(super) struct BF16;
impl Floating for BF16 {
    type Block = Bf16Block;
    const STEPS: usize = 16;
    const BYTES: usize = 64;
    const IS_BF16: bool = true;
    type Weights<I: Isa> = I::Int;

    #[inline(always)]
    unsafe fn read<I: Isa>(from: *const u8) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe { I::load(from) }
    }

    #[inline(always)]
    unsafe fn add<I: Isa>(sum: I::Float, weights: I::Int, x: *const i32) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::dot_bf16(sum, weights, x) }
    }
}

macro_rules! floating_formats {
    ($($name:ident)*) => {$(
        impl Format for $name {
            const LAYOUT: Layout = Layout {
                head: 0,
                body: 2 * $name::STEPS * $name::BYTES,
                rows: 32,
            };
            const IS_BF16: bool = <$name as Floating>::IS_BF16;
            const LANE_BYTES: usize = $name::BYTES / 16;
            type Block = <$name as Floating>::Block;
            #[inline(always)]
            unsafe fn block<I: Isa, const C: usize>(
                _: *const u8,
                body: *const u8,
                x: *const Self::Block,
                sums: &mut Sums<I, C>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { floating_block::<I, $name, C>(body, x, sums) }
            }
        }
    )*};
}

floating_formats!(F32 F16 BF16);

#[inline(always)]
unsafe fn floating_block<I: Isa, T: Floating, const C: usize>(
    body: *const u8,
    x: *const T::Block,
    sums: &mut Sums<I, C>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if I::HAS_MANY_REGISTERS {
            floating_tokens::<I, T, C, C>(body, x, 0, sums);
        } else {
            for token in (0..C / 2 * 2).step_by(2) {
                floating_tokens::<I, T, C, 2>(body, x, token, sums);
            }
            if !C.is_multiple_of(2) {
                floating_tokens::<I, T, C, 1>(body, x, C - 1, sums);
            }
        }
    }
}

/// As [`Format::block`] for `N` of the tokens: as many as there are registers for their sums.
#[inline(always)]
unsafe fn floating_tokens<I: Isa, T: Floating, const C: usize, const N: usize>(
    body: *const u8,
    x: *const T::Block,
    first: usize,
    sums: &mut Sums<I, C>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut products = [[I::zeros(); N]; 2];
        for step in 0..T::STEPS {
            let at = body.add(2 * T::BYTES * step);
            let weights = [T::read::<I>(at), T::read::<I>(at.add(T::BYTES))];
            for line in (0..2 * T::BYTES).step_by(64) {
                I::prefetch(at.wrapping_add(line + AHEAD));
            }
            for token in 0..N {
                let x = x.add(first + token).cast::<i32>().add(step);
                for (products, weights) in products.iter_mut().zip(weights) {
                    products[token] = T::add::<I>(products[token], weights, x);
                }
            }
        }
        for (sums, products) in sums.iter_mut().zip(products) {
            for (sum, products) in sums[first..].iter_mut().zip(products) {
                *sum = I::add(*sum, products);
            }
        }
    }
}
