//! Types with blocks of 32 elements.

use super::{Format, Layout, Quants, Sums};
use crate::{
    packed::{activations::Q8Block32, isa::Isa},
    quant::{IQ4_STEPS, MXFP4_DOUBLED},
};

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
pub(super) unsafe fn nibbles<I: Isa>(body: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let both = I::load_ahead(body.add(64 * v));
        let mask = I::splat(0x0f0f_0f0f);
        [I::and(both, mask), I::and(I::shr(both, 4), mask)]
    }
}

/// As [`nibbles`], with the fifth bits behind them.
#[inline(always)]
pub(super) unsafe fn five_bits<I: Isa>(body: *const u8, v: usize) -> [I::Int; 2] {
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
pub(super) unsafe fn once_ahead<I: Isa>(from: *const u8, v: usize) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        match v {
            0 => I::load_ahead(from),
            _ => I::load(from),
        }
    }
}

pub(in super::super) struct Q4_0;
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

pub(in super::super) struct Q4_1;
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

pub(in super::super) struct Q5_0;
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

pub(in super::super) struct Q5_1;
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

pub(in super::super) struct Q8_0;
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

pub(in super::super) struct IQ4NL;
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

pub(in super::super) struct MXFP4;
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
pub(super) unsafe fn steps<I: Isa>(steps: &[u8; 16], body: *const u8, v: usize) -> [I::Int; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let [low, high] = nibbles::<I>(body, v);
        [I::lookup(steps, low), I::lookup(steps, high)]
    }
}

/// The steps of the IQ4 formats, to which 128 is added.
pub(super) static STEPS: [u8; 16] = with_offset(&IQ4_STEPS);
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
