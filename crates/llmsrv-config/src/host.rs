//! Folders and libraries of the machine.

use std::path::PathBuf;

use crate::values::Values;

/// `[host]`
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// History and logs.
    pub state_dir: PathBuf,
    /// Locks and sockets of the running service.
    pub runtime_dir: PathBuf,
    /// Log of a server in the background, if one is named.
    pub log_file: Option<PathBuf>,
    /// Folder of the service's unit, if not the usual one.
    pub unit_dir: Option<PathBuf>,
    /// Library of ONNX Runtime.
    pub onnx_runtime: Option<PathBuf>,
}

impl HostConfig {
    /// Returns the log of a server in the background: one for each port, where none is named.
    pub fn log_of(&self, port: u16) -> PathBuf {
        let usual = || self.state_dir.join(format!("server-{port}.log"));
        self.log_file.clone().unwrap_or_else(usual)
    }

    pub(crate) fn new(values: &Values<'_>) -> HostConfig {
        HostConfig {
            state_dir: values.read("LLMSRV_STATE_DIR"),
            runtime_dir: values.read("LLMSRV_RUNTIME_DIR"),
            log_file: values.read("LLMSRV_LOG_FILE"),
            unit_dir: values.read("LLMSRV_UNIT_DIR"),
            onnx_runtime: values.read("LLMSRV_ONNX_RUNTIME"),
        }
    }
}
