//! Times as people type them.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// Longest span: a hundred years.
const LONGEST: Duration = Duration::from_hours(100 * 366 * 24);

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// By the calendar, microseconds since 1970.
    At(i64),
    /// So long ago.
    Ago(Duration),
}

impl Moment {
    /// Returns microseconds since 1970.
    pub(crate) fn unix_micros(self) -> i64 {
        match self {
            Moment::At(at) => at,
            Moment::Ago(ago) => now().saturating_sub(ago.as_micros() as i64),
        }
    }
}

/// Returns microseconds since 1970.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Reads a span of `logs`; a bare number is hours.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    parse(text, 3600).ok_or_else(|| "write it like 90s, 30m, 24h, 7d or 2w".to_owned())
}

/// Reads a limit of `run`; a bare number is seconds.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    parse(text, 1).ok_or_else(|| "write it like 90s, 30m or 24h".to_owned())
}

/// Reads milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches("ms").parse() {
        Ok(number) if f64::is_finite(number) && number >= 0.0 => Ok(number),
        _ => Err("give a number of milliseconds".to_owned()),
    }
}

/// Reads a point in time: a date, a date and time, or a span back from now.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(ago) = span(text) {
        return Ok(Moment::Ago(ago));
    }
    let with_offset = text.parse::<Timestamp>();
    let at = with_offset.or_else(|_| {
        let utc = text.parse::<DateTime>()?;
        Ok::<_, jiff::Error>(utc.to_zoned(TimeZone::UTC)?.timestamp())
    });
    at.map(|at| Moment::At(at.as_microsecond())).map_err(|_| {
        "write it like 2026-11-20, 2026-11-20T19:54:48, 2026-11-20T19:54+01:00 or 2h".to_owned()
    })
}

fn parse(text: &str, bare: u32) -> Option<Duration> {
    let span = llmsrv_config::value::span(&text.trim().to_lowercase(), bare)?;
    (span <= LONGEST).then_some(span)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_have_units_and_bare_numbers_are_hours() {
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1800),
            ("24h", 86_400),
            ("7d", 604_800),
            ("2w", 1_209_600),
            ("3", 10_800),
            ("1h30m", 5400),
            ("1.5H", 5400),
            ("0", 0),
        ] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "h",
            "5x",
            "1h30",
            "-1h",
            "1e3",
            "inf",
            "9999999999w",
            "1ä",
        ] {
            assert!(span(text).is_err(), "{text}");
        }
        assert_eq!(limit("5"), Ok(Duration::from_secs(5)));
    }

    #[test]
    fn moments_are_utc_unless_they_have_an_offset() {
        for (text, expected) in [
            ("1970-01-02", 86_400_000_000),
            ("1970-01-01T00:01", 60_000_000),
            ("1970-01-01T00:00:01.5", 1_500_000),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1970-01-01T00:00:00Z", 0),
        ] {
            assert_eq!(moment(text), Ok(Moment::At(expected)), "{text}");
        }
        assert_eq!(moment("2h"), Ok(Moment::Ago(Duration::from_hours(2))));
        assert!(moment("tomorrow").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>(), close in "[0-9.smhdw]{0,8}") {
            for text in [text, close] {
                let _ = (span(&text), moment(&text), milliseconds(&text));
            }
        }
    }
}
