//! Uploaded files: which blobs they are, and what a GGUF file among them is for. They
//! come from strangers; headers are checked before anything is believed.

use std::path::{Path, PathBuf};

use llmsrv_gguf::{GgufFile, TensorType};
use llmsrv_store::{Digest, Layer, LayerKind, Store, StoredModel};

use crate::error::{ApiError, refuse};

/// An uploaded file.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) digest: Digest,
    pub(super) path: PathBuf,
}

/// A GGUF file among the blobs.
pub(super) struct Gguf {
    pub(super) digest: Digest,
    pub(super) path: PathBuf,
    pub(super) file: GgufFile,
    /// It belongs to the base model already.
    pub(super) is_old: bool,
}

/// What a GGUF file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Model,
    Projector,
    Adapter,
}

impl Gguf {
    pub(super) fn purpose(&self) -> Purpose {
        let metadata = self.file.metadata();
        let architecture = metadata.architecture().unwrap_or_default();
        let n_blocks = |key: &str| {
            metadata
                .u64(&format!("{architecture}.{key}"))
                .unwrap_or_default()
        };
        match metadata.str("general.type") {
            Some("adapter") => Purpose::Adapter,
            Some("mmproj" | "projector") => Purpose::Projector,
            _ if architecture == "clip" => Purpose::Projector,
            _ if n_blocks("block_count") == 0 && n_blocks("vision.block_count") > 0 => {
                Purpose::Projector
            }
            _ => Purpose::Model,
        }
    }

    pub(super) fn layer(&self, kind: LayerKind) -> Layer {
        Layer::new(kind, self.digest, self.file.len())
    }

    /// Returns the type of the first tensor that is quantized.
    pub(super) fn quantized_type(&self) -> Option<TensorType> {
        let mut types = self.file.header().tensors.iter().map(|tensor| tensor.dtype);
        let is_float =
            |ty: &TensorType| matches!(ty, TensorType::F32 | TensorType::F16 | TensorType::BF16);
        types.find(|ty| !is_float(ty))
    }

    pub(super) fn check_fits(&self, model: &Gguf) -> Result<(), ApiError> {
        let of = |gguf: &Gguf| gguf.file.metadata().architecture().map(str::to_owned);
        match (of(self), of(model)) {
            (Some(adapter), Some(model)) if adapter != model => {
                Err(ApiError::bad_request(format!(
                    "the adapter is for models of the architecture {adapter:?}, and this one is {model:?}"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Looks up the blobs of files; renews them, so that no prune takes them meanwhile.
pub(super) fn find(store: &Store, files: &[(String, Digest)]) -> Result<Vec<Found>, ApiError> {
    let files = files.iter().map(|(name, digest)| {
        if store.blob_size(digest)?.is_none() {
            return Err(ApiError::blob_not_found(digest));
        }
        Ok(Found {
            name: name.clone(),
            digest: *digest,
            path: store.blob_path(digest),
        })
    });
    files.collect()
}

pub(super) fn has_safetensors(files: &[Found]) -> bool {
    files.iter().any(|file| file.name.ends_with(".safetensors"))
}

pub(super) fn paths(files: &[Found]) -> Vec<(String, PathBuf)> {
    let files = files.iter();
    files
        .map(|file| (file.name.clone(), file.path.clone()))
        .collect()
}

/// Opens files that must all be GGUF.
pub(super) fn open_all(files: &[Found]) -> Result<Vec<Gguf>, ApiError> {
    let mut opened = Vec::new();
    let (mut n_named, mut stranger) = (0, false);
    for file in files {
        n_named += usize::from(file.name.to_ascii_lowercase().ends_with(".gguf"));
        match GgufFile::open(&file.path) {
            Ok(gguf) => opened.push(Gguf {
                digest: file.digest,
                path: file.path.clone(),
                file: gguf,
                is_old: false,
            }),
            Err(llmsrv_gguf::Error::Magic) => stranger = true,
            Err(error) => return Err(error.into()),
        }
    }
    if stranger {
        return Err(ApiError::bad_request(
            if opened.is_empty() && n_named == 0 {
                "unknown type"
            } else {
                "supplied file was not in GGUF format"
            },
        ));
    }
    Ok(opened)
}

/// Opens the weights of a base model.
pub(super) fn base_parts(base: &StoredModel) -> Result<Vec<Gguf>, ApiError> {
    let layers = base.manifest.layers_of(LayerKind::Model);
    let paths = std::iter::once(&base.weights).chain(&base.shards);
    let parts = layers.zip(paths).map(|(layer, path)| {
        Ok(Gguf {
            digest: layer.digest,
            path: path.clone(),
            file: open(path)?,
            is_old: true,
        })
    });
    parts.collect()
}

/// Puts the parts of a split model in order; none may be missing.
pub(super) fn in_order(mut parts: Vec<Gguf>) -> Result<Vec<Gguf>, ApiError> {
    let Some(first) = parts.first() else {
        refuse!("the files hold no model, only what belongs to one");
    };
    let count = first
        .file
        .metadata()
        .usize("split.count")
        .unwrap_or(1)
        .max(1);
    let place = |part: &Gguf| part.file.metadata().usize("split.no").unwrap_or(0);
    parts.sort_by_key(place);
    let complete = parts.iter().enumerate().all(|(at, part)| place(part) == at);
    if parts.len() == count && (complete || count == 1) {
        return Ok(parts);
    }
    Err(ApiError::bad_request(if count == 1 {
        "the files hold several models; a model has one".to_owned()
    } else {
        format!(
            "the model is split into {count} files, of which {} are here; all are needed, each once",
            parts.len()
        )
    }))
}

pub(super) fn open(path: &Path) -> Result<GgufFile, ApiError> {
    Ok(GgufFile::open(path)?)
}
