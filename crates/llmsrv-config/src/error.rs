//! What can be wrong with settings.

use std::{fmt, path::PathBuf};

use crate::Origin;

/// One mistake that stops the program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that was asked for cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not of its format.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// The settings file has a key that no setting has.
    #[error("{}:{line}: unknown setting `{key}`{}", path.display(), suggestion(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The key with its section.
        key: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A value does not fit its setting.
    #[error("{}{name} {problem}", origin.place())]
    BadValue {
        /// Where the value is from.
        origin: Origin,
        /// Name of the setting as it was written there.
        name: String,
        /// A phrase that follows the name.
        problem: String,
    },
}

impl Error {
    /// Tells whether the mistake is in the command line itself.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::BadValue {
                origin: Origin::Flag { .. },
                ..
            }
        )
    }
}

impl Error {
    /// Orders mistakes as people read: files from top to bottom, then the rest.
    pub(crate) fn position(&self) -> (bool, PathBuf, usize) {
        match self {
            Error::Unreadable { path, .. } => (false, path.clone(), 0),
            Error::Syntax { path, line, .. } | Error::UnknownKey { path, line, .. } => {
                (false, path.clone(), *line)
            }
            Error::BadValue {
                origin: Origin::File { path, line } | Origin::EnvFile { path, line, .. },
                ..
            } => (false, path.clone(), *line),
            Error::BadValue { .. } => (true, PathBuf::new(), 0),
        }
    }
}

/// All mistakes found, at least one.
#[derive(Debug)]
pub struct Errors(pub Vec<Error>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (error_idx, error) in self.0.iter().enumerate() {
            if error_idx > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Something odd that does not stop the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A variable with our prefix that no setting has.
    #[error("{}unknown variable {name}{}", origin.place(), suggestion(nearest.as_deref()))]
    UnknownVariable {
        /// Where it is set.
        origin: Origin,
        /// Its name.
        name: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A value was replaced as the rules for environment variables say.
    #[error("{}{name}: {remark}", origin.place())]
    Replaced {
        /// Where it is set.
        origin: Origin,
        /// Its name.
        name: String,
        /// What was done.
        remark: String,
    },
    /// A setting without effect has another value than its default.
    #[error("{}{name} is ignored: {why}", origin.place())]
    Ignored {
        /// Where it is set.
        origin: Origin,
        /// Its name.
        name: String,
        /// Why.
        why: &'static str,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}
