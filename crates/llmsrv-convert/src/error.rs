//! What can go wrong with a conversion.

use llmsrv_gguf::TensorType;

use crate::target::{Target, UnknownTarget};

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
    /// Too few bits to do without an importance matrix; the tensor is named where there is one that does not know it.
    #[error("{target} needs an importance matrix{}", unknown(tensor.as_deref()))]
    NeedsImatrix {
        /// What the model was to be quantised to.
        target: Target,
        /// A tensor of which the importance matrix says nothing.
        tensor: Option<String>,
    },
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

fn unknown(tensor: Option<&str>) -> String {
    match tensor {
        Some(name) => format!(", and this one does not have tensor {name}"),
        None => " (`llmsrv imatrix` makes one)".to_owned(),
    }
}
