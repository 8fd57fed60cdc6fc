//! The operations of decoders on an opened GPU. They are recorded; [`Gpu::read`] and [`Gpu::finish`] run them.
//!
//! Each operation is one kernel of `shaders/`. The caller's shapes are checked here, so that a kernel reads and writes
//! only what belongs to its operands.

use std::sync::{Arc, Mutex, PoisonError};

use llmsrv_gguf::TensorType;

use crate::{
    Counts, Error, Found,
    device::Choice,
    recorder::{ALIGNMENT, Access, Recorder, Region},
};

/// An opened GPU with the memory of one model.
pub struct Gpu {
    recorder: Recorder,
    /// Where weights are put next, and the bytes left there.
    weights: Option<(Region, u64)>,
    /// Idle memory for activations, by size.
    idle: Idle,
}

type Idle = Arc<Mutex<Vec<Region>>>;

/// Rows of activations. Its memory is used again when it is dropped.
#[derive(Debug)]
pub struct Tensor {
    n_rows: usize,
    width: usize,
    memory: Scratch,
}

/// Memory that returns when it is dropped.
#[derive(Debug)]
struct Scratch {
    region: Region,
    idle: Idle,
}

/// A weight matrix: rows are outputs.
#[derive(Debug)]
pub struct Matrix {
    /// The kernels for one row and for several.
    kernels: [&'static str; 2],
    n_rows: usize,
    n_cols: usize,
    /// Whole rows each, in order: one binding may be too short for all.
    parts: Vec<(usize, Region)>,
}

/// Weights of one row: of a norm, or a bias.
#[derive(Debug)]
pub struct Vector {
    len: usize,
    region: Region,
}

/// Cosines and sines for all rows of a step.
#[derive(Debug)]
pub struct Angles {
    tensor: Tensor,
    n_pairs: usize,
    interleaved: bool,
}

/// Keys and values in blocks of positions, for all layers, in f16.
#[derive(Debug)]
pub struct Cache {
    /// Positions of a block.
    block: usize,
    n_blocks: usize,
    /// Elements of the keys of a position in each layer, and the memory of keys and values.
    layers: Vec<(usize, Option<[Region; 2]>)>,
}

/// Where the rows of a step are in their sequences, on the device.
#[derive(Debug)]
pub struct Step {
    n_rows: usize,
    memory: Scratch,
    /// The most positions that a row sees.
    deepest: usize,
}

/// A row of a step, for [`Gpu::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Position in its sequence.
    pub position: u32,
    /// End of the positions that it sees.
    pub end: u32,
    /// Its sequence, an index into the tables.
    pub sequence: usize,
}

/// Which elements of a head form a pair that is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Neighbours.
    Interleaved,
    /// One of each half of what is rotated.
    Halves,
}

/// A function of single elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU, the tanh approximation.
    Gelu,
    /// `x * sigmoid(1.702 x)` of at most 7; what it multiplies is one more than a value of -7 to 7.
    ClampedSwiglu,
    /// The square of `x`, or 0 where that is negative.
    ReluSquared,
}

/// Shapes of queries and keys in one layer, and how they meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head; even, at most [`LARGEST_HEAD`].
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Bounds the scores.
    pub softcap: Option<f32>,
    /// Positions that a query sees, its own included.
    pub window: Option<usize>,
    /// A query sees nothing behind itself, whatever end its row has.
    pub causal: bool,
}

/// The most elements that a head may have.
pub const LARGEST_HEAD: usize = 512;

/// Returns whether there are kernels for matrices of a type.
pub fn supports(dtype: TensorType) -> bool {
    kernels_of(dtype).is_some()
}

impl Gpu {
    /// Opens the best device that may be used.
    ///
    /// # Errors
    /// What is missing: the loader, a driver, a device.
    pub fn open(choice: Choice) -> Result<Gpu, Error> {
        Ok(Gpu {
            recorder: Recorder::open(choice)?,
            weights: None,
            idle: Idle::default(),
        })
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

    /// Returns how many kernels and barriers were recorded so far.
    pub fn counts(&self) -> Counts {
        self.recorder.counts()
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
        let Some(kernels) = kernels_of(dtype) else {
            return Err(unsupported(format!("weights of type {dtype}")));
        };
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
        // Of whole words, so that a last half word belongs to the same part.
        let most = self.recorder.max_binding().saturating_sub(4) as usize;
        let rows = (most.saturating_sub(2 * codebook.len()) / row_bytes).max(1);
        let mut parts = Vec::new();
        for part in bytes.chunks(rows * row_bytes) {
            let region = self.place(part, bytemuck::cast_slice(codebook))?;
            parts.push((part.len() / row_bytes, region));
        }
        Ok(Matrix {
            kernels,
            n_rows,
            n_cols,
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
            .upload(bytemuck::cast_slice(values), x.memory.region)?;
        Ok(x)
    }

    /// Replaces rows of `x` from `first` on.
    pub fn put_rows(&mut self, x: &mut Tensor, first: usize, values: &[f32]) -> Result<(), Error> {
        let start = first.saturating_mul(x.width).saturating_mul(4) as u64;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if start.saturating_add(bytes.len() as u64) > x.bytes() {
            return Err(unsupported("rows that are not there".into()));
        }
        let region = x.memory.region;
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

    /// Multiplies the rows of `x` with the rows of `matrix` and adds `bias`: `[rows, n]` from `[rows, k]` and
    /// `[n, k]`.
    pub fn linear(
        &mut self,
        x: &Tensor,
        matrix: &Matrix,
        bias: Option<&Vector>,
    ) -> Result<Tensor, Error> {
        let out = self.tensor(x.n_rows, matrix.n_rows)?;
        self.product(&out, x, matrix, bias, None)?;
        Ok(out)
    }

    /// Adds such a product, times `scale`, to `out`.
    pub fn add_linear(
        &mut self,
        out: &mut Tensor,
        x: &Tensor,
        matrix: &Matrix,
        bias: Option<&Vector>,
        scale: f32,
    ) -> Result<(), Error> {
        self.product(out, x, matrix, bias, Some(scale))
    }

    fn product(
        &mut self,
        out: &Tensor,
        x: &Tensor,
        matrix: &Matrix,
        bias: Option<&Vector>,
        add: Option<f32>,
    ) -> Result<(), Error> {
        let fits = x.width == matrix.n_cols
            && out.width == matrix.n_rows
            && out.n_rows == x.n_rows
            && bias.is_none_or(|bias| bias.len == matrix.n_rows);
        if !fits {
            return Err(mismatch("a product"));
        }
        let (kernel, rows) = match (x.n_rows, matrix.kernels) {
            (0, _) => return Ok(()),
            (1, [one, _]) => (one, 1),
            (_, [_, several]) => (several, ROWS),
        };
        let flags = u32::from(add.is_some()) + 2 * u32::from(bias.is_some());
        let mut first = 0;
        for (n_out, region) in &matrix.parts {
            let params = [
                *n_out as u32,
                matrix.n_cols as u32,
                x.n_rows as u32,
                first as u32,
                matrix.n_rows as u32,
                flags,
                add.unwrap_or(0.0).to_bits(),
            ];
            let bindings = [
                out.write(),
                Access::Read(*region),
                x.read(),
                bias.map_or(Access::None, |bias| Access::Read(bias.region)),
            ];
            let [across, down] = groups(n_out.div_ceil(OUTPUTS));
            let tiles = x.n_rows.div_ceil(rows) as u32;
            let work = (n_out * matrix.n_cols) as u64 * x.n_rows as u64;
            self.recorder
                .dispatch(kernel, &bindings, &params, [across, down, tiles], work)?;
            first += n_out;
        }
        Ok(())
    }

    /// Divides each stretch of `weight.len()` elements by its root mean square and multiplies it with `weight`.
    pub fn rms_norm(&mut self, x: &Tensor, weight: &Vector, eps: f32) -> Result<Tensor, Error> {
        self.norm("rms_norm", x, weight, None, eps)
    }

    /// Moves each row to the mean 0 and the variance 1, multiplies it with `weight` and adds `bias`.
    pub fn layer_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor, Error> {
        self.norm("layer_norm", x, weight, bias, eps)
    }

    fn norm(
        &mut self,
        kernel: &'static str,
        x: &Tensor,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor, Error> {
        let len = weight.len;
        if len == 0 || !x.width.is_multiple_of(len) || bias.is_some_and(|bias| bias.len != len) {
            return Err(mismatch("a norm"));
        }
        let out = self.tensor(x.n_rows, x.width)?;
        let n_stretches = x.n_elements() / len;
        let params = [
            len as u32,
            n_stretches as u32,
            u32::from(bias.is_some()),
            eps.to_bits(),
        ];
        let bindings = [
            out.write(),
            x.read(),
            Access::Read(weight.region),
            bias.map_or(Access::None, |bias| Access::Read(bias.region)),
        ];
        let [across, down] = groups(n_stretches);
        self.recorder.dispatch(
            kernel,
            &bindings,
            &params,
            [across, down, 1],
            x.n_elements() as u64,
        )?;
        Ok(out)
    }

    /// Puts cosines and sines, `[rows, pairs]` each, onto the device.
    pub fn angles(
        &mut self,
        cos: &[f32],
        sin: &[f32],
        n_pairs: usize,
        pairs: Pairs,
    ) -> Result<Angles, Error> {
        if cos.len() != sin.len() || n_pairs == 0 || !cos.len().is_multiple_of(n_pairs) {
            return Err(mismatch("angles"));
        }
        let mut tensor = self.rows(&[cos, sin].concat(), n_pairs)?;
        tensor.n_rows /= 2;
        Ok(Angles {
            tensor,
            n_pairs,
            interleaved: pairs == Pairs::Interleaved,
        })
    }

    /// Rotates every head of `head_dim` elements.
    pub fn rotate(
        &mut self,
        x: &mut Tensor,
        angles: &Angles,
        head_dim: usize,
    ) -> Result<(), Error> {
        let fits = head_dim > 0
            && x.width.is_multiple_of(head_dim)
            && 2 * angles.n_pairs <= head_dim
            && angles.tensor.n_rows == x.n_rows;
        if !fits {
            return Err(mismatch("a rotation"));
        }
        let n_heads = x.width / head_dim;
        let params = [
            x.n_rows as u32,
            n_heads as u32,
            0,
            head_dim as u32,
            angles.n_pairs as u32,
            angles.flags(),
            0,
            0,
            0,
            0,
        ];
        let n = x.n_rows * n_heads * angles.n_pairs;
        let [across, down] = groups(n.div_ceil(LANES));
        let bindings = [x.write(), angles.read()];
        self.recorder
            .dispatch("rotate", &bindings, &params, [across, down, 1], n as u64)
    }

    /// Makes a KV cache without blocks. `widths` are the elements of the keys of a position in each layer, even.
    pub fn cache(&self, block: usize, widths: &[usize]) -> Result<Cache, Error> {
        if block == 0 || widths.iter().any(|width| !width.is_multiple_of(2)) {
            return Err(unsupported("keys of an odd number of elements".into()));
        }
        Ok(Cache {
            block,
            n_blocks: 0,
            layers: widths.iter().map(|width| (*width, None)).collect(),
        })
    }

    /// Makes room for blocks `0..n_blocks` and keeps those that exist.
    pub fn reserve(&mut self, cache: &mut Cache, n_blocks: usize) -> Result<(), Error> {
        if n_blocks <= cache.n_blocks {
            return Ok(());
        }
        let bytes = |width: usize, n_blocks: usize| (n_blocks * cache.block * width * 2) as u64;
        for (width, _) in &cache.layers {
            if bytes(*width, n_blocks) > self.recorder.max_binding() {
                return Err(Error::OutOfMemory {
                    device: self.device().name.clone(),
                    needed_bytes: bytes(*width, n_blocks),
                    free_bytes: self.recorder.max_binding(),
                });
            }
        }
        let n_before = cache.n_blocks;
        let sizes: Vec<(u64, u64)> = cache
            .layers
            .iter()
            .map(|(width, _)| (bytes(*width, n_before), bytes(*width, n_blocks)))
            .collect();
        // One layer after another, so that no more than one exists twice. A layer that is longer than the others
        // because a later one found no memory does no harm.
        for ((_, memory), (old_bytes, new_bytes)) in cache.layers.iter_mut().zip(sizes) {
            if memory.is_some_and(|[keys, _]| keys.bytes >= new_bytes) {
                continue;
            }
            let keys = self.recorder.allocate(new_bytes)?;
            let values = match self.recorder.allocate(new_bytes) {
                Ok(values) => values,
                Err(error) => {
                    self.recorder.free(&[keys])?;
                    return Err(error);
                }
            };
            let [keys, values] = [keys, values].map(|buffer| Region {
                buffer,
                start: 0,
                bytes: new_bytes,
            });
            if let Some(old) = *memory {
                for (from, to) in old.into_iter().zip([keys, values]) {
                    let kept = Region {
                        bytes: old_bytes,
                        ..from
                    };
                    self.recorder.copy(
                        kept,
                        Region {
                            bytes: old_bytes,
                            ..to
                        },
                    )?;
                }
                self.recorder.free(&old.map(|region| region.buffer))?;
            }
            *memory = Some([keys, values]);
        }
        cache.n_blocks = n_blocks;
        Ok(())
    }

    /// Copies what is stored in a block, in all layers, to another one.
    pub fn copy_block(&mut self, cache: &Cache, from: u32, to: u32) -> Result<(), Error> {
        if from.max(to) as usize >= cache.n_blocks {
            return Err(mismatch("a block"));
        }
        if from == to {
            return Ok(());
        }
        for (width, memory) in &cache.layers {
            let bytes = (cache.block * width * 2) as u64;
            for region in memory.iter().flatten() {
                let block = |id: u32| Region {
                    start: u64::from(id) * bytes,
                    bytes,
                    ..*region
                };
                self.recorder.copy(block(from), block(to))?;
            }
        }
        Ok(())
    }

    /// Puts onto the device where the rows of a step are: `tables` has the block ids of each sequence.
    pub fn step(
        &mut self,
        cache: &Cache,
        rows: &[StepRow],
        tables: &[Vec<u32>],
    ) -> Result<Step, Error> {
        let mut starts = Vec::with_capacity(tables.len());
        let mut next = rows.len() * 4;
        for table in tables {
            starts.push(next);
            next += table.len();
        }
        let mut words: Vec<u32> = Vec::with_capacity(next);
        let mut deepest = 0;
        for row in rows {
            let table = tables.get(row.sequence).zip(starts.get(row.sequence));
            let block =
                |table: &[u32], position: u32| table.get(position as usize / cache.block).copied();
            let found = table.and_then(|(table, start)| {
                let last = row.end.max(row.position + 1) - 1;
                Some((start, block(table, row.position)?, block(table, last)?))
            });
            let Some((start, own, _)) = found else {
                return Err(mismatch("a table of blocks"));
            };
            let slot = own * cache.block as u32 + row.position % cache.block as u32;
            words.extend([row.position, row.end, *start as u32, slot]);
            deepest = deepest.max(row.end as usize);
        }
        for table in tables {
            if table.iter().any(|block| *block as usize >= cache.n_blocks) {
                return Err(mismatch("a block"));
            }
            words.extend(table);
        }
        let memory = self.scratch(words.len().max(1) * 4)?;
        self.recorder
            .upload(bytemuck::cast_slice(&words), memory.region)?;
        Ok(Step {
            n_rows: rows.len(),
            memory,
            deepest,
        })
    }

    /// Stores keys, rotated, and values of the rows of a step. `shape` is that of the layer.
    pub fn store(
        &mut self,
        cache: &Cache,
        layer: usize,
        (key, value): (&Tensor, &Tensor),
        angles: Option<&Angles>,
        step: &Step,
        shape: &Attention,
    ) -> Result<(), Error> {
        let [keys, values] = cache.memory(layer, shape)?;
        let width = shape.n_kv_heads * shape.head_dim;
        let has_rows = |x: &Tensor| x.width == width && x.n_rows == step.n_rows;
        let turns = |angles: &Angles| {
            2 * angles.n_pairs <= shape.head_dim && angles.tensor.n_rows == step.n_rows
        };
        if !has_rows(key) || !has_rows(value) || !angles.is_none_or(turns) {
            return Err(mismatch("keys"));
        }
        let params = [
            step.n_rows as u32,
            shape.n_heads as u32,
            shape.n_kv_heads as u32,
            shape.head_dim as u32,
            angles.map_or(0, |angles| angles.n_pairs as u32),
            angles.map_or(0, Angles::flags),
            0,
            cache.block as u32,
            0,
            0,
        ];
        let bindings = [
            Access::Write(keys),
            // The kernel reads none where it is told so; a binding of something there must be.
            angles.map_or(key.read(), Angles::read),
            key.read(),
            step.read(),
            value.read(),
            Access::Write(values),
        ];
        let n = step.n_rows * width / 2;
        let [across, down] = groups(n.div_ceil(LANES));
        self.recorder
            .dispatch("store", &bindings, &params, [across, down, 1], n as u64)
    }

    /// Attends from every query to the stored positions of its sequence before its end. The score in `sinks` of each head
    /// takes part in the softmax and has no value.
    pub fn attend(
        &mut self,
        cache: &Cache,
        layer: usize,
        query: &Tensor,
        sinks: Option<&Vector>,
        step: &Step,
        shape: &Attention,
    ) -> Result<Tensor, Error> {
        let [keys, values] = cache.memory(layer, shape)?;
        let fits = query.width == shape.n_heads * shape.head_dim
            && query.n_rows == step.n_rows
            && shape.n_heads.is_multiple_of(shape.n_kv_heads)
            && sinks.is_none_or(|sinks| sinks.len == shape.n_heads);
        if !fits || shape.n_heads > MOST_GROUPS || step.n_rows > MOST_GROUPS {
            return Err(mismatch("queries"));
        }
        let out = self.tensor(query.n_rows, query.width)?;
        let params = [
            step.n_rows as u32,
            shape.n_heads as u32,
            shape.n_kv_heads as u32,
            shape.head_dim as u32,
            0,
            u32::from(sinks.is_some()) * 4 + u32::from(shape.causal) * 8,
            shape
                .window
                .map_or(0, |window| u32::try_from(window).unwrap_or(0)),
            cache.block as u32,
            shape.scale.to_bits(),
            shape.softcap.unwrap_or(0.0).to_bits(),
        ];
        let bindings = [
            out.write(),
            sinks.map_or(query.read(), |sinks| Access::Read(sinks.region)),
            query.read(),
            step.read(),
            Access::Read(keys),
            Access::Read(values),
        ];
        let depth = shape.window.unwrap_or(usize::MAX).min(step.deepest) as u64;
        let work = 2 * query.n_elements() as u64 * depth;
        let groups = [shape.n_heads as u32, step.n_rows as u32, 1];
        self.recorder
            .dispatch("attend", &bindings, &params, groups, work)?;
        Ok(out)
    }

    /// Computes `function(gate) * up`.
    pub fn gated(
        &mut self,
        gate: &mut Tensor,
        up: &Tensor,
        function: Function,
    ) -> Result<(), Error> {
        gate.same_shape(up)?;
        let bindings = [gate.write(), up.read()];
        self.elements("gated", &bindings, gate, [0, 0, function as u32], 0.0)
    }

    /// Computes a function of each element.
    pub fn activate(&mut self, x: &mut Tensor, function: Function) -> Result<(), Error> {
        let bindings = [x.write()];
        self.elements("activate", &bindings, x, [0, 0, function as u32], 0.0)
    }

    /// Adds `scale * y` to `x`.
    pub fn add(&mut self, x: &mut Tensor, y: &Tensor, scale: f32) -> Result<(), Error> {
        x.same_shape(y)?;
        let bindings = [x.write(), y.read()];
        self.elements("add", &bindings, x, [0; 3], scale)
    }

    /// Multiplies each row with its factor.
    pub fn scale_rows(&mut self, x: &mut Tensor, factors: &[f32]) -> Result<(), Error> {
        let factors = self.rows(factors, 1)?;
        self.rows_times(x, &factors, 0)
    }

    /// Multiplies each row with the sigmoid of the one element in the same row of `gate`.
    pub fn sigmoid_gate(&mut self, x: &mut Tensor, gate: &Tensor) -> Result<(), Error> {
        self.rows_times(x, gate, SIGMOID)
    }

    fn rows_times(&mut self, x: &mut Tensor, factors: &Tensor, kind: u32) -> Result<(), Error> {
        if factors.width != 1 || factors.n_rows != x.n_rows {
            return Err(mismatch("factors of rows"));
        }
        let bindings = [x.write(), factors.read()];
        self.elements("scale_rows", &bindings, x, [0, 0, kind], 0.0)
    }

    /// Copies `n` columns from `first` on.
    pub fn columns(&mut self, x: &Tensor, first: usize, n: usize) -> Result<Tensor, Error> {
        if first.saturating_add(n) > x.width {
            return Err(mismatch("columns"));
        }
        let out = self.tensor(x.n_rows, n)?;
        let bindings = [out.write(), x.read()];
        self.elements(
            "columns",
            &bindings,
            &out,
            [first as u32, x.width as u32, 0],
            0.0,
        )?;
        Ok(out)
    }

    /// Copies the rows with these indices.
    pub fn gather_rows(&mut self, x: &Tensor, rows: &[u32]) -> Result<Tensor, Error> {
        let indices = self.indices(rows, x.n_rows)?;
        let out = self.tensor(rows.len(), x.width)?;
        let bindings = [out.write(), x.read(), Access::Read(indices.region)];
        self.elements("gather_rows", &bindings, &out, [0; 3], 0.0)?;
        Ok(out)
    }

    /// Adds row `i` of `y` to row `rows[i]` of `x`. No row is named twice.
    pub fn add_to_rows(&mut self, x: &mut Tensor, rows: &[u32], y: &Tensor) -> Result<(), Error> {
        if y.n_rows != rows.len() || y.width != x.width {
            return Err(mismatch("rows"));
        }
        let indices = self.indices(rows, x.n_rows)?;
        let bindings = [x.write(), y.read(), Access::Read(indices.region)];
        self.elements("add_to_rows", &bindings, y, [0; 3], 0.0)
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
            ..x.memory.region
        };
        self.recorder.read(region, bytemuck::cast_slice_mut(out))
    }

    /// Runs what was recorded and waits for it.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.recorder.finish()
    }

    /// Records a kernel with one lane for each element of `x`.
    fn elements(
        &mut self,
        kernel: &'static str,
        bindings: &[Access],
        x: &Tensor,
        [first, stride, kind]: [u32; 3],
        scale: f32,
    ) -> Result<(), Error> {
        let n = x.n_elements();
        let params = [
            n as u32,
            x.width as u32,
            first,
            stride,
            kind,
            scale.to_bits(),
        ];
        let [across, down] = groups(n.div_ceil(LANES));
        self.recorder
            .dispatch(kernel, bindings, &params, [across, down, 1], n as u64)
    }

    fn indices(&mut self, rows: &[u32], n_rows: usize) -> Result<Scratch, Error> {
        if rows.iter().any(|row| *row as usize >= n_rows) {
            return Err(mismatch("rows"));
        }
        let memory = self.scratch(rows.len() * 4)?;
        self.recorder
            .upload(bytemuck::cast_slice(rows), memory.region)?;
        Ok(memory)
    }

    fn tensor(&mut self, n_rows: usize, width: usize) -> Result<Tensor, Error> {
        let bytes = n_rows.checked_mul(width).and_then(|n| n.checked_mul(4));
        let bytes = bytes.filter(|bytes| *bytes <= self.recorder.max_binding() as usize);
        let bytes =
            bytes.ok_or_else(|| unsupported(format!("{n_rows} rows of {width} elements")))?;
        Ok(Tensor {
            n_rows,
            width,
            memory: self.scratch(bytes)?,
        })
    }

    /// Returns memory for activations. What earlier commands do with it is ordered by barriers.
    fn scratch(&mut self, bytes: usize) -> Result<Scratch, Error> {
        // Few sizes, so that memory is found again.
        let bytes = (bytes.max(SMALLEST) as u64)
            .next_power_of_two()
            .min(self.recorder.max_binding());
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
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
        let needed = n_bytes.next_multiple_of(ALIGNMENT);
        if self.weights.as_ref().is_none_or(|(_, left)| *left < needed) {
            let size = needed.max(BLOCK_BYTES);
            let buffer = self.recorder.allocate(size).or_else(|error| match error {
                // There may be room for these alone.
                Error::OutOfMemory { .. } if size > needed => self.recorder.allocate(needed),
                error => Err(error),
            })?;
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

impl Tensor {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn n_elements(&self) -> usize {
        self.n_rows * self.width
    }

    fn bytes(&self) -> u64 {
        self.n_elements() as u64 * 4
    }

    fn read(&self) -> Access {
        Access::Read(self.memory.region)
    }

    fn write(&self) -> Access {
        Access::Write(self.memory.region)
    }

    fn same_shape(&self, other: &Tensor) -> Result<(), Error> {
        let same = (self.n_rows, self.width) == (other.n_rows, other.width);
        if same { Ok(()) } else { Err(mismatch("rows")) }
    }
}

impl Angles {
    fn flags(&self) -> u32 {
        2 + u32::from(self.interleaved)
    }

    fn read(&self) -> Access {
        self.tensor.read()
    }
}

impl Step {
    fn read(&self) -> Access {
        Access::Read(self.memory.region)
    }
}

impl Cache {
    /// Returns the bytes of a block over all layers.
    pub fn block_bytes(&self) -> usize {
        let widths = self.layers.iter().map(|(width, _)| width);
        2 * 2 * self.block * widths.sum::<usize>()
    }

    fn memory(&self, layer: usize, shape: &Attention) -> Result<[Region; 2], Error> {
        let width = shape.n_kv_heads * shape.head_dim;
        let is_head =
            shape.head_dim.is_multiple_of(2) && (2..=LARGEST_HEAD).contains(&shape.head_dim);
        match self.layers.get(layer) {
            Some((found, Some(memory))) if *found == width && is_head => Ok(*memory),
            _ => Err(mismatch("a layer")),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(self.region);
    }
}

/// The kernels for one row and for several.
fn kernels_of(dtype: TensorType) -> Option<[&'static str; 2]> {
    Some(match dtype {
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

/// Rows that the kernels for several compute together.
const ROWS: usize = 8;
/// Outputs of a workgroup of a product.
const OUTPUTS: usize = 4;
/// Lanes of a workgroup of other kernels.
const LANES: usize = 64;
/// Workgroups in a dimension; every device takes as many.
const MOST_GROUPS: usize = 32_768;
/// As `SIGMOID` in `elements.wgsl`.
const SIGMOID: u32 = 4;
/// Smallest piece of memory for activations.
const SMALLEST: usize = 4096;
/// Weights share pieces of memory of this size, unless one is larger.
const BLOCK_BYTES: u64 = 64 << 20;
