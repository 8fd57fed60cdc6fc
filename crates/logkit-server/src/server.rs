//! Starting, running and stopping.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    sync::Arc,
    time::Duration,
};

use http_front::{ConnectionLimits, Front, PemFiles, Tls};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::{
    app::App,
    grpc,
    guard::Guard,
    metrics::Metrics,
    settings::{Bound, Error, Settings, TlsFiles},
    store::Store,
    web,
};

/// Runs the services until SIGTERM or SIGINT, then until running requests have ended and all that
/// was taken is written; blocks.
pub fn serve(mut settings: Settings) -> Result<(), Error> {
    let on_ready = settings.on_ready.take();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("logkit-server")
        .build()
        .map_err(Error::Start)?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
        let server = Server::start(settings).await?;
        let bound = server.bound();
        tracing::info!(http = %bound.http, grpc = ?bound.grpc, "logkit server ready");
        for warning in &bound.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(on_ready) = on_ready {
            on_ready(bound);
        }
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        server.stop().await;
        Ok(())
    });
    // A query that still runs in a thread must not hold up the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

/// Services that run in the current runtime.
pub struct Server {
    bound: Bound,
    store: Store,
    stopping: watch::Sender<bool>,
    running: JoinSet<()>,
    /// Take up certificates that change; end with this.
    _followers: JoinSet<Infallible>,
}

impl Server {
    /// Opens the database and the ports.
    pub async fn start(mut settings: Settings) -> Result<Server, Error> {
        let tls = settings.tls.as_ref().map(read_tls).transpose()?;
        let http = listen(&settings.http).await?;
        let grpc = match &settings.grpc {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let store = Store::open(&mut settings)?;
        let address = |listener: &TcpListener| listener.local_addr().map_err(Error::Start);
        let mut bound = Bound {
            http: address(&http)?,
            grpc: grpc.as_ref().map(address).transpose()?,
            warnings: Vec::new(),
        };
        let guard = Guard::new(&settings.api_keys, &settings.cors_origins);
        bound
            .warnings
            .extend(exposed(&bound, guard.has_keys(), tls.is_some()));
        let (guard, metrics) = (Arc::new(guard), Arc::<Metrics>::default());
        let (stopping, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        let mut followers = JoinSet::new();
        let tls = tls.map(|(tls, files)| {
            followers.spawn(tls.clone().follow(files));
            tls
        });
        let limits = ConnectionLimits::new(settings.max_connections);
        let front = |router| Front {
            router,
            tls: tls.clone(),
            limits: limits.clone(),
        };
        let app = App::new(
            store.clone(),
            guard.clone(),
            metrics.clone(),
            stopped.clone(),
        );
        let app = front(web::router(app));
        running.spawn(serve_until(app, http, stopped.clone(), settings.drain));
        if let Some(listener) = grpc {
            let services = front(grpc::router(store.clone(), guard, metrics).await);
            running.spawn(serve_until(services, listener, stopped, settings.drain));
        }
        Ok(Server {
            bound,
            store,
            stopping,
            running,
            _followers: followers,
        })
    }

    /// Where it answers.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Takes no more connections, lets running requests end for a while, writes what waits.
    pub async fn stop(mut self) {
        let _ = self.stopping.send(true);
        while self.running.join_next().await.is_some() {}
        let store = self.store;
        let _ = tokio::task::spawn_blocking(move || store.close()).await;
    }
}

/// Serves connections until `stopping` changes, then until the running requests have ended, but no
/// longer than `drain`.
async fn serve_until(
    front: Front,
    listener: TcpListener,
    stopping: watch::Receiver<bool>,
    drain: Duration,
) {
    let stopped = |mut stopping: watch::Receiver<bool>| async move {
        // Whoever could change it may be gone as well.
        let _ = stopping.changed().await;
    };
    let is_over = async {
        stopped(stopping.clone()).await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        () = front.serve(listener, std::future::pending(), stopped(stopping.clone())) => {}
        () = is_over => tracing::warn!("requests were still running when the time to stop was over"),
    }
}

/// Reads certificate and key.
fn read_tls(files: &TlsFiles) -> Result<(Tls, PemFiles), Error> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| Error::TlsFile {
            path: path.to_owned(),
            source,
        })
    };
    let (certificates, key) = (read(&files.certificate)?, read(&files.key)?);
    let tls = Tls::new(&certificates, &key)?;
    let used = (certificates, key);
    let files = PemFiles::new(files.certificate.clone(), files.key.clone(), used);
    Ok((tls, files))
}

/// What the owner of a service should know that other machines can reach.
fn exposed(bound: &Bound, has_keys: bool, has_tls: bool) -> Option<String> {
    let open: Vec<String> = [("HTTP", Some(bound.http)), ("gRPC", bound.grpc)]
        .into_iter()
        .filter_map(|(name, address)| Some((name, address?)))
        .filter(|(_, address)| !is_loopback(address.ip()))
        .map(|(name, address)| format!("{name} on {}", addresses(address)))
        .collect();
    if open.is_empty() {
        return None;
    }
    let open = open.join(" and ");
    if !has_keys {
        let key = new_key().map_or_else(
            || "a long random text".to_owned(),
            |key| format!("for example {key}"),
        );
        return Some(format!(
            "other machines reach {open}, and no API key is asked for: everyone there can read and \
             write logs; set LOGKIT_API_KEY, {key}, or listen on 127.0.0.1"
        ));
    }
    (!has_tls).then(|| {
        format!("other machines reach {open} without TLS: keys and logs travel in the clear")
    })
}

/// An address that is listened on; of all addresses the one that others most likely use.
fn addresses(address: SocketAddr) -> String {
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    // Nothing is sent: the system only says which address it would send from.
    let near = UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        socket.connect(("192.0.2.1", 9))?;
        socket.local_addr()
    });
    match near {
        Ok(near) => format!("{address} ({}:{} among them)", near.ip(), address.port()),
        Err(_) => address.to_string(),
    }
}

/// A key that nobody guesses.
fn new_key() -> Option<String> {
    let mut bytes = [0; 16];
    let mut random = std::fs::File::open("/dev/urandom").ok()?;
    std::io::Read::read_exact(&mut random, &mut bytes).ok()?;
    Some(hex::encode(bytes))
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

async fn listen((host, port): &(String, u16)) -> Result<TcpListener, Error> {
    // Brackets around an address of version 6 are for people.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((name, *port))
        .await
        .map_err(|source| Error::Listen {
            host: host.clone(),
            port: *port,
            source,
        })
}
