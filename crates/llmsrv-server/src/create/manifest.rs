//! The layers of a model that is being made, and writing them with their manifest.

use llmsrv_store::{
    Digest, Error as StoreError, Layer, LayerKind, Manifest, ModelConfig, ModelName, Store,
    StoredModel,
};
use serde_json::{Map, Value, json};

use crate::{error::ApiError, progress::Progress, template};

/// What the model will consist of.
pub(super) struct ManifestBuilder {
    pub(super) config: ModelConfig,
    parts: Vec<Part>,
    parameters: Map<String, Value>,
}

enum Part {
    /// A blob that is in the store.
    Stored { layer: Layer, is_new: bool },
    /// A small text, put into the store at the end.
    Text(LayerKind, Vec<u8>),
}

impl ManifestBuilder {
    /// Begins a model that has nothing yet.
    pub(super) fn new(config: ModelConfig) -> ManifestBuilder {
        ManifestBuilder {
            config,
            parts: Vec::new(),
            parameters: Map::new(),
        }
    }

    /// Begins with all that another model has.
    pub(super) fn of_model(base: &StoredModel) -> ManifestBuilder {
        let origin = base.entry.stands_for.as_ref().unwrap_or(&base.entry.name);
        let stored = |layer: &Layer| Part::Stored {
            layer: Layer {
                from: layer.from.clone().or_else(|| Some(origin.to_string())),
                ..layer.clone()
            },
            is_new: false,
        };
        ManifestBuilder {
            config: base.entry.config.clone(),
            parts: base.manifest.layers.iter().map(stored).collect(),
            parameters: base.parameters.clone(),
        }
    }

    /// Puts a text in the place of those of its kind.
    pub(super) fn replace(&mut self, kind: LayerKind, text: Vec<u8>) {
        self.parts.retain(|part| part.kind() != Some(kind));
        self.add(kind, text);
    }

    /// Adds a text to those of its kind.
    pub(super) fn add(&mut self, kind: LayerKind, text: Vec<u8>) {
        self.parts.push(Part::Text(kind, text));
    }

    /// Puts the weights in the place of others: they come first.
    pub(super) fn replace_weights(&mut self, layer: Layer, is_new: bool) {
        self.parts
            .retain(|part| part.kind() != Some(LayerKind::Model));
        self.parts.insert(0, Part::Stored { layer, is_new });
    }

    /// Adds a projector or an adapter.
    pub(super) fn add_blob(&mut self, layer: Layer, is_new: bool) {
        self.parts.push(Part::Stored { layer, is_new });
    }

    /// Puts options over those the model has.
    pub(super) fn merge_parameters(&mut self, given: &Map<String, Value>) {
        let given = given.iter().filter(|(_, value)| !value.is_null());
        let mut changed = false;
        for (name, value) in given {
            changed |= self.parameters.insert(name.clone(), value.clone()).as_ref() != Some(value);
        }
        if changed {
            let text = json!(self.parameters).to_string();
            self.replace(LayerKind::Parameters, text.into_bytes());
        }
    }

    /// Returns the layer of the weights.
    pub(super) fn weights(&self) -> Option<&Layer> {
        self.parts.iter().find_map(|part| match part {
            Part::Stored { layer, .. } if layer.kind() == Some(LayerKind::Model) => Some(layer),
            Part::Stored { .. } | Part::Text(..) => None,
        })
    }

    /// Returns the template.
    fn template(&self) -> Option<template::Source<'_>> {
        self.parts.iter().rev().find_map(|part| match part {
            Part::Text(LayerKind::Template, text) => Some(template::Source::Text(text)),
            Part::Stored { layer, .. } if layer.kind() == Some(LayerKind::Template) => {
                Some(template::Source::Blob(layer))
            }
            Part::Stored { .. } | Part::Text(..) => None,
        })
    }

    /// Puts all into the store, if the template can be used. What is there already is used; what had the name before is replaced.
    pub(super) fn write(
        &self,
        store: &Store,
        name: &ModelName,
        progress: &mut Progress,
    ) -> Result<(), ApiError> {
        let renders = self.config.renderer.is_some();
        template::check_made(store, self.template(), renders, self.weights())?;
        let mut n_attempts = 0;
        loop {
            let layers = self.put_layers(store, (n_attempts == 0).then_some(&mut *progress))?;
            let (config, _) = put(store, LayerKind::Config, &self.config.to_json(&layers))?;
            if n_attempts == 0 {
                progress.status("writing manifest");
            }
            let manifest = Manifest::new(config, layers).to_bytes();
            match store.put_manifest(name, &manifest) {
                // Somebody removed another model, and with it a text that both have.
                Err(StoreError::MissingBlob { .. }) if n_attempts < MAX_ATTEMPTS => n_attempts += 1,
                result => return result.map(drop).map_err(ApiError::from),
            }
        }
    }

    fn put_layers(
        &self,
        store: &Store,
        mut progress: Option<&mut Progress>,
    ) -> Result<Vec<Layer>, ApiError> {
        let mut layers: Vec<Layer> = Vec::new();
        for part in &self.parts {
            let (layer, is_new) = match part {
                Part::Stored { layer, is_new } => (layer.clone(), *is_new),
                Part::Text(kind, text) => put(store, *kind, text)?,
            };
            let known =
                |other: &Layer| other.digest == layer.digest && other.kind() == layer.kind();
            if layers.iter().any(known) {
                continue;
            }
            if let Some(progress) = &mut progress {
                let what = if is_new {
                    "creating new"
                } else {
                    "using existing"
                };
                progress.status(&format!("{what} layer {}", layer.digest));
            }
            layers.push(layer);
        }
        Ok(layers)
    }
}

impl Part {
    fn kind(&self) -> Option<LayerKind> {
        match self {
            Part::Stored { layer, .. } => layer.kind(),
            Part::Text(kind, _) => Some(*kind),
        }
    }
}

/// Stores a text unless it is there; tells whether it is new.
fn put(store: &Store, kind: LayerKind, text: &[u8]) -> Result<(Layer, bool), ApiError> {
    let digest = Digest::of(text);
    let is_new = store.blob_size(&digest)?.is_none();
    if is_new {
        store.put_blob(&digest, &mut &text[..])?;
    }
    Ok((Layer::new(kind, digest, text.len() as u64), is_new))
}

const MAX_ATTEMPTS: usize = 3;
