//! What ends a rendering from outside: its deadline, and a client that has left.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Ends renderings that take too long, or that nobody waits for. Clones share the flag.
#[derive(Clone)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    clock: Clock,
}

type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

impl Stop {
    /// Makes one whose renderings have [`Stop::LIMIT`] each by the system's clock.
    pub fn new() -> Self {
        let start = Instant::now();
        Stop::with_clock(move || start.elapsed())
    }

    /// Makes one with a clock of its own, for tests.
    pub fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Stop {
            cancelled: Arc::default(),
            clock: Arc::new(clock),
        }
    }

    /// Ends every rendering that looks at this flag, soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Begins a rendering.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            until: (self.clock)() + Self::LIMIT,
            stop: self.clone(),
        }
    }

    /// What one rendering may take: a hundred times what a long conversation does.
    pub const LIMIT: Duration = Duration::from_secs(2);
}

impl Default for Stop {
    fn default() -> Self {
        Stop::new()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop")
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

/// A rendering that runs.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    stop: Stop,
    until: Duration,
}

impl Watch {
    /// Fails once the rendering has to end.
    pub(crate) fn check(&self) -> Result<(), Bound> {
        if self.stop.cancelled.load(Ordering::Relaxed) {
            return Err(Bound::Cancelled);
        }
        if (self.stop.clock)() >= self.until {
            return Err(Bound::Time);
        }
        Ok(())
    }
}

/// A bound that a rendering has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Bound {
    #[error("too much text")]
    Text,
    #[error("too much work")]
    Work,
    #[error("too much time")]
    Time,
    #[error("cancelled")]
    Cancelled,
}

impl From<Bound> for Error {
    fn from(bound: Bound) -> Error {
        match bound {
            Bound::Text => Error::Limit("text"),
            Bound::Work => Error::Limit("work"),
            Bound::Time => Error::Limit("2 seconds"),
            Bound::Cancelled => Error::Cancelled,
        }
    }
}
