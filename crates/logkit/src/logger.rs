//! The front of the library: takes entries and never gets in the way.

pub(crate) mod builder;
pub(crate) mod default;
pub(crate) mod guards;

use std::{
    fmt,
    mem::ManuallyDrop,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    Builder, Durability, Entry, ForkGuard, Level, OnFull, Receipt, Redactor, Sink, Stats,
    StatsSource, TempLevel, TempSink, Update,
    fanout::{DynamicSink, Inbox},
    journal::{Journal, Segment},
    lock::Mutex,
    queue::{Full, Pause, Queue, QueueFull},
    receipt::{Ack, NotWritten},
    stats::Counters,
    stderr::notice,
    tags::Tags,
    writer::on_writer_thread,
};
use builder::Remake;

/// How long a logger that goes away may write.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);
/// Memory that waiting entries may take.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Takes entries; cheap to clone, all clones are one logger. When the last one goes away what
/// waits is written, for at most five seconds.
#[derive(Clone)]
pub struct Logger(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) level: AtomicU8,
    pub(crate) on_full: OnFull,
    pub(crate) durability: Durability,
    pub(crate) redactor: Option<Arc<Redactor>>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) updates: Arc<Mutex<Vec<(i64, Update)>>>,
    pub(crate) inbox: Inbox,
    pub(crate) tags: Tags,
    /// Deletes its files when dropped, which only the process may do that made them.
    pub(crate) journal: ManuallyDrop<Option<Journal>>,
    /// A caller waited in vain for its entry, and nothing was written in time since.
    pub(crate) late: AtomicBool,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// Knows whether this is still the process whose thread writes.
    pub(crate) born: forkguard::Guard,
    pub(crate) after_fork: Option<Remake>,
    /// The logger of this process, if it was forked by the one that made this logger.
    pub(crate) child: OnceLock<Logger>,
}

/// Knows a logger without keeping it open.
#[derive(Clone)]
pub struct WeakLogger(Weak<Inner>);

impl WeakLogger {
    /// The logger, if somebody still has it.
    pub fn upgrade(&self) -> Option<Logger> {
        self.0.upgrade().map(Logger)
    }
}

impl fmt::Debug for WeakLogger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakLogger")
    }
}

impl Logger {
    /// Knows this logger without keeping it open.
    pub fn downgrade(&self) -> WeakLogger {
        WeakLogger(Arc::downgrade(&self.0))
    }

    /// Starts to describe a logger.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The logger that works in this process: itself, unless the process was forked since.
    #[inline]
    fn live(&self) -> &Logger {
        if self.0.was_forked() {
            self.child()
        } else {
            self
        }
    }

    /// The logger that works in this process, if there is one.
    fn running(&self) -> Option<&Logger> {
        if self.0.was_forked() {
            self.0.child.get()?.running()
        } else {
            Some(self)
        }
    }

    /// Only the thread that forked goes on in a forked process: what others held locked stays so, the
    /// writer among them. So nothing of this logger is touched there, and another one takes its place.
    #[cold]
    fn child(&self) -> &Logger {
        let child = self.0.child.get_or_init(|| {
            let described = self.0.after_fork.as_ref();
            let builder = described.map_or_else(Logger::builder, |describe| describe());
            let mut builder = builder.tags(self.0.tags.clone());
            if let Some(describe) = described {
                let describe = Arc::clone(describe);
                builder = builder.after_fork(move || describe());
            }
            let child = builder.build();
            if described.is_none() {
                notice("this process was forked, and its entries are dropped");
                child.0.queue.close();
            }
            // Levels are looked at here.
            child.0.level.store(0, Relaxed);
            child
        });
        child.live()
    }

    /// Lets go of files and connections, and holds the writer until the guard is dropped. A process
    /// that forks keeps the guard from before the fork until after it, on both sides: SQLite allows no
    /// database to be open meanwhile. Waits five seconds at most.
    pub fn before_fork(&self) -> ForkGuard {
        let pause = Arc::<Pause>::default();
        if let Some(live) = self.running()
            && !on_writer_thread()
        {
            live.flush(DRAIN);
            live.0.queue.pause(Arc::clone(&pause));
            pause.reached(DRAIN);
        }
        ForkGuard(pause)
    }

    /// Takes an entry. What is below the level is ignored; what has no room is counted as dropped.
    pub fn emit(&self, entry: Entry) {
        if self.accepts(&entry.level) {
            self.live().put(entry);
        }
    }

    /// Like [`Logger::emit`], but gives the entry back where that would wait: for room in the queue or for
    /// the writer. Whoever holds a lock that a sink may want lets go of it, and emits then.
    ///
    /// # Errors
    ///
    /// The entry, which was not taken: the queue has no room and the caller would wait for some, the
    /// durability is [`Durability::Sync`] or [`Durability::Full`], or the process was forked and has
    /// no logger of its own yet.
    pub fn emit_unless_waiting(&self, mut entry: Entry) -> Result<(), Box<Entry>> {
        if !self.accepts(&entry.level) {
            return Ok(());
        }
        let Some(live) = self.running() else {
            return Err(Box::new(entry)); // the logger of this process has to be made first
        };
        let inner = &*live.0;
        if matches!(inner.durability, Durability::Sync | Durability::Full) {
            return Err(Box::new(entry));
        }
        inner.tags.fill(&mut entry);
        let full = inner.on_full.for_level(&entry.level);
        if inner.queue.would_wait(&entry, full) {
            return Err(Box::new(entry));
        }
        live.put(entry);
        Ok(())
    }

    /// Fills what is empty with the tags of the logger, as it is done for what is emitted.
    pub fn fill_tags(&self, entry: &mut Entry) {
        self.0.tags.fill(entry);
    }

    fn put(&self, mut entry: Entry) {
        if matches!(self.0.durability, Durability::Sync | Durability::Full) {
            self.put_synced(entry);
        } else {
            self.0.tags.fill(&mut entry);
            let full = self.0.on_full.for_level(&entry.level);
            let segment = self.journaled(&entry);
            let pushed = self.0.queue.push(entry, full, None, segment);
            self.count(1, pushed.err());
        }
    }

    /// Takes an entry and waits for it, but not for a writer that stands still.
    fn put_synced(&self, entry: Entry) {
        let timeout = if self.0.late.load(Relaxed) {
            Duration::ZERO
        } else {
            DRAIN
        };
        let late = self.put_acked(entry).wait(timeout) == Err(NotWritten::Late);
        self.0.late.store(late, Relaxed);
    }

    /// Takes an entry if there is room now.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] if there is none: the entry is gone, and counted neither as emitted nor as
    /// dropped.
    pub fn try_emit(&self, mut entry: Entry) -> Result<(), QueueFull> {
        if !self.accepts(&entry.level) {
            return Ok(());
        }
        let live = self.live();
        live.0.tags.fill(&mut entry);
        match live.0.queue.push(entry, Full::Refuse, None, None) {
            Err(NotWritten::QueueFull) => Err(QueueFull),
            other => {
                live.count(1, other.err());
                Ok(())
            }
        }
    }

    /// Takes an entry and says when it is written.
    pub fn emit_acked(&self, entry: Entry) -> Receipt {
        if !self.accepts(&entry.level) {
            return Receipt::resolved(Err(NotWritten::Filtered));
        }
        self.live().put_acked(entry)
    }

    fn put_acked(&self, mut entry: Entry) -> Receipt {
        self.0.tags.fill(&mut entry);
        let (receipt, slot) = Receipt::new();
        let full = self.0.on_full.for_level(&entry.level);
        let pushed = self.0.queue.push(entry, full, Some(slot), None);
        self.count(1, pushed.clone().err());
        match pushed {
            Ok(()) => receipt,
            Err(why) => Receipt::resolved(Err(why)),
        }
    }

    /// Takes entries, and says when they are written: together, or none of them. Levels are not
    /// looked at.
    pub fn emit_batch_acked(&self, entries: Vec<Entry>) -> Receipt {
        match self.live().push_batch(entries, Full::Wait) {
            Ok(receipt) => receipt,
            Err(why) => Receipt::resolved(Err(why)),
        }
    }

    /// Like [`Logger::emit_batch_acked`], but never waits for room: a caller who must answer "come
    /// back later" learns so, and nothing is counted as dropped.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] if there is no room for all entries now; none of them is taken. Whatever else goes
    /// wrong, such as a closed logger, the receipt says.
    pub fn try_emit_batch_acked(&self, entries: Vec<Entry>) -> Result<Receipt, QueueFull> {
        match self.live().push_batch(entries, Full::Refuse) {
            Ok(receipt) => Ok(receipt),
            Err(NotWritten::QueueFull) => Err(QueueFull),
            Err(why) => Ok(Receipt::resolved(Err(why))),
        }
    }

    fn push_batch(&self, mut entries: Vec<Entry>, full: Full) -> Result<Receipt, NotWritten> {
        let n_entries = entries.len();
        if n_entries == 0 {
            return Ok(Receipt::resolved(Ok(Ack {
                first_id: None,
                n_entries,
            })));
        }
        for entry in &mut entries {
            self.0.tags.fill(entry);
        }
        let (receipt, slot) = Receipt::new();
        match self.0.queue.push_many(entries, full, Some(slot)) {
            Ok(()) => {
                self.count(n_entries, None);
                Ok(receipt)
            }
            Err(why) => {
                if full != Full::Refuse || why != NotWritten::QueueFull {
                    self.count(n_entries, Some(why.clone()));
                }
                Err(why)
            }
        }
    }

    /// Adds what came later to a written row, in the sinks that can.
    pub fn update(&self, id: i64, update: Update) {
        let live = self.live();
        live.0.updates.lock().push((id, update));
        let (_, slot) = Receipt::new();
        live.0.queue.flush(slot);
    }

    /// Adds a sink; it receives what is emitted from now on.
    pub fn add_sink(&self, sink: Box<dyn Sink>) -> &Logger {
        self.add(DynamicSink {
            sink,
            leaves: Arc::default(),
        });
        self
    }

    /// Adds a sink as long as the guard lives; then it is closed.
    pub fn temp_sink(&self, sink: Box<dyn Sink>) -> TempSink {
        let leaves = Arc::<AtomicBool>::default();
        self.add(DynamicSink {
            sink,
            leaves: Arc::clone(&leaves),
        });
        TempSink {
            logger: self.clone(),
            leaves,
        }
    }

    fn add(&self, added: DynamicSink) {
        let live = self.live();
        live.flush(DRAIN);
        live.0.inbox.lock().push(added);
        live.flush(DRAIN);
    }

    /// Writes what killed processes left behind in the journal of this logger. A logger that is built
    /// with sinks does so itself; this is for those whose sinks come later.
    pub fn recover(&self) {
        let Some(journal) = &*self.0.journal else {
            return;
        };
        for (segment, entries) in journal.leftovers() {
            if self.emit_batch_acked(entries).wait(DRAIN).is_err() {
                // The next one tries again: only a segment that is dropped is deleted.
                std::mem::forget(segment);
            }
        }
    }

    /// Another lowest level as long as the guard lives.
    pub fn temp_level(&self, level: &Level) -> TempLevel {
        let before = self.0.level.swap(level.number(), Relaxed);
        default::level_changed(self);
        TempLevel {
            logger: self.clone(),
            before,
        }
    }

    /// Waits until everything emitted before is written; false if that takes too long or failed.
    pub fn flush(&self, timeout: Duration) -> bool {
        if on_writer_thread() {
            return false;
        }
        let Some(live) = self.running() else {
            return true; // nothing was emitted in this process
        };
        let (receipt, slot) = Receipt::new();
        live.0.queue.flush(slot);
        let written = receipt.wait(timeout).is_ok();
        if written && let Some(journal) = &*live.0.journal {
            journal.trim();
        }
        written
    }

    /// Keeps the entry on disk until it is written, if that was asked for. A journal that fails is
    /// counted, and the entry goes its usual way.
    fn journaled(&self, entry: &Entry) -> Option<Arc<Segment>> {
        let journal = (*self.0.journal).as_ref()?;
        match journal.write(entry) {
            Ok(segment) => Some(segment),
            Err(error) => {
                if self.0.counters.sink_errors.fetch_add(1, Relaxed) == 0 {
                    notice(&format!("journal: {error}"));
                }
                None
            }
        }
    }

    /// Writes what waits, for at most five seconds, and closes the sinks. What is emitted later is
    /// dropped. True if everything was written.
    pub fn close(&self) -> bool {
        self.running().is_none_or(|live| live.0.close())
    }

    /// What became of the entries until now.
    pub fn stats(&self) -> Stats {
        let live = self.running();
        live.map_or_else(Stats::default, |live| live.0.counters.stats(&live.0.queue))
    }

    /// Reads the counts from elsewhere.
    pub fn stats_source(&self) -> StatsSource {
        let live = &self.live().0;
        StatsSource {
            queue: Arc::clone(&live.queue),
            counters: Arc::clone(&live.counters),
        }
    }

    /// Name of the logger.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// True if entries of that level are taken.
    pub fn enabled(&self, level: &Level) -> bool {
        level.number() >= self.0.level.load(Relaxed)
    }

    /// Rank of the lowest level taken.
    pub fn level_number(&self) -> u8 {
        self.0.level.load(Relaxed)
    }

    /// Changes the lowest level taken.
    pub fn set_level(&self, level: &Level) {
        self.0.level.store(level.number(), Relaxed);
        default::level_changed(self);
    }

    /// Takes nothing from now on, until a level is set: a logged call costs next to nothing.
    pub fn disable(&self) {
        self.0.level.store(u8::MAX, Relaxed);
        default::level_changed(self);
    }

    /// True if both are the same logger.
    pub fn is(&self, other: &Logger) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What blanks secrets; `None` if that is switched off.
    pub fn redactor(&self) -> Option<&Redactor> {
        self.0.redactor.as_deref()
    }

    /// Blanks secrets of an entry whose texts were not rendered by this library.
    pub fn redact(&self, entry: &mut Entry) {
        if let Some(redactor) = self.redactor() {
            redactor.redact_entry(entry);
        }
    }

    fn accepts(&self, level: &Level) -> bool {
        self.enabled(level) && !on_writer_thread()
    }

    fn count(&self, n_entries: usize, dropped: Option<NotWritten>) {
        let counters = &self.0.counters;
        counters.emitted.fetch_add(n_entries as u64, Relaxed);
        let Some(why) = dropped else {
            return;
        };
        let before = counters.dropped_queue.fetch_add(n_entries as u64, Relaxed);
        if before == 0 && why == NotWritten::QueueFull {
            notice("the queue is full, entries are dropped: a sink stands still or is too slow");
        }
    }
}

impl Inner {
    #[inline]
    fn was_forked(&self) -> bool {
        // A copy: to look at it would change it.
        self.born.clone().detected_fork()
    }

    fn close(&self) -> bool {
        self.queue.close();
        let Some(thread) = self.thread.lock().take() else {
            return true;
        };
        if on_writer_thread() {
            return false;
        }
        let deadline = Instant::now() + DRAIN;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let written = thread.is_finished() && thread.join().is_ok();
        if written && let Some(journal) = &*self.journal {
            journal.end();
        }
        written
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.was_forked() {
            return; // all of it belongs to the process that forked this one
        }
        self.close();
        // Once, and nobody looks at it again.
        drop(self.journal.take());
    }
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger")
            .field("name", &self.0.name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
