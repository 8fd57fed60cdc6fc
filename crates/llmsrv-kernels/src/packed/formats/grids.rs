//! Types whose elements are points of a grid: IQ1, IQ2 and IQ3.
//!
//! Indices of a grid would have to be looked up element by element, which no processor does fast. So when
//! a model is loaded each element becomes a code for its own value, of which a type has six (three bits)
//! or sixteen (a nibble), and a table in a register turns codes into values. That costs memory:
//!
//! | type | bits of an element in the file | packed | |
//! |---|---|---|---|
//! | IQ1_S | 1.56 | 2.19 | + 40 % |
//! | IQ1_M | 1.75 | 3.31 | + 89 % |
//! | IQ2_XXS | 2.06 | 3.19 | + 55 % |
//! | IQ2_XS | 2.31 | 3.31 | + 43 % |
//! | IQ2_S | 2.56 | 3.31 | + 29 % |
//! | IQ3_XXS | 3.06 | 4.19 | + 37 % |
//! | IQ3_S | 3.44 | 4.19 | + 22 % |
//!
//! In the lower half of byte `i` of the first vector of sub-block scales is the number of stretch `i`, in
//! the upper one that of `4 + i`; where stretches are of 16 elements, the second vector has those from 8 on.

use super::{
    Format, Isa, Layout, Quants, Sums,
    blocks::nibbles,
    super_blocks::{Excess, SuperBlockQuants, long_block, long_formats, three_bits, two_bits},
};
use crate::packed::activations::Q8Block256;
use crate::quant::{GridFormat, Iq1M, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};

/// A type of which each element is a code that stands for a level.
pub(in super::super) struct Leveled<T>(std::marker::PhantomData<T>);

pub(in super::super) type IQ1M = Leveled<Iq1M>;
pub(in super::super) type IQ2XXS = Leveled<Iq2Xxs>;
pub(in super::super) type IQ2XS = Leveled<Iq2Xs>;
pub(in super::super) type IQ2S = Leveled<Iq2S>;
pub(in super::super) type IQ3XXS = Leveled<Iq3Xxs>;
pub(in super::super) type IQ3S = Leveled<Iq3S>;

impl<T: GridFormat> Leveled<T> {
    /// What is added to levels, so that none is negative.
    const OFFSET: i8 = {
        let (mut lowest, mut code) = (0, 0);
        while code < 16 {
            if T::LEVELS[code] < lowest {
                lowest = T::LEVELS[code];
            }
            code += 1;
        }
        -lowest
    };
    /// Levels to which that is added.
    const STEPS: [u8; 16] = {
        let (mut steps, mut code) = ([0; 16], 0);
        while code < 16 {
            steps[code] = (T::LEVELS[code] + Self::OFFSET).cast_unsigned();
            code += 1;
        }
        steps
    };
}

impl<T: GridFormat> Quants for Leveled<T> {
    const QUANTS: usize = 64 * T::CODE_BITS;
    #[inline(always)]
    unsafe fn read<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [low, high] = match T::CODE_BITS {
                3 => three_bits::<I>(quants, v),
                _ => nibbles::<I>(quants, v),
            };
            [I::lookup(&Self::STEPS, low), I::lookup(&Self::STEPS, high)]
        }
    }
}

impl<T: GridFormat> SuperBlockQuants for Leveled<T> {
    const HEAD: usize = 32;
    const SMALL: usize = 32 / T::STRETCH;
    const STRETCH: usize = T::STRETCH;
    const EXCESS: Excess = Excess::Offset(Self::OFFSET as i32);
    const UNIT: f32 = T::UNIT;
    /// `2n + 1` for the number `n` of a stretch.
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            let both = I::load(body.add(64 * (quad / 2)));
            let doubled = match quad % 2 {
                0 => I::shl(both, 1),
                _ => I::shr(both, 3),
            };
            I::or(
                I::and(doubled, I::splat(0x1e1e_1e1e)),
                I::splat(0x0101_0101),
            )
        }
    }
}

impl<T: GridFormat> Format for Leveled<T> {
    const LAYOUT: Layout = Layout {
        head: <Self as SuperBlockQuants>::HEAD,
        body: 64 * Self::SMALL + 8 * Self::QUANTS,
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
        unsafe { long_block::<I, Self, C>(head, body, x, sums) }
    }
}

/// IQ1_S shifts whole stretches by an eighth, so its elements need no more than two bits: products count
/// eighths, and the shift is a minimum of the stretch. Its sign is above the three bits of the number.
pub(in super::super) struct IQ1S;
impl Quants for IQ1S {
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
impl SuperBlockQuants for IQ1S {
    const HEAD: usize = 32;
    const SMALL: usize = 1;
    const STRETCH: usize = 32;
    const EXCESS: Excess = Excess::SameMinimums;
    const UNIT: f32 = 0.125;
    /// `8 * (2n + 1)`.
    #[inline(always)]
    unsafe fn scales<I: Isa>(_: *const u8, body: *const u8, quad: usize) -> I::Int {
        // SAFETY: the caller's promise.
        unsafe {
            let both = I::load(body);
            let above = if quad == 0 { I::shl(both, 4) } else { both };
            I::or(I::and(above, I::splat(0x7070_7070)), I::splat(0x0808_0808))
        }
    }
    /// `-(2n + 1)`, or `2n + 1` where elements are shifted down.
    #[inline(always)]
    unsafe fn minimums<I: Isa>(body: *const u8, quad: usize) -> I::Int {
        static MINIMUMS: [u8; 16] = {
            let (mut minimums, mut n) = ([0; 16], 0);
            while n < 8 {
                minimums[n] = (-(2 * n as i8 + 1)).cast_unsigned();
                minimums[n + 8] = 2 * n as u8 + 1;
                n += 1;
            }
            minimums
        };
        // SAFETY: the caller's promise.
        unsafe {
            let both = I::load(body);
            let four = if quad == 0 { both } else { I::shr(both, 4) };
            I::lookup(&MINIMUMS, I::and(four, I::splat(0x0f0f_0f0f)))
        }
    }
}

long_formats!(IQ1S);
