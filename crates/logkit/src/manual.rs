//! Calls that are described by hand: for programs that wrap functions themselves, such as bindings to
//! other languages.

use std::time::Instant;

use crate::{
    Entry, Level, Logger, SpanId,
    scope::{self, SpanGuard, silently},
};

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
        let wanted = logger.enabled(&level) || logger.enabled(&Level::Error);
        if !wanted || scope::is_silent() {
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
            let micros = (self.started.elapsed().as_nanos() as f64 / 1e3).round();
            self.entry.duration_ms = Some(micros / 1e3);
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

/// A number between 0 and [`u64::MAX`], for sampling; no secret is made of it.
#[inline]
pub fn sample() -> u64 {
    scope::random()
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
