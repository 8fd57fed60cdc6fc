//! What can go wrong with a conversion.

use llmsrv_gguf::TensorType;

use crate::target::UnknownTarget;

/// A conversion that was not done. The text is one line and names no paths.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the target is not known.
    #[error(transparent)]
    UnknownTarget(#[from] UnknownTarget),
    /// The source has lost precision already.
    #[error(
        "quantization is only supported for F16, BF16 and F32 models, and this one has tensors of type {0}"
    )]
    AlreadyQuantized(TensorType),
    /// A file that the conversion needs is not among those given.
    #[error("{0} is missing")]
    MissingFile(&'static str),
    /// The source contradicts itself or its format.
    #[error("{0}")]
    Invalid(String),
    /// The source may be sound, but this program cannot convert it.
    #[error("{0}")]
    Unsupported(String),
    /// The caller did not want it any more.
    #[error("the conversion was cancelled")]
    Cancelled,
    /// A model file cannot be read.
    #[error(transparent)]
    Gguf(#[from] llmsrv_gguf::Error),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
