//! What can go wrong while measuring.

/// A measurement that could not be made. The text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model file cannot be used.
    #[error(transparent)]
    Load(#[from] llmsrv_engine::LoadError),
    /// The header of the model file cannot be read.
    #[error(transparent)]
    Gguf(#[from] llmsrv_gguf::Error),
    /// A step failed.
    #[error(transparent)]
    Model(#[from] llmsrv_engine::ModelError),
    /// The GPU cannot be measured.
    #[error(transparent)]
    Gpu(#[from] llmsrv_gpu::Error),
    /// The engine refused a request.
    #[error(transparent)]
    Submit(#[from] llmsrv_engine::SubmitError),
    /// What was asked for cannot be measured.
    #[error("{0}")]
    Invalid(String),
    /// Another engine failed.
    #[error("{peer}: {reason}")]
    Peer {
        /// Its name.
        peer: String,
        /// What it said.
        reason: String,
    },
}
