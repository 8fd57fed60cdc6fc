//! Tokenizers of models that are not loaded: the vocabulary alone, without weights.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use llmsrv_api::keep_alive::KeepAlive;
use llmsrv_gguf::GgufFile;
use llmsrv_store::StoredModel;
use llmsrv_tokenizer::Tokenizer;
use parking_lot::{Mutex, MutexGuard};

use crate::{error::ApiError, tasks};

/// The few vocabularies that were used last, each for its idle time.
#[derive(Default)]
pub(crate) struct Vocabularies {
    kept: Mutex<Kept>,
    /// Held while one is read, so that requests for the same wait for it.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    /// Most recently used first.
    entries: Vec<Entry>,
    /// A task waits for the next one to be forgotten.
    is_watched: bool,
}

struct Entry {
    digest: String,
    tokenizer: Arc<Tokenizer>,
    idle: Option<Duration>,
    last_used: Instant,
}

impl Vocabularies {
    /// Returns the tokenizer of a model, read from its file when it is not at hand. It is kept for
    /// `keep_alive` or else, at first, for the default.
    pub(crate) async fn get(
        self: &Arc<Self>,
        stored: StoredModel,
        keep_alive: Option<KeepAlive>,
        default: Option<Duration>,
    ) -> Result<Arc<Tokenizer>, ApiError> {
        let digest = stored.entry.digest.hex();
        if let Some(tokenizer) = self.find(&digest, keep_alive) {
            return Ok(tokenizer);
        }
        let _reader = self.reading.lock().await;
        if let Some(tokenizer) = self.find(&digest, keep_alive) {
            return Ok(tokenizer);
        }
        let tokenizer = Arc::new(tasks::blocking(move || read(&stored)).await??);
        self.keep(Entry {
            digest,
            tokenizer: tokenizer.clone(),
            idle: keep_alive.map_or(default, |keep_alive| keep_alive.0),
            last_used: Instant::now(),
        });
        Ok(tokenizer)
    }

    fn find(&self, digest: &str, keep_alive: Option<KeepAlive>) -> Option<Arc<Tokenizer>> {
        let mut kept = self.kept();
        let idx = kept
            .entries
            .iter()
            .position(|entry| entry.digest == digest)?;
        let mut entry = kept.entries.remove(idx);
        let tokenizer = entry.tokenizer.clone();
        entry.last_used = Instant::now();
        entry.idle = keep_alive.map_or(entry.idle, |keep_alive| keep_alive.0);
        if entry.idle != Some(Duration::ZERO) {
            kept.entries.insert(0, entry);
        }
        Some(tokenizer)
    }

    fn keep(self: &Arc<Self>, entry: Entry) {
        if entry.idle == Some(Duration::ZERO) {
            return;
        }
        let mut kept = self.kept();
        kept.entries.insert(0, entry);
        kept.entries.truncate(MOST);
        if !kept.is_watched {
            kept.is_watched = true;
            tokio::spawn(forget(Arc::downgrade(self)));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

/// Forgets vocabularies when their time is over, until none is left that ever ends.
async fn forget(vocabularies: Weak<Vocabularies>) {
    loop {
        let wait = {
            let Some(vocabularies) = vocabularies.upgrade() else {
                return;
            };
            let mut kept = vocabularies.kept();
            kept.entries.retain(|entry| {
                entry
                    .idle
                    .is_none_or(|idle| entry.last_used.elapsed() < idle)
            });
            let left = kept.entries.iter().filter_map(|entry| {
                let idle = entry.idle?;
                Some(idle.saturating_sub(entry.last_used.elapsed()))
            });
            let Some(next) = left.min() else {
                kept.is_watched = false;
                return;
            };
            // Another request may have shortened a time meanwhile.
            next.clamp(Duration::from_millis(10), Duration::from_secs(10))
        };
        tokio::time::sleep(wait).await;
    }
}

fn read(stored: &StoredModel) -> Result<Tokenizer, ApiError> {
    let name = &stored.entry.name;
    let file = GgufFile::open_model(&stored.weights).map_err(|error| match error {
        // The system's text may hold a path.
        llmsrv_gguf::Error::Io(error) => {
            ApiError::internal(format!("cannot read model '{name}': {}", error.kind()))
        }
        error => ApiError::internal(format!("cannot load model '{name}': {error}")),
    })?;
    Tokenizer::from_metadata(file.metadata()).map_err(|error| {
        ApiError::internal(format!("cannot load the vocabulary of '{name}': {error}"))
    })
}

/// Vocabularies that are kept; large ones take tens of megabytes.
const MOST: usize = 3;
