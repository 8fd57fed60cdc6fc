//! Why a command failed.

use std::{io, path::PathBuf};

use logkit::spec::SpecError;

/// Exit status of wrong use of the command line.
pub(crate) const USAGE: u8 = 2;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no such database.
    #[error("Database not found: {}", .0.display())]
    NoDatabase(PathBuf),
    /// Wrong use of the command line.
    #[error("{0}")]
    Usage(String),
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] llmsrv_config::Errors),
    /// A database or file cannot be read or written.
    #[error(transparent)]
    Sink(#[from] logkit::SinkError),
    /// A sink cannot be had.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Anything about files and streams.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Returns the exit status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::Spec(SpecError::Invalid(_) | SpecError::Unknown(_)) => {
                USAGE
            }
            _ => 1,
        }
    }

    /// Tells whether whoever read our output has left, which is nobody's failure.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<csv::Error> for Failure {
    fn from(error: csv::Error) -> Failure {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Failure::Io(error),
            other => Failure::Other(format!("cannot write CSV: {other:?}")),
        }
    }
}
