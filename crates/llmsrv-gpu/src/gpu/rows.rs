//! Norms, and functions of single elements and of rows.

use std::sync::Arc;

use super::{Gpu, LANES, Scratch, Tensor, Vector, groups, mismatch, products::rounded_width};
use crate::{
    Error,
    recorder::{Access, Work},
};

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
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x` itself.
    Identity,
    /// `x`, or 0 where that is negative.
    Relu,
}
impl Gpu {
    /// Divides each stretch of `weight.len()` elements by its root mean square and multiplies it with `weight`.
    pub fn rms_norm(&mut self, x: &Tensor, weight: &Vector, eps: f32) -> Result<Tensor, Error> {
        let rounds =
            self.rounds_256 && weight.len == x.width && x.width.is_multiple_of(256) && x.n_rows > 0;
        if !rounds {
            return self.norm("rms_norm", x, (weight, 1), None, eps);
        }
        // What is normed is mostly multiplied next, and rounding it here saves a kernel.
        let out = self.tensor(x.n_rows, x.width)?;
        let rounded = self.tensor(x.n_rows, rounded_width(x.width, 256))?;
        let params = [x.n_elements() as u32, x.width as u32, eps.to_bits()];
        let bindings = [
            rounded.write(),
            Access::None,
            Access::Read(weight.region),
            x.read(),
            out.write(),
        ];
        let [across, down] = groups(x.n_rows);
        self.recorder.dispatch(
            "rms_norm_256",
            &bindings,
            &params,
            [across, down, 1],
            Work::new(x.n_elements() as u64, 2 * x.bytes() + rounded.bytes()),
        )?;
        *out.rounded.lock() = Some(("quantize_256", Arc::new(rounded)));
        Ok(out)
    }

    /// As [`Gpu::rms_norm`], of several tensors in place, up to three of them with one kernel.
    pub fn rms_norms(
        &mut self,
        mut parts: Vec<(&mut Tensor, &Vector)>,
        eps: f32,
    ) -> Result<(), Error> {
        for parts in parts.chunks_mut(3) {
            let mut bindings = [Access::None; 6];
            let mut shapes = [[0_u32; 2]; 3];
            let (mut n_stretches, mut n_elements) = (0, 0);
            let (tensors, weights) = bindings.split_at_mut(3);
            let bound = tensors.iter_mut().zip(weights).zip(&mut shapes);
            for ((x, weight), ((tensor, of_tensor), shape)) in parts.iter_mut().zip(bound) {
                if weight.len == 0 || !x.width.is_multiple_of(weight.len) {
                    return Err(mismatch("a norm"));
                }
                let n = x.n_elements() / weight.len;
                (*tensor, *of_tensor) = (x.write(), Access::Read(weight.region));
                *shape = [weight.len as u32, n as u32];
                n_stretches += n;
                n_elements += x.n_elements() as u64;
            }
            let [[len, n], [second_len, second], [third_len, third]] = shapes;
            let params = [
                len,
                n,
                0,
                eps.to_bits(),
                0,
                0,
                second_len,
                second,
                third_len,
                third,
            ];
            let [across, down] = groups(n_stretches);
            self.recorder.dispatch(
                "rms_norms",
                &bindings,
                &params,
                [across, down, 1],
                Work::new(n_elements, 8 * n_elements),
            )?;
        }
        Ok(())
    }

    /// Adds `scale` times the norm of the rows of `y`, as [`Gpu::rms_norm`] makes it, to `x`; returns the norm of the sum
    /// with the weight `next`.
    pub fn add_normed(
        &mut self,
        x: &mut Tensor,
        (y, weight): (&Tensor, &Vector),
        eps: f32,
        scale: f32,
        next: Option<&Vector>,
    ) -> Result<Option<Tensor>, Error> {
        x.same_shape(y)?;
        if [Some(weight), next]
            .into_iter()
            .flatten()
            .any(|weight| weight.len != x.width)
        {
            return Err(mismatch("a norm"));
        }
        let normed = next.map(|_| self.tensor(x.n_rows, x.width)).transpose()?;
        let params = [
            x.width as u32,
            x.n_rows as u32,
            u32::from(next.is_some()),
            eps.to_bits(),
            0,
            scale.to_bits(),
        ];
        let bindings = [
            x.write(),
            y.read(),
            Access::Read(weight.region),
            normed.as_ref().map_or(Access::None, Tensor::write),
            next.map_or(Access::None, |next| Access::Read(next.region)),
        ];
        let [across, down] = groups(x.n_rows);
        self.recorder.dispatch(
            "add_normed",
            &bindings,
            &params,
            [across, down, 1],
            Work::new(2 * x.n_elements() as u64, 4 * x.bytes()),
        )?;
        Ok(normed)
    }

    /// As [`Gpu::rms_norm`], where `weight` has an element for each of a row, and each of `n_groups` equal stretches of a
    /// row is normed by itself.
    pub fn grouped_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        n_groups: usize,
        eps: f32,
    ) -> Result<Tensor, Error> {
        if x.width != weight.len || n_groups == 0 || !x.width.is_multiple_of(n_groups) {
            return Err(mismatch("a norm"));
        }
        self.norm("rms_norm", x, (weight, n_groups), None, eps)
    }

    /// Moves each row to the mean 0 and the variance 1, multiplies it with `weight` and adds `bias`.
    pub fn layer_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor, Error> {
        self.norm("layer_norm", x, (weight, 1), bias, eps)
    }

    fn norm(
        &mut self,
        kernel: &'static str,
        x: &Tensor,
        (weight, n_groups): (&Vector, usize),
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor, Error> {
        let len = weight.len / n_groups;
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
            n_groups as u32,
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
            Work::new(x.n_elements() as u64, 2 * x.bytes()),
        )?;
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

    /// Multiplies each column with its factor.
    pub fn scale_columns(&mut self, x: &Tensor, factors: &Vector) -> Result<Tensor, Error> {
        if factors.len != x.width {
            return Err(mismatch("factors of columns"));
        }
        let out = self.tensor(x.n_rows, x.width)?;
        let bindings = [out.write(), x.read(), Access::Read(factors.region)];
        self.elements("scale_columns", &bindings, &out, [0; 3], 0.0)?;
        Ok(out)
    }

    /// Adds the rows of tensors of one shape, each times a factor: those of a row are one behind the other in the same row
    /// of `factors`, from column `first` on.
    pub fn weighted_sum(
        &mut self,
        parts: &[&Tensor],
        factors: &Tensor,
        first: usize,
    ) -> Result<Tensor, Error> {
        let Some(shape) = parts.first() else {
            return Err(mismatch("a sum"));
        };
        let fits = parts.iter().all(|part| part.same_shape(shape).is_ok())
            && factors.n_rows == shape.n_rows
            && first.saturating_add(parts.len()) <= factors.width;
        if !fits {
            return Err(mismatch("a sum"));
        }
        let out = self.tensor(shape.n_rows, shape.width)?;
        for (parts, done) in parts.chunks(4).zip((0..).step_by(4)) {
            let mut bindings = [Access::None; 6];
            (bindings[0], bindings[2]) = (out.write(), factors.read());
            let [_, one, _, others @ ..] = &mut bindings;
            for (place, part) in [one].into_iter().chain(others).zip(parts) {
                *place = part.read();
            }
            let kind = parts.len() as u32 | if done > 0 { MORE } else { 0 };
            let at = [(first + done) as u32, factors.width as u32, kind];
            self.elements("weighted_sum", &bindings, &out, at, 0.0)?;
        }
        Ok(out)
    }

    /// Computes how much streams count in others, `[rows, factors]`, from the scores of a row: `weights` has for each
    /// factor as many coefficients as there are scores, of their hyperbolic tangents, and what is added.
    pub fn stream_factors(&mut self, scores: &Tensor, weights: &Vector) -> Result<Tensor, Error> {
        let each = scores.width + 1;
        if scores.width == 0 || !weights.len.is_multiple_of(each) {
            return Err(mismatch("factors of streams"));
        }
        let out = self.tensor(scores.n_rows, weights.len / each)?;
        let bindings = [out.write(), scores.read(), Access::Read(weights.region)];
        let at = [0, scores.width as u32, 0];
        self.elements("stream_factors", &bindings, &out, at, 0.0)?;
        Ok(out)
    }

    /// Computes how much longer the rows of `like` are than those of `x`, in the sense of the sum of squares: `[rows, 1]`.
    pub fn length_ratios(&mut self, x: &Tensor, like: &Tensor) -> Result<Tensor, Error> {
        x.same_shape(like)?;
        let out = self.tensor(x.n_rows, 1)?;
        let bindings = [out.write(), x.read(), like.read()];
        self.whole_rows("length_ratios", &bindings, x, 0.0)?;
        Ok(out)
    }

    /// Subtracts from each row its mean and `deviations` times its standard deviation (of a sample), and replaces what is
    /// then negative by 0.
    pub fn peaks(&mut self, x: &mut Tensor, deviations: f32) -> Result<(), Error> {
        let bindings = [x.write()];
        self.whole_rows("peaks", &bindings, x, deviations)
    }

    /// Records a kernel of `norms.wgsl` with a group for each row of `x`.
    fn whole_rows(
        &mut self,
        kernel: &'static str,
        bindings: &[Access],
        x: &Tensor,
        scale: f32,
    ) -> Result<(), Error> {
        let params = [x.width as u32, x.n_rows as u32, 0, 0, 0, scale.to_bits()];
        let [across, down] = groups(x.n_rows);
        let work = Work::new(
            x.n_elements() as u64,
            (1 + bindings.len() as u64) * x.bytes(),
        );
        self.recorder
            .dispatch(kernel, bindings, &params, [across, down, 1], work)
    }

    /// Multiplies each row with the sigmoid of the one element in the same row of `gate`.
    pub fn sigmoid_gate(&mut self, x: &mut Tensor, gate: &Tensor) -> Result<(), Error> {
        self.rows_times(x, gate, Function::Sigmoid as u32)
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

    /// Sets the rows of several tensors side by side.
    pub fn join(&mut self, parts: &[&Tensor]) -> Result<Tensor, Error> {
        let n_rows = parts.first().map_or(0, |part| part.n_rows);
        if parts.iter().any(|part| part.n_rows != n_rows) {
            return Err(mismatch("rows"));
        }
        let out = self.tensor(n_rows, parts.iter().map(|part| part.width).sum())?;
        let mut first = 0;
        for part in parts {
            let bindings = [out.write(), part.read()];
            let at = [first as u32, out.width as u32, 0];
            self.elements("put_columns", &bindings, part, at, 0.0)?;
            first += part.width;
        }
        Ok(out)
    }

    /// Brings each element between the two bounds.
    pub fn clamp(&mut self, x: &mut Tensor, [least, most]: [f32; 2]) -> Result<(), Error> {
        let bindings = [x.write()];
        self.elements("bound", &bindings, x, [least.to_bits(), 0, 0], most)
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

    /// Records a kernel with one lane for each element of `x`.
    pub(super) fn elements(
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
        let work = Work::new(n as u64, bindings.len() as u64 * x.bytes());
        self.recorder
            .dispatch(kernel, bindings, &params, [across, down, 1], work)
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
}

/// As in `elements.wgsl`.
const MORE: u32 = 8;
