//! `llmsrv serve`: the server in the foreground.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use llmsrv_api::client::Client;
use llmsrv_config::{Address, Flag};
use llmsrv_host::instance::{Instance, Record};
use llmsrv_server::{App, Tls};
use tokio::{
    net::TcpListener,
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{
    about::VERSION,
    cli::{ApplyArgs, ServeArgs},
    commands::{background, is_open, listens, service},
    context::Context,
    failure::Failure,
    local::{self, Prune},
    logging, notify,
    reload::{self, Reloader},
    term,
};

/// Most threads for connections; the arithmetic has its own.
const MAX_WORKERS: usize = 4;

/// Turns the arguments into settings.
pub fn flags(args: &ServeArgs) -> Vec<Flag> {
    [
        ("LLMSRV_PRELOAD", "--preload", &args.preload),
        ("LLMSRV_KEEP_ALIVE", "--keep-alive", &args.keep_alive),
        ("LLMSRV_NUM_PARALLEL", "--parallel", &args.parallel),
    ]
    .into_iter()
    .filter_map(|(setting, flag, value)| {
        Some(Flag {
            setting,
            flag,
            value: value.clone()?,
        })
    })
    .collect()
}

/// Serves until a signal; or lets the service or the background do it.
pub fn run(context: &Context, args: &ServeArgs) -> Result<(), Failure> {
    let manner = ApplyArgs {
        user: args.user,
        dry_run: args.dry_run,
        json: false,
    };
    if args.install {
        let network = args.network;
        return service::install_and_start(context, manner, network);
    }
    if args.background {
        return background::run(context, args, manner);
    }
    if args.dry_run {
        let text = "--dry-run needs --background or --install";
        return Err(Failure::usage(text));
    }
    if args.detached {
        // Whoever is the first of its session already has no terminal.
        let _ = llmsrv_host::background::detach();
    }
    in_foreground(context, args.detached)
}

fn in_foreground(context: &Context, is_detached: bool) -> Result<(), Failure> {
    let log = logging::start(context.config(), logging::Style::Server)?;
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_WORKERS);
    llmsrv_memory::give_back();
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()?;
    let requests = log.requests();
    let result = runtime.block_on(serve(context, log, is_detached));
    // A load that still runs must not keep the program.
    runtime.shutdown_background();
    if let Some(requests) = requests {
        requests.close();
    }
    result
}

async fn serve(context: &Context, log: logging::Control, is_detached: bool) -> Result<(), Failure> {
    let config = &context.config().server;
    // Before anything slow: a signal during the start counts.
    let mut signals = Signals::new()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (keys, tls) = (local::keys(config)?, reload::tls(config)?);
    let listener = listen(&config.host).await?;
    let address = listener.local_addr()?;
    let store = local::open_store(config, Prune::Yes)?;
    let scheme = Scheme::of(tls.as_ref());
    let instance = instance(context, address, scheme, is_detached);
    announce(context, &instance, &store);
    let _record = write_down(context, &instance);
    if is_open(&instance) && !keys.are_required() {
        warn_of_network(context, &instance);
    }
    let mut settings = local::settings(context.config(), keys.clone())?;
    let workers = local::workers(config, logging::Style::Server);
    local::use_accelerators(context.config(), &mut settings, &workers);
    let app = local::app(settings, store, workers);
    let reloader = Reloader::new(context, app.clone(), tls.clone(), keys, log);

    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(preload(app.clone(), config.preload.clone()));
    let stopped = async {
        let _ = stopped.await;
    };
    let watched = app.clone();
    let mut server = tokio::spawn(async move {
        match tls {
            Some(tls) => llmsrv_server::serve_tls(listener, tls, app, stopped).await,
            None => llmsrv_server::serve(listener, app, stopped).await,
        }
    });
    // Connections wait already where the loop has not begun to accept them.
    notify::ready(&base_url(address, scheme));
    let watched = tokio::spawn(notify::watch(watched));
    tokio::select! {
        ended = &mut server => return Ok(ended?.context("the server failed")?),
        name = signals.next() => tracing::info!(signal = name, "stopping"),
        () = reloader.run(&mut hangup) => tracing::info!("stopping with the terminal"),
    }
    notify::stopping();
    watched.abort();
    let _ = stop.send(());
    let grace = async {
        match config.grace {
            Some(grace) => tokio::time::sleep(grace).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = &mut server => ended?.context("the server failed")?,
        () = grace => tracing::warn!("requests were still running after the grace period"),
        name = signals.next() => tracing::warn!(signal = name, "stopping at once"),
    }
    Ok(())
}

/// Takes the address; when that fails, says what to do about it.
pub async fn listen(address: &Address) -> Result<TcpListener, Failure> {
    let bound = if address.host.is_empty() {
        // Every interface, of both families where the machine has both.
        match TcpListener::bind(("::", address.port)).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(("0.0.0.0", address.port)).await
            }
            bound => bound,
        }
    } else {
        TcpListener::bind((address.host.trim_end_matches('.'), address.port)).await
    };
    let error = match bound {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    let other_port = address.port.checked_add(1).unwrap_or(8080);
    let (kind, authority) = (error.kind(), address.authority());
    if kind == io::ErrorKind::AddrInUse {
        let who = who_listens(address).await;
        return Err(
            Failure::failed(format!("cannot listen on {authority}: {who}")).hint(format!(
                "stop it, or choose another port: `llmsrv serve -p {other_port}`"
            )),
        );
    }
    let failure =
        Failure::from(anyhow::Error::new(error).context(format!("cannot listen on {authority}")));
    Err(match kind {
        io::ErrorKind::PermissionDenied => {
            failure.hint("ports below 1024 need special rights; choose another one with -p")
        }
        io::ErrorKind::AddrNotAvailable => failure
            .hint("this machine does not have that address; `--network` listens on all it has"),
        _ => failure,
    })
}

/// Asks whoever has the port what it is.
async fn who_listens(address: &Address) -> String {
    let client = Client::new(
        &Address {
            tls: false,
            ..address.clone()
        }
        .url(),
        None,
    );
    let version = async { client.ok()?.version().await.ok() };
    match tokio::time::timeout(Duration::from_secs(1), version).await {
        Ok(Some(version)) => format!("a server of version {version} listens there already"),
        _ => "another program listens there already".to_owned(),
    }
}

/// Says where the server is and what it has.
fn announce(context: &Context, instance: &Instance, store: &llmsrv_store::Store) {
    // `default` stands for one of the others.
    let models = store.list().map_or(0, |models| {
        models
            .iter()
            .filter(|model| model.stands_for.is_none())
            .count()
    });
    let (url, bound) = (&instance.url, &instance.bound);
    let folder = store.root().display();
    if context.config().server.log_json() {
        tracing::info!(url, bound, version = VERSION, models, folder = %folder, "listening");
    } else if !context.global.quiet {
        let plural = if models == 1 { "" } else { "s" };
        let (strong, at) = (term::STRONG, listens(instance));
        term::note(format_args!(
            "llmsrv {VERSION} listens on {strong}{at}{strong:#} ({models} model{plural} in {folder})"
        ));
    }
}

/// Warns of a server that others reach without a key; also where only errors are printed.
fn warn_of_network(context: &Context, instance: &Instance) {
    let at = listens(instance);
    if context.global.quiet && !context.config().server.log_json() {
        service::warn_of_network(&at, None);
    } else {
        tracing::warn!(
            "open to the network without keys: whoever reaches {at} can use the models; `llmsrv key add NAME` makes a key"
        );
    }
}

/// Describes this server.
fn instance(context: &Context, address: SocketAddr, scheme: Scheme, is_detached: bool) -> Instance {
    let (url, bound) = (base_url(address, scheme), address.ip().to_string());
    let mut instance = Instance::this(address.port(), &url, &bound, VERSION);
    let host = &context.config().host;
    instance.log = is_detached.then(|| host.log_of(address.port()));
    instance
}

/// Lets `status` and `stop` find this server; it runs as well without.
fn write_down(context: &Context, instance: &Instance) -> Option<Record> {
    let folder = &context.config().host.runtime_dir;
    Record::write(folder, instance)
        .inspect_err(|error| {
            tracing::warn!(%error, folder = %folder.display(), "`llmsrv stop` will not find this server");
        })
        .ok()
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn of(tls: Option<&Tls>) -> Scheme {
        tls.map_or(Scheme::Http, |_| Scheme::Https)
    }
}

/// Returns the URL that reaches a listener from this machine.
fn base_url(address: SocketAddr, scheme: Scheme) -> String {
    Address {
        tls: scheme == Scheme::Https,
        host: address.ip().to_string(),
        port: address.port(),
        path: String::new(),
    }
    .url()
}

/// Loads the models of the setting, one after the other, for good.
async fn preload(app: App, models: Vec<String>) {
    for model in &models {
        match app.preload(model).await {
            Ok(()) => tracing::info!(model, "preloaded"),
            Err(error) => tracing::warn!(model, %error, "cannot preload"),
        }
    }
}

/// The signals that end a server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    #[tokio::test]
    async fn a_taken_port_is_explained() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&taken.local_addr().unwrap().to_string()).unwrap();
        let failure = listen(&address).await.unwrap_err();
        assert_eq!(failure.code, Code::Failed);
        assert!(
            failure.to_string().contains(&address.authority()),
            "{failure}"
        );
        assert!(failure.hint.unwrap().contains("-p"));
    }

    #[tokio::test]
    async fn every_interface_is_reached_from_this_machine() {
        let listener = listen(&Address::parse(":0").unwrap()).await.unwrap();
        let url = base_url(listener.local_addr().unwrap(), Scheme::Http);
        assert!(
            url.starts_with("http://127.0.0.1:") || url.starts_with("http://[::1]:"),
            "{url}"
        );
    }
}
