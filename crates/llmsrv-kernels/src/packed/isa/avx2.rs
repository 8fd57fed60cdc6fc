//! Two vectors of 256 bits.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function is a few instructions; the trait's contract is theirs"
)]

#[allow(
    clippy::wildcard_imports,
    reason = "names of instructions, each of which says what it is"
)]
use std::arch::x86_64::*;

use super::{AHEAD, Isa};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(in super::super) struct Avx2;

type Ints = [__m256i; 2];
type Floats = [__m256; 2];

impl Isa for Avx2 {
    const LANES: usize = 16;
    type Int = Ints;
    type Float = Floats;
    type Sixteen = *const i8;
    const HAS_MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Ints {
        [
            _mm256_loadu_si256(from.cast()),
            _mm256_loadu_si256(from.add(32).cast()),
        ]
    }

    #[inline(always)]
    unsafe fn prefetch_ahead(of: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(of.wrapping_add(AHEAD).cast());
    }

    #[inline(always)]
    unsafe fn shorts(from: *const u8) -> Ints {
        [
            _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(16).cast())),
        ]
    }

    #[inline(always)]
    unsafe fn splat(value: i32) -> Ints {
        [_mm256_set1_epi32(value); 2]
    }

    #[inline(always)]
    unsafe fn and(a: Ints, b: Ints) -> Ints {
        [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])]
    }

    #[inline(always)]
    unsafe fn or(a: Ints, b: Ints) -> Ints {
        [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
    }

    #[inline(always)]
    unsafe fn shl(a: Ints, by: u32) -> Ints {
        let by = _mm256_set1_epi32(by.cast_signed());
        [_mm256_sllv_epi32(a[0], by), _mm256_sllv_epi32(a[1], by)]
    }

    #[inline(always)]
    unsafe fn shr(a: Ints, by: u32) -> Ints {
        let by = _mm256_set1_epi32(by.cast_signed());
        [_mm256_srlv_epi32(a[0], by), _mm256_srlv_epi32(a[1], by)]
    }

    #[inline(always)]
    unsafe fn sra(a: Ints, by: u32) -> Ints {
        let by = _mm256_set1_epi32(by.cast_signed());
        [_mm256_srav_epi32(a[0], by), _mm256_srav_epi32(a[1], by)]
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], quants: Ints) -> Ints {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        quants.map(|quants| _mm256_shuffle_epi8(table, quants))
    }

    #[inline(always)]
    unsafe fn sixteen(x: *const i8) -> *const i8 {
        x
    }

    /// Sums of two products fit 16 bits: 2 * 127 * 127 < 2^15.
    #[inline(always)]
    unsafe fn dot<const V: usize>(sum: Ints, quants: Ints, x: *const i8) -> Ints {
        let x = _mm256_set1_epi32(x.add(4 * V).cast::<i32>().read_unaligned());
        [
            add_products(sum[0], quants[0], x),
            add_products(sum[1], quants[1], x),
        ]
    }

    #[inline(always)]
    unsafe fn start_offset(_: i32) -> Ints {
        Self::splat(0)
    }

    /// The sign of each code moves to its factor: magnitudes are at most 128, and 2 * 128 * 127 < 2^15.
    #[inline(always)]
    unsafe fn dot_offset<const V: usize>(sum: Ints, quants: Ints, x: *const i8) -> Ints {
        let x = _mm256_set1_epi32(x.add(4 * V).cast::<i32>().read_unaligned());
        let top = _mm256_set1_epi8(-128);
        let (a, b) = (
            _mm256_xor_si256(quants[0], top),
            _mm256_xor_si256(quants[1], top),
        );
        [
            add_products(sum[0], _mm256_abs_epi8(a), _mm256_sign_epi8(x, a)),
            add_products(sum[1], _mm256_abs_epi8(b), _mm256_sign_epi8(x, b)),
        ]
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: Ints, pairs: Ints, x: *const i16) -> Ints {
        let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
        [
            _mm256_add_epi32(sum[0], _mm256_madd_epi16(pairs[0], x)),
            _mm256_add_epi32(sum[1], _mm256_madd_epi16(pairs[1], x)),
        ]
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: Ints, a: Ints, b: Ints) -> Ints {
        [
            _mm256_add_epi32(sum[0], _mm256_mullo_epi32(a[0], b[0])),
            _mm256_add_epi32(sum[1], _mm256_mullo_epi32(a[1], b[1])),
        ]
    }

    #[inline(always)]
    unsafe fn multiply_add_shorts(sum: Ints, a: [Ints; 2], b: [Ints; 2]) -> Ints {
        let pairs =
            |low, high| _mm256_blend_epi16::<0b1010_1010>(low, _mm256_slli_epi32::<16>(high));
        let add = |half: usize| {
            let products =
                _mm256_madd_epi16(pairs(a[0][half], a[1][half]), pairs(b[0][half], b[1][half]));
            _mm256_add_epi32(sum[half], products)
        };
        [add(0), add(1)]
    }

    #[inline(always)]
    unsafe fn float(a: Ints) -> Floats {
        [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])]
    }

    #[inline(always)]
    unsafe fn zeros() -> Floats {
        [_mm256_setzero_ps(); 2]
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> Floats {
        [_mm256_set1_ps(value); 2]
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Floats {
        [
            _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(from.add(16).cast())),
        ]
    }

    #[inline(always)]
    unsafe fn numbers(from: *const u8) -> Floats {
        [
            _mm256_loadu_ps(from.cast()),
            _mm256_loadu_ps(from.add(32).cast()),
        ]
    }

    #[inline(always)]
    unsafe fn from_bits(a: Ints) -> Floats {
        a.map(|a| _mm256_castsi256_ps(a))
    }

    #[inline(always)]
    unsafe fn add(a: Floats, b: Floats) -> Floats {
        [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]
    }

    #[inline(always)]
    unsafe fn multiply(a: Floats, b: Floats) -> Floats {
        [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
    }

    #[inline(always)]
    unsafe fn fused(sum: Floats, a: Floats, b: Floats) -> Floats {
        [
            _mm256_fmadd_ps(a[0], b[0], sum[0]),
            _mm256_fmadd_ps(a[1], b[1], sum[1]),
        ]
    }

    #[inline(always)]
    unsafe fn fused_minus(sum: Floats, a: Floats, b: Floats) -> Floats {
        [
            _mm256_fnmadd_ps(a[0], b[0], sum[0]),
            _mm256_fnmadd_ps(a[1], b[1], sum[1]),
        ]
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: Floats) {
        _mm256_storeu_ps(to, a[0]);
        _mm256_storeu_ps(to.add(8), a[1]);
    }
}

/// Adds products of unsigned and signed bytes, four to a lane.
#[inline(always)]
unsafe fn add_products(sum: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(unsigned, signed);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}
