//! From text to a value: one parser for each [`Kind`], none of which panics.

use std::{fmt, num::NonZeroU32, path::PathBuf, time::Duration};

use crate::{Address, Folders, Kind, address::Mistake};

/// A parsed setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing was said and there is no default.
    Unset,
    /// On or off.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A time; `None` = forever.
    Duration(Option<Duration>),
    /// A size in bytes.
    Bytes(u64),
    /// So many in a time.
    Rate(Rate),
    /// Where a server listens.
    Address(Address),
    /// Any text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
    /// A file or folder.
    Path(PathBuf),
}

/// So many events in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many, at least one.
    pub count: NonZeroU32,
    /// In what time: a second, a minute, an hour or a day.
    pub per: Duration,
}

/// A setting as a layer gives it, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// One text.
    Text(String),
    /// A list of texts (only a TOML array can be one before parsing).
    List(Vec<String>),
}

/// How mistakes are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseMode {
    /// Every mistake is an error.
    Strict,
    /// The rules of existing servers for environment variables: an unknown word is `true`, a bad
    /// port is the default port. Both come with a remark.
    Lenient,
}

/// A text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Parses `raw` as `kind`. Returns the value and, in the lenient manner, a remark about what was
/// replaced; or what is wrong as a phrase that follows the name of the setting.
pub fn parse(
    kind: Kind,
    raw: &Raw,
    manner: ParseMode,
    folders: &Folders,
) -> Result<(Value, Option<String>), String> {
    let text = match raw {
        Raw::List(items) => {
            return match kind {
                Kind::List | Kind::EscapedList => Ok((Value::List(items.clone()), None)),
                _ => Err(format!("must be {}, not a list", kind.name())),
            };
        }
        Raw::Text(text) => clean(text),
    };
    if text.is_empty() {
        return Ok((Value::Unset, None));
    }
    let value = match kind {
        Kind::Switch => match switch(text) {
            Some(on) => Value::Switch(on),
            None if manner == ParseMode::Lenient => {
                return Ok((
                    Value::Switch(true),
                    Some(format!("`{text}` is neither true nor false: taken as true")),
                ));
            }
            None => return Err(format!("must be true or false, not `{text}`")),
        },
        Kind::Verbosity => match (switch(text), text) {
            (_, "2") => Value::Integer(2),
            (Some(on), _) => Value::Integer(i64::from(on)),
            (None, _) if manner == ParseMode::Lenient => {
                return Ok((
                    Value::Integer(1),
                    Some(format!("`{text}` is not a level: taken as 1 (debug)")),
                ));
            }
            (None, _) => return Err(format!("must be 0, 1 or 2, not `{text}`")),
        },
        Kind::Integer { min, max } => {
            let number = text
                .parse()
                .ok()
                .filter(|number| (min..=max).contains(number));
            Value::Integer(number.ok_or_else(|| format!("must be {}, not `{text}`", kind.name()))?)
        }
        Kind::Duration => Value::Duration(duration(text)?),
        Kind::Bytes => Value::Bytes(bytes(text)?),
        Kind::Rate => Value::Rate(rate(text)?),
        Kind::Address => match Address::parse(text) {
            Ok(address) => Value::Address(address),
            Err(Mistake::Port { port, address }) if manner == ParseMode::Lenient => {
                let remark = format!("`{port}` is not a port: {} is used", address.port);
                return Ok((Value::Address(address), Some(remark)));
            }
            Err(Mistake::Port { port, .. }) => {
                return Err(format!(
                    "has the port `{port}`, which is not a number from 0 to 65535"
                ));
            }
            Err(Mistake::Host(host)) => {
                return Err(format!(
                    "has the host `{host}`, which is neither a name nor an IP address"
                ));
            }
        },
        Kind::Choice(words) => {
            let word = words.iter().find(|word| word.eq_ignore_ascii_case(text));
            Value::Text(
                (*word
                    .ok_or_else(|| format!("must be one of {}, not `{text}`", words.join(", ")))?)
                .to_owned(),
            )
        }
        Kind::Text => Value::Text(text.to_owned()),
        Kind::List => Value::List(list(text)),
        Kind::EscapedList => Value::List(escaped_list(text)),
        Kind::Path => Value::Path(folders.expand(text)),
    };
    Ok((value, None))
}

/// Removes spaces and one pair of quotes around a value.
fn clean(text: &str) -> &str {
    let text = text.trim();
    ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(text)
        .trim()
}

/// Reads the words for on and off.
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

/// Reads `1h30m`, `500ms`, `1d`, a bare number of seconds, or a negative time (`None` = forever).
pub fn duration(text: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("must be a time such as 30s, 5m or 1h30m (-1 = forever), not `{text}`");
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let nanos = nanoseconds(unsigned, SECOND).ok_or_else(wrong)?;
    if text.starts_with('-') && nanos > 0 {
        return Ok(None);
    }
    match u64::try_from(nanos) {
        Ok(nanos) => Ok(Some(Duration::from_nanos(nanos))),
        Err(_) => Err(format!("is too long: `{text}` (-1 = forever)")),
    }
}

/// As [`duration`], without a sign, where a bare number counts `bare` seconds; `None` if it is no time, or longer than
/// half a millennium.
pub fn span(text: &str, bare: u32) -> Option<Duration> {
    let nanos = nanoseconds(text, u128::from(bare) * SECOND)?;
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Reads numbers with units, which are summed, or a number alone, which counts `bare` nanoseconds.
fn nanoseconds(text: &str, bare: u128) -> Option<u128> {
    let (mut rest, mut nanos) = (text, 0_u128);
    while !rest.is_empty() {
        let number_len = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let unit_len = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let scale = match unit {
            "" if number_len == text.len() => bare,
            unit => {
                let units = UNITS.iter();
                units.copied().find(|(name, _)| *name == unit)?.1
            }
        };
        nanos = decimal(number, scale).and_then(|part| nanos.checked_add(part))?;
        rest = after;
    }
    (!text.is_empty()).then_some(nanos)
}

const SECOND: u128 = 1_000_000_000;
/// Units of time and their nanoseconds.
const UNITS: [(&str, u128); 10] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
    ("d", 86_400 * SECOND),
    ("w", 604_800 * SECOND),
];

/// Writes a time so that [`duration`] reads it back: `1h30m`, `-1` for forever.
pub fn show_duration(duration: Option<Duration>) -> String {
    let Some(duration) = duration else {
        return "-1".to_owned();
    };
    let mut nanos = duration.as_nanos();
    let mut text = String::new();
    for (unit, scale) in [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ] {
        if nanos >= scale {
            text += &(nanos / scale).to_string();
            text += unit;
            nanos %= scale;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// Reads `8GiB`, `500MB`, `2g` (a single letter counts in steps of 1024) or a bare number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("must be a size such as 512MiB or 8GB, not `{text}`");
    let number_len = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let unit = unit.trim().to_ascii_lowercase();
    let (power, step) = match unit.as_str() {
        "" | "b" => (0, 1),
        _ => {
            let mut letters = unit.chars();
            let power = letters
                .next()
                .and_then(|first| "kmgtp".find(first))
                .ok_or_else(wrong)?;
            let step = match letters.as_str() {
                "" | "i" | "ib" => 1024,
                "b" => 1000,
                _ => return Err(wrong()),
            };
            (power as u32 + 1, step)
        }
    };
    decimal(number, u128::pow(step, power))
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(wrong)
}

/// Writes a size so that [`bytes`] reads it back: `8GiB`, or plain bytes where no unit divides it.
pub fn show_bytes(bytes: u64) -> String {
    let units = [
        ("PiB", 50),
        ("TiB", 40),
        ("GiB", 30),
        ("MiB", 20),
        ("KiB", 10),
    ];
    match units
        .iter()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift)
    {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Reads `60/min`: a number, a slash, and `s`, `min`, `h` or `d` (or the whole words).
pub fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("must be a rate such as 10/s, 60/min or 1000/h, not `{text}`");
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let count = count.trim().parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_lowercase();
    let (_, seconds) = RATE_UNITS
        .iter()
        .find(|(words, _)| words.contains(&unit.as_str()))
        .ok_or_else(wrong)?;
    Ok(Rate {
        count,
        per: Duration::from_secs(*seconds),
    })
}

/// Writes a rate so that [`rate`] reads it back.
pub fn show_rate(rate: Rate) -> String {
    let unit = RATE_UNITS
        .iter()
        .find(|(_, seconds)| rate.per.as_secs() == *seconds)
        .map_or("s", |(words, _)| words[0]);
    format!("{}/{unit}", rate.count)
}

/// The words of a unit, the shortest first, and its seconds.
const RATE_UNITS: &[(&[&str], u64)] = &[
    (&["s", "sec", "second"], 1),
    (&["min", "m", "minute"], 60),
    (&["h", "hour"], 3600),
    (&["d", "day"], 86_400),
];

/// Multiplies a decimal number by `scale`, exactly, cutting what is below one.
fn decimal(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Eighteen digits are finer than a nanosecond of a century; the rest cannot matter.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let digits: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let part = digits.checked_mul(scale)? / 10_u128.pow(fraction.len() as u32);
    whole.checked_mul(scale)?.checked_add(part)
}

/// Splits at commas; spaces around items and empty items are dropped.
pub fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Like [`list`], but `\,` is a comma inside an item.
pub fn escaped_list(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, items.last_mut()) {
            ('\\', Some(item)) if rest.peek() == Some(&',') => {
                rest.next();
                item.push(',');
            }
            (',', _) => items.push(String::new()),
            (c, Some(item)) => item.push(c),
            (_, None) => {}
        }
    }
    items
        .iter()
        .map(|item| item.trim().to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

impl Value {
    /// Writes the value in the form the parsers read; empty when unset.
    pub fn show(&self) -> String {
        match self {
            Value::Unset => String::new(),
            Value::Switch(on) => on.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Duration(duration) => show_duration(*duration),
            Value::Bytes(bytes) => show_bytes(*bytes),
            Value::Rate(rate) => show_rate(*rate),
            Value::Address(address) => address.to_string(),
            Value::Text(text) => text.clone(),
            // No text would be no value.
            Value::List(items) if items.is_empty() => ",".into(),
            Value::List(items) => items.join(","),
            Value::Path(path) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_like_go_writes_them() {
        for (text, nanos) in [
            ("5m", Some(300_000_000_000_u64)),
            ("1h30m", Some(5_400_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("1d", Some(86_400_000_000_000)),
            ("300", Some(300_000_000_000)),
            ("0.5", Some(500_000_000)),
            ("0", Some(0)),
            ("-0", Some(0)),
            ("10us", Some(10_000)),
            ("10µs", Some(10_000)),
            (".5s", Some(500_000_000)),
            ("+2s", Some(2_000_000_000)),
            ("-1", None),
            ("-5m", None),
        ] {
            assert_eq!(
                duration(text).unwrap(),
                nanos.map(Duration::from_nanos),
                "{text}"
            );
        }
        for text in [
            "",
            "-",
            "m",
            "5x",
            "soon",
            "1h5",
            "5 m",
            "1.2.3s",
            ".s",
            "1e3",
            "99999999999999999999999h",
            "9999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_with_either_step() {
        for (text, size) in [
            ("0", 0),
            ("1024", 1024),
            ("8GiB", 8 << 30),
            ("8g", 8 << 30),
            ("8GB", 8_000_000_000),
            ("1.5 KiB", 1536),
            ("512mib", 512 << 20),
            ("7b", 7),
        ] {
            assert_eq!(bytes(text).unwrap(), size, "{text}");
        }
        for text in ["", "GiB", "-1", "8XiB", "8gibi", "99999999999PiB", "1..5k"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_drop_what_is_empty_and_keep_escaped_commas() {
        assert_eq!(list(" a, ,b c,"), ["a", "b c"]);
        assert_eq!(
            escaped_list(r"csv:a\,b.csv , db:x\y,,"),
            ["csv:a,b.csv", r"db:x\y"]
        );
    }

    #[test]
    fn words_for_on_and_off() {
        let read = |text: &str, manner| {
            parse(
                Kind::Switch,
                &Raw::Text(text.into()),
                manner,
                &Folders::none(),
            )
        };
        for text in ["1", "true", "YES", "On", " \"true\" "] {
            assert_eq!(
                read(text, ParseMode::Strict).unwrap().0,
                Value::Switch(true),
                "{text}"
            );
        }
        for text in ["0", "False", "no", "OFF"] {
            assert_eq!(
                read(text, ParseMode::Strict).unwrap().0,
                Value::Switch(false),
                "{text}"
            );
        }
        assert!(read("maybe", ParseMode::Strict).is_err());
        let (value, remark) = read("maybe", ParseMode::Lenient).unwrap();
        assert_eq!(value, Value::Switch(true));
        assert!(remark.unwrap().contains("maybe"));
        assert_eq!(read("  ", ParseMode::Strict).unwrap().0, Value::Unset);
    }

    #[test]
    fn rates() {
        for (text, count, seconds) in [
            ("10/s", 10, 1),
            ("60/min", 60, 60),
            (" 5 / Hour ", 5, 3600),
            ("1/day", 1, 86_400),
        ] {
            let read = rate(text.trim()).unwrap();
            assert_eq!(
                (read.count.get(), read.per.as_secs()),
                (count, seconds),
                "{text}"
            );
            assert_eq!(rate(&show_rate(read)), Ok(read));
        }
        for wrong in ["60", "0/min", "-1/s", "x/s", "60/week", "/", "4294967296/s"] {
            assert!(rate(wrong).unwrap_err().contains("60/min"), "{wrong}");
        }
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        assert!(!format!("{:?}", Secret::new("hunter2".into())).contains("hunter2"));
    }

    const KINDS: &[Kind] = &[
        Kind::Switch,
        Kind::Verbosity,
        Kind::Integer { min: 0, max: 100 },
        Kind::Duration,
        Kind::Bytes,
        Kind::Rate,
        Kind::Address,
        Kind::Choice(&["a", "b"]),
        Kind::Text,
        Kind::List,
        Kind::EscapedList,
        Kind::Path,
    ];

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>(), number in "[-+0-9.a-zµ]{0,30}") {
            for kind in KINDS {
                for text in [&text, &number] {
                    for manner in [ParseMode::Strict, ParseMode::Lenient] {
                        let _ = parse(*kind, &Raw::Text(text.clone()), manner, &Folders::none());
                    }
                }
            }
        }

        #[test]
        fn durations_round_trip(nanos in any::<Option<u64>>()) {
            let value = nanos.map(Duration::from_nanos);
            prop_assert_eq!(duration(&show_duration(value)), Ok(value));
        }

        #[test]
        fn sizes_round_trip(size: u64, shift in 0_u32..64) {
            let size = size >> shift << (shift / 2);
            prop_assert_eq!(bytes(&show_bytes(size)), Ok(size));
        }

        #[test]
        fn whatever_is_shown_reads_back(text in "[ -~]{0,40}") {
            for kind in KINDS {
                let Ok((value, _)) = parse(*kind, &Raw::Text(text.clone()), ParseMode::Strict, &Folders::none()) else { continue };
                // A comma inside an escaped item, or quotes inside quotes, cannot be shown plainly.
                if text.contains(['\\', '"', '\'']) { continue }
                let again = parse(*kind, &Raw::Text(value.show()), ParseMode::Strict, &Folders::none());
                prop_assert_eq!(again, Ok((value, None)));
            }
        }
    }
}
