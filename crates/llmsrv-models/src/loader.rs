//! Brings the tensors of a file to a device: cut, and with what adapters add to them.

use std::{ops::Range, slice::from_ref};

use crate::{
    adapter::Adapter,
    errors::device,
    linear::{Linear, LowRank},
    ops::Holder,
    source::{FileMatrix, Result, Source, invalid},
};

/// Makes the weights of a model, part by part, as its configuration says.
pub(crate) struct Loader<'a, O: Holder, C> {
    pub(crate) source: &'a Source,
    pub(crate) adapters: &'a [Adapter],
    pub(crate) config: &'a C,
    pub(crate) ops: &'a mut O,
}

impl<O: Holder, C> Loader<'_, O, C> {
    /// Loads `name.weight` and, if there is one, `name.bias`.
    pub(crate) fn linear(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<Linear<O>> {
        let matrix = self
            .source
            .matrix(&format!("{name}.weight"), n_rows, n_cols)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        Ok(Linear {
            matrix: self.upload(matrix)?,
            bias: self.bias(bias)?,
            low_rank: self.low_rank(
                &format!("{name}.weight"),
                n_rows,
                n_cols,
                from_ref(&(0..n_rows)),
            )?,
        })
    }

    /// Loads one tensor as matrices that lie one above the other.
    pub(crate) fn stacked<const N: usize>(
        &mut self,
        name: &str,
        heights: [usize; N],
        n_cols: usize,
    ) -> Result<[Linear<O>; N]> {
        let n_rows = heights.iter().sum();
        let mut start = 0;
        let parts = heights.map(|height| {
            let rows = start..start + height;
            start = rows.end;
            [rows]
        });
        let parts = parts.each_ref().map(|part| &part[..]);
        self.cut(name, n_rows, n_cols, parts)
    }

    /// Loads one tensor as matrices, each of which is made of some stretches of its rows.
    pub(crate) fn cut<const N: usize>(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        parts: [&[Range<usize>]; N],
    ) -> Result<[Linear<O>; N]> {
        let full = format!("{name}.weight");
        let all = self.source.matrix(&full, n_rows, n_cols)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        let parts = parts.map(|stretches| {
            let bias = bias.as_ref().map(|bias| {
                let rows = stretches.iter().filter_map(|rows| bias.get(rows.clone()));
                rows.flatten().copied().collect()
            });
            Ok(Linear {
                matrix: self.upload(all.stretches(stretches))?,
                bias: self.bias(bias)?,
                low_rank: self.low_rank(&full, n_rows, n_cols, stretches)?,
            })
        });
        let parts: Vec<Linear<O>> = parts.into_iter().collect::<Result<_>>()?;
        parts
            .try_into()
            .map_err(|_| invalid(format!("tensor {full} cannot be cut")))
    }

    /// Loads what adapters add to some rows of the matrix `name`.
    pub(crate) fn low_rank(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        rows: &[Range<usize>],
    ) -> Result<Vec<LowRank<O>>> {
        let mut parts = Vec::new();
        for adapter in self.adapters {
            if let Some(found) = adapter.factors(name, n_rows, n_cols)? {
                parts.push(LowRank {
                    down: self.upload(found.down)?,
                    up: self.upload(found.up.stretches(rows))?,
                    scale: found.scale,
                });
            }
        }
        Ok(parts)
    }

    pub(crate) fn bias(&mut self, values: Option<Vec<f32>>) -> Result<Option<O::Vector>> {
        let bias = values.map(|values| self.ops.vector(values));
        bias.transpose().map_err(device)
    }

    pub(crate) fn upload(&mut self, matrix: FileMatrix) -> Result<O::Matrix> {
        self.ops.matrix(matrix).map_err(device)
    }
}
