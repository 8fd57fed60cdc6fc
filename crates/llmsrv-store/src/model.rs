//! A model as the store knows it, and reading its small parts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use llmsrv_gguf::{ModelFacts, json};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    Digest, Error, Layer, LayerKind, Manifest, ModelConfig, ModelName,
    manifest::{MAX_VALUES, read_limited},
};

/// A line of the list of models.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelEntry {
    /// Name in the spelling of the store.
    pub name: ModelName,
    /// The model meant, when `name` is `default` and no model of its own.
    pub stands_for: Option<ModelName>,
    /// Digest of the manifest, which identifies the model.
    pub digest: Digest,
    /// Size of all blobs in bytes.
    pub size: u64,
    /// When the manifest was written.
    pub modified: SystemTime,
    /// The model is in the second store, which is only read.
    pub read_only: bool,
    /// Facts about the model.
    pub config: ModelConfig,
}

/// Everything needed to load a model and speak to it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredModel {
    /// Name, digest and facts.
    pub entry: ModelEntry,
    /// The manifest: digests and sizes of all parts.
    pub manifest: Manifest,
    /// GGUF file of the weights.
    pub weights: PathBuf,
    /// What its header says.
    pub facts: Arc<ModelFacts>,
    /// Further GGUF files of a model that is split into several; nearly always empty.
    pub shards: Vec<PathBuf>,
    /// GGUF files of vision projectors.
    pub projectors: Vec<PathBuf>,
    /// LoRA adapters.
    pub adapters: Vec<PathBuf>,
    /// GGUF file of a small model that drafts tokens.
    pub draft: Option<PathBuf>,
    /// Go template.
    pub template: Option<String>,
    /// System prompt.
    pub system: Option<String>,
    /// License texts.
    pub license: Vec<String>,
    /// Options the model wants, by their names in the API.
    pub parameters: Map<String, Value>,
    /// Messages that go before those of a request, as JSON objects.
    pub messages: Vec<Value>,
}

impl StoredModel {
    /// Reads the parts of a model whose blobs `find` all finds.
    pub(crate) fn read(
        entry: ModelEntry,
        manifest: Manifest,
        find: &dyn Fn(&Layer) -> Option<PathBuf>,
    ) -> Result<StoredModel, Error> {
        let damaged = |reason: String| Error::Damaged {
            name: Box::new(entry.name.clone()),
            reason,
        };
        let path = |layer: &Layer| {
            find(layer).ok_or(Error::MissingBlob {
                digest: layer.digest,
            })
        };
        let paths = |kind| {
            manifest
                .layers_of(kind)
                .map(path)
                .collect::<Result<Vec<_>, _>>()
        };
        let text = |layer: &Layer| read_text(&path(layer)?, layer);
        let last_text = |kind| manifest.layers_of(kind).last().map(text).transpose();

        let mut weights = paths(LayerKind::Model)?.into_iter();
        let parameters = last_text(LayerKind::Parameters)?.map(|text| parse("parameters", &text));
        let messages = last_text(LayerKind::Messages)?.map(|text| parse("messages", &text));
        Ok(StoredModel {
            weights: weights
                .next()
                .ok_or_else(|| damaged("it has no weights".into()))?,
            facts: Arc::default(),
            shards: weights.collect(),
            projectors: paths(LayerKind::Projector)?,
            adapters: paths(LayerKind::Adapter)?,
            draft: paths(LayerKind::Draft)?.into_iter().next(),
            template: last_text(LayerKind::Template)?,
            system: last_text(LayerKind::System)?,
            license: manifest
                .layers_of(LayerKind::License)
                .map(text)
                .collect::<Result<_, _>>()?,
            parameters: parameters.transpose().map_err(damaged)?.unwrap_or_default(),
            messages: messages.transpose().map_err(damaged)?.unwrap_or_default(),
            entry,
            manifest,
        })
    }
}

/// Reads a text; bytes that are no UTF-8 are replaced.
fn read_text(path: &Path, layer: &Layer) -> Result<String, Error> {
    let bytes = read_limited(path, MAX_TEXT_BYTES)
        .map_err(|error| Error::io("read", format!("blob {}", layer.digest), error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse<T: DeserializeOwned + Default>(what: &str, json: &str) -> Result<T, String> {
    let invalid = |error: String| format!("its {what} are invalid: {error}");
    json::check(json.as_bytes(), MAX_VALUES).map_err(invalid)?;
    let value: Option<T> =
        serde_json::from_str(json).map_err(|error| invalid(error.to_string()))?;
    Ok(value.unwrap_or_default())
}

/// Largest template, license or other text in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;
