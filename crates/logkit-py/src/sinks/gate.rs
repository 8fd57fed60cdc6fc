//! Holds native sinks still while the process forks.
//!
//! The writers of loggers are paused by their loggers; this is for what Python's threads do themselves.
//! Nothing here waits on a lock: who held one at the fork would never give it back in the new process.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use pyo3::prelude::*;

use super::handle;

static FORKING: AtomicBool = AtomicBool::new(false);
/// Threads that are inside native sinks now.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// How long a fork waits for sinks, and sinks for a fork.
const TIMEOUT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// The thread is inside native sinks.
pub(crate) struct Inside(());

/// Waits while the process forks. Called by threads that do not hold the interpreter.
pub(crate) fn enter() -> Inside {
    let deadline = Instant::now() + TIMEOUT;
    if DEPTH.get() == 0 {
        loop {
            INSIDE.fetch_add(1, SeqCst);
            if !FORKING.load(SeqCst) || Instant::now() >= deadline {
                break;
            }
            INSIDE.fetch_sub(1, SeqCst);
            thread::sleep(STEP);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            // A new process has forgotten those who were inside.
            let _ = INSIDE.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
        }
    }
}

/// Native sinks stand still, and hold no database open, as long as it lives: from before a fork until
/// after it, on both sides.
pub(crate) struct ForkPause {
    born: forkguard::Guard,
}

/// Lets native sinks that are not in a logger come to a rest. Call it after the loggers are paused.
pub(crate) fn before_fork(py: Python<'_>) -> ForkPause {
    FORKING.store(true, SeqCst);
    let handles = handle::all();
    py.detach(|| {
        let deadline = Instant::now() + TIMEOUT;
        let own = usize::from(DEPTH.get() > 0);
        while INSIDE.load(SeqCst) > own && Instant::now() < deadline {
            thread::sleep(STEP);
        }
        for handle in handles {
            // What cannot be let go of is told by whoever uses it next.
            let _ = handle.if_open(|sink| sink.release());
        }
    });
    ForkPause {
        born: forkguard::Guard::default(),
    }
}

impl Drop for ForkPause {
    fn drop(&mut self) {
        if self.born.detected_fork() {
            INSIDE.store(usize::from(DEPTH.get() > 0), SeqCst);
        }
        FORKING.store(false, SeqCst);
    }
}
