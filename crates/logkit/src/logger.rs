//! The front of the library: takes entries and never gets in the way.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    Entry, Level, Receipt, Redactor, Sink, Update,
    fanout::{FanOut, Inbox, notice},
    journal::{self, Journal, Segment},
    queue::{Full, Queue, QueueFull},
    receipt::{Ack, NotWritten},
    sinks::console::ConsoleSink,
    tags::Tags,
    writer::{Writer, on_writer_thread},
};

/// How long a logger that goes away may write.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);
/// Memory that waiting entries may take.
pub(crate) const MAX_BYTES: usize = 64 << 20;
const MAX_ENTRIES: usize = 65_536;

/// What happens when the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// ERROR and above wait up to 100 ms for room, the rest is dropped.
    #[default]
    ByLevel,
    /// Every entry waits up to 100 ms.
    Block,
    /// New entries are dropped.
    DropNew,
    /// The oldest entries make room.
    DropOld,
}

impl OnFull {
    /// Reads `block`, `drop_new` or `drop_old`.
    pub fn parse(name: &str) -> Option<OnFull> {
        Some(match name {
            "block" => OnFull::Block,
            "drop_new" => OnFull::DropNew,
            "drop_old" => OnFull::DropOld,
            _ => return None,
        })
    }

    fn for_level(self, level: &Level) -> Full {
        match self {
            OnFull::ByLevel if level.is_error() => Full::Wait,
            OnFull::ByLevel | OnFull::DropNew => Full::Refuse,
            OnFull::Block => Full::Wait,
            OnFull::DropOld => Full::DropOldest,
        }
    }
}

/// When an entry is safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Within 50 ms; ERROR at once.
    #[default]
    Buffered,
    /// In a journal before the call returns: a killed process loses nothing.
    Crash,
    /// Committed before the call returns.
    Sync,
    /// Committed and on the disk before the call returns.
    Full,
}

impl Durability {
    /// Reads `buffered`, `crash`, `sync` or `full`.
    pub fn parse(name: &str) -> Option<Durability> {
        Some(match name {
            "buffered" => Durability::Buffered,
            "crash" => Durability::Crash,
            "sync" => Durability::Sync,
            "full" => Durability::Full,
            _ => return None,
        })
    }
}

/// Counts of a logger since it was made. After a flush `emitted = written + dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries at or above the level.
    pub emitted: u64,
    /// Entries that a sink took.
    pub written: u64,
    /// Entries that are lost, for any reason.
    pub dropped: u64,
    /// Those lost because the queue was full or closed.
    pub dropped_queue: u64,
    /// Those lost because every sink failed.
    pub dropped_sink: u64,
    /// Calls of a sink that failed.
    pub sink_errors: u64,
    /// Entries that wait.
    pub queue_len: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) emitted: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) dropped_queue: AtomicU64,
    pub(crate) dropped_sink: AtomicU64,
    pub(crate) sink_errors: AtomicU64,
    /// The same by the name of the sink.
    errors_by_sink: Mutex<BTreeMap<String, u64>>,
}

/// Reads the counts of a logger, from within its sinks too.
#[derive(Clone, Debug)]
pub struct StatsSource {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
}

impl StatsSource {
    /// The counts now.
    pub fn get(&self) -> Stats {
        self.counters.stats(&self.queue)
    }

    /// Calls that failed, by the name of the sink.
    pub fn sink_errors(&self) -> BTreeMap<String, u64> {
        self.counters.errors_by_sink.lock().clone()
    }
}

impl Counters {
    pub(crate) fn sink_failed(&self, name: &str) {
        self.sink_errors.fetch_add(1, Relaxed);
        *self
            .errors_by_sink
            .lock()
            .entry(name.to_owned())
            .or_default() += 1;
    }

    fn stats(&self, queue: &Queue) -> Stats {
        let dropped_queue = self.dropped_by_queue(queue);
        let dropped_sink = self.dropped_sink.load(Relaxed);
        Stats {
            emitted: self.emitted.load(Relaxed),
            written: self.written.load(Relaxed),
            dropped: dropped_queue + dropped_sink,
            dropped_queue,
            dropped_sink,
            sink_errors: self.sink_errors.load(Relaxed),
            queue_len: queue.len(),
        }
    }

    pub(crate) fn dropped_by_queue(&self, queue: &Queue) -> u64 {
        let pushed_out = queue.take_pushed_out();
        self.dropped_queue.fetch_add(pushed_out, Relaxed) + pushed_out
    }
}

/// Takes entries; cheap to clone, all clones are one logger. When the last one goes away what
/// waits is written, for at most five seconds.
#[derive(Clone)]
pub struct Logger(Arc<Inner>);

struct Inner {
    name: String,
    level: AtomicU8,
    on_full: OnFull,
    durability: Durability,
    redactor: Option<Arc<Redactor>>,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    updates: Arc<Mutex<Vec<(i64, Update)>>>,
    inbox: Inbox,
    tags: Tags,
    journal: Option<Journal>,
    /// A caller waited in vain for its entry, and nothing was written in time since.
    late: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Logger {
    /// Starts to describe a logger.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Takes an entry. What is below the level is ignored; what has no room is counted as dropped.
    pub fn emit(&self, mut entry: Entry) {
        if matches!(self.0.durability, Durability::Sync | Durability::Full) {
            self.emit_synced(entry);
        } else if self.accepts(&entry.level) {
            self.0.tags.fill(&mut entry);
            let full = self.0.on_full.for_level(&entry.level);
            let segment = self.journaled(&entry);
            self.count(1, self.0.queue.push(entry, full, None, segment).is_ok());
        }
    }

    /// Takes an entry and waits for it, but not for a writer that stands still.
    fn emit_synced(&self, entry: Entry) {
        let patience = if self.0.late.load(Relaxed) {
            Duration::ZERO
        } else {
            DRAIN
        };
        let late = self.emit_acked(entry).wait(patience) == Err(NotWritten::Late);
        self.0.late.store(late, Relaxed);
    }

    /// Takes an entry if there is room now.
    pub fn try_emit(&self, mut entry: Entry) -> Result<(), QueueFull> {
        if !self.accepts(&entry.level) {
            return Ok(());
        }
        self.0.tags.fill(&mut entry);
        match self.0.queue.push(entry, Full::Refuse, None, None) {
            Err(NotWritten::QueueFull) => Err(QueueFull),
            other => {
                self.count(1, other.is_ok());
                Ok(())
            }
        }
    }

    /// Takes an entry and says when it is written.
    pub fn emit_acked(&self, mut entry: Entry) -> Receipt {
        if !self.accepts(&entry.level) {
            return Receipt::resolved(Err(NotWritten::Filtered));
        }
        self.0.tags.fill(&mut entry);
        let (receipt, slot) = Receipt::new();
        let full = self.0.on_full.for_level(&entry.level);
        let pushed = self.0.queue.push(entry, full, Some(slot), None);
        self.count(1, pushed.is_ok());
        match pushed {
            Ok(()) => receipt,
            Err(why) => Receipt::resolved(Err(why)),
        }
    }

    /// Takes entries, and says when they are written: together, or none of them. Levels are not
    /// looked at.
    pub fn emit_batch_acked(&self, entries: Vec<Entry>) -> Receipt {
        match self.push_batch(entries, Full::Wait) {
            Ok(receipt) => receipt,
            Err(why) => Receipt::resolved(Err(why)),
        }
    }

    /// Like [`Logger::emit_batch_acked`], but never waits for room: a caller who must answer "come
    /// back later" learns so, and nothing is counted as dropped.
    pub fn try_emit_batch_acked(&self, entries: Vec<Entry>) -> Result<Receipt, QueueFull> {
        match self.push_batch(entries, Full::Refuse) {
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
                self.count(n_entries, true);
                Ok(receipt)
            }
            Err(why) => {
                if full != Full::Refuse || why != NotWritten::QueueFull {
                    self.count(n_entries, false);
                }
                Err(why)
            }
        }
    }

    /// Adds what came later to a written row, in the sinks that can.
    pub fn update(&self, id: i64, update: Update) {
        self.0.updates.lock().push((id, update));
        let (_, slot) = Receipt::new();
        self.0.queue.flush(slot);
    }

    /// Adds a sink; it receives what is emitted from now on.
    pub fn add_sink(&self, sink: Box<dyn Sink>) -> &Logger {
        self.flush(DRAIN);
        self.0.inbox.lock().push(sink);
        self.flush(DRAIN);
        self
    }

    /// Waits until everything emitted before is written; false if that takes too long or failed.
    pub fn flush(&self, timeout: Duration) -> bool {
        if on_writer_thread() {
            return false;
        }
        let (receipt, slot) = Receipt::new();
        self.0.queue.flush(slot);
        let written = receipt.wait(timeout).is_ok();
        if written && let Some(journal) = &self.0.journal {
            journal.trim();
        }
        written
    }

    /// Keeps the entry on disk until it is written, if that was asked for. A journal that fails is
    /// counted, and the entry goes its usual way.
    fn journaled(&self, entry: &Entry) -> Option<Arc<Segment>> {
        let journal = self.0.journal.as_ref()?;
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
        self.0.close()
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        self.0.counters.stats(&self.0.queue)
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
        crate::default::level_changed(self);
    }

    /// Takes nothing from now on, until a level is set: a logged call costs next to nothing.
    pub fn disable(&self) {
        self.0.level.store(u8::MAX, Relaxed);
        crate::default::level_changed(self);
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

    fn count(&self, n_entries: usize, pushed: bool) {
        let counters = &self.0.counters;
        counters.emitted.fetch_add(n_entries as u64, Relaxed);
        if !pushed {
            counters.dropped_queue.fetch_add(n_entries as u64, Relaxed);
        }
    }
}

impl Inner {
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
        thread.is_finished() && thread.join().is_ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
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

/// Describes a [`Logger`].
pub struct Builder {
    name: String,
    level: Level,
    sinks: Vec<Box<dyn Sink>>,
    console: Option<ConsoleSink>,
    max_entries: usize,
    max_bytes: usize,
    on_full: OnFull,
    durability: Durability,
    redactor: Option<Arc<Redactor>>,
    journal: Option<PathBuf>,
    tags: Tags,
    wrappers: Vec<Wrapper>,
}

/// Puts a sink around others.
type Wrapper = Box<dyn FnOnce(Box<dyn Sink>) -> Box<dyn Sink>>;

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            name: "logkit".into(),
            level: Level::Debug,
            sinks: Vec::new(),
            console: None,
            max_entries: MAX_ENTRIES,
            max_bytes: MAX_BYTES,
            on_full: OnFull::default(),
            durability: Durability::default(),
            redactor: Some(Redactor::shared()),
            journal: None,
            tags: Tags::default(),
            wrappers: Vec::new(),
        }
    }
}

impl Builder {
    /// Name of the logger: `logkit` unless set.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = name.into();
        self
    }

    /// Lowest level taken: DEBUG unless set.
    pub fn level(mut self, level: Level) -> Builder {
        self.level = level;
        self
    }

    /// Adds a sink.
    pub fn sink(mut self, sink: impl Sink + 'static) -> Builder {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Adds a line on the console for each entry.
    pub fn console(mut self, console: ConsoleSink) -> Builder {
        self.console = Some(console);
        self
    }

    /// Limits of what waits: entries, and bytes of memory.
    pub fn queue(mut self, max_entries: usize, max_bytes: usize) -> Builder {
        self.max_entries = max_entries;
        self.max_bytes = max_bytes;
        self
    }

    /// What happens when the queue is full.
    pub fn on_full(mut self, on_full: OnFull) -> Builder {
        self.on_full = on_full;
        self
    }

    /// When entries are safe.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.durability = durability;
        self
    }

    /// What blanks secrets; `None` switches it off.
    pub fn redactor(mut self, redactor: Option<Redactor>) -> Builder {
        self.redactor = redactor.map(Arc::new);
        self
    }

    /// Where the journal of [`Durability::Crash`] lives: the start of its files' names, such as
    /// `logs.db.crash`. What an earlier process left there is written first.
    pub fn journal(mut self, prefix: impl Into<PathBuf>) -> Builder {
        self.journal = Some(prefix.into());
        self
    }

    /// Fills empty fields of all entries.
    pub fn tags(mut self, tags: Tags) -> Builder {
        self.tags = tags;
        self
    }

    /// Puts a wrapper around all sinks; the first one given is the outermost.
    pub fn wrap(
        mut self,
        wrapper: impl FnOnce(Box<dyn Sink>) -> Box<dyn Sink> + 'static,
    ) -> Builder {
        self.wrappers.push(Box::new(wrapper));
        self
    }

    /// Starts the logger. If the system gives no thread, everything is dropped and counted.
    pub fn build(self) -> Logger {
        let queue = Arc::new(Queue::new(self.max_entries, self.max_bytes));
        let counters = Arc::<Counters>::default();
        let updates = Arc::default();
        let inbox = Inbox::default();
        let fan_out = FanOut::new(self.sinks, Arc::clone(&inbox), Arc::clone(&counters));
        let mut root: Box<dyn Sink> = Box::new(fan_out);
        for wrap in self.wrappers.into_iter().rev() {
            root = wrap(root);
        }
        let writer = Writer {
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            root: Some(root),
            console: self.console.map(|console| console.named(&self.name)),
            updates: Arc::clone(&updates),
            reported: 0,
            reported_at: None,
            told: false,
        };
        let thread = writer.spawn();
        if let Err(error) = &thread {
            notice(&format!("nothing is logged: no thread: {error}"));
            queue.close();
        }
        let wanted = self.durability == Durability::Crash;
        let (journal, leftovers) = match self.journal.filter(|_| wanted) {
            Some(prefix) => {
                let leftovers = journal::leftovers(&prefix);
                let journal = Journal::open(prefix)
                    .map_err(|error| notice(&format!("journal: {error}")))
                    .ok();
                (journal, leftovers)
            }
            None => (None, Vec::new()),
        };
        let logger = Logger(Arc::new(Inner {
            name: self.name,
            level: AtomicU8::new(self.level.number()),
            on_full: self.on_full,
            durability: self.durability,
            redactor: self.redactor,
            queue,
            counters,
            updates,
            inbox,
            tags: self.tags,
            journal,
            late: AtomicBool::new(false),
            thread: Mutex::new(thread.ok()),
        }));
        for (segment, entries) in leftovers {
            let written = logger.emit_batch_acked(entries).wait(DRAIN);
            if written.is_err() {
                // The next one tries again: only a segment that is dropped is deleted.
                std::mem::forget(segment);
            }
        }
        logger
    }
}
