//! Sizes and times as people read them.

use jiff::Timestamp;

/// Writes a size with a decimal unit, as model sizes are given: `5.4 MB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit_idx = 0;
    // 999.95 would be shown as 1000.0.
    while value >= 999.5 && unit_idx + 1 < UNITS.len() {
        value /= 1000.0;
        unit_idx += 1;
    }
    let unit = UNITS.get(unit_idx).unwrap_or(&"");
    if unit_idx > 0 && value < 9.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Writes how long ago a moment was: `3 minutes ago`.
pub fn ago(moment: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - moment.as_second();
    // Clocks of two machines differ a little.
    if seconds < -5 {
        return "in the future".to_owned();
    }
    if seconds < 5 {
        return "just now".to_owned();
    }
    format!("{} ago", span(seconds))
}

/// Writes how long it is until a moment: `4 minutes from now`, or `Forever` if that is centuries.
pub fn until(moment: Timestamp, now: Timestamp) -> String {
    const CENTURY: i64 = 100 * 365 * 86_400;
    let seconds = moment.as_second() - now.as_second();
    if seconds > CENTURY {
        return "Forever".to_owned();
    }
    if seconds <= 0 {
        return "Stopping...".to_owned();
    }
    format!("{} from now", span(seconds))
}

/// Writes a length of time in its largest unit: `3 minutes`.
pub fn span(seconds: i64) -> String {
    const UNITS: [(&str, i64); 7] = [
        ("year", 365 * 86_400),
        ("month", 30 * 86_400),
        ("week", 7 * 86_400),
        ("day", 86_400),
        ("hour", 3600),
        ("minute", 60),
        ("second", 1),
    ];
    let (name, length) = UNITS
        .iter()
        .find(|(_, length)| seconds >= *length)
        .unwrap_or(&("second", 1));
    let count = seconds / length;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// Writes nanoseconds as seconds: `1.23s`, or `45.6ms` below one.
pub fn nanos(nanos: u64) -> String {
    let milliseconds = nanos as f64 / 1e6;
    if milliseconds < 1000.0 {
        format!("{milliseconds:.1}ms")
    } else {
        format!("{:.2}s", milliseconds / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_or_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KB"),
            (5_430_848, "5.4 MB"),
            (9_960_000, "10 MB"),
            (999_900, "1.0 MB"),
            (4_700_000_000, "4.7 GB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times_are_rounded_down_to_one_unit() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        for (seconds, text) in [
            (0, "just now"),
            (1, "just now"),
            (-30, "30 seconds ago"),
            (-90, "1 minute ago"),
            (-7200, "2 hours ago"),
            (-86_400 * 10, "1 week ago"),
            (-86_400 * 800, "2 years ago"),
            (60, "in the future"),
        ] {
            assert_eq!(ago(at(seconds), now), text);
        }
        assert_eq!(until(at(299), now), "4 minutes from now");
        assert_eq!(until(at(-1), now), "Stopping...");
        assert_eq!(
            until("2500-01-01T00:00:00Z".parse().unwrap(), now),
            "Forever"
        );
    }

    #[test]
    fn nanoseconds_become_seconds() {
        assert_eq!(nanos(45_600_000), "45.6ms");
        assert_eq!(nanos(1_234_000_000), "1.23s");
    }
}
