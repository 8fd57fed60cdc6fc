//! Times as the API writes them.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// Returns the present time in UTC, with a fraction of nine digits.
pub(crate) fn now() -> String {
    format!("{:.9}", Timestamp::now())
}

/// Returns a time of the file system.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(
        |_| Timestamp::UNIX_EPOCH.to_string(),
        |time| time.to_string(),
    )
}

/// Returns when `idle` from now is; for ever is a date centuries away.
pub(crate) fn after(idle: Option<Duration>) -> String {
    idle.and_then(|idle| Timestamp::now().checked_add(idle).ok())
        .map_or_else(
            || "2318-01-01T00:00:00Z".to_owned(),
            |time| time.to_string(),
        )
}

/// Returns a duration as the API counts it; what took place took at least a nanosecond.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}
