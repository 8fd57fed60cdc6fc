//! Folders of the machine.

use std::path::PathBuf;

use crate::values::Values;

/// `[host]`
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// History and logs.
    pub state_dir: PathBuf,
    /// What can be made again.
    pub cache_dir: PathBuf,
    /// Locks and sockets of the running service.
    pub runtime_dir: PathBuf,
}

impl HostConfig {
    pub(crate) fn new(values: &Values<'_>) -> HostConfig {
        HostConfig {
            state_dir: values.read("LLMSRV_STATE_DIR"),
            cache_dir: values.read("LLMSRV_CACHE_DIR"),
            runtime_dir: values.read("LLMSRV_RUNTIME_DIR"),
        }
    }
}
