//! How grave an entry is.

use std::{cmp::Ordering, convert::Infallible, fmt, str::FromStr};

/// A level; unknown names are kept as given, in upper case, and rank as DEBUG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Details for whoever looks for a mistake; rank 10.
    Debug,
    /// What happens in the usual course; rank 20.
    #[default]
    Info,
    /// Something is off, and the call went on; rank 30.
    Warning,
    /// The call failed; rank 40.
    Error,
    /// The program cannot go on; rank 50.
    Critical,
    /// Any other name, upper case; ranks as DEBUG.
    Other(Box<str>),
}

impl Level {
    /// The levels with names of their own, lowest first.
    pub const ALL: [Level; 5] = [
        Level::Debug,
        Level::Info,
        Level::Warning,
        Level::Error,
        Level::Critical,
    ];

    /// Reads a name in any case; blanks around it do not matter.
    /// `warn`, `err` and `fatal` are other names of three of them.
    pub fn parse(name: &str) -> Level {
        let name = name.trim();
        for (other, level) in [
            ("warn", Level::Warning),
            ("err", Level::Error),
            ("fatal", Level::Critical),
        ] {
            if name.eq_ignore_ascii_case(other) {
                return level;
            }
        }
        Level::ALL
            .into_iter()
            .find(|level| level.as_str().eq_ignore_ascii_case(name))
            .unwrap_or_else(|| Level::Other(name.to_uppercase().into()))
    }

    /// The rank, 10 to 50.
    pub const fn number(&self) -> u8 {
        match self {
            Level::Debug | Level::Other(_) => 10,
            Level::Info => 20,
            Level::Warning => 30,
            Level::Error => 40,
            Level::Critical => 50,
        }
    }

    /// The name, upper case.
    pub fn as_str(&self) -> &str {
        match self {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
            Level::Critical => "CRITICAL",
            Level::Other(name) => name,
        }
    }

    /// True for ERROR and CRITICAL.
    pub const fn is_error(&self) -> bool {
        self.number() >= Level::Error.number()
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Level) -> Ordering {
        (self.number(), self.as_str()).cmp(&(other.number(), other.as_str()))
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Level) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Level {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Level, Infallible> {
        Ok(Level::parse(name))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
