//! Vectors of 256 bits: two, or one.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function is a few instructions; the trait's contract is theirs"
)]

#[allow(
    clippy::wildcard_imports,
    reason = "names of instructions, each of which says what it is"
)]
use std::arch::x86_64::*;
use std::array::from_fn;

use super::{AHEAD, Isa};

/// AVX2, FMA and F16C, `N` vectors at a time, with or without AVX-VNNI.
#[derive(Clone, Copy)]
pub(in super::super) struct Avx2<const N: usize, const VNNI: bool>;

type Ints<const N: usize> = [__m256i; N];
type Floats<const N: usize> = [__m256; N];

impl<const N: usize, const VNNI: bool> Isa for Avx2<N, VNNI> {
    const LANES: usize = 8 * N;
    type Int = Ints<N>;
    type Float = Floats<N>;
    type Sixteen = *const i8;
    const SUMS: usize = 8 / N;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Ints<N> {
        from_fn(|at| _mm256_loadu_si256(from.add(32 * at).cast()))
    }

    #[inline(always)]
    unsafe fn prefetch_ahead(of: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(of.wrapping_add(AHEAD).cast());
    }

    #[inline(always)]
    unsafe fn shorts(from: *const u8) -> Ints<N> {
        from_fn(|at| _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(16 * at).cast())))
    }

    #[inline(always)]
    unsafe fn splat(value: i32) -> Ints<N> {
        [_mm256_set1_epi32(value); N]
    }

    #[inline(always)]
    unsafe fn and(a: Ints<N>, b: Ints<N>) -> Ints<N> {
        from_fn(|at| _mm256_and_si256(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn or(a: Ints<N>, b: Ints<N>) -> Ints<N> {
        from_fn(|at| _mm256_or_si256(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn shl(a: Ints<N>, by: u32) -> Ints<N> {
        let by = _mm256_set1_epi32(by.cast_signed());
        a.map(|a| _mm256_sllv_epi32(a, by))
    }

    #[inline(always)]
    unsafe fn shr(a: Ints<N>, by: u32) -> Ints<N> {
        let by = _mm256_set1_epi32(by.cast_signed());
        a.map(|a| _mm256_srlv_epi32(a, by))
    }

    #[inline(always)]
    unsafe fn sra(a: Ints<N>, by: u32) -> Ints<N> {
        let by = _mm256_set1_epi32(by.cast_signed());
        a.map(|a| _mm256_srav_epi32(a, by))
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], quants: Ints<N>) -> Ints<N> {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        quants.map(|quants| _mm256_shuffle_epi8(table, quants))
    }

    #[inline(always)]
    unsafe fn sixteen(x: *const i8) -> *const i8 {
        x
    }

    /// Sums of two products fit 16 bits, which AVX2 alone needs: 2 * 127 * 127 < 2^15.
    #[inline(always)]
    unsafe fn dot<const V: usize>(sum: Ints<N>, quants: Ints<N>, x: *const i8) -> Ints<N> {
        let x = _mm256_set1_epi32(x.add(4 * V).cast::<i32>().read_unaligned());
        from_fn(|at| add_products::<VNNI>(sum[at], quants[at], x))
    }

    /// AVX-VNNI takes quants as unsigned, so what is too much is taken away first.
    #[inline(always)]
    unsafe fn start_offset(minus_sum: i32) -> Ints<N> {
        Self::splat(if VNNI { minus_sum << 7 } else { 0 })
    }

    /// Without AVX-VNNI the sign of each code moves to its factor: magnitudes are at most 128, and
    /// 2 * 128 * 127 < 2^15.
    #[inline(always)]
    unsafe fn dot_offset<const V: usize>(sum: Ints<N>, quants: Ints<N>, x: *const i8) -> Ints<N> {
        if VNNI {
            return Self::dot::<V>(sum, quants, x);
        }
        let x = _mm256_set1_epi32(x.add(4 * V).cast::<i32>().read_unaligned());
        let top = _mm256_set1_epi8(-128);
        from_fn(|at| {
            let quants = _mm256_xor_si256(quants[at], top);
            let (quants, x) = (_mm256_abs_epi8(quants), _mm256_sign_epi8(x, quants));
            add_products::<VNNI>(sum[at], quants, x)
        })
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: Ints<N>, pairs: Ints<N>, x: *const i16) -> Ints<N> {
        let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
        from_fn(|at| add_pairs::<VNNI>(sum[at], pairs[at], x))
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: Ints<N>, a: Ints<N>, b: Ints<N>) -> Ints<N> {
        from_fn(|at| _mm256_add_epi32(sum[at], _mm256_mullo_epi32(a[at], b[at])))
    }

    #[inline(always)]
    unsafe fn multiply_add_shorts(sum: Ints<N>, a: [Ints<N>; 2], b: [Ints<N>; 2]) -> Ints<N> {
        let pairs =
            |low, high| _mm256_blend_epi16::<0b1010_1010>(low, _mm256_slli_epi32::<16>(high));
        from_fn(|at| {
            add_pairs::<VNNI>(
                sum[at],
                pairs(a[0][at], a[1][at]),
                pairs(b[0][at], b[1][at]),
            )
        })
    }

    #[inline(always)]
    unsafe fn float(a: Ints<N>) -> Floats<N> {
        a.map(|a| _mm256_cvtepi32_ps(a))
    }

    #[inline(always)]
    unsafe fn zeros() -> Floats<N> {
        [_mm256_setzero_ps(); N]
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> Floats<N> {
        [_mm256_set1_ps(value); N]
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Floats<N> {
        from_fn(|at| _mm256_cvtph_ps(_mm_loadu_si128(from.add(16 * at).cast())))
    }

    #[inline(always)]
    unsafe fn numbers(from: *const u8) -> Floats<N> {
        from_fn(|at| _mm256_loadu_ps(from.add(32 * at).cast()))
    }

    #[inline(always)]
    unsafe fn from_bits(a: Ints<N>) -> Floats<N> {
        a.map(|a| _mm256_castsi256_ps(a))
    }

    #[inline(always)]
    unsafe fn add(a: Floats<N>, b: Floats<N>) -> Floats<N> {
        from_fn(|at| _mm256_add_ps(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn multiply(a: Floats<N>, b: Floats<N>) -> Floats<N> {
        from_fn(|at| _mm256_mul_ps(a[at], b[at]))
    }

    #[inline(always)]
    unsafe fn fused(sum: Floats<N>, a: Floats<N>, b: Floats<N>) -> Floats<N> {
        from_fn(|at| _mm256_fmadd_ps(a[at], b[at], sum[at]))
    }

    #[inline(always)]
    unsafe fn fused_minus(sum: Floats<N>, a: Floats<N>, b: Floats<N>) -> Floats<N> {
        from_fn(|at| _mm256_fnmadd_ps(a[at], b[at], sum[at]))
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: Floats<N>) {
        for (at, a) in a.into_iter().enumerate() {
            _mm256_storeu_ps(to.add(8 * at), a);
        }
    }
}

/// Adds products of unsigned and signed bytes, four to a lane. Without AVX-VNNI the sums of two must fit 16 bits with
/// a sign.
#[inline(always)]
unsafe fn add_products<const VNNI: bool>(
    sum: __m256i,
    unsigned: __m256i,
    signed: __m256i,
) -> __m256i {
    if VNNI {
        return _mm256_dpbusd_avx_epi32(sum, unsigned, signed);
    }
    let pairs = _mm256_maddubs_epi16(unsigned, signed);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

/// Adds products of numbers of 16 bits with a sign, two to a lane.
#[inline(always)]
unsafe fn add_pairs<const VNNI: bool>(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    if VNNI {
        return _mm256_dpwssd_avx_epi32(sum, a, b);
    }
    _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
}
