//! Where a panic began: it is known only while the panic hook runs.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::Once,
};

thread_local! {
    /// How many logged calls are running.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static TRACEBACK: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body; a panic is given back, and where it began is remembered.
pub(crate) fn watched<R>(body: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.get() > 0 {
                let mut text = info
                    .location()
                    .map_or_else(String::new, |location| format!("at {location}"));
                let backtrace = Backtrace::capture();
                if backtrace.status() == BacktraceStatus::Captured {
                    text.push('\n');
                    text.push_str(&backtrace.to_string());
                }
                TRACEBACK.replace(text);
            }
            before(info);
        }));
    });
    DEPTH.set(DEPTH.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    DEPTH.set(DEPTH.get() - 1);
    outcome
}

/// Where the last panic of this thread began. Stays until the next one: the calls around it tell
/// of it too.
pub(crate) fn take_traceback() -> String {
    TRACEBACK.with_borrow(Clone::clone)
}
