//! Vectors of 128 bits: four, two or one.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function is an instruction for each vector; the trait's contract is theirs"
)]

#[expect(
    clippy::wildcard_imports,
    reason = "names of instructions, each of which says what it is"
)]
use std::arch::aarch64::*;
use std::{arch::asm, array::from_fn};

use super::{Isa, Quants, dots_of_each};

/// NEON with dot products and conversions of half precision, `V` vectors at a time, with or without
/// products of matrices.
#[derive(Clone, Copy)]
pub(in super::super) struct Neon<const V: usize, const I8MM: bool>;

type Ints<const V: usize> = [int32x4_t; V];
type Floats<const V: usize> = [float32x4_t; V];

impl<const V: usize, const I8MM: bool> Isa for Neon<V, I8MM> {
    const LANES: usize = 4 * V;
    type Int = Ints<V>;
    type Float = Floats<V>;
    type Sixteen = int8x16_t;
    const SUMS: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Ints<V> {
        from_fn(|at| vreinterpretq_s32_u8(vld1q_u8(from.add(16 * at))))
    }

    #[inline(always)]
    unsafe fn shorts(from: *const u8) -> Ints<V> {
        from_fn(|at| {
            let shorts = vreinterpret_u16_u8(vld1_u8(from.add(8 * at)));
            vreinterpretq_s32_u32(vmovl_u16(shorts))
        })
    }

    #[inline(always)]
    unsafe fn splat(value: i32) -> Ints<V> {
        [vdupq_n_s32(value); V]
    }

    #[inline(always)]
    unsafe fn and(a: Ints<V>, b: Ints<V>) -> Ints<V> {
        from_fn(|at| vandq_s32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn or(a: Ints<V>, b: Ints<V>) -> Ints<V> {
        from_fn(|at| vorrq_s32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn shl(a: Ints<V>, by: u32) -> Ints<V> {
        let by = vdupq_n_s32(by.cast_signed());
        a.map(|a| vshlq_s32(a, by))
    }

    #[inline(always)]
    unsafe fn shr(a: Ints<V>, by: u32) -> Ints<V> {
        // Shifts to the left by less than nothing are shifts to the right.
        let by = vdupq_n_s32(-by.cast_signed());
        a.map(|a| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), by)))
    }

    #[inline(always)]
    unsafe fn sra(a: Ints<V>, by: u32) -> Ints<V> {
        let by = vdupq_n_s32(-by.cast_signed());
        a.map(|a| vshlq_s32(a, by))
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], quants: Ints<V>) -> Ints<V> {
        let table = vld1q_u8(table.as_ptr());
        quants.map(|quants| vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(quants))))
    }

    #[inline(always)]
    unsafe fn sixteen(x: *const i8) -> int8x16_t {
        vld1q_s8(x)
    }

    /// Quants below 128 are the same signed.
    #[inline(always)]
    unsafe fn dot<const AT: usize>(sum: Ints<V>, quants: Ints<V>, x: int8x16_t) -> Ints<V> {
        from_fn(|at| add_products::<AT>(sum[at], quants[at], x))
    }

    #[inline(always)]
    unsafe fn start_offset(_: i32) -> Ints<V> {
        Self::splat(0)
    }

    #[inline(always)]
    unsafe fn dot_offset<const AT: usize>(sum: Ints<V>, quants: Ints<V>, x: int8x16_t) -> Ints<V> {
        Self::dot::<AT>(sum, quants.map(|quants| without_offset(quants)), x)
    }

    /// Where tokens are in pairs, sums are those of two of them with two rows meanwhile.
    #[inline(always)]
    unsafe fn dots<T: Quants, const C: usize, const N: usize>(
        sums: &mut [[Ints<V>; C]; N],
        quants: *const u8,
        x: *const i8,
        stride: usize,
    ) {
        let n_paired = if I8MM { C / 2 * 2 } else { 0 };
        exchange(sums, n_paired);
        unrolled!(EIGHT in [0 1] {
            let even = T::read::<Self>(quants, 2 * EIGHT);
            let odd = T::read::<Self>(quants, 2 * EIGHT + 1);
            unrolled!(HALF in [0 1] {
                // Eight quants of a row, and then of the next.
                let mut upper: Ints<V> = from_fn(|at| vzip1q_s32(even[HALF][at], odd[HALF][at]));
                let mut lower: Ints<V> = from_fn(|at| vzip2q_s32(even[HALF][at], odd[HALF][at]));
                if T::HAVE_OFFSET {
                    upper = upper.map(|quants| without_offset(quants));
                    lower = lower.map(|quants| without_offset(quants));
                }
                for (pair, sums) in sums[HALF % N][..n_paired].as_chunks_mut().0.iter_mut().enumerate() {
                    let x = vld1q_s8(x.add((2 * pair + EIGHT) * stride + 16 * HALF));
                    let [a, b] = *sums;
                    *sums = [
                        from_fn(|at| add_products_of_pairs(a[at], x, upper[at])),
                        from_fn(|at| add_products_of_pairs(b[at], x, lower[at])),
                    ];
                }
            });
        });
        exchange(sums, n_paired);
        dots_of_each::<Self, T, C, N>(sums, n_paired, quants, x, stride);
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: Ints<V>, pairs: Ints<V>, x: *const i16) -> Ints<V> {
        let (low, high) = (i32::from(x.read()), i32::from(x.add(1).read()));
        from_fn(|at| {
            let even = vshrq_n_s32::<16>(vshlq_n_s32::<16>(pairs[at]));
            let odd = vshrq_n_s32::<16>(pairs[at]);
            vmlaq_n_s32(vmlaq_n_s32(sum[at], even, low), odd, high)
        })
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: Ints<V>, a: Ints<V>, b: Ints<V>) -> Ints<V> {
        from_fn(|at| vmlaq_s32(sum[at], a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn float(a: Ints<V>) -> Floats<V> {
        a.map(|a| vcvtq_f32_s32(a))
    }

    #[inline(always)]
    unsafe fn zeros() -> Floats<V> {
        [vdupq_n_f32(0.0); V]
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> Floats<V> {
        [vdupq_n_f32(value); V]
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Floats<V> {
        from_fn(|at| widen_half(vld1_u8(from.add(8 * at))))
    }

    #[inline(always)]
    unsafe fn numbers(from: *const u8) -> Floats<V> {
        from_fn(|at| vreinterpretq_f32_u8(vld1q_u8(from.add(16 * at))))
    }

    #[inline(always)]
    unsafe fn from_bits(a: Ints<V>) -> Floats<V> {
        a.map(|a| vreinterpretq_f32_s32(a))
    }

    #[inline(always)]
    unsafe fn add(a: Floats<V>, b: Floats<V>) -> Floats<V> {
        from_fn(|at| vaddq_f32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn multiply(a: Floats<V>, b: Floats<V>) -> Floats<V> {
        from_fn(|at| vmulq_f32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn fused(sum: Floats<V>, a: Floats<V>, b: Floats<V>) -> Floats<V> {
        from_fn(|at| vfmaq_f32(sum[at], a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn fused_minus(sum: Floats<V>, a: Floats<V>, b: Floats<V>) -> Floats<V> {
        from_fn(|at| vfmsq_f32(sum[at], a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: Floats<V>) {
        for (at, a) in a.into_iter().enumerate() {
            vst1q_f32(to.add(4 * at), a);
        }
    }
}

/// Takes 128 away from each code: they are signed then.
#[inline(always)]
unsafe fn without_offset(quants: int32x4_t) -> int32x4_t {
    veorq_s32(quants, vreinterpretq_s32_u8(vdupq_n_u8(128)))
}

/// Makes sums of four rows with each of two tokens out of sums of two rows, and of two more, with both;
/// and the other way round.
#[inline(always)]
unsafe fn exchange<const V: usize, const C: usize, const N: usize>(
    sums: &mut [[Ints<V>; C]; N],
    n_tokens: usize,
) {
    for sums in sums {
        for [a, b] in sums[..n_tokens].as_chunks_mut().0 {
            for (a, b) in a.iter_mut().zip(b) {
                let pair = (vreinterpretq_s64_s32(*a), vreinterpretq_s64_s32(*b));
                *a = vreinterpretq_s32_s64(vzip1q_s64(pair.0, pair.1));
                *b = vreinterpretq_s32_s64(vzip2q_s64(pair.0, pair.1));
            }
        }
    }
}

/// Adds to each lane the products of its four signed bytes with the four from `4 * AT` on of `x`. The
/// compiler has no stable name for the instruction.
#[inline(always)]
unsafe fn add_products<const AT: usize>(
    sum: int32x4_t,
    quants: int32x4_t,
    x: int8x16_t,
) -> int32x4_t {
    let mut sum = sum;
    asm!(
        ".arch_extension dotprod",
        "sdot {sum:v}.4s, {quants:v}.16b, {x:v}.4b[{at}]",
        sum = inout(vreg) sum,
        quants = in(vreg) quants,
        x = in(vreg) x,
        at = const AT,
        options(pure, nomem, nostack, preserves_flags),
    );
    sum
}

/// Adds the products of eight signed bytes of two tokens with those of two rows: to the first two lanes
/// for the first token, and to the others for the second. Nor has this a stable name.
#[inline(always)]
unsafe fn add_products_of_pairs(sum: int32x4_t, tokens: int8x16_t, rows: int32x4_t) -> int32x4_t {
    let mut sum = sum;
    asm!(
        ".arch_extension i8mm",
        "smmla {sum:v}.4s, {tokens:v}.16b, {rows:v}.16b",
        sum = inout(vreg) sum,
        tokens = in(vreg) tokens,
        rows = in(vreg) rows,
        options(pure, nomem, nostack, preserves_flags),
    );
    sum
}

/// Converts four numbers of half precision.
#[inline(always)]
unsafe fn widen_half(halves: uint8x8_t) -> float32x4_t {
    let out: float32x4_t;
    asm!(
        "fcvtl {out:v}.4s, {halves:v}.4h",
        out = lateout(vreg) out,
        halves = in(vreg) halves,
        options(pure, nomem, nostack, preserves_flags),
    );
    out
}
