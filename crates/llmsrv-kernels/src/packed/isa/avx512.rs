//! One vector of 512 bits.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function is an instruction or two; the trait's contract is theirs"
)]

#[allow(
    clippy::wildcard_imports,
    reason = "names of instructions, each of which says what it is"
)]
use std::arch::x86_64::*;
use std::mem::transmute;

use super::{AHEAD, Isa, L1_AHEAD, L2_AHEAD, dot_widened};

/// AVX-512 F, BW, VL and VNNI, with or without BF16, for few tokens or for many.
#[derive(Clone, Copy)]
pub(in super::super) struct Avx512<const BF16: bool, const MANY: bool>;

impl<const BF16: bool, const MANY: bool> Isa for Avx512<BF16, MANY> {
    const LANES: usize = 16;
    type Int = __m512i;
    type Float = __m512;
    type Sixteen = *const i8;
    const SUMS: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        _mm512_loadu_si512(from.cast())
    }

    #[inline(always)]
    unsafe fn prefetch_ahead(of: *const u8) {
        if MANY {
            _mm_prefetch::<_MM_HINT_T1>(of.wrapping_add(L2_AHEAD).cast());
            _mm_prefetch::<_MM_HINT_T0>(of.wrapping_add(L1_AHEAD).cast());
        } else {
            _mm_prefetch::<_MM_HINT_T0>(of.wrapping_add(AHEAD).cast());
        }
    }

    #[inline(always)]
    unsafe fn shorts(from: *const u8) -> __m512i {
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))
    }

    #[inline(always)]
    unsafe fn splat(value: i32) -> __m512i {
        _mm512_set1_epi32(value)
    }

    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        _mm512_and_si512(a, b)
    }

    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        _mm512_or_si512(a, b)
    }

    #[inline(always)]
    unsafe fn shl(a: __m512i, by: u32) -> __m512i {
        _mm512_sllv_epi32(a, _mm512_set1_epi32(by.cast_signed()))
    }

    #[inline(always)]
    unsafe fn shr(a: __m512i, by: u32) -> __m512i {
        _mm512_srlv_epi32(a, _mm512_set1_epi32(by.cast_signed()))
    }

    #[inline(always)]
    unsafe fn sra(a: __m512i, by: u32) -> __m512i {
        _mm512_srav_epi32(a, _mm512_set1_epi32(by.cast_signed()))
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], quants: __m512i) -> __m512i {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        _mm512_shuffle_epi8(table, quants)
    }

    #[inline(always)]
    unsafe fn sixteen(x: *const i8) -> *const i8 {
        x
    }

    #[inline(always)]
    unsafe fn dot<const V: usize>(sum: __m512i, quants: __m512i, x: *const i8) -> __m512i {
        _mm512_dpbusd_epi32(
            sum,
            quants,
            _mm512_set1_epi32(x.add(4 * V).cast::<i32>().read_unaligned()),
        )
    }

    /// The instruction takes quants as unsigned, so what is too much is taken away first.
    #[inline(always)]
    unsafe fn start_offset(minus_sum: i32) -> __m512i {
        _mm512_slli_epi32::<7>(_mm512_set1_epi32(minus_sum))
    }

    #[inline(always)]
    unsafe fn dot_offset<const V: usize>(sum: __m512i, quants: __m512i, x: *const i8) -> __m512i {
        Self::dot::<V>(sum, quants, x)
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: __m512i, pairs: __m512i, x: *const i16) -> __m512i {
        _mm512_dpwssd_epi32(
            sum,
            pairs,
            _mm512_set1_epi32(x.cast::<i32>().read_unaligned()),
        )
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b))
    }

    #[inline(always)]
    unsafe fn multiply_add_shorts(sum: __m512i, a: [__m512i; 2], b: [__m512i; 2]) -> __m512i {
        let pairs = |[low, high]: [__m512i; 2]| {
            _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_slli_epi32::<16>(high))
        };
        _mm512_dpwssd_epi32(sum, pairs(a), pairs(b))
    }

    #[inline(always)]
    unsafe fn float(a: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(a)
    }

    #[inline(always)]
    unsafe fn zeros() -> __m512 {
        _mm512_setzero_ps()
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }

    #[inline(always)]
    unsafe fn numbers(from: *const u8) -> __m512 {
        _mm512_loadu_ps(from.cast())
    }

    #[inline(always)]
    unsafe fn from_bits(a: __m512i) -> __m512 {
        _mm512_castsi512_ps(a)
    }

    #[inline(always)]
    unsafe fn dot_bf16(sum: __m512, pairs: __m512i, x: *const i32) -> __m512 {
        if BF16 {
            // SAFETY: vectors of 512 bits, all of whose values are valid.
            let pairs: __m512bh = transmute(pairs);
            // SAFETY: as above.
            let x: __m512bh = transmute(_mm512_set1_epi32(x.read()));
            _mm512_dpbf16_ps(sum, pairs, x)
        } else {
            dot_widened::<Self>(sum, pairs, x.read())
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn fused(sum: __m512, a: __m512, b: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, sum)
    }

    #[inline(always)]
    unsafe fn fused_minus(sum: __m512, a: __m512, b: __m512) -> __m512 {
        _mm512_fnmadd_ps(a, b, sum)
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: __m512) {
        _mm512_storeu_ps(to, a);
    }
}
