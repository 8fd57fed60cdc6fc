//! The logger of code that names none.

use std::sync::{
    Once,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use arc_swap::ArcSwapOption;

use crate::{Logger, logger::DRAIN, sinks::console::ConsoleSink};

static DEFAULT: ArcSwapOption<Logger> = ArcSwapOption::const_empty();
/// Rank of the default logger's level; 0 as long as there is none.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The default logger. Unless one was set it is made now, and writes to the console only.
pub fn default_logger() -> Logger {
    if let Some(logger) = &*DEFAULT.load() {
        return Logger::clone(logger);
    }
    let describe = || Logger::builder().console(ConsoleSink::stderr());
    let made = describe().after_fork(describe).build();
    let before =
        DEFAULT.compare_and_swap(&None::<std::sync::Arc<Logger>>, Some(made.clone().into()));
    if let Some(logger) = &*before {
        return Logger::clone(logger);
    }
    settle(&made);
    made
}

/// Calls `f` with [`default_logger`], without counting one more user of it.
pub(crate) fn with_default_logger(f: impl FnOnce(&Logger)) {
    match &*DEFAULT.load() {
        Some(logger) => f(logger),
        None => f(&default_logger()),
    }
}

/// Makes that the default logger, also of functions which were logged before. Returns the one
/// before, which is not closed.
pub fn set_default_logger(logger: Logger) -> Option<Logger> {
    let before = DEFAULT.swap(Some(logger.clone().into()));
    settle(&logger);
    before.map(|before| Logger::clone(&before))
}

/// Rank of the lowest level that the default logger takes.
#[inline]
pub(crate) fn default_level() -> u8 {
    LEVEL.load(Relaxed)
}

pub(crate) fn level_changed(logger: &Logger) {
    if DEFAULT.load().as_ref().is_some_and(|set| set.is(logger)) {
        LEVEL.store(logger.level_number(), Relaxed);
    }
}

fn settle(logger: &Logger) {
    LEVEL.store(logger.level_number(), Relaxed);
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        shutdown_hooks::add_shutdown_hook(drain_at_exit);
    });
}

/// The writer's thread lives until the process ends, so what waits can still be written.
extern "C" fn drain_at_exit() {
    if let Some(logger) = &*DEFAULT.load() {
        logger.flush(DRAIN);
        // Some sinks deliver the rest when they are closed.
        logger.close();
    }
}
