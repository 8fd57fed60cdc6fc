//! The decoder's operations on the CPU: kernels over reused buffers, weights packed for them or, where
//! arithmetic is to be exact, in the mapped file.

use std::{convert::Infallible, mem, ops::Range, ptr, sync::Arc};

use llmsrv_engine::{ActivationPrecision, BlockId, ModelError, StateId, StepPlan};
use llmsrv_gguf::TensorType;
use llmsrv_kernels::{
    self as kernels, ActivationFormat, Activations, Arena, Gate, Gemm, Instructions, Packed,
    PagedKv, Pool, Queries, Query, Residual, RopeStyle, Rotation, Slot, Weight,
};
use smallvec::{SmallVec, smallvec};

use super::{
    Attention, BidirectionalAttention, DeltaRule, Holder, Input, LinearRef, Ops, Product, Result,
    SHORTEST, SelectiveScan,
    buffers::{Buffer, Buffers},
    no_gate,
    states::States,
    step::Step,
};
use crate::{
    arch::{Activation, BLOCK_SIZE, LayerConfig},
    observer::InputSums,
    rope::{Places, Rope},
    source::FileMatrix,
};

/// Kernels with the KV cache of one model.
pub(crate) struct CpuOps {
    buffers: Buffers,
    kv: PagedKv,
    states: States,
    pool: Pool,
    activation_precision: ActivationPrecision,
    /// What could be computed in f32 with weights of 16 bits is computed in BF16.
    in_bf16: bool,
    arena: Arena,
    extra_weight_bytes: u64,
    /// Activations as packed weights want them, one for each kind; kept for their memory.
    inputs: [Activations; 4],
    /// The same of grouped products of few rows, each with its own.
    grouped_inputs: Vec<Activations>,
    /// Keys and values of rows that are attended to and not kept; kept for its memory.
    passing: Option<Passing>,
    /// What all layers of a step have in common.
    step: Step,
    /// Where inputs of matrices are summed, if somebody wants to know.
    sums: Option<Arc<InputSums>>,
}

/// Keys and values of one attention, and the heads and elements of a head that they have.
struct Passing {
    shape: (usize, usize),
    kv: PagedKv,
}

/// A weight matrix, in the form that its type is multiplied in.
pub(crate) enum Matrix {
    /// As the kernels read it; products are to be multiplied with the number.
    Packed(Packed, f32),
    /// As it lies in its file.
    File(FileMatrix),
    /// One of these, whose inputs are summed: here, under this number.
    Observed(Box<Matrix>, usize),
}

impl Matrix {
    fn n_rows(&self) -> usize {
        match self {
            Matrix::Packed(packed, _) => packed.n_rows(),
            Matrix::File(file) => file.n_rows,
            Matrix::Observed(matrix, _) => matrix.n_rows(),
        }
    }

    /// Returns what products are to be multiplied with.
    fn scale(&self) -> f32 {
        match self {
            Matrix::Packed(_, scale) => *scale,
            Matrix::File(file) => file.scale,
            Matrix::Observed(matrix, _) => matrix.scale(),
        }
    }
}

/// Cosines and sines: one row for each row of the step, one element for each pair.
pub(crate) struct Angles {
    style: RopeStyle,
    cos: Buffer,
    sin: Buffer,
}

impl CpuOps {
    /// Prepares an empty KV cache of layers of these shapes, states that lie so, and `n_threads` threads; 0 = one for each core.
    pub(crate) fn new(
        (kv_shapes, kv_type): (&[(usize, usize)], TensorType),
        states: Vec<Range<usize>>,
        n_threads: usize,
        activation_precision: ActivationPrecision,
    ) -> Result<CpuOps> {
        let kv = PagedKv::new(kv_shapes, kv_type).map_err(failed)?;
        Ok(CpuOps::with_cache(
            (kv, States::new(states)),
            n_threads,
            activation_precision,
        ))
    }

    /// Prepares for a model without KV cache.
    pub(crate) fn without_cache(
        n_threads: usize,
        activation_precision: ActivationPrecision,
    ) -> Result<CpuOps> {
        let kv = PagedKv::new(&[], TensorType::F32).map_err(failed)?;
        Ok(CpuOps::with_cache(
            (kv, States::new(Vec::new())),
            n_threads,
            activation_precision,
        ))
    }

    /// Prepares for an encoder of images. Unless all is to be exact, or `fine`, numbers with a floating point
    /// meet in BF16, in which most published encoders are trained: activations, weights of F16, keys and values.
    /// Weights of whole numbers meet activations of 16 bits, or of 8 if it is to be fast.
    pub(crate) fn for_images(n_threads: usize, chosen: ActivationPrecision) -> Result<CpuOps> {
        let precision = match chosen {
            ActivationPrecision::Auto => ActivationPrecision::Int16,
            chosen => chosen,
        };
        let mut ops = CpuOps::without_cache(n_threads, precision)?;
        ops.in_bf16 = matches!(
            chosen,
            ActivationPrecision::Auto | ActivationPrecision::Int8
        );
        Ok(ops)
    }

    fn with_cache(
        (kv, states): (PagedKv, States),
        n_threads: usize,
        activation_precision: ActivationPrecision,
    ) -> CpuOps {
        CpuOps {
            buffers: Buffers::default(),
            kv,
            states,
            pool: Pool::new(n_threads),
            activation_precision,
            in_bf16: false,
            arena: Arena::default(),
            extra_weight_bytes: 0,
            inputs: Default::default(),
            grouped_inputs: Vec::new(),
            passing: None,
            step: Step::default(),
            sums: None,
        }
    }

    /// Has the inputs of the matrices that come from now on summed.
    pub(crate) fn observe(&mut self, sums: Arc<InputSums>) {
        self.sums = Some(sums);
    }

    /// Sums the inputs of those matrices that are observed; returns the matrices themselves.
    fn observed<'a, const N: usize>(
        &mut self,
        input: Input<'_, CpuOps>,
        matrices: [LinearRef<'a, CpuOps>; N],
    ) -> Result<[LinearRef<'a, CpuOps>; N]> {
        let Some(sums) = self.sums.clone() else {
            return Ok(matrices);
        };
        let normed = self.normed(input)?;
        let x = normed.as_ref().unwrap_or(input.rows());
        Ok(matrices.map(|(matrix, bias)| match matrix {
            Matrix::Observed(matrix, idx) => {
                sums.add(*idx, x.values(), x.width(), &self.pool);
                (&**matrix, bias)
            }
            Matrix::Packed(..) | Matrix::File(_) => (matrix, bias),
        }))
    }

    /// Returns rows of any content.
    pub(crate) fn rows(&self, n_rows: usize, width: usize) -> Buffer {
        self.buffers.take(n_rows, width)
    }

    /// As [`Ops::join`].
    #[expect(clippy::unnecessary_wraps, reason = "as that of the GPU")]
    pub(crate) fn join_rows(&mut self, parts: &[&Buffer]) -> Result<Buffer> {
        let width = parts.iter().map(|part| part.width()).sum();
        let n_rows = parts.first().map_or(0, |part| part.n_rows());
        let mut out = self.buffers.take(n_rows, width);
        for row in 0..out.n_rows() {
            let mut rest = out.row_mut(row);
            for part in parts {
                let (to, left) = rest.split_at_mut(part.width());
                to.copy_from_slice(part.row(row));
                rest = left;
            }
        }
        Ok(out)
    }

    /// Returns what becomes of the residual of rounded activations for weights of this kind.
    fn residual(&self, kind: ActivationFormat) -> Residual {
        match (self.activation_precision, kind) {
            (_, ActivationFormat::F32) => Residual::Dropped,
            (_, ActivationFormat::Bf16) if self.in_bf16 => Residual::Dropped,
            (ActivationPrecision::Int16, _) => Residual::Kept,
            _ => Residual::Dropped,
        }
    }

    /// Makes the input of all products with weights of a kind.
    fn quantize(&mut self, input: Input<'_, CpuOps>, kind: ActivationFormat) -> Result<()> {
        let residual = self.residual(kind);
        let (made, pool) = (&mut self.inputs[kind as usize], &self.pool);
        let quantized = match input {
            Input::Rows(x) => made.quantize(x.values(), x.width(), kind, residual, pool),
            Input::Normed { x, weight, eps } => {
                made.quantize_normed(x.values(), weight, eps, kind, residual, pool)
            }
        };
        quantized.map_err(failed)
    }

    fn multiply(&self, products: &mut [Gemm<'_>]) -> Result<()> {
        kernels::grouped_gemm(Instructions::best(), products, &self.pool).map_err(failed)
    }

    /// Computes a product that its epilogue makes something else of, in `out`.
    fn fused(
        &mut self,
        input: Input<'_, CpuOps>,
        (weights, bias): (&Packed, Option<&Vec<f32>>),
        ending: &Ending<'_>,
        out: &mut Buffer,
    ) -> Result<()> {
        self.quantize(input, weights.kind())?;
        let x = &self.inputs[weights.kind() as usize];
        let mut product = Gemm::new(weights, x, out.values_mut());
        product.bias = bias.map_or(&[], Vec::as_slice);
        match *ending {
            Ending::Added(scale) => product.add = Some(scale),
            Ending::Activated(activation) => product.activation = Some(activation),
            Ending::Gated(gate, activation) => product.gate = Some((gate, activation)),
        }
        self.multiply(&mut [product])
    }

    /// Packs a matrix rounded to BF16.
    fn rounded(&mut self, source: &FileMatrix) -> Result<Packed, kernels::Error> {
        let ty = TensorType::BF16;
        let row_bytes = source.n_cols * ty.block_bytes();
        let mut bytes = vec![0; source.n_rows * row_bytes];
        let of_rows = (CHUNK_ELEMENTS / source.n_cols.max(1)).max(1) * row_bytes;
        self.pool
            .for_each_chunk_mut(&mut bytes, of_rows, true, |idx, bytes| {
                let first = idx * of_rows / row_bytes.max(1);
                let mut values = vec![0.0; source.n_cols];
                for (row, bytes) in (first..).zip(bytes.chunks_exact_mut(row_bytes.max(1))) {
                    source.read_row(row, &mut values);
                    // The type and both lengths are right.
                    let _ = kernels::quantize(ty, &values, bytes);
                }
            });
        let rounded = Weight {
            ty,
            rows: source.n_rows,
            cols: source.n_cols,
            bytes: &bytes,
        };
        Packed::new(&rounded, &mut self.arena, &self.pool)
    }

    /// Attends from the queries of each span to all keys of it, as to a cache that is emptied behind it.
    fn attend_passing(
        &mut self,
        query: &Buffer,
        (key, value): (&Buffer, &Buffer),
        spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Buffer> {
        let mut out = self.buffers.take(query.n_rows(), query.width());
        let shape = (attention.n_kv_heads, attention.head_dim);
        let kv_type = if self.in_bf16 {
            TensorType::BF16
        } else {
            TensorType::F32
        };
        let mut passing = match self.passing.take() {
            Some(passing) if passing.shape == shape => passing,
            _ => Passing {
                shape,
                kv: PagedKv::new(&[shape], kv_type).map_err(failed)?,
            },
        };
        let mut n_blocks = 0;
        let (mut slots, mut rows) = (Vec::new(), Vec::new());
        for (queries, keys) in spans {
            let (first_block, end) = (n_blocks, keys.len());
            n_blocks += end.div_ceil(BLOCK_SIZE);
            slots.extend((0..end).map(|position| Slot {
                block: (first_block + position / BLOCK_SIZE) as u32,
                slot: position % BLOCK_SIZE,
            }));
            // With a reach, queries and keys are the same rows; without one the position does not matter.
            rows.extend((0..queries.len()).map(|position| Query {
                position: attention.reach.map_or(0, |_| position),
                end: attention.reach.map_or(end, |reach| {
                    position.saturating_add(reach).saturating_add(1).min(end)
                }),
                first_block,
                n_blocks: n_blocks - first_block,
            }));
        }
        let reserved = passing.kv.reserve(n_blocks);
        reserved.map_err(|_| ModelError::OutOfMemory(n_blocks))?;
        let (key, value) = (key.values(), value.values());
        let kv = &mut passing.kv;
        kv.append(0, &slots, key, value, None, &self.pool)
            .map_err(failed)?;
        let blocks: Vec<u32> = (0..n_blocks as u32).collect();
        let queries = Queries {
            rows: &rows,
            blocks: &blocks,
        };
        let of_kernel = kernels::Attention {
            n_heads: attention.n_heads,
            n_kv_heads: attention.n_kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            softcap: None,
            window: attention.reach.map(|reach| reach.saturating_add(1)),
            sinks: None,
        };
        let (query, result) = (query.values(), out.values_mut());
        kernels::attend(kv, 0, query, queries, &of_kernel, result, &self.pool).map_err(failed)?;
        self.passing = Some(passing);
        Ok(out)
    }

    /// Calls `work` with whole rows of `x` and where they lie in it, on all threads if they are many.
    fn in_rows(&self, x: &mut Buffer, work: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        let width = x.width().max(1);
        let chunk = (CHUNK_ELEMENTS / width).max(1) * width;
        let values = x.values_mut();
        let parallel = values.len() >= 4 * CHUNK_ELEMENTS;
        self.pool
            .for_each_chunk_mut(values, chunk, parallel, |idx, part| {
                work(idx * chunk..idx * chunk + part.len(), part);
            });
    }
}

/// What becomes of a product before it is written.
enum Ending<'a> {
    /// It is added to what is there, times this.
    Added(f32),
    /// This function of it.
    Activated(Gate),
    /// It is multiplied with this function of another product.
    Gated(&'a Packed, Gate),
}

/// Returns weights whose products need no more than their own kernel: packed, and without a scale.
fn plain(weights: &Matrix) -> Option<&Packed> {
    match weights {
        Matrix::Packed(packed, 1.0) => Some(packed),
        _ => None,
    }
}

/// Weights whose products need no more than their own kernel, what is added, and a gate that is computed with them.
type PlainLinear<'a> = (&'a Packed, Option<&'a Vec<f32>>, Option<(&'a Packed, Gate)>);

/// Returns what the kernel computes for a product: itself, or a gate and what it multiplies, one after the other.
fn of_kernel<'a>(product: &Product<'a, CpuOps>) -> Option<SmallVec<[PlainLinear<'a>; 2]>> {
    let of_one = |(matrix, bias): LinearRef<'a, CpuOps>| Some((plain(matrix)?, bias, None));
    let (weights, bias, _) = of_one(product.weights)?;
    let Some((gate, activation)) = product.gate else {
        return Some(smallvec![(weights, bias, None)]);
    };
    let n_rows = product.x.n_rows();
    let together = gated_together(n_rows, gate, product.weights, activation);
    Some(if let Some((gate, weights)) = together {
        smallvec![(weights, bias, Some(gate))]
    } else {
        smallvec![of_one(gate)?, (weights, bias, None)]
    })
}

/// Returns a gate and what it multiplies, if one kernel computes both.
fn gated_together<'a>(
    n_rows: usize,
    gate: LinearRef<'a, CpuOps>,
    up: LinearRef<'a, CpuOps>,
    activation: Activation,
) -> Option<((&'a Packed, Gate), &'a Packed)> {
    let (of_gate, weights, activation) = (plain(gate.0)?, plain(up.0)?, in_epilogue(activation)?);
    // For few rows memory is what limits, and one matrix after the other is read faster than both in turn.
    let pays = n_rows > FEW_ROWS && gate.1.is_none() && of_gate.can_gate(weights);
    pays.then_some(((of_gate, activation), weights))
}

/// Returns the activation that products compute before they write their results, if they know it.
fn in_epilogue(activation: Activation) -> Option<Gate> {
    match activation {
        Activation::Silu => Some(Gate::Silu),
        Activation::Gelu => Some(Gate::Gelu),
        Activation::ClampedSwiglu
        | Activation::Relu
        | Activation::ReluSquared
        | Activation::Sigmoid
        | Activation::ExactGelu
        | Activation::QuickGelu
        | Activation::Identity => None,
    }
}

impl Holder for CpuOps {
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Experts = Infallible;

    fn matrix(&mut self, source: FileMatrix) -> Result<Matrix> {
        let place = self.sums.as_ref().and_then(|sums| sums.place(&source));
        if let Some(idx) = place {
            let sums = self.sums.take();
            let matrix = self.matrix(source);
            self.sums = sums;
            return Ok(Matrix::Observed(Box::new(matrix?), idx));
        }
        if self.activation_precision == ActivationPrecision::F32
            || ActivationFormat::of(source.dtype()).is_none()
        {
            return Ok(Matrix::File(source));
        }
        source.expect(true);
        if self.in_bf16 && source.dtype() == TensorType::F16 {
            let rounded = self.rounded(&source).map_err(failed)?;
            source.expect(false);
            return Ok(Matrix::Packed(rounded, 1.0));
        }
        let packed = Packed::new(&weight(&source), &mut self.arena, &self.pool).map_err(failed)?;
        source.expect(false);
        let extra = packed.bytes().saturating_sub(source.file_bytes());
        self.extra_weight_bytes += extra as u64;
        Ok(Matrix::Packed(packed, source.scale))
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<Vec<f32>> {
        Ok(values)
    }
}

impl Ops for CpuOps {
    type Tensor = Buffer;
    type Angles = Angles;

    fn extra_weight_bytes(&self) -> u64 {
        self.extra_weight_bytes
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<()> {
        let reserved = self.kv.reserve(n_blocks);
        reserved.map_err(|_| ModelError::OutOfMemory(n_blocks))
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        self.kv.copy(from.0, to.0).map_err(failed)
    }

    fn kv_block_bytes(&self) -> usize {
        self.kv.block_bytes()
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<()> {
        self.states.reserve(n_states)
    }

    fn clear_state(&mut self, id: StateId) -> Result<()> {
        self.states.clear(id)
    }

    fn copy_state(&mut self, from: StateId, to: StateId) -> Result<()> {
        self.states.copy(from, to)
    }

    fn state_bytes(&self) -> usize {
        self.states.bytes()
    }

    fn begin_step(&mut self, plan: &StepPlan) -> Result<()> {
        self.step.begin(plan);
        Ok(())
    }

    fn embed(&mut self, table: &FileMatrix, tokens: &[u32], scale: f32) -> Result<Buffer> {
        let mut x = self.buffers.take(tokens.len(), table.n_cols);
        for (row, token) in tokens.iter().enumerate() {
            table.read_row(*token as usize, x.row_mut(row));
        }
        for value in x.values_mut() {
            *value *= scale;
        }
        Ok(x)
    }

    fn scatter_rows(&mut self, mut x: Buffer, first: usize, values: &[f32]) -> Result<Buffer> {
        let from = first * x.width();
        let rows = x.values_mut().get_mut(from..from + values.len());
        let rows = rows.ok_or_else(|| ModelError::Compute("rows that are not there".into()))?;
        rows.copy_from_slice(values);
        Ok(x)
    }

    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Angles> {
        let n_pairs = rope.frequencies.len();
        let mut cos = self.buffers.take(places.len(), n_pairs);
        let mut sin = self.buffers.take(places.len(), n_pairs);
        for (row, place) in places.iter().enumerate() {
            let (cos, sin) = (cos.row_mut(row), sin.row_mut(row));
            for ((cos, sin), angle) in cos.iter_mut().zip(sin).zip(rope.angles(place)) {
                let (s, c) = angle.sin_cos();
                (*cos, *sin) = (c as f32 * rope.magnitude, s as f32 * rope.magnitude);
            }
        }
        Ok(Angles {
            style: rope.style,
            cos,
            sin,
        })
    }

    fn rms_norm(&mut self, x: &Buffer, weight: &Vec<f32>, eps: f32) -> Result<Buffer> {
        let mut out = self.buffers.take(x.n_rows(), x.width());
        let x = x.values();
        self.in_rows(&mut out, |at, out| {
            kernels::rms_norm(&x[at], weight, eps, out);
        });
        Ok(out)
    }

    fn grouped_norm(
        &mut self,
        x: &Buffer,
        weight: &Vec<f32>,
        n_groups: usize,
        eps: f32,
    ) -> Result<Buffer> {
        let mut out = self.buffers.take(x.n_rows(), x.width());
        let len = (weight.len() / n_groups.max(1)).max(1);
        let x = x.values();
        self.in_rows(&mut out, |at, out| {
            let weights = weight.chunks_exact(len).cycle();
            let parts = x[at].chunks_exact(len).zip(out.chunks_exact_mut(len));
            for ((x, out), weight) in parts.zip(weights) {
                kernels::rms_norm(x, weight, eps, out);
            }
        });
        Ok(out)
    }

    fn layer_norm(
        &mut self,
        x: &Buffer,
        weight: &Vec<f32>,
        bias: Option<&Vec<f32>>,
        eps: f32,
    ) -> Result<Buffer> {
        let mut out = self.buffers.take(x.n_rows(), x.width());
        let bias = bias.map(Vec::as_slice);
        let x = x.values();
        self.in_rows(&mut out, |at, out| {
            kernels::layer_norm(&x[at], weight, bias, eps, out);
        });
        Ok(out)
    }

    fn linear(&mut self, x: &Buffer, matrix: &Matrix, bias: Option<&Vec<f32>>) -> Result<Buffer> {
        let [y] = self.linears(Input::Rows(x), [(matrix, bias)])?;
        Ok(y)
    }

    fn linears<const N: usize>(
        &mut self,
        input: Input<'_, CpuOps>,
        matrices: [LinearRef<'_, CpuOps>; N],
    ) -> Result<[Buffer; N]> {
        let matrices = self.observed(input, matrices)?;
        let is_file = |(matrix, _): &LinearRef<'_, CpuOps>| matches!(matrix, Matrix::File(_));
        let normed = if matrices.iter().any(is_file) {
            self.normed(input)?
        } else {
            None
        };
        let input = normed.as_ref().map_or(input, Input::Rows);
        let mut results = matrices.map(|(matrix, _)| {
            let n_rows = input.rows().n_rows();
            self.buffers.take(n_rows, matrix.n_rows())
        });
        for kind in ActivationFormat::ALL {
            let needed = matrices.iter().any(|(matrix, _)| match matrix {
                Matrix::Packed(packed, _) => packed.kind() == kind,
                Matrix::File(_) | Matrix::Observed(..) => false,
            });
            if needed {
                self.quantize(input, kind)?;
            }
        }
        let mut products = SmallVec::<[Gemm<'_>; 4]>::new();
        for ((matrix, bias), out) in matrices.iter().zip(&mut results) {
            let out = out.values_mut();
            match matrix {
                Matrix::Packed(weights, _) => {
                    let x = &self.inputs[weights.kind() as usize];
                    let mut product = Gemm::new(weights, x, out);
                    if plain(matrix).is_some() {
                        product.bias = bias.map_or(&[], Vec::as_slice);
                    }
                    products.push(product);
                }
                Matrix::File(file) => {
                    let x = input.rows().values();
                    kernels::matmul(&weight(file), x, out, &self.pool).map_err(failed)?;
                }
                Matrix::Observed(..) => {
                    return Err(ModelError::Compute("a matrix is observed twice".into()));
                }
            }
        }
        self.multiply(&mut products)?;
        drop(products);
        for ((matrix, bias), result) in matrices.iter().zip(&mut results) {
            if plain(matrix).is_some() {
                continue;
            }
            let scale = matrix.scale();
            if scale != 1.0 {
                self.in_rows(result, |_, rows| {
                    for value in rows {
                        *value *= scale;
                    }
                });
            }
            if let Some(bias) = bias {
                self.in_rows(result, |_, rows| {
                    for row in rows.chunks_exact_mut(bias.len().max(1)) {
                        kernels::add_scaled(row, bias, 1.0);
                    }
                });
            }
        }
        Ok(results)
    }

    fn add_linear(
        &mut self,
        mut x: Buffer,
        input: Input<'_, CpuOps>,
        (matrix, bias): LinearRef<'_, CpuOps>,
        scale: f32,
    ) -> Result<Buffer> {
        let Some(weights) = plain(matrix) else {
            let [y] = self.linears(input, [(matrix, bias)])?;
            return self.add(x, &y, scale);
        };
        self.fused(input, (weights, bias), &Ending::Added(scale), &mut x)?;
        Ok(x)
    }

    fn activated_linear(
        &mut self,
        input: Input<'_, CpuOps>,
        (matrix, bias): LinearRef<'_, CpuOps>,
        activation: Activation,
    ) -> Result<Buffer> {
        let (Some(weights), Some(of_kernel)) = (plain(matrix), in_epilogue(activation)) else {
            let [y] = self.linears(input, [(matrix, bias)])?;
            return self.activate(y, activation);
        };
        let mut out = self.buffers.take(input.rows().n_rows(), weights.n_rows());
        let ending = Ending::Activated(of_kernel);
        self.fused(input, (weights, bias), &ending, &mut out)?;
        Ok(out)
    }

    fn gated_linear(
        &mut self,
        input: Input<'_, CpuOps>,
        gate: LinearRef<'_, CpuOps>,
        up: LinearRef<'_, CpuOps>,
        activation: Activation,
    ) -> Result<Buffer> {
        let n_rows = input.rows().n_rows();
        let Some((of_gate, weights)) = gated_together(n_rows, gate, up, activation) else {
            let [gate, up] = self.linears(input, [gate, up])?;
            return self.gated(gate, &up, activation);
        };
        let mut out = self.buffers.take(n_rows, weights.n_rows());
        let ending = Ending::Gated(of_gate.0, of_gate.1);
        self.fused(input, (weights, up.1), &ending, &mut out)?;
        Ok(out)
    }

    fn grouped_linear(&mut self, products: &[Product<'_, CpuOps>]) -> Result<Vec<Buffer>> {
        let of_kernel = products.iter().map(of_kernel).collect::<Option<Vec<_>>>();
        let Some(of_kernel) = of_kernel else {
            let product = |product| self.product(product);
            return products.iter().map(product).collect();
        };
        // Rows that several matrices read are quantised once.
        let mut inputs = mem::take(&mut self.grouped_inputs);
        let mut quantized = Vec::<(&Buffer, ActivationFormat)>::new();
        let (mut places, mut results) = (Vec::new(), Vec::new());
        for (product, matrices) in products.iter().zip(&of_kernel) {
            for (weights, ..) in matrices {
                let (x, kind) = (product.x, weights.kind());
                let there = |(rows, of): &(&Buffer, _)| ptr::eq(*rows, x) && *of == kind;
                let place = quantized.iter().rposition(there).unwrap_or(quantized.len());
                if place == quantized.len() {
                    quantized.push((x, kind));
                    if place == inputs.len() {
                        inputs.push(Activations::default());
                    }
                    let (residual, pool) = (self.residual(kind), &self.pool);
                    let made = inputs[place].quantize(x.values(), x.width(), kind, residual, pool);
                    made.map_err(failed)?;
                }
                places.push(place);
                results.push(self.buffers.take(x.n_rows(), weights.n_rows()));
            }
        }
        let matrices = of_kernel.iter().flatten().zip(places);
        let mut gemms = Vec::with_capacity(results.len());
        for ((&(weights, bias, gate), place), out) in matrices.zip(&mut results) {
            let mut gemm = Gemm::new(weights, &inputs[place], out.values_mut());
            gemm.bias = bias.map_or(&[], Vec::as_slice);
            gemm.gate = gate;
            gemms.push(gemm);
        }
        self.multiply(&mut gemms)?;
        drop(gemms);
        // Each of them would grow to the most rows that it ever had.
        if quantized.iter().map(|(x, _)| x.n_rows()).sum::<usize>() <= KEPT_ROWS {
            self.grouped_inputs = inputs;
        }
        let mut results = results.into_iter();
        let missing = || ModelError::Compute("a product is missing".into());
        let mut made = Vec::with_capacity(products.len());
        for (product, matrices) in products.iter().zip(&of_kernel) {
            let first = results.next().ok_or_else(missing)?;
            made.push(match product.gate {
                Some((_, activation)) if matrices.len() > 1 => {
                    let up = results.next().ok_or_else(missing)?;
                    self.gated(first, &up, activation)?
                }
                _ => first,
            });
        }
        Ok(made)
    }

    fn rotate(&mut self, mut x: Buffer, angles: &Angles, head_dim: usize) -> Result<Buffer> {
        let width = x.width().max(1);
        self.in_rows(&mut x, |at, rows| {
            for (row, x) in (at.start / width..).zip(rows.chunks_exact_mut(width)) {
                let (cos, sin) = (angles.cos.row(row), angles.sin.row(row));
                kernels::rotate(x, head_dim, angles.style, cos, sin);
            }
        });
        Ok(x)
    }

    fn append_kv(
        &mut self,
        layer: &LayerConfig,
        key: Buffer,
        angles: Option<&Angles>,
        value: &Buffer,
        _plan: &StepPlan,
    ) -> Result<()> {
        let Some(slot_mapping) = &self.step.slots else {
            return Err(ModelError::Compute("a span has too few blocks".into()));
        };
        let rotation = angles.map(|angles| Rotation {
            style: angles.style,
            n_pairs: angles.cos.width(),
            cos: angles.cos.values(),
            sin: angles.sin.values(),
        });
        let (key, value) = (key.values(), value.values());
        let stored = self.kv.append(
            layer.kv_layer,
            slot_mapping,
            key,
            value,
            rotation.as_ref(),
            &self.pool,
        );
        stored.map_err(failed)
    }

    fn attend(
        &mut self,
        layer: usize,
        query: &Buffer,
        sinks: Option<&Vec<f32>>,
        plan: &StepPlan,
        attention: &Attention,
    ) -> Result<Buffer> {
        let mut out = self.buffers.take(query.n_rows(), query.width());
        let queries = self.step.queries(plan, attention);
        let attention = kernels::Attention {
            n_heads: attention.n_heads,
            n_kv_heads: attention.n_kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            softcap: attention.softcap,
            window: attention.chunk.map(|_| 1).or(attention.window),
            sinks: sinks.map(Vec::as_slice),
        };
        let (query, result) = (query.values(), out.values_mut());
        kernels::attend(
            &self.kv, layer, query, queries, &attention, result, &self.pool,
        )
        .map_err(failed)?;
        Ok(out)
    }

    fn short_conv(
        &mut self,
        layer: usize,
        x: &Buffer,
        (kernel, bias): (&Vec<f32>, Option<&Vec<f32>>),
        silu: bool,
        plan: &StepPlan,
    ) -> Result<Buffer> {
        let mut out = self.buffers.take(x.n_rows(), x.width());
        let conv = kernels::ShortConv {
            weights: kernel,
            bias: bias.map_or(&[], Vec::as_slice),
            n_channels: x.width(),
            silu,
        };
        let (x, pool) = (x.values(), &self.pool);
        let part = (0, conv.state_len());
        self.states
            .for_each_stretch(layer, part, plan, |stretches| {
                kernels::short_conv(x, stretches, &conv, out.values_mut(), pool).map_err(failed)
            })?;
        Ok(out)
    }

    fn delta_rule(
        &mut self,
        layer: usize,
        x: &Buffer,
        (alpha, beta): (&Buffer, &Buffer),
        rule: &DeltaRule<'_, CpuOps>,
        plan: &StepPlan,
    ) -> Result<Buffer> {
        let net = rule.net;
        let mut out = self.buffers.take(x.n_rows(), net.value_width());
        let rule = kernels::DeltaRule {
            n_key_heads: net.n_key_heads,
            n_value_heads: net.n_value_heads,
            head_dim: net.head_dim,
            interleaved: net.interleaved,
            decay: rule.decay,
            decay_bias: rule.decay_bias,
            eps: rule.eps,
        };
        let (x, pool) = (x.values(), &self.pool);
        let gates = (alpha.values(), beta.values());
        let part = (net.conv_len(), net.rule_len());
        self.states
            .for_each_stretch(layer, part, plan, |stretches| {
                kernels::delta_rule(x, gates, stretches, &rule, out.values_mut(), pool)
                    .map_err(failed)
            })?;
        Ok(out)
    }

    fn selective_scan(
        &mut self,
        layer: usize,
        x: &Buffer,
        steps: &Buffer,
        scan: &SelectiveScan<'_, CpuOps>,
        plan: &StepPlan,
    ) -> Result<Buffer> {
        let config = scan.config;
        let mut out = self.buffers.take(x.n_rows(), config.width());
        let scan = kernels::SelectiveScan {
            n_heads: config.n_heads,
            head_dim: config.head_dim,
            state_dim: config.state_dim,
            n_groups: config.n_groups,
            decay: scan.decay,
            step_bias: scan.step_bias,
            skip: scan.skip,
        };
        let (x, steps, pool) = (x.values(), steps.values(), &self.pool);
        let part = (config.conv_len(), config.scan_len());
        self.states
            .for_each_stretch(layer, part, plan, |stretches| {
                kernels::selective_scan(x, steps, stretches, &scan, out.values_mut(), pool)
                    .map_err(failed)
            })?;
        Ok(out)
    }

    fn attend_bidirectional(
        &mut self,
        query: &Buffer,
        key: &Buffer,
        value: &Buffer,
        spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Buffer> {
        if attention.slopes.is_none() {
            return self.attend_passing(query, (key, value), spans, attention);
        }
        let mut out = self.buffers.take(query.n_rows(), query.width());
        let sequences: Vec<_> = spans.iter().map(|(rows, _)| rows.clone()).collect();
        kernels::attend_bidirectional(
            query.values(),
            key.values(),
            value.values(),
            &sequences,
            attention,
            out.values_mut(),
            &self.pool,
        )
        .map_err(failed)?;
        Ok(out)
    }

    fn activate(&mut self, mut x: Buffer, activation: Activation) -> Result<Buffer> {
        let function: fn(&mut [f32]) = match activation {
            Activation::Gelu => kernels::gelu,
            Activation::ExactGelu => kernels::exact_gelu,
            Activation::QuickGelu => kernels::quick_gelu,
            Activation::Silu => kernels::silu,
            Activation::ReluSquared => |x| {
                for value in x {
                    *value = value.max(0.0) * value.max(0.0);
                }
            },
            Activation::ClampedSwiglu
            | Activation::Relu
            | Activation::Sigmoid
            | Activation::Identity => return Err(no_gate()),
        };
        self.in_rows(&mut x, |_, x| function(x));
        Ok(x)
    }

    fn clamp(&mut self, mut x: Buffer, [least, most]: [f32; 2]) -> Result<Buffer> {
        self.in_rows(&mut x, |_, x| {
            for value in x {
                // Bounds of a file may be no numbers, which `clamp` would panic at.
                *value = value.max(least).min(most);
            }
        });
        Ok(x)
    }

    fn tanh(&mut self, mut x: Buffer) -> Result<Buffer> {
        for value in x.values_mut() {
            *value = value.tanh();
        }
        Ok(x)
    }

    fn gated(&mut self, mut gate: Buffer, up: &Buffer, activation: Activation) -> Result<Buffer> {
        let up = up.values();
        self.in_rows(&mut gate, |at, gate| match activation {
            Activation::Silu => kernels::silu_mul(gate, &up[at]),
            Activation::Gelu => kernels::gelu_mul(gate, &up[at]),
            Activation::ClampedSwiglu => kernels::clamped_swiglu(gate, &up[at]),
            Activation::Sigmoid => kernels::sigmoid_mul(gate, &up[at]),
            Activation::ExactGelu => {
                kernels::exact_gelu(gate);
                multiply(gate, &up[at]);
            }
            Activation::QuickGelu => {
                kernels::quick_gelu(gate);
                multiply(gate, &up[at]);
            }
            Activation::Identity => multiply(gate, &up[at]),
            Activation::Relu => {
                for (gate, up) in gate.iter_mut().zip(&up[at]) {
                    *gate = gate.max(0.0) * up;
                }
            }
            Activation::ReluSquared => {
                for (gate, up) in gate.iter_mut().zip(&up[at]) {
                    *gate = gate.max(0.0) * gate.max(0.0) * up;
                }
            }
        });
        Ok(gate)
    }

    fn add(&mut self, mut x: Buffer, y: &Buffer, scale: f32) -> Result<Buffer> {
        let y = y.values();
        self.in_rows(&mut x, |at, x| kernels::add_scaled(x, &y[at], scale));
        Ok(x)
    }

    fn scale_rows(&mut self, mut x: Buffer, factors: &[f32]) -> Result<Buffer> {
        for (row, factor) in factors.iter().enumerate() {
            for value in x.row_mut(row) {
                *value *= factor;
            }
        }
        Ok(x)
    }

    fn sigmoid_gate(&mut self, mut x: Buffer, gate: &Buffer) -> Result<Buffer> {
        for (row, gate) in gate.values().iter().enumerate() {
            let factor = kernels::sigmoid(*gate);
            for value in x.row_mut(row) {
                *value *= factor;
            }
        }
        Ok(x)
    }

    fn scale_columns(&mut self, x: &Buffer, factors: &Vec<f32>) -> Result<Buffer> {
        let mut out = self.buffers.take(x.n_rows(), x.width());
        let x = x.values();
        self.in_rows(&mut out, |at, out| {
            let columns = x[at].iter().zip(factors.iter().cycle());
            for (out, (x, factor)) in out.iter_mut().zip(columns) {
                *out = x * factor;
            }
        });
        Ok(out)
    }

    fn weighted_sum(
        &mut self,
        parts: &[&Buffer],
        factors: &Buffer,
        first_factor: usize,
    ) -> Result<Buffer> {
        let (n_rows, width) = parts.first().map_or((0, 0), |x| (x.n_rows(), x.width()));
        let mut out = self.buffers.take(n_rows, width);
        self.in_rows(&mut out, |at, rows| {
            let first = at.start / width.max(1);
            for (row, out) in (first..).zip(rows.chunks_exact_mut(width.max(1))) {
                out.fill(0.0);
                let factors = factors.row(row).iter().skip(first_factor);
                for (part, factor) in parts.iter().zip(factors) {
                    kernels::add_scaled(out, part.row(row), *factor);
                }
            }
        });
        Ok(out)
    }

    fn stream_factors(&mut self, scores: &Buffer, weights: &Vec<f32>) -> Result<Buffer> {
        let (n_rows, n_scores) = (scores.n_rows(), scores.width());
        let weights = weights.chunks_exact(n_scores + 1);
        let mut out = self.buffers.take(n_rows, weights.len());
        for row in 0..n_rows {
            let scores: SmallVec<[f32; 16]> = scores.row(row).iter().map(|x| x.tanh()).collect();
            for (factor, weights) in out.row_mut(row).iter_mut().zip(weights.clone()) {
                let products = weights.iter().zip(&scores).map(|(a, b)| a * b);
                *factor = products.sum::<f32>() + weights.last().copied().unwrap_or(0.0);
            }
        }
        Ok(out)
    }

    fn length_ratios(&mut self, x: &Buffer, like: &Buffer) -> Result<Buffer> {
        let length = |row: &[f32]| {
            let squares = row.iter().map(|x| f64::from(*x) * f64::from(*x));
            squares.sum::<f64>().sqrt()
        };
        let mut out = self.buffers.take(x.n_rows(), 1);
        for (row, ratio) in out.values_mut().iter_mut().enumerate() {
            let (wanted, found) = (length(like.row(row)), length(x.row(row)));
            *ratio = (wanted / found.max(SHORTEST)) as f32;
        }
        Ok(out)
    }

    fn peaks(&mut self, mut x: Buffer, deviations: f32) -> Result<Buffer> {
        let width = x.width().max(1);
        self.in_rows(&mut x, |_, rows| {
            for row in rows.chunks_exact_mut(width) {
                let sum: f64 = row.iter().map(|x| f64::from(*x)).sum();
                let mean = sum / width as f64;
                let squares = row.iter().map(|x| (f64::from(*x) - mean).powi(2));
                let variance = squares.sum::<f64>() / (width as f64 - 1.0).max(1.0);
                let floor = (mean + f64::from(deviations) * variance.sqrt()) as f32;
                for value in row {
                    *value = (*value - floor).max(0.0);
                }
            }
        });
        Ok(x)
    }

    fn plain_rows(&mut self, values: &[f32], width: usize) -> Result<Buffer> {
        let x = self.buffers.take(values.len() / width.max(1), width);
        self.scatter_rows(x, 0, values)
    }

    fn zeros(&mut self, like: &Buffer) -> Result<Buffer> {
        let mut x = self.buffers.take(like.n_rows(), like.width());
        x.values_mut().fill(0.0);
        Ok(x)
    }

    fn columns(&mut self, x: &Buffer, first: usize, n: usize) -> Result<Buffer> {
        let mut out = self.buffers.take(x.n_rows(), n);
        for row in 0..x.n_rows() {
            let from = x.row(row).get(first..first + n);
            let from =
                from.ok_or_else(|| ModelError::Compute("columns that are not there".into()))?;
            out.row_mut(row).copy_from_slice(from);
        }
        Ok(out)
    }

    fn join(&mut self, parts: &[Buffer]) -> Result<Buffer> {
        self.join_rows(&parts.iter().collect::<Vec<_>>())
    }

    fn gather_rows(&mut self, x: &Buffer, rows: &[u32]) -> Result<Buffer> {
        let mut out = self.buffers.take(rows.len(), x.width());
        for (to, from) in rows.iter().enumerate() {
            out.row_mut(to).copy_from_slice(x.row(*from as usize));
        }
        Ok(out)
    }

    fn add_to_rows(&mut self, mut x: Buffer, rows: &[u32], y: &Buffer) -> Result<Buffer> {
        for (from, to) in rows.iter().enumerate() {
            kernels::add_scaled(x.row_mut(*to as usize), y.row(from), 1.0);
        }
        Ok(x)
    }

    fn mixture(&mut self, _x: &Buffer, _scores: &Buffer, experts: &Infallible) -> Result<Buffer> {
        match *experts {}
    }

    fn n_rows(&self, x: &Buffer) -> usize {
        x.n_rows()
    }

    fn read(&mut self, x: &Buffer, out: &mut [f32]) -> Result<()> {
        if x.values().len() != out.len() {
            return Err(ModelError::Compute("a result has the wrong size".into()));
        }
        out.copy_from_slice(x.values());
        Ok(())
    }

    fn release_memory(&mut self) {
        self.buffers.release();
        self.inputs = Default::default();
        self.grouped_inputs = Vec::new();
        self.passing = None;
    }
}

fn multiply(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x *= y;
    }
}

/// What a thread takes at a time of operations on single elements: some microseconds.
const CHUNK_ELEMENTS: usize = 1 << 13;
/// Rows of grouped products whose memory is kept.
const KEPT_ROWS: usize = 64;
/// Rows up to which a product takes about as long as reading its weights.
const FEW_ROWS: usize = 8;

fn weight(matrix: &FileMatrix) -> Weight<'_> {
    Weight {
        ty: matrix.dtype(),
        rows: matrix.n_rows,
        cols: matrix.n_cols,
        bytes: matrix.bytes(),
    }
}

fn failed(error: kernels::Error) -> ModelError {
    ModelError::Compute(error.to_string())
}
