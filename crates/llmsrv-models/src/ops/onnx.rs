//! The operations of encoders for NPUs: they are recorded as a graph, and reading rows lets ONNX Runtime compute it.
//!
//! NPUs compile a graph for one length, so texts are padded to the next of a few lengths. What is beside the text is
//! masked, so it changes nothing. Rows of the tables of tokens, types and positions are looked up here; they, angles
//! and masks are the inputs of the graph. One text is computed at a time.

use std::{convert::Infallible, ops::Range, path::PathBuf};

use llmsrv_engine::{BlockId, LoadError, ModelError, NpuOptions, StateId, StepPlan};
use llmsrv_gguf::TensorType;
use llmsrv_onnx::{Attribute, Constant, Graph, Processor, Runtime, Session, Value};

use crate::{
    arch::{Activation, LayerConfig},
    ops::{Attention, BidirectionalAttention, DeltaRule, Holder, Ops, Result, SelectiveScan},
    rope::{Places, Rope, RopeStyle},
    source::FileMatrix,
};

/// Texts of fewer tokens are padded to so many.
const SHORTEST: usize = 32;
/// Longer texts are left to the CPU: the scores of attention alone would take hundreds of megabytes.
pub(crate) const LONGEST: usize = 2048;
/// Graphs of different lengths that stay loaded, as long as their weights are within [`MEMORY`]; one always stays.
const MOST_SESSIONS: u64 = 4;
const MEMORY: u64 = 1 << 30;
/// Added to the score of a position that is not to be seen; -65504 is the least number of NPUs that compute in f16.
const UNSEEN: f32 = -1e4;

/// Returns the length that a text of `n` tokens is padded to.
pub(crate) fn padded(n: usize, context_length: usize) -> usize {
    n.next_power_of_two()
        .max(SHORTEST)
        .min(context_length.max(n))
}

/// ONNX Runtime with the weights of a model.
pub(crate) struct OnnxOps {
    runtime: Runtime,
    context_length: usize,
    held: Vec<Held>,
    /// The one that was used last is the last one.
    sessions: Vec<Compiled>,
    step: Step,
}

/// Weights, as the file has them.
enum Held {
    Matrix(FileMatrix),
    Vector(Vec<f32>),
}

struct Compiled {
    graph: Graph,
    output: Value,
    session: Session,
}

/// What was recorded since rows were read last.
#[derive(Default)]
struct Step {
    graph: Graph,
    inputs: Vec<(Value, Vec<usize>, Vec<f32>)>,
    /// Rows of the text.
    n_rows: usize,
    /// Rows of the graph.
    length: usize,
    /// Hides what is beside the text, by how far a row sees.
    masks: Vec<(Option<usize>, Value)>,
    /// How far apart two rows are.
    distances: Option<Value>,
}

/// A weight matrix.
pub(crate) struct Matrix {
    key: usize,
    n_rows: usize,
    n_cols: usize,
}

/// Weights of one row.
pub(crate) struct Vector {
    key: usize,
    len: usize,
}

/// Rows of the text and those beside it.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    value: Value,
    n_cols: usize,
}

/// Cosines and sines, `[length, 1, pairs]`.
pub(crate) struct Angles {
    cos: Value,
    sin: Value,
    n_pairs: usize,
    style: RopeStyle,
}

impl OnnxOps {
    /// Loads ONNX Runtime.
    pub(crate) fn new(
        options: &NpuOptions,
        n_threads: usize,
        context_length: usize,
    ) -> Result<OnnxOps, LoadError> {
        let processor = Processor::named(&options.provider).ok_or_else(|| {
            LoadError::Unsupported(format!("execution provider {:?}", options.provider))
        })?;
        let runtime = Runtime::load(&options.runtime, processor).map_err(refused)?;
        let cache: Option<PathBuf> = options.cache.clone();
        Ok(OnnxOps {
            runtime: runtime.with_threads(n_threads).with_cache(cache),
            context_length,
            held: Vec::new(),
            sessions: Vec::new(),
            step: Step::default(),
        })
    }

    /// Bytes of the weights of one graph: the library makes them f32 where it computes on the CPU.
    fn graph_bytes(&self) -> u64 {
        let bytes = self.held.iter().map(|held| match held {
            Held::Matrix(matrix) => 4 * (matrix.n_rows as u64) * (matrix.n_cols as u64),
            Held::Vector(vector) => 4 * vector.len() as u64,
        });
        bytes.sum()
    }

    /// Graphs that may be loaded at a time.
    fn most_sessions(&self) -> u64 {
        (MEMORY / self.graph_bytes().max(1)).clamp(1, MOST_SESSIONS)
    }

    /// Begins a step if there is none.
    fn begin(&mut self, n_rows: usize) -> Result<()> {
        if self.step.length == 0 {
            self.step.n_rows = n_rows;
            self.step.length = padded(n_rows, self.context_length);
        }
        if self.step.n_rows == n_rows {
            return Ok(());
        }
        self.step = Step::default();
        Err(ModelError::Compute("rows of different texts".into()))
    }

    fn held(&mut self, held: Held) -> usize {
        self.held.push(held);
        self.held.len() - 1
    }

    fn weights(&mut self, matrix: &Matrix) -> Value {
        let held = Constant::Held {
            key: matrix.key,
            narrow: true,
        };
        self.step
            .graph
            .constant(&[matrix.n_rows, matrix.n_cols], held)
    }

    fn vector_of(&mut self, vector: &Vector) -> Value {
        let held = Constant::Held {
            key: vector.key,
            narrow: false,
        };
        self.step.graph.constant(&[vector.len], held)
    }

    /// Computes a norm of stretches of `weight.len` elements.
    fn normed_stretches(
        &mut self,
        x: &Rows,
        weight: &Vector,
        norm: impl FnOnce(&mut Step, Value, Value) -> Value,
    ) -> Rows {
        let by = self.vector_of(weight);
        let (step, n_cols) = (&mut self.step, x.n_cols);
        let is_whole = weight.len == n_cols;
        let mut value = x.value;
        if !is_whole {
            let shape = [step.length, n_cols / weight.len.max(1), weight.len];
            value = step.reshape(value, &shape);
        }
        value = norm(step, value, by);
        if !is_whole {
            value = step.reshape(value, &[step.length, n_cols]);
        }
        rows(value, n_cols)
    }

    /// Writes weights for a model.
    fn write(held: &[Held], key: usize) -> Vec<u8> {
        match held.get(key) {
            Some(Held::Matrix(matrix)) => {
                let values = matrix.values();
                let mut bytes = vec![0; 2 * values.len()];
                // It has the length that the type asks for.
                let _ = llmsrv_kernels::quantize(TensorType::F16, &values, &mut bytes);
                bytes
            }
            Some(Held::Vector(values)) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            None => Vec::new(),
        }
    }
}

impl Step {
    fn input(&mut self, shape: &[usize], values: Vec<f32>) -> Value {
        let value = self.graph.input(shape);
        self.inputs.push((value, shape.to_vec(), values));
        value
    }

    fn number(&mut self, number: f32) -> Value {
        self.graph.constant(&[], Constant::F32(vec![number]))
    }

    fn numbers(&mut self, numbers: &[usize]) -> Value {
        let numbers = numbers.iter().map(|n| *n as i64).collect::<Vec<_>>();
        self.graph
            .constant(&[numbers.len()], Constant::I64(numbers))
    }

    fn op(&mut self, kind: &'static str, inputs: &[Value]) -> Value {
        self.graph.operation(kind, inputs, &[])
    }

    fn reshape(&mut self, x: Value, shape: &[usize]) -> Value {
        let shape = self.numbers(shape);
        self.op("Reshape", &[x, shape])
    }

    fn transpose(&mut self, x: Value, order: [i64; 4]) -> Value {
        let order = Attribute::Ints(order.to_vec());
        self.graph.operation("Transpose", &[x], &[("perm", order)])
    }

    fn concat(&mut self, parts: &[Value], axis: i64) -> Value {
        let axis = Attribute::Int(axis);
        self.graph.operation("Concat", parts, &[("axis", axis)])
    }

    /// Copies `range` of the elements along an axis.
    fn slice(&mut self, x: Value, axis: usize, range: Range<usize>) -> Value {
        let [start, end, axis] =
            [range.start, range.end, axis].map(|number| self.numbers(&[number]));
        self.op("Slice", &[x, start, end, axis])
    }

    fn times(&mut self, x: Value, factor: f32) -> Value {
        if factor == 1.0 {
            return x;
        }
        let factor = self.number(factor);
        self.op("Mul", &[x, factor])
    }

    fn plus(&mut self, x: Value, number: f32) -> Value {
        let number = self.number(number);
        self.op("Add", &[x, number])
    }

    fn clip(&mut self, x: Value, [least, most]: [f32; 2]) -> Value {
        let (least, most) = (self.number(least), self.number(most));
        self.op("Clip", &[x, least, most])
    }

    /// Computes `x * sigmoid(factor * x)`.
    fn swish(&mut self, x: Value, factor: f32) -> Value {
        let scaled = self.times(x, factor);
        let open = self.op("Sigmoid", &[scaled]);
        self.op("Mul", &[x, open])
    }

    fn activated(&mut self, x: Value, activation: Activation) -> Result<Value> {
        Ok(match activation {
            Activation::Gelu => {
                let square = self.op("Mul", &[x, x]);
                let square = self.times(square, 0.044_715);
                let square = self.plus(square, 1.0);
                let inner = self.op("Mul", &[x, square]);
                let inner = self.times(inner, (2.0 / std::f32::consts::PI).sqrt());
                let tanh = self.op("Tanh", &[inner]);
                self.half_gated(x, tanh)
            }
            Activation::ExactGelu => {
                let inner = self.times(x, std::f32::consts::FRAC_1_SQRT_2);
                let erf = self.op("Erf", &[inner]);
                self.half_gated(x, erf)
            }
            Activation::QuickGelu => self.swish(x, 1.702),
            Activation::Silu => self.swish(x, 1.0),
            Activation::Relu => self.op("Relu", &[x]),
            Activation::ReluSquared => {
                let positive = self.op("Relu", &[x]);
                self.op("Mul", &[positive, positive])
            }
            Activation::Sigmoid => self.op("Sigmoid", &[x]),
            Activation::Identity => x,
            Activation::ClampedSwiglu => return Err(missing()),
        })
    }

    /// Computes `x * (1 + gate) / 2`.
    fn half_gated(&mut self, x: Value, gate: Value) -> Value {
        let open = self.plus(gate, 1.0);
        let open = self.times(open, 0.5);
        self.op("Mul", &[x, open])
    }

    /// Returns how far apart two rows are, `[1, 1, length, length]`. It is computed of inputs, not a constant: that
    /// would be kept, as large as it is.
    fn distances(&mut self) -> Value {
        if let Some(distances) = self.distances {
            return distances;
        }
        let places = |step: &Step| (0..step.length).map(|row| row as f32).collect::<Vec<_>>();
        let (length, values) = (self.length, places(self));
        let down = self.input(&[1, 1, length, 1], values.clone());
        let across = self.input(&[1, 1, 1, length], values);
        let difference = self.op("Sub", &[down, across]);
        let distances = self.op("Abs", &[difference]);
        self.distances = Some(distances);
        distances
    }

    /// Returns what is added to scores: it hides what is beside the text, and what is farther away than `reach`.
    fn mask(&mut self, reach: Option<usize>) -> Value {
        if let Some((_, mask)) = self.masks.iter().find(|(known, _)| *known == reach) {
            return *mask;
        }
        let mask = match reach {
            None => {
                let (length, n_rows) = (self.length, self.n_rows);
                let hidden = |row: usize| if row < n_rows { 0.0 } else { UNSEEN };
                self.input(&[1, 1, 1, length], (0..length).map(hidden).collect())
            }
            Some(reach) => {
                let text = self.mask(None);
                let distances = self.distances();
                let beyond = self.plus(distances, -(reach as f32));
                let is_beyond = self.clip(beyond, [0.0, 1.0]);
                let far = self.times(is_beyond, UNSEEN);
                self.op("Add", &[text, far])
            }
        };
        self.masks.push((reach, mask));
        mask
    }

    /// Makes `[1, heads, length, elements]` of rows, or with `order` another order of these.
    fn heads(&mut self, x: &Rows, head_dim: usize, order: [i64; 4]) -> Value {
        let shape = [1, self.length, x.n_cols / head_dim.max(1), head_dim];
        let heads = self.reshape(x.value, &shape);
        self.transpose(heads, order)
    }
}

impl Holder for OnnxOps {
    type Matrix = Matrix;
    type Vector = Vector;
    type Experts = Infallible;

    fn matrix(&mut self, source: FileMatrix) -> Result<Matrix> {
        let (n_rows, n_cols) = (source.n_rows, source.n_cols);
        let key = self.held(Held::Matrix(source));
        Ok(Matrix {
            key,
            n_rows,
            n_cols,
        })
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<Vector> {
        let len = values.len();
        let key = self.held(Held::Vector(values));
        Ok(Vector { key, len })
    }
}

/// Operations that are not computed on an NPU: their names, and the types of their arguments.
macro_rules! missing {
    ($(fn $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(fn $name(&mut self, $(_: $argument),*) -> $result {
            Err(missing())
        })*
    };
}

impl Ops for OnnxOps {
    type Tensor = Rows;
    type Angles = Angles;

    fn extra_weight_bytes(&self) -> u64 {
        self.graph_bytes().saturating_mul(self.most_sessions())
    }

    fn reserve_blocks(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn kv_block_bytes(&self) -> usize {
        0
    }

    fn reserve_states(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn embed(&mut self, table: &FileMatrix, tokens: &[u32], scale: f32) -> Result<Rows> {
        self.begin(tokens.len())?;
        let n_cols = table.n_cols;
        let mut values = vec![0.0; self.step.length * n_cols];
        for (row, token) in values.chunks_exact_mut(n_cols.max(1)).zip(tokens) {
            table.read_row(*token as usize, row);
            for value in row {
                *value *= scale;
            }
        }
        let value = self.step.input(&[self.step.length, n_cols], values);
        Ok(rows(value, n_cols))
    }

    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Angles> {
        self.begin(places.len())?;
        let n_pairs = rope.frequencies.len();
        let shape = [self.step.length, 1, n_pairs];
        let mut cos = vec![1.0; self.step.length * n_pairs];
        let mut sin = vec![0.0; self.step.length * n_pairs];
        let angles = places.iter().flat_map(|place| rope.angles(place));
        for ((angle, cos), sin) in angles.zip(&mut cos).zip(&mut sin) {
            *cos = angle.cos() as f32 * rope.magnitude;
            *sin = angle.sin() as f32 * rope.magnitude;
        }
        Ok(Angles {
            cos: self.step.input(&shape, cos),
            sin: self.step.input(&shape, sin),
            n_pairs,
            style: rope.style,
        })
    }

    fn rms_norm(&mut self, x: &Rows, weight: &Vector, eps: f32) -> Result<Rows> {
        Ok(self.normed_stretches(x, weight, |step, x, by| {
            let square = step.op("Mul", &[x, x]);
            let axes = [("axes", Attribute::Ints(vec![-1]))];
            let mean = step.graph.operation("ReduceMean", &[square], &axes);
            let mean = step.plus(mean, eps);
            let root = step.op("Sqrt", &[mean]);
            let normed = step.op("Div", &[x, root]);
            step.op("Mul", &[normed, by])
        }))
    }

    fn layer_norm(
        &mut self,
        x: &Rows,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Rows> {
        let bias = bias.map(|bias| self.vector_of(bias));
        Ok(self.normed_stretches(x, weight, |step, x, by| {
            let inputs: Vec<Value> = [Some(x), Some(by), bias].into_iter().flatten().collect();
            let attributes = [
                ("axis", Attribute::Int(-1)),
                ("epsilon", Attribute::Float(eps)),
            ];
            step.graph
                .operation("LayerNormalization", &inputs, &attributes)
        }))
    }

    fn linear(&mut self, x: &Rows, matrix: &Matrix, bias: Option<&Vector>) -> Result<Rows> {
        let mut inputs = vec![x.value, self.weights(matrix)];
        inputs.extend(bias.map(|bias| self.vector_of(bias)));
        let transposed = [("transB", Attribute::Int(1))];
        let value = self.step.graph.operation("Gemm", &inputs, &transposed);
        Ok(rows(value, matrix.n_rows))
    }

    fn rotate(&mut self, x: Rows, angles: &Angles, head_dim: usize) -> Result<Rows> {
        let (step, n_pairs) = (&mut self.step, angles.n_pairs);
        let (length, n_heads) = (step.length, x.n_cols / head_dim.max(1));
        let heads = step.reshape(x.value, &[length, n_heads, head_dim]);
        let flat = [length, n_heads, n_pairs];
        let apart = [length, n_heads, n_pairs, 1];
        let (a, b) = match angles.style {
            RopeStyle::HalfSplit => (
                step.slice(heads, 2, 0..n_pairs),
                step.slice(heads, 2, n_pairs..2 * n_pairs),
            ),
            RopeStyle::Interleaved => {
                let rotated = step.slice(heads, 2, 0..2 * n_pairs);
                let pairs = step.reshape(rotated, &[length, n_heads, n_pairs, 2]);
                let (a, b) = (step.slice(pairs, 3, 0..1), step.slice(pairs, 3, 1..2));
                (step.reshape(a, &flat), step.reshape(b, &flat))
            }
        };
        let mut turn = |x: Value, y: Value, kind: &'static str| {
            let along = step.op("Mul", &[x, angles.cos]);
            let across = step.op("Mul", &[y, angles.sin]);
            step.op(kind, &[along, across])
        };
        let (a, b) = (turn(a, b, "Sub"), turn(b, a, "Add"));
        let mut turned = match angles.style {
            RopeStyle::HalfSplit => step.concat(&[a, b], 2),
            RopeStyle::Interleaved => {
                let (a, b) = (step.reshape(a, &apart), step.reshape(b, &apart));
                let pairs = step.concat(&[a, b], 3);
                step.reshape(pairs, &[length, n_heads, 2 * n_pairs])
            }
        };
        if 2 * n_pairs < head_dim {
            let rest = step.slice(heads, 2, 2 * n_pairs..head_dim);
            turned = step.concat(&[turned, rest], 2);
        }
        let value = step.reshape(turned, &[length, x.n_cols]);
        Ok(rows(value, x.n_cols))
    }

    fn attend_bidirectional(
        &mut self,
        query: &Rows,
        key: &Rows,
        value: &Rows,
        spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Rows> {
        let step = &mut self.step;
        let whole = 0..step.n_rows;
        if spans != [(whole.clone(), whole)] {
            return Err(ModelError::Compute("more than one text".into()));
        }
        let (n_heads, n_kv_heads, dim) =
            (attention.n_heads, attention.n_kv_heads, attention.head_dim);
        let (length, group) = (step.length, n_heads / n_kv_heads.max(1));
        let mut queries = step.heads(query, dim, [0, 2, 1, 3]);
        let keys = step.heads(key, dim, [0, 2, 3, 1]);
        let values = step.heads(value, dim, [0, 2, 1, 3]);
        // Heads that share keys are one head of more rows.
        if group > 1 {
            queries = step.reshape(queries, &[1, n_kv_heads, group * length, dim]);
        }
        let mut scores = step.op("MatMul", &[queries, keys]);
        scores = step.times(scores, attention.scale);
        if group > 1 {
            scores = step.reshape(scores, &[1, n_heads, length, length]);
        }
        let mask = step.mask(attention.reach);
        scores = step.op("Add", &[scores, mask]);
        if let Some(slopes) = attention.slopes {
            let slopes: Vec<f32> = slopes.iter().map(|slope| -slope).collect();
            let slopes = step
                .graph
                .constant(&[1, n_heads, 1, 1], Constant::F32(slopes));
            let distances = step.distances();
            let falls = step.op("Mul", &[distances, slopes]);
            scores = step.op("Add", &[scores, falls]);
        }
        let axis = [("axis", Attribute::Int(-1))];
        let mut shares = step.graph.operation("Softmax", &[scores], &axis);
        if group > 1 {
            shares = step.reshape(shares, &[1, n_kv_heads, group * length, length]);
        }
        let mut attended = step.op("MatMul", &[shares, values]);
        if group > 1 {
            attended = step.reshape(attended, &[1, n_heads, length, dim]);
        }
        let attended = step.transpose(attended, [0, 2, 1, 3]);
        let attended = step.reshape(attended, &[length, n_heads * dim]);
        Ok(rows(attended, n_heads * dim))
    }

    fn activate(&mut self, x: Rows, activation: Activation) -> Result<Rows> {
        let value = self.step.activated(x.value, activation)?;
        Ok(rows(value, x.n_cols))
    }

    fn clamp(&mut self, x: Rows, bounds: [f32; 2]) -> Result<Rows> {
        let value = self.step.clip(x.value, bounds);
        Ok(rows(value, x.n_cols))
    }

    fn tanh(&mut self, x: Rows) -> Result<Rows> {
        let value = self.step.op("Tanh", &[x.value]);
        Ok(rows(value, x.n_cols))
    }

    fn gated(&mut self, gate: Rows, up: &Rows, activation: Activation) -> Result<Rows> {
        let active = self.step.activated(gate.value, activation)?;
        let value = self.step.op("Mul", &[active, up.value]);
        Ok(rows(value, up.n_cols))
    }

    fn add(&mut self, x: Rows, y: &Rows, scale: f32) -> Result<Rows> {
        let y = self.step.times(y.value, scale);
        let value = self.step.op("Add", &[x.value, y]);
        Ok(rows(value, x.n_cols))
    }

    fn scale_columns(&mut self, x: &Rows, factors: &Vector) -> Result<Rows> {
        let factors = self.vector_of(factors);
        let value = self.step.op("Mul", &[x.value, factors]);
        Ok(rows(value, x.n_cols))
    }

    fn columns(&mut self, x: &Rows, first: usize, n: usize) -> Result<Rows> {
        let value = self.step.slice(x.value, 1, first..first + n);
        Ok(rows(value, n))
    }

    fn join(&mut self, parts: &[Rows]) -> Result<Rows> {
        let values: Vec<Value> = parts.iter().map(|part| part.value).collect();
        let value = self.step.concat(&values, 1);
        Ok(rows(value, parts.iter().map(|part| part.n_cols).sum()))
    }

    fn mixture(&mut self, _x: &Rows, _scores: &Rows, experts: &Infallible) -> Result<Rows> {
        match *experts {}
    }

    missing! {
        fn copy_block(BlockId, BlockId) -> Result<()>;
        fn clear_state(StateId) -> Result<()>;
        fn copy_state(StateId, StateId) -> Result<()>;
        fn scatter_rows(Rows, usize, &[f32]) -> Result<Rows>;
        fn grouped_norm(&Rows, &Vector, usize, f32) -> Result<Rows>;
        fn append_kv(&LayerConfig, Rows, Option<&Angles>, &Rows, &StepPlan) -> Result<()>;
        fn attend(usize, &Rows, Option<&Vector>, &StepPlan, &Attention) -> Result<Rows>;
        fn short_conv(usize, &Rows, (&Vector, Option<&Vector>), bool, &StepPlan) -> Result<Rows>;
        fn delta_rule(usize, &Rows, (&Rows, &Rows), &DeltaRule<'_, Self>, &StepPlan) -> Result<Rows>;
        fn selective_scan(usize, &Rows, &Rows, &SelectiveScan<'_, Self>, &StepPlan) -> Result<Rows>;
        fn scale_rows(Rows, &[f32]) -> Result<Rows>;
        fn sigmoid_gate(Rows, &Rows) -> Result<Rows>;
        fn weighted_sum(&[&Rows], &Rows, usize) -> Result<Rows>;
        fn stream_factors(&Rows, &Vector) -> Result<Rows>;
        fn length_ratios(&Rows, &Rows) -> Result<Rows>;
        fn peaks(Rows, f32) -> Result<Rows>;
        fn plain_rows(&[f32], usize) -> Result<Rows>;
        fn zeros(&Rows) -> Result<Rows>;
        fn gather_rows(&Rows, &[u32]) -> Result<Rows>;
        fn add_to_rows(Rows, &[u32], &Rows) -> Result<Rows>;
    }

    fn n_rows(&self, _: &Rows) -> usize {
        self.step.n_rows
    }

    /// Computes what was recorded, and begins anew.
    fn read(&mut self, x: &Rows, out: &mut [f32]) -> Result<()> {
        let Step {
            graph,
            inputs,
            length,
            ..
        } = std::mem::take(&mut self.step);
        let output = x.value;
        let known = self
            .sessions
            .iter()
            .position(|known| known.output == output && known.graph == graph);
        let mut compiled = if let Some(at) = known {
            self.sessions.remove(at)
        } else {
            // The one that was not used for longest makes room before the new one takes it.
            while self.sessions.len() as u64 >= self.most_sessions() {
                self.sessions.remove(0);
            }
            let held = |key: usize| OnnxOps::write(&self.held, key);
            let model = graph.to_bytes(output, &[length, x.n_cols], &held);
            let session = model.and_then(|model| self.runtime.session(&model));
            Compiled {
                session: session.map_err(failed)?,
                graph,
                output,
            }
        };
        let inputs: Vec<(Value, &[usize], &[f32])> = inputs
            .iter()
            .map(|(value, shape, values)| (*value, &shape[..], &values[..]))
            .collect();
        let outcome = compiled.session.run(&inputs, out).map_err(failed);
        self.sessions.push(compiled);
        outcome
    }
}

fn rows(value: Value, n_cols: usize) -> Rows {
    Rows { value, n_cols }
}

fn missing() -> ModelError {
    ModelError::Compute("an operation that is not computed on an NPU".into())
}

fn failed(error: llmsrv_onnx::Error) -> ModelError {
    ModelError::Compute(error.to_string())
}

fn refused(error: llmsrv_onnx::Error) -> LoadError {
    LoadError::Unsupported(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_padded_to_few_lengths() {
        let lengths: Vec<usize> = [1, 32, 33, 500, 513, 700]
            .iter()
            .map(|n| padded(*n, 600))
            .collect();
        assert_eq!(lengths, [32, 32, 64, 512, 600, 700]);
        assert_eq!(padded(3, 8), 8, "a short context is one length");
    }
}
