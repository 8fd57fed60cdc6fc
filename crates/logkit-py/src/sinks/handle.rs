//! One native sink, shared by all who hold it: loggers, wrappers, and Python.
//!
//! A sink is behind a lock. No Python code runs while one is held: what a sink wants to call is put
//! aside (`live/pending.rs`) and called afterwards. Whoever waits for one does not hold the interpreter.

use std::{
    borrow::Cow,
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use logkit::{
    Durability, Entry, MetricsSink, Sink, SinkError, StatsSource, Update, Which, lock::Mutex,
};

/// Makes the sink: at first use, and once more in a forked process.
pub(crate) type Recipe = Box<dyn Fn(Making) -> Result<Made, SinkError> + Send + Sync>;

/// What a recipe may want to know.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    /// The process was forked since Python made the object.
    pub(crate) is_forked: bool,
}

/// A sink, and what can be asked of it later.
pub(crate) struct Made {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) metrics: Option<Arc<Mutex<MetricsSink>>>,
}

impl Made {
    pub(crate) fn new(sink: impl Sink + 'static) -> Made {
        Made {
            sink: Box::new(sink),
            metrics: None,
        }
    }
}

/// What is known of a sink and of those behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traits {
    /// Some of it is written in Python and wants the objects of the call.
    pub(crate) is_live: bool,
    /// Entries that may be held back.
    pub(crate) holds: usize,
    /// Something may come later: answers of models, news from a network.
    pub(crate) polls: bool,
    /// The database behind it.
    pub(crate) database: Option<PathBuf>,
    /// The file behind it, for the journal of [`Durability::Crash`].
    pub(crate) file: Option<PathBuf>,
    /// What the database was asked for.
    pub(crate) durability: Option<Durability>,
}

impl Traits {
    /// Those of several sinks together.
    pub(crate) fn and(mut self, other: &Traits) -> Traits {
        self.is_live |= other.is_live;
        self.holds = self.holds.saturating_add(other.holds);
        self.polls |= other.polls;
        self.database = self.database.or_else(|| other.database.clone());
        self.file = self.file.or_else(|| other.file.clone());
        self.durability = self.durability.or(other.durability);
        self
    }
}

/// A native sink.
pub(crate) struct Handle {
    name: &'static str,
    recipe: Recipe,
    traits: Traits,
    here: Here,
    /// Python closed it: it takes nothing any more.
    is_closed: AtomicBool,
}

/// The sink in one process. A forked one starts anew: what was locked at the fork stays so.
struct Here {
    born: forkguard::Guard,
    is_forked: bool,
    state: Mutex<State>,
    child: OnceLock<Box<Here>>,
}

#[derive(Default)]
struct State {
    sink: Option<Box<dyn Sink>>,
    /// Stays when the sink is closed: counts can still be read.
    metrics: Option<Arc<Mutex<MetricsSink>>>,
    n_users: usize,
    /// Counts of the loggers it is in, newest last.
    sources: Vec<StatsSource>,
}

/// Loggers of one sink that are remembered.
const MAX_SOURCES: usize = 16;

/// All handles; locked by threads only that hold the interpreter, and never for long, so no fork
/// finds it locked.
static ALL: Mutex<Vec<Weak<Handle>>> = Mutex::new(Vec::new());

/// The sinks of this process.
pub(crate) fn all() -> Vec<Arc<Handle>> {
    ALL.lock().iter().filter_map(Weak::upgrade).collect()
}

impl Here {
    fn new(is_forked: bool) -> Here {
        Here {
            born: forkguard::Guard::default(),
            is_forked,
            state: Mutex::default(),
            child: OnceLock::new(),
        }
    }

    fn live(&self) -> &Here {
        // A copy: to look at it would change it.
        if self.born.clone().detected_fork() {
            self.child.get_or_init(|| Box::new(Here::new(true))).live()
        } else {
            self
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if self.born.clone().detected_fork() {
            // Its files and threads belong to the process that forked this one.
            std::mem::forget(std::mem::take(&mut self.state));
        }
    }
}

impl Handle {
    pub(crate) fn new(name: &'static str, traits: Traits, recipe: Recipe) -> Arc<Handle> {
        let handle = Arc::new(Handle {
            name,
            recipe,
            traits,
            here: Here::new(false),
            is_closed: AtomicBool::new(false),
        });
        let mut all = ALL.lock();
        if all.len() == all.capacity() {
            all.retain(|handle| handle.strong_count() > 0);
        }
        all.push(Arc::downgrade(&handle));
        handle
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn traits(&self) -> &Traits {
        &self.traits
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Makes the sink now, to learn whether that goes well.
    pub(crate) fn open(&self) -> Result<(), SinkError> {
        self.with(|_| Ok(()))
    }

    /// Does that with the sink, which is made if there is none yet.
    pub(crate) fn with<R>(
        &self,
        call: impl FnOnce(&mut dyn Sink) -> Result<R, SinkError>,
    ) -> Result<R, SinkError> {
        let here = self.here.live();
        let mut state = here.state.lock();
        if self.is_closed() {
            return Err(SinkError::Other("the sink is closed".to_owned()));
        }
        call(self.made(here.is_forked, &mut state)?)
    }

    /// Does that with the sink if there is one.
    pub(crate) fn if_open<R: Default>(
        &self,
        call: impl FnOnce(&mut dyn Sink) -> Result<R, SinkError>,
    ) -> Result<R, SinkError> {
        match &mut self.here.live().state.lock().sink {
            Some(sink) => call(&mut **sink),
            None => Ok(R::default()),
        }
    }

    fn made<'a>(
        &self,
        is_forked: bool,
        state: &'a mut State,
    ) -> Result<&'a mut dyn Sink, SinkError> {
        match &mut state.sink {
            Some(sink) => Ok(&mut **sink),
            none => {
                let mut made = (self.recipe)(Making { is_forked })?;
                if let Some(stats) = state.sources.last() {
                    made.sink.attach(stats);
                }
                state.metrics = made.metrics;
                Ok(&mut **none.insert(made.sink))
            }
        }
    }

    fn attach(&self, stats: &StatsSource) {
        let mut state = self.here.live().state.lock();
        if state.sources.len() >= MAX_SOURCES {
            state.sources.remove(0);
        }
        state.sources.push(stats.clone());
        if let Some(sink) = &mut state.sink {
            sink.attach(stats);
        }
    }

    /// The counts that it serves, if that is what it does.
    pub(crate) fn metrics(&self) -> Option<Arc<Mutex<MetricsSink>>> {
        self.here.live().state.lock().metrics.clone()
    }

    /// Waits until its loggers have written what they had taken before.
    pub(crate) fn catch_up(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let sources = self.here.live().state.lock().sources.clone();
        for source in sources {
            let wanted = source.get().emitted;
            loop {
                let stats = source.get();
                let is_done = stats.written + stats.dropped >= wanted || stats.queue_len == 0;
                if is_done || Instant::now() >= deadline {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Somebody writes to it from now on.
    pub(crate) fn join(&self) {
        self.here.live().state.lock().n_users += 1;
    }

    /// One of its users is done. The last one closes it; it opens again if it is used again.
    pub(crate) fn leave(&self) -> Result<(), SinkError> {
        let mut state = self.here.live().state.lock();
        state.n_users = state.n_users.saturating_sub(1);
        if state.n_users == 0 {
            state.close()
        } else {
            state.sink.as_mut().map_or(Ok(()), Sink::flush)
        }
    }

    /// Closes it unless somebody uses it.
    pub(crate) fn close_if_unused(&self) -> Result<(), SinkError> {
        let mut state = self.here.live().state.lock();
        if state.n_users == 0 {
            state.close()
        } else {
            Ok(())
        }
    }

    /// Closes it for good.
    pub(crate) fn close(&self) -> Result<(), SinkError> {
        let mut state = self.here.live().state.lock();
        self.is_closed.store(true, SeqCst);
        state.close()
    }
}

impl State {
    fn close(&mut self) -> Result<(), SinkError> {
        match self.sink.take() {
            Some(mut sink) => sink.close(),
            None => Ok(()),
        }
    }
}

/// A place in a logger or wrapper where a sink is used.
pub(crate) struct Share {
    handle: Arc<Handle>,
    first_id: Option<i64>,
    has_joined: bool,
}

impl Share {
    pub(crate) fn new(handle: Arc<Handle>) -> Share {
        Share {
            handle,
            first_id: None,
            has_joined: false,
        }
    }

    fn with<R>(
        &mut self,
        call: impl FnOnce(&mut dyn Sink) -> Result<R, SinkError>,
    ) -> Result<R, SinkError> {
        if !self.has_joined {
            self.has_joined = true;
            self.handle.join();
        }
        self.handle.with(call)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.has_joined {
            let _ = self.handle.leave();
        }
    }
}

impl Sink for Share {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        if which == Which::Held {
            return self.with(|sink| sink.write_which(entries, which));
        }
        self.first_id = None;
        // Within the same lock: others write to it too.
        self.first_id = self.with(|sink| {
            sink.write_which(entries, which)?;
            Ok(sink.first_id())
        })?;
        Ok(())
    }

    fn first_id(&self) -> Option<i64> {
        self.first_id
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        self.with(|sink| sink.update(id, update))
    }

    fn can_update(&self) -> bool {
        self.handle
            .with(|sink| Ok(sink.can_update()))
            .unwrap_or(false)
    }

    fn attach(&mut self, stats: &StatsSource) {
        self.handle.attach(stats);
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        self.handle.if_open(|sink| sink.poll())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.handle.if_open(|sink| sink.flush())
    }

    fn release(&mut self) -> Result<(), SinkError> {
        self.handle.if_open(|sink| sink.release())
    }

    fn close(&mut self) -> Result<(), SinkError> {
        if std::mem::take(&mut self.has_joined) {
            self.handle.leave()
        } else {
            self.handle.close_if_unused()
        }
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(self.handle.name())
    }
}
