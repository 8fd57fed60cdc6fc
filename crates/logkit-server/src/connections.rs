//! Accepting connections: how many, with TLS or without, and how long one may say nothing.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt as _;
use http_front::{AcceptFailures, ConnectionLimits, ConnectionPermit, is_out_of_files};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Notify, watch},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// Serves connections until `stopping` changes, then until the running requests have ended, but
/// no longer than `drain`.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Arc<ConnectionLimits>,
    mut stopping: watch::Receiver<bool>,
    drain: Duration,
) {
    let builder = builder();
    let graceful = GracefulShutdown::new();
    let mut failures = AcceptFailures::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.changed() => break,
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
                    _ = stopping.changed() => break,
                }
            }
        };
        failures.end();
        tokio::select! {
            () = limits.room() => {}
            _ = stopping.changed() => break,
        }
        let Some(place) = limits.enter(address) else {
            tracing::debug!(client = %address, "too many connections of one address");
            continue;
        };
        let place = Arc::new(place);
        // Replies are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        let (builder, router, tls) = (builder.clone(), router.clone(), tls.clone());
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let served = async {
                match tls {
                    None => one(&builder, stream, router, watcher, &place).await,
                    Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        Ok(Ok(stream)) => one(&builder, stream, router, watcher, &place).await,
                        Ok(Err(error)) => tracing::debug!(%error, "no TLS handshake"),
                        Err(_) => tracing::debug!("a TLS handshake took too long"),
                    },
                }
            };
            tokio::select! {
                () = served => {}
                () = place.told_to_leave() => tracing::debug!(client = %address, "an idle connection made room"),
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(drain, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("requests were still running when the time to stop was over");
    }
}

async fn one(
    builder: &Builder<TokioExecutor>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
    place: &Arc<ConnectionPermit>,
) {
    let first = Arc::new(Notify::new());
    let (came, place) = (first.clone(), place.clone());
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        came.notify_one();
        let router = router.clone();
        let running = place.request();
        async move {
            let answer = router.oneshot(request.map(Body::new)).await?;
            // Until all of the answer is sent.
            Ok::<_, Infallible>(answer.map(|body| {
                Body::new(body.map_err(move |error| {
                    let _running = &running;
                    error
                }))
            }))
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // The time-out for headers only runs once it is clear which version of HTTP this is.
    let silence = async {
        if tokio::time::timeout(HEADERS, first.notified())
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

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(MAX_HEAD_BYTES as usize)
        .max_headers(100);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Finds out when the other end is gone.
        .keep_alive_interval(HEADERS)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_header_list_size(MAX_HEAD_BYTES);
    builder
}

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(30);
/// Request line and headers together.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
