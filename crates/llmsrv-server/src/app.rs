//! The server as a whole: its settings and its shared state.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use axum::{Router, extract::FromRef, middleware};
use llmsrv_api::{catalogue::Catalogue, keep_alive::KeepAlive};
use llmsrv_engine::{LoadOptions, Loader, Speculation};
use llmsrv_registry::Registry;
use llmsrv_store::Store;
use tokio::sync::{Notify, watch};
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    error::ApiError,
    guard,
    keys::Keys,
    manager::{DraftModel, Manager},
    metrics::Metrics,
    model_info::Capabilities,
    rate::{Limiter, Rate},
    request_log::Latest,
    routes, template,
    upstream::{Upstream, Upstreams},
    vocabularies::Vocabularies,
};

/// Everything that can be chosen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Origins of web pages allowed besides the built-in list.
    pub origins: Vec<String>,
    /// Who may do what, and how much.
    pub security: Security,
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
    /// Bytes that all loaded models may take; `None` = nine tenths of what the machine has left.
    pub memory_limit: Option<u64>,
    /// Context in tokens when nobody says; 0 = automatic.
    pub context_length: usize,
    /// How models are loaded.
    pub load: LoadOptions,
    /// Speculative decoding.
    pub speculation: Speculation,
    /// Draft models.
    pub draft_models: Vec<DraftModel>,
    /// What `/api/version` reports.
    pub version: String,
    /// Only this machine can connect.
    pub listens_on_loopback: bool,
    /// Log the bodies of requests.
    pub log_requests: bool,
    /// How registries are used.
    pub registry: llmsrv_registry::Settings,
    /// Servers that answer for some models.
    pub upstreams: Vec<Upstream>,
    /// What `/api/catalogue` lists; `None` = nothing.
    pub catalogue: Option<CatalogueSource>,
}

/// Makes the list of models that can be pulled. It may measure the machine for a moment.
#[derive(Clone)]
pub struct CatalogueSource(Arc<dyn Fn() -> Catalogue + Send + Sync>);

impl CatalogueSource {
    /// Takes what makes the list.
    pub fn new(make: impl Fn() -> Catalogue + Send + Sync + 'static) -> CatalogueSource {
        CatalogueSource(Arc::new(make))
    }

    pub(crate) fn list(&self) -> Catalogue {
        (self.0)()
    }
}

impl fmt::Debug for CatalogueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CatalogueSource")
    }
}

/// Who may do what, and how much.
#[derive(Clone, Debug)]
pub struct Security {
    /// Keys of which every request must carry one.
    pub keys: Keys,
    /// Other machines may change the models while there are no keys.
    pub allow_remote_management: bool,
    /// Requests of one client; `None` = no limit.
    pub rate_limit: Option<Rate>,
    /// Connections open at the same time.
    pub max_connections: usize,
}

impl Default for Security {
    fn default() -> Security {
        Security {
            keys: Keys::default(),
            allow_remote_management: false,
            rate_limit: None,
            max_connections: DEFAULT_CONNECTIONS,
        }
    }
}

impl Default for Settings {
    /// Those of a server for this machine alone.
    fn default() -> Settings {
        Settings {
            origins: Vec::new(),
            security: Security::default(),
            keep_alive: Some(DEFAULT_KEEP_ALIVE),
            load_timeout: None,
            num_parallel: 0,
            max_loaded_models: 0,
            max_queue: DEFAULT_QUEUE,
            memory_limit: None,
            context_length: 0,
            load: LoadOptions::default(),
            speculation: Speculation::Auto,
            draft_models: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listens_on_loopback: true,
            log_requests: false,
            registry: llmsrv_registry::Settings::default(),
            upstreams: Vec::new(),
            catalogue: None,
        }
    }
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

    /// Returns the context in tokens for what a request asks; `otherwise` where neither it nor a
    /// setting says.
    pub(crate) fn context(&self, asked: Option<i64>, otherwise: usize) -> usize {
        let default = if self.context_length == 0 {
            otherwise
        } else {
            self.context_length
        };
        let asked = asked
            .filter(|asked| *asked > 0)
            .and_then(|asked| usize::try_from(asked).ok());
        asked.unwrap_or(default).max(MIN_CONTEXT)
    }

    /// Returns the tokens for which a model has memory from the moment it is loaded; more is taken
    /// when a prompt needs it.
    pub(crate) fn reserved_context(&self) -> usize {
        self.context(None, DEFAULT_CONTEXT)
    }
}

/// The server; cheap to clone. A request has one of its own, whose settings are those of the moment
/// it began.
#[derive(Clone)]
pub struct App {
    pub(crate) settings: Arc<Settings>,
    pub(crate) store: Arc<Store>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) vocabularies: Arc<Vocabularies>,
    pub(crate) capabilities: Arc<Capabilities>,
    stopping: Arc<AtomicBool>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) registry: Registry,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) latest_requests: Arc<Latest>,
    pub(crate) live: Arc<ReloadableSettings>,
}

/// How the loop that accepts connections shows that it runs.
#[derive(Default)]
pub(crate) struct Heartbeat {
    asked: Notify,
    answered: Notify,
}

impl Heartbeat {
    /// Answers all who ask; ends never.
    pub(crate) async fn beat(&self) {
        loop {
            self.asked.notified().await;
            self.answered.notify_one();
        }
    }
}

/// What can be replaced while the server runs.
pub(crate) struct ReloadableSettings {
    settings: ArcSwap<Settings>,
    limiter: ArcSwapOption<Limiter>,
    /// Told to those who check their health.
    upstreams: watch::Sender<Arc<Upstreams>>,
}

impl ReloadableSettings {
    fn new(settings: Settings) -> ReloadableSettings {
        let limiter = settings.security.rate_limit.map(Limiter::new).map(Arc::new);
        let upstreams = Upstreams::new(&settings.upstreams, &Upstreams::default());
        ReloadableSettings {
            upstreams: watch::Sender::new(Arc::new(upstreams)),
            settings: ArcSwap::from_pointee(settings),
            limiter: ArcSwapOption::new(limiter),
        }
    }

    /// Returns the settings that hold now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Returns the servers that answer for models now.
    pub(crate) fn upstreams(&self) -> watch::Receiver<Arc<Upstreams>> {
        self.upstreams.subscribe()
    }

    /// Returns what counts requests, if anything does.
    pub(crate) fn limiter(&self) -> Option<Arc<Limiter>> {
        self.limiter.load_full()
    }
}

/// What the router holds.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) App);

impl FromRef<Shared> for App {
    fn from_ref(Shared(app): &Shared) -> App {
        App {
            settings: app.live.settings(),
            upstreams: app.live.upstreams.borrow().clone(),
            ..app.clone()
        }
    }
}

impl App {
    /// Makes a server over a store of models.
    pub fn new(settings: Settings, store: Store, loader: Loader) -> App {
        let (live, store) = (Arc::new(ReloadableSettings::new(settings)), Arc::new(store));
        let metrics = Arc::new(Metrics::new());
        let manager = Manager::new(live.clone(), store.clone(), loader, metrics.clone());
        let upstreams = live.upstreams.borrow().clone();
        let registry = Registry::with_check(
            live.settings().registry.clone(),
            store.clone(),
            template::check_pulled,
        );
        App {
            settings: live.settings(),
            store,
            manager,
            metrics,
            vocabularies: Arc::default(),
            capabilities: Arc::default(),
            stopping: Arc::default(),
            heartbeat: Arc::default(),
            registry,
            upstreams,
            latest_requests: Arc::default(),
            live,
        }
    }

    /// Replaces the settings. Requests that run go on with the old ones, loaded models as they are.
    pub fn reload(&self, settings: Settings) {
        let rate = settings.security.rate_limit;
        if settings.upstreams != self.live.settings().upstreams {
            let upstreams = Upstreams::new(&settings.upstreams, &self.live.upstreams.borrow());
            self.live.upstreams.send_replace(Arc::new(upstreams));
        }
        self.live.settings.store(Arc::new(settings));
        // The count of an unchanged limit goes on.
        if rate != self.live.limiter().map(|limiter| limiter.rate) {
            let limiter = rate.map(Limiter::new).map(Arc::new);
            self.live.limiter.store(limiter);
        }
    }

    /// Loads a model to stay until somebody stops it.
    pub async fn preload(&self, name: &str) -> Result<(), ApiError> {
        let stored = self.manager.find(name).await?;
        self.manager.lease(stored, Some(KeepAlive(None))).await?;
        Ok(())
    }

    /// Returns the service that answers requests.
    pub fn router(&self) -> Router {
        routes::router(self.clone())
            .layer(middleware::from_fn_with_state(
                Shared(self.clone()),
                guard::check,
            ))
            .layer(CatchPanicLayer::custom(|_| {
                tracing::error!("a request handler panicked");
                axum::response::IntoResponse::into_response(ApiError::internal("internal error"))
            }))
    }

    /// Returns when the server has shown that it is alive: the loop that accepts connections has
    /// answered, and the list of models can be read. One that hangs lets this wait for ever.
    pub async fn is_alive(&self) {
        self.heartbeat.asked.notify_one();
        self.heartbeat.answered.notified().await;
        // Takes the locks that every request of a model takes.
        let _ = self.manager.running();
    }

    /// Takes no new requests from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Tells whether the server is on its way to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Logs the body of a request where that was asked for, before it is worked on.
    pub(crate) fn log_body(&self, path: &str, body: &[u8]) {
        if self.settings.log_requests {
            tracing::info!(path, body = %String::from_utf8_lossy(body), "request body");
        }
    }
}

/// As the reference server gives every model on a machine without a large GPU.
const DEFAULT_CONTEXT: usize = 4096;
const MIN_CONTEXT: usize = 4;
const DEFAULT_PARALLEL: usize = 4;
const DEFAULT_CONNECTIONS: usize = 1024;
const DEFAULT_QUEUE: usize = 512;
const DEFAULT_KEEP_ALIVE: Duration = Duration::from_mins(5);
