//! The place of what is loaded, from the first request for it until it is gone.
//!
//! Names that are made of the same weights share a place: one copy of the weights, one KV cache with
//! its computed prefixes. Each name keeps its template, its system text and parameters, and stays for
//! its own time; the copy leaves with its last name.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use llmsrv_api::keep_alive::KeepAlive;
use llmsrv_engine::{Offload, Stats};
use llmsrv_store::{ModelName, StoredModel};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::{LoadedModel, ReadyModel, fair_semaphore::FairSemaphore};
use crate::error::ApiError;

/// What decides what is loaded: names that agree in it share a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    weights: PathBuf,
    shards: Vec<PathBuf>,
    projectors: Vec<PathBuf>,
    adapters: Vec<PathBuf>,
    /// The draft model of this name alone.
    draft: Option<ModelName>,
    /// The draft model that this name brings.
    own_draft: Option<PathBuf>,
}

pub(super) struct Slot {
    pub(super) key: Key,
    /// The model under the name that it was loaded for.
    pub(super) stored: StoredModel,
    /// Which layers are to be on GPUs, as it was asked for first.
    pub(super) offload: Offload,
    pub(super) state: watch::Receiver<State>,
    pub(super) turns: FairSemaphore,
    /// The model has room: it is loaded or being loaded.
    placed: AtomicBool,
    /// Somebody stopped using the model, or it is to leave.
    pub(super) idle: Notify,
    /// The engine's figures when they were last counted.
    pub(super) counted: Mutex<Stats>,
    use_: Mutex<Use>,
}

#[derive(Clone)]
pub(super) enum State {
    /// Waits for other models to leave.
    Queued,
    Loading,
    Ready(Arc<LoadedModel>),
    Failed(ApiError),
}

/// Who uses a model and how long it stays.
pub(super) struct Use {
    /// The names it goes by; it leaves with the last one.
    pub(super) names: Vec<Name>,
    /// The first of them, and when all are gone the last one: what its figures are told under.
    pub(super) told_as: ModelName,
    /// Nobody may use it any more.
    pub(super) leaving: bool,
}

/// A name of what is loaded.
pub(super) struct Name {
    pub(super) stored: StoredModel,
    /// How to speak to it under this name, once somebody has.
    pub(super) ready: Option<Arc<ReadyModel>>,
    /// Size of the context of its last request; 0 = there was none.
    pub(super) context: Arc<AtomicUsize>,
    /// Leases given out or being waited for.
    active: usize,
    /// Idle time; `None` = for ever.
    pub(super) keep_alive: Option<Duration>,
    /// A request asked that it stays for ever: it makes room for nobody.
    pinned: bool,
    last_used: Instant,
}

/// What became of a slot when a request was over.
pub(super) struct Left {
    /// Nobody uses it now.
    pub(super) is_idle: bool,
    /// It has just begun to leave.
    pub(super) is_over: bool,
}

impl Key {
    pub(super) fn new(stored: &StoredModel, draft: Option<&ModelName>) -> Key {
        Key {
            weights: stored.weights.clone(),
            shards: stored.shards.clone(),
            projectors: stored.projectors.clone(),
            adapters: stored.adapters.clone(),
            draft: draft.cloned(),
            own_draft: stored.draft.clone(),
        }
    }
}

impl Slot {
    /// Makes the place of a model for its first request.
    pub(super) fn new(
        key: Key,
        stored: StoredModel,
        offload: Offload,
        state: watch::Receiver<State>,
        parallel: usize,
        keep_alive: Option<Duration>,
        is_asked: bool,
    ) -> Slot {
        let name = Name::new(stored.clone(), keep_alive, is_asked);
        let told_as = stored.entry.name.clone();
        Slot {
            key,
            stored,
            offload,
            state,
            turns: FairSemaphore::new(parallel),
            placed: AtomicBool::new(false),
            idle: Notify::new(),
            counted: Mutex::default(),
            use_: Mutex::new(Use {
                names: vec![name],
                told_as,
                leaving: false,
            }),
        }
    }

    pub(super) fn use_(&self) -> MutexGuard<'_, Use> {
        self.use_.lock()
    }

    /// Counts one more request under a name, unless the model is leaving or its engine has died.
    pub(super) fn enter(
        &self,
        stored: &StoredModel,
        default_keep_alive: Option<Duration>,
        keep_alive: Option<KeepAlive>,
    ) -> bool {
        let dead = self.is_dead();
        let mut use_ = self.use_();
        if dead && use_.active() == 0 {
            use_.leaving = true;
            // Whoever waits for its idle time holds it.
            self.idle.notify_one();
        }
        if use_.leaving || dead {
            return false;
        }
        if let Some(name) = use_.name(&stored.entry.digest.hex()) {
            name.active += 1;
            if let Some(keep_alive) = keep_alive {
                name.keep_alive = keep_alive.0;
                name.pinned = keep_alive.0.is_none();
            }
            return true;
        }
        // The name was given to something else meanwhile.
        use_.keep(|name| name.active > 0 || name.stored.entry.name != stored.entry.name);
        let stays = keep_alive.map_or(default_keep_alive, |keep_alive| keep_alive.0);
        use_.names
            .push(Name::new(stored.clone(), stays, keep_alive.is_some()));
        use_.tell();
        true
    }

    /// Gives back what [`Slot::enter`] counted, and begins the idle time after the last one.
    pub(super) fn leave(&self, digest: &str) -> Left {
        let dead = self.is_dead();
        let mut use_ = self.use_();
        if let Some(name) = use_.name(digest) {
            name.active -= 1;
            name.last_used = Instant::now();
        }
        use_.keep(|name| name.active > 0 || name.keep_alive != Some(Duration::ZERO));
        let is_over = dead || use_.names.is_empty();
        let is_news = is_over && !use_.leaving;
        use_.leaving |= is_over;
        Left {
            is_idle: use_.active() == 0,
            is_over: is_news,
        }
    }

    /// Gives up a name as soon as nobody uses it. Returns whether the model leaves with it.
    pub(super) fn stop(&self, digest: &str) -> bool {
        let mut use_ = self.use_();
        if let Some(name) = use_.name(digest) {
            name.keep_alive = Some(Duration::ZERO);
            name.pinned = false;
        }
        use_.keep(|name| name.active > 0 || name.stored.entry.digest.hex() != digest);
        use_.leaving |= use_.names.is_empty();
        use_.leaving
    }

    /// Tells whether the model goes by the name with this digest.
    pub(super) fn is_known_as(&self, digest: &str) -> bool {
        self.use_().name(digest).is_some()
    }

    /// Marks the model as leaving when nobody uses it any more.
    pub(super) fn leave_if_idle(&self) -> bool {
        let mut use_ = self.use_();
        use_.leaving |= use_.active() == 0;
        use_.leaving
    }

    /// Marks the model as leaving. Returns whether it was not yet.
    pub(super) fn is_news_that_it_leaves(&self) -> bool {
        !std::mem::replace(&mut self.use_().leaving, true)
    }

    /// Returns the model when it is loaded.
    pub(super) fn loaded(&self) -> Option<Arc<LoadedModel>> {
        match &*self.state.borrow() {
            State::Ready(model) => Some(model.clone()),
            State::Queued | State::Loading | State::Failed(_) => None,
        }
    }

    /// Tells whether the engine's thread has ended.
    pub(super) fn is_dead(&self) -> bool {
        matches!(&*self.state.borrow(), State::Ready(model) if !model.engine.is_alive())
    }

    pub(super) fn set_placed(&self) {
        self.placed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_placed(&self) -> bool {
        self.placed.load(Ordering::Relaxed)
    }
}

impl Name {
    /// A name for its first request.
    fn new(stored: StoredModel, keep_alive: Option<Duration>, is_asked: bool) -> Name {
        Name {
            stored,
            ready: None,
            context: Arc::default(),
            active: 1,
            keep_alive,
            pinned: is_asked && keep_alive.is_none(),
            last_used: Instant::now(),
        }
    }

    /// Returns when an idle name leaves; `None` = not as things are.
    fn deadline(&self) -> Option<Instant> {
        let idle = self.keep_alive.filter(|_| self.active == 0)?;
        self.last_used.checked_add(idle)
    }

    /// Idle time left or, while it is used, the whole; `None` = for ever.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let idle = if self.active == 0 {
            self.last_used.elapsed()
        } else {
            Duration::ZERO
        };
        self.keep_alive
            .map(|keep_alive| keep_alive.saturating_sub(idle))
    }
}

impl Use {
    /// The name with this digest.
    pub(super) fn name(&mut self, digest: &str) -> Option<&mut Name> {
        self.names
            .iter_mut()
            .find(|name| name.stored.entry.digest.hex() == digest)
    }

    /// Gives up the other names.
    fn keep(&mut self, is_kept: impl Fn(&Name) -> bool) {
        self.names.retain(is_kept);
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(first) = self.names.first() {
            self.told_as.clone_from(&first.stored.entry.name);
        }
    }

    /// Leases given out or being waited for.
    pub(super) fn active(&self) -> usize {
        self.names.iter().map(|name| name.active).sum()
    }

    /// A request asked that it stays for ever.
    pub(super) fn is_pinned(&self) -> bool {
        self.names.iter().any(|name| name.pinned)
    }

    pub(super) fn last_used(&self) -> Option<Instant> {
        self.names.iter().map(|name| name.last_used).max()
    }

    /// Returns when the next idle name leaves; `None` = none as things are.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.names.iter().filter_map(Name::deadline).min()
    }

    /// Gives up the names whose time is over. Returns whether the model leaves with them.
    pub(super) fn expire(&mut self) -> bool {
        let now = Instant::now();
        self.keep(|name| name.deadline().is_none_or(|deadline| deadline > now));
        self.leaving |= self.names.is_empty();
        self.leaving
    }
}
