//! The one writer and the readers of the database.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use logkit::{
    DbSink, Entry, Logger, MetricsFormat, MetricsOptions, MetricsSink, NotWritten, OnFull, Receipt,
    Redactor, Sink as _, SinkError, Stats, query::Reader,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::settings::{Error, Settings};

/// Table of the entries.
pub(crate) const TABLE: &str = "logs";
/// Queries at the same time.
const N_READERS: usize = 4;
/// How long a query waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// How long a failure is news.
const FAILING: Duration = Duration::from_secs(10);
/// Bytes of memory that waiting entries may take.
const QUEUE_BYTES: usize = 64 << 20;

/// Writes and reads entries; cheap to clone.
#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    logger: Logger,
    /// The other sinks, so that their failures are no one's failures.
    others: Option<Logger>,
    database: PathBuf,
    readers: Mutex<Vec<Reader>>,
    turns: Semaphore,
    /// Counts commits.
    committed: watch::Sender<u64>,
    /// When writing failed, unless it has worked since.
    failed_at: Mutex<Option<Instant>>,
    queue: usize,
    /// What the entries say, by function.
    calls: Mutex<MetricsSink>,
}

/// Why an entry is not stored or a query not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreError {
    Full,
    Failed,
    Closed,
    Busy,
    Unreadable,
}

/// Entries on their way to the database.
pub(crate) struct Pending {
    receipt: Receipt,
    store: Store,
}

impl Store {
    pub(crate) fn open(settings: &mut Settings) -> Result<Store, Error> {
        if let Some(folder) = settings
            .database
            .parent()
            .filter(|f| !f.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder).map_err(|source| Error::Folder {
                path: folder.to_owned(),
                source,
            })?;
        }
        let sink = DbSink::open(&settings.database, TABLE, settings.durability)?;
        let redactor = || settings.redact.then(Redactor::default);
        let logger = Logger::builder()
            .name("logkit-server")
            .queue(settings.queue, QUEUE_BYTES)
            .redactor(redactor())
            .sink(sink)
            .build();
        let sinks = std::mem::take(&mut settings.sinks);
        let others = (!sinks.is_empty()).then(|| {
            let builder = Logger::builder()
                .name("logkit-server")
                .queue(settings.queue, QUEUE_BYTES)
                // They are called by the threads that answer, which must not wait for a slow one.
                .on_full(OnFull::DropNew)
                .redactor(redactor());
            sinks
                .into_iter()
                .fold(builder, logkit::Builder::sink)
                .build()
        });
        let mut calls = MetricsSink::new(&MetricsOptions::default())?;
        calls.attach(&logger.stats_source());
        Ok(Store(Arc::new(Inner {
            calls: Mutex::new(calls),
            logger,
            others,
            database: settings.database.clone(),
            readers: Mutex::default(),
            turns: Semaphore::new(N_READERS),
            committed: watch::Sender::new(0),
            failed_at: Mutex::default(),
            queue: settings.queue,
        })))
    }

    /// Blanks the secrets of an entry; whoever makes one does that before it goes into the queue.
    pub(crate) fn redact(&self, entry: &mut Entry) {
        self.0.logger.redact(entry);
    }

    /// Puts entries, which are blanked, into the queue, all or none.
    pub(crate) fn push(&self, entries: Vec<Entry>) -> Result<Pending, StoreError> {
        // Who is told to come back would be counted twice.
        if !self.has_room(entries.len()) {
            return Err(StoreError::Full);
        }
        let _ = self.0.calls.lock().write_batch(&entries);
        let copies = self
            .0
            .others
            .as_ref()
            .map(|others| (others, entries.clone()));
        let receipt = self
            .0
            .logger
            .try_emit_batch_acked(entries)
            .map_err(|_| StoreError::Full)?;
        if let Some((others, copies)) = copies {
            for entry in copies {
                others.emit(entry);
            }
        }
        Ok(Pending {
            receipt,
            store: self.clone(),
        })
    }

    /// What blanks secrets before values become texts.
    pub(crate) fn redactor(&self) -> Option<&Redactor> {
        self.0.logger.redactor()
    }

    /// True if so many entries would find room now.
    pub(crate) fn has_room(&self, n_entries: usize) -> bool {
        self.stats().queue_len + n_entries <= self.0.queue
    }

    /// Stores entries in one transaction; gives the row of the first one after the commit.
    pub(crate) async fn write(&self, entries: Vec<Entry>) -> Result<i64, StoreError> {
        self.push(entries)?.committed().await
    }

    /// Runs a query.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Reader) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = tokio::time::timeout(TURN, self.0.turns.acquire());
        let _turn = turn.await.map_err(|_| StoreError::Busy)?;
        let inner = self.0.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let reader = inner.readers.lock().pop();
            let mut reader = match reader {
                Some(reader) => reader,
                None => Reader::open(&inner.database, TABLE)?,
            };
            let answer = query(&mut reader)?;
            inner.readers.lock().push(reader);
            Ok::<T, SinkError>(answer)
        });
        match answer.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                tracing::error!(%error, "the database cannot be read");
                Err(StoreError::Unreadable)
            }
            Err(_) => Err(StoreError::Unreadable),
        }
    }

    /// Changes after each commit.
    pub(crate) fn commits(&self) -> watch::Receiver<u64> {
        self.0.committed.subscribe()
    }

    /// True for a while after writing failed: then somebody has to try again, or a balancer that
    /// asks would never send anything.
    pub(crate) fn is_failing(&self) -> bool {
        let failed_at = *self.0.failed_at.lock();
        failed_at.is_some_and(|at| at.elapsed() < FAILING)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.0.logger.stats()
    }

    /// What became of the copies for the other sinks, if there are any.
    pub(crate) fn other_stats(&self) -> Option<Stats> {
        self.0.others.as_ref().map(Logger::stats)
    }

    /// What the entries say, by function, and how they were kept.
    pub(crate) fn metrics(&self, format: MetricsFormat) -> String {
        self.0.calls.lock().text(format)
    }

    /// Entries that one batch may have.
    pub(crate) fn max_batch(&self) -> usize {
        self.0.queue.min(MAX_BATCH)
    }

    pub(crate) fn path(&self) -> String {
        self.0.database.display().to_string()
    }

    /// Writes what waits and closes everything; blocks for some seconds at most.
    pub(crate) fn close(&self) {
        self.0.logger.close();
        if let Some(others) = &self.0.others {
            others.close();
        }
    }
}

impl Pending {
    /// Waits for the commit; gives the row of the first entry.
    pub(crate) async fn committed(self) -> Result<i64, StoreError> {
        let inner = &self.store.0;
        match self.receipt.await {
            Ok(ack) => {
                *inner.failed_at.lock() = None;
                inner.committed.send_modify(|n| *n = n.wrapping_add(1));
                Ok(ack.first_id.unwrap_or_default())
            }
            Err(NotWritten::QueueFull) => Err(StoreError::Full),
            Err(NotWritten::Closed) => Err(StoreError::Closed),
            Err(why) => {
                if inner.failed_at.lock().replace(Instant::now()).is_none() {
                    tracing::error!(%why, "entries are not written");
                }
                Err(StoreError::Failed)
            }
        }
    }
}

/// Entries that one batch may have, however large the queue is.
const MAX_BATCH: usize = 50_000;
