//! The native loggers there are: those that are looked after when the process forks or ends.

use logkit::{WeakLogger, lock::Mutex};
static LOGGERS: Mutex<Vec<WeakLogger>> = Mutex::new(Vec::new());

/// Looks after a native logger: it lets go of its files before the process forks, and writes what waits
/// before it ends.
pub(crate) fn watch(logger: &logkit::Logger) {
    let mut loggers = LOGGERS.lock();
    loggers.retain(|logger| logger.upgrade().is_some());
    loggers.push(logger.downgrade());
}

/// Returns them.
pub(crate) fn loggers() -> Vec<logkit::Logger> {
    LOGGERS
        .lock()
        .iter()
        .filter_map(WeakLogger::upgrade)
        .collect()
}
