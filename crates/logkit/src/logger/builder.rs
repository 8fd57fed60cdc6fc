//! Describes a logger and starts it.

use std::{
    mem::ManuallyDrop,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8},
    },
};

use crate::{
    Durability, Level, Logger, OnFull, Redactor, Sink,
    fanout::{FanOut, Inbox},
    journal::Journal,
    lock::Mutex,
    logger::{Inner, MAX_BYTES},
    queue::Queue,
    sinks::console::ConsoleSink,
    stats::Counters,
    stderr::notice,
    tags::Tags,
    writer::Writer,
};

const MAX_ENTRIES: usize = 65_536;

/// Describes a [`Logger`]; begun by [`Logger::builder`], ended by [`Builder::build`].
///
/// ```
/// use logkit::{Entry, JsonForm, JsonSink, Level, Logger, OnFull, Rotation, Tags};
///
/// # fn main() -> Result<(), logkit::SinkError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("calls.jsonl");
/// let logger = Logger::builder()
///     .name("billing")
///     .level(Level::Info)
///     .queue(10_000, 16 << 20)
///     .on_full(OnFull::Block)
///     .tags(Tags::new("production", "", "1.4.2"))
///     .sink(JsonSink::open(path, JsonForm::Lines, Rotation::default())?)
///     .build();
///
/// logger.emit(Entry { function_name: "charge".into(), ..Entry::default() });
/// logger.emit(Entry { level: Level::Debug, ..Entry::default() }); // below the level: ignored
/// assert!(logger.close());
/// assert_eq!(logger.stats().written, 1);
/// # Ok(())
/// # }
/// ```
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
    pub(crate) tags: Tags,
    wrappers: Vec<Wrapper>,
    after_fork: Option<Remake>,
}

/// Describes a logger once more, in another process.
pub(crate) type Remake = Arc<dyn Fn() -> Builder + Send + Sync>;

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
            after_fork: None,
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

    /// Adds a sink; every sink gets every entry. Without one there is only the console, if that is
    /// set.
    pub fn sink(mut self, sink: impl Sink + 'static) -> Builder {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Adds a line on the console for each entry.
    pub fn console(mut self, console: ConsoleSink) -> Builder {
        self.console = Some(console);
        self
    }

    /// Limits of what waits: entries (65,536 unless set), and bytes of memory (64 MiB unless set).
    pub fn queue(mut self, max_entries: usize, max_bytes: usize) -> Builder {
        self.max_entries = max_entries;
        self.max_bytes = max_bytes;
        self
    }

    /// What happens when the queue is full: [`OnFull::ByLevel`] unless set.
    pub fn on_full(mut self, on_full: OnFull) -> Builder {
        self.on_full = on_full;
        self
    }

    /// When entries are safe: [`Durability::Buffered`] unless set.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.durability = durability;
        self
    }

    /// What blanks secrets: the built-in rules unless set; `None` switches it off.
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

    /// How to make the logger anew in a process that this one forked, where neither its thread nor
    /// its open files can be used. The tags stay the same. Without it everything is dropped there, and
    /// counted.
    pub fn after_fork(mut self, describe: impl Fn() -> Builder + Send + Sync + 'static) -> Builder {
        self.after_fork = Some(Arc::new(describe));
        self
    }

    /// Starts the logger. If the system gives no thread, everything is dropped and counted.
    pub fn build(self) -> Logger {
        let has_sinks = !self.sinks.is_empty();
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
            queue.end();
        }
        let wanted = self.durability == Durability::Crash;
        let journal = self.journal.filter(|_| wanted).and_then(|prefix| {
            Journal::open(prefix)
                .map_err(|error| notice(&format!("journal: {error}")))
                .ok()
        });
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
            journal: ManuallyDrop::new(journal),
            late: AtomicBool::new(false),
            thread: Mutex::new(thread.ok()),
            born: forkguard::Guard::default(),
            after_fork: self.after_fork,
            child: OnceLock::new(),
        }));
        if has_sinks {
            logger.recover();
        }
        logger
    }
}
