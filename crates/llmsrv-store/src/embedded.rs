//! The model inside the program, and putting it into the store.
//!
//! Which model that is says a description in TOML beside the weights:
//!
//! ```toml
//! name = "small"              # name in the store
//! file = "model.gguf"         # weights, beside the description
//! sha256 = "b6bf…"            # of the weights
//! license = "Apache-2.0"      # name or text
//! description = "What it is, honestly."
//! [parameters]                # options it wants, by their names in the API
//! temperature = 0.2
//! ```
//!
//! Everything else (family, sizes, quantization) comes from the header of the weights.

use std::io::Cursor;

use llmsrv_gguf::Header;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Digest, Error, Layer, LayerKind, Manifest, ModelConfig, ModelName, Store, blobs,
    default::Marker,
    lock::{self, Guard},
    manifest::read_limited,
    store::lookup::read_manifest,
};

/// The model inside the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded<'a> {
    /// Name in the store.
    pub name: ModelName,
    /// File of the weights beside the description.
    pub file: String,
    /// What it is, for people.
    pub description: String,
    /// License, by name or in full.
    pub license: Option<String>,
    /// Go template; without one the template in the weights is used.
    pub template: Option<String>,
    /// System prompt.
    pub system: Option<String>,
    /// Options it wants, by their names in the API.
    pub parameters: Map<String, Value>,
    /// Digest of the weights.
    pub digest: Digest,
    /// The weights.
    pub gguf: &'a [u8],
}

/// What [`Store::install_embedded`] found or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It was there already; a lost blob was put back.
    Present,
    /// It was put into the store.
    Added,
    /// It took the place of the one of another version of the program.
    Replaced,
    /// The user has removed it, so it was not put back.
    RemovedByUser,
    /// The user has a model of its own under this name, which was left alone.
    NameTaken,
}

impl<'a> Embedded<'a> {
    /// Reads the description of the weights `gguf`. The digest is checked when they are installed.
    pub fn parse(manifest_toml: &str, gguf: &'a [u8]) -> Result<Embedded<'a>, Error> {
        let file: TomlFile =
            toml::from_str(manifest_toml).map_err(|error| invalid(error.message().to_owned()))?;
        Ok(Embedded {
            name: file.name,
            file: file.file,
            description: file.description,
            license: file.license,
            template: file.template,
            system: file.system,
            parameters: file.parameters,
            digest: format!("sha256:{}", file.sha256).parse()?,
            gguf,
        })
    }

    /// Makes the manifest, and the small blobs it names beside the weights.
    fn parts(&self) -> Result<Parts, Error> {
        let mut layers = vec![Layer::new(
            LayerKind::Model,
            self.digest,
            self.gguf.len() as u64,
        )];
        let mut blobs = Vec::new();
        let mut part = |kind, bytes: Vec<u8>| {
            let layer = Layer::new(kind, Digest::of(&bytes), bytes.len() as u64);
            blobs.push((layer.digest, bytes));
            layer
        };
        let texts = [
            (LayerKind::Template, &self.template),
            (LayerKind::System, &self.system),
            (LayerKind::License, &self.license),
        ];
        for (kind, text) in texts {
            layers.extend(
                text.as_ref()
                    .map(|text| part(kind, text.clone().into_bytes())),
            );
        }
        if !self.parameters.is_empty() {
            let json = Value::Object(self.parameters.clone()).to_string();
            layers.push(part(LayerKind::Parameters, json.into_bytes()));
        }
        let header = Header::parse(self.gguf, self.gguf.len() as u64)
            .map_err(|error| invalid(error.to_string()))?;
        let config = ModelConfig::of_weights(&header);
        let config = part(LayerKind::Config, config.to_json(&layers));
        let manifest = Manifest::new(config, layers).to_bytes();
        Ok(Parts {
            marker: Marker {
                name: self.name.clone(),
                manifest: Digest::of(&manifest),
            },
            blobs,
            manifest,
        })
    }
}

impl Store {
    /// Puts the embedded model into the store if it belongs there: at the first start, after an
    /// update of the program, or when the store has no model at all. A model the user has removed
    /// stays removed, and a model of the user's under the same name is left alone. Cheap when
    /// nothing is to be done; after an interruption the next call completes the work.
    pub fn install_embedded(&self, embedded: &Embedded<'_>) -> Result<Installed, Error> {
        let parts = embedded.parts()?;
        let state = {
            let _guard = lock::shared(&self.primary)?;
            self.state_of(&parts.marker)
        };
        if state == State::Whole && self.marker().as_ref() == Some(&parts.marker) {
            return Ok(Installed::Present);
        }
        if state.wants_manifest() {
            self.write_parts(embedded, &parts)?;
        }
        let guard = lock::exclusive(&self.primary)?;
        self.settle(&guard, &parts)
    }

    /// Returns which embedded model was installed last, if one was.
    pub(crate) fn marker(&self) -> Option<Marker> {
        let bytes = read_limited(&self.primary.embedded_marker(), 1 << 16).ok()?;
        serde_json::from_slice(&bytes)
            .inspect_err(|error| tracing::warn!(%error, "unreadable marker"))
            .ok()
    }

    fn write_parts(&self, embedded: &Embedded<'_>, parts: &Parts) -> Result<(), Error> {
        let small = parts
            .blobs
            .iter()
            .map(|(digest, bytes)| (digest, bytes.as_slice()));
        for (digest, bytes) in small.chain([(&embedded.digest, embedded.gguf)]) {
            if self.blob_size(digest)? != Some(bytes.len() as u64) {
                self.put_blob(digest, &mut Cursor::new(bytes))?;
            }
        }
        Ok(())
    }

    /// Writes the manifest if it is wanted, removes that of an earlier name, and last of all the
    /// marker: until then everything is tried again.
    fn settle(&self, guard: &Guard, parts: &Parts) -> Result<Installed, Error> {
        let Parts {
            marker: wanted,
            manifest,
            ..
        } = parts;
        let last = self.marker();
        let state = self.state_of(wanted);
        if state.wants_manifest() {
            self.write_manifest(guard, &wanted.name, manifest)?;
        }
        let outcome = match state {
            State::Whole => Installed::Present,
            State::New | State::Broken => Installed::Added,
            State::Outdated => Installed::Replaced,
            State::RemovedByUser => return Ok(Installed::RemovedByUser),
            State::NameTaken => return Ok(Installed::NameTaken),
        };
        if let Some(old) = last.filter(|old| old.name != wanted.name && self.is_there(old)) {
            self.remove_manifest(guard, &self.primary.spelling(&old.name).0)?;
        }
        let json = serde_json::to_vec(wanted).map_err(|error| invalid(error.to_string()))?;
        blobs::write_whole(
            &self.primary,
            self.primary.root(),
            &self.primary.embedded_marker(),
            &json,
        )?;
        Ok(outcome)
    }

    fn state_of(&self, wanted: &Marker) -> State {
        let last = self.marker();
        let (name, _) = self.primary.spelling(&wanted.name);
        match self.digest_at(&name) {
            Some(digest) if digest == wanted.manifest => match self.whole(&self.primary, &name) {
                Ok(Some(_)) => State::Whole,
                _ => State::Broken,
            },
            Some(digest) => match last {
                Some(last) if last.name == name && last.manifest == digest => State::Outdated,
                _ => State::NameTaken,
            },
            None => match last {
                None => State::New,
                Some(last) if last.name != name && self.is_there(&last) => State::Outdated,
                Some(_) if self.entries().is_empty() => State::New,
                Some(_) => State::RemovedByUser,
            },
        }
    }

    /// Tells whether the embedded model that `marker` speaks of is in its place.
    fn is_there(&self, marker: &Marker) -> bool {
        self.digest_at(&self.primary.spelling(&marker.name).0) == Some(marker.manifest)
    }

    fn digest_at(&self, name: &ModelName) -> Option<Digest> {
        read_manifest(&self.primary, name)
            .ok()?
            .map(|(bytes, _)| Digest::of(&bytes))
    }
}

/// What is found under the name of the embedded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The very model.
    Whole,
    /// Its manifest, but a blob is missing.
    Broken,
    /// The embedded model of another version, here or under an earlier name.
    Outdated,
    /// Nothing, and it was never there or nothing else is.
    New,
    /// Nothing, though it was installed.
    RemovedByUser,
    /// Something of the user's.
    NameTaken,
}

impl State {
    fn wants_manifest(self) -> bool {
        matches!(self, State::Broken | State::Outdated | State::New)
    }
}

/// An embedded model, ready to be written.
struct Parts {
    marker: Marker,
    /// Digest and content.
    blobs: Vec<(Digest, Vec<u8>)>,
    manifest: Vec<u8>,
}

/// The file of the description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlFile {
    name: ModelName,
    file: String,
    sha256: String,
    description: String,
    license: Option<String>,
    template: Option<String>,
    system: Option<String>,
    #[serde(default)]
    parameters: Map<String, Value>,
}

fn invalid(reason: String) -> Error {
    Error::InvalidEmbedded { reason }
}
