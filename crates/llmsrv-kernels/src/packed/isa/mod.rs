//! Vectors of lanes of 32 bits: what the kernels are written in, once for all processors.
//!
//! Every implementation gives the same bits: integers are exact, and the operations on floating point
//! numbers are single roundings which the definition ([`Scalar`]) makes in the same order.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(super) use self::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use self::avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(super) use self::neon::Neon;
pub(super) use self::scalar::Scalar;
use super::formats::Quants;

/// The operations of a vector, which has all sixteen rows of a row panel or, where this would need too many
/// registers, some of them.
///
/// # Safety
/// All functions: the processor has the instructions of the implementation, and pointers are good for
/// what is read or written, which is said at each.
pub(super) trait Isa: Copy {
    /// Lanes: 16, 8 or 4.
    const LANES: usize;
    /// An integer for each lane, or four quants of 8 bits.
    type Int: Copy;
    /// A number for each lane.
    type Float: Copy;
    /// Sixteen quants of activations, or where they are.
    type Sixteen: Copy;
    /// Sums that there are registers for, beside what is added to them.
    const SUMS: usize;

    /// Reads four bytes for each lane.
    unsafe fn load(from: *const u8) -> Self::Int;
    /// Asks for what will be read a little later; nothing is read there now.
    #[inline(always)]
    unsafe fn prefetch_ahead(of: *const u8) {
        let _ = of;
    }
    /// As [`Isa::load`], and asks for what will be read a little later.
    #[inline(always)]
    unsafe fn load_ahead(from: *const u8) -> Self::Int {
        // SAFETY: the caller's promise.
        unsafe {
            Self::prefetch_ahead(from);
            Self::load(from)
        }
    }
    /// Reads integers of 16 bits without a sign.
    unsafe fn shorts(from: *const u8) -> Self::Int;
    /// The same integer in all lanes.
    unsafe fn splat(value: i32) -> Self::Int;
    unsafe fn and(a: Self::Int, b: Self::Int) -> Self::Int;
    unsafe fn or(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Shifts lanes left.
    unsafe fn shl(a: Self::Int, by: u32) -> Self::Int;
    /// Shifts lanes right; zeros come in.
    unsafe fn shr(a: Self::Int, by: u32) -> Self::Int;
    /// Shifts lanes right; the sign comes in.
    unsafe fn sra(a: Self::Int, by: u32) -> Self::Int;
    /// The bytes of a table at the indices that are the bytes of `quants`, all below 16.
    unsafe fn lookup(table: &[u8; 16], quants: Self::Int) -> Self::Int;
    /// Makes the sixteen signed bytes at an address ready, which are above -128.
    unsafe fn sixteen(x: *const i8) -> Self::Sixteen;
    /// Adds to each lane the products of its four quants, unsigned and below 128, with the four from `4 * V`
    /// on of `x`.
    unsafe fn dot<const V: usize>(sum: Self::Int, quants: Self::Int, x: Self::Sixteen)
    -> Self::Int;
    /// What [`Isa::dot_offset`] begins with, given the negated sum of all `x` that will follow.
    unsafe fn start_offset(minus_sum: i32) -> Self::Int;
    /// As [`Isa::dot`], with quants of which 128 is to be taken away.
    unsafe fn dot_offset<const V: usize>(
        sum: Self::Int,
        quants: Self::Int,
        x: Self::Sixteen,
    ) -> Self::Int;
    /// Adds to the sums of each of `C` tokens the products of the quants of 32 elements with those of the
    /// token, which begin at `x`, each token's `stride` bytes behind those of the last one: to the last
    /// of `N` sums those of the elements from 16 on, and to the first the others.
    #[inline(always)]
    unsafe fn dots<T: Quants, const C: usize, const N: usize>(
        sums: &mut [[Self::Int; C]; N],
        quants: *const u8,
        x: *const i8,
        stride: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { dots_of_each::<Self, T, C, N>(sums, 0, quants, x, stride) }
    }
    /// Adds to each lane the products of its two signed 16-bit halves with the two at `x`.
    unsafe fn dot_pairs(sum: Self::Int, pairs: Self::Int, x: *const i16) -> Self::Int;
    /// `sum + a * b` in 32 bits.
    unsafe fn multiply_add(sum: Self::Int, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `sum + a[0] * b[0] + a[1] * b[1]` in 32 bits, where all of `a` and `b` are numbers of 16 bits with a sign.
    #[inline(always)]
    unsafe fn multiply_add_shorts(
        sum: Self::Int,
        a: [Self::Int; 2],
        b: [Self::Int; 2],
    ) -> Self::Int {
        // SAFETY: the caller's promise.
        unsafe { Self::multiply_add(Self::multiply_add(sum, a[0], b[0]), a[1], b[1]) }
    }
    /// The nearest numbers; of two, the even one.
    unsafe fn float(a: Self::Int) -> Self::Float;
    /// Zeros.
    unsafe fn zeros() -> Self::Float;
    /// The same number in all lanes.
    unsafe fn splat_float(value: f32) -> Self::Float;
    /// Reads numbers.
    unsafe fn numbers(from: *const u8) -> Self::Float;
    /// The numbers with these bits.
    unsafe fn from_bits(a: Self::Int) -> Self::Float;
    /// Adds to each lane the products of its two numbers of BF16 with the two at `x`: first that of the
    /// upper halves and then that of the lower ones, each with one rounding.
    ///
    /// The one instruction that does so takes numbers below the smallest normal one for zeros, and makes
    /// zeros of such sums. No other results depend on the implementation.
    #[inline(always)]
    unsafe fn dot_bf16(sum: Self::Float, pairs: Self::Int, x: *const i32) -> Self::Float {
        // SAFETY: the caller's promise.
        unsafe { dot_widened::<Self>(sum, pairs, x.read()) }
    }
    unsafe fn add(a: Self::Float, b: Self::Float) -> Self::Float;
    /// Reads numbers of half precision.
    unsafe fn halves(from: *const u8) -> Self::Float;
    unsafe fn multiply(a: Self::Float, b: Self::Float) -> Self::Float;
    /// `sum + a * b` with one rounding.
    unsafe fn fused(sum: Self::Float, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `sum - a * b` with one rounding.
    unsafe fn fused_minus(sum: Self::Float, a: Self::Float, b: Self::Float) -> Self::Float;
    /// Writes numbers.
    unsafe fn store(to: *mut f32, a: Self::Float);
}

/// [`Isa::dots`] of the tokens from `first` on, one by one.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "a token's sums are in several arrays"
)]
unsafe fn dots_of_each<I: Isa, T: Quants, const C: usize, const N: usize>(
    sums: &mut [[I::Int; C]; N],
    first: usize,
    quants: *const u8,
    x: *const i8,
    stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        unrolled!(V in [0 1 2 3] {
            let [low, high] = T::read::<I>(quants, V);
            for token in first..C {
                let x = x.add(token * stride);
                let sum = &mut sums[0][token];
                *sum = dot::<I, T, V>(*sum, low, I::sixteen(x));
                let sum = &mut sums[N - 1][token];
                *sum = dot::<I, T, V>(*sum, high, I::sixteen(x.add(16)));
            }
        });
    }
}

/// [`Isa::dot`], or [`Isa::dot_offset`] for quants that have one.
#[inline(always)]
unsafe fn dot<I: Isa, T: Quants, const V: usize>(
    sum: I::Int,
    quants: I::Int,
    x: I::Sixteen,
) -> I::Int {
    // SAFETY: the caller's promise.
    unsafe {
        if T::HAVE_OFFSET {
            I::dot_offset::<V>(sum, quants, x)
        } else {
            I::dot::<V>(sum, quants, x)
        }
    }
}

/// [`Isa::dot_bf16`] for processors without an instruction for it: the bits of a number of BF16 are the
/// upper ones of the same number.
#[inline(always)]
unsafe fn dot_widened<I: Isa>(sum: I::Float, pairs: I::Int, x: i32) -> I::Float {
    // SAFETY: the caller's promise.
    unsafe {
        let (x, upper) = (I::splat(x), I::splat(-1 << 16));
        let (w_upper, x_upper) = (I::and(pairs, upper), I::and(x, upper));
        let sum = I::fused(sum, I::from_bits(w_upper), I::from_bits(x_upper));
        let (w_lower, x_lower) = (I::shl(pairs, 16), I::shl(x, 16));
        I::fused(sum, I::from_bits(w_lower), I::from_bits(x_lower))
    }
}

/// How far ahead weights are asked for, in bytes: more than memory delivers while one line is on its way, since the
/// lines of a column panel of tokens are used in bursts. Processors guess less far.
#[cfg(target_arch = "x86_64")]
pub(super) const AHEAD: usize = 9216;
/// For many tokens: how far ahead weights are asked for into the second cache, whose lines on their way are more than
/// those of the first one, and how far ahead they are taken from there.
#[cfg(target_arch = "x86_64")]
const L2_AHEAD: usize = 25 << 10;
#[cfg(target_arch = "x86_64")]
const L1_AHEAD: usize = 4 << 10;
