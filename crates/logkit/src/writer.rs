//! The thread that hands entries to the sinks.

use std::{
    any::Any,
    cell::Cell,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    Entry, Level, Sink, SinkError, Update,
    logger::Counters,
    queue::{Next, Queue},
    receipt::{Ack, NotWritten},
    sinks::console::ConsoleSink,
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
    pub(crate) sinks: Vec<Box<dyn Sink>>,
    pub(crate) console: Option<ConsoleSink>,
    /// Sinks and updates that came while running.
    pub(crate) orders: Arc<Mutex<Vec<Order>>>,
}

/// What the writer is asked to do beside writing.
pub(crate) enum Order {
    Add(Box<dyn Sink>),
    Update(i64, Update),
}

impl Writer {
    pub(crate) fn spawn(mut self) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new()
            .name("logkit-writer".into())
            .spawn(move || {
                IS_WRITER.set(true);
                let mut panics = 0;
                let mut running = Running::default();
                while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(&mut running))) {
                    panics += 1;
                    self.counters.sink_errors.fetch_add(1, Relaxed);
                    notice(&format!("the writer failed: {}", panic_text(&*panic)));
                    if panics > 1 {
                        self.sinks.clear();
                        self.console.get_or_insert_with(ConsoleSink::stderr);
                    }
                    if panics > 2 {
                        self.queue.close();
                        break;
                    }
                }
            })
    }

    fn run(&mut self, running: &mut Running) {
        loop {
            match self.queue.next(running.pending) {
                Next::Write(mut chunk) => {
                    self.obey(running);
                    self.report_drops(running);
                    let outcome = self.write(chunk.entries(), running);
                    self.poll(running);
                    let flushed = (!chunk.flushes.is_empty()).then(|| self.flush(running));
                    // Whoever is told looks at the counts next.
                    self.queue.done(&mut chunk);
                    for (first, n_entries, slot) in chunk.tickets() {
                        slot.resolve(outcome.clone().map(|first_id| Ack {
                            first_id: first_id.map(|id| id + first as i64),
                            n_entries,
                        }));
                    }
                    for slot in &chunk.flushes {
                        slot.resolve(flushed.clone().unwrap_or(Err(NotWritten::Closed)));
                    }
                }
                Next::Tick => {
                    self.obey(running);
                    self.poll(running);
                }
                Next::Closed => break,
            }
        }
        self.obey(running);
        running.reported_at = None;
        self.report_drops(running);
        for (idx, sink) in self.sinks.iter_mut().enumerate() {
            let _ = running.attempt(&self.counters, idx, sink, |sink| sink.close());
        }
    }

    /// Writes a batch to all sinks. It counts as written if one of them took it.
    fn write(
        &mut self,
        entries: &[Entry],
        running: &mut Running,
    ) -> Result<Option<i64>, NotWritten> {
        if entries.is_empty() {
            return Ok(None);
        }
        if let Some(console) = &mut self.console {
            // A closed terminal is no loss: the entries are with the sinks.
            let _ = console.write_batch(entries);
        }
        let mut first_id = None;
        let mut failure = None;
        let mut taken = self.sinks.is_empty();
        for (idx, sink) in self.sinks.iter_mut().enumerate() {
            match running.attempt(&self.counters, idx, sink, |sink| sink.write_batch(entries)) {
                Ok(()) => {
                    taken = true;
                    first_id = first_id.or_else(|| sink.first_id());
                }
                Err(why) => failure = Some(why),
            }
        }
        let count = if taken {
            &self.counters.written
        } else {
            &self.counters.dropped_sink
        };
        count.fetch_add(entries.len() as u64, Relaxed);
        match failure {
            Some(why) => Err(NotWritten::Failed(why)),
            None => Ok(first_id),
        }
    }

    fn flush(&mut self, running: &mut Running) -> Result<Ack, NotWritten> {
        let mut outcome = Ok(Ack {
            first_id: None,
            n_entries: 0,
        });
        for (idx, sink) in self.sinks.iter_mut().enumerate() {
            if let Err(why) = running.attempt(&self.counters, idx, sink, |sink| sink.flush()) {
                outcome = Err(NotWritten::Failed(why));
            }
        }
        outcome
    }

    fn poll(&mut self, running: &mut Running) {
        running.pending = false;
        for (idx, sink) in self.sinks.iter_mut().enumerate() {
            let mut pending = false;
            let _ = running.attempt(&self.counters, idx, sink, |sink| {
                pending = sink.poll()?;
                Ok(())
            });
            running.pending |= pending;
        }
    }

    fn obey(&mut self, running: &mut Running) {
        let orders = std::mem::take(&mut *self.orders.lock());
        for order in orders {
            match order {
                Order::Add(sink) => self.sinks.push(sink),
                Order::Update(id, update) => {
                    for (idx, sink) in self.sinks.iter_mut().enumerate() {
                        let _ = running.attempt(&self.counters, idx, sink, |sink| {
                            sink.update(id, &update).map(|_| ())
                        });
                    }
                }
            }
        }
    }

    /// Dropped entries are never silent: one entry tells of them, every ten seconds at most.
    fn report_drops(&mut self, running: &mut Running) {
        let dropped = self.counters.dropped_by_queue(&self.queue);
        let due = running
            .reported_at
            .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if dropped == running.reported || !due {
            return;
        }
        let n_new = dropped - running.reported;
        running.reported = dropped;
        running.reported_at = Some(Instant::now());
        let mut entry = Entry {
            level: Level::Warning,
            function_name: "logkit.queue".into(),
            module: "logkit".into(),
            return_value: crate::repr::repr_str(&format!(
                "{n_new} entries were dropped: the queue was full"
            ))
            .into(),
            return_type: "str".into(),
            ..Entry::default()
        };
        entry.extra.insert("dropped".into(), n_new.into());
        self.counters.emitted.fetch_add(1, Relaxed);
        let _ = self.write(&[entry], running);
    }
}

/// What a writer remembers between batches.
#[derive(Default)]
struct Running {
    /// Some sink awaits something.
    pending: bool,
    /// Dropped entries that were told of.
    reported: u64,
    reported_at: Option<Instant>,
    /// Sinks whose first error was told.
    told: Vec<usize>,
}

impl Running {
    /// Calls a sink; its errors and panics are counted, and the first one is told on stderr.
    fn attempt(
        &mut self,
        counters: &Counters,
        idx: usize,
        sink: &mut Box<dyn Sink>,
        call: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>,
    ) -> Result<(), Arc<str>> {
        let why = match catch_unwind(AssertUnwindSafe(|| call(&mut **sink))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("the sink failed: {}", panic_text(&*panic)),
        };
        counters.sink_errors.fetch_add(1, Relaxed);
        if !self.told.contains(&idx) {
            self.told.push(idx);
            notice(&format!("{}: {why}", sink.name()));
        }
        Err(why.into())
    }
}

/// Says something about logkit itself on stderr; a closed stderr is no problem.
pub(crate) fn notice(message: &str) {
    let _ = writeln!(std::io::stderr(), "logkit: {message}");
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
