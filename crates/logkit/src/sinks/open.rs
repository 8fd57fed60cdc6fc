//! Open databases, and what a fork makes of them.
//!
//! SQLite keeps the locks of each file once for the whole process. A forked process inherits that
//! memory but not the locks, so a database that was open at the fork must not be opened there: both
//! processes would believe to be alone, and one of them would delete the log of the other. Neither may
//! it be closed there. See <https://sqlite.org/howtocorrupt.html#_carrying_an_open_database_across_a_fork_>.

use std::{
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, ffi};

use crate::lock::Mutex;

/// A connection; whoever opens a database opens it here.
#[derive(Debug)]
pub(crate) struct Open {
    /// Taken when this is dropped.
    connection: Option<Connection>,
    path: PathBuf,
    born: forkguard::Guard,
    #[cfg(target_os = "linux")]
    claim: Option<claim::Claim>,
}

/// The databases that are open, and the processes that opened them.
static OPEN: Mutex<Vec<(PathBuf, forkguard::Guard)>> = Mutex::new(Vec::new());

impl Open {
    /// Opens a database, without waiting for others at first.
    pub(crate) fn new(path: &Path, flags: OpenFlags) -> rusqlite::Result<Open> {
        // Two names of one file are one file; one that is new is open nowhere.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // Who held this at a fork will never give it back.
        let Some(mut open) = OPEN.try_lock_for(TIMEOUT) else {
            return Err(inherited());
        };
        if open
            .iter()
            .any(|(path, born)| *path == real && born.clone().detected_fork())
        {
            return Err(inherited());
        }
        let connection = Connection::open_with_flags(path, flags)?;
        let real = path.canonicalize().unwrap_or(real);
        let born = forkguard::Guard::default();
        open.push((real.clone(), born.clone()));
        Ok(Open {
            connection: Some(connection),
            path: real,
            born,
            #[cfg(target_os = "linux")]
            claim: None,
        })
    }

    /// Keeps the log of the database, which is in WAL mode now, from being deleted by another copy of
    /// SQLite in this process; see [`claim`].
    pub(crate) fn claim(&mut self) {
        #[cfg(target_os = "linux")]
        {
            self.claim = claim::Claim::new(&self.path);
        }
    }
}

/// Opening a database takes less.
const TIMEOUT: Duration = Duration::from_secs(1);

fn inherited() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        ffi::Error::new(ffi::SQLITE_MISUSE),
        Some(
            "it was open when this process was forked; hold `Logger::before_fork` while forking"
                .to_owned(),
        ),
    )
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.born.clone().detected_fork() {
            // The process that opened it closes it.
            std::mem::forget(self.connection.take());
            return;
        }
        #[cfg(target_os = "linux")]
        if let Some(claim) = &self.claim {
            claim.give_up(); // or the log would stay, and no transaction be copied into the database
        }
        drop(self.connection.take());
        let mut open = OPEN.lock();
        if let Some(at) = open.iter().position(|(path, _)| *path == self.path) {
            open.swap_remove(at);
        }
    }
}

impl Deref for Open {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("it is there until this is dropped"),
        }
    }
}

impl DerefMut for Open {
    fn deref_mut(&mut self) -> &mut Connection {
        match &mut self.connection {
            Some(connection) => connection,
            None => unreachable!("it is there until this is dropped"),
        }
    }
}

/// Locks that other copies of SQLite in this process see.
///
/// The locks of SQLite belong to the process, and do not hold against itself; whoever closes a file
/// takes those of all others in the process away. A Python program that logs with this library and
/// reads the database with the module `sqlite3` has two copies of SQLite. When the other one closes the
/// database it believes to be the last, and deletes the log that this one writes; when it opens the
/// database again it believes to be the first, and cuts off the index of the log, which this one has
/// mapped: a fault that ends the program. A lock of an open file holds against both. They are those that
/// SQLite has on a database in WAL mode anyway: shared, on the same bytes. What they cannot do, keep a
/// checkpoint from restarting the log below a reader, is done by [`super::locks`] where there are two copies.
#[cfg(target_os = "linux")]
mod claim {
    use std::{
        fs::File,
        ops::Range,
        path::{Path, PathBuf},
    };

    use nix::{
        fcntl::{FcntlArg, fcntl},
        libc::{F_RDLCK, F_UNLCK, SEEK_SET, flock},
    };

    /// Files, and the bytes that are locked in them.
    #[derive(Debug)]
    pub(super) struct Claim(Vec<(File, Range<i64>)>);

    /// Where SQLite has its shared locks: <https://sqlite.org/fileformat2.html#the_lock_byte_page>
    const SHARED: Range<i64> = 0x4000_0002..0x4000_0200;
    /// The byte that says that somebody uses the index of the log, its "deadman switch":
    /// <https://sqlite.org/walformat.html#the_wal_index_file_format>
    const IN_USE: Range<i64> = 128..129;

    impl Claim {
        /// `None` if there is no file.
        pub(super) fn new(path: &Path) -> Option<Claim> {
            let mut index = path.as_os_str().to_owned();
            index.push("-shm");
            let mut files = vec![(File::open(path).ok()?, SHARED)];
            files.extend(
                File::open(PathBuf::from(index))
                    .ok()
                    .map(|file| (file, IN_USE)),
            );
            let claim = Claim(files);
            claim.lock(F_RDLCK);
            Some(claim)
        }

        /// The files stay open: to close them would take SQLite's own locks away.
        pub(super) fn give_up(&self) {
            self.lock(F_UNLCK);
        }

        fn lock(&self, kind: i32) {
            for (file, bytes) in &self.0 {
                let lock = flock {
                    l_type: kind as i16,
                    l_whence: SEEK_SET as i16,
                    l_start: bytes.start,
                    l_len: bytes.end - bytes.start,
                    l_pid: 0,
                };
                // Some network file systems have no such locks.
                let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&lock));
            }
        }
    }
}
