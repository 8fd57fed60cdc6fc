//! What is wrong with a sink.

use std::{io, path::PathBuf};

/// Why a sink did not keep a batch.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file cannot be opened, written, renamed or compressed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file as it was named; `the console` for the console.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// SQLite cannot open, read or write a database, or waited too long for its lock.
    #[cfg(feature = "db")]
    #[error("{}: {source}", path.display())]
    Db {
        /// The file of the database.
        path: PathBuf,
        /// The answer of SQLite.
        source: rusqlite::Error,
    },
    /// The table's name could be anything.
    #[error("'{0}' is no name of a table: use letters, digits and '_'")]
    BadTable(String),
    /// Part of the batch was kept.
    #[error("{0}")]
    Partly(String),
    /// Some of several sinks failed; that is counted and told already.
    #[error("{message}")]
    Reported {
        /// Others took the entries.
        partly: bool,
        /// What the sinks said.
        message: String,
    },
    /// Whatever has no variant of its own, in words: a bad address, a file of another kind.
    #[error("{0}")]
    Other(String),
}
