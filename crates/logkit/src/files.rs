//! Files that are made, and what is wrong with them.

use std::{fs::OpenOptions, io, path::Path};

use crate::SinkError;

pub(crate) fn io_error(path: &Path, source: io::Error) -> SinkError {
    SinkError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Entries may hold what is nobody else's business: a file that is made is for its owner alone.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
