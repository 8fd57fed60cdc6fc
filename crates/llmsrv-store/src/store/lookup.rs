//! Finding models: which manifests there are, whether everything they name is there, and what
//! `default` means. The callers hold the lock of the store.

use std::{collections::HashSet, fs, io, path::PathBuf, time::SystemTime};

use crate::{
    Digest, Error, Layer, LayerKind, Manifest, ModelConfig, ModelEntry, ModelName, Store, default,
    layout::Layout,
    manifest::{MAX_BYTES, read_limited},
    model::MAX_TEXT_BYTES,
};

/// A model with all its blobs in place.
pub(crate) struct Whole {
    pub(crate) entry: ModelEntry,
    pub(crate) manifest: Manifest,
    /// The manifest as it is on disk.
    pub(crate) bytes: Vec<u8>,
}

impl Store {
    /// All whole models, newest first, without resolving `default`. A name in the first store
    /// hides the same name in the second.
    pub(crate) fn entries(&self) -> Vec<ModelEntry> {
        let mut entries: Vec<ModelEntry> = Vec::new();
        for layout in self.layouts() {
            let hiding: HashSet<ModelName> =
                entries.iter().map(|entry| entry.name.clone()).collect();
            let (files, errors) = layout.manifest_files();
            for error in &errors {
                self.warn(error);
            }
            for name in files.into_iter().filter_map(|file| file.name) {
                match self.whole(layout, &name) {
                    Ok(Some(whole)) if !hiding.contains(&name) => entries.push(whole.entry),
                    Ok(_) => {}
                    Err(error) => self.warn(&error),
                }
            }
        }
        entries.sort_by(|a, b| {
            b.modified
                .cmp(&a.modified)
                .then_with(|| a.name.cmp(&b.name))
        });
        entries
    }

    pub(crate) fn resolve_default<'a>(&self, entries: &'a [ModelEntry]) -> Option<&'a ModelEntry> {
        default::resolve(
            entries,
            self.options.default_model.as_ref(),
            self.choice().as_ref(),
            self.marker().as_ref(),
        )
    }

    pub(crate) fn whole_named(&self, name: &ModelName) -> Result<Whole, Error> {
        if !default::is_default(name) {
            return self.whole_spelled(name);
        }
        let not_found = || Error::NotFound {
            name: Box::new(name.clone()),
        };
        let entry = standing_for(
            self.resolve_default(&self.entries())
                .ok_or_else(not_found)?,
        );
        let whole = self.whole_spelled(entry.stands_for.as_ref().unwrap_or(&entry.name))?;
        Ok(Whole { entry, ..whole })
    }

    /// Finds the manifest of this very name; the first store in which it is whole counts.
    pub(crate) fn whole_spelled(&self, name: &ModelName) -> Result<Whole, Error> {
        let mut problem = None;
        for layout in self.layouts() {
            let (spelled, exists) = layout.spelling(name);
            if exists {
                match self.whole(layout, &spelled) {
                    Ok(Some(whole)) => return Ok(whole),
                    Ok(None) => {}
                    Err(error) => problem = problem.or(Some(error)),
                }
            }
        }
        Err(problem.unwrap_or_else(|| Error::NotFound {
            name: Box::new(name.clone()),
        }))
    }

    /// Reads a manifest and checks that everything it names is there. `None` if it has vanished.
    pub(crate) fn whole(&self, layout: &Layout, name: &ModelName) -> Result<Option<Whole>, Error> {
        let Some((bytes, modified)) = read_manifest(layout, name)? else {
            return Ok(None);
        };
        let name = || Box::new(name.clone());
        let damaged = |reason| Error::Damaged {
            name: name(),
            reason,
        };
        let manifest = Manifest::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
        self.check_blobs(&manifest)
            .map_err(|error| damaged(error.to_string()))?;
        let mut config = match &manifest.config {
            Some(layer) => ModelConfig::parse(&self.read_blob(layer)?),
            None => ModelConfig::default(),
        };
        let Some(weights) = manifest.layers_of(LayerKind::Model).next() else {
            return Err(match config.remote_host {
                Some(_) => Error::NotFound { name: name() },
                None => Error::Unsupported {
                    name: name(),
                    reason: "it has no GGUF weights".into(),
                },
            });
        };
        self.complete(&mut config, weights);
        let entry = ModelEntry {
            name: *name(),
            stands_for: None,
            digest: Digest::of(&bytes),
            size: manifest.size(),
            modified,
            read_only: layout.root() != self.primary.root(),
            config,
        };
        Ok(Some(Whole {
            entry,
            manifest,
            bytes,
        }))
    }

    /// Fills in what only the header of the weights says.
    pub(crate) fn complete(&self, config: &mut ModelConfig, weights: &Layer) {
        if !config.is_incomplete() {
            return;
        }
        let path = self.blob_path(&weights.digest);
        if let Some(facts) = self.facts.of(&path, self.options.read_facts) {
            config.complete(&facts);
        }
    }

    pub(crate) fn check_blobs(&self, manifest: &Manifest) -> Result<(), Error> {
        for layer in manifest.blobs() {
            if self
                .find_blob(&layer.digest)
                .is_none_or(|(_, size)| size != layer.size)
            {
                return Err(Error::MissingBlob {
                    digest: layer.digest,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn find_blob(&self, digest: &Digest) -> Option<(PathBuf, u64)> {
        self.layouts().find_map(|layout| layout.find_blob(digest))
    }

    pub(crate) fn read_blob(&self, layer: &Layer) -> Result<Vec<u8>, Error> {
        read_limited(&self.blob_path(&layer.digest), MAX_TEXT_BYTES)
            .map_err(|error| Error::io("read", format!("blob {}", layer.digest), error))
    }

    fn layouts(&self) -> impl Iterator<Item = &Layout> {
        [&self.primary].into_iter().chain(&self.fallback)
    }

    fn warn(&self, error: &Error) {
        let mut warned = self.warned.lock();
        if warned.insert(error.to_string()) {
            tracing::warn!(%error, "a model is not listed");
        }
    }
}

/// Reads the bytes of a manifest and its time; `None` if it is not there.
pub(crate) fn read_manifest(
    layout: &Layout,
    name: &ModelName,
) -> Result<Option<(Vec<u8>, SystemTime)>, Error> {
    let path = layout.manifest(name);
    let read = || {
        let bytes = read_limited(&path, MAX_BYTES)?;
        Ok((bytes, fs::metadata(&path)?.modified()?))
    };
    match read() {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(layout.error("read", &path, error)),
    }
}

/// Makes the entry of `default` out of that of the model it stands for.
pub(crate) fn standing_for(meant: &ModelEntry) -> ModelEntry {
    if default::is_default(&meant.name) {
        return meant.clone();
    }
    let name = default::name();
    ModelEntry {
        name,
        stands_for: Some(meant.name.clone()),
        ..meant.clone()
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
