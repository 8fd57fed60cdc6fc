//! Making a model: from what a client asks to a manifest in the store.
//!
//! | part | what it does |
//! |---|---|
//! | here | the order: parse it, and the steps from first to last |
//! | `files` | what the uploaded files are |
//! | `weights` | one file of weights: join, convert, quantise |
//! | `builder` | the layers of the new model, and writing them |
//!
//! Everything that can be refused is refused before the first line of progress, so that the refusal
//! has a status of its own. Nothing outside the store is read: files come as blobs, by digest.

mod files;
mod manifest;
mod request;
mod weights;

pub(crate) use request::{CreateRequest, Order};

use llmsrv_store::{Error as StoreError, LayerKind, ModelConfig, ModelName, Store};
use serde_json::json;

use crate::{error::ApiError, progress::Progress};
use manifest::ManifestBuilder;
use weights::Weights;

impl Order {
    /// The model that this one is made from, if the store does not have it.
    pub(crate) fn missing_base(&self, store: &Store) -> Result<Option<&ModelName>, ApiError> {
        let Some(name) = &self.from else {
            return Ok(None);
        };
        match store.model(name) {
            Ok(_) => Ok(None),
            Err(StoreError::NotFound { .. }) => Ok(Some(name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the model; what it is made from is in the store.
    pub(crate) fn make(self, store: &Store, progress: &mut Progress) -> Result<(), ApiError> {
        let base = match &self.from {
            Some(name) => Some(store.model(name)?),
            None => None,
        };
        let mut builder = match &base {
            Some(base) => ManifestBuilder::of_model(base),
            None => ManifestBuilder::new(ModelConfig::default()),
        };
        let weights = Weights::gather(store, &self, base.as_ref())?;
        weights.make(store, &mut builder, progress)?;
        // A base has a template if it needs one.
        if base.is_none() && self.template.is_none() {
            weights::add_template(&mut builder, store, progress);
        }
        self.add_texts(&mut builder);
        builder.write(store, &self.name, progress)
    }

    fn add_texts(&self, builder: &mut ManifestBuilder) {
        if let Some(template) = &self.template {
            builder.replace(LayerKind::Template, template.clone().into_bytes());
            builder.config.own_template = true;
        }
        if let Some(system) = &self.system {
            builder.replace(LayerKind::System, system.clone().into_bytes());
        }
        for license in &self.license {
            builder.add(LayerKind::License, license.clone().into_bytes());
        }
        builder.merge_parameters(&self.parameters);
        if !self.messages.is_empty() {
            let messages = json!(self.messages).to_string();
            builder.replace(LayerKind::Messages, messages.into_bytes());
        }
        let config = &mut builder.config;
        for (given, place) in [
            (&self.requires, &mut config.requires),
            (&self.renderer, &mut config.renderer),
            (&self.parser, &mut config.parser),
        ] {
            if given.is_some() {
                place.clone_from(given);
            }
        }
    }
}
