//! What a server needs to know.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use http_front::TlsError;
use logkit::{Durability, Sink, SinkError};

/// What a server needs to know; [`Settings::default`] is for this machine alone.
pub struct Settings {
    /// Host and port of HTTP; port 0 takes a free one.
    pub http: (String, u16),
    /// Host and port of gRPC; `None` switches it off.
    pub grpc: Option<(String, u16)>,
    /// The database; made when it does not exist, its folder too.
    pub database: PathBuf,
    /// Sinks that get every entry as well. When they fail, callers do not notice.
    pub sinks: Vec<Box<dyn Sink>>,
    /// Keys of which a caller must have one; empty lets everybody in.
    pub api_keys: Vec<String>,
    /// Certificate and key of https and of gRPC over TLS.
    pub tls: Option<TlsFiles>,
    /// Web pages of other origins that may call, such as `https://example.org`; `*` lets all.
    pub cors_origins: Vec<String>,
    /// Blank secrets in what is stored.
    pub redact: bool,
    /// Entries that may wait to be written; beyond that callers are told to come back.
    pub queue: usize,
    /// When an entry is safe. A reply always waits for the commit; `Full` also for the disk.
    pub durability: Durability,
    /// How long running requests may take after a signal to stop.
    pub drain: Duration,
    /// Connections at the same time; more of them wait.
    pub max_connections: usize,
    /// Called once, when the server answers.
    pub on_ready: Option<OnReady>,
}

/// Told where a server listens.
pub type OnReady = Box<dyn FnOnce(&Bound) + Send>;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            http: ("127.0.0.1".into(), 8080),
            grpc: Some(("127.0.0.1".into(), 50051)),
            database: "logkit_central.db".into(),
            sinks: Vec::new(),
            api_keys: Vec::new(),
            tls: None,
            cors_origins: Vec::new(),
            redact: true,
            queue: 65_536,
            durability: Durability::default(),
            drain: Duration::from_secs(5),
            max_connections: 1024,
            on_ready: None,
        }
    }
}

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain of certificates, the server's own one first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Where a server answers.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Address of HTTP.
    pub http: SocketAddr,
    /// Address of gRPC.
    pub grpc: Option<SocketAddr>,
    /// What the owner should know, one sentence each.
    pub warnings: Vec<String>,
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is taken, or not of this machine.
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        /// Host as given.
        host: String,
        /// Port as given.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The folder of the database cannot be made.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The database cannot be opened.
    #[error("cannot open the database: {0}")]
    Database(#[from] SinkError),
    /// A file of TLS cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The system gives no threads or signals.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
}
