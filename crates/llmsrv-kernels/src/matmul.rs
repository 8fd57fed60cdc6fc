//! Weights times activations.

use std::cell::RefCell;

use llmsrv_gguf::TensorType;

use crate::{Error, Pool, dot, quant};

/// A matrix of weights as it lies in its file: row after row, each of whole blocks.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Type of the elements.
    pub ty: TensorType,
    /// Number of rows, one for each output.
    pub rows: usize,
    /// Elements of a row, one for each input: a multiple of the block length of `ty`.
    pub cols: usize,
    /// The blocks of all rows: `rows * cols / ty.block_len() * ty.block_bytes()` bytes.
    pub bytes: &'a [u8],
}

/// Multiplies: `out[t * rows + r]` is the inner product of row `r` of the weights and row `t` of `x`.
///
/// `x` is `[n, cols]`, `out` is `[n, rows]`. The weights are unpacked to f32, a row at a time, and each
/// row is used for all `n`; products and sums are f32. An element of the result is the same bit for bit
/// whatever `n` and the number of threads are.
///
/// # Errors
///
/// [`Error::Unsupported`] for a type that [`supported`](crate::supported) does not know;
/// [`Error::Length`] if `x` has no whole rows, or `out` or the bytes of the weights another length.
/// Nothing is written then.
pub fn matmul(weight: &Weight<'_>, x: &[f32], out: &mut [f32], pool: &Pool) -> Result<(), Error> {
    let Weight {
        ty,
        rows,
        cols,
        bytes,
    } = *weight;
    if !quant::supported(ty) {
        return Err(Error::Unsupported(ty));
    }
    if cols == 0 || !x.len().is_multiple_of(cols) {
        return Err(Error::Length {
            what: "activations",
            got: x.len(),
            expected: x.len() / cols.max(1) * cols,
        });
    }
    let n = x.len() / cols;
    if out.len() != n * rows {
        return Err(Error::Length {
            what: "results",
            got: out.len(),
            expected: n * rows,
        });
    }
    let row_bytes = cols / ty.block_len() * ty.block_bytes();
    if bytes.len() != rows * row_bytes || !cols.is_multiple_of(ty.block_len()) {
        return Err(Error::Length {
            what: "bytes of the weights",
            got: bytes.len(),
            expected: rows * row_bytes,
        });
    }
    if n == 0 || rows == 0 {
        return Ok(());
    }
    let parallel = rows * cols * n >= PARALLEL_WORK;
    // A few chunks for each thread, so that one that is late can be helped.
    let chunk_rows = if parallel {
        rows.div_ceil(pool.n_threads() * 4).max(8)
    } else {
        rows
    };
    let compute = |chunk: usize, results: &mut [f32]| {
        ROW.with_borrow_mut(|unpacked| {
            unpacked.resize(cols, 0.0);
            for (idx, results) in results.chunks_mut(n).enumerate() {
                let start = (chunk * chunk_rows + idx) * row_bytes;
                // Lengths and type are checked above, so this cannot fail.
                let _ = quant::dequantize(ty, &bytes[start..start + row_bytes], unpacked);
                for (result, x) in results.iter_mut().zip(x.chunks_exact(cols)) {
                    *result = dot(unpacked, x);
                }
            }
        });
    };
    if n == 1 {
        pool.for_each_chunk_mut(out, chunk_rows, parallel, compute);
        return Ok(());
    }
    // Row by row first, since a thread owns whole rows; then turned.
    let mut by_row = vec![0.0; n * rows];
    pool.for_each_chunk_mut(&mut by_row, chunk_rows * n, parallel, compute);
    for (t, out) in out.chunks_exact_mut(rows).enumerate() {
        for (out, results) in out.iter_mut().zip(by_row.chunks_exact(n)) {
            *out = results[t];
        }
    }
    Ok(())
}

thread_local! {
    /// One unpacked row.
    static ROW: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Products of fewer multiplications are over before a second thread is awake.
const PARALLEL_WORK: usize = 1 << 19;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1000.0 - 1.0)
            .collect()
    }

    fn packed(ty: TensorType, values: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
        quant::quantize(ty, values, &mut bytes).unwrap();
        bytes
    }

    const TYPES: &[TensorType] = &[
        TensorType::F32,
        TensorType::F16,
        TensorType::BF16,
        TensorType::Q8_0,
        TensorType::Q4_0,
        TensorType::Q5_1,
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn products_are_right(rows in 1_usize..40, blocks in 1_usize..5, n in 1_usize..6, kind in 0..TYPES.len()) {
            let (ty, cols) = (TYPES[kind], blocks * 32);
            let bytes = packed(ty, &values(rows * cols, 1));
            let mut unpacked = vec![0.0; rows * cols];
            quant::dequantize(ty, &bytes, &mut unpacked).unwrap();
            let x = values(n * cols, 2);
            let mut out = vec![0.0; n * rows];
            matmul(&Weight { ty, rows, cols, bytes: &bytes }, &x, &mut out, &Pool::new(1)).unwrap();
            for t in 0..n {
                for r in 0..rows {
                    let exact: f64 =
                        (0..cols).map(|c| f64::from(unpacked[r * cols + c]) * f64::from(x[t * cols + c])).sum();
                    prop_assert!((f64::from(out[t * rows + r]) - exact).abs() < 1e-3);
                }
            }
        }
    }

    #[test]
    fn neither_company_nor_threads_change_a_bit() {
        let (rows, cols, n) = (300, 512, 7);
        let bytes = packed(TensorType::Q8_0, &values(rows * cols, 3));
        let weight = Weight {
            ty: TensorType::Q8_0,
            rows,
            cols,
            bytes: &bytes,
        };
        let x = values(n * cols, 4);
        let run = |x: &[f32], n_threads: usize| {
            let mut out = vec![0.0; x.len() / cols * rows];
            matmul(&weight, x, &mut out, &Pool::new(n_threads)).unwrap();
            out
        };
        let together = run(&x, 1);
        assert_eq!(together, run(&x, 4));
        for (t, x) in x.chunks(cols).enumerate() {
            assert_eq!(together[t * rows..][..rows], run(x, 3));
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_errors() {
        let weight = |bytes| Weight {
            ty: TensorType::Q8_0,
            rows: 2,
            cols: 32,
            bytes,
        };
        let (good, pool) = (vec![0; 68], Pool::new(1));
        assert!(matmul(&weight(&good), &[0.0; 64], &mut [0.0; 4], &pool).is_ok());
        assert!(matmul(&weight(&good[..67]), &[0.0; 64], &mut [0.0; 4], &pool).is_err());
        assert!(matmul(&weight(&good), &[0.0; 63], &mut [0.0; 4], &pool).is_err());
        assert!(matmul(&weight(&good), &[0.0; 64], &mut [0.0; 3], &pool).is_err());
        let odd = Weight {
            cols: 31,
            ..weight(&good)
        };
        assert!(matmul(&odd, &[0.0; 31], &mut [0.0; 2], &pool).is_err());
        let unknown = Weight {
            ty: TensorType::Q8_1,
            ..weight(&good)
        };
        assert_eq!(
            matmul(&unknown, &[], &mut [], &pool),
            Err(Error::Unsupported(TensorType::Q8_1))
        );
    }
}
