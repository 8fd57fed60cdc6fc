//! Four vectors of 128 bits.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function is an instruction for each vector; the trait's contract is theirs"
)]

use std::{
    arch::{aarch64::*, asm},
    array::from_fn,
};

use super::Isa;

/// NEON with dot products and conversions of half precision.
#[derive(Clone, Copy)]
pub(in super::super) struct Neon;

type Ints = [int32x4_t; 4];
type Floats = [float32x4_t; 4];

impl Isa for Neon {
    type Int = Ints;
    type Float = Floats;
    const HAS_MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Ints {
        from_fn(|at| vreinterpretq_s32_u8(vld1q_u8(from.add(16 * at))))
    }

    #[inline(always)]
    unsafe fn shorts(from: *const u8) -> Ints {
        from_fn(|at| {
            let shorts = vreinterpret_u16_u8(vld1_u8(from.add(8 * at)));
            vreinterpretq_s32_u32(vmovl_u16(shorts))
        })
    }

    #[inline(always)]
    unsafe fn splat(value: i32) -> Ints {
        [vdupq_n_s32(value); 4]
    }

    #[inline(always)]
    unsafe fn and(a: Ints, b: Ints) -> Ints {
        from_fn(|at| vandq_s32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn or(a: Ints, b: Ints) -> Ints {
        from_fn(|at| vorrq_s32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn shl(a: Ints, by: u32) -> Ints {
        let by = vdupq_n_s32(by.cast_signed());
        a.map(|a| vshlq_s32(a, by))
    }

    #[inline(always)]
    unsafe fn shr(a: Ints, by: u32) -> Ints {
        // Shifts to the left by less than nothing are shifts to the right.
        let by = vdupq_n_s32(-by.cast_signed());
        a.map(|a| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), by)))
    }

    #[inline(always)]
    unsafe fn sra(a: Ints, by: u32) -> Ints {
        let by = vdupq_n_s32(-by.cast_signed());
        a.map(|a| vshlq_s32(a, by))
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], codes: Ints) -> Ints {
        let table = vld1q_u8(table.as_ptr());
        codes.map(|codes| vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(codes))))
    }

    /// Codes below 128 are the same signed.
    #[inline(always)]
    unsafe fn dot(sum: Ints, codes: Ints, x: *const i8) -> Ints {
        let x = vdupq_n_s32(x.cast::<i32>().read_unaligned());
        from_fn(|at| add_products(sum[at], codes[at], x))
    }

    #[inline(always)]
    unsafe fn start_offset(_: i32) -> Ints {
        Self::splat(0)
    }

    #[inline(always)]
    unsafe fn dot_offset(sum: Ints, codes: Ints, x: *const i8) -> Ints {
        let x = vdupq_n_s32(x.cast::<i32>().read_unaligned());
        let top = vreinterpretq_s32_u8(vdupq_n_u8(128));
        from_fn(|at| add_products(sum[at], veorq_s32(codes[at], top), x))
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: Ints, pairs: Ints, x: *const i16) -> Ints {
        let (low, high) = (i32::from(x.read()), i32::from(x.add(1).read()));
        from_fn(|at| {
            let even = vshrq_n_s32::<16>(vshlq_n_s32::<16>(pairs[at]));
            let odd = vshrq_n_s32::<16>(pairs[at]);
            vmlaq_n_s32(vmlaq_n_s32(sum[at], even, low), odd, high)
        })
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: Ints, a: Ints, b: Ints) -> Ints {
        from_fn(|at| vmlaq_s32(sum[at], a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn float(a: Ints) -> Floats {
        a.map(|a| vcvtq_f32_s32(a))
    }

    #[inline(always)]
    unsafe fn zeros() -> Floats {
        [vdupq_n_f32(0.0); 4]
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> Floats {
        [vdupq_n_f32(value); 4]
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Floats {
        from_fn(|at| widen_half(vld1_u8(from.add(8 * at))))
    }

    #[inline(always)]
    unsafe fn numbers(from: *const u8) -> Floats {
        from_fn(|at| vreinterpretq_f32_u8(vld1q_u8(from.add(16 * at))))
    }

    #[inline(always)]
    unsafe fn from_bits(a: Ints) -> Floats {
        a.map(|a| vreinterpretq_f32_s32(a))
    }

    #[inline(always)]
    unsafe fn add(a: Floats, b: Floats) -> Floats {
        from_fn(|at| vaddq_f32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn multiply(a: Floats, b: Floats) -> Floats {
        from_fn(|at| vmulq_f32(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn fused(sum: Floats, a: Floats, b: Floats) -> Floats {
        from_fn(|at| vfmaq_f32(sum[at], a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn fused_minus(sum: Floats, a: Floats, b: Floats) -> Floats {
        from_fn(|at| vfmsq_f32(sum[at], a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: Floats) {
        for (at, a) in a.into_iter().enumerate() {
            vst1q_f32(to.add(4 * at), a);
        }
    }
}

/// Adds products of signed bytes, four to a lane. The compiler has no stable name for the instruction.
#[inline(always)]
unsafe fn add_products(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    let mut sum = sum;
    asm!(
        ".arch_extension dotprod",
        "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
        sum = inout(vreg) sum,
        a = in(vreg) a,
        b = in(vreg) b,
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
