//! Encoders on an NPU, and what the NPU does not compute on the CPU beside it.

use std::{collections::HashSet, sync::Arc};

use llmsrv_engine::{LoadError, LoadOptions, Model, ModelError, ModelSpec, Span, StepPlan};
use llmsrv_gguf::GgufFile;
use tracing::warn;

use crate::{
    encoder, load_file,
    ops::onnx::{LONGEST, padded},
};

/// A model of whose texts the NPU computes those that it can.
pub(crate) struct NpuModel {
    spec: ModelSpec,
    npu: Box<dyn Model>,
    /// The same model on the CPU, once a text needed it.
    cpu: Option<Box<dyn Model>>,
    /// What it is loaded of.
    file: (Arc<GgufFile>, LoadOptions),
    /// Lengths that the NPU refused.
    refused: HashSet<usize>,
}

impl NpuModel {
    /// Takes a model of one text at a time, and compares what the NPU makes of a text with what the CPU does.
    ///
    /// # Errors
    ///
    /// [`LoadError::Unsupported`] if the NPU does not compute it, or wrongly.
    pub(crate) fn new(
        mut npu: Box<dyn Model>,
        file: &Arc<GgufFile>,
        options: &LoadOptions,
    ) -> Result<NpuModel, LoadError> {
        let spec = ModelSpec {
            npu: true,
            ..npu.spec().clone()
        };
        let options = LoadOptions {
            device: "cpu".into(),
            npu: None,
            ..options.clone()
        };
        let file = (file.clone(), options);
        let plan = known_text(&spec);
        let width = spec.embedding.map_or(0, |embedding| embedding.width);
        let mut rows = [(); 2].map(|()| vec![0.0; plan.tokens.len() * width]);
        let [on_npu, on_cpu] = &mut rows;
        let unsupported = |error: ModelError| LoadError::Unsupported(error.to_string());
        npu.embed(&plan, on_npu).map_err(unsupported)?;
        let mut cpu = on_the_cpu(&file)?;
        cpu.embed(&plan, on_cpu).map_err(unsupported)?;
        let error = relative_error(on_npu, on_cpu);
        if is_wrong(error) {
            return Err(LoadError::Unsupported(format!(
                "the NPU computes wrongly: a text whose vectors are known differs by {:.0} %",
                100.0 * error
            )));
        }
        Ok(NpuModel {
            spec,
            npu,
            cpu: None,
            file,
            refused: HashSet::new(),
        })
    }

    /// Computes all rows of one text.
    fn text(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let length = padded(plan.tokens.len(), self.spec.context_length);
        if length <= LONGEST && !self.refused.contains(&length) {
            match self.npu.embed(plan, rows) {
                Ok(()) => return Ok(()),
                Err(error) => warn!(%error, length, "texts of this length are computed on the CPU"),
            }
            self.refused.insert(length);
        } else if length > LONGEST && self.refused.insert(length) {
            warn!(
                length,
                longest = LONGEST,
                "too long for the NPU: computed on the CPU"
            );
        }
        let cpu = match &mut self.cpu {
            Some(cpu) => cpu,
            none => {
                let loaded = on_the_cpu(&self.file);
                let failed = |error: LoadError| ModelError::Compute(error.to_string());
                none.insert(loaded.map_err(failed)?)
            }
        };
        cpu.embed(plan, rows)
    }
}

impl Model for NpuModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn reserve_blocks(&mut self, _: usize) -> Result<(), ModelError> {
        Ok(())
    }

    fn forward(&mut self, _: &StepPlan, _: &mut [f32]) -> Result<(), ModelError> {
        Err(ModelError::NoText)
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let checked = encoder::check(&self.spec, plan, rows);
        checked.map_err(|reason| ModelError::Compute(format!("invalid plan: {reason}")))?;
        let width = self.spec.embedding.map_or(0, |embedding| embedding.width);
        let mut out = rows.chunks_exact_mut(width.max(1));
        let mut wanted = plan.logit_rows.iter().peekable();
        for span in &plan.spans {
            let text = one_text(plan.tokens.get(span.rows.clone()).unwrap_or_default());
            let mut computed = vec![0.0; span.rows.len() * width];
            self.text(&text, &mut computed)?;
            while let Some(row) = wanted.next_if(|row| (**row as usize) < span.rows.end) {
                let start = (*row as usize - span.rows.start) * width;
                if let (Some(to), Some(from)) = (out.next(), computed.get(start..start + width)) {
                    to.copy_from_slice(from);
                }
            }
        }
        Ok(())
    }
}

fn on_the_cpu((file, options): &(Arc<GgufFile>, LoadOptions)) -> Result<Box<dyn Model>, LoadError> {
    load_file(file.clone(), options, None).map(|loaded| loaded.model)
}

/// Returns the plan of one text, of which all rows are wanted: so graphs of one length are all the same.
fn one_text(tokens: &[u32]) -> StepPlan {
    let n_rows = tokens.len() as u32;
    StepPlan {
        tokens: tokens.to_vec(),
        positions: (0..n_rows).collect(),
        ends: vec![n_rows; tokens.len()],
        spans: vec![Span {
            rows: 0..tokens.len(),
            start: 0,
            blocks: Vec::new(),
            tail: None,
            state: None,
        }],
        logit_rows: (0..n_rows).collect(),
        ..StepPlan::default()
    }
}

/// Returns a text of tokens from all over the vocabulary.
fn known_text(spec: &ModelSpec) -> StepPlan {
    let n_tokens = KNOWN_TOKENS.min(spec.context_length);
    let step = spec.vocab_size / n_tokens.max(1);
    let tokens: Vec<u32> = (0..n_tokens).map(|n| (n * step) as u32).collect();
    one_text(&tokens)
}

/// Returns the length of the difference, as a part of that of what is right.
fn relative_error(found: &[f32], right: &[f32]) -> f32 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>();
    let difference = square(&mut found.iter().zip(right).map(|(a, b)| a - b));
    (difference / square(&mut right.iter().copied()).max(f32::MIN_POSITIVE)).sqrt()
}

fn is_wrong(error: f32) -> bool {
    error.is_nan() || error > LARGEST_ERROR
}

/// Tokens of the text that is computed when a model is loaded.
const KNOWN_TOKENS: usize = 24;
/// NPUs compute in f16 or bf16, whose errors stay far below this.
const LARGEST_ERROR: f32 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_wrong() {
        let error = relative_error(&[f32::NAN, 1.0], &[1.0, 1.0]);
        assert!(is_wrong(error));
        assert!(is_wrong(relative_error(&[0.0, 0.0], &[1.0, 1.0])));
        assert!(!is_wrong(relative_error(&[0.99, 1.0], &[1.0, 1.0])));
        assert_eq!(relative_error(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
    }
}
