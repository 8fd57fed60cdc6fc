//! Moments of time in microseconds, written as ISO 8601 without going through a calendar library.

use std::{
    fmt,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

/// Microseconds since 1970-01-01 UTC, within the years 1 to 9999.
///
/// Written `2026-11-20T19:54:48.596202+00:00`, always with six digits, so that the order of the
/// texts is the order of the moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is no moment of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time such as 2026-11-20T19:54:48+00:00")]
pub struct BadTimestamp(String);

impl Timestamp {
    /// The earliest: 0001-01-01T00:00:00 UTC.
    pub const MIN: Timestamp = Timestamp(-62_135_596_800_000_000);
    /// The latest: 9999-12-31T23:59:59.999999 UTC.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999_999);

    /// What the system's clock says; it may be set back.
    pub fn now() -> Timestamp {
        let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        };
        Timestamp::from_micros(micros)
    }

    /// From microseconds since 1970; what is outside the years 1 to 9999 is moved to their border.
    pub fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros).clamp(Timestamp::MIN, Timestamp::MAX)
    }

    /// Microseconds since 1970-01-01 UTC, negative before.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Seconds since 1970-01-01 UTC, with fraction.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The ISO text in a buffer.
    fn iso(self) -> [u8; ISO_LENGTH] {
        let mut text = *b"0000-00-00T00:00:00.000000+00:00";
        let (year, month, day) = civil_from_days(self.0.div_euclid(DAY));
        let of_day = self.0.rem_euclid(DAY);
        let seconds = of_day / 1_000_000;
        for (at, width, value) in [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, seconds / 3600),
            (14, 2, seconds / 60 % 60),
            (17, 2, seconds % 60),
            (20, 6, of_day % 1_000_000),
        ] {
            let mut rest = value;
            for place in (at..at + width).rev() {
                text[place] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        text
    }

    /// Calls `f` with the ISO text, without an allocation.
    pub fn with_iso<R>(self, f: impl FnOnce(&str) -> R) -> R {
        f(str::from_utf8(&self.iso()).unwrap_or_default())
    }
}

const DAY: i64 = 86_400_000_000;
const ISO_LENGTH: usize = 32;

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
/// Algorithm: Howard Hinnant, "chrono-compatible low-level date algorithms".
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468; // days since 0000-03-01
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_iso(|text| f.pad(text))
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    /// Reads ISO 8601 and RFC 3339, with `T` or a blank; without an offset the time is UTC, without
    /// a time of day it is midnight.
    fn from_str(text: &str) -> Result<Timestamp, BadTimestamp> {
        let text = text.trim();
        let parsed = text
            .parse::<jiff::Timestamp>()
            .ok()
            .or_else(|| {
                let civil = text.parse::<jiff::civil::DateTime>().ok()?;
                let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
                Some(zoned.timestamp())
            })
            .ok_or_else(|| BadTimestamp(text.chars().take(64).collect()))?;
        Ok(Timestamp::from_micros(
            parsed.as_nanosecond().div_euclid(1000) as i64,
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (-1, "1969-12-31T23:59:59.999999+00:00"),
            (1_795_204_488_596_202, "2026-11-20T19:54:48.596202+00:00"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000+00:00"),
            (i64::MAX, "9999-12-31T23:59:59.999999+00:00"),
            (i64::MIN, "0001-01-01T00:00:00.000000+00:00"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
        }
        for text in [
            "2026-11-20 19:54:48.596202",
            "2026-11-20T20:54:48.5962029+01:00",
            "2026-11-20T19:54:48.596202Z",
        ] {
            assert_eq!(
                text.parse::<Timestamp>().unwrap().micros(),
                1_795_204_488_596_202,
                "{text}"
            );
        }
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    proptest! {
        #[test]
        fn text_and_moment_are_the_same(micros in Timestamp::MIN.0..=Timestamp::MAX.0) {
            let stamp = Timestamp::from_micros(micros);
            prop_assert_eq!(stamp.to_string().parse::<Timestamp>().unwrap(), stamp);
        }
    }
}
