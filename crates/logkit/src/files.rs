//! Files that entries are added to, while others may remove, replace or write to them.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use crate::SinkError;

pub(crate) fn io_error(path: &Path, source: io::Error) -> SinkError {
    SinkError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Entries may hold what is nobody else's business: a file that is made is for its owner alone.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Which file it is, whatever it is called by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> FileId {
        FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// True if the path leads to that open file; false if it was removed, or another one took its place.
pub(crate) fn is_at(open: &Metadata, path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(FileId::of(&found) == FileId::of(open)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Adds the bytes at the end of a file of `n_before` bytes, all or none.
pub(crate) fn append(mut file: &File, n_before: u64, bytes: &[u8]) -> io::Result<()> {
    let mut n_written = 0;
    while n_written < bytes.len() {
        let error = match file.write(&bytes[n_written..]) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(n_more) => {
                n_written += n_more;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        take_back(file, n_before, n_written);
        return Err(error);
    }
    Ok(())
}

/// Takes back the start of a text that could not be written. Where others wrote too, or nothing can be taken
/// back, its line is ended, so that the next one can be read.
fn take_back(mut file: &File, n_before: u64, n_written: usize) {
    if n_written == 0 {
        return;
    }
    let n_ours = n_before + n_written as u64;
    let is_last = file.metadata().is_ok_and(|now| now.len() == n_ours);
    if !is_last || file.set_len(n_before).is_err() {
        let _ = file.write_all(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_wrote_behind_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let left = |text: &str, n_before, n_written| {
            fs::write(&path, text).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            take_back(&file, n_before, n_written);
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(left("one\n{to", 4, 3), "one\n");
        assert_eq!(left("one\n", 4, 0), "one\n");
        // Somebody else wrote before the torn line, and behind it.
        assert_eq!(left("one\nother\n{to", 4, 3), "one\nother\n{to\n");
    }
}
