//! The lock between processes (and threads) that share a store.
//!
//! Whoever adds or reads files that must not vanish meanwhile holds it shared; whoever removes
//! files or changes manifests holds it alone. The system frees it when a process dies. It is held
//! for short work only, never while a blob is being received. A thread takes it once: taking it
//! again while holding it would wait for itself.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
};

use crate::{Error, layout::Layout};

/// Held until dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Guard {
    /// Closing the file unlocks it. `None` where there is nothing to lock.
    _file: Option<File>,
}

/// Waits until nobody changes the store. A store this process may not write has no usable lock
/// file, and one that nobody has written to has none yet: it is read without.
pub(crate) fn shared(layout: &Layout) -> Result<Guard, Error> {
    match open(layout, false) {
        Ok(file) => wait(layout, file, File::try_lock_shared, File::lock_shared),
        Err(error) if is_read_only(&error) => Ok(Guard { _file: None }),
        Err(error) => Err(layout.error("open", &layout.lock(), error)),
    }
}

/// Waits until nobody else uses the store.
pub(crate) fn exclusive(layout: &Layout) -> Result<Guard, Error> {
    let file = open(layout, true).map_err(|error| layout.error("open", &layout.lock(), error))?;
    wait(layout, file, File::try_lock, File::lock)
}

fn open(layout: &Layout, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .open(layout.lock())
}

fn wait(
    layout: &Layout,
    file: File,
    attempt: fn(&File) -> Result<(), TryLockError>,
    block: fn(&File) -> io::Result<()>,
) -> Result<Guard, Error> {
    let locked = match attempt(&file) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            tracing::debug!("waiting for another user of the model store");
            block(&file)
        }
        Err(TryLockError::Error(error)) => Err(error),
    };
    match locked {
        // Some network file systems have no locks; atomic renames still keep files whole there.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => {
            Err(layout.error("lock", &layout.lock(), error))
        }
        _ => Ok(Guard { _file: Some(file) }),
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotFound
    )
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        // Before the first writer there is no lock file, and nothing to wait for.
        drop(exclusive(&layout).unwrap());
        let first = shared(&layout).unwrap();
        let second = shared(&layout).unwrap();
        let (sender, receiver) = mpsc::channel();
        let writer = thread::spawn({
            let layout = layout.clone();
            move || {
                let guard = exclusive(&layout).unwrap();
                sender.send(()).unwrap();
                drop(guard);
            }
        });
        drop(first);
        assert!(
            receiver.recv_timeout(Duration::from_millis(50)).is_err(),
            "a reader is left"
        );
        drop(second);
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        writer.join().unwrap();
    }

    #[test]
    fn an_absent_store_can_be_read_but_not_changed() {
        let layout = Layout::new(std::path::Path::new("/nonexistent/store"));
        assert!(shared(&layout).is_ok());
        assert!(matches!(
            exclusive(&layout),
            Err(Error::Io { action: "open", .. })
        ));
    }
}
