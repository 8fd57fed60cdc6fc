//! Locks of our copy of SQLite that hold against another one in the process.
//!
//! A Python program that logs to a database and reads it with the module `sqlite3` has two copies of SQLite, which know
//! nothing of each other. SQLite locks with `F_SETLK`. These locks belong to the process: they do not hold between the two
//! copies, and closing a file drops all locks that the process has on it. A checkpoint of ours would see no reader and
//! start the write-ahead log anew below one, which then finds "database disk image is malformed". Locks of an open file
//! description (`F_OFD_SETLK`) hold against both, and are dropped with that description alone.
//!
//! They take the place of the others on the WAL index (`-shm`), which SQLite opens once for all connections. A database is
//! opened once for each connection, and SQLite drops its lock through any of them, so those locks stay as they are:
//! in WAL mode they only keep the log from being deleted, and that [`super::open`] does with a lock of its own. See
//! <https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_>.
#![expect(
    unsafe_code,
    reason = "replaces a system call of SQLite; what each step needs is said beside it"
)]

use std::{
    ffi::{c_int, c_void},
    io, mem,
    ops::RangeInclusive,
    ptr,
};

use nix::libc::{self, EINVAL, F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_SETLK, flock, off_t};
use rusqlite::ffi;

/// The bytes that are locked in the WAL index: <https://sqlite.org/walformat.html#wal_locks>, and one more that says that
/// the index is in use.
const OF_INDEX: RangeInclusive<off_t> = 120..=128;

/// Makes this copy of SQLite lock the index of a write-ahead log so that the locks hold against another copy in the process,
/// as a Python program has one. It is for programs with two copies, and on Linux alone; to be called before any database is
/// open in this copy, because locks that were taken before would not be dropped.
pub fn lock_wal_index_by_open_file() {
    // SAFETY: it initialises SQLite, and a name that is null finds the default VFS.
    let vfs = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    // SAFETY: a VFS is null or lives as long as the process.
    let Some(set) = (unsafe { vfs.as_ref() }).and_then(|vfs| vfs.xSetSystemCall) else {
        return;
    };
    // SAFETY: SQLite calls it with the arguments of `fcntl`, always three. Those after the second are variadic in C, which
    // on Linux are passed in the same registers as others.
    let call = unsafe {
        mem::transmute::<
            unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int,
            unsafe extern "C" fn(),
        >(fcntl)
    };
    // SAFETY: both pointers are of that VFS, and the name ends in a zero.
    let code = unsafe { set(vfs, c"fcntl".as_ptr(), Some(call)) };
    debug_assert_eq!(code, ffi::SQLITE_OK);
}

/// `fcntl` for SQLite.
///
/// # Safety
///
/// As for `fcntl`: where the command is one of locks, the argument points to a `flock`.
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let of_open_file = match command {
        F_SETLK => Some(F_OFD_SETLK),
        F_GETLK => Some(F_OFD_GETLK),
        _ => None,
    };
    if let Some(of_open_file) = of_open_file {
        // SAFETY: the caller vouches for it.
        let lock = unsafe { &mut *argument.cast::<flock>() };
        if OF_INDEX.contains(&lock.l_start) {
            // Such locks have no owner, and SQLite does not fill it in.
            lock.l_pid = 0;
            // SAFETY: these commands take a `flock`, too.
            let result = unsafe { libc::fcntl(fd, of_open_file, ptr::from_mut(lock)) };
            // Some file systems and sandboxes have no such locks.
            if result != -1 || io::Error::last_os_error().raw_os_error() != Some(EINVAL) {
                return result;
            }
        }
    }
    // SAFETY: the caller vouches for it.
    unsafe { libc::fcntl(fd, command, argument) }
}
