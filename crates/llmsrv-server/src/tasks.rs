//! Calls that read files or compute, from asynchronous code.

use crate::error::ApiError;

/// Runs something that computes on a thread that, if it takes long, gives way to those that make
/// tokens.
pub(crate) async fn computing<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    http_front::run_in_background(work).await.map_err(|error| {
        tracing::error!(%error, "a task of the server failed");
        ApiError::internal("internal error")
    })
}

/// As [`computing`] for work on so many bytes: at once where they are few, as a thread takes longer to begin.
pub(crate) async fn computing_on<T: Send + 'static>(
    n_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if n_bytes <= FEW_BYTES {
        return Ok(work());
    }
    computing(work).await
}

/// Runs something that reads files on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a task of the server failed");
        ApiError::internal("internal error")
    })
}

/// Bytes that are written in a fraction of a millisecond, and cut into tokens in three at most: letters without a blank,
/// with the vocabulary of Gemma 3, took longest of seven texts and three tokenizers.
const FEW_BYTES: usize = 16 << 10;
