//! Settings of the commands that talk to a server.

use std::path::PathBuf;

use crate::{Secret, values::Values};

/// `[client]`
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Key sent to the server.
    pub api_key: Option<Secret>,
    /// CA certificates in PEM form to trust; `None` = those of the system.
    pub ca_cert: Option<PathBuf>,
    /// Nothing typed in `llmsrv run` is kept.
    pub no_history: bool,
}

impl ClientConfig {
    pub(crate) fn new(values: &Values<'_>) -> ClientConfig {
        ClientConfig {
            api_key: values
                .read::<Option<String>>("LLMSRV_API_KEY")
                .map(Secret::new),
            ca_cert: values.read("LLMSRV_CA_CERT"),
            no_history: values.read("LLMSRV_NOHISTORY"),
        }
    }
}
