//! What signals do to the programs that tests start.

use std::{fs, sync::Once, thread};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// Makes signals that are ignored here, as under `nohup` or in the background of a shell without job
/// control, do to programs that are started from now on what they do by default.
///
/// What a process ignores its children ignore, too, but a handler is not inherited: so each of these
/// gets one, which does nothing.
pub fn reset() {
    static ONCE: Once = Once::new();
    // On a thread of its own: the test may run in a runtime.
    ONCE.call_once(|| thread::spawn(handle_ignored).join().unwrap());
}

fn handle_ignored() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    for kind in KINDS.into_iter().filter(|kind| is_ignored(*kind)) {
        // The handler stays when this is dropped.
        drop(signal(kind).unwrap());
    }
}

fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or(0) >> (kind.as_raw_value() - 1) & 1 == 1
}

const KINDS: [SignalKind; 4] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
];
