//! Products of weights that are packed for the processor with activations as signed bytes.
//!
//! Read in this order: [`formats`] (where every bit of a weight lies, and the kernels), [`isa`] (the
//! operations that the kernels are written in), [`pack`] (how weights get there), [`activations`] (the
//! other factor), and this file: memory and work for the threads.
//!
//! One result is the sum over the blocks of a row, in their order, of exact integer sums of products
//! times the scales of both sides. So it is the same bit for bit on all processors, for any number of
//! tokens together and any number of threads.
#![expect(
    unsafe_code,
    reason = "kernels read through pointers, and threads write to different parts of one result"
)]

mod activations;
mod formats;
mod isa;
mod memory;
mod pack;
#[cfg(test)]
mod tests;

use llmsrv_gguf::TensorType;

pub use self::{activations::Activations, isa::Instructions, memory::Arena};
use self::{
    activations::panels,
    formats::{Format, Layout},
    memory::Region,
};
use crate::{Error, Pool, Weight};

/// A matrix of packed weights.
#[derive(Debug)]
pub struct Packed {
    ty: TensorType,
    n_rows: usize,
    n_cols: usize,
    layout: Layout,
    memory: Region,
}

impl Packed {
    /// Packs a matrix into memory of `arena`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for types that are not packed: [`Activations::block_len`] tells.
    pub fn new(weight: &Weight<'_>, arena: &mut Arena, pool: &Pool) -> Result<Packed, Error> {
        let Weight {
            ty,
            rows: n_rows,
            cols: n_cols,
            bytes,
        } = *weight;
        let (Some(layout), Some(pack)) = (formats::layout(ty), pack::pack_row(ty)) else {
            return Err(Error::Unsupported(ty));
        };
        let n_blocks = n_cols / ty.block_len();
        let row_bytes = n_blocks * ty.block_bytes();
        if !n_cols.is_multiple_of(ty.block_len()) || bytes.len() != n_rows * row_bytes {
            return Err(Error::Length {
                what: "bytes of the weights",
                got: bytes.len(),
                expected: n_rows * row_bytes,
            });
        }
        let strip_bytes = layout.strip_bytes(n_blocks);
        let mut memory = arena.take(n_rows.div_ceil(LANES) * strip_bytes)?;
        if !bytes.is_empty() {
            pool.for_each_chunk_mut(memory.bytes_mut(), strip_bytes, true, |idx, strip| {
                let rows = bytes.chunks_exact(row_bytes).skip(idx * LANES).take(LANES);
                for block in 0..n_blocks {
                    let block_bytes = ty.block_bytes();
                    let at = block * block_bytes;
                    let blocks = rows.clone().map(|row| &row[at..at + block_bytes]);
                    pack::pack_block(pack, layout, strip, block, blocks);
                }
            });
        }
        Ok(Packed {
            ty,
            n_rows,
            n_cols,
            layout,
            memory,
        })
    }

    /// Returns the number of outputs.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Returns the number of inputs.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Returns the elements that must share a scale in the activations.
    pub fn block_len(&self) -> usize {
        self.ty.block_len()
    }

    /// Returns the memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes().len()
    }

    /// Multiplies: `out[t * n_rows + r]` is the inner product of row `r` of the weights and row `t` of
    /// the activations.
    pub fn multiply(&self, x: &Activations, out: &mut [f32], pool: &Pool) -> Result<(), Error> {
        self.multiply_at(Instructions::best(), x, out, pool)
    }

    /// As [`Packed::multiply`], with chosen instructions.
    ///
    /// # Errors
    /// Also if the processor lacks them.
    pub fn multiply_at(
        &self,
        tier: Instructions,
        x: &Activations,
        out: &mut [f32],
        pool: &Pool,
    ) -> Result<(), Error> {
        let blocks = match self.block_len() {
            32 => (
                x.short.as_ptr().cast::<u8>(),
                size_of::<activations::Short>(),
            ),
            _ => (x.long.as_ptr().cast::<u8>(), size_of::<activations::Long>()),
        };
        let n_blocks = self.n_cols / self.block_len();
        let there = if self.block_len() == 32 {
            x.short.len()
        } else {
            x.long.len()
        };
        let wanted: usize = panels(x.n_rows()).map(|panel| panel.width).sum();
        if x.n_cols() != self.n_cols || there != wanted * n_blocks || !tier.are_available() {
            return Err(Error::Length {
                what: "activations",
                got: x.n_cols(),
                expected: self.n_cols,
            });
        }
        if out.len() != x.n_rows() * self.n_rows {
            return Err(Error::Length {
                what: "results",
                got: out.len(),
                expected: x.n_rows() * self.n_rows,
            });
        }
        if out.is_empty() {
            return Ok(());
        }
        let job = Job {
            weights: self,
            tier,
            n_tokens: x.n_rows(),
            blocks: blocks.0,
            block_bytes: blocks.1,
            out: out.as_mut_ptr(),
        };
        let job = &job;
        let n_strips = self.n_rows.div_ceil(LANES);
        let work = self.bytes() * x.n_rows();
        // Several parts for each thread, so that one that is late can be helped, but not too short
        // ones: each is a stream that the processor must find.
        let part = n_strips.div_ceil(pool.n_threads() * PARTS).max(1);
        let mut parts = vec![(); n_strips.div_ceil(part)];
        pool.for_each_chunk_mut(&mut parts, 1, work >= PARALLEL_WORK, |idx, _| {
            let strips = idx * part..((idx + 1) * part).min(n_strips);
            // SAFETY: lengths, types and instructions are checked above, and the strips of two parts
            // are different rows.
            unsafe { job.run(strips) }
        });
        Ok(())
    }
}

/// Rows of a strip.
const LANES: usize = 16;
/// Parts of the work for each thread.
const PARTS: usize = 8;
/// Bytes of weights times tokens from which on a second thread pays.
const PARALLEL_WORK: usize = 1 << 17;

/// A product that several threads work on.
struct Job<'a> {
    weights: &'a Packed,
    tier: Instructions,
    n_tokens: usize,
    /// Blocks of activations, panel by panel.
    blocks: *const u8,
    block_bytes: usize,
    out: *mut f32,
}

// SAFETY: the pointers are to memory that is borrowed for longer than the job, and threads write to
// different rows of the result.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// Computes the outputs of some strips for all tokens.
    ///
    /// # Safety
    /// The pointers are good for all tokens, and nobody else computes these strips.
    unsafe fn run(&self, strips: std::ops::Range<usize>) {
        let weights = self.weights;
        let n_blocks = weights.n_cols / weights.block_len();
        let strip_bytes = weights.layout.strip_bytes(n_blocks);
        let packed = weights.memory.bytes().chunks_exact(strip_bytes);
        let mut results = [0.0_f32; LANES * 8];
        for (idx, strip) in packed.enumerate().skip(strips.start).take(strips.len()) {
            let first_row = idx * LANES;
            let n_rows = (weights.n_rows - first_row).min(LANES);
            let mut blocks = self.blocks;
            for panel in panels(self.n_tokens) {
                let kernel = kernel(self.tier, weights.ty, panel.width);
                // SAFETY: the strip has all its blocks, the panel too, and there is room for the
                // results of the widest panel.
                unsafe {
                    kernel(strip.as_ptr(), n_blocks, blocks, results.as_mut_ptr());
                    blocks = blocks.add(panel.width * n_blocks * self.block_bytes);
                }
                let tokens = panel.first..panel.first + panel.n_tokens;
                for (token, results) in tokens.zip(results.chunks_exact(LANES)) {
                    let at = token * weights.n_rows + first_row;
                    // SAFETY: within the result, whose length was checked; these rows are ours.
                    unsafe {
                        self.out
                            .add(at)
                            .copy_from_nonoverlapping(results.as_ptr(), n_rows);
                    }
                }
            }
        }
    }
}

/// A kernel: strip, blocks, activations of a panel, results.
type Kernel = unsafe fn(*const u8, usize, *const u8, *mut f32);

/// Returns the kernel of a type for a panel of this width.
fn kernel(tier: Instructions, ty: TensorType, width: usize) -> Kernel {
    match ty {
        TensorType::Q4_0 => of_width::<formats::Q4_0>(tier, width),
        TensorType::Q4_1 => of_width::<formats::Q4_1>(tier, width),
        TensorType::Q5_0 => of_width::<formats::Q5_0>(tier, width),
        TensorType::Q5_1 => of_width::<formats::Q5_1>(tier, width),
        TensorType::Q4_K => of_width::<formats::Q4K>(tier, width),
        TensorType::Q5_K => of_width::<formats::Q5K>(tier, width),
        TensorType::Q6_K => of_width::<formats::Q6K>(tier, width),
        // No other type has a layout.
        _ => of_width::<formats::Q8_0>(tier, width),
    }
}

fn of_width<F: Format>(tier: Instructions, width: usize) -> Kernel {
    match width {
        1 => of_tier::<F, 1>(tier),
        2 => of_tier::<F, 2>(tier),
        3 => of_tier::<F, 3>(tier),
        4 => of_tier::<F, 4>(tier),
        6 => of_tier::<F, 6>(tier),
        _ => of_tier::<F, 8>(tier),
    }
}

fn of_tier<F: Format, const C: usize>(tier: Instructions) -> Kernel {
    match tier {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => {
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
            unsafe fn compiled<F: Format, const C: usize>(
                strip: *const u8,
                n_blocks: usize,
                x: *const u8,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe { formats::strip::<isa::Avx512, F, C>(strip, n_blocks, x, out) }
            }
            compiled::<F, C>
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => {
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn compiled<F: Format, const C: usize>(
                strip: *const u8,
                n_blocks: usize,
                x: *const u8,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe { formats::strip::<isa::Avx2, F, C>(strip, n_blocks, x, out) }
            }
            compiled::<F, C>
        }
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => {
            #[target_feature(enable = "neon,dotprod")]
            unsafe fn compiled<F: Format, const C: usize>(
                strip: *const u8,
                n_blocks: usize,
                x: *const u8,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe { formats::strip::<isa::Neon, F, C>(strip, n_blocks, x, out) }
            }
            compiled::<F, C>
        }
        _ => {
            unsafe fn compiled<F: Format, const C: usize>(
                strip: *const u8,
                n_blocks: usize,
                x: *const u8,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe { formats::strip::<isa::Scalar, F, C>(strip, n_blocks, x, out) }
            }
            compiled::<F, C>
        }
    }
}
