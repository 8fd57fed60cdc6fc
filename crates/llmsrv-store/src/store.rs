//! The store: finding, reading, writing and removing models.

use std::{
    collections::HashSet,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use crate::{
    BlobWriter, Digest, Error, Layer, LayerKind, Manifest, ModelConfig, ModelEntry, ModelName,
    StoredModel, blobs, default, gc, info,
    layout::{Layout, ignore_absent},
    lock::{self, Guard},
    manifest::{MAX_BYTES, read_limited},
    model::MAX_TEXT_BYTES,
};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Root of a second store, read after the first and never written: one that another program
    /// keeps. It need not exist.
    pub fallback: Option<PathBuf>,
    /// Remove blobs that nobody needs: all when the store is opened, those of the old model when a
    /// model is replaced. Removing a model always removes its blobs.
    pub prune: bool,
    /// The model that the name `default` stands for; `None` = the user's newest, else the
    /// embedded one.
    pub default_model: Option<ModelName>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            fallback: None,
            prune: true,
            default_model: None,
        }
    }
}

/// A store of models on disk, shared with other threads and processes.
#[derive(Debug)]
pub struct Store {
    pub(crate) primary: Layout,
    fallback: Option<Layout>,
    options: OpenOptions,
    facts: info::FactsCache,
    /// Warnings given already: a list is asked for every few seconds.
    warned: Mutex<HashSet<String>>,
}

/// A model with all its blobs in place.
pub(crate) struct Whole {
    pub(crate) entry: ModelEntry,
    manifest: Manifest,
    bytes: Vec<u8>,
}

impl Store {
    /// Opens the store at `root`, making it if need be. A store that may only be read is usable
    /// for reading.
    pub fn open(root: &Path, options: OpenOptions) -> Result<Store, Error> {
        let primary = Layout::new(root);
        let made = [primary.manifests(), primary.blobs()]
            .iter()
            .try_for_each(fs::create_dir_all);
        match made {
            Err(error) if !(is_read_only(&error) && root.is_dir()) => {
                return Err(Error::Open {
                    root: root.to_owned(),
                    source: error,
                });
            }
            _ => {}
        }
        tidy(&primary, options.prune);
        let fallback = options
            .fallback
            .as_deref()
            .filter(|path| !is_same(path, root))
            .map(Layout::new);
        Ok(Store {
            primary,
            fallback,
            options,
            facts: info::FactsCache::default(),
            warned: Mutex::default(),
        })
    }

    /// Lists all models that are whole, newest first; among them `default`, if it stands for one.
    /// Models that lack a blob or cannot run here are left out with a warning.
    pub fn list(&self) -> Result<Vec<ModelEntry>, Error> {
        let _guard = lock::shared(&self.primary)?;
        let mut entries = self.entries();
        let default = self.resolve_default(&entries).map(standing_for);
        entries.retain(|entry| !default::is_default(&entry.name));
        if let Some(default) = default {
            let place = entries.partition_point(|entry| entry.modified > default.modified);
            entries.insert(place, default);
        }
        Ok(entries)
    }

    /// Finds a model by name, in any letter case.
    pub fn find(&self, name: &ModelName) -> Result<ModelEntry, Error> {
        let _guard = lock::shared(&self.primary)?;
        Ok(self.whole_named(name)?.entry)
    }

    /// Finds a model and reads its parts, the weights apart.
    pub fn model(&self, name: &ModelName) -> Result<StoredModel, Error> {
        let _guard = lock::shared(&self.primary)?;
        let whole = self.whole_named(name)?;
        StoredModel::read(whole.entry, whole.manifest, &|layer| {
            Some(self.find_blob(&layer.digest)?.0)
        })
    }

    /// Returns the bytes of a model's manifest, as they were received.
    pub fn manifest_bytes(&self, name: &ModelName) -> Result<Vec<u8>, Error> {
        let _guard = lock::shared(&self.primary)?;
        Ok(self.whole_named(name)?.bytes)
    }

    /// Gives the model `source` the additional name `destination`, replacing what has that name.
    pub fn copy(&self, source: &ModelName, destination: &ModelName) -> Result<(), Error> {
        let guard = lock::exclusive(&self.primary)?;
        let whole = self.whole_named(source)?;
        let meant = whole.entry.stands_for.as_ref().unwrap_or(&whole.entry.name);
        if source != destination && meant != destination {
            self.write_manifest(&guard, destination, &whole.bytes)?;
        }
        Ok(())
    }

    /// Removes a model, the folders it leaves empty, and the blobs that no other model needs. A
    /// model that is not whole can be removed too.
    pub fn delete(&self, name: &ModelName) -> Result<(), Error> {
        let guard = lock::exclusive(&self.primary)?;
        let (spelled, exists) = self.primary.spelling(name);
        if exists {
            return self.remove_manifest(&guard, &spelled);
        }
        let name = Box::new(name.clone());
        if self
            .fallback
            .as_ref()
            .is_some_and(|layout| layout.spelling(&name).1)
        {
            return Err(Error::ReadOnly { name });
        }
        if default::is_default(&name)
            && let Ok(Whole {
                entry:
                    ModelEntry {
                        stands_for: Some(target),
                        ..
                    },
                ..
            }) = self.whole_named(&name)
        {
            return Err(Error::Alias {
                name,
                target: Box::new(target),
            });
        }
        Err(Error::NotFound { name })
    }

    /// Stores all of `reader` as the blob `expected` and returns its size in bytes. With other
    /// content nothing is stored.
    pub fn put_blob(&self, expected: &Digest, reader: &mut dyn Read) -> Result<u64, Error> {
        let mut writer = self.blob_writer()?;
        blobs::copy(reader, &mut writer)?;
        Ok(writer.commit(Some(expected))?.1)
    }

    /// Stores all of `reader` as a blob and returns the layer that names it.
    pub fn put_layer(&self, kind: LayerKind, reader: &mut dyn Read) -> Result<Layer, Error> {
        let mut writer = self.blob_writer()?;
        blobs::copy(reader, &mut writer)?;
        let (digest, size) = writer.commit(None)?;
        Ok(Layer::new(kind, digest, size))
    }

    /// Begins a blob whose bytes come piece by piece.
    pub fn blob_writer(&self) -> Result<BlobWriter, Error> {
        BlobWriter::new(&self.primary)
    }

    /// Returns the size of a blob in bytes if it is there, and keeps it for another hour even if
    /// no model names it: the caller is about to.
    pub fn blob_size(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        let _guard = lock::shared(&self.primary)?;
        let Some((path, size)) = self.find_blob(digest) else {
            return Ok(None);
        };
        if path.starts_with(self.primary.root()) {
            blobs::touch(&path);
        }
        Ok(Some(size))
    }

    /// Returns where a blob is, or would be if it is not there.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.find_blob(digest)
            .map_or_else(|| self.primary.blob(digest), |(path, _)| path)
    }

    /// Writes the manifest of a model, byte for byte, and returns its digest. All blobs it names
    /// must be there with the sizes it says. What had the name before is replaced.
    pub fn put_manifest(&self, name: &ModelName, bytes: &[u8]) -> Result<Digest, Error> {
        let guard = lock::exclusive(&self.primary)?;
        self.write_manifest(&guard, name, bytes)
    }

    /// Returns the root of the store.
    pub fn root(&self) -> &Path {
        self.primary.root()
    }
}

/// The work behind; the callers hold the lock.
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
            self.marker().as_ref(),
        )
    }

    fn whole_named(&self, name: &ModelName) -> Result<Whole, Error> {
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
    fn whole_spelled(&self, name: &ModelName) -> Result<Whole, Error> {
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
        self.facts
            .complete(&mut config, weights, &self.blob_path(&weights.digest));
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

    fn check_blobs(&self, manifest: &Manifest) -> Result<(), Error> {
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

    pub(crate) fn write_manifest(
        &self,
        guard: &Guard,
        name: &ModelName,
        bytes: &[u8],
    ) -> Result<Digest, Error> {
        let manifest = Manifest::parse(bytes)?;
        self.check_blobs(&manifest)?;
        self.adopt_blobs(&manifest);
        let (name, _) = self.primary.spelling(name);
        let old = read_manifest(&self.primary, &name).ok().flatten();
        blobs::write_whole(
            &self.primary,
            &self.primary.manifests(),
            &self.primary.manifest(&name),
            bytes,
        )?;
        if self.options.prune {
            self.remove_blobs_of(guard, old)?;
        }
        Ok(Digest::of(bytes))
    }

    pub(crate) fn remove_manifest(&self, guard: &Guard, name: &ModelName) -> Result<(), Error> {
        let old = read_manifest(&self.primary, name).ok().flatten();
        let path = self.primary.manifest(name);
        ignore_absent(fs::remove_file(&path))
            .map_err(|error| self.primary.error("remove", &path, error))?;
        let top = self.primary.manifests();
        for folder in path.ancestors().skip(1) {
            // Fails, as it should, at the first folder that holds something else.
            if folder == top || fs::remove_dir(folder).is_err() {
                blobs::sync_folder(&self.primary, folder)?;
                break;
            }
        }
        self.remove_blobs_of(guard, old)
    }

    fn remove_blobs_of(
        &self,
        guard: &Guard,
        old: Option<(Vec<u8>, SystemTime)>,
    ) -> Result<(), Error> {
        let Some(Ok(old)) = old.map(|(bytes, _)| Manifest::parse(&bytes)) else {
            return Ok(());
        };
        gc::remove_unreferenced(&self.primary, guard, old.blobs().map(|layer| layer.digest))
    }

    /// Links blobs of the second store into the first, where the system allows it, so that the
    /// model outlives the second store.
    fn adopt_blobs(&self, manifest: &Manifest) {
        for layer in manifest.blobs() {
            if self.primary.find_blob(&layer.digest).is_none()
                && let Some((path, _)) = self.find_blob(&layer.digest)
                && let Err(error) = fs::hard_link(path, self.primary.blob(&layer.digest))
            {
                tracing::debug!(digest = %layer.digest, %error, "a blob stays in the other store only");
            }
        }
    }

    fn find_blob(&self, digest: &Digest) -> Option<(PathBuf, u64)> {
        self.layouts().find_map(|layout| layout.find_blob(digest))
    }

    fn read_blob(&self, layer: &Layer) -> Result<Vec<u8>, Error> {
        read_limited(&self.blob_path(&layer.digest), MAX_TEXT_BYTES)
            .map_err(|error| Error::io("read", format!("blob {}", layer.digest), error))
    }

    fn layouts(&self) -> impl Iterator<Item = &Layout> {
        [&self.primary].into_iter().chain(&self.fallback)
    }

    fn warn(&self, error: &Error) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(error.to_string()) {
            tracing::warn!(%error, "a model is not listed");
        }
    }
}

/// Renames blobs of the old spelling and removes what nobody needs. Failing is no reason not to
/// serve.
fn tidy(layout: &Layout, prune: bool) {
    let done = lock::exclusive(layout).and_then(|guard| {
        layout
            .rename_old_blobs()
            .map_err(|error| layout.error("rename blobs in", &layout.blobs(), error))?;
        if prune {
            gc::prune(layout, &guard)
        } else {
            Ok(0)
        }
    });
    match done {
        Ok(0) => {}
        Ok(n_files) => tracing::info!(n_files, "removed files that no model needs"),
        Err(error) => tracing::warn!(%error, "the model store is not tidied up"),
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
fn standing_for(meant: &ModelEntry) -> ModelEntry {
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

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
