//! Entries on disk before they are queued, so that a killed process loses none.
//!
//! A journal is a few segments, files of JSON lines beside the first sink. A segment goes when
//! everything in it was handed to the sinks. What a process leaves behind when it is killed is
//! written by the next one that opens the same journal; an entry that was committed in the very
//! last moment may then be there twice.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    Entry, SinkError,
    files::{self, io_error, private},
    json_line,
    lock::Mutex,
};

/// A new segment begins at that size.
const SEGMENT_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Journal {
    /// Segments are called `<prefix>.<process>-<number>`.
    prefix: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Arc<Segment>,
    n_bytes: u64,
    line: Vec<u8>,
}

/// A file that is deleted when nobody needs it any more.
#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    /// Locked: whose process is gone is free for others.
    file: File,
}

impl Segment {
    /// Locks the file; `None` if another process has it, or had it and deleted it: one that just starts takes a
    /// new segment that is not locked yet for one left behind.
    fn take(path: PathBuf, file: File) -> io::Result<Option<Segment>> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let is_there = files::is_at(&file.metadata()?, &path)?;
        Ok(is_there.then(|| Segment { path, file }))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Journal {
    pub(crate) fn open(prefix: PathBuf) -> Result<Journal, SinkError> {
        let current = segment(&prefix).map_err(|source| io_error(&prefix, source))?;
        Ok(Journal {
            prefix,
            state: Mutex::new(State {
                current: Arc::new(current),
                n_bytes: 0,
                line: Vec::new(),
            }),
        })
    }

    /// Keeps the entry. The segment lives as long as the answer.
    pub(crate) fn write(&self, entry: &Entry) -> Result<Arc<Segment>, SinkError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.n_bytes >= SEGMENT_BYTES {
            self.renew(state)
                .map_err(|source| io_error(&self.prefix, source))?;
        }
        state.line.clear();
        json_line::write(&mut state.line, entry);
        state.line.push(b'\n');
        files::append(&state.current.file, state.n_bytes, &state.line)
            .map_err(|source| io_error(&state.current.path, source))?;
        state.n_bytes += state.line.len() as u64;
        Ok(Arc::clone(&state.current))
    }

    /// Forgets what is written, if that is everything.
    pub(crate) fn trim(&self) {
        let mut state = self.state.lock();
        if Arc::strong_count(&state.current) == 1 && state.current.file.set_len(0).is_ok() {
            state.n_bytes = 0;
        }
    }

    /// Leaves nothing behind, if everything is written.
    pub(crate) fn end(&self) {
        let state = self.state.lock();
        if Arc::strong_count(&state.current) == 1 {
            let _ = fs::remove_file(&state.current.path);
        }
    }

    /// What killed processes left behind; each file goes when it is dropped.
    pub(crate) fn leftovers(&self) -> Vec<(Segment, Vec<Entry>)> {
        leftovers(&self.prefix)
    }

    fn renew(&self, state: &mut State) -> io::Result<()> {
        if Arc::strong_count(&state.current) == 1 {
            state.current.file.set_len(0)?;
        } else {
            state.current = Arc::new(segment(&self.prefix)?);
        }
        state.n_bytes = 0;
        Ok(())
    }
}

fn leftovers(prefix: &Path) -> Vec<(Segment, Vec<Entry>)> {
    let folder = match prefix.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Some(name) = prefix.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let Ok(files) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in files.filter_map(|file| Some(file.ok()?.path())) {
        let ours = path
            .file_name()
            .and_then(|file| file.to_str())
            .and_then(|file| file.strip_prefix(name)?.strip_prefix('.'))
            .is_some_and(|rest| {
                rest.bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'-')
            });
        if !ours {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).append(true).open(&path) else {
            continue;
        };
        let Ok(Some(segment)) = Segment::take(path, file) else {
            continue;
        };
        let bytes = fs::read(&segment.path).unwrap_or_default();
        // The last line may be torn.
        let entries = bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .map(Entry::from_json)
            .collect();
        found.push((segment, entries));
    }
    found
}

fn segment(prefix: &Path) -> io::Result<Segment> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNTER.fetch_add(1, Relaxed);
        let mut name = OsString::from(prefix);
        name.push(format!(".{}-{number}", std::process::id()));
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        let created = private(options.create_new(true).append(true)).open(&path);
        match created {
            Ok(file) => {
                if let Some(segment) = Segment::take(path, file)? {
                    return Ok(segment);
                }
            }
            // Left behind by a process that had the same id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicBool, thread};

    use super::*;

    #[test]
    fn a_segment_that_is_being_made_is_not_taken_for_one_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("journal");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            // As another process that starts with the same journal, all the time.
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    drop(leftovers(&prefix));
                }
            });
            for _ in 0..2_000 {
                let segment = segment(&prefix).unwrap();
                let is_there = files::is_at(&segment.file.metadata().unwrap(), &segment.path);
                if !is_there.unwrap() {
                    is_over.store(true, Relaxed);
                    panic!("{} is gone", segment.path.display());
                }
            }
            is_over.store(true, Relaxed);
        });
    }
}
