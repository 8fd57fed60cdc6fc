//! The store: finding, reading, writing and removing models.

pub(crate) mod lookup;

use std::{
    collections::HashSet,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use llmsrv_gguf::ModelFacts;
use parking_lot::Mutex;

use crate::{
    BlobFile, BlobWriter, Digest, Error, Layer, LayerKind, Manifest, ModelConfig, ModelEntry,
    ModelName, StoredModel, blobs, default,
    facts::{FactsCache, ReadFacts},
    gc,
    layout::{Layout, ignore_absent},
    lock::{self, Guard},
    manifest::read_limited,
};
use lookup::{read_manifest, standing_for};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Root of a second store, read after the first and never written: one that another program
    /// keeps. It need not exist.
    pub fallback: Option<PathBuf>,
    /// Remove blobs that nobody needs: all when the store is opened, those of the old model when a
    /// model is replaced. Removing a model always removes its blobs.
    pub prune: bool,
    /// With `prune`: do so when the store is opened, too.
    pub prune_at_open: bool,
    /// The model that the name `default` stands for; `None` = the one chosen in the store, else
    /// the embedded one.
    pub default_model: Option<ModelName>,
    /// Nothing is made or tidied up: the store is only looked at.
    pub look_only: bool,
    /// Reads the facts about weights.
    pub read_facts: ReadFacts,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            fallback: None,
            prune: true,
            prune_at_open: true,
            default_model: None,
            look_only: false,
            read_facts: ModelFacts::read,
        }
    }
}

/// A store of models on disk, shared with other threads and processes.
#[derive(Debug)]
pub struct Store {
    pub(crate) primary: Layout,
    pub(crate) fallback: Option<Layout>,
    pub(crate) options: OpenOptions,
    pub(crate) facts: FactsCache,
    /// Warnings given already: a list is asked for every few seconds.
    pub(crate) warned: Mutex<HashSet<String>>,
}

impl Store {
    /// Opens the store at `root`, making it if need be. A store that may only be read is usable
    /// for reading.
    pub fn open(root: &Path, options: OpenOptions) -> Result<Store, Error> {
        let primary = Layout::new(root);
        if !options.look_only {
            prepare(&primary, &options)?;
        }
        let fallback = options
            .fallback
            .as_deref()
            .filter(|path| !is_same(path, root))
            .map(Layout::new);
        Ok(Store {
            primary,
            fallback,
            options,
            facts: FactsCache::default(),
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
        let find = |layer: &Layer| Some(self.find_blob(&layer.digest)?.0);
        let mut stored = StoredModel::read(whole.entry, whole.manifest, &find)?;
        stored.facts = self.facts(&stored.weights);
        Ok(stored)
    }

    /// Returns the facts about the weights, the projector or the adapter in a file of the store, which is read once.
    /// One that cannot be read has none: loading it will say why.
    pub fn facts(&self, path: &Path) -> Arc<ModelFacts> {
        let facts = self.facts.of(path, self.options.read_facts);
        facts.unwrap_or_default()
    }

    /// Returns the bytes of a model's manifest, as they were received.
    pub fn manifest_bytes(&self, name: &ModelName) -> Result<Vec<u8>, Error> {
        let _guard = lock::shared(&self.primary)?;
        Ok(self.whole_named(name)?.bytes)
    }

    /// Gives the model `source` the additional name `destination`, replacing what has that name. A
    /// copy to `default` only says which model that name stands for from now on.
    pub fn copy(&self, source: &ModelName, destination: &ModelName) -> Result<(), Error> {
        let guard = lock::exclusive(&self.primary)?;
        let whole = self.whole_named(source)?;
        let meant = whole.entry.stands_for.as_ref().unwrap_or(&whole.entry.name);
        if default::is_default(destination) && !default::is_default(meant) {
            return self.choose(&guard, meant);
        }
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
        match self.whole_named(&name)?.entry.stands_for {
            Some(target) => Err(Error::Alias {
                name,
                target: Box::new(target),
            }),
            None => Err(Error::NotFound { name }),
        }
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

    /// Stores the config of a model whose `layers` are all there: the facts come from the header
    /// of its weights.
    pub fn put_config(&self, layers: &[Layer]) -> Result<Layer, Error> {
        let mut config = ModelConfig::default();
        let weights = layers
            .iter()
            .find(|layer| layer.kind() == Some(LayerKind::Model));
        if let Some(weights) = weights {
            self.complete(&mut config, weights);
        }
        self.put_layer(LayerKind::Config, &mut &config.to_json(layers)[..])
    }

    /// Begins a blob whose bytes come piece by piece.
    pub fn blob_writer(&self) -> Result<BlobWriter, Error> {
        BlobWriter::new(&self.primary)
    }

    /// Begins a blob that others write as a file.
    pub fn blob_file(&self) -> Result<BlobFile, Error> {
        BlobFile::new(&self.primary)
    }

    /// Makes a file the blob `digest` without copying it, by a hard link. The caller has computed
    /// the digest from the file, and must not change the file afterwards. An error, when the file
    /// is on another file system or of another owner than the store, leaves nothing behind: then
    /// the bytes must be copied.
    pub fn link_blob(&self, file: &Path, digest: &Digest) -> Result<(), Error> {
        blobs::link(&self.primary, file, digest)
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

/// Writing and removing manifests; the callers hold the lock alone.
impl Store {
    /// Remembers which model `default` stands for; a model of that very name stays, and is hidden.
    fn choose(&self, _guard: &Guard, model: &ModelName) -> Result<(), Error> {
        let choice = default::Choice {
            model: model.clone(),
        };
        let path = self.primary.chosen_default();
        let json = serde_json::to_vec(&choice)
            .map_err(|error| self.primary.error("write", &path, error.into()))?;
        blobs::write_whole(&self.primary, self.primary.root(), &path, &json)
    }

    /// Returns which model was chosen, if one was.
    pub(crate) fn choice(&self) -> Option<default::Choice> {
        let bytes = read_limited(&self.primary.chosen_default(), 1 << 16).ok()?;
        serde_json::from_slice(&bytes)
            .inspect_err(|error| tracing::warn!(%error, "unreadable choice of the default model"))
            .ok()
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
        if default::is_default(&name) {
            // It was made to be used.
            let path = self.primary.chosen_default();
            ignore_absent(fs::remove_file(&path))
                .map_err(|error| self.primary.error("remove", &path, error))?;
        }
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
}

/// Makes the folders of a store and tidies it up. A store that may only be read stays as it is.
fn prepare(layout: &Layout, options: &OpenOptions) -> Result<(), Error> {
    let made = [layout.manifests(), layout.blobs()]
        .iter()
        .try_for_each(fs::create_dir_all);
    match made {
        Err(error) if !(is_read_only(&error) && layout.root().is_dir()) => {
            return Err(Error::Open {
                root: layout.root().to_owned(),
                source: error,
            });
        }
        _ => {}
    }
    tidy(layout, options.prune && options.prune_at_open);
    Ok(())
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
