//! Facts in the header of GGUF weights, remembered by the digest of the weights.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use llmsrv_gguf::{GgufFile, Header};

use crate::Digest;

/// What the header of a GGUF file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderFacts {
    pub(crate) family: String,
    pub(crate) parameter_count: u64,
    pub(crate) quantization: String,
    pub(crate) context_length: Option<u64>,
    pub(crate) embedding_length: Option<u64>,
    /// Has a pooling: gives vectors, not text.
    pub(crate) pools: bool,
}

impl HeaderFacts {
    /// Reads the header of a file.
    pub(crate) fn read(path: &Path) -> Result<HeaderFacts, llmsrv_gguf::Error> {
        Ok(HeaderFacts::of(GgufFile::open(path)?.header()))
    }

    /// Reads the header of a file in memory.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<HeaderFacts, llmsrv_gguf::Error> {
        Ok(HeaderFacts::of(&Header::parse(bytes, bytes.len() as u64)?))
    }

    pub(crate) fn of(header: &Header) -> HeaderFacts {
        let metadata = &header.metadata;
        let family = metadata.architecture().unwrap_or_default();
        let number = |key: &str| metadata.u64(&format!("{family}.{key}"));
        HeaderFacts {
            parameter_count: header.parameter_count(),
            quantization: header.file_type_name(),
            context_length: number("context_length"),
            embedding_length: number("embedding_length"),
            pools: number("pooling_type").is_some(),
            family: family.to_owned(),
        }
    }
}

/// Header facts by digest of the weights: they never change, and reading a large vocabulary takes
/// some milliseconds.
#[derive(Debug, Default)]
pub(crate) struct FactsCache(Mutex<HashMap<Digest, Arc<HeaderFacts>>>);

impl FactsCache {
    /// Returns what the header of weights says; nothing where it cannot be read.
    pub(crate) fn of(&self, digest: &Digest, path: &Path) -> Option<Arc<HeaderFacts>> {
        let cached = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(facts) = cached().get(digest) {
            return Some(facts.clone());
        }
        let read = HeaderFacts::read(path).inspect_err(
            |error| tracing::debug!(%digest, %error, "cannot read the header of a model"),
        );
        let facts = Arc::new(read.ok()?);
        cached().insert(*digest, facts.clone());
        Some(facts)
    }
}
