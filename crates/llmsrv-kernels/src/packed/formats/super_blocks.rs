//! Types with blocks of 256 elements.

use std::{array, hint::black_box};

use super::{
    Format, Layout, Quants, Sums,
    blocks::{STEPS, five_bits, nibbles, once_ahead, steps},
    keep_order,
};
use crate::packed::{activations::Q8Block256, isa::Isa};

/// Types with blocks of 256 elements and sub-block scales for stretches of them. Vectors of sub-block scales lie
/// before the quants.
pub(super) trait SuperBlockQuants: Quants {
    const HEAD: usize;
    /// Vectors of sub-block scales.
    const SMALL: usize;
    /// Elements of a stretch: 16 or 32.
    const STRETCH: usize;
    /// Whether the sum of a stretch fits 16 bits with a sign, as it does where quants are below 16 and stretches short.
    const SHORT_SUMS: bool = false;
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
pub(super) enum Excess {
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

pub(super) use long_formats;

long_formats!(Q2K Q3K Q4K Q5K Q6K IQ4XS TQ);

#[inline(always)]
pub(super) unsafe fn long_block<I: Isa, T: SuperBlockQuants, const C: usize>(
    head: *const u8,
    body: *const u8,
    x: *const Q8Block256,
    sums: &mut Sums<I, C>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for vector in 0..T::SMALL {
            I::prefetch_ahead(body.wrapping_add(64 * vector));
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
                // What puts two sums together pays where multiplying is what takes time.
                for token in 0..C {
                    let (total, low, high) = (totals[token], lows[token], highs[token]);
                    totals[token] = if T::SHORT_SUMS && C > 2 {
                        I::multiply_add_shorts(total, [low, high], [first, second])
                    } else if n_stretches == 2 {
                        I::multiply_add(I::multiply_add(total, low, first), high, second)
                    } else {
                        I::multiply_add(total, low, first)
                    };
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

pub(in super::super) struct Q2K;
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
    const SHORT_SUMS: bool = true;
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

pub(in super::super) struct Q3K;
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
    const SHORT_SUMS: bool = true;
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

pub(in super::super) type Q4K = Q45K<false>;
pub(in super::super) type Q5K = Q45K<true>;
/// Q4_K, or Q5_K, which has fifth bits.
pub(in super::super) struct Q45K<const QH: bool>;
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

pub(in super::super) struct Q6K;
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

pub(in super::super) struct IQ4XS;
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
pub(in super::super) struct TQ;
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
pub(super) unsafe fn two_bits<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
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
pub(super) unsafe fn three_bits<I: Isa>(quants: *const u8, v: usize) -> [I::Int; 2] {
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
