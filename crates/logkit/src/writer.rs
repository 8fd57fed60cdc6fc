//! The thread that hands entries to the sinks.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    Entry, Level, Sink, SinkError, Update,
    fanout::panic_text,
    lock::Mutex,
    queue::{Chunk, Next, Queue},
    receipt::{Ack, NotWritten},
    sinks::console::ConsoleSink,
    stats::{Counters, StatsSource},
    stderr::notice,
};

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// True on the thread of a writer: what a sink logs there is not logged again.
pub(crate) fn on_writer_thread() -> bool {
    IS_WRITER.get()
}

/// How often dropped entries are reported.
const REPORT_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Writer {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counters: Arc<Counters>,
    /// Wrappers around the sinks; `None` if there are no sinks.
    pub(crate) root: Option<Box<dyn Sink>>,
    pub(crate) console: Option<ConsoleSink>,
    /// What came later to entries that are written.
    pub(crate) updates: Arc<Mutex<Vec<(i64, Update)>>>,
    /// Dropped entries that were told of.
    pub(crate) reported: u64,
    pub(crate) reported_at: Option<Instant>,
    /// An error of a wrapper was told.
    pub(crate) told: bool,
}

impl Writer {
    pub(crate) fn spawn(mut self) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new()
            .name("logkit-writer".into())
            .spawn(move || {
                IS_WRITER.set(true);
                if let Some(root) = &mut self.root {
                    root.attach(&StatsSource {
                        queue: Arc::clone(&self.queue),
                        counters: Arc::clone(&self.counters),
                    });
                }
                for panics in 1.. {
                    let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run())) else {
                        break;
                    };
                    self.counters.sink_errors.fetch_add(1, Relaxed);
                    notice(&format!("the writer failed: {}", panic_text(&*panic)));
                    match panics {
                        1 => {}
                        2 => {
                            self.root = None;
                            self.console.get_or_insert_with(ConsoleSink::stderr);
                        }
                        _ => {
                            self.queue.close();
                            break;
                        }
                    }
                }
                self.queue.end();
            })
    }

    fn run(&mut self) {
        let mut pending = false;
        loop {
            match self.queue.next(pending) {
                Next::Write(chunk) => {
                    self.write_chunk(chunk);
                    pending = self.poll();
                }
                Next::Tick => pending = self.poll(),
                Next::Pause(pause) => {
                    let _ = self.attempt(|sink| sink.release());
                    pause.hold();
                }
                Next::Closed => break,
            }
        }
        self.poll();
        self.reported_at = None;
        self.report_drops();
        let _ = self.attempt(|sink| sink.close());
    }

    fn write_chunk(&mut self, mut chunk: Chunk) {
        self.report_drops();
        let outcome = self.write(chunk.entries());
        let flushed = (!chunk.flushes.is_empty()).then(|| {
            self.poll();
            self.attempt(|sink| sink.flush())
        });
        // Whoever is told looks at the counts next.
        self.queue.done(&mut chunk);
        for (first, n_entries, slot) in chunk.tickets() {
            slot.resolve(outcome.clone().map(|first_id| Ack {
                first_id: first_id.map(|id| id + first as i64),
                n_entries,
            }));
        }
        for slot in &chunk.flushes {
            slot.resolve(match &flushed {
                Some(Err((_, why))) => Err(NotWritten::Failed(Arc::clone(why))),
                _ => Ok(Ack {
                    first_id: None,
                    n_entries: 0,
                }),
            });
        }
    }

    /// Writes a batch. It counts as written if one sink took it.
    fn write(&mut self, entries: &[Entry]) -> Result<Option<i64>, NotWritten> {
        if entries.is_empty() {
            return Ok(None);
        }
        if let Some(console) = &mut self.console {
            // A closed terminal is no loss: the entries are with the sinks.
            let _ = console.write_batch(entries);
        }
        let outcome = self.attempt(|sink| sink.write_batch(entries));
        let count = if matches!(outcome, Err((Taken::ByNone, _))) {
            &self.counters.dropped_sink
        } else {
            &self.counters.written
        };
        count.fetch_add(entries.len() as u64, Relaxed);
        match outcome {
            Ok(()) => Ok(self.root.as_ref().and_then(Sink::first_id)),
            Err((_, why)) => Err(NotWritten::Failed(why)),
        }
    }

    /// Does what came from elsewhere; true if more is awaited.
    fn poll(&mut self) -> bool {
        let updates = std::mem::take(&mut *self.updates.lock());
        for (id, update) in updates {
            let _ = self.attempt(|sink| sink.update(id, &update).map(|_| ()));
        }
        let mut pending = false;
        let _ = self.attempt(|sink| {
            pending = sink.poll()?;
            Ok(())
        });
        pending
    }

    /// Calls the sinks; errors and panics are counted, and the first is told on stderr.
    fn attempt(
        &mut self,
        call: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>,
    ) -> Result<(), (Taken, Arc<str>)> {
        let Some(root) = &mut self.root else {
            return Ok(());
        };
        let why = match catch_unwind(AssertUnwindSafe(|| call(root))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(SinkError::Reported { partly, message })) => {
                let taken = if partly { Taken::BySome } else { Taken::ByNone };
                return Err((taken, message.into()));
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_text(&*panic).to_owned(),
        };
        self.counters.sink_failed(&root.name());
        if !std::mem::replace(&mut self.told, true) {
            notice(&format!("{}: {why}", root.name()));
        }
        Err((Taken::ByNone, why.into()))
    }

    /// Dropped entries are never silent: one entry tells of them, every ten seconds at most.
    fn report_drops(&mut self) {
        let dropped = self.counters.dropped_by_queue(&self.queue);
        let due = self
            .reported_at
            .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if dropped == self.reported || !due {
            return;
        }
        let n_new = dropped - self.reported;
        self.reported = dropped;
        self.reported_at = Some(Instant::now());
        let message = format!("{n_new} entries were dropped: the queue was full");
        let mut entry = Entry {
            level: Level::Warning,
            function_name: "logkit.queue".into(),
            module: "logkit".into(),
            return_value: crate::repr::repr_str(&message).into(),
            return_type: "str".into(),
            ..Entry::default()
        };
        entry.extra.insert("dropped".into(), n_new.into());
        self.counters.emitted.fetch_add(1, Relaxed);
        let _ = self.write(&[entry]);
    }
}

/// Whether a batch that failed is lost.
enum Taken {
    BySome,
    ByNone,
}
