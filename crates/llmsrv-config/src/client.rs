//! Settings of the commands that talk to a server.

use crate::{Secret, values::Values};

/// `[client]`
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Key sent to the server.
    pub api_key: Option<Secret>,
    /// Nothing typed in `llmsrv run` is kept.
    pub no_history: bool,
}

impl ClientConfig {
    pub(crate) fn new(values: &Values<'_>) -> ClientConfig {
        ClientConfig {
            api_key: values
                .read::<Option<String>>("LLMSRV_API_KEY")
                .map(Secret::new),
            no_history: values.read("LLMSRV_NOHISTORY"),
        }
    }
}
