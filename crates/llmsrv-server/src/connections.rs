//! Serving connections: what stands in front of the routes is that of both servers.

use std::io;

use http_front::{ConnectionLimits, Front, Tls};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{app::App, routes, upstream::Upstreams};

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
    let front = Front {
        router: routes::router(&app),
        tls,
        limits: ConnectionLimits::new(app.settings.config.max_connections),
    };
    // Ends with this function.
    let mut background = JoinSet::new();
    background.spawn(Upstreams::watch(app.live.upstreams()));
    let stopped = async {
        shutdown.await;
        app.stop();
    };
    front.serve(listener, app.heartbeat.beat(), stopped).await;
    Ok(())
}
