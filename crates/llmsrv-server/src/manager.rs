//! Which models are loaded: admission, loading once for all who wait, idle time, eviction.
//!
//! A request holds a [`Lease`]; as long as it lives its model stays. Requests of one model run in
//! the order of their arrival, as many together as the engine may batch; the others wait, and a
//! waiting room of fixed size turns the rest away.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use llmsrv_api::keep_alive::KeepAlive;
use llmsrv_chat::Template;
use llmsrv_engine::{Adapter, EngineOptions, Handle, LoadError, LoadOptions, Loaded, Loader};
use llmsrv_gguf::GgufFile;
use llmsrv_store::{ModelName, Store, StoredModel};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::{app::Settings, error::ApiError, library};

/// A loaded model and how to speak to it.
pub(crate) struct ReadyModel {
    pub(crate) stored: StoredModel,
    pub(crate) engine: Handle,
    pub(crate) template: Template,
}

/// Knows all loaded models.
pub(crate) struct Manager {
    settings: Arc<Settings>,
    store: Arc<Store>,
    loader: Loader,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    /// Requests that wait for a model or for their turn.
    waiting: AtomicUsize,
    /// Something was released: room may have come.
    released: Notify,
}

/// The place of one model, from the decision to load it until it is gone.
struct Slot {
    /// Digest of the manifest.
    digest: String,
    stored: StoredModel,
    state: watch::Receiver<State>,
    turns: Arc<Semaphore>,
    use_: Mutex<Use>,
}

#[derive(Clone)]
enum State {
    Loading,
    Ready(Arc<ReadyModel>),
    Failed(ApiError),
}

/// Who uses a model and how long it stays.
struct Use {
    /// Leases given out or being waited for.
    active: usize,
    /// Idle time; `None` = for ever.
    keep_alive: Option<Duration>,
    last_used: Instant,
    /// Counts changes, so that an old timer knows that it is old.
    epoch: u64,
    /// Nobody may use it any more.
    leaving: bool,
}

/// A loaded model that will not go away, and a turn to use it.
pub(crate) struct Lease {
    manager: Arc<Manager>,
    slot: Arc<Slot>,
    pub(crate) model: Arc<ReadyModel>,
    turn: Option<OwnedSemaphorePermit>,
}

/// A loaded model in a list.
pub(crate) struct Running {
    pub(crate) stored: StoredModel,
    pub(crate) ready: Option<Arc<ReadyModel>>,
    /// Idle time left or, while it is used, the whole; `None` = for ever.
    pub(crate) remaining: Option<Duration>,
}

impl Manager {
    pub(crate) fn new(settings: Arc<Settings>, store: Arc<Store>, loader: Loader) -> Manager {
        Manager {
            settings,
            store,
            loader,
            slots: Mutex::default(),
            waiting: AtomicUsize::new(0),
            released: Notify::new(),
        }
    }

    /// Finds the model of a name that a client sent, for text generation.
    pub(crate) async fn find(&self, sent: &str) -> Result<StoredModel, ApiError> {
        let name: ModelName = sent.parse().map_err(|_| ApiError::invalid_model_name())?;
        let store = self.store.clone();
        let found = library::blocking(move || store.model(&name)).await?;
        found.map_err(|error| match error {
            llmsrv_store::Error::NotFound { .. } => ApiError::model_not_found(sent),
            error => error.into(),
        })
    }

    /// Loads the model if need be and waits for a turn.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        stored: StoredModel,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Lease, ApiError> {
        let mut waiting = Waiting {
            manager: self,
            counted: false,
        };
        let slot = self.slot(stored, keep_alive, &mut waiting).await?;
        // From here on the slot counts this request; dropping the guard gives it back.
        let guard = Entered {
            manager: self.clone(),
            slot: Some(slot.clone()),
        };
        let turn = match slot.turns.clone().try_acquire_owned() {
            Ok(turn) if matches!(*slot.state.borrow(), State::Ready(_)) => turn,
            other => {
                drop(other);
                waiting.enter()?;
                slot.turns
                    .clone()
                    .acquire_owned()
                    .await
                    .map_err(|_| ApiError::internal("the model is gone"))?
            }
        };
        let mut state = slot.state.clone();
        let wait = state.wait_for(|state| !matches!(state, State::Loading));
        let ready = match self.settings.load_timeout {
            Some(limit) => tokio::time::timeout(limit, wait)
                .await
                .map_err(|_| ApiError::internal("timed out waiting for the model to load"))?,
            None => wait.await,
        };
        let state = ready.map(|state| state.clone());
        match state {
            Ok(State::Ready(model)) => {
                guard.keep();
                Ok(Lease {
                    manager: self.clone(),
                    slot,
                    model,
                    turn: Some(turn),
                })
            }
            Ok(State::Failed(error)) => Err(error),
            Ok(State::Loading) | Err(_) => {
                Err(ApiError::internal("loading the model was interrupted"))
            }
        }
    }

    /// Unloads a model; one that is used leaves when its last request has ended.
    pub(crate) fn unload(self: &Arc<Self>, digest: &str) {
        let Some(slot) = self.slots().get(digest).cloned() else {
            return;
        };
        {
            let mut use_ = slot.use_();
            use_.keep_alive = Some(Duration::ZERO);
            use_.epoch += 1;
            if use_.active > 0 {
                return;
            }
        }
        self.remove(&slot);
    }

    /// Lists loaded and loading models, those that stay longest first.
    pub(crate) fn running(&self) -> Vec<Running> {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        let mut running: Vec<Running> = slots
            .iter()
            .map(|slot| {
                let use_ = slot.use_();
                let idle = if use_.active == 0 {
                    use_.last_used.elapsed()
                } else {
                    Duration::ZERO
                };
                let ready = match &*slot.state.borrow() {
                    State::Ready(model) => Some(model.clone()),
                    State::Loading | State::Failed(_) => None,
                };
                Running {
                    stored: slot.stored.clone(),
                    ready,
                    remaining: use_
                        .keep_alive
                        .map(|keep_alive| keep_alive.saturating_sub(idle)),
                }
            })
            .collect();
        running.sort_by_key(|model| std::cmp::Reverse(model.remaining.unwrap_or(Duration::MAX)));
        running
    }

    /// Returns the requests that wait.
    pub(crate) fn n_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Finds the slot of a model or makes one, and counts the request in it.
    async fn slot(
        self: &Arc<Self>,
        stored: StoredModel,
        keep_alive: Option<KeepAlive>,
        waiting: &mut Waiting<'_>,
    ) -> Result<Arc<Slot>, ApiError> {
        let digest = stored.entry.digest.hex();
        loop {
            let released = self.released.notified();
            let evicted = {
                let mut slots = self.slots();
                if let Some(slot) = slots.get(&digest)
                    && slot.enter(keep_alive)
                {
                    return Ok(slot.clone());
                }
                let limit = match self.settings.max_loaded_models {
                    0 => DEFAULT_LOADED_MODELS,
                    limit => limit,
                };
                let others = slots.values().filter(|slot| slot.digest != digest).count();
                if others < limit && !slots.contains_key(&digest) {
                    let slot = self.start_loading(stored, digest.clone(), keep_alive);
                    slots.insert(digest, slot.clone());
                    return Ok(slot);
                }
                if others < limit {
                    None
                } else {
                    evictable(&slots)
                }
            };
            if let Some(slot) = evicted {
                self.remove(&slot);
            } else {
                waiting.enter()?;
                // A model that leaves, or one that is used by others, ends with a release.
                let _ = tokio::time::timeout(Duration::from_millis(200), released).await;
            }
        }
    }

    fn start_loading(
        self: &Arc<Self>,
        stored: StoredModel,
        digest: String,
        keep_alive: Option<KeepAlive>,
    ) -> Arc<Slot> {
        let (sender, state) = watch::channel(State::Loading);
        let slot = Arc::new(Slot {
            digest,
            stored: stored.clone(),
            state,
            turns: Arc::new(Semaphore::new(self.settings.parallel())),
            use_: Mutex::new(Use {
                active: 1,
                keep_alive: keep_alive.map_or(self.settings.keep_alive, |keep_alive| keep_alive.0),
                last_used: Instant::now(),
                epoch: 0,
                leaving: false,
            }),
        });
        let (manager, loading) = (self.clone(), slot.clone());
        tokio::spawn(async move {
            let (settings, loader) = (manager.settings.clone(), manager.loader.clone());
            let name = stored.entry.name.clone();
            let started = Instant::now();
            let result = library::blocking(move || load(&settings, &loader, stored)).await;
            let state = match result.and_then(|result| result) {
                Ok(model) => {
                    tracing::info!(model = %name, load_ms = started.elapsed().as_millis() as u64, "model loaded");
                    State::Ready(Arc::new(model))
                }
                Err(error) => {
                    tracing::error!(model = %name, %error, "cannot load model");
                    // The next request tries again.
                    loading.use_().leaving = true;
                    manager.forget(&loading);
                    State::Failed(error)
                }
            };
            sender.send_replace(state);
        });
        slot
    }

    /// Takes a slot out of the list; its memory is free when nobody holds it any more.
    fn remove(&self, slot: &Arc<Slot>) {
        slot.use_().leaving = true;
        self.forget(slot);
        tracing::info!(model = %slot.stored.entry.name, "model unloaded");
        self.released.notify_waiters();
    }

    fn forget(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots();
        if slots
            .get(&slot.digest)
            .is_some_and(|known| Arc::ptr_eq(known, slot))
        {
            slots.remove(&slot.digest);
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what [`Slot::enter`] counted, and begins the idle time after the last one.
    fn leave(self: &Arc<Self>, slot: &Arc<Slot>) {
        let dead = matches!(&*slot.state.borrow(), State::Ready(model) if !model.engine.is_alive());
        let timer = {
            let mut use_ = slot.use_();
            use_.active -= 1;
            use_.last_used = Instant::now();
            use_.epoch += 1;
            if dead {
                use_.leaving = true;
            }
            (use_.active == 0 && !use_.leaving).then_some((use_.keep_alive, use_.epoch))
        };
        self.released.notify_waiters();
        if dead {
            self.forget(slot);
        }
        let (Some((Some(idle), epoch)), Ok(runtime)) =
            (timer, tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (manager, slot) = (self.clone(), slot.clone());
        runtime.spawn(async move {
            tokio::time::sleep(idle).await;
            let expired = {
                let mut use_ = slot.use_();
                let expired = use_.active == 0 && use_.epoch == epoch;
                use_.leaving |= expired;
                expired
            };
            if expired {
                manager.remove(&slot);
            }
        });
    }
}

impl Slot {
    fn use_(&self) -> MutexGuard<'_, Use> {
        self.use_.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more request, unless the model is leaving or its engine has died.
    fn enter(&self, keep_alive: Option<KeepAlive>) -> bool {
        let dead = matches!(&*self.state.borrow(), State::Ready(model) if !model.engine.is_alive());
        let mut use_ = self.use_();
        use_.leaving |= dead && use_.active == 0;
        if use_.leaving || dead {
            return false;
        }
        use_.active += 1;
        use_.epoch += 1;
        if let Some(keep_alive) = keep_alive {
            use_.keep_alive = keep_alive.0;
        }
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.turn = None;
        self.manager.leave(&self.slot);
    }
}

/// A request counted in a slot that has no lease yet.
struct Entered {
    manager: Arc<Manager>,
    slot: Option<Arc<Slot>>,
}

impl Entered {
    fn keep(mut self) {
        self.slot = None;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.manager.leave(&slot);
        }
    }
}

/// A place in the waiting room, given back when dropped.
struct Waiting<'a> {
    manager: &'a Manager,
    counted: bool,
}

impl Waiting<'_> {
    fn enter(&mut self) -> Result<(), ApiError> {
        if self.counted {
            return Ok(());
        }
        let limit = self.manager.settings.max_queue;
        let enter = |waiting: usize| (waiting < limit).then_some(waiting + 1);
        self.manager
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .map_err(|_| ApiError::queue_full())?;
        self.counted = true;
        Ok(())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.manager.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The idle model that was used longest ago; one that is to stay for ever only if there is no other.
fn evictable(slots: &HashMap<String, Arc<Slot>>) -> Option<Arc<Slot>> {
    let idle = slots.values().filter(|slot| {
        let use_ = slot.use_();
        use_.active == 0 && !use_.leaving
    });
    idle.min_by_key(|slot| {
        let use_ = slot.use_();
        (use_.keep_alive.is_none(), use_.last_used)
    })
    .cloned()
}

fn load(settings: &Settings, loader: &Loader, stored: StoredModel) -> Result<ReadyModel, ApiError> {
    let name = stored.entry.name.to_string();
    let adapters = stored.adapters.iter().map(|path| Adapter {
        path: path.clone(),
        scale: 1.0,
    });
    let load_options = LoadOptions {
        adapters: adapters.collect(),
        ..settings.load.clone()
    };
    let refused = |error: LoadError| match error {
        // The system's text may hold a path.
        LoadError::Io(error) => {
            ApiError::internal(format!("cannot read model '{name}': {}", error.kind()))
        }
        error => ApiError::internal(format!("cannot load model '{name}': {error}")),
    };
    let Loaded { model, tokenizer } = loader(&stored.weights, &load_options).map_err(refused)?;
    for warning in tokenizer.warnings() {
        tracing::warn!(model = name, warning, "tokenizer");
    }
    let template = choose_template(&stored, &|text| tokenizer.find(text).is_some());
    let spec = model.spec();
    let blocks_for = |n_tokens: usize| n_tokens.div_ceil(spec.block_size.max(1));
    let wanted = settings.context(None).min(spec.context_length);
    let room = available_memory().unwrap_or(u64::MAX) / 2 / (spec.kv_block_bytes.max(1) as u64);
    let options = EngineOptions {
        max_sequences: settings.parallel(),
        kv_blocks: blocks_for(wanted),
        max_kv_blocks: usize::try_from(room)
            .unwrap_or(usize::MAX)
            .clamp(blocks_for(wanted), MAX_BLOCKS),
        ..EngineOptions::default()
    };
    let engine = llmsrv_engine::spawn(Loaded { model, tokenizer }, options);
    Ok(ReadyModel {
        stored,
        engine,
        template,
    })
}

/// Chooses the template of a model; one that does not parse is reported, and a plain one used.
pub(crate) fn choose_template(stored: &StoredModel, has_token: &dyn Fn(&str) -> bool) -> Template {
    let file = GgufFile::open(&stored.weights).ok();
    let metadata = file.as_ref().map(GgufFile::metadata);
    let jinja = metadata.and_then(|metadata| metadata.str("tokenizer.chat_template"));
    let token = |key: &str| {
        let metadata = metadata?;
        let text = metadata
            .strings("tokenizer.ggml.tokens")?
            .get(metadata.usize(key)?)?;
        std::str::from_utf8(text).ok()
    };
    let bos = token("tokenizer.ggml.bos_token_id").unwrap_or_default();
    let eos = token("tokenizer.ggml.eos_token_id").unwrap_or_default();
    let chosen = Template::choose(stored.template.as_deref(), jinja, has_token, bos, eos);
    chosen
        .or_else(|error| {
            tracing::warn!(model = %stored.entry.name, %error, "the model's template is not used");
            Template::builtin(has_token)
        })
        .unwrap_or_else(|error| unreachable!("the built-in templates parse: {error}"))
}

/// Memory that can be had without swapping, in bytes.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// As the reference server on a machine without GPU.
const DEFAULT_LOADED_MODELS: usize = 3;
/// Bounds the bookkeeping, not the memory.
const MAX_BLOCKS: usize = 1 << 20;
