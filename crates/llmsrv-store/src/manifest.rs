//! Manifests: which blobs make up a model. Parsed leniently, kept byte for byte, because the
//! digest of a model is the digest of these bytes.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{Digest, Error};

/// A manifest: a config and layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2.
    #[serde(default = "schema_version")]
    pub schema_version: u32,
    /// Media type of the manifest itself.
    #[serde(default = "media_type")]
    pub media_type: String,
    /// Facts about the model as JSON; very old manifests have none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config"
    )]
    pub config: Option<Layer>,
    /// The parts of the model.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub layers: Vec<Layer>,
}

/// A blob and what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer {
    /// What it is for; see [`Layer::kind`].
    #[serde(default)]
    pub media_type: String,
    /// The blob.
    pub digest: Digest,
    /// Size of the blob in bytes.
    pub size: u64,
    /// Name of the model the layer was taken from; lets a registry mount it instead of receiving it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// What a layer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerKind {
    /// Facts about the model as JSON.
    Config,
    /// GGUF weights.
    Model,
    /// GGUF of a vision projector.
    Projector,
    /// LoRA adapter.
    Adapter,
    /// Draft model for speculative decoding.
    Draft,
    /// One SafeTensors tensor.
    Tensor,
    /// A configuration file beside tensors.
    Json,
    /// Go template.
    Template,
    /// System prompt.
    System,
    /// License text; a model may have several.
    License,
    /// JSON object of options.
    Parameters,
    /// JSON array of messages.
    Messages,
}

impl LayerKind {
    /// Returns the media type that manifests use.
    pub fn media_type(self) -> &'static str {
        MEDIA_TYPES
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(media_type, _)| media_type)
    }
}

impl Manifest {
    /// Builds a manifest of the present version.
    pub fn new(config: Layer, layers: Vec<Layer>) -> Manifest {
        Manifest {
            schema_version: schema_version(),
            media_type: media_type(),
            config: Some(config),
            layers,
        }
    }

    /// Parses the bytes of a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, Error> {
        if bytes.len() > MAX_BYTES {
            return Err(Error::InvalidManifest {
                reason: format!("larger than {MAX_BYTES} bytes"),
            });
        }
        // The derived parser would also take a list of values in the order of the fields.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Error::InvalidManifest {
                reason: "not a JSON object".into(),
            });
        }
        serde_json::from_slice(bytes).map_err(|error| Error::InvalidManifest {
            reason: error.to_string(),
        })
    }

    /// Returns the bytes to be stored or sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a struct of strings and numbers is always JSON")
    }

    /// Returns the config and all layers: every blob the model needs.
    pub fn blobs(&self) -> impl Iterator<Item = &Layer> {
        self.config.iter().chain(&self.layers)
    }

    /// Returns the layers of one kind, in order.
    pub fn layers_of(&self, kind: LayerKind) -> impl Iterator<Item = &Layer> {
        self.layers
            .iter()
            .filter(move |layer| layer.kind() == Some(kind))
    }

    /// Returns the sum of the sizes of all blobs in bytes.
    pub fn size(&self) -> u64 {
        self.blobs()
            .fold(0, |sum, layer| sum.saturating_add(layer.size))
    }
}

impl Layer {
    /// Builds a layer.
    pub fn new(kind: LayerKind, digest: Digest, size: u64) -> Layer {
        Layer {
            media_type: kind.media_type().into(),
            digest,
            size,
            from: None,
        }
    }

    /// Returns what the layer is for, if its media type is known. Parameters after `;` do not count.
    pub fn kind(&self) -> Option<LayerKind> {
        let media_type = self.media_type.split(';').next().unwrap_or_default().trim();
        MEDIA_TYPES
            .iter()
            .find(|(known, _)| *known == media_type)
            .map(|(_, kind)| *kind)
    }
}

/// Reads a file that must not be larger than `max_bytes`.
pub(crate) fn read_limited(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(max_bytes as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("larger than {max_bytes} bytes"),
        ));
    }
    Ok(bytes)
}

fn schema_version() -> u32 {
    2
}

fn media_type() -> String {
    "application/vnd.docker.distribution.manifest.v2+json".into()
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Layer>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Some writers express "no config" as one with an empty digest.
fn config<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Layer>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    let absent = |value: &serde_json::Value| {
        matches!(value.get("digest"), None | Some(serde_json::Value::Null)) || value["digest"] == ""
    };
    match value {
        Some(value) if !absent(&value) => serde_json::from_value(value)
            .map(Some)
            .map_err(serde::de::Error::custom),
        _ => Ok(None),
    }
}

/// Largest manifest in bytes; models of one layer for each tensor have some hundred kilobytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Values of a part in JSON: a list of empty lists takes a hundred times its
/// bytes of memory.
pub(crate) const MAX_VALUES: usize = 100_000;

/// Media types; the first of a kind is the one that is written.
const MEDIA_TYPES: [(&str, LayerKind); 13] = [
    (
        "application/vnd.docker.container.image.v1+json",
        LayerKind::Config,
    ),
    ("application/vnd.ollama.image.model", LayerKind::Model),
    (
        "application/vnd.ollama.image.projector",
        LayerKind::Projector,
    ),
    ("application/vnd.ollama.image.adapter", LayerKind::Adapter),
    ("application/vnd.ollama.image.draft", LayerKind::Draft),
    ("application/vnd.ollama.image.tensor", LayerKind::Tensor),
    ("application/vnd.ollama.image.json", LayerKind::Json),
    ("application/vnd.ollama.image.template", LayerKind::Template),
    ("application/vnd.ollama.image.prompt", LayerKind::Template),
    ("application/vnd.ollama.image.system", LayerKind::System),
    ("application/vnd.ollama.image.license", LayerKind::License),
    ("application/vnd.ollama.image.params", LayerKind::Parameters),
    ("application/vnd.ollama.image.messages", LayerKind::Messages),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_manifest_is_written_in_the_usual_order() {
        let digest = Digest::of(b"");
        let mut layer = Layer::new(LayerKind::Model, digest, 7);
        layer.from = Some("a/b:c".into());
        let manifest = Manifest::new(Layer::new(LayerKind::Config, digest, 0), vec![layer]);
        let expected = format!(
            concat!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","#,
                r#""config":{{"mediaType":"application/vnd.docker.container.image.v1+json","digest":"{0}","size":0}},"#,
                r#""layers":[{{"mediaType":"application/vnd.ollama.image.model","digest":"{0}","size":7,"from":"a/b:c"}}]}}"#
            ),
            digest
        );
        assert_eq!(String::from_utf8(manifest.to_bytes()).unwrap(), expected);
        assert_eq!(Manifest::parse(&manifest.to_bytes()).unwrap(), manifest);
        assert_eq!(manifest.size(), 7);
    }

    #[test]
    fn odd_but_usable_manifests_are_read() {
        let digest = Digest::of(b"");
        for (json, n_blobs) in [
            ("{}".to_owned(), 0),
            (r#"{"layers":null,"config":null,"other":[1]}"#.into(), 0),
            (
                r#"{"config":{"mediaType":"","digest":"","size":0},"layers":[]}"#.into(),
                0,
            ),
            (
                format!(
                    r#"{{"layers":[{{"size":1,"digest":"{}","x":1}}]}}"#,
                    digest.file_name()
                ),
                1,
            ),
            (
                format!("\n{{\"config\":{{\"digest\":\"{digest}\",\"size\":1}}}} \n"),
                1,
            ),
        ] {
            let manifest = Manifest::parse(json.as_bytes()).unwrap();
            assert_eq!(manifest.blobs().count(), n_blobs, "{json}");
        }
        let mut layer = Layer::new(LayerKind::License, digest, 1);
        assert_eq!(layer.kind(), Some(LayerKind::License));
        layer.media_type = "application/vnd.ollama.image.prompt; charset=utf-8".into();
        assert_eq!(layer.kind(), Some(LayerKind::Template));
        layer.media_type = "application/vnd.ollama.image".into();
        assert_eq!(layer.kind(), None);
    }

    #[test]
    fn unusable_manifests_are_refused() {
        let digest = Digest::of(b"");
        for json in [
            String::new(),
            "[]".into(),
            "{".into(),
            r#"{"layers":[{"size":1}]}"#.into(),
            r#"{"layers":[{"size":1,"digest":"../../etc/passwd"}]}"#.into(),
            format!(r#"{{"layers":[{{"size":-1,"digest":"{digest}"}}]}}"#),
            format!(r#"{{"layers":[{{"size":1e30,"digest":"{digest}"}}]}}"#),
            format!("{{}}{}", " ".repeat(MAX_BYTES)),
            "[".repeat(100_000),
            format!(r#"{{"config":{}"#, "[".repeat(100_000)),
        ] {
            assert!(matches!(
                Manifest::parse(json.as_bytes()),
                Err(Error::InvalidManifest { .. })
            ));
        }
    }

    #[test]
    fn every_kind_has_a_media_type() {
        for (media_type, kind) in MEDIA_TYPES {
            assert!(kind.media_type() == media_type || kind == LayerKind::Template);
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Manifest::parse(&bytes));
        }

        #[test]
        fn sizes_never_overflow(sizes in prop::collection::vec(any::<u64>(), 0..5)) {
            let digest = Digest::of(b"");
            let layers = sizes.iter().map(|size| Layer::new(LayerKind::Model, digest, *size)).collect();
            let manifest = Manifest::new(Layer::new(LayerKind::Config, digest, 1), layers);
            prop_assert_eq!(Manifest::parse(&manifest.to_bytes()).unwrap().size(), manifest.size());
        }
    }
}
