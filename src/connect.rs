//! The server a command talks to: the running one or, when there is none, one inside this process.

use anyhow::Context as _;
use llmsrv_api::client::{self, Client};
use llmsrv_config::{Address, ServerConfig};
use tokio::runtime::{Builder, Runtime};

use crate::{
    context::Context,
    failure::{Code, Failure},
    local::Local,
};

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
        let config = &context.config().server;
        match running(context).await {
            Ok(client) => Ok(Connection {
                client,
                local: None,
            }),
            // An https server that cannot be trusted is there: the reason must be told.
            Err(Failure {
                code: Code::Unreachable,
                ..
            }) if config.host.is_local() && !address(config).tls => {
                let local = Local::start(context).await?;
                let client = Client::new(local.url(), Some(local.key().to_owned()))?;
                Ok(Connection {
                    client,
                    local: Some(local),
                })
            }
            Err(failure) => Err(failure),
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
pub async fn running(context: &Context) -> Result<Client, Failure> {
    let client = client(context)?;
    match client.version().await {
        // A server that refuses is there; the real call says why it refuses.
        Ok(_) | Err(client::Error::Status { .. }) => Ok(client),
        Err(error) => Err(error.into()),
    }
}

/// Prepares calls to the server, whether it runs or not.
pub fn client(context: &Context) -> Result<Client, Failure> {
    let config = context.config();
    let key = config
        .client
        .api_key
        .as_ref()
        .map(|key| key.expose().to_owned());
    let url = address(&config.server).url();
    match &config.client.ca_cert {
        Some(path) => {
            let trusted = std::fs::read(path)
                .with_context(|| format!("cannot read LLMSRV_CA_CERT {}", path.display()))?;
            Ok(Client::trusting(&url, key, &trusted)?)
        }
        None => Ok(Client::new(&url, key)?),
    }
}

/// Returns where the server is. The settings of one on this machine say whether it speaks https.
fn address(config: &ServerConfig) -> Address {
    let mut address = config.host.clone();
    address.tls |= config.tls_cert.is_some() && address.is_local();
    address
}

/// Starts what runs the calls of a command.
pub fn runtime() -> Result<Runtime, Failure> {
    // One thread for the command, one for the server that may be inside this process.
    Ok(Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}
