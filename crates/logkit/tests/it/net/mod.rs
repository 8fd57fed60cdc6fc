//! Sinks that talk to others, against a peer that does as it is told.

pub(crate) mod stub;

#[cfg(feature = "llm")]
mod llm;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "syslog")]
mod syslog;
#[cfg(feature = "webhook")]
mod webhook;

use std::time::{Duration, Instant};

use logkit::{Entry, Level};

/// An error as a program would log it.
pub(crate) fn error(function: &str, message: &str) -> Entry {
    Entry {
        level: Level::Error,
        function_name: function.to_owned().into(),
        module: "shop".into(),
        args: "(3, 'x')".into(),
        exception: message.to_owned().into(),
        exception_type: "ValueError".into(),
        traceback: "Traceback (most recent call last):\n  File \"shop.py\", line 3, in pay".into(),
        duration_ms: Some(1.5),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        ..Entry::default()
    }
}

/// Waits for something that happens soon.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}
