//! The arithmetic that the decoder is written in.
//!
//! A tensor is a matrix of f32: one row for each token of the step. Operations that take a tensor
//! by value reuse its memory for the result. [`cpu`] runs on the kernels of this program, [`gpu`] on those for
//! GPUs, [`onnx`] on NPUs, [`candle`] on candle's tensors (the second opinion in tests).

pub(crate) mod buffers;
pub(crate) mod candle;
pub(crate) mod cpu;
pub(crate) mod gpu;
pub(crate) mod onnx;
pub(crate) mod split;
mod states;
mod step;

use std::ops::Range;

use llmsrv_engine::{BlockId, GpuShare, ModelError, StateId, StepPlan};
pub(crate) use llmsrv_kernels::BidirectionalAttention;

use crate::{
    arch::{Activation, ArchConfig, DeltaNetConfig, ExpertsConfig, LayerConfig, ScanConfig},
    parts::Part,
    rope::{Places, Rope},
    source::FileMatrix,
};

/// What an operation gives. Shapes are checked when a model is loaded, so an error is a failure of the device.
pub(crate) type Result<T, E = ModelError> = std::result::Result<T, E>;

/// What weights are put into.
pub(crate) trait Holder: Sized {
    /// A weight matrix.
    type Matrix;
    /// Weights of one row: of a norm, or a bias.
    type Vector;
    /// The experts of a layer, where rows choose among them on a device.
    type Experts: Send;

    /// Says to which part of the model the next weights belong.
    fn begin_part(&mut self, part: Part) {
        let _ = part;
    }

    /// Takes a weight matrix.
    fn matrix(&mut self, source: FileMatrix) -> Result<Self::Matrix>;

    /// Takes a vector.
    fn vector(&mut self, values: Vec<f32>) -> Result<Self::Vector>;

    /// Takes the matrices of experts, each perhaps with a bias. They lie together.
    fn stack(
        &mut self,
        matrices: Vec<(FileMatrix, Option<Vec<f32>>)>,
    ) -> Result<Vec<Biased<Self>>> {
        let made = matrices.into_iter().map(|(matrix, bias)| {
            let matrix = self.matrix(matrix)?;
            let bias = bias.map(|bias| self.vector(bias)).transpose()?;
            Ok((matrix, bias))
        });
        made.collect()
    }

    /// Joins experts, so that rows choose among them on a device; `None` where the host chooses.
    fn experts(&mut self, experts: &ExpertNetworks<'_, Self>) -> Result<Option<Self::Experts>> {
        let _ = experts;
        Ok(None)
    }
}

/// A matrix of a holder, and perhaps a bias.
pub(crate) type Biased<O> = (<O as Holder>::Matrix, Option<<O as Holder>::Vector>);

/// The networks of the experts of a layer, and how rows choose among them.
pub(crate) struct ExpertNetworks<'a, O: Holder> {
    /// How rows choose.
    pub config: &'a ExpertsConfig,
    /// The function between the matrices of a network.
    pub activation: Activation,
    /// Added to the probability of each where rows choose, not where they weigh.
    pub selection_bias: Option<&'a [f32]>,
    /// Multiplies what each gives.
    pub scales: Option<&'a [f32]>,
    /// The networks.
    pub networks: Vec<ExpertNetwork<'a, O>>,
}

/// The network of one expert.
pub(crate) struct ExpertNetwork<'a, O: Holder> {
    /// To what the function is of, where another product is multiplied with that.
    pub gate: Option<LinearRef<'a, O>>,
    /// To that product, or to what the function is of.
    pub up: LinearRef<'a, O>,
    /// Back.
    pub down: LinearRef<'a, O>,
}

/// The operations of a decoder, on one device or on several.
pub(crate) trait Ops: Holder + Send {
    /// Rows of activations.
    type Tensor;
    /// Cosines and sines of one rotation for all rows of a step.
    type Angles;

    /// Returns the bytes that weight matrices take beyond those of their files.
    fn extra_weight_bytes(&self) -> u64;

    /// Returns the bytes of files that are on GPUs and no longer needed in the memory of the machine.
    fn moved_bytes(&self) -> u64 {
        0
    }

    /// Returns what of the model is on GPUs; nothing where there are none.
    fn gpus(&self) -> Vec<GpuShare> {
        Vec::new()
    }

    /// Copies rows to where a part is computed; `None` if they are there.
    fn copy_to(&mut self, part: Part, x: &Self::Tensor) -> Result<Option<Self::Tensor>> {
        let _ = (part, x);
        Ok(None)
    }

    /// Prepares for the rows of `plan`: they are what the next operations on the KV cache speak of.
    fn begin_step(&mut self, plan: &StepPlan) -> Result<()> {
        let _ = plan;
        Ok(())
    }

    /// Completes a step of which nothing is read.
    fn end_step(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes room for KV blocks `0..n_blocks` and keeps those that exist.
    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<()>;

    /// Copies what is stored in a KV block, in all layers, to another one.
    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()>;

    /// Returns the bytes of one KV block over all layers.
    fn kv_block_bytes(&self) -> usize;

    /// Makes room for recurrent states `0..n_states` and keeps those that exist.
    fn reserve_states(&mut self, n_states: usize) -> Result<()>;

    /// Sets a recurrent state, in all layers, to zeros.
    fn clear_state(&mut self, id: StateId) -> Result<()>;

    /// Copies a recurrent state, in all layers, to another one.
    fn copy_state(&mut self, from: StateId, to: StateId) -> Result<()>;

    /// Returns the bytes of one recurrent state over all layers.
    fn state_bytes(&self) -> usize;

    /// Looks up the rows of `table` named by `tokens`, times `scale`.
    fn embed(&mut self, table: &FileMatrix, tokens: &[u32], scale: f32) -> Result<Self::Tensor>;

    /// Replaces rows from `first` on by `values`, which are whole rows.
    fn scatter_rows(
        &mut self,
        x: Self::Tensor,
        first: usize,
        values: &[f32],
    ) -> Result<Self::Tensor>;

    /// Computes the angles of `rope` for rows at these places.
    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Self::Angles>;

    /// Divides each stretch of `weight.len()` elements by its root mean square and multiplies it
    /// with `weight`.
    fn rms_norm(
        &mut self,
        x: &Self::Tensor,
        weight: &Self::Vector,
        eps: f32,
    ) -> Result<Self::Tensor>;

    /// As [`Ops::rms_norm`], of several tensors at once; one without a weight stays as it is.
    fn rms_norms<const N: usize>(
        &mut self,
        parts: [(Self::Tensor, Option<&Self::Vector>); N],
        eps: f32,
    ) -> Result<[Self::Tensor; N]> {
        let mut failed = None;
        let normed = parts.map(|(x, weight)| {
            let Some(weight) = weight else { return x };
            self.rms_norm(&x, weight, eps).unwrap_or_else(|error| {
                failed = Some(error);
                x
            })
        });
        failed.map_or(Ok(normed), Err)
    }

    /// Computes `x + scale * y` with the norm `y` of other rows, as [`Ops::rms_norm`] makes it; and perhaps the norm of
    /// the sum with the weight `next`, where that takes no further pass over the rows.
    fn add_normed(
        &mut self,
        x: Self::Tensor,
        (y, weight): (&Self::Tensor, &Self::Vector),
        eps: f32,
        scale: f32,
        next: Option<&Self::Vector>,
    ) -> Result<(Self::Tensor, Option<Self::Tensor>)> {
        let _ = next;
        let y = self.rms_norm(y, weight, eps)?;
        Ok((self.add(x, &y, scale)?, None))
    }

    /// As [`Ops::rms_norm`], where `weight` has an element for each of a row, and each of `n_groups` equal
    /// stretches of a row is normed by itself.
    fn grouped_norm(
        &mut self,
        x: &Self::Tensor,
        weight: &Self::Vector,
        n_groups: usize,
        eps: f32,
    ) -> Result<Self::Tensor>;

    /// Moves each row to the mean 0 and the variance 1, multiplies it with `weight` and adds `bias`.
    fn layer_norm(
        &mut self,
        x: &Self::Tensor,
        weight: &Self::Vector,
        bias: Option<&Self::Vector>,
        eps: f32,
    ) -> Result<Self::Tensor>;

    /// Multiplies the rows of `x` with the rows of `matrix` and adds `bias`.
    fn linear(
        &mut self,
        x: &Self::Tensor,
        matrix: &Self::Matrix,
        bias: Option<&Self::Vector>,
    ) -> Result<Self::Tensor>;

    /// As [`Ops::linear`], with several matrices.
    fn linears<const N: usize>(
        &mut self,
        input: Input<'_, Self>,
        matrices: [LinearRef<'_, Self>; N],
    ) -> Result<[Self::Tensor; N]> {
        let normed = self.normed(input)?;
        let x = normed.as_ref().unwrap_or(input.rows());
        let products = matrices.map(|(matrix, bias)| self.linear(x, matrix, bias));
        let products: Vec<_> = products.into_iter().collect::<Result<_, _>>()?;
        let products = products.try_into();
        products.map_err(|_| ModelError::Compute("a product is missing".into()))
    }

    /// Computes the norm of an input that has one.
    fn normed(&mut self, input: Input<'_, Self>) -> Result<Option<Self::Tensor>> {
        match input {
            Input::Rows(_) => Ok(None),
            Input::Normed { x, weight, eps } => self.rms_norm(x, weight, eps).map(Some),
        }
    }

    /// Computes `x + scale * y` with the product `y` of `input` with a matrix.
    fn add_linear(
        &mut self,
        x: Self::Tensor,
        input: Input<'_, Self>,
        matrix: LinearRef<'_, Self>,
        scale: f32,
    ) -> Result<Self::Tensor> {
        let [y] = self.linears(input, [matrix])?;
        self.add(x, &y, scale)
    }

    /// Computes a function of each element of the product of `input` with a matrix.
    fn activated_linear(
        &mut self,
        input: Input<'_, Self>,
        matrix: LinearRef<'_, Self>,
        activation: Activation,
    ) -> Result<Self::Tensor> {
        let [y] = self.linears(input, [matrix])?;
        self.activate(y, activation)
    }

    /// Computes `activation(gate) * up` with the products of `input` with the two matrices.
    fn gated_linear(
        &mut self,
        input: Input<'_, Self>,
        gate: LinearRef<'_, Self>,
        up: LinearRef<'_, Self>,
        activation: Activation,
    ) -> Result<Self::Tensor> {
        let [gate, up] = self.linears(input, [gate, up])?;
        self.gated(gate, &up, activation)
    }

    /// Computes products that do not depend on each other, each of rows of its own.
    fn grouped_linear(&mut self, products: &[Product<'_, Self>]) -> Result<Vec<Self::Tensor>> {
        let product = |product: &Product<'_, Self>| self.product(product);
        products.iter().map(product).collect()
    }

    /// Computes one of the products of [`Ops::grouped_linear`].
    fn product(&mut self, product: &Product<'_, Self>) -> Result<Self::Tensor> {
        let (x, weights) = (product.x, product.weights);
        match product.gate {
            None => self.linear(x, weights.0, weights.1),
            Some((gate, activation)) => {
                self.gated_linear(Input::Rows(x), gate, weights, activation)
            }
        }
    }

    /// Rotates every head of `head_dim` elements.
    fn rotate(
        &mut self,
        x: Self::Tensor,
        angles: &Self::Angles,
        head_dim: usize,
    ) -> Result<Self::Tensor>;

    /// Stores keys, rotated, and values of the rows of the step in the blocks of their sequences.
    fn append_kv(
        &mut self,
        layer: &LayerConfig,
        key: Self::Tensor,
        angles: Option<&Self::Angles>,
        value: &Self::Tensor,
        plan: &StepPlan,
    ) -> Result<()>;

    /// As [`Ops::append_kv`], and rotates the queries of the rows, which it returns.
    fn rotate_and_append(
        &mut self,
        layer: &LayerConfig,
        mut query: Self::Tensor,
        (key, value): (Self::Tensor, &Self::Tensor),
        angles: Option<&Self::Angles>,
        plan: &StepPlan,
    ) -> Result<Self::Tensor> {
        if let Some(angles) = angles {
            query = self.rotate(query, angles, layer.head_dim)?;
        }
        self.append_kv(layer, key, angles, value, plan)?;
        Ok(query)
    }

    /// Attends from every query to the stored positions of its sequence before its end. The score in
    /// `sinks` of each head takes part in the softmax and has no value. `layer` is that of the cache.
    fn attend(
        &mut self,
        layer: usize,
        query: &Self::Tensor,
        sinks: Option<&Self::Vector>,
        plan: &StepPlan,
        attention: &Attention,
    ) -> Result<Self::Tensor>;

    /// Convolves each element of the rows with those of the rows before them in their sequences: `kernel`
    /// has a row for each of them, the last one is for the row itself, and perhaps a bias. With `silu` the
    /// results go through `x * sigmoid(x)`. `layer` is that of the decoder.
    fn short_conv(
        &mut self,
        layer: usize,
        x: &Self::Tensor,
        kernel: (&Self::Vector, Option<&Self::Vector>),
        silu: bool,
        plan: &StepPlan,
    ) -> Result<Self::Tensor>;

    /// Sends queries, keys and values (one after the other in each row) through the states of a gated
    /// delta net; `alpha` and `beta` have an element for each value head.
    fn delta_rule(
        &mut self,
        layer: usize,
        x: &Self::Tensor,
        gates: (&Self::Tensor, &Self::Tensor),
        rule: &DeltaRule<'_, Self>,
        plan: &StepPlan,
    ) -> Result<Self::Tensor>;

    /// Sends rows (all heads, what groups write, what they read) through the states of a selective scan;
    /// `steps` has an element for each head.
    fn selective_scan(
        &mut self,
        layer: usize,
        x: &Self::Tensor,
        steps: &Self::Tensor,
        scan: &SelectiveScan<'_, Self>,
        plan: &StepPlan,
    ) -> Result<Self::Tensor>;

    /// Attends from the queries of each span to all keys of it; nothing is stored. A span is the rows of
    /// `query` and those of `key` and `value`; together they are all rows, in order. With a reach or slopes
    /// both are the same rows.
    fn attend_bidirectional(
        &mut self,
        query: &Self::Tensor,
        key: &Self::Tensor,
        value: &Self::Tensor,
        spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Self::Tensor>;

    /// Computes a function of each element that needs no second factor.
    fn activate(&mut self, x: Self::Tensor, activation: Activation) -> Result<Self::Tensor>;

    /// Brings each element between the two bounds.
    fn clamp(&mut self, x: Self::Tensor, bounds: [f32; 2]) -> Result<Self::Tensor>;

    /// Computes the hyperbolic tangent of each element.
    fn tanh(&mut self, x: Self::Tensor) -> Result<Self::Tensor>;

    /// Computes `activation(gate) * up`.
    fn gated(
        &mut self,
        gate: Self::Tensor,
        up: &Self::Tensor,
        activation: Activation,
    ) -> Result<Self::Tensor>;

    /// Computes `x + scale * y`.
    fn add(&mut self, x: Self::Tensor, y: &Self::Tensor, scale: f32) -> Result<Self::Tensor>;

    /// Multiplies each row with its factor.
    fn scale_rows(&mut self, x: Self::Tensor, factors: &[f32]) -> Result<Self::Tensor>;

    /// Multiplies each row with the sigmoid of the one element in the same row of `gate`.
    fn sigmoid_gate(&mut self, x: Self::Tensor, gate: &Self::Tensor) -> Result<Self::Tensor>;

    /// Multiplies each column with its factor.
    fn scale_columns(&mut self, x: &Self::Tensor, factors: &Self::Vector) -> Result<Self::Tensor>;

    /// Adds the rows of tensors of one shape, each times a factor: `factors` has a row for each row, and in it, from
    /// column `first` on, an element for each tensor.
    fn weighted_sum(
        &mut self,
        parts: &[&Self::Tensor],
        factors: &Self::Tensor,
        first: usize,
    ) -> Result<Self::Tensor>;

    /// Computes how much residual streams count in each other, `[n, factors]`, from the scores of a row: `weights` has
    /// for each factor as many coefficients as a row has scores, of their hyperbolic tangents, and what is added.
    fn stream_factors(
        &mut self,
        scores: &Self::Tensor,
        weights: &Self::Vector,
    ) -> Result<Self::Tensor>;

    /// Computes how much longer the rows of `like` are than those of `x`, in the sense of the sum of squares: `[n, 1]`.
    fn length_ratios(&mut self, x: &Self::Tensor, like: &Self::Tensor) -> Result<Self::Tensor>;

    /// Subtracts from each row its mean and `deviations` times its standard deviation (of a sample), and
    /// replaces what is then negative by 0.
    fn peaks(&mut self, x: Self::Tensor, deviations: f32) -> Result<Self::Tensor>;

    /// Makes rows of `width` elements of plain numbers, which are whole rows.
    fn plain_rows(&mut self, values: &[f32], width: usize) -> Result<Self::Tensor>;

    /// Makes rows of zeros, as many and as long as those of `like`.
    fn zeros(&mut self, like: &Self::Tensor) -> Result<Self::Tensor>;

    /// Copies `n` columns from `first` on.
    fn columns(&mut self, x: &Self::Tensor, first: usize, n: usize) -> Result<Self::Tensor>;

    /// Sets the rows of several tensors side by side.
    fn join(&mut self, parts: &[Self::Tensor]) -> Result<Self::Tensor>;

    /// Copies the rows with these indices.
    fn gather_rows(&mut self, x: &Self::Tensor, rows: &[u32]) -> Result<Self::Tensor>;

    /// Adds row `i` of `y` to row `rows[i]` of `x`. No row is named twice.
    fn add_to_rows(
        &mut self,
        x: Self::Tensor,
        rows: &[u32],
        y: &Self::Tensor,
    ) -> Result<Self::Tensor>;

    /// Sends every row through the experts that it chooses by `scores`, of which it has one for each, and sums
    /// what they give, by ascending expert.
    fn mixture(
        &mut self,
        x: &Self::Tensor,
        scores: &Self::Tensor,
        experts: &Self::Experts,
    ) -> Result<Self::Tensor>;

    /// Returns the number of rows.
    fn n_rows(&self, x: &Self::Tensor) -> usize;

    /// Copies all elements to `out`, which has exactly as many.
    fn read(&mut self, x: &Self::Tensor, out: &mut [f32]) -> Result<()>;

    /// Gives back memory that is kept for the next step.
    fn release_memory(&mut self) {}
}

/// What a row of zeros is taken to be as long as, so that nothing is divided by zero.
const SHORTEST: f64 = 1e-30;

/// The error of a function that only a gate has.
fn no_gate() -> ModelError {
    ModelError::Compute("a gate without what it multiplies".into())
}

/// Rows that are multiplied with matrices, perhaps computed on the way there.
pub(crate) enum Input<'a, O: Ops> {
    /// The rows themselves.
    Rows(&'a O::Tensor),
    /// As [`Ops::rms_norm`] makes them.
    Normed {
        /// The rows before the norm.
        x: &'a O::Tensor,
        /// The weight of the norm.
        weight: &'a O::Vector,
        /// Added to the mean square.
        eps: f32,
    },
}

impl<'a, O: Ops> Input<'a, O> {
    /// Returns the rows as they are before the norm.
    pub(crate) fn rows(self) -> &'a O::Tensor {
        match self {
            Input::Rows(x) | Input::Normed { x, .. } => x,
        }
    }
}

impl<O: Ops> Clone for Input<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Ops> Copy for Input<'_, O> {}

/// A matrix and perhaps a bias.
pub(crate) type LinearRef<'a, O> = (&'a <O as Holder>::Matrix, Option<&'a <O as Holder>::Vector>);

/// A product of rows with a matrix, and perhaps with that of a gate.
pub(crate) struct Product<'a, O: Ops> {
    /// The rows.
    pub x: &'a O::Tensor,
    /// What they are multiplied with.
    pub weights: LinearRef<'a, O>,
    /// The product with this one, after the function, multiplies the result.
    pub gate: Option<(LinearRef<'a, O>, Activation)>,
}

/// How queries meet keys in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attention {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Factor of the scores before the softmax.
    pub scale: f32,
    /// Bounds the scores: `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, its own included.
    pub window: Option<usize>,
    /// Length of the stretches of positions of which a query sees its own.
    pub chunk: Option<usize>,
    /// A query sees nothing behind itself, whatever end the plan gives its row.
    pub causal: bool,
}

impl Attention {
    /// Returns that of a layer of a decoder.
    pub(crate) fn of(arch: &ArchConfig, layer: &LayerConfig) -> Attention {
        Attention {
            n_heads: layer.n_heads,
            n_kv_heads: layer.n_kv_heads,
            head_dim: layer.head_dim,
            scale: arch.attention_scale,
            softcap: arch.attention_softcap,
            window: layer.window,
            chunk: layer.chunk,
            causal: !layer.whole_images,
        }
    }

    /// Returns the end of the positions that a query sees; `end` is that of the plan.
    pub(crate) fn end(&self, position: u32, end: u32) -> u32 {
        if self.causal {
            end.min(position + 1)
        } else {
            end
        }
    }
}

/// A gated delta rule: how its heads lie, and how they forget.
pub(crate) struct DeltaRule<'a, O: Ops> {
    /// Sizes.
    pub net: &'a DeltaNetConfig,
    /// How fast each value head forgets.
    pub decay: &'a O::Vector,
    /// Added to what decides how much a row makes it forget.
    pub decay_bias: &'a O::Vector,
    /// Added to the sum of squares of queries and keys.
    pub eps: f32,
}

/// A selective scan: how its heads lie, forget, and what they add.
pub(crate) struct SelectiveScan<'a, O: Ops> {
    /// Sizes.
    pub config: &'a ScanConfig,
    /// How fast each head forgets.
    pub decay: &'a O::Vector,
    /// Added to the steps.
    pub step_bias: &'a O::Vector,
    /// How much of its input each head adds to its result.
    pub skip: &'a O::Vector,
}
