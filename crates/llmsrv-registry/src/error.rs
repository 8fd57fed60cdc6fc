//! What can go wrong with a transfer. Clients match on some of these texts.

use std::{sync::Arc, time::Duration};

use llmsrv_store::Digest;

/// Why a transfer failed. Texts name no files of this machine and no secrets of addresses.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings do not allow the host.
    #[error(
        "the registry {host} is not allowed here; the setting LLMSRV_REGISTRIES lists those that are"
    )]
    NotAllowed {
        /// Host of the name.
        host: String,
    },
    /// The host of a name is no host.
    #[error("{host:?} is no host name")]
    Host {
        /// Host of the name.
        host: String,
    },
    /// The registry has no such thing.
    #[error("file does not exist")]
    NotFound,
    /// The registry does not say what it has.
    #[error("{host} does not list its models")]
    NoList {
        /// Host of the registry.
        host: String,
    },
    /// The registry wants somebody else.
    #[error("unauthorized: access denied")]
    Unauthorized,
    /// The hub wants somebody else.
    #[error(
        "unauthorized: the repository is not public or has terms to accept; put a token of the hub into HF_TOKEN"
    )]
    HubToken,
    /// The registry wants credentials sent to another host.
    #[error(
        "unauthorized: {host} asks for credentials to be sent to another host ({realm}), which is refused"
    )]
    ForeignRealm {
        /// The registry.
        host: String,
        /// Where it wants them.
        realm: String,
    },
    /// Another refusal.
    #[error("{status}: {body}")]
    Status {
        /// HTTP status.
        status: u16,
        /// Beginning of the answer.
        body: String,
        /// How long the registry asks to wait.
        retry_after: Option<Duration>,
    },
    /// Nothing answers, or not in a way that can be trusted.
    #[error("cannot reach {host}: {reason}{hint}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// What the connection said.
        reason: String,
        /// What may help; begins with a separator, or empty.
        hint: &'static str,
    },
    /// The connection broke.
    #[error("the connection to {host} broke: {reason}")]
    Broken {
        /// Host and port.
        host: String,
        /// What the connection said.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("{host} sends nothing")]
    Stalled {
        /// Host and port.
        host: String,
    },
    /// A redirect that is not followed.
    #[error("{host} redirects to {target}, which is refused: {reason}")]
    Redirect {
        /// Host and port.
        host: String,
        /// Where to, without path.
        target: String,
        /// Why not.
        reason: &'static str,
    },
    /// The registry says something that is not of its protocol.
    #[error("the answer of {host} cannot be used: {reason}")]
    Answer {
        /// Host and port.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifest cannot be had.
    #[error("pull model manifest: {0}")]
    Manifest(#[source] Box<Error>),
    /// The manifest describes something that does not run here.
    #[error("{0}")]
    Unsupported(String),
    /// The bytes are not those that the digest promises; they were thrown away.
    #[error("digest mismatch, file must be downloaded again: want {want}, got {got}")]
    DigestMismatch {
        /// Digest of the manifest.
        want: Digest,
        /// Digest of the bytes.
        got: Digest,
    },
    /// The disk is too small.
    #[error(
        "not enough space on the disk of the models: {} are needed and {} are free",
        gigabytes(*needed), gigabytes(*free)
    )]
    NoSpace {
        /// Bytes still to come.
        needed: u64,
        /// Bytes left on the disk.
        free: u64,
    },
    /// The key that signs requests cannot be read or made.
    #[error("cannot use the key that signs requests: {0}")]
    Key(String),
    /// The store failed.
    #[error(transparent)]
    Store(Arc<llmsrv_store::Error>),
    /// A mistake of this program.
    #[error("internal error")]
    Internal(String),
}

impl Error {
    /// Tells whether another registry could not do better.
    pub(crate) fn is_local(&self) -> bool {
        matches!(
            self,
            Error::Store(_) | Error::NoSpace { .. } | Error::Internal(_) | Error::Key(_)
        )
    }

    /// Tells whether nothing was reached at all.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. })
    }

    /// Tells whether this is what a server says that expects encryption and gets none.
    pub(crate) fn wants_encryption(&self) -> bool {
        matches!(self, Error::Status { status: 400, .. })
    }

    /// Tells whether trying again may help.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Error::Stalled { .. } => Retry::AtOnce,
            Error::Broken { .. } | Error::Unreachable { .. } => Retry::After(None),
            Error::Status {
                status: 408 | 429 | 500..=599,
                retry_after,
                ..
            } => Retry::After(*retry_after),
            _ => Retry::Never,
        }
    }
}

/// Whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    Never,
    /// After a pause; the registry may have said how long.
    After(Option<Duration>),
    /// Without a pause: the silence was one.
    AtOnce,
}

impl From<llmsrv_store::Error> for Error {
    fn from(error: llmsrv_store::Error) -> Error {
        match error {
            llmsrv_store::Error::DigestMismatch { expected, actual } => Error::DigestMismatch {
                want: expected,
                got: actual,
            },
            error => Error::Store(Arc::new(error)),
        }
    }
}

fn gigabytes(bytes: u64) -> String {
    if bytes < 1_000_000_000 {
        format!("{:.1} MB", bytes as f64 / 1e6)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}
