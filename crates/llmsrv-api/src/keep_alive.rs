//! How long a model stays loaded after its last request: seconds, or a duration in Go's notation.

use std::time::Duration;

use serde_json::Value;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{OneOfBuilder, RefOr, Schema},
};

use crate::lenient::BodyError;

/// An idle time; `None` = for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive(pub Option<Duration>);

impl KeepAlive {
    /// Reads a number of seconds or a text such as `5m`, `1h30m`, `-1`, `10` or `1d`. Anything
    /// negative means for ever.
    pub fn parse(value: &Value) -> Result<KeepAlive, String> {
        match value {
            Value::Number(number) => {
                let seconds = number.as_f64().unwrap_or(f64::INFINITY);
                Ok(KeepAlive::seconds(seconds))
            }
            Value::String(text) => KeepAlive::text(text),
            Value::Bool(_) => Err("Unsupported type: 'bool'".into()),
            Value::Array(_) => Err("Unsupported type: 'array'".into()),
            Value::Object(_) => Err("Unsupported type: 'object'".into()),
            Value::Null => Err("Unsupported type: 'null'".into()),
        }
    }

    /// Tells whether the model is to be unloaded at once.
    pub fn is_zero(self) -> bool {
        self.0 == Some(Duration::ZERO)
    }

    fn seconds(seconds: f64) -> KeepAlive {
        // Longer than a lifetime is for ever.
        KeepAlive(
            (seconds >= 0.0)
                .then(|| Duration::try_from_secs_f64(seconds).ok())
                .flatten()
                .filter(|d| *d < LONGEST),
        )
    }

    fn text(text: &str) -> Result<KeepAlive, String> {
        let text = text.trim();
        if let Ok(seconds) = text.parse::<f64>()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte))
        {
            return Ok(KeepAlive::seconds(seconds));
        }
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest.is_empty() {
            return Err(format!("time: invalid duration {text:?}"));
        }
        let mut sum = 0.0;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            let number: f64 = rest[..digits]
                .parse()
                .map_err(|_| format!("time: invalid duration {text:?}"))?;
            rest = &rest[digits..];
            let letters = rest
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(rest.len());
            let unit = &rest[..letters];
            rest = &rest[letters..];
            if unit.is_empty() {
                return Err(format!("time: missing unit in duration {text:?}"));
            }
            let Some((_, seconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
            };
            sum += number * seconds;
        }
        Ok(KeepAlive::seconds(if negative && sum > 0.0 {
            -sum
        } else {
            sum
        }))
    }
}

crate::from_value!(KeepAlive, |_| true, |value, _name| {
    KeepAlive::parse(&value).map_err(BodyError::Meaning)
});

impl PartialSchema for KeepAlive {
    fn schema() -> RefOr<Schema> {
        let about = "How long the model stays loaded after this request: seconds, or a duration such as `5m`; \
             negative is for ever.";
        let kinds = OneOfBuilder::new()
            .item(f64::schema())
            .item(String::schema());
        kinds.description(Some(about)).into()
    }
}

impl ToSchema for KeepAlive {}

const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// Units and their seconds.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_seconds_and_texts_are_durations() {
        let forever = None;
        for (value, expected) in [
            (json!(5), Some(5_000)),
            (json!(0), Some(0)),
            (json!(0.5), Some(500)),
            (json!(-1), forever),
            (json!(1e300), forever),
            (json!("5m"), Some(300_000)),
            (json!("1h30m"), Some(5_400_000)),
            (json!("1.5s"), Some(1_500)),
            (json!("250ms"), Some(250)),
            (json!("0"), Some(0)),
            (json!("10"), Some(10_000)),
            (json!("-1"), forever),
            (json!("-1m"), forever),
            (json!("1d"), Some(86_400_000)),
        ] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(KeepAlive::parse(&value), Ok(KeepAlive(expected)), "{value}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (value, text) in [
            (json!("5x"), "time: unknown unit \"x\" in duration \"5x\""),
            (json!("1h5"), "time: missing unit in duration \"1h5\""),
            (json!(""), "time: invalid duration \"\""),
            (json!("soon"), "time: invalid duration \"soon\""),
            (json!(true), "Unsupported type: 'bool'"),
        ] {
            assert_eq!(KeepAlive::parse(&value), Err(text.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            let _ = KeepAlive::parse(&json!(text));
        }
    }
}
