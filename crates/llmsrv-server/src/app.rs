//! The server as a whole: its settings, its shared state, and serving connections.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{Router, body::Body, middleware};
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use llmsrv_engine::{LoadOptions, Loader};
use llmsrv_store::Store;
use tokio::{net::TcpListener, task::JoinSet};
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    error::ApiError,
    guard,
    manager::Manager,
    routes,
    upstream::{Upstream, Upstreams},
};

/// Everything that can be chosen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Origins of web pages allowed besides the built-in list.
    pub origins: Vec<String>,
    /// Keys of which every request must carry one; empty = no check.
    pub api_keys: Vec<String>,
    /// How long an idle model stays loaded; `None` = for ever.
    pub keep_alive: Option<Duration>,
    /// How long loading may take; `None` = no limit.
    pub load_timeout: Option<Duration>,
    /// Requests one model answers at the same time; 0 = automatic.
    pub num_parallel: usize,
    /// Models loaded at the same time; 0 = automatic.
    pub max_loaded_models: usize,
    /// Requests that may wait.
    pub max_queue: usize,
    /// Context in tokens when nobody says; 0 = automatic.
    pub context_length: usize,
    /// How models are loaded.
    pub load: LoadOptions,
    /// What `/api/version` reports.
    pub version: String,
    /// Only this machine can connect.
    pub listens_on_loopback: bool,
    /// Log the bodies of requests.
    pub log_requests: bool,
    /// Servers that answer for some models.
    pub upstreams: Vec<Upstream>,
}

impl Settings {
    /// Returns how many requests one model answers at the same time. They are computed together over
    /// shared memory, so more than one costs nothing until it is used.
    pub(crate) fn parallel(&self) -> usize {
        if self.num_parallel == 0 {
            DEFAULT_PARALLEL
        } else {
            self.num_parallel
        }
    }

    /// Returns the context in tokens for what a request asks.
    pub(crate) fn context(&self, asked: Option<i64>) -> usize {
        let default = if self.context_length == 0 {
            DEFAULT_CONTEXT
        } else {
            self.context_length
        };
        let asked = asked
            .filter(|asked| *asked > 0)
            .and_then(|asked| usize::try_from(asked).ok());
        asked.unwrap_or(default).max(MIN_CONTEXT)
    }
}

/// The server; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(crate) settings: Arc<Settings>,
    pub(crate) store: Arc<Store>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) upstreams: Arc<Upstreams>,
}

impl App {
    /// Makes a server over a store of models.
    pub fn new(settings: Settings, store: Store, loader: Loader) -> App {
        let (settings, store) = (Arc::new(settings), Arc::new(store));
        let manager = Arc::new(Manager::new(settings.clone(), store.clone(), loader));
        let upstreams = Arc::new(Upstreams::new(&settings.upstreams));
        App {
            settings,
            store,
            manager,
            upstreams,
        }
    }

    /// Returns the service that answers requests.
    pub fn router(&self) -> Router {
        routes::router(self.clone())
            .layer(middleware::from_fn_with_state(self.clone(), guard::check))
            .layer(CatchPanicLayer::custom(|_| {
                tracing::error!("a request handler panicked");
                axum::response::IntoResponse::into_response(ApiError::internal("internal error"))
            }))
    }

    /// Logs the body of a request where that was asked for, before it is worked on.
    pub(crate) fn log_body(&self, path: &str, body: &[u8]) {
        if self.settings.log_requests {
            tracing::info!(path, body = %String::from_utf8_lossy(body), "request body");
        }
    }
}

/// Serves connections until `shutdown`, then until the running requests have ended.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = app.router();
    let upstreams = app.upstreams.clone();
    // Ends with this function.
    let mut background = JoinSet::new();
    background.spawn(async move { upstreams.watch().await });
    let connections = GracefulShutdown::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, for example: others may close theirs.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Tokens are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let router = router.clone();
            async move {
                router
                    .oneshot(request.map(Body::new))
                    .await
                    .map_err(|never: Infallible| match never {})
            }
        });
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
    Ok(())
}

/// As the reference server on a machine without a large GPU.
const DEFAULT_CONTEXT: usize = 4096;
const MIN_CONTEXT: usize = 4;
const DEFAULT_PARALLEL: usize = 4;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: u32 = 64 * 1024;
