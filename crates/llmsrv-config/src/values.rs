//! The resolved table, read by name and type: how the typed structs are filled.

use std::{path::PathBuf, time::Duration};

use crate::{Address, Resolved, Secret, Value, value::Rate};

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// What operators need.
    Info,
    /// One line for each request.
    Debug,
    /// Everything.
    Trace,
}

/// The resolved table, read by name and type.
pub(crate) struct Values<'a>(pub(crate) &'a [Resolved]);

impl Values<'_> {
    /// Returns the value of a setting.
    ///
    /// # Panics
    /// When the table has no such row or its kind does not fit `T`: a mistake in this crate that
    /// every load shows, not one that input can cause.
    pub(crate) fn read<T: FromValue>(&self, name: &str) -> T {
        let row = self.0.iter().find(|row| row.setting.name == name);
        row.and_then(|row| T::from_value(&row.value))
            .unwrap_or_else(|| panic!("{name} is no such row of the table"))
    }
}

/// Types that settings are read as.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {
        $(impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $pattern => $value,
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    bool: Value::Switch(on) => Some(*on);
    u16: Value::Integer(number) => (*number).try_into().ok();
    usize: Value::Integer(number) => (*number).try_into().ok();
    i64: Value::Integer(number) => Some(*number);
    u64: Value::Bytes(bytes) => Some(*bytes);
    Rate: Value::Rate(rate) => Some(*rate);
    Address: Value::Address(address) => Some(address.clone());
    String: Value::Text(text) => Some(text.clone());
    Secret: Value::Text(text) => Some(Secret::new(text.clone()));
    PathBuf: Value::Path(path) => Some(path.clone());
    Duration: Value::Duration(duration) => *duration;
    Verbosity: Value::Integer(number) => match number {
        0 => Some(Verbosity::Info),
        1 => Some(Verbosity::Debug),
        _ => Some(Verbosity::Trace),
    };
}

impl<T: From<String>> FromValue for Vec<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::List(items) => Some(items.iter().cloned().map(T::from).collect()),
            Value::Unset => Some(Vec::new()),
            _ => None,
        }
    }
}

/// `None` is a time without end, too.
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset | Value::Duration(None) => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}
