//! Operations on rows: products, norms, and functions of single elements.

use super::{
    Gpu, LANES, Matrix, OUTPUTS, ROWS, Scratch, Tensor, Vector, groups, mismatch,
};
use crate::{Error, recorder::Access};

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
}

impl Gpu {
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
}
