//! The server a command talks to: the running one or, when there is none, one inside this process.

use std::path::Path;

use anyhow::Context as _;
use llmsrv_api::client::{self, Client};
use llmsrv_config::{Address, ServerConfig};
use tokio::runtime::{Builder, Runtime};

use crate::{
    context::Context,
    failure::{Code, Failure},
    local::{Access, Local},
};

/// A server that answers.
pub struct Connection {
    /// Calls to it.
    pub client: Client,
    local: Option<Local>,
}

impl Connection {
    /// Connects to the running server; when none runs, the address is of this machine and the
    /// command line names none, starts one in this process that only this process can use.
    pub async fn open(context: &Context, access: Access) -> Result<Connection, Failure> {
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
            }) if config.host.is_local() && !address(config).tls && !context.names_server() => {
                let local = Local::start(context, access).await?;
                let client = Client::new(local.url(), Some(local.key().to_owned()))?;
                Ok(Connection {
                    client,
                    local: Some(local),
                })
            }
            Err(failure) => Err(failure),
        }
    }

    /// Does `work` with a connection, which ends after it whatever came of it.
    pub fn with<T>(
        context: &Context,
        access: Access,
        work: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        runtime()?.block_on(async {
            let connection = Connection::open(context, access).await?;
            let done = work(&connection).await;
            connection.close().await;
            done
        })
    }

    /// Starts a server in this process whose only model is a file.
    pub async fn over_file(
        context: &Context,
        file: &Path,
        name: &str,
    ) -> Result<Connection, Failure> {
        if context.names_server() {
            let text = "a file is run by this process, and not by a server";
            return Err(Failure::usage(text)
                .hint("`llmsrv create NAME --from FILE` gives it to the server"));
        }
        let local = Local::over_file(context, file, name).await?;
        Ok(Connection {
            client: Client::new(local.url(), Some(local.key().to_owned()))?,
            local: Some(local),
        })
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

/// What a server says to someone who wants to know whether it is there.
pub enum Greeting {
    /// Its version.
    Version(String),
    /// It is there, and tells more to those who have a key.
    WantsKey,
    /// It is not there, or is no server of this kind.
    None(client::Error),
}

/// Asks a server for its version.
pub async fn greet(client: &Client) -> Greeting {
    match client.version().await {
        Ok(version) => Greeting::Version(version),
        Err(client::Error::Status {
            status: 401 | 403, ..
        }) => Greeting::WantsKey,
        Err(error) => Greeting::None(error),
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
pub fn address(config: &ServerConfig) -> Address {
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
