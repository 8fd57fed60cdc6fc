//! What the calls of all wrappers have in common, those of the macros and of Python, and calls that a program describes
//! by hand.

use std::time::{Duration, Instant};

use crate::{
    Entry, Level, Logger, SpanId,
    scope::{self, SpanGuard, silently},
};

/// How much of a call is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Nothing.
    Off,
    /// Only if it fails.
    ErrorsOnly,
    /// All of it.
    Full,
}

impl Gate {
    /// Decides by the numbers of two levels: that of the call, and the lowest that is logged.
    #[inline]
    pub fn of(level: u8, lowest: u8) -> Gate {
        if level >= lowest {
            Gate::Full
        } else if Level::Error.number() >= lowest {
            Gate::ErrorsOnly
        } else {
            Gate::Off
        }
    }

    /// Logs a share of the calls, of which [`u64::MAX`] is all; of the others only those that fail.
    #[inline]
    pub fn sampled(self, share: u64) -> Gate {
        if self == Gate::Full && share != u64::MAX && scope::random() > share {
            Gate::ErrorsOnly
        } else {
            self
        }
    }
}

/// Returns a time as entries have it: in milliseconds, of which microseconds are the last digit.
#[inline]
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_nanos() as f64 / 1e3).round() / 1e3
}

/// A call that runs. Its entry is written by [`CallByHand::finish`]; one that is dropped before is not
/// logged.
#[derive(Debug)]
pub struct CallByHand {
    entry: Entry,
    started: Instant,
}

/// As long as it lives, what is called on this thread has the call as its parent.
#[derive(Debug)]
pub struct Inside {
    _span: SpanGuard,
}

impl CallByHand {
    /// Begins a call that the logger takes at that level, or that may still fail: `None` if nothing of
    /// it would be logged. The call within which it happens is its parent.
    pub fn begin(logger: &Logger, level: Level) -> Option<CallByHand> {
        let gate = Gate::of(level.number(), logger.level_number());
        if gate == Gate::Off || scope::is_silent() {
            return None;
        }
        let entry = Entry {
            level,
            span_id: SpanId::new(scope::new_span()),
            parent_id: SpanId::new(scope::current_span()),
            ..Entry::default()
        };
        Some(CallByHand {
            entry,
            started: Instant::now(),
        })
    }

    /// What is known of the call; the texts are as [`crate::repr`] writes them, and secrets by name are
    /// blanked already ([`crate::is_sensitive_key`]). Those within texts are found at the end.
    pub fn entry(&mut self) -> &mut Entry {
        &mut self.entry
    }

    /// The function runs on this thread. A coroutine or generator is entered each time it goes on, and
    /// left each time it waits.
    pub fn enter(&self) -> Inside {
        let span = self.entry.span_id.map_or(0, |id| id.0.get());
        Inside {
            _span: scope::enter_span(span),
        }
    }

    /// The call failed: it is an ERROR whatever its level.
    pub fn failed(&mut self, kind: &str, message: &str, traceback: &str) {
        self.entry.level = Level::Error;
        self.entry.exception_type = kind.to_owned().into();
        self.entry.exception = message.to_owned().into();
        self.entry.traceback = traceback.to_owned().into();
    }

    /// The call is over. Its duration is the time since it began, unless the entry has one.
    pub fn finish(mut self, logger: &Logger) {
        if self.entry.duration_ms.is_none() {
            self.entry.duration_ms = Some(milliseconds(self.started.elapsed()));
        }
        scope::fill(&mut self.entry);
        logger.redact(&mut self.entry);
        logger.emit(self.entry);
    }
}

/// Renders values: functions that are called meanwhile, such as a `__repr__`, are not logged.
pub fn rendering<R>(render: impl FnOnce() -> R) -> Option<R> {
    let mut rendered = None;
    silently(|| rendered = Some(render()));
    rendered
}

/// True where nothing is logged: see [`crate::silence`] and [`rendering`].
#[inline]
pub fn is_silent() -> bool {
    scope::is_silent()
}

impl SpanId {
    /// An id that is unlikely to be another call's; no secret is made of it.
    #[inline]
    pub fn random() -> SpanId {
        SpanId(std::num::NonZeroU64::new(scope::new_span()).unwrap_or(std::num::NonZeroU64::MIN))
    }
}

impl Entry {
    /// Adds what the scope of this thread says: see [`crate::Scope`].
    #[inline]
    pub fn fill_scope(&mut self) {
        scope::fill(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_logged_while_values_are_rendered() {
        assert!(!is_silent());
        assert_eq!(rendering(is_silent), Some(true));
        assert!(!is_silent());
    }
}
