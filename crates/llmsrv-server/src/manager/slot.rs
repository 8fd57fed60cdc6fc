//! The place of one model, from the first request for it until it is gone.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use llmsrv_api::keep_alive::KeepAlive;
use llmsrv_engine::Stats;
use llmsrv_store::StoredModel;
use tokio::sync::{Notify, watch};

use super::{ReadyModel, turns::Turns};
use crate::error::ApiError;

pub(super) struct Slot {
    /// Digest of the manifest.
    pub(super) digest: String,
    pub(super) stored: StoredModel,
    pub(super) state: watch::Receiver<State>,
    pub(super) turns: Turns,
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
    Ready(Arc<ReadyModel>),
    Failed(ApiError),
}

/// Who uses a model and how long it stays.
pub(super) struct Use {
    /// Leases given out or being waited for.
    pub(super) active: usize,
    /// Idle time; `None` = for ever.
    pub(super) keep_alive: Option<Duration>,
    /// A request asked that it stays for ever: it makes room for nobody.
    pub(super) pinned: bool,
    pub(super) last_used: Instant,
    /// Nobody may use it any more.
    pub(super) leaving: bool,
}

impl Slot {
    /// Makes the place of a model for its first request.
    pub(super) fn new(
        stored: StoredModel,
        state: watch::Receiver<State>,
        parallel: usize,
        default_keep_alive: Option<Duration>,
        keep_alive: Option<KeepAlive>,
    ) -> Slot {
        Slot {
            digest: stored.entry.digest.hex(),
            stored,
            state,
            turns: Turns::new(parallel),
            placed: AtomicBool::new(false),
            idle: Notify::new(),
            counted: Mutex::default(),
            use_: Mutex::new(Use {
                active: 1,
                keep_alive: keep_alive.map_or(default_keep_alive, |keep_alive| keep_alive.0),
                pinned: keep_alive.is_some_and(|keep_alive| keep_alive.0.is_none()),
                last_used: Instant::now(),
                leaving: false,
            }),
        }
    }

    pub(super) fn use_(&self) -> MutexGuard<'_, Use> {
        self.use_.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more request, unless the model is leaving or its engine has died.
    pub(super) fn enter(&self, keep_alive: Option<KeepAlive>) -> bool {
        let dead = self.is_dead();
        let mut use_ = self.use_();
        use_.leaving |= dead && use_.active == 0;
        if use_.leaving || dead {
            return false;
        }
        use_.active += 1;
        if let Some(keep_alive) = keep_alive {
            use_.keep_alive = keep_alive.0;
            use_.pinned = keep_alive.0.is_none();
        }
        true
    }

    /// Marks the model as leaving when nobody uses it any more.
    pub(super) fn leave_if_idle(&self) -> bool {
        let mut use_ = self.use_();
        use_.leaving |= use_.active == 0;
        use_.leaving
    }

    /// Returns the model when it is loaded.
    pub(super) fn ready(&self) -> Option<Arc<ReadyModel>> {
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

impl Use {
    /// Returns when an idle model leaves; `None` = not as things are.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let idle = self.keep_alive.filter(|_| self.active == 0)?;
        self.last_used.checked_add(idle)
    }
}
