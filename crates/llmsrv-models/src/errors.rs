//! What is wrong with a device while a model is loaded to it.

use std::time::Duration;

use llmsrv_engine::{LoadError, ModelError};

/// A device that cannot take the weights, which is no fault of the file.
pub(crate) fn device(error: ModelError) -> LoadError {
    match error {
        ModelError::DeviceLost(reason) => lost(reason),
        error => LoadError::Unsupported(error.to_string()),
    }
}

/// The device went while the model was loaded. Who starts its process knows when to try again.
pub(crate) fn lost(reason: String) -> LoadError {
    LoadError::DeviceLost {
        reason,
        retry_after: Duration::ZERO,
    }
}
