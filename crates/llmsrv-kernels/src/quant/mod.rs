//! Quantised formats: blocks of bytes to and from f32.
//!
//! The layouts are ggml's (`block_*` in its sources and the pages of the GGUF format): a block holds
//! one or two scales in half precision and the small integers of 32 or 256 elements, or what stands for
//! them. One table row for each type; everything else works through the table.

mod blocks;
mod encode;
mod encode_grid;
mod encode_k;
mod grid_blocks;
mod grids;
mod super_blocks;

use llmsrv_gguf::TensorType;

pub(crate) use self::{
    blocks::{IQ4_STEPS, MXFP4_DOUBLED},
    grid_blocks::{Codes, GridFormat, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs},
    super_blocks::trits,
};
use crate::Error;

/// Tells whether elements of this type can be computed with.
pub fn supported(ty: TensorType) -> bool {
    format(ty).is_some()
}

/// Unpacks whole blocks of `ty` to f32.
///
/// `out.len()` must be a multiple of the type's block length and `bytes` exactly its blocks.
///
/// # Errors
///
/// [`Error::Unsupported`] for a type that [`supported`] does not know, [`Error::Length`] for other
/// lengths. Nothing is written then.
pub fn dequantize(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    let format = format(ty).ok_or(Error::Unsupported(ty))?;
    check(ty, bytes.len(), out.len())?;
    (format.unpack)(bytes, out);
    Ok(())
}

/// Packs f32 values into whole blocks of `ty`.
///
/// F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 round to the nearest as ggml does; Q2_K to
/// Q6_K, IQ4_NL, IQ4_XS, IQ3 and IQ2 search for the scales that lose least, which takes far longer. The others can
/// only be read. A block with values that are not finite is meaningless. `values.len()` must be a multiple
/// of the type's block length and `out` as long as its blocks, in bytes.
///
/// # Errors
///
/// [`Error::Unsupported`] for a type that cannot be written, [`Error::Length`] for other lengths.
/// Nothing is written then.
pub fn quantize(ty: TensorType, values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    let pack = format(ty)
        .and_then(|format| format.pack)
        .ok_or(Error::Unsupported(ty))?;
    check(ty, out.len(), values.len())?;
    pack(values, None, out);
    Ok(())
}

/// As [`quantize`], where `values` are whole rows and the error of an element counts as much as `weights` says of its
/// column: numbers above zero, such as the mean squares of what the column is multiplied with.
///
/// # Errors
///
/// As [`quantize`]; [`Error::Length`] if the values are not whole rows of as many elements as there are weights.
pub fn quantize_weighted(
    ty: TensorType,
    values: &[f32],
    weights: &[f32],
    out: &mut [u8],
) -> Result<(), Error> {
    let pack = format(ty)
        .and_then(|format| format.pack)
        .ok_or(Error::Unsupported(ty))?;
    check(ty, out.len(), values.len())?;
    let row_len = weights.len();
    if row_len == 0
        || !row_len.is_multiple_of(ty.block_len())
        || !values.len().is_multiple_of(row_len)
    {
        return Err(Error::Length {
            what: "weights of the columns",
            got: row_len,
            expected: values.len(),
        });
    }
    let row_bytes = row_len / ty.block_len() * ty.block_bytes();
    for (values, out) in values
        .chunks_exact(row_len)
        .zip(out.chunks_exact_mut(row_bytes))
    {
        pack(values, Some(weights), out);
    }
    Ok(())
}

/// Returns the points that the indices of a type stand for, in the order of the indices; nothing for a type without a
/// codebook. A point has the levels of its elements from the lowest bits on: eight of two bits (IQ1, IQ2) or four of
/// three bits (IQ3).
pub fn codebook(ty: TensorType) -> Vec<u16> {
    fn packed<const LEN: usize>(points: &[[u8; LEN]], bits: usize) -> Vec<u16> {
        let pack = |point: &[u8; LEN]| {
            let levels = point.iter().rev();
            levels.fold(0, |packed, level| packed << bits | u16::from(*level))
        };
        points.iter().map(pack).collect()
    }
    match ty {
        TensorType::IQ1_S | TensorType::IQ1_M => packed(&grids::IQ1, 2),
        TensorType::IQ2_XXS => packed(&grids::IQ2_XXS, 2),
        TensorType::IQ2_XS => packed(&grids::IQ2_XS, 2),
        TensorType::IQ2_S => packed(&grids::IQ2_S, 2),
        TensorType::IQ3_XXS => packed(&grids::IQ3_XXS, 3),
        TensorType::IQ3_S => packed(&grids::IQ3_S, 3),
        _ => Vec::new(),
    }
}

fn check(ty: TensorType, n_bytes: usize, n_values: usize) -> Result<(), Error> {
    if !n_values.is_multiple_of(ty.block_len()) {
        let expected = n_values.next_multiple_of(ty.block_len());
        return Err(Error::Length {
            what: "elements of whole blocks",
            got: n_values,
            expected,
        });
    }
    let expected = n_values / ty.block_len() * ty.block_bytes();
    if n_bytes != expected {
        return Err(Error::Length {
            what: "bytes of the blocks",
            got: n_bytes,
            expected,
        });
    }
    Ok(())
}

/// The functions of a format. They rely on the lengths that [`check`] has seen.
struct Format {
    ty: TensorType,
    unpack: Unpack,
    pack: Option<Pack>,
}

type Unpack = fn(&[u8], &mut [f32]);
/// Takes values, perhaps the weights of a row's columns (then the values are one row), and bytes.
type Pack = fn(&[f32], Option<&[f32]>, &mut [u8]);

fn format(ty: TensorType) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.ty == ty)
}

const fn row(ty: TensorType, unpack: Unpack, pack: Option<Pack>) -> Format {
    Format { ty, unpack, pack }
}

const FORMATS: &[Format] = &[
    row(TensorType::F32, blocks::f32, Some(encode::f32)),
    row(TensorType::F16, blocks::f16, Some(encode::f16)),
    row(TensorType::BF16, blocks::bf16, Some(encode::bf16)),
    row(TensorType::Q4_0, blocks::q4_0, Some(encode::q4_0)),
    row(TensorType::Q4_1, blocks::q4_1, Some(encode::q4_1)),
    row(TensorType::Q5_0, blocks::q5_0, Some(encode::q5_0)),
    row(TensorType::Q5_1, blocks::q5_1, Some(encode::q5_1)),
    row(TensorType::Q8_0, blocks::q8_0, Some(encode::q8_0)),
    row(TensorType::MXFP4, blocks::mxfp4, None),
    row(TensorType::IQ4_NL, blocks::iq4_nl, Some(encode_k::iq4_nl)),
    row(
        TensorType::IQ4_XS,
        super_blocks::iq4_xs,
        Some(encode_k::iq4_xs),
    ),
    row(TensorType::Q2_K, super_blocks::q2_k, Some(encode_k::q2_k)),
    row(TensorType::Q3_K, super_blocks::q3_k, Some(encode_k::q3_k)),
    row(TensorType::Q4_K, super_blocks::q4_k, Some(encode_k::q4_k)),
    row(TensorType::Q5_K, super_blocks::q5_k, Some(encode_k::q5_k)),
    row(TensorType::Q6_K, super_blocks::q6_k, Some(encode_k::q6_k)),
    row(TensorType::Q8_K, super_blocks::q8_k, None),
    row(TensorType::IQ1_S, grid_blocks::unpack::<Iq1S>, None),
    row(TensorType::IQ1_M, grid_blocks::unpack::<Iq1M>, None),
    row(
        TensorType::IQ2_XXS,
        grid_blocks::unpack::<Iq2Xxs>,
        Some(encode_grid::pack::<Iq2Xxs>),
    ),
    row(
        TensorType::IQ2_XS,
        grid_blocks::unpack::<Iq2Xs>,
        Some(encode_grid::pack::<Iq2Xs>),
    ),
    row(
        TensorType::IQ2_S,
        grid_blocks::unpack::<Iq2S>,
        Some(encode_grid::pack::<Iq2S>),
    ),
    row(
        TensorType::IQ3_XXS,
        grid_blocks::unpack::<Iq3Xxs>,
        Some(encode_grid::pack::<Iq3Xxs>),
    ),
    row(
        TensorType::IQ3_S,
        grid_blocks::unpack::<Iq3S>,
        Some(encode_grid::pack::<Iq3S>),
    ),
    row(TensorType::TQ1_0, super_blocks::tq1_0, None),
    row(TensorType::TQ2_0, super_blocks::tq2_0, None),
    row(TensorType::NVFP4, blocks::nvfp4, None),
    row(TensorType::Q1_0, blocks::q1_0, None),
    row(TensorType::Q2_0, blocks::q2_0, None),
];

/// Reads a number of half precision.
fn half(bytes: [u8; 2]) -> f32 {
    half::f16::from_le_bytes(bytes).to_f32()
}
