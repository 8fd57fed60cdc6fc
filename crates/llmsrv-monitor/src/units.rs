//! Numbers as they are shown. Decimal units: a megabyte has 1 000 000 bytes.

use std::time::Duration;

/// `512/980 MB`; in gigabytes with one decimal from one of them on.
pub(crate) fn of_total(used: u64, total: u64) -> String {
    if total < 1_000_000_000 {
        format!("{}/{} MB", used / 1_000_000, total / 1_000_000)
    } else {
        format!("{:.1}/{:.1} GB", used as f64 / 1e9, total as f64 / 1e9)
    }
}

/// `517 MB`, `1.2 GB`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// `850 B/s`, `12.3 kB/s`, `480 MB/s`: at most nine columns.
pub(crate) fn rate(bytes_per_second: u64) -> String {
    let (unit, name) = match bytes_per_second {
        0..1000 => return format!("{bytes_per_second} B/s"),
        // What would be rounded to four digits has the next unit.
        1000..999_500 => (1e3, "kB/s"),
        999_500..999_500_000 => (1e6, "MB/s"),
        _ => (1e9, "GB/s"),
    };
    let value = bytes_per_second as f64 / unit;
    let decimals = usize::from(value < 99.95);
    format!("{value:.decimals$} {name}")
}

/// `12.3 %`.
pub(crate) fn percent(percent: f64) -> String {
    format!("{percent:.1} %")
}

/// `54.3 °C`; without the sign where only ASCII is wanted.
pub(crate) fn celsius(celsius: f64, ascii: bool) -> String {
    let unit = if ascii { "C" } else { "°C" };
    format!("{celsius:.1} {unit}")
}

/// `500 ms`, `1 s`, `1.5 s`, `2 min`.
pub(crate) fn interval(interval: Duration) -> String {
    let millis = interval.as_millis();
    match millis {
        0..1000 => format!("{millis} ms"),
        60_000.. if millis.is_multiple_of(60_000) => format!("{} min", millis / 60_000),
        _ => format!("{} s", interval.as_secs_f64()),
    }
}

/// `3 d 4 h`, `4 h 5 min`, `6 min`.
pub(crate) fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min"),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(of_total(512_000_000, 980_000_000), "512/980 MB");
        assert_eq!(of_total(2_728_000_000, 25_276_000_000), "2.7/25.3 GB");
        assert_eq!(of_total(12_340_000_000, 141_000_000_000), "12.3/141.0 GB");
        assert_eq!(size(999_999), "999 kB");
        assert_eq!(size(1_250_000_000), "1.2 GB");
        for (bytes, text) in [
            (0, "0 B/s"),
            (999, "999 B/s"),
            (1_000, "1.0 kB/s"),
            (99_960, "100 kB/s"),
            (999_499, "999 kB/s"),
            (999_500, "1.0 MB/s"),
            (12_345_678, "12.3 MB/s"),
            (480_000_000, "480 MB/s"),
            (7_000_000_000, "7.0 GB/s"),
        ] {
            assert_eq!(rate(bytes), text);
        }
        assert_eq!(interval(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(interval(Duration::from_mins(2)), "2 min");
        assert_eq!(uptime(3 * 86_400 + 5 * 3600), "3 d 5 h");
    }
}
