//! What holds for a logger as long as a guard lives.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{Logger, logger::DRAIN, queue::Pause};

/// Another sink of a logger; see [`Logger::temp_sink`].
#[derive(Debug)]
pub struct TempSink {
    pub(crate) logger: Logger,
    pub(crate) leaves: Arc<AtomicBool>,
}

impl Drop for TempSink {
    fn drop(&mut self) {
        self.logger.flush(DRAIN);
        self.leaves.store(true, Relaxed);
        self.logger.flush(DRAIN);
    }
}

/// Another level of a logger; see [`Logger::temp_level`].
#[derive(Debug)]
pub struct TempLevel {
    pub(crate) logger: Logger,
    pub(crate) before: u8,
}

impl Drop for TempLevel {
    fn drop(&mut self) {
        self.logger.0.level.store(self.before, Relaxed);
        super::default::level_changed(&self.logger);
    }
}

/// Holds a writer while its process forks; see [`Logger::before_fork`].
#[derive(Debug)]
pub struct ForkGuard(pub(crate) Arc<Pause>);

impl Drop for ForkGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
