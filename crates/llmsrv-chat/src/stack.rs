//! A stack of known size for what is recursive.

use std::panic::resume_unwind;
use std::thread;

use crate::error::{Error, Result};

/// Runs something whose depth is bounded on a thread with a stack that is large enough for it, however
/// the program was compiled and whatever the caller's thread has left.
pub(crate) fn large<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("template".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| Error::Render(format!("no thread for the template: {error}")))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Only what is touched takes memory. The deepest templates need a tenth of it.
const STACK_BYTES: usize = 64 << 20;
