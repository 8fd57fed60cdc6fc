//! LoRA adapters: what they add to which matrices, <https://arxiv.org/abs/2106.09685>.
//!
//! An adapter is not merged into the weights: its two thin products run beside those of the weights.
//! So quantised weights stay as they are, are still mapped from the file, and are shared by all models
//! that are made of them; the products cost little, since their rank is small.

use std::{path::Path, sync::Arc};

use llmsrv_engine::LoadError;
use llmsrv_gguf::GgufFile;

use crate::source::{FileMatrix, Result, Source, invalid};

/// An adapter file for models of one architecture.
pub(crate) struct Adapter {
    source: Source,
    scale: f32,
    /// Divided by the rank it scales the products; `None` = they are not scaled.
    alpha: Option<f32>,
}

/// What an adapter adds to a matrix: `scale * up * down`.
pub(crate) struct Factors {
    /// From the input to few numbers.
    pub(crate) down: FileMatrix,
    /// From those to the output.
    pub(crate) up: FileMatrix,
    /// Factor of the product of both.
    pub(crate) scale: f32,
}

/// What an adapter adds to rows that are looked up: `scale * up * row`.
pub(crate) struct RowFactors {
    /// One short row for each row of the table.
    pub(crate) rows: FileMatrix,
    /// From those to the rows of the table.
    pub(crate) up: FileMatrix,
    /// Factor of the product.
    pub(crate) scale: f32,
}

impl Adapter {
    /// Opens an adapter that is to be applied with strength `scale` to a model of `architecture`.
    pub(crate) fn open(path: &Path, scale: f32, architecture: &str) -> Result<Adapter> {
        let file = GgufFile::open(path).map_err(crate::unreadable)?;
        let metadata = file.metadata();
        for (key, expected) in [("general.type", "adapter"), ("adapter.type", "lora")] {
            if metadata.str(key) != Some(expected) {
                return Err(invalid(format!("{key} of the adapter is not {expected}")));
            }
        }
        if metadata.architecture() != Some(architecture) {
            let message = format!("the adapter is not for {architecture} models");
            return Err(LoadError::Unsupported(message));
        }
        if metadata.get("adapter.alora.invocation_tokens").is_some() {
            let message = "adapters that start to work at a certain token".to_owned();
            return Err(LoadError::Unsupported(message));
        }
        let alpha = metadata.f32("adapter.lora.alpha");
        if alpha.is_some_and(|alpha| !alpha.is_finite()) || !scale.is_finite() {
            return Err(invalid("the adapter has no finite strength".into()));
        }
        Ok(Adapter {
            alpha: alpha.filter(|alpha| *alpha != 0.0),
            source: Source::new(Arc::new(file), architecture),
            scale,
        })
    }

    /// Returns what the adapter adds to the matrix `name`, if it does.
    pub(crate) fn factors(
        &self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Option<Factors>> {
        let (down, up) = (format!("{name}.lora_a"), format!("{name}.lora_b"));
        if !self.source.has(&down) && !self.source.has(&up) {
            return Ok(None);
        }
        // A matrix of one row may be stored as a vector.
        let rank = self.source.n_rows(&down).unwrap_or(1);
        Ok(Some(Factors {
            down: self.source.matrix(&down, rank, n_cols)?,
            up: self.source.matrix(&up, n_rows, rank)?,
            scale: self.scale_of(rank),
        }))
    }

    /// Returns what the adapter adds to the rows of the embedding, a table of `n_rows` rows, if it does. Adapters
    /// hold both factors of that the other way round than of a matrix.
    pub(crate) fn embedding(&self, n_rows: usize, n_cols: usize) -> Result<Option<RowFactors>> {
        let [rows, up] = ["a", "b"].map(|part| format!("token_embd.weight.lora_{part}"));
        if !self.source.has(&rows) && !self.source.has(&up) {
            return Ok(None);
        }
        let rank = self.source.row_length(&rows).unwrap_or(1);
        Ok(Some(RowFactors {
            rows: self.source.table(&rows, n_rows, rank)?,
            up: self.source.matrix(&up, n_cols, rank)?,
            scale: self.scale_of(rank),
        }))
    }

    /// As [`Adapter::embedding`], of another table, whose factors lie as those of a matrix.
    pub(crate) fn table(
        &self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Option<RowFactors>> {
        let Some(factors) = self.factors(name, n_rows, n_cols)? else {
            return Ok(None);
        };
        Ok(Some(RowFactors {
            rows: factors.up,
            up: factors.down.transposed()?,
            scale: factors.scale,
        }))
    }

    fn scale_of(&self, rank: usize) -> f32 {
        self.scale * self.alpha.map_or(1.0, |alpha| alpha / rank as f32)
    }

    /// Refuses an adapter that changes something the model does not have.
    pub(crate) fn check_all_used(&self) -> Result<()> {
        self.source.check_all_used()
    }
}

/// Returns the size of a model of `bytes` with its adapters.
pub(crate) fn with_adapters(bytes: u64, adapters: &[Adapter]) -> u64 {
    let sizes = adapters.iter().map(|adapter| adapter.source.tensor_bytes());
    sizes.fold(bytes, u64::saturating_add)
}
