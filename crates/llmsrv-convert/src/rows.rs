//! Rows of weights from one type to another, on all threads.

use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use llmsrv_gguf::TensorType;
use llmsrv_kernels::Pool;

/// A value that the new type cannot hold.
#[derive(Debug)]
pub(crate) struct OutOfRange;

/// What happens to rows of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repack {
    /// Elements of a row; whole blocks of both types.
    pub(crate) row_len: usize,
    /// The type the rows have.
    pub(crate) from: TensorType,
    /// The type they get.
    pub(crate) to: TensorType,
    /// Added to every value.
    pub(crate) offset: f32,
}

impl Repack {
    /// Returns the bytes of a row before and after.
    pub(crate) fn row_bytes(&self) -> (usize, usize) {
        let bytes_of = |ty: TensorType| self.row_len / ty.block_len() * ty.block_bytes();
        (bytes_of(self.from), bytes_of(self.to))
    }

    /// Returns how many rows to convert at a time.
    pub(crate) fn batch_rows(&self) -> usize {
        (BATCH_ELEMENTS / self.row_len.max(1)).max(1)
    }

    /// Converts whole rows into `out`. Where columns have weights, their errors count as much.
    pub(crate) fn run(
        &self,
        rows: &[u8],
        weights: Option<&[f32]>,
        out: &mut Vec<u8>,
        pool: &Pool,
    ) -> Result<(), OutOfRange> {
        let (from_bytes, to_bytes) = self.row_bytes();
        if from_bytes == 0 || to_bytes == 0 {
            out.clear();
            return Ok(());
        }
        let largest = match self.to {
            TensorType::F16 => f16::MAX.to_f32(),
            _ => f32::MAX,
        };
        let chunk_rows = (CHUNK_ELEMENTS / self.row_len).max(1);
        let failed = AtomicBool::new(false);
        out.resize(rows.len() / from_bytes * to_bytes, 0);
        pool.for_each_chunk_mut(out, chunk_rows * to_bytes, true, |chunk, out| {
            let n_rows = out.len() / to_bytes;
            let rows = &rows[chunk * chunk_rows * from_bytes..][..n_rows * from_bytes];
            let mut values = vec![0.0; n_rows * self.row_len];
            let unpacked = llmsrv_kernels::dequantize(self.from, rows, &mut values);
            // Adding zero would not be nothing: it changes the sign of -0.
            if self.offset != 0.0 {
                for value in &mut values {
                    *value += self.offset;
                }
            }
            // Not a number fails the comparison too.
            let converted = unpacked.is_ok()
                && values.iter().all(|value| value.abs() <= largest)
                && match weights {
                    Some(weights) => {
                        llmsrv_kernels::quantize_weighted(self.to, &values, weights, out)
                    }
                    None => llmsrv_kernels::quantize(self.to, &values, out),
                }
                .is_ok();
            if !converted {
                failed.store(true, Ordering::Relaxed);
            }
        });
        if failed.into_inner() {
            Err(OutOfRange)
        } else {
            Ok(())
        }
    }
}

/// Elements that are converted between two writes; 4 bytes each while they are.
const BATCH_ELEMENTS: usize = 4 << 20;
/// Elements that a thread takes at a time.
const CHUNK_ELEMENTS: usize = 1 << 16;
