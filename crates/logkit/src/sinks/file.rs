//! A file that grows at its end, and makes room for itself.
//!
//! Several processes may write to one file: those that a program forked, two of the same command. Whoever adds a
//! batch has a lock of the file meanwhile, and looks first whether it still has its name: only who has that lock
//! puts it aside, and who waited for the lock then opens the file that took its place.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use crate::{
    SinkError, Timestamp,
    files::{self, FileId, io_error, private},
    stderr::notice,
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
    open: OpenFile,
    rotation: Rotation,
    /// There was a warning that a file cannot be put aside.
    has_warned: bool,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// A device or a pipe has no place of its own to be put aside from, and no length.
    is_plain: bool,
    /// Bytes written to what has no length.
    n_written: u64,
    /// The day of the last entry.
    day: i64,
}

/// The file, where nobody else adds to it until this is dropped.
pub(crate) struct Turn<'a> {
    log: &'a mut LogFile,
    n_bytes: u64,
    id: FileId,
}

impl LogFile {
    pub(crate) fn open(path: impl AsRef<Path>, rotation: Rotation) -> Result<LogFile, SinkError> {
        let path = path.as_ref();
        Ok(LogFile {
            path: path.to_owned(),
            open: OpenFile::open(path).map_err(|source| io_error(path, source))?,
            rotation,
            has_warned: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True if nothing is in the file now.
    pub(crate) fn is_empty(&self) -> bool {
        let metadata = self.open.file.metadata();
        metadata.is_ok_and(|metadata| metadata.len() == 0)
    }

    /// Waits for the file that has the name now, and puts it aside first if it is time for that before as much
    /// is added.
    pub(crate) fn turn(&mut self, n_more: usize) -> Result<Turn<'_>, SinkError> {
        let metadata = self
            .make_room(n_more as u64)
            .map_err(|source| io_error(&self.path, source))?;
        Ok(Turn {
            n_bytes: self.open.n_bytes(&metadata),
            id: FileId::of(&metadata),
            log: self,
        })
    }

    fn make_room(&mut self, n_more: u64) -> io::Result<Metadata> {
        let today = day_of(Timestamp::now());
        let mut metadata = self.lock()?;
        while self.is_due(&metadata, n_more, today) {
            let aside = match self.put_aside() {
                Ok(aside) => aside,
                Err(error) => {
                    // Entries come first: the file grows.
                    self.warn("is not put aside", &error);
                    return Ok(metadata);
                }
            };
            let id = FileId::of(&metadata);
            metadata = self.lock()?;
            if let Some(aside) = aside.filter(|_| self.rotation.compress)
                && let Err(error) = compress(&aside, id)
            {
                self.warn("is not compressed", &error);
            }
        }
        self.open.day = today;
        Ok(metadata)
    }

    /// Locks the file that has the name now.
    fn lock(&mut self) -> io::Result<Metadata> {
        // Nobody puts files aside that fast: of a file system whose inodes have no numbers that stay the same, the
        // file is taken as it is.
        const ATTEMPTS: usize = 16;
        for _ in 0..ATTEMPTS {
            let metadata = self.open.lock()?;
            // What cannot be looked at any more, as by a service that gave its rights away, can be written to.
            if !self.open.is_plain || files::is_at(&metadata, &self.path).unwrap_or(true) {
                return Ok(metadata);
            }
            self.open.unlock();
            self.open = OpenFile::open(&self.path)?;
        }
        self.open.lock()
    }

    fn is_due(&self, metadata: &Metadata, n_more: u64, today: i64) -> bool {
        let n_bytes = metadata.len();
        let too_large = |max| n_bytes + n_more > max;
        let too_old = self.rotation.daily && today != self.open.day;
        self.open.is_plain
            && n_bytes > 0
            && (too_old || self.rotation.max_bytes.is_some_and(too_large))
    }

    /// Takes its name from the file, which is locked; gives the new one, if it has one.
    fn put_aside(&self) -> io::Result<Option<PathBuf>> {
        // What a link leads to makes room, beside itself; the link, perhaps the system's own, stays.
        let path = fs::canonicalize(&self.path)?;
        if self.rotation.backups == 0 {
            return fs::remove_file(&path).map(|()| None);
        }
        make_place(&path, self.rotation.backups)?;
        let aside = numbered(&path, 1, "");
        fs::rename(&path, &aside)?;
        Ok(Some(aside))
    }

    /// Warns once of what went wrong with a file that is still written to.
    fn warn(&mut self, what: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            notice(&format!("{} {what}: {error}", self.path.display()));
        }
    }
}

impl OpenFile {
    fn open(path: &Path) -> io::Result<OpenFile> {
        let file = private(OpenOptions::new().create(true).append(true)).open(path)?;
        let metadata = file.metadata()?;
        let written = metadata
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .map_or_else(Timestamp::now, |since| {
                Timestamp::from_micros(since.as_micros() as i64)
            });
        Ok(OpenFile {
            file,
            is_plain: metadata.is_file(),
            n_written: 0,
            day: day_of(written),
        })
    }

    /// Waits until nobody else has the lock, which devices and some network file systems do not know.
    fn lock(&self) -> io::Result<Metadata> {
        let interrupted = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
        while self.is_plain && self.file.lock().is_err_and(|error| interrupted(&error)) {}
        self.file.metadata().inspect_err(|_| self.unlock())
    }

    /// By hand: to close the file is not enough, a process that was forked may have it open, too.
    fn unlock(&self) {
        let _ = self.file.unlock();
    }

    fn n_bytes(&self, metadata: &Metadata) -> u64 {
        if self.is_plain {
            metadata.len()
        } else {
            self.n_written
        }
    }
}

impl Turn<'_> {
    /// True if nothing is in the file: it needs its head first.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_bytes == 0
    }

    pub(crate) fn path(&self) -> &Path {
        &self.log.path
    }

    pub(crate) fn file_id(&self) -> FileId {
        self.id
    }

    /// Adds the bytes, all or none.
    pub(crate) fn append(self, bytes: &[u8]) -> Result<(), SinkError> {
        files::append(&self.log.open.file, self.n_bytes, bytes)
            .map_err(|source| io_error(&self.log.path, source))?;
        self.log.open.n_written += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.log.open.unlock();
    }
}

fn numbered(path: &Path, number: usize, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}{suffix}"));
    PathBuf::from(name)
}

/// Moves files that were put aside up, until the first place is free; the last one goes if all are taken.
fn make_place(path: &Path, n_backups: usize) -> io::Result<()> {
    const SUFFIXES: [&str; 2] = ["", ".zst"];
    let is_free = |number: &usize| {
        SUFFIXES
            .iter()
            .all(|s| !numbered(path, *number, s).exists())
    };
    let free = (1..=n_backups).find(is_free).unwrap_or(n_backups);
    for suffix in SUFFIXES {
        remove(&numbered(path, free, suffix))?;
        for number in (1..free).rev() {
            let from = numbered(path, number, suffix);
            if from.exists() {
                fs::rename(from, numbered(path, number + 1, suffix))?;
            }
        }
    }
    Ok(())
}

/// Compresses a file that was put aside, if it is still that one: then nobody moves it, who would need the lock
/// of the file that took its place.
fn compress(aside: &Path, id: FileId) -> io::Result<()> {
    let from = match File::open(aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if FileId::of(&from.metadata()?) != id {
        return Ok(());
    }
    let mut name = aside.as_os_str().to_owned();
    name.push(".zst");
    let packed = PathBuf::from(name);
    let mut options = OpenOptions::new();
    let copied = private(options.write(true).create(true).truncate(true))
        .open(&packed)
        .and_then(|to| zstd::stream::copy_encode(from, to, 0));
    if copied.is_err() {
        let _ = remove(&packed);
        return copied;
    }
    fs::remove_file(aside)
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
