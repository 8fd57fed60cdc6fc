//! The server a command talks to: the running one or, when there is none, one inside this process.

use llmsrv_api::client::{self, Client};
use tokio::runtime::{Builder, Runtime};

use crate::{context::Context, failure::Failure, local::Local};

/// A server that answers.
pub struct Connection {
    /// Calls to it.
    pub client: Client,
    local: Option<Local>,
}

impl Connection {
    /// Connects to the running server; when none runs and the address is of this machine, starts
    /// one in this process that only this process can use.
    pub async fn open(context: &Context) -> Result<Connection, Failure> {
        match running(context).await {
            Ok(client) => Ok(Connection {
                client,
                local: None,
            }),
            Err(client::Error::Unreachable { .. }) if context.config().server.host.is_local() => {
                let local = Local::start(context).await?;
                let client = Client::new(local.url(), Some(local.key().to_owned()))?;
                Ok(Connection {
                    client,
                    local: Some(local),
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tells whether the server is inside this process.
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Ends the connection, and the server if it is ours.
    pub async fn close(self) {
        if let Some(local) = self.local {
            local.stop().await;
        }
    }
}

/// Connects to the running server.
pub async fn running(context: &Context) -> Result<Client, client::Error> {
    let config = context.config();
    let key = config
        .client
        .api_key
        .as_ref()
        .map(|key| key.expose().to_owned());
    let mut address = config.server.host.clone();
    // The settings of a server on this machine say that it speaks https.
    address.tls |= config.server.tls_cert.is_some() && address.is_local();
    let client = Client::new(&address.url(), key)?;
    match client.version().await {
        // A server that refuses is there; the real call says why it refuses.
        Ok(_) | Err(client::Error::Status { .. }) => Ok(client),
        Err(error) => Err(error),
    }
}

/// Starts what runs the calls of a command.
pub fn runtime() -> Result<Runtime, Failure> {
    // One thread for the command, one for the server that may be inside this process.
    Ok(Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}
