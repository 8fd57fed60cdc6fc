//! Accepting connections: how many, with TLS or without, and how long one may say nothing.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto::Builder,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Notify, Semaphore, watch},
    task::JoinSet,
};
use tower::ServiceExt as _;

use crate::{access::Peer, app::App, tls::Tls, upstream::Upstreams};

/// Serves connections until `shutdown`, then until the running requests have ended.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    accept(listener, None, app, shutdown).await
}

/// As [`serve`], over TLS.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Tls,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    accept(listener, Some(tls), app, shutdown).await
}

async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let http = Http {
        router: app.router(),
        builder: builder(),
    };
    // Ends with this function.
    let mut background = JoinSet::new();
    background.spawn(Upstreams::watch(app.live.upstreams()));
    let room = Arc::new(Semaphore::new(app.settings.security.max_connections));
    let connections = GracefulShutdown::new();
    // Dropped when the server ends.
    let (running, ending) = watch::channel(());
    let mut shutdown = std::pin::pin!(shutdown);
    // Polled wherever this loop waits.
    let mut beat = std::pin::pin!(app.pulse.beat());
    let mut was_full = false;
    loop {
        if room.available_permits() == 0 && !was_full {
            was_full = true;
            tracing::warn!("the limit of connections is reached; new ones wait");
        }
        let place = tokio::select! {
            place = room.clone().acquire_owned() => place.map_err(io::Error::other)?,
            () = &mut shutdown => break,
            () = &mut beat => continue,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
            () = &mut beat => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, for example: others may close theirs.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Tokens are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        let (http, tls, watcher) = (http.clone(), tls.clone(), connections.watcher());
        let mut ending = ending.clone();
        // A handshake happens here as well, so that a slow one holds up nobody else.
        tokio::spawn(async move {
            match tls {
                None => http.serve(stream, Peer(address), watcher).await,
                Some(tls) => tokio::select! {
                    shaken = tls.accept(stream) => match shaken {
                        Ok(stream) => http.serve(stream, Peer(address), watcher).await,
                        Err(error) => tracing::debug!(%error, client = %address, "no TLS handshake"),
                    },
                    _ = ending.changed() => {}
                },
            }
            drop(place);
        });
    }
    app.stop();
    drop((listener, running));
    connections.shutdown().await;
    Ok(())
}

/// What every connection is served with.
#[derive(Clone)]
struct Http {
    router: Router,
    builder: Builder<TokioExecutor>,
}

impl Http {
    /// Serves the requests of one connection.
    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        watcher: Watcher,
    ) {
        let first = Arc::new(Notify::new());
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
            let router = self.router.clone();
            first.notify_one();
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                router
                    .oneshot(request)
                    .await
                    .map_err(|never: Infallible| match never {})
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        // The time-out for headers only runs once it is clear which version of HTTP this is.
        let silence = async {
            if tokio::time::timeout(HEADER_TIMEOUT, first.notified())
                .await
                .is_ok()
            {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            },
            () = silence => tracing::debug!("a connection sent no request"),
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES as usize)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Finds out when the other end is gone.
        .keep_alive_interval(HEADER_TIMEOUT)
        .max_header_list_size(MAX_HEAD_BYTES);
    builder
}

const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEADERS: usize = 100;
/// Request line and headers together.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
