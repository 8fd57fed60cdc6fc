//! What a caller can get wrong.

use llmsrv_gguf::TensorType;

use crate::Instructions;

/// Arguments that do not fit each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no arithmetic for this type.
    #[error("elements of type {0} are not supported")]
    Unsupported(TensorType),
    /// The processor lacks these instructions.
    #[error("the processor has no instructions {0:?}")]
    Unavailable(Instructions),
    /// Lengths do not fit.
    #[error("{what}: {got} where {expected} are needed")]
    Length {
        /// The argument, in words: `elements of the queries`.
        what: &'static str,
        /// Elements or bytes it has.
        got: usize,
        /// Elements or bytes it must have.
        expected: usize,
    },
    /// The system has no memory for so many bytes.
    #[error("not enough memory for {0} bytes")]
    OutOfMemory(usize),
}
