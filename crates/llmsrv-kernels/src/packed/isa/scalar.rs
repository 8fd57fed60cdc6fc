//! The definition: plain Rust.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "the only unsafe operations are reads and writes that the trait's contract allows"
)]

use std::array::from_fn;

use super::Isa;

/// No vectors at all.
#[derive(Clone, Copy)]
pub(in super::super) struct Scalar;

impl Isa for Scalar {
    const LANES: usize = 16;
    type Int = [i32; 16];
    type Float = [f32; 16];
    type Sixteen = *const i8;
    const SUMS: usize = 4;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [i32; 16] {
        let bytes: [[u8; 4]; 16] = from.cast::<[[u8; 4]; 16]>().read_unaligned();
        bytes.map(i32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn shorts(from: *const u8) -> [i32; 16] {
        let bytes: [[u8; 2]; 16] = from.cast::<[[u8; 2]; 16]>().read_unaligned();
        bytes.map(|bytes| i32::from(u16::from_le_bytes(bytes)))
    }

    #[inline(always)]
    unsafe fn splat(value: i32) -> [i32; 16] {
        [value; 16]
    }

    #[inline(always)]
    unsafe fn and(a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|lane| a[lane] & b[lane])
    }

    #[inline(always)]
    unsafe fn or(a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|lane| a[lane] | b[lane])
    }

    #[inline(always)]
    unsafe fn shl(a: [i32; 16], by: u32) -> [i32; 16] {
        a.map(|a| a << by)
    }

    #[inline(always)]
    unsafe fn shr(a: [i32; 16], by: u32) -> [i32; 16] {
        a.map(|a| (a.cast_unsigned() >> by).cast_signed())
    }

    #[inline(always)]
    unsafe fn sra(a: [i32; 16], by: u32) -> [i32; 16] {
        a.map(|a| a >> by)
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], quants: [i32; 16]) -> [i32; 16] {
        let byte = |code: u8| table[usize::from(code & 15)];
        quants.map(|quants| i32::from_le_bytes(quants.to_le_bytes().map(byte)))
    }

    #[inline(always)]
    unsafe fn sixteen(x: *const i8) -> *const i8 {
        x
    }

    #[inline(always)]
    unsafe fn dot<const V: usize>(sum: [i32; 16], quants: [i32; 16], x: *const i8) -> [i32; 16] {
        let x = x.add(4 * V).cast::<[i8; 4]>().read().map(i32::from);
        from_fn(|lane| {
            let quants = quants[lane].to_le_bytes().map(i32::from);
            sum[lane] + quants[0] * x[0] + quants[1] * x[1] + quants[2] * x[2] + quants[3] * x[3]
        })
    }

    #[inline(always)]
    unsafe fn start_offset(_: i32) -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    unsafe fn dot_offset<const V: usize>(
        sum: [i32; 16],
        quants: [i32; 16],
        x: *const i8,
    ) -> [i32; 16] {
        let x = x.add(4 * V).cast::<[i8; 4]>().read().map(i32::from);
        from_fn(|lane| {
            let quants = quants[lane].to_le_bytes().map(|code| i32::from(code) - 128);
            sum[lane] + quants[0] * x[0] + quants[1] * x[1] + quants[2] * x[2] + quants[3] * x[3]
        })
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: [i32; 16], pairs: [i32; 16], x: *const i16) -> [i32; 16] {
        let x = x.cast::<[i16; 2]>().read().map(i32::from);
        from_fn(|lane| {
            let (low, high) = (pairs[lane] as i16, (pairs[lane] >> 16) as i16);
            sum[lane] + i32::from(low) * x[0] + i32::from(high) * x[1]
        })
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: [i32; 16], a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        from_fn(|lane| sum[lane].wrapping_add(a[lane].wrapping_mul(b[lane])))
    }

    #[inline(always)]
    unsafe fn float(a: [i32; 16]) -> [f32; 16] {
        a.map(|a| a as f32)
    }

    #[inline(always)]
    unsafe fn zeros() -> [f32; 16] {
        [0.0; 16]
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> [f32; 16] {
        [value; 16]
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> [f32; 16] {
        let bytes: [[u8; 2]; 16] = from.cast::<[[u8; 2]; 16]>().read_unaligned();
        bytes.map(|bytes| half::f16::from_le_bytes(bytes).to_f32())
    }

    #[inline(always)]
    unsafe fn numbers(from: *const u8) -> [f32; 16] {
        let bytes: [[u8; 4]; 16] = from.cast::<[[u8; 4]; 16]>().read_unaligned();
        bytes.map(f32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn from_bits(a: [i32; 16]) -> [f32; 16] {
        a.map(|a| f32::from_bits(a.cast_unsigned()))
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn multiply(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn fused(sum: [f32; 16], a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|lane| a[lane].mul_add(b[lane], sum[lane]))
    }

    #[inline(always)]
    unsafe fn fused_minus(sum: [f32; 16], a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|lane| (-a[lane]).mul_add(b[lane], sum[lane]))
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, a: [f32; 16]) {
        to.cast::<[f32; 16]>().write(a);
    }
}
