//! Which models are loaded: admission, loading once for all who wait, idle time, eviction.
//!
//! A request holds a [`Lease`]; as long as it lives its model stays. As many requests of one model
//! run together as the engine may batch; the others wait for their turn, clients in rotation, and a
//! waiting room of fixed size turns the rest away. Models that need room get it in the order in
//! which they were first asked for: idle ones leave, least recently used first, and the next one is
//! loaded when their memory is really free. Names made of the same weights share what is loaded.

mod draft;
mod fair_semaphore;
mod gpus;
mod slot;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use llmsrv_api::{keep_alive::KeepAlive, options::Options};
use llmsrv_chat::Template;
use llmsrv_engine::{
    Adapter, Ending, EngineOptions, Handle, LoadError, LoadOptions, Loaded, Loader, ModelSpec,
    Offload, PlacedBytes, Pooling, Vision,
};
use llmsrv_store::{ModelName, Store, StoredModel};
use llmsrv_tokenizer::Tokenizer;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use self::{
    fair_semaphore::Permit,
    gpus::Place,
    slot::{Key, Slot, State},
};
use crate::{
    error::ApiError,
    judge::JudgePrompt,
    memory::{self, Account, Memory, MemoryEstimate},
    metrics::{Metrics, ModelFigures},
    rate::Client,
    settings::{Gpus, ReloadableSettings, Settings},
    tasks, template,
};

/// What is in memory, whatever its names.
pub(crate) struct LoadedModel {
    pub(crate) engine: Handle,
    /// Reads images, if the model can.
    vision: Option<Arc<dyn Vision>>,
    /// Context in tokens where nobody says.
    pub(crate) context: usize,
    /// Why the CPU computes a part of it, where GPUs were asked for.
    pub(crate) on_cpu: Option<String>,
}

/// A loaded model and how to speak to it under one of its names.
pub(crate) struct ReadyModel {
    pub(crate) stored: StoredModel,
    pub(crate) engine: Handle,
    /// Reads images, if the model can.
    pub(crate) vision: Option<Arc<dyn Vision>>,
    pub(crate) template: Template,
    /// What a language model that ranks pairs is asked.
    pub(crate) judge: Option<JudgePrompt>,
    /// The options of the model, where a request does not say.
    pub(crate) options: Options,
    /// Context in tokens where nobody says.
    pub(crate) context: usize,
    /// Size of the context of the last request.
    pub(crate) last_context: Arc<AtomicUsize>,
}

/// Knows all loaded models.
pub(crate) struct Manager {
    live: Arc<ReloadableSettings>,
    store: Arc<Store>,
    loader: Loader,
    metrics: Arc<Metrics>,
    memory: Arc<Memory>,
    gpus: gpus::Available,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// Held while room is made, so that models get it in their order.
    room: tokio::sync::Mutex<()>,
    /// Requests that wait for a model or for their turn.
    waiting: AtomicUsize,
}

/// A loaded model that will not go away, and a turn to use it.
pub(crate) struct Lease {
    manager: Arc<Manager>,
    slot: Arc<Slot>,
    pub(crate) model: Arc<ReadyModel>,
    turn: Option<Permit>,
}

/// A name of a loaded model in a list.
pub(crate) struct Running {
    pub(crate) stored: StoredModel,
    /// Names of the same weights share it.
    pub(crate) loaded: Option<Arc<LoadedModel>>,
    /// Size of the context of its last request; 0 = there was none.
    pub(crate) last_context: usize,
    /// Idle time left or, while it is used, the whole; `None` = for ever.
    pub(crate) remaining: Option<Duration>,
}

impl Manager {
    pub(crate) fn new(
        live: Arc<ReloadableSettings>,
        store: Arc<Store>,
        loader: Loader,
        metrics: Arc<Metrics>,
    ) -> Arc<Manager> {
        let limit = live.settings().config.memory_limit;
        let gpus = gpus::Available::new(&live.settings());
        Arc::new_cyclic(|manager: &Weak<Manager>| {
            let manager = manager.clone();
            let make_room = move || {
                let manager = manager.upgrade();
                manager.is_some_and(|manager| manager.is_leaving() || manager.evict())
            };
            Manager {
                memory: Arc::new(Memory::new(limit, gpus.memory(), Box::new(make_room))),
                gpus,
                live,
                store,
                loader,
                metrics,
                slots: Mutex::default(),
                room: tokio::sync::Mutex::default(),
                waiting: AtomicUsize::new(0),
            }
        })
    }

    /// Finds the model of a name that a client sent, for text generation.
    pub(crate) async fn find(&self, sent: &str) -> Result<StoredModel, ApiError> {
        let name: ModelName = sent.parse().map_err(|_| ApiError::invalid_model_name())?;
        let store = self.store.clone();
        let found = tasks::blocking(move || store.model(&name)).await?;
        found.map_err(|error| match error {
            llmsrv_store::Error::NotFound { .. } => ApiError::model_not_found(sent),
            error => error.into(),
        })
    }

    /// Loads the model if need be and waits for a turn. What is asked about places counts if it is loaded for it.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        stored: StoredModel,
        keep_alive: Option<KeepAlive>,
        asked: &Options,
    ) -> Result<Lease, ApiError> {
        let arrived = Instant::now();
        let digest = stored.entry.digest.hex();
        let (slot, is_first) = self.enter(&stored, keep_alive, asked);
        // From here on the slot counts this request; dropping the guard gives it back.
        let entered = Entered {
            manager: self.clone(),
            slot: Some(slot.clone()),
            digest: digest.clone(),
        };
        let mut waiting = Waiting {
            manager: self,
            counted: false,
        };
        let turn = if let Some(turn) = slot.turns.take_now() {
            turn
        } else {
            waiting.enter()?;
            let turn = slot.turns.take(Client::of_this_request()).await;
            turn.ok_or_else(|| ApiError::internal("the model is gone"))?
        };
        let loaded = if let Some(loaded) = slot.loaded() {
            loaded
        } else {
            // The request that brings the model in does not wait in a queue.
            if !is_first {
                waiting.enter()?;
            }
            self.loaded(&slot).await?
        };
        let model = ready(&slot, &loaded, stored, self.live.settings()).await?;
        self.metrics.waited(arrived.elapsed());
        entered.keep();
        Ok(Lease {
            manager: self.clone(),
            slot,
            model,
            turn: Some(turn),
        })
    }

    /// Unloads a model; one that is used leaves when its last request has ended. What it shares with
    /// other names stays as long as they do.
    pub(crate) fn unload(self: &Arc<Self>, digest: &str) {
        let Some(slot) = self.known_as(digest) else {
            return;
        };
        if slot.stop(digest) {
            self.remove(&slot);
        } else {
            slot.idle.notify_one();
        }
    }

    /// Returns the tokenizer of a loaded model, which counts as a use of it.
    pub(crate) fn tokenizer(
        self: &Arc<Self>,
        digest: &str,
        keep_alive: Option<KeepAlive>,
    ) -> Option<Arc<Tokenizer>> {
        let slot = self.known_as(digest)?;
        let tokenizer = slot.loaded()?.engine.tokenizer().clone();
        let stored = slot.use_().name(digest)?.stored.clone();
        let default = self.live.settings().config.keep_alive;
        let entered = slot.enter(&stored, default, keep_alive);
        entered.then(|| self.leave(&slot, digest))?;
        Some(tokenizer)
    }

    /// Returns the slot of a model that is loaded, or being loaded, under the name with this digest.
    fn known_as(&self, digest: &str) -> Option<Arc<Slot>> {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        slots.into_iter().find(|slot| slot.is_known_as(digest))
    }

    /// Lists loaded and loading models, those that stay longest first.
    pub(crate) fn running(&self) -> Vec<Running> {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        let mut running: Vec<Running> = Vec::new();
        for slot in &slots {
            let loaded = slot.loaded();
            running.extend(slot.use_().names.iter().map(|name| Running {
                stored: name.stored.clone(),
                loaded: loaded.clone(),
                last_context: name.context.load(Ordering::Relaxed),
                remaining: name.remaining(),
            }));
        }
        running.sort_by_key(|model| std::cmp::Reverse(model.remaining.unwrap_or(Duration::MAX)));
        running
    }

    /// Returns the requests that wait.
    pub(crate) fn n_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts what the engines did since the last call, and returns what they hold.
    pub(crate) fn figures(&self) -> Vec<ModelFigures> {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        let figures = slots.iter().filter_map(|slot| {
            self.count(slot);
            let loaded = slot.loaded()?;
            let (spec, stats) = (loaded.engine.spec(), loaded.engine.stats());
            let kv = |n_blocks: usize| n_blocks as u64 * spec.kv_block_bytes as u64;
            let states = |n_states: usize| n_states as u64 * spec.state_bytes as u64;
            let n_live = stats.states_total.saturating_sub(stats.checkpoints);
            Some(ModelFigures {
                name: slot.use_().told_as.to_string(),
                weights: spec.weight_bytes,
                kv_reserved: kv(stats.kv_blocks_total) + states(stats.states_total),
                kv_used: kv(stats.kv_blocks_used) + states(n_live.min(stats.running)),
                kv_cached: kv(stats.kv_blocks_cached) + states(stats.checkpoints),
                running: stats.running,
                waiting: stats.waiting,
                layers: spec.n_layers,
                gpu_layers: spec.n_gpu_layers(),
            })
        });
        figures.collect()
    }

    /// Returns the bytes all models take and may take.
    pub(crate) fn memory(&self) -> (PlacedBytes, PlacedBytes) {
        (self.memory.taken_bytes(), self.memory.limit())
    }

    /// Counts a request in the slot of its model, which is made for the first one.
    fn enter(
        self: &Arc<Self>,
        stored: &StoredModel,
        keep_alive: Option<KeepAlive>,
        asked: &Options,
    ) -> (Arc<Slot>, bool) {
        let settings = self.live.settings();
        let draft = draft::own(&settings, stored);
        let key = Key::new(stored, draft.map(|draft| &draft.name));
        let mut slots = self.slots();
        if let Some(slot) = slots.get(&key)
            && slot.enter(stored, settings.config.keep_alive, keep_alive)
        {
            return (slot.clone(), false);
        }
        let (state, watched) = watch::channel(State::Queued);
        let slot = Arc::new(Slot::new(
            key.clone(),
            stored.clone(),
            offload(&settings, stored, asked),
            watched,
            settings.parallel(),
            keep_alive.map_or(settings.config.keep_alive, |keep_alive| keep_alive.0),
            keep_alive.is_some(),
        ));
        slots.insert(key, slot.clone());
        tokio::spawn(self.clone().bring_in(slot.clone(), state));
        (slot, true)
    }

    /// Waits until the model of a slot is loaded.
    async fn loaded(&self, slot: &Slot) -> Result<Arc<LoadedModel>, ApiError> {
        let interrupted = || ApiError::internal("loading the model was interrupted");
        let mut state = slot.state.clone();
        let has_room = state.wait_for(|state| !matches!(state, State::Queued));
        has_room.await.map_err(|_| interrupted())?;
        let loaded = state.wait_for(|state| !matches!(state, State::Loading));
        let loaded = match self.live.settings().config.load_timeout {
            Some(limit) => tokio::time::timeout(limit, loaded)
                .await
                .map_err(|_| ApiError::internal("timed out waiting for the model to load"))?,
            None => loaded.await,
        };
        match &*loaded.map_err(|_| interrupted())? {
            State::Ready(model) => Ok(model.clone()),
            State::Failed(error) => Err(error.clone()),
            State::Queued | State::Loading => Err(interrupted()),
        }
    }

    /// Makes room for the model of a slot, loads it and watches over its idle time.
    async fn bring_in(self: Arc<Self>, slot: Arc<Slot>, state: watch::Sender<State>) {
        let name = slot.stored.entry.name.clone();
        match self.load(&slot, &state).await {
            Ok(model) => {
                let ending = model.engine.ending();
                let has_gpu = !model.engine.spec().gpus.is_empty();
                state.send_replace(State::Ready(Arc::new(model)));
                tokio::spawn(watch_end(
                    Arc::downgrade(&self),
                    Arc::downgrade(&slot),
                    (ending, has_gpu),
                ));
                tokio::spawn(watch_idle(Arc::downgrade(&self), slot));
            }
            Err(error) => {
                if error != ApiError::canceled() {
                    tracing::error!(model = %name, %error, "cannot load model");
                }
                // The next request tries again.
                slot.use_().leaving = true;
                self.forget(&slot);
                state.send_replace(State::Failed(error));
            }
        }
    }

    /// Loads the model of a slot; for the CPU where GPUs that nobody asked for fail.
    async fn load(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        state: &watch::Sender<State>,
    ) -> Result<LoadedModel, ApiError> {
        let name = slot.stored.entry.name.to_string();
        let place = self.gpus.place();
        let automatic = matches!(&place, Place::Gpus(gpus) if gpus.automatic);
        match self.load_to(place, slot, state).await {
            Ok(loaded) => Ok(loaded),
            Err(NotLoaded::ByGpu(error)) if automatic => {
                if let LoadError::DeviceLost { reason, .. } = &error {
                    self.gpus.lost(reason);
                }
                let why = error.to_string();
                tracing::warn!(model = name, why, "the model is loaded for the CPU");
                let cpu = Place::Cpu { why: Some(why) };
                let loaded = self.load_to(cpu, slot, state).await;
                loaded.map_err(|error| error.of_model(&name))
            }
            Err(error) => Err(error.of_model(&name)),
        }
    }

    /// Makes room for the model of a slot in a place, and loads it there.
    async fn load_to(
        self: &Arc<Self>,
        place: Place,
        slot: &Arc<Slot>,
        state: &watch::Sender<State>,
    ) -> Result<LoadedModel, NotLoaded> {
        let (need, account) = self.make_room(slot, place).await?;
        state.send_replace(State::Loading);
        let started = Instant::now();
        let (settings, loader) = (self.live.settings(), self.loader.clone());
        let (stored, store) = (slot.stored.clone(), self.store.clone());
        let loading = tasks::blocking(move || {
            let draft = draft::choose(&settings, &store, &stored)?;
            load(&settings, &loader, stored, (&need, draft.as_ref()), account)
        });
        let result = loading.await?;
        self.metrics.loaded(started.elapsed(), result.is_ok());
        if let Ok(loaded) = &result {
            let name = &slot.stored.entry.name;
            let load_ms = started.elapsed().as_millis() as u64;
            let (spec, on_cpu) = (loaded.engine.spec(), &loaded.on_cpu);
            if spec.gpus.is_empty() {
                tracing::info!(model = %name, load_ms, on_cpu, "model loaded");
            } else {
                let layers = (spec.n_gpu_layers(), spec.n_layers);
                let offloaded = format!("{}/{} layers to GPU", layers.0, layers.1);
                tracing::info!(model = %name, load_ms, offloaded, on_cpu, "model loaded");
            }
        }
        result
    }

    /// Waits until the memory for a model is there, asking idle ones to leave.
    async fn make_room(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        place: Place,
    ) -> Result<(Need, Account), NotLoaded> {
        let (stored, offload) = (slot.stored.clone(), slot.offload.clone());
        let (settings, store) = (self.live.settings(), self.store.clone());
        let need = move || need((&settings, place), &store, &stored, offload);
        let need = tasks::blocking(need).await??;
        let all = need.all();
        let max_models = match self.live.settings().config.max_loaded_models {
            0 => DEFAULT_LOADED_MODELS,
            limit => limit,
        };
        let _first_in_line = self.room.lock().await;
        loop {
            let mut freed = std::pin::pin!(self.memory.freed().notified());
            freed.as_mut().enable();
            if slot.leave_if_idle() {
                return Err(ApiError::canceled().into());
            }
            if let Some(account) = self.memory.open(&all, max_models) {
                slot.set_placed();
                return Ok((need, account));
            }
            let limit = self.memory.limit();
            if !all.total().fits(&limit) {
                let name = slot.stored.entry.name.to_string();
                return Err(ApiError::model_too_large(&name, &all, &limit).into());
            }
            if !self.is_leaving() && !self.evict() {
                let placed = self.placed();
                if placed.iter().all(|slot| slot.use_().is_pinned()) && !placed.is_empty() {
                    let name = slot.stored.entry.name.to_string();
                    return Err(ApiError::no_room(&name).into());
                }
            }
            memory::wait_for(freed).await;
        }
    }

    /// Tells whether the memory of a model that left is not free yet.
    fn is_leaving(&self) -> bool {
        self.memory.n_models() > self.placed().len()
    }

    /// Lets the idle model go that was used longest ago, if there is one.
    fn evict(&self) -> bool {
        let Some(idle) = evictable(&self.placed()) else {
            return false;
        };
        self.metrics.evicted();
        self.remove(&idle);
        true
    }

    /// Slots that have room.
    fn placed(&self) -> Vec<Arc<Slot>> {
        let slots = self.slots();
        slots
            .values()
            .filter(|slot| slot.is_placed())
            .cloned()
            .collect()
    }

    /// Takes a slot out of the list; its memory is free when nobody holds it any more.
    fn remove(&self, slot: &Arc<Slot>) {
        slot.use_().leaving = true;
        self.count(slot);
        self.forget(slot);
        slot.idle.notify_one();
        tracing::info!(model = %slot.stored.entry.name, "model unloaded");
    }

    fn forget(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots();
        if slots
            .get(&slot.key)
            .is_some_and(|known| Arc::ptr_eq(known, slot))
        {
            slots.remove(&slot.key);
        }
    }

    /// Adds what an engine did since it was counted last.
    fn count(&self, slot: &Slot) {
        if let Some(loaded) = slot.loaded() {
            let mut counted = slot.counted.lock();
            let stats = loaded.engine.stats();
            let name = slot.use_().told_as.to_string();
            self.metrics.engine(&name, &counted, &stats);
            *counted = stats;
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Arc<Slot>>> {
        self.slots.lock()
    }

    /// Gives back what [`Slot::enter`] counted.
    fn leave(&self, slot: &Arc<Slot>, digest: &str) {
        let left = slot.leave(digest);
        if left.is_over {
            self.remove(slot);
        }
        // Names of one model leave one by one.
        slot.idle.notify_one();
        if left.is_idle {
            self.memory.freed().notify_waiters();
        }
    }
}

/// Lets a model go when it has been idle for its time.
async fn watch_idle(manager: Weak<Manager>, slot: Arc<Slot>) {
    loop {
        let deadline = {
            let use_ = slot.use_();
            if use_.leaving {
                return;
            }
            use_.deadline()
        };
        let Some(deadline) = deadline else {
            slot.idle.notified().await;
            continue;
        };
        tokio::select! {
            () = slot.idle.notified() => continue,
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
        let is_over = slot.use_().expire();
        if is_over && let Some(manager) = manager.upgrade() {
            manager.remove(&slot);
        }
    }
}

/// Takes a model out of the list when its engine has ended by itself, also where nobody asks for it.
async fn watch_end(manager: Weak<Manager>, slot: Weak<Slot>, (ending, has_gpu): (Ending, bool)) {
    let lost = ending.wait().await.filter(|_| has_gpu);
    if let (Some(reason), Some(manager)) = (lost, manager.upgrade()) {
        manager.gpus.lost(&reason);
    }
    if let (Some(manager), Some(slot)) = (manager.upgrade(), slot.upgrade())
        && slot.is_news_that_it_leaves()
    {
        manager.remove(&slot);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.turn = None;
        let digest = self.model.stored.entry.digest.hex();
        self.manager.leave(&self.slot, &digest);
    }
}

/// A request counted in a slot that has no lease yet.
struct Entered {
    manager: Arc<Manager>,
    slot: Option<Arc<Slot>>,
    digest: String,
}

impl Entered {
    fn keep(mut self) {
        self.slot = None;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.manager.leave(&slot, &self.digest);
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
        let limit = self.manager.live.settings().config.max_queue;
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

/// The idle model that was used longest ago; never one that a request asked to keep for ever.
fn evictable(placed: &[Arc<Slot>]) -> Option<Arc<Slot>> {
    let idle = placed.iter().filter(|slot| {
        let use_ = slot.use_();
        use_.active() == 0 && !use_.leaving && !use_.is_pinned()
    });
    idle.min_by_key(|slot| slot.use_().last_used()).cloned()
}

/// Why a model was not loaded.
enum NotLoaded {
    /// For a reason that is none of the GPU's.
    Refused(ApiError),
    /// GPUs, or the process that drives them, cannot; the CPU may.
    ByGpu(LoadError),
}

impl NotLoaded {
    fn of_model(self, name: &str) -> ApiError {
        match self {
            NotLoaded::Refused(error) => error,
            NotLoaded::ByGpu(error) => refused(name, error),
        }
    }
}

impl From<ApiError> for NotLoaded {
    fn from(error: ApiError) -> NotLoaded {
        NotLoaded::Refused(error)
    }
}

/// What loading a model and its draft model will take.
struct Need {
    own: NeedOfOne,
    draft: Option<NeedOfOne>,
}

/// What loading one model will take, and where it is to lie for that.
#[derive(Default)]
struct NeedOfOne {
    estimate: MemoryEstimate,
    /// The part of the estimate that is for the rows of a step.
    activations: PlacedBytes,
    offload: Offload,
    /// Why the CPU computes a part of it, where GPUs were asked for.
    on_cpu: Option<String>,
}

impl Need {
    fn all(&self) -> MemoryEstimate {
        match &self.draft {
            Some(draft) => self.own.estimate.and(&draft.estimate),
            None => self.own.estimate.clone(),
        }
    }

    fn activations(&self) -> PlacedBytes {
        let draft = self.draft.as_ref();
        draft.map_or_else(
            || self.own.activations.clone(),
            |draft| self.own.activations.plus(&draft.activations),
        )
    }
}

fn need(
    (settings, place): (&Settings, Place),
    store: &Store,
    stored: &StoredModel,
    offload: Offload,
) -> Result<Need, NotLoaded> {
    let (gpus, why) = match place {
        Place::Gpus(gpus) => (Some(gpus), None),
        Place::Cpu { why } => (None, why),
    };
    let draft = draft::choose(settings, store, stored)?;
    let draft = draft
        .map(|draft| draft.need((settings, gpus.as_ref()), store))
        .transpose()
        .map_err(NotLoaded::ByGpu)?;
    // The small model is placed first: it does least where it is slow.
    let taken = draft.as_ref().map(|draft| draft.estimate.total());
    let gpus = gpus.map(|gpus| {
        let free = gpus.memory.iter().enumerate();
        let free = free.map(|(gpu, bytes)| {
            bytes.saturating_sub(taken.as_ref().map_or(0, |taken| taken.gpu(gpu)))
        });
        Gpus {
            memory: free.collect(),
            ..gpus.clone()
        }
    });
    let is_asked_of_cpu =
        offload.is_nothing() && (gpus.is_some() || settings.load.device == "vulkan");
    let own = need_of((settings, gpus.as_ref()), store, stored, offload);
    let mut own = own.map_err(NotLoaded::ByGpu)?;
    own.on_cpu = match own.on_cpu {
        _ if is_asked_of_cpu => Some("num_gpu is 0".to_owned()),
        on_cpu => on_cpu.or(why),
    };
    Ok(Need { own, draft })
}

/// What loading one model will take: all weights, and keys and values of one context. Fails where GPUs compute no part of
/// it.
fn need_of(
    (settings, gpus): (&Settings, Option<&Gpus>),
    store: &Store,
    stored: &StoredModel,
    offload: Offload,
) -> Result<NeedOfOne, LoadError> {
    let context = |trained: usize| settings.reserved_context().min(trained);
    let bytes_of = |files: &[PathBuf]| {
        let files = files.iter().map(|path| store.facts(path).weight_bytes);
        files.fold(0, u64::saturating_add)
    };
    if let Some(gpus) = gpus.filter(|_| !offload.is_nothing()) {
        let options = load_options(settings, stored, offload.clone());
        let plan = (gpus.plan)(&stored.weights, &options, &gpus.memory, &context)?;
        let mut estimate = MemoryEstimate::planned(&plan, context);
        let projectors = PlacedBytes::host(bytes_of(&stored.projectors));
        estimate.weights = estimate.weights.plus(&projectors);
        return Ok(NeedOfOne {
            estimate,
            activations: plan.activations,
            offload: Offload {
                split: Some(plan.split),
                ..offload
            },
            on_cpu: (!plan.on_cpu.is_empty()).then(|| plan.on_cpu.join("; ")),
        });
    }
    let facts = &stored.facts;
    let others = [&stored.shards, &stored.projectors, &stored.adapters];
    let others = others.into_iter().map(|files| bytes_of(files));
    let trained = facts.context_length.unwrap_or(0);
    let n_tokens = context(usize::try_from(trained).unwrap_or(usize::MAX)) as u64;
    let kv_bytes = facts.kv_bytes(n_tokens, &settings.load.kv_cache_type);
    Ok(NeedOfOne {
        estimate: MemoryEstimate {
            weights: PlacedBytes::host(others.fold(facts.weight_bytes, u64::saturating_add)),
            kv: PlacedBytes::host(kv_bytes),
        },
        activations: PlacedBytes::default(),
        offload,
        on_cpu: None,
    })
}

/// Returns which layers of a model are to be on GPUs: as the request says that it is loaded for, else as the model
/// does, else as the settings do.
fn offload(settings: &Settings, stored: &StoredModel, asked: &Options) -> Offload {
    // What is wrong with them is said where the model answers.
    let (own, _) = Options::of_model(&stored.parameters);
    let options = asked.clone().or(&own);
    let mut offload = settings.load.offload.clone();
    if let Some(n) = options.num_gpu {
        offload.n_layers = usize::try_from(n).ok();
    }
    if let Some(n) = options.num_cpu_moe {
        offload.n_cpu_moe = usize::try_from(n).unwrap_or(0);
    }
    if let Some(n) = options.main_gpu {
        offload.main_gpu = usize::try_from(n).unwrap_or(0);
    }
    offload
}

/// Returns how a model is loaded.
fn load_options(settings: &Settings, stored: &StoredModel, offload: Offload) -> LoadOptions {
    let adapters = stored.adapters.iter().map(|path| Adapter {
        path: path.clone(),
        scale: 1.0,
    });
    LoadOptions {
        // What has a place on GPUs is loaded there, whether they were asked for or not.
        device: match offload.split {
            Some(_) => "vulkan".to_owned(),
            None => settings.load.device.clone(),
        },
        projector: stored.projectors.first().cloned(),
        adapters: adapters.collect(),
        offload,
        ..settings.load.clone()
    }
}

/// Says to a client why a model was not loaded.
fn refused(name: &str, error: LoadError) -> ApiError {
    match error {
        // The system's text may hold a path.
        LoadError::Io(error) => {
            ApiError::internal(format!("cannot read model '{name}': {}", error.kind()))
        }
        LoadError::DeviceLost {
            reason,
            retry_after,
        } => ApiError::device_lost_for(&reason, retry_after),
        error => ApiError::internal(format!("cannot load model '{name}': {error}")),
    }
}

fn load(
    settings: &Settings,
    loader: &Loader,
    stored: StoredModel,
    (need, draft): (&Need, Option<&draft::Chosen>),
    mut account: Account,
) -> Result<LoadedModel, NotLoaded> {
    let name = stored.entry.name.to_string();
    let load_options = load_options(settings, &stored, need.own.offload.clone());
    let loaded = loader(&stored.weights, &load_options);
    let Loaded {
        model,
        tokenizer,
        vision,
        ..
    } = loaded.map_err(|error| match error {
        LoadError::Gpu(_) | LoadError::GpuNotAllowed(_) | LoadError::DeviceLost { .. } => {
            NotLoaded::ByGpu(error)
        }
        error => refused(&name, error).into(),
    })?;
    // A wrong draft token cannot be taken out of a recurrent state, so such a model would not use one.
    let drafts = model.spec().generates() && model.spec().state_bytes == 0;
    let draft = match draft.filter(|_| drafts) {
        Some(draft) => {
            let offload = need.draft.as_ref().map(|need| need.offload.clone());
            let offload = offload.unwrap_or_default();
            draft.load((settings, offload), loader, &name, &tokenizer)?
        }
        None => None,
    };
    for warning in tokenizer.warnings() {
        tracing::warn!(model = name, warning, "tokenizer");
    }
    let spec = model.spec();
    let blocks_for = |n_tokens: usize| n_tokens.div_ceil(spec.block_size.max(1));
    let wanted = settings.reserved_context().min(spec.context_length);
    let models = [Some(spec), draft.as_ref().map(|draft| draft.spec())];
    // Keys and values are stored twice where there is a draft model.
    let models = models.into_iter().flatten();
    let models: Vec<_> = models.collect();
    let sum = |of: &dyn Fn(&ModelSpec) -> PlacedBytes| {
        let all = models.iter().map(|spec| of(spec));
        all.fold(PlacedBytes::default(), |sum, bytes| sum.plus(&bytes))
    };
    let weights = sum(&ModelSpec::weights).plus(&need.activations());
    let block = sum(&|spec| spec.kv_blocks(1));
    account.correct(MemoryEstimate {
        kv: block.times(blocks_for(wanted) as u64).plus(&spec.states(1)),
        weights: weights.clone(),
    });
    // The account refuses what others have taken meanwhile.
    let room = account.limit().minus(&weights);
    // Checkpoints take a tenth of that, and a few even where that is little.
    let n_checkpoints = room.count(&spec.states(10));
    let n_checkpoints = n_checkpoints.clamp(LEAST_CHECKPOINTS, MOST_CHECKPOINTS);
    let context = if settings.config.context_length == 0 {
        let n_blocks = account.room().count(&block.times(CONTEXT_SHARE));
        automatic_context(
            n_blocks.saturating_mul(spec.block_size),
            wanted,
            spec.context_length,
        )
    } else {
        wanted
    };
    let options = EngineOptions {
        max_sequences: settings.parallel(),
        kv_blocks: blocks_for(wanted),
        max_kv_blocks: room
            .count(&block)
            .clamp(blocks_for(wanted), MAX_BLOCKS.max(blocks_for(wanted))),
        prefix_cache_blocks: blocks_for(wanted)
            .saturating_mul(settings.parallel())
            .max(blocks_for(context)),
        max_states: settings.parallel().saturating_add(n_checkpoints),
        speculation: settings.speculation,
        ..EngineOptions::default()
    };
    let loaded = Loaded {
        model,
        draft,
        tokenizer,
        vision: vision.clone(),
    };
    let engine = llmsrv_engine::spawn_within(loaded, options, Box::new(account));
    Ok(LoadedModel {
        engine,
        vision,
        context,
        on_cpu: need.own.on_cpu.clone(),
    })
}

/// Returns a loaded model under one of its names, whose template is read for the first request.
async fn ready(
    slot: &Slot,
    loaded: &Arc<LoadedModel>,
    stored: StoredModel,
    settings: Arc<Settings>,
) -> Result<Arc<ReadyModel>, ApiError> {
    let digest = stored.entry.digest.hex();
    let last_context = match slot.use_().name(&digest) {
        Some(name) => match &name.ready {
            Some(ready) => return Ok(ready.clone()),
            None => name.context.clone(),
        },
        None => Arc::default(),
    };
    let loaded = loaded.clone();
    let made = tasks::blocking(move || {
        let embedding = loaded.engine.spec().embedding;
        let judges =
            embedding.is_some_and(|spec| spec.pooling == Pooling::Rank && !spec.bidirectional);
        let (options, wrong) = Options::of_model(&stored.parameters);
        if let Some(error) = wrong {
            tracing::warn!(model = %stored.entry.name, %error, "a parameter of the model");
        }
        Ok::<_, ApiError>(ReadyModel {
            judge: judges.then(|| JudgePrompt::of(&stored.facts)),
            template: template::choose(&stored, &settings)?,
            stored,
            engine: loaded.engine.clone(),
            vision: loaded.vision.clone(),
            options,
            context: loaded.context,
            last_context,
        })
    });
    let made = Arc::new(made.await??);
    if let Some(name) = slot.use_().name(&digest) {
        name.ready = Some(made.clone());
    }
    Ok(made)
}

/// Returns the size of the context where nobody says: what the model was trained for where that fits
/// into `room` tokens, else the greatest power of two that does; never less than what is reserved.
fn automatic_context(room: usize, reserved: usize, trained: usize) -> usize {
    if room >= trained {
        return trained;
    }
    // Sizes that hardly change from one load to the next.
    let power = room.checked_ilog2().map_or(0, |log| 1 << log);
    power.clamp(reserved.min(trained), trained)
}

/// One context may take this part of the memory that is left when a model is loaded: a half.
const CONTEXT_SHARE: u64 = 2;
/// Copies of recurrent states that are kept for prompts to come.
const LEAST_CHECKPOINTS: usize = 4;
const MOST_CHECKPOINTS: usize = 64;
/// As Ollama on a machine without GPU.
const DEFAULT_LOADED_MODELS: usize = 3;
/// Bounds the bookkeeping, not the memory.
const MAX_BLOCKS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::automatic_context;

    #[test]
    fn the_context_is_as_large_as_model_and_memory_allow() {
        for (room, reserved, trained, expected) in [
            (1 << 30, 4096, 131_072, 131_072),
            (131_071, 4096, 131_072, 65_536),
            (40_000, 4096, 131_072, 32_768),
            (5000, 4096, 131_072, 4096),
            (100, 4096, 131_072, 4096),
            (0, 4096, 131_072, 4096),
            (1 << 30, 2048, 2048, 2048),
            (100, 2048, 2048, 2048),
        ] {
            assert_eq!(
                automatic_context(room, reserved, trained),
                expected,
                "{room} {trained}"
            );
        }
    }
}
