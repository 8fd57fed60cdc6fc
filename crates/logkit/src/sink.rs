//! Where entries go.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{Entry, SinkError, StatsSource, Text};

/// Takes entries, in batches, on the writer's thread.
///
/// An error means that nothing of the batch was kept. Wrappers hold the sink they hand entries to
/// and pass every method on.
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

    /// Row id of the first entry of the last batch, if this sink numbers its rows one by one.
    fn first_id(&self) -> Option<i64> {
        None
    }

    /// Adds to a row what came later; false if this sink cannot or has no such row.
    ///
    /// # Errors
    ///
    /// The row could not be changed, for example [`SinkError::Db`] of a database that is locked.
    fn update(&mut self, _id: i64, _update: &Update) -> Result<bool, SinkError> {
        Ok(false)
    }

    /// True if [`Sink::update`] changes rows here, or if what comes later does not matter here.
    fn can_update(&self) -> bool {
        false
    }

    /// Writes entries of which those in `holds` get something later. A sink that can change its rows
    /// takes all; any other one the rest, and the held ones with [`Sink::write_held`]. `holds` is as
    /// long as `entries`.
    ///
    /// # Errors
    ///
    /// As [`Sink::write_batch`].
    fn write_unless_held(&mut self, entries: &[Entry], holds: &[bool]) -> Result<(), SinkError> {
        if self.can_update() {
            return self.write_batch(entries);
        }
        let ready: Vec<Entry> = entries
            .iter()
            .zip(holds)
            .filter(|(_, held)| !**held)
            .map(|(entry, _)| entry.clone())
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        self.write_batch(&ready)
    }

    /// Writes entries that were held back; a sink that can change its rows has them.
    ///
    /// # Errors
    ///
    /// As [`Sink::write_batch`].
    fn write_held(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        if self.can_update() {
            return Ok(());
        }
        self.write_batch(entries)
    }

    /// Called once, before the first entry, with the counts of the logger.
    fn attach(&mut self, _stats: &StatsSource) {}

    /// Does what came from elsewhere, such as answers of a model. Called after each batch, and every
    /// 50 ms as long as it returns true: something is still awaited.
    ///
    /// # Errors
    ///
    /// What came could not be kept; it is counted as a failed call of this sink.
    fn poll(&mut self) -> Result<bool, SinkError> {
        Ok(false)
    }

    /// Everything written must be with the operating system when this returns.
    ///
    /// # Errors
    ///
    /// Some of it is not: the file, the database or the peer refused it.
    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Lets go of databases; the next batch opens them again. Called before the process forks.
    ///
    /// # Errors
    ///
    /// As [`Sink::flush`].
    fn release(&mut self) -> Result<(), SinkError> {
        self.flush()
    }

    /// Called once, at the end.
    ///
    /// # Errors
    ///
    /// As [`Sink::flush`].
    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }

    /// What messages call this sink: `db`, `csv`.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("sink")
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        (**self).write_batch(entries)
    }

    fn first_id(&self) -> Option<i64> {
        (**self).first_id()
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        (**self).update(id, update)
    }

    fn can_update(&self) -> bool {
        (**self).can_update()
    }

    fn write_unless_held(&mut self, entries: &[Entry], holds: &[bool]) -> Result<(), SinkError> {
        (**self).write_unless_held(entries, holds)
    }

    fn write_held(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        (**self).write_held(entries)
    }

    fn attach(&mut self, stats: &StatsSource) {
        (**self).attach(stats);
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        (**self).poll()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        (**self).flush()
    }

    fn release(&mut self) -> Result<(), SinkError> {
        (**self).release()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        (**self).close()
    }

    fn name(&self) -> Cow<'static, str> {
        (**self).name()
    }
}

/// Lets a wrapper pass methods of [`Sink`] on to the sink in one of its fields.
macro_rules! pass_on {
    ($sink:ident: $($method:ident)*) => { $(pass_on!(@$method $sink);)* };
    (@first_id $sink:ident) => {
        fn first_id(&self) -> Option<i64> {
            self.$sink.first_id()
        }
    };
    (@update $sink:ident) => {
        fn update(&mut self, id: i64, update: &$crate::Update) -> Result<bool, $crate::SinkError> {
            self.$sink.update(id, update)
        }
    };
    (@can_update $sink:ident) => {
        fn can_update(&self) -> bool {
            self.$sink.can_update()
        }
    };
    (@attach $sink:ident) => {
        fn attach(&mut self, stats: &$crate::StatsSource) {
            self.$sink.attach(stats);
        }
    };
    (@poll $sink:ident) => {
        fn poll(&mut self) -> Result<bool, $crate::SinkError> {
            self.$sink.poll()
        }
    };
    (@name $sink:ident) => {
        fn name(&self) -> std::borrow::Cow<'static, str> {
            self.$sink.name()
        }
    };
    // What is left takes nothing and gives nothing.
    (@$method:ident $sink:ident) => {
        fn $method(&mut self) -> Result<(), $crate::SinkError> {
            self.$sink.$method()
        }
    };
}
pub(crate) use pass_on;

/// What is added to a written entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// What a model said.
    pub llm_analysis: Option<Text>,
    /// Keys added to `extra`.
    pub extra: Map<String, Value>,
}
