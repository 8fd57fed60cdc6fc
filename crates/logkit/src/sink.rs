//! Where entries go.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{Entry, SinkError, StatsSource, Text};

/// Takes entries, in batches, on the writer's thread.
///
/// An error means that nothing of the batch was kept. A wrapper gives the sink that it hands entries to as
/// [`Sink::wrapped`] and [`Sink::wrapped_mut`]: what it does not say itself, that sink says. One of several sinks
/// gives them with [`Sink::each`].
///
/// ```
/// use logkit::{Entry, Logger, Sink, SinkError};
///
/// struct Lengths(std::sync::mpsc::Sender<usize>);
///
/// impl Sink for Lengths {
///     fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
///         let gone = |_| SinkError::Other("nobody counts".into());
///         self.0.send(entries.len()).map_err(gone)
///     }
/// }
///
/// let (lengths, counted) = std::sync::mpsc::channel();
/// let logger = Logger::builder().sink(Lengths(lengths)).build();
/// logger.emit(Entry::default());
/// logger.close();
/// assert_eq!(counted.iter().sum::<usize>(), 1);
/// ```
pub trait Sink: Send {
    /// Keeps the entries, all or none.
    ///
    /// # Errors
    ///
    /// [`SinkError::Partly`] if some entries were kept; any other variant says that none was. The
    /// logger counts it, tells the first one of each sink on stderr, and goes on.
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError>;

    /// Writes entries of which some get something later. A sink that can change its rows takes all of them at
    /// once; any other one those that are ready, and the others when they are.
    ///
    /// # Errors
    ///
    /// As [`Sink::write_batch`].
    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        match which {
            Which::Unless(holds) if !self.can_update() => {
                let ready = entries.iter().zip(holds).filter(|(_, held)| !**held);
                let ready: Vec<Entry> = ready.map(|(entry, _)| entry.clone()).collect();
                if ready.is_empty() {
                    return Ok(());
                }
                self.write_batch(&ready)
            }
            Which::Held if self.can_update() => Ok(()),
            Which::All | Which::Unless(_) | Which::Held => self.write_batch(entries),
        }
    }

    /// The sink that a wrapper hands entries to.
    fn wrapped(&self) -> Option<&dyn Sink> {
        None
    }

    /// The same, to be changed.
    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        None
    }

    /// Does that with every sink that entries are handed to: all have their turn, then the first error counts.
    ///
    /// # Errors
    ///
    /// Those of `call`.
    fn each(&mut self, call: &mut SinkCall<'_>) -> Result<(), SinkError> {
        self.wrapped_mut().map_or(Ok(()), call)
    }

    /// Row id of the first entry of the last batch, if this sink numbers its rows one by one.
    fn first_id(&self) -> Option<i64> {
        self.wrapped()?.first_id()
    }

    /// Adds to a row what came later; false if this sink cannot or has no such row.
    ///
    /// # Errors
    ///
    /// The row could not be changed, for example [`SinkError::Db`] of a database that is locked.
    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        match self.wrapped_mut() {
            Some(sink) => sink.update(id, update),
            None => Ok(false),
        }
    }

    /// True if [`Sink::update`] changes rows here, or if what comes later does not matter here.
    fn can_update(&self) -> bool {
        self.wrapped().is_some_and(Sink::can_update)
    }

    /// Called once, before the first entry, with the counts of the logger.
    fn attach(&mut self, stats: &StatsSource) {
        let _ = self.each(&mut |sink| {
            sink.attach(stats);
            Ok(())
        });
    }

    /// Does what came from elsewhere, such as answers of a model. Called after each batch, and every
    /// 50 ms as long as it returns true: something is still awaited.
    ///
    /// # Errors
    ///
    /// What came could not be kept; it is counted as a failed call of this sink.
    fn poll(&mut self) -> Result<bool, SinkError> {
        let mut is_pending = false;
        self.each(&mut |sink| {
            is_pending |= sink.poll()?;
            Ok(())
        })?;
        Ok(is_pending)
    }

    /// Everything written must be with the operating system when this returns.
    ///
    /// # Errors
    ///
    /// Some of it is not: the file, the database or the peer refused it.
    fn flush(&mut self) -> Result<(), SinkError> {
        self.each(&mut |sink| sink.flush())
    }

    /// Lets go of databases; the next batch opens them again. Called before the process forks.
    ///
    /// # Errors
    ///
    /// As [`Sink::flush`].
    fn release(&mut self) -> Result<(), SinkError> {
        let mut is_last = true;
        let released = self.each(&mut |sink| {
            is_last = false;
            sink.release()
        });
        if is_last { self.flush() } else { released }
    }

    /// Called once, at the end.
    ///
    /// # Errors
    ///
    /// As [`Sink::flush`].
    fn close(&mut self) -> Result<(), SinkError> {
        let mut is_last = true;
        let closed = self.each(&mut |sink| {
            is_last = false;
            sink.close()
        });
        if is_last { self.flush() } else { closed }
    }

    /// What messages call this sink: `db`, `csv`.
    fn name(&self) -> Cow<'static, str> {
        self.wrapped().map_or(Cow::Borrowed("sink"), Sink::name)
    }
}

/// Something that is done with a sink.
pub type SinkCall<'a> = dyn FnMut(&mut dyn Sink) -> Result<(), SinkError> + 'a;

/// Which of some entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// All: nothing comes later.
    All,
    /// All but those whose place here says that they get something later: as long as the entries.
    Unless(&'a [bool]),
    /// Those that were held back, and are ready now.
    Held,
}

impl Sink for Box<dyn Sink> {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        (**self).write_batch(entries)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        (**self).write_which(entries, which)
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&**self)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut **self)
    }
}

/// What is added to a written entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// What a model said.
    pub llm_analysis: Option<Text>,
    /// Keys added to `extra`.
    pub extra: Map<String, Value>,
}
