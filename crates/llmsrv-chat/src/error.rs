//! What can go wrong between a conversation and its prompt.

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The template does not parse. The text names line and cause.
    #[error("template error: {0}")]
    Syntax(String),
    /// The template failed while it ran.
    #[error("template error: {0}")]
    Render(String),
    /// The template refused the conversation with its own words.
    #[error("the chat template refuses these messages: {0}")]
    Refused(String),
    /// The template needs more work or memory than one prompt may cost.
    #[error("template exceeds the limit of {0}")]
    Limit(&'static str),
    /// Nobody waits for the prompt any more.
    #[error("the prompt was cancelled")]
    Cancelled,
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
