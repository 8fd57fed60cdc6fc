//! Calls into the store from asynchronous code.

use crate::error::ApiError;

/// Runs something that reads files or computes on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a task of the server failed");
        ApiError::internal("internal error")
    })
}
