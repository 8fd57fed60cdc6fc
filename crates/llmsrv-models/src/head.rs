//! What a model makes of its last rows in place of logits: the scores of a classifier, or vectors of
//! another space.

use llmsrv_engine::ModelError;

use crate::{
    arch::Activation,
    errors::device,
    linear::{Linear, linear},
    ops::{Holder, Ops},
    source::{FileMatrix, Result, Source, invalid},
};

/// Products of a row, one after the other.
pub(crate) struct Head<O: Holder> {
    steps: Vec<(Linear<O>, Then<O>)>,
    /// Elements of what it gives for a row.
    pub n_outputs: usize,
    /// The one output is the first of two scores less the second one, times this.
    difference: Option<f32>,
}

/// What is done with a product.
enum Then<O: Holder> {
    Nothing,
    Tanh,
    /// GELU, and a layer norm with this weight, to whose variance this is added.
    GeluAndNorm(Option<O::Vector>, f32),
}

impl<O: Holder> Head<O> {
    /// Loads a classifier, `output(tanh(dense(x)))`, of which a file may have one part or both; `None`
    /// where it has neither.
    pub(crate) fn classifier(
        source: &Source,
        width: usize,
        ops: &mut O,
    ) -> Result<Option<Head<O>>> {
        let mut head = Head {
            steps: Vec::new(),
            n_outputs: width,
            difference: None,
        };
        for (name, then) in [("cls", Then::Tanh), ("cls.output", Then::Nothing)] {
            let full = format!("{name}.weight");
            if source.has(&full) {
                // A matrix of one row may be stored as a vector.
                let n_rows = source.n_rows(&full).unwrap_or(1);
                head.push(source, (name, n_rows), then, ops)?;
            }
        }
        Ok(Some(head).filter(|head| !head.steps.is_empty()))
    }

    /// As [`Head::classifier`], `output(norm(gelu(dense(x))))`, of which a file may lack all but the output.
    pub(crate) fn normed_classifier(
        source: &Source,
        (width, eps): (usize, f32),
        ops: &mut O,
    ) -> Result<Head<O>> {
        let mut head = Head {
            steps: Vec::new(),
            n_outputs: width,
            difference: None,
        };
        if source.has("cls.weight") {
            let norm = source.optional_vector("cls.norm.weight", width)?;
            let norm = norm.map(|weight| ops.vector(weight)).transpose();
            let then = Then::GeluAndNorm(norm.map_err(device)?, eps);
            head.push(source, ("cls", width), then, ops)?;
        }
        let output = "cls.output";
        let n_rows = source.n_rows(&format!("{output}.weight")).unwrap_or(1);
        head.push(source, (output, n_rows), Then::Nothing, ops)?;
        Ok(head)
    }

    /// Loads what judges pairs of texts by the logits of "yes" and "no": rows of a matrix of their own, or
    /// those of `output`. The one score is their difference, whose sigmoid is the probability of "yes".
    pub(crate) fn judge(source: &Source, output: &FileMatrix, ops: &mut O) -> Result<Head<O>> {
        if let Some(mut head) = Head::classifier(source, output.n_cols, ops)? {
            if head.n_outputs == 2 {
                let labels = source.labels();
                let is_no = labels.first().is_some_and(|label| label == "no");
                head.n_outputs = 1;
                head.difference = Some(if is_no { -1.0 } else { 1.0 });
            }
            return Ok(head);
        }
        let rows = ["yes", "no"].map(|text| source.token(text).filter(|id| *id < output.n_rows));
        let [Some(yes), Some(no)] = rows else {
            return Err(invalid("tensor cls.output.weight is missing".into()));
        };
        let matrix = output.stretches(&[yes..yes + 1, no..no + 1]);
        let linear = Linear {
            matrix: ops.matrix(matrix).map_err(device)?,
            bias: None,
            low_rank: Vec::new(),
        };
        Ok(Head {
            steps: vec![(linear, Then::Nothing)],
            n_outputs: 1,
            difference: Some(1.0),
        })
    }

    /// Loads the projections of a sentence encoder; `None` where a file has none. They are linear, so it
    /// makes no difference that they come before the mean of the rows, not after it.
    pub(crate) fn projections(
        source: &Source,
        width: usize,
        ops: &mut O,
    ) -> Result<Option<Head<O>>> {
        let mut head = Head {
            steps: Vec::new(),
            n_outputs: width,
            difference: None,
        };
        for name in ["dense_2", "dense_3"] {
            if let Some(n_rows) = source.n_rows(&format!("{name}.weight")) {
                head.push(source, (name, n_rows), Then::Nothing, ops)?;
            }
        }
        Ok(Some(head).filter(|head| !head.steps.is_empty()))
    }

    /// Loads `name.weight` and, if there is one, `name.bias`.
    fn push(
        &mut self,
        source: &Source,
        (name, n_rows): (&str, usize),
        then: Then<O>,
        ops: &mut O,
    ) -> Result<()> {
        let matrix = source.matrix(&format!("{name}.weight"), n_rows, self.n_outputs)?;
        let bias = source.optional_vector(&format!("{name}.bias"), n_rows)?;
        let bias = bias.map(|bias| ops.vector(bias)).transpose();
        let linear = Linear {
            matrix: ops.matrix(matrix).map_err(device)?,
            bias: bias.map_err(device)?,
            low_rank: Vec::new(),
        };
        self.steps.push((linear, then));
        self.n_outputs = n_rows;
        Ok(())
    }
}

impl<O: Ops> Head<O> {
    /// Writes what it makes of the rows of `x` to `out`, `[rows, n_outputs]`.
    pub(crate) fn read(
        &self,
        ops: &mut O,
        x: O::Tensor,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let mut x = x;
        for (weights, then) in &self.steps {
            x = linear(ops, &x, weights)?;
            x = match then {
                Then::Nothing => x,
                Then::Tanh => ops.tanh(x)?,
                Then::GeluAndNorm(norm, eps) => {
                    let active = ops.activate(x, Activation::Gelu)?;
                    match norm {
                        None => active,
                        Some(weight) => ops.layer_norm(&active, weight, None, *eps)?,
                    }
                }
            };
        }
        let Some(sign) = self.difference else {
            return ops.read(&x, out);
        };
        let mut pairs = vec![0.0; 2 * out.len()];
        ops.read(&x, &mut pairs)?;
        for (out, pair) in out.iter_mut().zip(pairs.chunks_exact(2)) {
            if let [first, second] = pair {
                *out = sign * (first - second);
            }
        }
        Ok(())
    }
}
