//! Hands entries to several sinks, none of which can harm another.

use std::{
    any::Any,
    borrow::Cow,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::{Entry, Sink, SinkError, Update, logger::Counters};

/// Sinks that came while running.
pub(crate) type Inbox = Arc<Mutex<Vec<Box<dyn Sink>>>>;

pub(crate) struct FanOut {
    sinks: Vec<Member>,
    inbox: Inbox,
    counters: Arc<Counters>,
    first_id: Option<i64>,
}

struct Member {
    sink: Box<dyn Sink>,
    /// Its first error was told.
    told: bool,
}

impl FanOut {
    pub(crate) fn new(sinks: Vec<Box<dyn Sink>>, inbox: Inbox, counters: Arc<Counters>) -> FanOut {
        FanOut {
            sinks: sinks.into_iter().map(Member::new).collect(),
            inbox,
            counters,
            first_id: None,
        }
    }

    /// Does that with every sink. Fails if one of them does.
    fn each(
        &mut self,
        mut call: impl FnMut(&mut dyn Sink) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let mut failures = Vec::new();
        let mut n_lost = 0;
        for member in &mut self.sinks {
            if let Err((partly, why)) = member.attempt(&self.counters, &mut call) {
                n_lost += usize::from(!partly);
                failures.push(why);
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(SinkError::Told {
            partly: n_lost < self.sinks.len(),
            message: failures.join("; "),
        })
    }
}

impl Sink for FanOut {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let mut first_id = None;
        let outcome = self.each(|sink| {
            sink.write_batch(entries)?;
            first_id = first_id.or_else(|| sink.first_id());
            Ok(())
        });
        self.first_id = first_id;
        outcome
    }

    fn first_id(&self) -> Option<i64> {
        self.first_id
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        let mut done = false;
        self.each(|sink| {
            done |= sink.update(id, update)?;
            Ok(())
        })?;
        Ok(done)
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        let new = std::mem::take(&mut *self.inbox.lock());
        self.sinks.extend(new.into_iter().map(Member::new));
        let mut pending = false;
        self.each(|sink| {
            pending |= sink.poll()?;
            Ok(())
        })?;
        Ok(pending)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.each(|sink| sink.flush())
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.each(|sink| sink.close())
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("sinks")
    }
}

impl Member {
    fn new(sink: Box<dyn Sink>) -> Member {
        Member { sink, told: false }
    }

    fn attempt(
        &mut self,
        counters: &Counters,
        call: &mut dyn FnMut(&mut dyn Sink) -> Result<(), SinkError>,
    ) -> Result<(), (bool, String)> {
        let sink = &mut *self.sink;
        let (partly, why) = match catch_unwind(AssertUnwindSafe(|| call(sink))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(SinkError::Partly(why))) => (true, why),
            Ok(Err(error)) => (false, error.to_string()),
            Err(panic) => (false, format!("the sink failed: {}", panic_text(&*panic))),
        };
        counters.sink_errors.fetch_add(1, Relaxed);
        if !std::mem::replace(&mut self.told, true) {
            notice(&format!("{}: {why}", self.sink.name()));
        }
        Err((partly, why))
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
