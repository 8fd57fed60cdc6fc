//! Values of settings, and where they are from.

use std::{fmt, path::PathBuf};

use crate::{Setting, Value, value::Raw};

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The settings file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// The file of `NAME=value` lines.
    EnvFile {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The variable.
        name: String,
    },
    /// The environment.
    Environment {
        /// The variable.
        name: String,
    },
    /// The command line.
    Flag {
        /// How the flag is written.
        flag: &'static str,
    },
}

impl Origin {
    /// Returns the start of a message about a named thing there: `config.toml:3: `.
    pub(crate) fn place(&self) -> String {
        match self {
            Origin::Default => "default: ".to_owned(),
            Origin::File { path, line } | Origin::EnvFile { path, line, .. } => {
                format!("{}:{line}: ", path.display())
            }
            Origin::Environment { .. } => "environment: ".to_owned(),
            Origin::Flag { .. } => String::new(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::EnvFile { path, line, name } => write!(f, "{}:{line} {name}", path.display()),
            Origin::Environment { name } => write!(f, "environment {name}"),
            Origin::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}

/// A setting with the value that won.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The row of the table.
    pub setting: &'static Setting,
    /// The value.
    pub value: Value,
    /// Who said it.
    pub origin: Origin,
}

/// What one layer says about one setting.
pub(crate) struct Entry {
    pub(crate) setting: &'static Setting,
    /// The setting as it is called in that layer.
    pub(crate) name: String,
    pub(crate) raw: Raw,
    pub(crate) origin: Origin,
}
