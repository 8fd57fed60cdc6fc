//! The facts about weights, remembered by the file they are in.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use llmsrv_gguf::ModelFacts;
use parking_lot::Mutex;

/// Reads the facts about a model from its file.
pub type ReadFacts = fn(&Path) -> Result<ModelFacts, llmsrv_gguf::Error>;

/// Facts by the file of the weights: the name of a blob is its content, so they never change, and reading a large
/// vocabulary takes some milliseconds.
#[derive(Debug, Default)]
pub(crate) struct FactsCache(Mutex<HashMap<PathBuf, Arc<ModelFacts>>>);

impl FactsCache {
    /// Returns what the header of weights says; nothing where it cannot be read.
    pub(crate) fn of(&self, path: &Path, read: ReadFacts) -> Option<Arc<ModelFacts>> {
        let cached = || self.0.lock();
        if let Some(facts) = cached().get(path) {
            return Some(facts.clone());
        }
        let facts = read(path).inspect_err(|error| {
            tracing::debug!(path = %path.display(), %error, "cannot read the header of a model");
        });
        let facts = Arc::new(facts.ok()?);
        let mut cached = cached();
        if cached.len() >= MAX_FILES {
            cached.clear();
        }
        cached.insert(path.to_owned(), facts.clone());
        Some(facts)
    }
}

/// Templates are among the facts, so there is a bound; more models than that are read again now and then.
const MAX_FILES: usize = 1000;
