//! A file that grows at its end, and makes room for itself.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use crate::{
    SinkError, Timestamp,
    files::{io_error, private},
};

/// What the buffer of a sink keeps of its memory between batches.
pub(super) const KEPT_BYTES: usize = 1 << 20;

/// When a file is put aside for a new one. Files put aside are called `<name>.1`, the newest, and so
/// on, with `.zst` if they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Before it would grow beyond that many bytes.
    pub max_bytes: Option<u64>,
    /// At the first entry of a new day, UTC.
    pub daily: bool,
    /// How many files put aside are kept.
    pub backups: usize,
    /// Compress what is put aside.
    pub compress: bool,
}

impl Default for Rotation {
    fn default() -> Rotation {
        Rotation {
            max_bytes: None,
            daily: false,
            backups: 5,
            compress: false,
        }
    }
}

/// The file, open as long as its sink lives.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    n_bytes: u64,
    day: i64,
    rotation: Rotation,
}

impl LogFile {
    pub(crate) fn open(path: impl AsRef<Path>, rotation: Rotation) -> Result<LogFile, SinkError> {
        let path = path.as_ref();
        let open = || -> io::Result<(File, u64, i64)> {
            let file = append_to(path)?;
            let metadata = file.metadata()?;
            let written = metadata
                .modified()
                .ok()
                .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
                .map_or_else(Timestamp::now, |since| {
                    Timestamp::from_micros(since.as_micros() as i64)
                });
            Ok((file, metadata.len(), day_of(written)))
        };
        let (file, n_bytes, day) = open().map_err(|source| io_error(path, source))?;
        // A device or a pipe has no place of its own to be put aside from.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let rotation = if is_file {
            rotation
        } else {
            Rotation {
                max_bytes: None,
                daily: false,
                ..rotation
            }
        };
        Ok(LogFile {
            path: path.to_owned(),
            file,
            n_bytes,
            day,
            rotation,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True if nothing is in the file: it needs its head first.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_bytes == 0
    }

    /// Puts the file aside if it is time for that before as much is added.
    pub(crate) fn make_room(&mut self, n_more: usize) -> Result<(), SinkError> {
        let today = day_of(Timestamp::now());
        let too_large = self
            .rotation
            .max_bytes
            .is_some_and(|max| self.n_bytes + n_more as u64 > max);
        let too_old = self.rotation.daily && today != self.day;
        if (too_large || too_old) && self.n_bytes > 0 {
            self.put_aside()
                .map_err(|source| io_error(&self.path, source))?;
        }
        self.day = today;
        Ok(())
    }

    /// Adds the bytes, all or none.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.n_bytes += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                // No torn entry stays behind. What is no plain file cannot be cut.
                let _ = self.file.set_len(self.n_bytes);
                Err(io_error(&self.path, source))
            }
        }
    }

    fn put_aside(&mut self) -> io::Result<()> {
        // What a link leads to makes room, beside itself; the link, perhaps the system's own, stays.
        let path = fs::canonicalize(&self.path)?;
        let numbered = |number: usize, suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{number}{suffix}"));
            PathBuf::from(name)
        };
        let n_backups = self.rotation.backups.max(1);
        for suffix in ["", ".zst"] {
            remove(&numbered(n_backups, suffix))?;
            for number in (1..n_backups).rev() {
                let from = numbered(number, suffix);
                if from.exists() {
                    fs::rename(from, numbered(number + 1, suffix))?;
                }
            }
        }
        let aside = numbered(1, "");
        fs::rename(&path, &aside)?;
        self.file = append_to(&path)?;
        self.n_bytes = self.file.metadata()?.len();
        if self.rotation.backups == 0 {
            return remove(&aside);
        }
        if self.rotation.compress {
            let packed = numbered(1, ".zst");
            let mut options = OpenOptions::new();
            let packed = private(options.write(true).create(true).truncate(true)).open(&packed)?;
            zstd::stream::copy_encode(File::open(&aside)?, packed, 0)?;
            fs::remove_file(&aside)?;
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().create(true).append(true)).open(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn day_of(timestamp: Timestamp) -> i64 {
    timestamp.micros().div_euclid(86_400_000_000)
}
