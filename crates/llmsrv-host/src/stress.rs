//! Load on the machine, and how it bears it: processors, memory, disks.
//!
//! No tools of the system and no rights of root are needed, and nothing is written to disks. All of
//! it runs for a given time and ends early when it is told to stop; what was seen until then counts.

mod cpu;
mod disk;
mod memory;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub use cpu::{Cpu, cpu};
pub use disk::{Disk, Source, Target, disk, targets};
pub use memory::{Memory, free_bytes, memory};

/// Tells those who work to stop. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks all to stop as soon as they can, within some milliseconds.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Tells whether to stop.
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a part of the machine cannot be put under load.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system gives no threads.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// It is not known how much memory is free.
    #[error("the system does not say how much memory is free")]
    Unknown,
    /// There is no memory to test.
    #[error("{free} bytes of memory are free: too few to test any")]
    Full {
        /// Bytes that can be had.
        free: u64,
    },
    /// A disk or file cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[source] std::io::Error),
}

/// Returns an amount for each second.
fn rate(amount: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        amount as f64 / seconds
    } else {
        0.0
    }
}
