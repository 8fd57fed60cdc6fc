//! What can be wrong with a model file.

/// A file that cannot be read as GGUF. The text is one line and names what is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not begin with the four letters of the format.
    #[error("not a GGUF file")]
    Magic,
    /// The file is of a version or byte order that is not supported.
    #[error("GGUF version {0} is not supported (2 and 3 are; big-endian files are not)")]
    Version(u32),
    /// The file ends before what it announces.
    #[error("the file ends inside {0}")]
    Truncated(String),
    /// Something in the file contradicts itself or the format.
    #[error("{0}")]
    Invalid(String),
    /// The file could not be opened or mapped.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
