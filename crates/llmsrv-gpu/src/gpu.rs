//! The operations of decoders on an opened GPU. They are recorded; [`Gpu::read`] and [`Gpu::finish`] run them.
//!
//! `products`, `rows`, `attention`, `states` and `experts` have them. Each is one kernel of `shaders/`, or a few. The caller's shapes
//! are checked here, so that a kernel reads and writes only what belongs to its operands.

mod attention;
mod experts;
mod probe;
mod products;
mod rows;
mod states;

use std::{ops::Range, sync::Arc};

use llmsrv_gguf::TensorType;
use parking_lot::Mutex;

use crate::{
    Error, Found,
    device::{Arithmetic, Choice, Device},
    recorder::{ALIGNMENT, Access, Recorder, Region},
};
pub use attention::{
    Angles, Attention, Cache, LARGEST_HEAD, Pairs, Step, StepRow, kept_bytes, part_bytes,
};
pub use experts::{Expert, Experts, Gating, MIXTURE_ROWS, Routing, experts_bytes};
pub use probe::Probe;
pub use rows::Function;
pub use states::{
    DeltaRule, LARGEST_STATE_HEAD, Round, SelectiveScan, ShortConv, States, Stretch, Stretches,
};

/// An opened GPU with the memory of one model.
pub struct Gpu {
    pub(crate) recorder: Recorder,
    /// Where weights are put next, and the bytes left there.
    weights: Option<(Region, u64)>,
    /// Sizes of the pieces of memory that the next weights will need, the last one first.
    expected: Vec<u64>,
    /// Memory of all weights.
    weight_bytes: u64,
    /// How rows are multiplied with the matrices that come.
    arithmetic: Arithmetic,
    /// From so many rows on integer products are computed in tiles.
    tiles_from: usize,
    /// Whether products of many rows are computed on matrix units.
    uses_matrices: bool,
    /// Whether a matrix was put onto the device that wants rows rounded in blocks of 256.
    rounds_256: bool,
    /// Idle memory for activations, by size.
    idle: Idle,
    /// Memory for activations with the bytes of it that are to be used. What is behind these has [`CANARY`].
    #[cfg(test)]
    pub(crate) watched: Option<Vec<(Region, u64)>>,
}

type Idle = Arc<Mutex<Vec<Region>>>;

/// Rows of activations. Its memory is used again when it is dropped.
#[derive(Debug)]
pub struct Tensor {
    n_rows: usize,
    width: usize,
    region: Region,
    /// What the region is a part of: products of the same rows share it.
    memory: Arc<Scratch>,
    /// What its rows were rounded to when they were made, with the kernel that rounds so; until something else is
    /// written.
    rounded: Mutex<Option<(&'static str, Arc<Tensor>)>>,
}

/// Memory that returns when it is dropped.
#[derive(Debug)]
struct Scratch {
    region: Region,
    idle: Idle,
}

/// The kernels of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernels {
    /// For one row and for several.
    pub few: [&'static str; 2],
    /// What there is beside them where rows are rounded to bytes.
    pub int8: Option<Int8Kernels>,
}

/// What integer products need beside the kernels of few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int8Kernels {
    /// For many rows.
    pub many: &'static str,
    /// For many rows, on matrix units.
    pub matrices: Option<MatrixKernels>,
    /// Rounds the rows.
    pub quantize: &'static str,
    /// Elements of a row that share a scale.
    pub block_len: usize,
}

/// Kernels for matrix units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixKernels {
    /// From so many rows on they are used.
    pub from: usize,
    /// Rows of a workgroup and the kernel that has so many, fewer rows first. The last one takes all that are more.
    pub by_rows: &'static [(usize, &'static str)],
}

/// A weight matrix: rows are outputs.
#[derive(Debug)]
pub struct Matrix {
    kernels: Kernels,
    n_rows: usize,
    n_cols: usize,
    row_bytes: usize,
    /// Multiplies the products.
    scale: f32,
    /// Whole rows each, in order: one binding may be too short for all.
    parts: Vec<(usize, Region)>,
}

/// Weights of one row: of a norm, or a bias.
#[derive(Debug)]
pub struct Vector {
    len: usize,
    region: Region,
}

/// Returns whether there are kernels for matrices of a type.
pub fn supports(dtype: TensorType) -> bool {
    kernels_of(dtype, Arithmetic::F32).is_some()
}

impl Gpu {
    /// Returns how many devices may be used; at least one.
    ///
    /// # Errors
    /// What is missing: the loader, a driver, a device.
    pub fn count(choice: &Choice) -> Result<usize, Error> {
        Device::count(choice)
    }

    /// Opens one of the devices that may be used; 0 is the best.
    ///
    /// # Errors
    /// As [`Gpu::count`].
    pub fn open(choice: &Choice, number: usize) -> Result<Gpu, Error> {
        let mut gpu = Gpu {
            recorder: Recorder::open(choice, number)?,
            weights: None,
            expected: Vec::new(),
            weight_bytes: 0,
            arithmetic: Arithmetic::F32,
            tiles_from: TILES_FROM,
            uses_matrices: false,
            rounds_256: false,
            idle: Idle::default(),
            #[cfg(test)]
            watched: None,
        };
        gpu.set_arithmetic(choice.arithmetic);
        Ok(gpu)
    }

    /// Returns the device as its driver describes it.
    pub fn device(&self) -> &Found {
        self.recorder.device()
    }

    /// Returns how many bytes of the device's memory may still be taken.
    pub fn free_bytes(&self) -> u64 {
        self.recorder.free_bytes()
    }

    /// Returns how many bytes of the device's memory are taken.
    pub fn taken_bytes(&self) -> u64 {
        self.recorder.taken_bytes()
    }

    /// Returns how many of them weights take.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Returns how rows are multiplied with matrices.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Chooses how rows are multiplied with the matrices that are put onto the device from now on: in f32 whatever is
    /// asked for where the device has no integer dot products ([`Found::has_integer_dot`]), and with weights of types
    /// without kernels for them.
    pub fn set_arithmetic(&mut self, arithmetic: Arithmetic) {
        self.arithmetic = if self.device().has_integer_dot {
            arithmetic
        } else {
            Arithmetic::F32
        };
    }

    /// Computes integer products of so many rows and more in tiles, of fewer rows with the kernel that takes eight at a
    /// time. Results are the same to the last bit; [`Probe::tiles_from`] measures from where on tiles are faster.
    pub fn set_tiles_from(&mut self, n_rows: usize) {
        // One row has a kernel of its own.
        self.tiles_from = n_rows.max(2);
    }

    /// Computes integer products of many rows on matrix units, or not, where the device has such ([`Found::has_matrices`])
    /// and the weights are of a type with kernels for them. Results are the same to the last bit;
    /// [`Probe::matrices_pay`] says whether they are, and faster.
    pub fn set_matrices(&mut self, uses_matrices: bool) {
        self.uses_matrices = uses_matrices && self.device().has_matrices;
    }

    /// Says of what sizes the pieces of memory will be that weights need, as [`pieces`] tells of all that come, in their
    /// order: then none of it is left over.
    pub fn expect(&mut self, mut pieces: Vec<u64>) {
        pieces.reverse();
        self.expected = pieces;
    }

    /// Returns the most bytes that a kernel reads of one buffer.
    pub fn max_binding(&self) -> u64 {
        self.recorder.max_binding()
    }

    /// Puts a matrix of `n_rows` times `n_cols` weights, stored as in a model file, onto the device.
    ///
    /// `codebook` has the points that indices of the types IQ1, IQ2 and IQ3 stand for: of each the levels of its
    /// elements from the lowest bits on, eight of two bits or four of three bits. Of other types it is empty.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a type without kernels, [`Error::OutOfMemory`].
    pub fn matrix(
        &mut self,
        dtype: TensorType,
        n_rows: usize,
        n_cols: usize,
        bytes: &[u8],
        codebook: &[u16],
    ) -> Result<Matrix, Error> {
        let Some(kernels) = kernels_of(dtype, self.arithmetic) else {
            return Err(unsupported(format!("weights of type {dtype}")));
        };
        self.rounds_256 |= kernels.int8.is_some_and(|int8| int8.block_len == 256);
        if codebook.len() != points_of(dtype) {
            return Err(unsupported(format!(
                "weights of type {dtype} without their codebook"
            )));
        }
        let is_whole = n_cols.is_multiple_of(dtype.block_len()) && n_rows > 0 && n_cols > 0;
        let row_bytes = n_cols / dtype.block_len().max(1) * dtype.block_bytes();
        if !is_whole || row_bytes.checked_mul(n_rows) != Some(bytes.len()) {
            return Err(unsupported(
                "a matrix of another size than its bytes".into(),
            ));
        }
        let rows = rows_of_part(dtype, row_bytes, self.recorder.max_binding());
        let mut parts = Vec::new();
        for part in bytes.chunks(rows * row_bytes) {
            let region = self.place(part, bytemuck::cast_slice(codebook))?;
            parts.push((part.len() / row_bytes, region));
        }
        Ok(Matrix {
            kernels,
            n_rows,
            n_cols,
            row_bytes,
            scale: 1.0,
            parts,
        })
    }

    /// Puts a vector onto the device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn vector(&mut self, values: &[f32]) -> Result<Vector, Error> {
        let region = self.place(bytemuck::cast_slice(values), &[])?;
        Ok(Vector {
            len: values.len(),
            region,
        })
    }

    /// Makes rows of values.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or a failure of the device; the same holds for all operations below.
    pub fn rows(&mut self, values: &[f32], width: usize) -> Result<Tensor, Error> {
        let x = self.tensor(values.len() / width.max(1), width)?;
        self.recorder
            .upload(bytemuck::cast_slice(values), x.region)?;
        Ok(x)
    }

    /// Replaces rows of `x` from `first` on.
    pub fn put_rows(&mut self, x: &mut Tensor, first: usize, values: &[f32]) -> Result<(), Error> {
        let start = first.saturating_mul(x.width).saturating_mul(4) as u64;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if start.saturating_add(bytes.len() as u64) > x.bytes() {
            return Err(unsupported("rows that are not there".into()));
        }
        *x.rounded.lock() = None;
        let region = x.region;
        let to = Region {
            start: region.start + start,
            bytes: bytes.len() as u64,
            ..region
        };
        self.recorder.upload(bytes, to)
    }

    /// Makes rows of zeros.
    pub fn zeros(&mut self, n_rows: usize, width: usize) -> Result<Tensor, Error> {
        let x = self.tensor(n_rows, width)?;
        let bindings = [x.write()];
        self.elements("zero", &bindings, &x, [0; 3], 0.0)?;
        Ok(x)
    }

    /// Runs what was recorded and copies all elements to `out`, which has exactly as many.
    pub fn read(&mut self, x: &Tensor, out: &mut [f32]) -> Result<(), Error> {
        if x.n_elements() != out.len() {
            return Err(mismatch("a result"));
        }
        if out.is_empty() {
            return self.finish();
        }
        let region = Region {
            bytes: x.bytes(),
            ..x.region
        };
        self.recorder.read(region, bytemuck::cast_slice_mut(out))
    }

    /// Runs what was recorded and waits for it.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.recorder.finish()
    }

    fn tensor(&mut self, n_rows: usize, width: usize) -> Result<Tensor, Error> {
        let mut made = self.tensors(n_rows, &[width])?;
        made.pop().ok_or_else(|| mismatch("rows"))
    }

    /// Makes tensors of as many rows one behind the other, so that one kernel can write all of them.
    fn tensors(&mut self, n_rows: usize, widths: &[usize]) -> Result<Vec<Tensor>, Error> {
        let bytes = |width: usize| n_rows.checked_mul(width).and_then(|n| n.checked_mul(4));
        let mut total = 0_u64;
        for width in widths {
            total = total.next_multiple_of(ALIGNMENT);
            let bytes = bytes(*width).map(|bytes| bytes as u64);
            total = bytes
                .map(|bytes| total.saturating_add(bytes))
                .filter(|total| *total <= self.recorder.max_binding())
                .ok_or_else(|| unsupported(format!("{n_rows} rows of {width} elements")))?;
        }
        let memory = Arc::new(self.scratch(total as usize)?);
        let mut start = memory.region.start;
        let parts = widths.iter().map(|width| {
            let bytes = (n_rows * width * 4) as u64;
            let region = Region {
                start,
                bytes: if widths.len() == 1 {
                    memory.region.bytes
                } else {
                    // Attention reads keys and values in vectors of four words, whole ones to the end.
                    bytes.next_multiple_of(16)
                },
                ..memory.region
            };
            start += bytes.next_multiple_of(ALIGNMENT);
            Tensor {
                n_rows,
                width: *width,
                region,
                memory: memory.clone(),
                rounded: Mutex::default(),
            }
        });
        Ok(parts.collect())
    }

    /// Returns memory for activations. What earlier commands do with it is ordered by barriers.
    fn scratch(&mut self, bytes: usize) -> Result<Scratch, Error> {
        #[cfg(test)]
        let used = bytes as u64;
        // Few sizes, so that memory is found again.
        let bytes = (bytes.max(SMALLEST) as u64)
            .next_power_of_two()
            .min(self.recorder.max_binding());
        #[cfg(test)]
        if let Some(watched) = &mut self.watched {
            let buffer = self.recorder.allocate(bytes)?;
            let region = Region {
                buffer,
                start: 0,
                bytes,
            };
            let canaries = vec![CANARY; bytes as usize];
            self.recorder.upload(&canaries, region)?;
            watched.push((region, used));
            let idle = self.idle.clone();
            return Ok(Scratch { region, idle });
        }
        let mut idle = self.idle.lock();
        let found = idle.iter().rposition(|region| region.bytes == bytes);
        let found = found.map(|at| idle.swap_remove(at));
        drop(idle);
        let region = match found {
            Some(region) => region,
            None => Region {
                buffer: self.recorder.allocate(bytes)?,
                start: 0,
                bytes,
            },
        };
        Ok(Scratch {
            region,
            idle: self.idle.clone(),
        })
    }

    /// Puts weights behind others.
    fn place(&mut self, bytes: &[u8], more: &[u8]) -> Result<Region, Error> {
        let n_first = bytes.len().next_multiple_of(4) as u64;
        let n_bytes = (n_first + more.len() as u64).max(4);
        let needed = room_of(bytes.len() as u64, more.len() as u64);
        if self.weights.as_ref().is_none_or(|(_, left)| *left < needed) {
            let mut size = needed.max(self.expected.pop().unwrap_or(SMALL_PIECE));
            let buffer = self.recorder.allocate(size).or_else(|error| match error {
                // There may be room for these alone.
                Error::OutOfMemory { .. } if size > needed => {
                    size = needed;
                    self.recorder.allocate(size)
                }
                error => Err(error),
            })?;
            self.weight_bytes += size;
            self.weights = Some((
                Region {
                    buffer,
                    start: 0,
                    bytes: size,
                },
                size,
            ));
        }
        let Some((next, left)) = &mut self.weights else {
            return Err(mismatch("weights"));
        };
        let region = Region {
            bytes: n_bytes.next_multiple_of(4),
            ..*next
        };
        next.start += needed;
        *left = left.saturating_sub(needed);
        self.recorder.upload(bytes, region)?;
        if !more.is_empty() {
            let rest = Region {
                start: region.start + n_first,
                bytes: region.bytes - n_first,
                ..region
            };
            self.recorder.upload(more, rest)?;
        }
        Ok(region)
    }
}

/// Returns the bytes of the device's memory that the parts of a matrix take, in the order in which [`Gpu::matrix`] puts
/// them there; `None` for a type without kernels. `max_binding` is as [`Gpu::max_binding`].
pub fn matrix_bytes(
    dtype: TensorType,
    n_rows: usize,
    n_cols: usize,
    max_binding: u64,
) -> Option<Vec<u64>> {
    kernels_of(dtype, Arithmetic::F32)?;
    let row_bytes = (n_cols / dtype.block_len().max(1) * dtype.block_bytes()).max(1);
    let rows = rows_of_part(dtype, row_bytes, max_binding);
    let codebook = 2 * points_of(dtype) as u64;
    let parts = (0..n_rows).step_by(rows);
    let parts = parts.map(|first| (n_rows - first).min(rows) as u64 * row_bytes as u64);
    Some(parts.map(|bytes| room_of(bytes, codebook)).collect())
}

/// As [`matrix_bytes`], of a vector.
pub fn vector_bytes(len: usize) -> u64 {
    room_of(4 * len as u64, 0)
}

/// Returns the sizes of the pieces of memory that weights of these sizes are put into, one behind the other. Their sum
/// is that of the weights.
pub fn pieces(sizes: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut pieces: Vec<u64> = Vec::new();
    for size in sizes {
        match pieces.last_mut() {
            Some(last) if *last + size <= LARGE_PIECE => *last += size,
            _ => pieces.push(size),
        }
    }
    pieces
}

/// Returns the rows of a matrix that a kernel reads at once.
fn rows_of_part(dtype: TensorType, row_bytes: usize, max_binding: u64) -> usize {
    // Of whole words, so that a last half word belongs to the same part.
    let most = max_binding.saturating_sub(4) as usize;
    (most.saturating_sub(2 * points_of(dtype)) / row_bytes.max(1)).max(1)
}

/// Returns what weights take with what follows them, in whole units of alignment.
fn room_of(bytes: u64, more: u64) -> u64 {
    let bytes = (bytes.next_multiple_of(4) + more).max(4);
    bytes.next_multiple_of(ALIGNMENT)
}

impl Matrix {
    /// Multiplies all products with this matrix by `scale`, before what is added.
    #[must_use]
    pub fn scaled(mut self, scale: f32) -> Matrix {
        self.scale = scale;
        self
    }
}

impl Tensor {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Returns the elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    fn n_elements(&self) -> usize {
        self.n_rows * self.width
    }

    /// Returns some of the rows, which share its memory. The first is a multiple of 64, so that it may be bound.
    fn part(&self, rows: Range<usize>) -> Tensor {
        let row_bytes = self.width as u64 * 4;
        let region = Region {
            start: self.region.start + rows.start as u64 * row_bytes,
            bytes: rows.len() as u64 * row_bytes,
            ..self.region
        };
        Tensor {
            n_rows: rows.len(),
            width: self.width,
            region,
            memory: self.memory.clone(),
            rounded: Mutex::default(),
        }
    }

    fn bytes(&self) -> u64 {
        self.n_elements() as u64 * 4
    }

    fn read(&self) -> Access {
        Access::Read(self.region)
    }

    /// What it was rounded to is out of date then.
    fn write(&self) -> Access {
        *self.rounded.lock() = None;
        Access::Write(self.region)
    }

    fn same_shape(&self, other: &Tensor) -> Result<(), Error> {
        let same = (self.n_rows, self.width) == (other.n_rows, other.width);
        if same { Ok(()) } else { Err(mismatch("rows")) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut idle = self.idle.lock();
        idle.push(self.region);
    }
}

/// Returns the kernels of a type of weights. Types without kernels for integers have those for f32.
pub(crate) fn kernels_of(dtype: TensorType, arithmetic: Arithmetic) -> Option<Kernels> {
    if arithmetic == Arithmetic::Int8
        && let Some(kernels) = int8_kernels_of(dtype)
    {
        return Some(kernels);
    }
    let few = match dtype {
        TensorType::F32 => ["f32_1", "f32_8"],
        TensorType::F16 => ["f16_1", "f16_8"],
        TensorType::BF16 => ["bf16_1", "bf16_8"],
        TensorType::Q4_0 => ["q4_0_1", "q4_0_8"],
        TensorType::Q4_1 => ["q4_1_1", "q4_1_8"],
        TensorType::Q5_0 => ["q5_0_1", "q5_0_8"],
        TensorType::Q5_1 => ["q5_1_1", "q5_1_8"],
        TensorType::Q8_0 => ["q8_0_1", "q8_0_8"],
        TensorType::Q4_K => ["q4_k_1", "q4_k_8"],
        TensorType::Q5_K => ["q5_k_1", "q5_k_8"],
        TensorType::Q6_K => ["q6_k_1", "q6_k_8"],
        TensorType::Q2_K => ["q2_k_1", "q2_k_8"],
        TensorType::Q3_K => ["q3_k_1", "q3_k_8"],
        TensorType::IQ4_NL => ["iq4_nl_1", "iq4_nl_8"],
        TensorType::IQ4_XS => ["iq4_xs_1", "iq4_xs_8"],
        TensorType::MXFP4 => ["mxfp4_1", "mxfp4_8"],
        TensorType::TQ2_0 => ["tq2_0_1", "tq2_0_8"],
        TensorType::TQ1_0 => ["tq1_0_1", "tq1_0_8"],
        TensorType::IQ1_S => ["iq1_s_1", "iq1_s_8"],
        TensorType::IQ1_M => ["iq1_m_1", "iq1_m_8"],
        TensorType::IQ2_XXS => ["iq2_xxs_1", "iq2_xxs_8"],
        TensorType::IQ2_XS => ["iq2_xs_1", "iq2_xs_8"],
        TensorType::IQ2_S => ["iq2_s_1", "iq2_s_8"],
        TensorType::IQ3_XXS => ["iq3_xxs_1", "iq3_xxs_8"],
        TensorType::IQ3_S => ["iq3_s_1", "iq3_s_8"],
        TensorType::Q1_0 => ["q1_0_1", "q1_0_8"],
        TensorType::Q2_0 => ["q2_0_1", "q2_0_8"],
        TensorType::NVFP4 => ["nvfp4_1", "nvfp4_8"],
        _ => return None,
    };
    Some(Kernels { few, int8: None })
}

fn int8_kernels_of(dtype: TensorType) -> Option<Kernels> {
    let [one, several, many] = match dtype {
        TensorType::Q4_0 => ["dot_q4_0_1", "dot_q4_0_8", "dot_q4_0_32"],
        TensorType::Q4_1 => ["dot_q4_1_1", "dot_q4_1_8", "dot_q4_1_32"],
        TensorType::Q5_0 => ["dot_q5_0_1", "dot_q5_0_8", "dot_q5_0_32"],
        TensorType::Q5_1 => ["dot_q5_1_1", "dot_q5_1_8", "dot_q5_1_32"],
        TensorType::Q8_0 => ["dot_q8_0_1", "dot_q8_0_8", "dot_q8_0_32"],
        TensorType::Q2_K => ["dot_q2_k_1", "dot_q2_k_8", "dot_q2_k_32"],
        TensorType::Q3_K => ["dot_q3_k_1", "dot_q3_k_8", "dot_q3_k_32"],
        TensorType::Q4_K => ["dot_q4_k_1", "dot_q4_k_8", "dot_q4_k_32"],
        TensorType::Q5_K => ["dot_q5_k_1", "dot_q5_k_8", "dot_q5_k_32"],
        TensorType::Q6_K => ["dot_q6_k_1", "dot_q6_k_8", "dot_q6_k_32"],
        TensorType::IQ4_NL => ["dot_iq4_nl_1", "dot_iq4_nl_8", "dot_iq4_nl_32"],
        TensorType::IQ4_XS => ["dot_iq4_xs_1", "dot_iq4_xs_8", "dot_iq4_xs_32"],
        TensorType::MXFP4 => ["dot_mxfp4_1", "dot_mxfp4_8", "dot_mxfp4_32"],
        _ => return None,
    };
    let (quantize, block_len) = match dtype.block_len() {
        32 => ("quantize_32", 32),
        _ => ("quantize_256", 256),
    };
    let matrices = match dtype {
        TensorType::Q4_K => Some(MatrixKernels {
            from: 9,
            by_rows: &[(64, "mma_q4_k_64"), (128, "mma_q4_k_128")],
        }),
        TensorType::Q6_K => Some(MatrixKernels {
            from: 33,
            by_rows: &[(64, "mma_q6_k_64")],
        }),
        _ => None,
    };
    Some(Kernels {
        few: [one, several],
        int8: Some(Int8Kernels {
            many,
            matrices,
            quantize,
            block_len,
        }),
    })
}

/// How many points the codebook of a type has.
fn points_of(dtype: TensorType) -> usize {
    match dtype {
        TensorType::IQ1_S | TensorType::IQ1_M => 2048,
        TensorType::IQ2_S => 1024,
        TensorType::IQ2_XS | TensorType::IQ3_S => 512,
        TensorType::IQ2_XXS | TensorType::IQ3_XXS => 256,
        _ => 0,
    }
}

/// Splits a number of workgroups into two dimensions that every device takes.
fn groups(n: usize) -> [u32; 2] {
    [n.min(MOST_GROUPS) as u32, n.div_ceil(MOST_GROUPS) as u32]
}

fn unsupported(what: String) -> Error {
    Error::Unsupported(what)
}

/// The error of operands that do not fit each other.
fn mismatch(what: &str) -> Error {
    Error::Unsupported(format!("{what} of another shape"))
}

/// What tests fill memory with that nobody is to write to.
#[cfg(test)]
pub(crate) const CANARY: u8 = 0xc7;
/// Rows that the kernels for several compute together.
const ROWS: usize = 8;
/// Outputs of a workgroup of a product.
const OUTPUTS: usize = 4;
/// Rows and outputs of a workgroup of integer products of many rows.
const TILE_ROWS: usize = 32;
const TILE_OUTPUTS: usize = 64;
/// Outputs of a workgroup of products on matrix units.
const MATRIX_OUTPUTS: usize = 64;
/// From so many rows on integer products are computed in such tiles where nothing was measured: with 16 rows the others
/// read the weights twice, and tiles would compute half of what they can for nothing.
pub(crate) const TILES_FROM: usize = 17;
/// Lanes of a workgroup of other kernels.
const LANES: usize = 64;
/// Workgroups in a dimension; every device takes as many.
const MOST_GROUPS: usize = 32_768;
/// Smallest piece of memory for activations.
const SMALLEST: usize = 4096;
/// Weights that were not expected share pieces of memory of this size, unless one is larger.
const SMALL_PIECE: u64 = 64 << 20;
/// Expected ones share pieces of up to this size.
const LARGE_PIECE: u64 = 256 << 20;
