//! Hands entries to several sinks, none of which can harm another.

use std::{
    any::Any,
    borrow::Cow,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::{
    Entry, Sink, SinkCall, SinkError, StatsSource, Update, Which, lock::Mutex, stats::Counters,
    stderr::notice,
};

/// Sinks that came while running.
pub(crate) type Inbox = Arc<Mutex<Vec<DynamicSink>>>;

/// A sink that may leave again.
pub(crate) struct DynamicSink {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) leaves: Arc<AtomicBool>,
}

pub(crate) struct FanOut {
    sinks: Vec<Member>,
    inbox: Inbox,
    counters: Arc<Counters>,
    stats: Option<StatsSource>,
    first_id: Option<i64>,
    /// Which rows are the same, if several sinks number theirs: newest last.
    batches: VecDeque<Batch>,
}

/// Rows of one batch.
struct Batch {
    /// Id of the first one, as it is told.
    first_id: i64,
    n_entries: usize,
    /// Id of the first one in each sink.
    first_ids: Vec<Option<i64>>,
}

/// Batches whose rows can be changed later.
const MAX_BATCHES: usize = 4096;

struct Member {
    sink: Box<dyn Sink>,
    /// Nobody wants it any more.
    leaves: Arc<AtomicBool>,
    /// Its first error was told.
    told: bool,
}

impl FanOut {
    pub(crate) fn new(sinks: Vec<Box<dyn Sink>>, inbox: Inbox, counters: Arc<Counters>) -> FanOut {
        FanOut {
            sinks: sinks.into_iter().map(Member::new).collect(),
            inbox,
            counters,
            stats: None,
            first_id: None,
            batches: VecDeque::new(),
        }
    }

    /// Writes a batch with every sink, and remembers its rows.
    fn write(
        &mut self,
        n_entries: usize,
        mut call: impl FnMut(&mut dyn Sink) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let mut first_ids = Vec::with_capacity(self.sinks.len());
        let outcome = self.each(&mut |sink| {
            first_ids.push(None);
            call(sink)?;
            if let Some(id) = first_ids.last_mut() {
                *id = sink.first_id();
            }
            Ok(())
        });
        let mut numbered = first_ids.iter().flatten();
        self.first_id = numbered.next().copied();
        if let Some(first_id) = self.first_id
            && numbered.next().is_some()
        {
            if self.batches.len() >= MAX_BATCHES {
                self.batches.pop_front();
            }
            self.batches.push_back(Batch {
                first_id,
                n_entries,
                first_ids,
            });
        }
        outcome
    }

    /// Closes the sinks that leave. Rows are known by the places of sinks: those of before are forgotten.
    fn let_go(&mut self) {
        if !self.sinks.iter().any(Member::is_leaving) {
            return;
        }
        for member in self.sinks.iter_mut().filter(|member| member.is_leaving()) {
            let _ = member.attempt(&self.counters, &mut |sink| sink.close());
        }
        self.sinks.retain(|member| !member.is_leaving());
        self.batches.clear();
    }
}

impl Sink for FanOut {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        match which {
            // They have their rows.
            Which::Held => self.each(&mut |sink| sink.write_which(entries, which)),
            Which::All | Which::Unless(_) => {
                self.write(entries.len(), |sink| sink.write_which(entries, which))
            }
        }
    }

    /// Fails if one of them does.
    fn each(&mut self, call: &mut SinkCall<'_>) -> Result<(), SinkError> {
        let mut failures = Vec::new();
        let mut n_lost = 0;
        for member in &mut self.sinks {
            if let Err((partly, why)) = member.attempt(&self.counters, call) {
                n_lost += usize::from(!partly);
                failures.push(why);
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(SinkError::Reported {
            partly: n_lost < self.sinks.len(),
            message: failures.join("; "),
        })
    }

    fn can_update(&self) -> bool {
        self.sinks.iter().any(|member| member.sink.can_update())
    }

    fn attach(&mut self, stats: &StatsSource) {
        for member in &mut self.sinks {
            member.sink.attach(stats);
        }
        self.stats = Some(stats.clone());
    }

    fn first_id(&self) -> Option<i64> {
        self.first_id
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        let batch =
            self.batches.iter().rev().find(|batch| {
                (batch.first_id..batch.first_id + batch.n_entries as i64).contains(&id)
            });
        let ids: Option<Vec<Option<i64>>> = batch.map(|batch| {
            let offset = id - batch.first_id;
            let row = |first: &Option<i64>| first.map(|first| first + offset);
            batch.first_ids.iter().map(row).collect()
        });
        let mut done = false;
        let mut at = 0;
        self.each(&mut |sink| {
            let row = match &ids {
                Some(ids) => ids.get(at).copied().flatten(),
                // Only one sink numbers its rows.
                None => Some(id),
            };
            at += 1;
            if let Some(row) = row {
                done |= sink.update(row, update)?;
            }
            Ok(())
        })?;
        Ok(done)
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        let new = std::mem::take(&mut *self.inbox.lock());
        for mut added in new {
            if let Some(stats) = &self.stats {
                added.sink.attach(stats);
            }
            self.sinks.push(Member {
                leaves: added.leaves,
                ..Member::new(added.sink)
            });
        }
        self.let_go();
        let mut pending = false;
        self.each(&mut |sink| {
            pending |= sink.poll()?;
            Ok(())
        })?;
        Ok(pending)
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("sinks")
    }
}

impl Member {
    fn new(sink: Box<dyn Sink>) -> Member {
        Member {
            sink,
            leaves: Arc::default(),
            told: false,
        }
    }

    fn is_leaving(&self) -> bool {
        self.leaves.load(Relaxed)
    }

    fn attempt(
        &mut self,
        counters: &Counters,
        call: &mut SinkCall<'_>,
    ) -> Result<(), (bool, String)> {
        let sink = &mut *self.sink;
        let (partly, why) = match catch_unwind(AssertUnwindSafe(|| call(sink))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(SinkError::Partly(why))) => (true, why),
            Ok(Err(error)) => (false, error.to_string()),
            Err(panic) => (false, format!("the sink failed: {}", panic_text(&*panic))),
        };
        counters.sink_failed(&self.sink.name());
        if !std::mem::replace(&mut self.told, true) {
            notice(&format!("{}: {why}", self.sink.name()));
        }
        Err((partly, why))
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
