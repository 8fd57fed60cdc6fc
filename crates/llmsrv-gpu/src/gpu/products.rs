//! Products of rows with matrices.

use std::sync::Arc;

use super::{
    Gpu, Int8Kernels, Kernels, LANES, MATRIX_OUTPUTS, MOST_GROUPS, Matrix, OUTPUTS, ROWS,
    TILE_OUTPUTS, TILE_ROWS, Tensor, Vector, groups, mismatch, rows::Function,
};
use crate::{
    Error,
    recorder::{Access, Region, Work},
};

impl Gpu {
    /// Multiplies the rows of `x` with the rows of `matrix` and adds `bias`: `[rows, n]` from `[rows, k]` and
    /// `[n, k]`.
    pub fn linear(
        &mut self,
        x: &Tensor,
        matrix: &Matrix,
        bias: Option<&Vector>,
    ) -> Result<Tensor, Error> {
        self.linear_of(&mut Input::new(x), matrix, bias)
    }

    fn linear_of(
        &mut self,
        x: &mut Input<'_>,
        matrix: &Matrix,
        bias: Option<&Vector>,
    ) -> Result<Tensor, Error> {
        let out = self.tensor(x.rows.n_rows, matrix.n_rows)?;
        self.product(&out, x, matrix, bias, None)?;
        Ok(out)
    }

    /// As [`Gpu::linear`], with several matrices. Those of one type that lie near each other are one kernel.
    pub fn linears(
        &mut self,
        x: &Tensor,
        matrices: &[(&Matrix, Option<&Vector>)],
    ) -> Result<Vec<Tensor>, Error> {
        self.linears_of(&mut Input::new(x), matrices)
    }

    fn linears_of(
        &mut self,
        x: &mut Input<'_>,
        matrices: &[Factor<'_>],
    ) -> Result<Vec<Tensor>, Error> {
        let mut made: Vec<Option<Tensor>> = matrices.iter().map(|_| None).collect();
        while let Some(first) = made.iter().position(Option::is_none) {
            let mut group: Vec<(usize, Factor<'_>)> = Vec::new();
            for (idx, factor) in matrices.iter().enumerate().skip(first) {
                let is_open = made.get(idx).is_some_and(Option::is_none);
                let mut with: Vec<Factor<'_>> = group.iter().map(|(_, factor)| *factor).collect();
                with.push(*factor);
                if is_open && (group.is_empty() || self.near(&with).is_some()) {
                    group.push((idx, *factor));
                }
            }
            let factors: Vec<Factor<'_>> = group.iter().map(|(_, factor)| *factor).collect();
            let tensors = match self.near(&factors) {
                Some(near) if factors.len() > 1 => self.together(x, &factors, &near)?,
                _ => {
                    let alone = factors
                        .iter()
                        .map(|(matrix, bias)| self.linear_of(x, matrix, *bias));
                    alone.collect::<Result<_, _>>()?
                }
            };
            for ((idx, _), tensor) in group.iter().zip(tensors) {
                if let Some(place) = made.get_mut(*idx) {
                    *place = Some(tensor);
                }
            }
        }
        Ok(made.into_iter().flatten().collect())
    }

    /// Computes `function(gate) * up` with the products of `x` with two matrices.
    pub fn gated_linear(
        &mut self,
        x: &Tensor,
        gate: (&Matrix, Option<&Vector>),
        up: (&Matrix, Option<&Vector>),
        function: Function,
    ) -> Result<Tensor, Error> {
        let same = gate.0.n_rows == up.0.n_rows;
        if let Some(near) = self.near(&[gate, up]).filter(|_| same) {
            let out = self.tensor(x.n_rows, gate.0.n_rows)?;
            let ending = Ending {
                flags: GATED,
                scale: 0.0,
                kind: function as u32,
            };
            let x = &mut Input::new(x);
            self.products(&[&out, &out], x, &[gate, up], &near, &ending)?;
            return Ok(out);
        }
        let mut products = self.linears(x, &[gate, up])?.into_iter();
        let (Some(mut gate), Some(up)) = (products.next(), products.next()) else {
            return Err(mismatch("a product"));
        };
        self.gated(&mut gate, &up, function)?;
        Ok(gate)
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
        self.product(out, &mut Input::new(x), matrix, bias, Some(scale))
    }

    fn product(
        &mut self,
        out: &Tensor,
        x: &mut Input<'_>,
        matrix: &Matrix,
        bias: Option<&Vector>,
        add: Option<f32>,
    ) -> Result<(), Error> {
        if out.width != matrix.n_rows {
            return Err(mismatch("a product"));
        }
        let ending = Ending {
            flags: if add.is_some() { ADD } else { 0 },
            scale: add.unwrap_or(0.0),
            kind: 0,
        };
        let mut first = 0;
        for (n_rows, weights) in &matrix.parts {
            let near = Near {
                weights: *weights,
                starts: vec![0],
                bias: bias.map(|bias| bias.region),
                biases: vec![bias.map(|_| first as u32)],
                n_out: vec![*n_rows],
                first,
            };
            self.products(&[out], x, &[(matrix, bias)], &near, &ending)?;
            first += n_rows;
        }
        Ok(())
    }

    /// Returns how one kernel can compute products with all of these, if one can.
    fn near(&self, factors: &[Factor<'_>]) -> Option<Near> {
        let (first, _) = factors.first()?;
        let regions = factors.iter().map(|(matrix, _)| match matrix.parts[..] {
            [(_, region)] if matrix.kernels == first.kernels && matrix.n_cols == first.n_cols => {
                Some(region)
            }
            _ => None,
        });
        let regions = regions.collect::<Option<Vec<_>>>()?;
        let weights = self.span(&regions)?;
        let biases = factors.iter().map(|(_, bias)| bias.map(|bias| bias.region));
        let biases: Vec<Option<Region>> = biases.collect();
        let present: Vec<Region> = biases.iter().copied().flatten().collect();
        let bias = match present[..] {
            [] => None,
            _ => Some(self.span(&present)?),
        };
        let bias_start = bias.map_or(0, |bias| bias.start);
        let word = |region: Region| ((region.start - bias_start) / 4) as u32;
        (factors.len() <= MOST_MATRICES).then(|| Near {
            weights,
            starts: regions
                .iter()
                .map(|region| (region.start - weights.start) as u32)
                .collect(),
            bias,
            biases: biases.iter().map(|bias| bias.map(word)).collect(),
            n_out: factors.iter().map(|(matrix, _)| matrix.n_rows).collect(),
            first: 0,
        })
    }

    /// Returns the region from the first byte of some to the last, if one binding may be as long.
    pub(super) fn span(&self, regions: &[Region]) -> Option<Region> {
        let start = regions.iter().map(|region| region.start).min()?;
        let end = regions.iter().map(|region| region.start + region.bytes);
        let all = Region {
            start,
            bytes: end.max()? - start,
            ..*regions.first()?
        };
        let same = regions.iter().all(|region| region.buffer == all.buffer);
        (same && all.bytes <= self.recorder.max_binding()).then_some(all)
    }

    fn together(
        &mut self,
        x: &mut Input<'_>,
        factors: &[Factor<'_>],
        near: &Near,
    ) -> Result<Vec<Tensor>, Error> {
        let widths: Vec<usize> = factors.iter().map(|(matrix, _)| matrix.n_rows).collect();
        let made = self.tensors(x.rows.n_rows, &widths)?;
        let outs: Vec<&Tensor> = made.iter().collect();
        let ending = Ending {
            flags: 0,
            scale: 0.0,
            kind: 0,
        };
        self.products(&outs, x, factors, near, &ending)?;
        Ok(made)
    }

    /// Records one kernel for several matrices. `outs` lie one behind the other.
    fn products(
        &mut self,
        outs: &[&Tensor],
        input: &mut Input<'_>,
        factors: &[Factor<'_>],
        near: &Near,
        ending: &Ending,
    ) -> Result<(), Error> {
        let x = input.rows;
        let Some((first, _)) = factors.first() else {
            return Ok(());
        };
        let regions: Vec<Region> = outs.iter().map(|out| out.region).collect();
        let Some(out) = self.span(&regions) else {
            return Err(mismatch("a product"));
        };
        let mut params = [0; PARAMS];
        let parts = params.chunks_exact_mut(WORDS).zip(outs).zip(factors);
        for (((part, to), (matrix, bias)), idx) in parts.zip(0..) {
            let fits = x.width == matrix.n_cols
                && to.n_rows == x.n_rows
                && bias.is_none_or(|bias| bias.len == matrix.n_rows);
            let (n_out, start) = (near.n_out.get(idx), near.starts.get(idx));
            let (true, Some(n_out), Some(start)) = (fits, n_out, start) else {
                return Err(mismatch("a product"));
            };
            part.copy_from_slice(&[
                *n_out as u32,
                *start,
                near.biases.get(idx).copied().flatten().unwrap_or(NO_BIAS),
                ((to.region.start - out.start) / 4) as u32 + near.first as u32,
                to.width as u32,
                matrix.scale.to_bits(),
            ]);
        }
        if x.n_rows == 0 {
            return Ok(());
        }
        // The codebook lies behind the rows of each matrix; that of the first one will do.
        let row_bytes = first.row_bytes;
        let codebook = near.starts.first().zip(near.n_out.first());
        let codebook = codebook.map_or(0, |(start, n)| {
            *start as usize + (n * row_bytes).next_multiple_of(4)
        });
        let n_out: usize = near.n_out.iter().sum();
        let Shape { kernel, grid } = self.shape(first.kernels, x.n_rows, n_out);
        let input = self.input(input, first.kernels)?;
        let tail = [
            first.n_cols as u32,
            x.n_rows as u32,
            input.extra.unwrap_or(codebook as u32),
            ending.flags,
            ending.scale.to_bits(),
            ending.kind,
        ];
        set_tail(&mut params, &tail);
        let bindings = [
            Access::Write(out),
            Access::Read(near.weights),
            Access::Read(input.region),
            near.bias.map_or(Access::None, Access::Read),
            Access::None,
            Access::None,
            Access::None,
            input.words(),
        ];
        let outputs = n_out as u64 * x.n_rows as u64;
        let work = Work::new(
            outputs * first.n_cols as u64,
            (n_out * row_bytes) as u64 + input.bytes + 4 * outputs,
        );
        self.recorder
            .dispatch(kernel, &bindings, &params, grid, work)
    }

    /// Returns what kernels of products read of some rows, which are rounded to bytes where the kernels want it and that
    /// was not done before.
    pub(super) fn input(
        &mut self,
        input: &mut Input<'_>,
        kernels: Kernels,
    ) -> Result<Bound, Error> {
        let x = input.rows;
        let Some(int8) = kernels.int8 else {
            return Ok(Bound {
                region: x.region,
                bytes: x.bytes(),
                extra: None,
            });
        };
        let of_kernel = input
            .rounded
            .iter()
            .find(|(kernel, _)| *kernel == int8.quantize);
        let Some((_, rounded)) = of_kernel else {
            let rounded = Arc::new(self.quantize(x, int8)?);
            input.rounded.push((int8.quantize, rounded));
            return self.input(input, kernels);
        };
        Ok(Bound {
            region: rounded.region,
            bytes: rounded.bytes(),
            extra: Some((x.n_elements() / 4) as u32),
        })
    }

    /// Returns the kernel for products of so many rows, which are not experts', and its workgroups.
    fn shape(&self, kernels: Kernels, n_rows: usize, n_out: usize) -> Shape {
        let tiles = |kernel, rows: usize, outputs: usize| {
            // Workgroups that follow each other read the same weights.
            let grid = [n_rows.div_ceil(rows), n_out.div_ceil(outputs), 1];
            let [_, n_groups, _] = grid;
            (n_groups <= MOST_GROUPS).then(|| Shape {
                kernel,
                grid: grid.map(|n| n as u32),
            })
        };
        let int8 = kernels.int8;
        let on_matrices = int8
            .and_then(|int8| int8.matrices)
            .filter(|matrices| self.uses_matrices && n_rows >= matrices.from)
            .and_then(|matrices| {
                let fits = matrices.by_rows.iter().find(|(rows, _)| n_rows <= *rows);
                let (rows, kernel) = fits.or(matrices.by_rows.last())?;
                tiles(*kernel, *rows, MATRIX_OUTPUTS)
            });
        let in_tiles = || {
            let int8 = int8.filter(|_| n_rows >= self.tiles_from)?;
            tiles(int8.many, TILE_ROWS, TILE_OUTPUTS)
        };
        on_matrices.or_else(in_tiles).unwrap_or_else(|| {
            let [one, several] = kernels.few;
            let (kernel, rows) = if n_rows == 1 {
                (one, 1)
            } else {
                (several, ROWS)
            };
            let [across, down] = groups(n_out.div_ceil(OUTPUTS));
            Shape {
                kernel,
                grid: [across, down, n_rows.div_ceil(rows) as u32],
            }
        })
    }

    /// Rounds rows to signed bytes: words as `quantize.wgsl` says.
    fn quantize(&mut self, x: &Tensor, int8: Int8Kernels) -> Result<Tensor, Error> {
        let rounded = self.tensor(x.n_rows, rounded_width(x.width, int8.block_len))?;
        let n = x.n_elements();
        let [across, down] = groups((n / 4).div_ceil(LANES));
        let work = Work::new(n as u64, x.bytes() + rounded.bytes());
        self.recorder.dispatch(
            int8.quantize,
            &[rounded.write(), x.read()],
            &[n as u32],
            [across, down, 1],
            work,
        )?;
        Ok(rounded)
    }
}

/// Returns the words that rows of so many elements are rounded to, as `quantize.wgsl` says.
pub(super) fn rounded_width(width: usize, block_len: usize) -> usize {
    width / 4 + width / 32 + width / block_len
}

/// A matrix that rows are multiplied with, and what is added.
pub(super) type Factor<'a> = (&'a Matrix, Option<&'a Vector>);

/// Rows that are multiplied, and what they were rounded to so far, by the kernel that rounds.
pub(super) struct Input<'a> {
    rows: &'a Tensor,
    rounded: Vec<(&'static str, Arc<Tensor>)>,
}

impl Input<'_> {
    pub(super) fn new(rows: &Tensor) -> Input<'_> {
        Input {
            rows,
            rounded: rows.rounded.lock().clone().into_iter().collect(),
        }
    }
}

/// What a kernel of products reads of rows.
pub(super) struct Bound {
    pub(super) region: Region,
    pub(super) bytes: u64,
    /// The parameter `extra`, where they are rounded: where their sums begin, in words.
    pub(super) extra: Option<u32>,
}

impl Bound {
    /// Rounded rows are read in words, too.
    pub(super) fn words(&self) -> Access {
        self.extra
            .map_or(Access::None, |_| Access::Read(self.region))
    }
}

/// Which kernel computes products, in how many workgroups.
struct Shape {
    kernel: &'static str,
    grid: [u32; 3],
}

/// How the matrices of one kernel lie.
struct Near {
    /// From the first row of all to the last.
    weights: Region,
    /// Where each begins there, in bytes.
    starts: Vec<u32>,
    /// As `weights`, of what is added.
    bias: Option<Region>,
    /// Where that of each begins there, in words.
    biases: Vec<Option<u32>>,
    /// Outputs of each.
    n_out: Vec<usize>,
    /// Outputs of the first one that are computed elsewhere, before these.
    first: usize,
}

/// What is done with a sum.
struct Ending {
    flags: u32,
    scale: f32,
    kind: u32,
}

/// Sets the parameters of a product that follow those of its matrices.
pub(super) fn set_tail(params: &mut [u32; PARAMS], tail: &[u32]) {
    for (word, value) in params.iter_mut().skip(WORDS * MOST_MATRICES).zip(tail) {
        *word = *value;
    }
}

// As in `product.wgsl`.
const ADD: u32 = 1;
pub(super) const GATED: u32 = 2;
pub(super) const NO_BIAS: u32 = u32::MAX;
/// Of the parameters of a matrix.
pub(super) const WORDS: usize = 6;
/// Matrices that one kernel multiplies with at most.
const MOST_MATRICES: usize = 4;
/// Words of all parameters.
pub(super) const PARAMS: usize = WORDS * MOST_MATRICES + 8;
