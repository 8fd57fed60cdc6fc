//! Products with a matrix, with a bias and with what adapters add.

use llmsrv_engine::ModelError;

use crate::{
    arch::Activation,
    ops::{Holder, Input, LinearRef, Ops, Product},
};

/// A matrix and perhaps a bias.
pub(crate) struct Linear<O: Holder> {
    /// One row for each output.
    pub matrix: O::Matrix,
    /// Added to the product.
    pub bias: Option<O::Vector>,
    /// What adapters add to the matrix.
    pub low_rank: Vec<LowRank<O>>,
}

/// `scale * up * down`, which an adapter adds to a matrix.
pub(crate) struct LowRank<O: Holder> {
    /// From the input to few numbers.
    pub down: O::Matrix,
    /// From those to the output.
    pub up: O::Matrix,
    /// Factor of the product of both.
    pub scale: f32,
}

/// Computes a product with its bias.
pub(crate) fn linear<O: Ops>(
    ops: &mut O,
    x: &O::Tensor,
    weights: &Linear<O>,
) -> Result<O::Tensor, ModelError> {
    let [y] = linears(ops, Input::Rows(x), [weights])?;
    Ok(y)
}

/// Computes products of the same rows with their biases.
pub(crate) fn linears<O: Ops, const N: usize>(
    ops: &mut O,
    input: Input<'_, O>,
    weights: [&Linear<O>; N],
) -> Result<[O::Tensor; N], ModelError> {
    let products = ops.linears(input, weights.map(linear_ref))?;
    if weights.iter().all(|weights| weights.low_rank.is_empty()) {
        return Ok(products);
    }
    let mut sums = Vec::with_capacity(N);
    for (y, weights) in products.into_iter().zip(weights) {
        sums.push(add_low_rank(ops, y, input, weights, 1.0)?);
    }
    let sums = sums.try_into();
    sums.map_err(|_| ModelError::Compute("a product is missing".into()))
}

/// Computes `x + scale * y` with the product `y`.
pub(crate) fn add_linear<O: Ops>(
    ops: &mut O,
    x: O::Tensor,
    input: Input<'_, O>,
    weights: &Linear<O>,
    scale: f32,
) -> Result<O::Tensor, ModelError> {
    let x = ops.add_linear(x, input, linear_ref(weights), scale)?;
    add_low_rank(ops, x, input, weights, scale)
}

/// Computes a function of each element of a product.
pub(crate) fn activated_linear<O: Ops>(
    ops: &mut O,
    input: Input<'_, O>,
    weights: &Linear<O>,
    activation: Activation,
) -> Result<O::Tensor, ModelError> {
    if weights.low_rank.is_empty() {
        return ops.activated_linear(input, linear_ref(weights), activation);
    }
    let [y] = linears(ops, input, [weights])?;
    ops.activate(y, activation)
}

/// Computes `activation(gate) * up` with the products of the two.
pub(crate) fn gated_linear<O: Ops>(
    ops: &mut O,
    input: Input<'_, O>,
    (gate, up): (&Linear<O>, &Linear<O>),
    activation: Activation,
) -> Result<O::Tensor, ModelError> {
    if gate.low_rank.is_empty() && up.low_rank.is_empty() {
        return ops.gated_linear(input, linear_ref(gate), linear_ref(up), activation);
    }
    let [gate, up] = linears(ops, input, [gate, up])?;
    ops.gated(gate, &up, activation)
}

/// Rows, what they are multiplied with, and a gate with its function.
pub(crate) type Group<'a, O> = (
    &'a <O as Ops>::Tensor,
    &'a Linear<O>,
    Option<(&'a Linear<O>, Activation)>,
);

/// Computes [`gated_linear`], or [`linear`] where there is no gate, of several groups of rows.
pub(crate) fn grouped_linear<'a, O: Ops + 'a>(
    ops: &mut O,
    groups: impl Iterator<Item = Group<'a, O>> + Clone,
) -> Result<Vec<O::Tensor>, ModelError> {
    let adapted = |weights: &Linear<O>| !weights.low_rank.is_empty();
    if groups
        .clone()
        .any(|(_, weights, gate)| adapted(weights) || gate.is_some_and(|(gate, _)| adapted(gate)))
    {
        let of_group = |(x, weights, gate): Group<'a, O>| match gate {
            None => linear(ops, x, weights),
            Some((gate, activation)) => {
                gated_linear(ops, Input::Rows(x), (gate, weights), activation)
            }
        };
        return groups.map(of_group).collect();
    }
    let products = groups.map(|(x, weights, gate)| Product {
        x,
        weights: linear_ref(weights),
        gate: gate.map(|(gate, activation)| (linear_ref(gate), activation)),
    });
    ops.grouped_linear(&products.collect::<Vec<_>>())
}

/// The matrix and the bias, as operations take them.
pub(crate) fn linear_ref<O: Holder>(weights: &Linear<O>) -> LinearRef<'_, O> {
    (&weights.matrix, weights.bias.as_ref())
}

/// Adds to a product, times `scale`, what adapters add to its matrix.
fn add_low_rank<O: Ops>(
    ops: &mut O,
    mut y: O::Tensor,
    input: Input<'_, O>,
    weights: &Linear<O>,
    scale: f32,
) -> Result<O::Tensor, ModelError> {
    for part in &weights.low_rank {
        let [inner] = ops.linears(input, [(&part.down, None)])?; // [n, rank]
        y = ops.add_linear(y, Input::Rows(&inner), (&part.up, None), scale * part.scale)?;
    }
    Ok(y)
}
