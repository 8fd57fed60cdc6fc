//! Types with a floating point.

use super::{Format, Layout, Sums};
use crate::packed::{
    activations::{Bf16Block, F32Block},
    isa::Isa,
};

/// Numbers with a floating point.
pub(in super::super) trait Floating {
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
pub(in super::super) struct F32;
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
pub(in super::super) struct F16;
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
pub(in super::super) struct BF16;
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
        if 2 * C <= I::SUMS {
            floating_tokens::<I, T, C, C>(body, x, 0, sums);
            return;
        }
        let in_fours = if 2 * 4 <= I::SUMS { C / 4 * 4 } else { 0 };
        for token in (0..in_fours).step_by(4) {
            floating_tokens::<I, T, C, 4>(body, x, token, sums);
        }
        for token in (in_fours..C / 2 * 2).step_by(2) {
            floating_tokens::<I, T, C, 2>(body, x, token, sums);
        }
        if !C.is_multiple_of(2) {
            floating_tokens::<I, T, C, 1>(body, x, C - 1, sums);
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
                I::prefetch_ahead(at.wrapping_add(line));
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
