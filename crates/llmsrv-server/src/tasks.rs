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

/// Runs something that reads files on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a task of the server failed");
        ApiError::internal("internal error")
    })
}
