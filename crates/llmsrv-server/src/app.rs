//! The server as a whole: the state that its requests share.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::extract::FromRef;
use llmsrv_api::{keep_alive::KeepAlive, options::Options};
use llmsrv_engine::Loader;
use llmsrv_registry::Registry;
use llmsrv_store::Store;
use tokio::sync::Notify;

use crate::{
    dialect::responses::KeptResponses,
    error::ApiError,
    manager::Manager,
    metrics::Metrics,
    model_info::Capabilities,
    request_log::Latest,
    settings::{ReloadableSettings, Settings},
    template,
    upstream::Upstreams,
    vocabularies::Vocabularies,
};

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
    pub(crate) responses: Arc<KeptResponses>,
    pub(crate) live: Arc<ReloadableSettings>,
}

/// How the loop that accepts connections shows that it runs.
#[derive(Default)]
pub(crate) struct Heartbeat {
    asked: Notify,
    answered: Notify,
}

impl Heartbeat {
    /// Answers every heartbeat request; never returns.
    pub(crate) async fn beat(&self) -> Infallible {
        loop {
            self.asked.notified().await;
            self.answered.notify_one();
        }
    }
}

/// What the router holds.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) App);

impl FromRef<Shared> for App {
    fn from_ref(Shared(app): &Shared) -> App {
        App {
            settings: app.live.settings(),
            upstreams: app.live.upstreams().borrow().clone(),
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
        let upstreams = live.upstreams().borrow().clone();
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
            responses: Arc::default(),
            live,
        }
    }

    /// Replaces the settings. Requests that run go on with the old ones, loaded models as they are.
    pub fn reload(&self, settings: Settings) {
        self.live.replace(settings);
    }

    /// Loads a model to stay until somebody stops it.
    pub async fn preload(&self, name: &str) -> Result<(), ApiError> {
        let stored = self.manager.find(name).await?;
        let manager = &self.manager;
        manager
            .lease(stored, Some(KeepAlive(None)), &Options::default())
            .await?;
        Ok(())
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
        if self.settings.config.debug_log_requests {
            tracing::info!(path, body = %String::from_utf8_lossy(body), "request body");
        }
    }
}
