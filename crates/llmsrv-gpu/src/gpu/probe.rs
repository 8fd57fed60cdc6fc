//! What a device can do at most, measured by kernels.

use std::time::{Duration, Instant};

use llmsrv_gguf::TensorType;

use super::{Gpu, LANES, Matrix, ROWS, TILE_ROWS, groups, unsupported};
use crate::{
    Arithmetic, Choice, Error, Found,
    recorder::{ALIGNMENT, Access, Region, Work},
};

/// A device that is measured, with memory of its own.
pub struct Probe {
    gpu: Gpu,
    /// What is read: more than caches hold.
    data: Region,
    /// A word for each lane.
    out: Region,
    /// How long something is repeated at least.
    enough: Duration,
}

impl Probe {
    /// Opens the best device that may be used, and takes up to 1 GiB of its memory, at most half of what is free.
    ///
    /// # Errors
    /// As [`Gpu::open`]; [`Error::OutOfMemory`] if less than 32 MiB could be taken.
    pub fn open(choice: &Choice) -> Result<Probe, Error> {
        Probe::within(choice, MOST_BYTES, LONG_ENOUGH)
    }

    /// As [`Probe::open`], with 128 MiB at most and less time for each measurement, so that a start may wait for
    /// it.
    ///
    /// # Errors
    /// As there.
    pub fn brief(choice: &Choice) -> Result<Probe, Error> {
        Probe::within(choice, MOST_BYTES / 8, LONG_ENOUGH / 5)
    }

    fn within(choice: &Choice, most_bytes: u64, enough: Duration) -> Result<Probe, Error> {
        let mut gpu = Gpu::open(choice, 0)?;
        let free = gpu.free_bytes();
        let bytes = most_bytes.min(gpu.max_binding()).min(free / 2);
        let bytes = bytes / ALIGNMENT * ALIGNMENT;
        if bytes < FEWEST_BYTES {
            return Err(Error::OutOfMemory {
                device: gpu.device().name.clone(),
                needed_bytes: 2 * FEWEST_BYTES,
                free_bytes: free,
            });
        }
        let mut region = |bytes| -> Result<Region, Error> {
            Ok(Region {
                buffer: gpu.recorder.allocate(bytes)?,
                start: 0,
                bytes,
            })
        };
        let (data, out) = (region(bytes)?, region(4 * MOST_LANES as u64)?);
        let mut probe = Probe {
            gpu,
            data,
            out,
            enough,
        };
        probe.fill()?;
        Ok(probe)
    }

    /// Returns the device as its driver describes it.
    pub fn device(&self) -> &Found {
        self.gpu.device()
    }

    /// Returns whether the device can time kernels.
    pub fn times_kernels(&self) -> bool {
        self.gpu.recorder.times_kernels()
    }

    /// Returns how many bytes are read to measure the memory.
    pub fn data_bytes(&self) -> u64 {
        self.data.bytes
    }

    /// Returns how many bytes of its memory the device reads in a second.
    ///
    /// # Errors
    /// A failure of the device; so for the others.
    pub fn bytes_per_second(&mut self) -> Result<f64, Error> {
        let n_vectors = self.data.bytes / 16;
        let n_lanes = (n_vectors as usize / VECTORS_OF_A_LANE).clamp(LANES, MOST_LANES);
        let bindings = [Access::Write(self.out), Access::Read(self.data)];
        let [across, down] = groups(n_lanes / LANES);
        let params = [n_vectors as u32, 0];
        let bytes = self.data.bytes;
        let per_second = self.repeat(|gpu, n| {
            for _ in 0..n {
                let work = Work::new(bytes, bytes);
                let groups = [across, down, 1];
                gpu.recorder
                    .dispatch("probe_read", &bindings, &params, groups, work)?;
            }
            Ok(())
        })?;
        Ok(per_second * bytes as f64)
    }

    /// Returns how many operations on f32 the device does in a second; a multiplication and a sum are two.
    pub fn float_ops_per_second(&mut self) -> Result<f64, Error> {
        self.chains("probe_fma", 16 * 2)
    }

    /// Returns how many operations on signed bytes the device does in a second, four multiplications and as many sums at
    /// a time; `None` if it has no integer dot products.
    pub fn int8_ops_per_second(&mut self) -> Result<Option<f64>, Error> {
        if !self.device().has_integer_dot {
            return Ok(None);
        }
        let ops_per_second = self.chains("probe_dot", 16 * 4 * 2)?;
        Ok(Some(ops_per_second))
    }

    /// Returns from how many rows on integer products are faster in tiles than eight rows at a time; `None` where rows are
    /// not multiplied in integers.
    ///
    /// With `t8` and `t32` for the seconds of 8 and of a tile of 32 rows, `n` rows take `n.div_ceil(8) * t8` or
    /// `n.div_ceil(32) * t32`.
    pub fn tiles_from(&mut self) -> Result<Option<usize>, Error> {
        if self.gpu.arithmetic() != Arithmetic::Int8 {
            return Ok(None);
        }
        let matrix = self.weights()?;
        self.gpu.set_tiles_from(usize::MAX);
        let eight = self.product_seconds(&matrix, ROWS)?;
        self.gpu.set_tiles_from(TILE_ROWS);
        let tile = self.product_seconds(&matrix, TILE_ROWS)?;
        Ok(Some(tiles_pay_from(eight, tile)))
    }

    /// Returns whether matrix units compute integer products right, to the last bit, and faster than the other kernels;
    /// `false` where there are no such units, or where rows are not multiplied in integers.
    pub fn matrices_pay(&mut self) -> Result<bool, Error> {
        if self.gpu.arithmetic() != Arithmetic::Int8 || !self.device().has_matrices {
            return Ok(false);
        }
        for dtype in [TensorType::Q4_K, TensorType::Q6_K] {
            // Bytes without a pattern, whatever the scales then are, but finite.
            let mut bytes: Vec<u8> = random_words()
                .flat_map(u32::to_le_bytes)
                .take(N_CHECKED * N_CHECKED / dtype.block_len() * dtype.block_bytes())
                .collect();
            let scales: &[usize] = match dtype {
                TensorType::Q4_K => &[1, 3],
                _ => &[209],
            };
            for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
                for at in scales {
                    if let Some(byte) = block.get_mut(*at) {
                        *byte = *byte & 0x83 | 0x20;
                    }
                }
            }
            let matrix = self.gpu.matrix(dtype, N_CHECKED, N_CHECKED, &bytes, &[])?;
            for n_rows in ROWS_CHECKED {
                // Among them many as large as can be, so that sums are.
                let x: Vec<f32> = random_words()
                    .map(|word| (word as f32 / (1_u64 << 30) as f32 - 2.0).clamp(-1.0, 1.0))
                    .take(n_rows * N_CHECKED)
                    .collect();
                let x = self.gpu.rows(&x, N_CHECKED)?;
                let mut product = |uses_matrices| {
                    self.gpu.set_matrices(uses_matrices);
                    let product = self.gpu.linear(&x, &matrix, None)?;
                    let mut out = vec![0.0_f32; n_rows * N_CHECKED];
                    self.gpu.read(&product, &mut out)?;
                    Ok::<_, Error>(out)
                };
                let right = product(false)?;
                // A driver that does not take these kernels goes on without them.
                let found = product(true).unwrap_or_default();
                let same = found
                    .iter()
                    .map(|x| x.to_bits())
                    .eq(right.iter().map(|x| x.to_bits()));
                if !same {
                    self.gpu.set_matrices(false);
                    return Ok(false);
                }
            }
        }
        let matrix = self.weights()?;
        let mut seconds = |uses_matrices| {
            self.gpu.set_matrices(uses_matrices);
            self.product_seconds(&matrix, TIMED_ROWS)
        };
        let (without, with) = (seconds(false)?, seconds(true)?);
        self.gpu.set_matrices(false);
        Ok(with < without)
    }

    /// Returns the seconds of a product of so many rows.
    fn product_seconds(&mut self, matrix: &Matrix, n_rows: usize) -> Result<f64, Error> {
        let x = self.gpu.zeros(n_rows, N_IN)?;
        let per_second = self.repeat(|gpu, n| {
            for _ in 0..n {
                gpu.linear(&x, matrix, None)?;
            }
            Ok(())
        })?;
        Ok(1.0 / per_second)
    }

    /// Makes the matrix that is measured. What its numbers are takes no time.
    fn weights(&mut self) -> Result<Matrix, Error> {
        let dtype = TensorType::Q4_K;
        let n_bytes = N_OUT * N_IN / dtype.block_len() * dtype.block_bytes();
        self.gpu
            .matrix(dtype, N_OUT, N_IN, &vec![0x11; n_bytes], &[])
    }

    /// Runs a kernel of chains of operations that read nothing; `ops` is what a lane does in one round.
    fn chains(&mut self, kernel: &'static str, ops: usize) -> Result<f64, Error> {
        let bindings = [Access::Write(self.out), Access::None];
        let [across, down] = groups(CHAIN_LANES / LANES);
        let ops = (CHAIN_LANES * ops) as u64;
        let per_second = self.repeat(|gpu, n| {
            let work = Work::new(ops * u64::from(n), 4 * CHAIN_LANES as u64);
            let params = [999, n];
            let groups = [across, down, 1];
            gpu.recorder
                .dispatch(kernel, &bindings, &params, groups, work)
        })?;
        Ok(per_second * ops as f64)
    }

    /// Returns the seconds from one kernel that does next to nothing to the next one that waits for it.
    pub fn kernel_seconds(&mut self) -> Result<f64, Error> {
        let bindings = [Access::Write(self.out)];
        let per_second = self.repeat(|gpu, n| {
            for _ in 0..n {
                let params = [1, 1, 0, 0, 0, 0];
                gpu.recorder
                    .dispatch("zero", &bindings, &params, [1, 1, 1], 1)?;
            }
            Ok(())
        })?;
        Ok(1.0 / per_second)
    }

    /// Runs something `n` times at once, with `n` as large as it must be to take a while. Returns how often it ran in a
    /// second.
    fn repeat(
        &mut self,
        mut run: impl FnMut(&mut Gpu, u32) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        self.gpu.finish()?;
        // The pipeline is made, and the clock of the device rises.
        run(&mut self.gpu, 1)?;
        self.gpu.finish()?;
        let mut n = 1;
        loop {
            let start = Instant::now();
            run(&mut self.gpu, n)?;
            self.gpu.finish()?;
            let took = start.elapsed();
            if took >= self.enough || n >= MOST_TIMES {
                return Ok(f64::from(n) / took.as_secs_f64());
            }
            n *= 2;
        }
    }

    /// Writes numbers without a pattern: memory that is all zeros may be kept compressed.
    fn fill(&mut self) -> Result<(), Error> {
        let words: Vec<u32> = random_words().take(1 << 18).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let mut done = (bytes.len() as u64).min(self.data.bytes);
        let Some(first) = bytes.get(..done as usize) else {
            return Err(unsupported("memory of another size".into()));
        };
        self.gpu.recorder.upload(first, self.data)?;
        while done < self.data.bytes {
            let n = done.min(self.data.bytes - done);
            let part = |start| Region {
                start,
                bytes: n,
                ..self.data
            };
            self.gpu.recorder.copy(part(0), part(done))?;
            done += n;
        }
        self.gpu.finish()
    }
}

/// Returns words without a pattern, of Numerical Recipes' generator.
fn random_words() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |word| {
        Some(word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
    })
}

/// Returns the least number of rows of which tiles take less time, by the seconds of 8 rows and of a tile: `usize::MAX` if
/// there is none.
fn tiles_pay_from(eight: f64, tile: f64) -> usize {
    let most = TILE_ROWS / ROWS;
    // As many groups of eight rows are as fast as a tile, or faster.
    let groups = (0..=most).rev().find(|n| *n as f64 * eight <= tile);
    match groups.unwrap_or(0) {
        n if n == most => usize::MAX,
        n => ROWS * n + 1,
    }
}

/// The shape that is measured: about that of a layer of 3 billion weights.
const N_OUT: usize = 4096;
const N_IN: usize = 2048;
/// The shape that matrix units are asked for, and its rows, so that every kernel takes some.
const N_CHECKED: usize = 512;
const ROWS_CHECKED: [usize; 2] = [40, 130];
/// Rows that are timed.
const TIMED_ROWS: usize = 128;
/// No cache of a GPU holds a tenth of it.
const MOST_BYTES: u64 = 1 << 30;
/// Less says nothing of memory.
const FEWEST_BYTES: u64 = 32 << 20;
const VECTORS_OF_A_LANE: usize = 16;
const MOST_LANES: usize = 1 << 22;
/// Enough to keep the largest devices busy.
const CHAIN_LANES: usize = 1 << 18;
/// What the host adds to the time of the device is then little.
const LONG_ENOUGH: Duration = Duration::from_millis(50);
const MOST_TIMES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_used_from_where_they_take_less_time() {
        for (eight, tile, expected) in [
            (1.0, 0.5, 1),
            (1.0, 1.0, 9),
            (1.0, 1.5, 9),
            (1.0, 2.0, 17),
            (1.0, 3.9, 25),
            (1.0, 4.0, usize::MAX),
            (1.0, f64::INFINITY, usize::MAX),
        ] {
            let from = tiles_pay_from(eight, tile);
            assert_eq!(from, expected, "{eight} {tile}");
            for n in 1..200_usize {
                let few = n.div_ceil(ROWS) as f64 * eight;
                let many = n.div_ceil(TILE_ROWS) as f64 * tile;
                let is_less = if n >= from { many <= few } else { few <= many };
                assert!(n > TILE_ROWS || is_less, "{n} rows, {eight} {tile}");
            }
        }
    }
}
