//! What the settings of the server and of the machine mean beyond their rows.

use std::path::PathBuf;

use crate::{Folders, HostConfig, Origin, ServerConfig, source::defaults, values::Values};

impl ServerConfig {
    pub(crate) fn read(values: &Values<'_>, folders: &Folders) -> ServerConfig {
        let chosen = |name: &str| {
            let mut rows = values.0.iter();
            rows.any(|row| row.setting.name == name && row.origin != Origin::Default)
        };
        let fallback = folders.existing_store.clone();
        let fallback = fallback.filter(|_| !chosen("LLMSRV_MODELS"));
        let mut config = ServerConfig::new(values, fallback, Vec::new());
        config.registry_keys.push(config.registry_key.clone());
        if let Some(home) = &folders.home
            && !chosen("LLMSRV_REGISTRY_KEY")
        {
            config.registry_keys.push(home.join(".ollama/id_ed25519"));
        }
        if config.device == "auto"
            && let Some(gpu) = config.gpu
        {
            let device = if gpu { "vulkan" } else { "cpu" };
            device.clone_into(&mut config.device);
        }
        for timeout in [&mut config.load_timeout, &mut config.gpu_timeout] {
            *timeout = timeout.filter(|time| !time.is_zero());
        }
        config
    }

    /// Tells whether log lines are JSON objects.
    pub fn log_json(&self) -> bool {
        self.log_format == "json"
    }
}

impl Default for ServerConfig {
    /// The settings of a machine where nothing is set and there are no usual folders.
    fn default() -> ServerConfig {
        let folders = Folders::none();
        ServerConfig::read(&Values(&defaults(&folders)), &folders)
    }
}

impl HostConfig {
    /// Returns the log of a server in the background: one for each port, where none is named.
    pub fn log_of(&self, port: u16) -> PathBuf {
        let usual = || self.state_dir.join(format!("server-{port}.log"));
        self.log_file.clone().unwrap_or_else(usual)
    }
}
