//! What can go wrong in a store, by what a caller may do about it.

use std::{io, path::PathBuf};

use crate::{Digest, ModelName, digest::InvalidDigest, name::InvalidName};

/// An error of the store. Texts name files relative to the store, so they may be shown to clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no model name.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The text is no digest.
    #[error(transparent)]
    InvalidDigest(#[from] InvalidDigest),
    /// No model of this name.
    #[error("model '{name}' not found")]
    NotFound {
        /// Name as asked for.
        name: Box<ModelName>,
    },
    /// The manifest is there, but not everything it needs.
    #[error("model '{name}' is damaged: {reason}")]
    Damaged {
        /// Name of the manifest.
        name: Box<ModelName>,
        /// What is missing or wrong.
        reason: String,
    },
    /// The model is whole, but of a kind this program does not run.
    #[error("model '{name}' cannot be used here: {reason}")]
    Unsupported {
        /// Name of the manifest.
        name: Box<ModelName>,
        /// Why not.
        reason: String,
    },
    /// A manifest that cannot be used.
    #[error("invalid manifest: {reason}")]
    InvalidManifest {
        /// What is wrong with it.
        reason: String,
    },
    /// A manifest names a blob that is not there, or is there with another size.
    #[error("blob {digest} is missing or incomplete")]
    MissingBlob {
        /// The blob.
        digest: Digest,
    },
    /// The content of a blob is not what its name promises; nothing was stored.
    #[error("digest mismatch, expected \"{expected}\", got \"{actual}\"")]
    DigestMismatch {
        /// Digest asked for.
        expected: Digest,
        /// Digest of the bytes received.
        actual: Digest,
    },
    /// The model is in the second store, which is only read.
    #[error("model '{name}' belongs to another store that is only read from here")]
    ReadOnly {
        /// Name of the model.
        name: Box<ModelName>,
    },
    /// `default` is no model of its own but stands for another one.
    #[error("'{name}' only stands for '{target}': name that model instead")]
    Alias {
        /// The name that was given.
        name: Box<ModelName>,
        /// The model it stands for.
        target: Box<ModelName>,
    },
    /// The description of the embedded model is wrong: a mistake in the build.
    #[error("invalid embedded model: {reason}")]
    InvalidEmbedded {
        /// What is wrong with it.
        reason: String,
    },
    /// No room on the disk, a quota, or a limit on file sizes.
    #[error("no space left for {file}: {source}")]
    DiskFull {
        /// File relative to the store.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The bytes to be stored could not be read from where they come from.
    #[error("cannot read the incoming blob: {0}")]
    Input(#[source] io::Error),
    /// The store cannot be opened. The only text with a whole path: it is for who starts the program.
    #[error("cannot open the model store {}: {source}", root.display())]
    Open {
        /// Root of the store.
        root: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the store cannot be read or written.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// What was tried: `read`, `write`, ...
        action: &'static str,
        /// File relative to the store.
        file: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Wraps an error of the system; a full disk gets its own variant.
    pub(crate) fn io(action: &'static str, file: String, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Error::DiskFull { file, source },
            _ => Error::Io {
                action,
                file,
                source,
            },
        }
    }
}
