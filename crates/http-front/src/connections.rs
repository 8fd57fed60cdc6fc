//! Accepting connections: how many, with TLS or without, and how long one may say nothing.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt as _;
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
    sync::{Notify, watch},
};
use tower::ServiceExt as _;

use crate::{
    Tls,
    accept::{AcceptFailures, is_out_of_files},
    connection_limits::{ConnectionLimits, ConnectionPermit},
};

/// The other end of the connection that a request came on: found among the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// What answers requests, and on what terms connections to it are accepted.
#[derive(Clone)]
pub struct Front {
    /// Answers the requests, each with its [`Peer`] among the extensions.
    pub router: Router,
    /// `None` = without TLS.
    pub tls: Option<Tls>,
    /// How many connections there may be; several listeners can share them.
    pub limits: Arc<ConnectionLimits>,
}

impl Front {
    /// Serves connections until `shutdown`, then until the running requests have ended. `heartbeat`
    /// is polled wherever connections are waited for.
    pub async fn serve(
        self,
        listener: TcpListener,
        heartbeat: impl Future<Output = Infallible>,
        shutdown: impl Future<Output = ()>,
    ) {
        let Front {
            router,
            tls,
            limits,
        } = self;
        let http = Http {
            router,
            builder: builder(),
        };
        let connections = GracefulShutdown::new();
        // Dropped when the server ends.
        let (running, ending) = watch::channel(());
        let mut shutdown = std::pin::pin!(shutdown);
        let mut heartbeat = std::pin::pin!(heartbeat);
        let mut failures = AcceptFailures::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut shutdown => break,
                never = &mut heartbeat => match never {},
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    let backoff = failures.add(&error);
                    if is_out_of_files(&error) {
                        limits.close_idle();
                    }
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => continue,
                        () = &mut shutdown => break,
                    }
                }
            };
            failures.end();
            // It waits here, and with it all who come after.
            tokio::select! {
                () = limits.room() => {}
                () = &mut shutdown => break,
                never = &mut heartbeat => match never {},
            }
            let Some(place) = limits.enter(address) else {
                tracing::debug!(client = %address, "too many connections of one address");
                continue;
            };
            let place = Arc::new(place);
            // What is sent is small and must not wait for more.
            let _ = stream.set_nodelay(true);
            let (http, tls, watcher) = (http.clone(), tls.clone(), connections.watcher());
            let mut ending = ending.clone();
            // A handshake happens here as well, so that a slow one holds up nobody else.
            tokio::spawn(async move {
                let served = async {
                    match tls {
                        None => http.serve(stream, Peer(address), watcher, &place).await,
                        Some(tls) => tokio::select! {
                            shaken = tls.accept(stream) => match shaken {
                                Ok(stream) => http.serve(stream, Peer(address), watcher, &place).await,
                                Err(error) => tracing::debug!(%error, client = %address, "no TLS handshake"),
                            },
                            _ = ending.changed() => {}
                        },
                    }
                };
                tokio::select! {
                    () = served => {}
                    () = place.told_to_leave() => tracing::debug!(client = %address, "an idle connection made room"),
                }
            });
        }
        drop((listener, running));
        connections.shutdown().await;
    }
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
        place: &Arc<ConnectionPermit>,
    ) {
        let (first, place) = (Arc::new(Notify::new()), place.clone());
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
            let router = self.router.clone();
            first.notify_one();
            let running = place.request();
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                let response = router.oneshot(request).await?;
                // Until all of the answer is sent.
                Ok::<_, Infallible>(response.map(|body| {
                    Body::new(body.map_err(move |error| {
                        let _running = &running;
                        error
                    }))
                }))
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
