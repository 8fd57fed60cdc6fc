//! Writing files so that they appear whole or not at all: written aside under a hidden name in the
//! same file system, flushed to the disk, then renamed.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::SystemTime,
};

use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempPath};

use crate::{Digest, Error, layout::Layout, lock};

/// A blob on its way into the store. Dropping it leaves nothing behind.
pub struct BlobWriter {
    layout: Layout,
    file: NamedTempFile,
    hasher: Sha256,
    size_bytes: u64,
}

impl BlobWriter {
    pub(crate) fn new(layout: &Layout) -> Result<BlobWriter, Error> {
        Ok(BlobWriter {
            layout: layout.clone(),
            file: aside_in_use(layout)?,
            hasher: Sha256::new(),
            size_bytes: 0,
        })
    }

    /// Adds bytes at the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file
            .as_file_mut()
            .write_all(bytes)
            .map_err(|error| self.layout.error("write", Path::new("blobs"), error))?;
        self.hasher.update(bytes);
        self.size_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns the number of bytes written.
    pub fn size(&self) -> u64 {
        self.size_bytes
    }

    /// Puts the blob in its place and returns its digest and size. With another digest than
    /// `expected` nothing is stored.
    pub fn commit(self, expected: Option<&Digest>) -> Result<(Digest, u64), Error> {
        let actual = Digest::of_hasher(self.hasher);
        if let Some(&expected) = expected.filter(|expected| **expected != actual) {
            return Err(Error::DigestMismatch { expected, actual });
        }
        let path = self.layout.blob(&actual);
        flush(&self.layout, &self.file, &path)?;
        let _guard = lock::shared(&self.layout)?;
        put_in_place(&self.layout, self.file, &path)?;
        Ok((actual, self.size_bytes))
    }
}

/// A file that others write and that then becomes a blob. Dropping it leaves nothing behind.
pub struct BlobFile {
    layout: Layout,
    path: TempPath,
    /// Locked as long as it is open.
    _in_use: File,
}

impl BlobFile {
    pub(crate) fn new(layout: &Layout) -> Result<BlobFile, Error> {
        let (in_use, path) = aside_in_use(layout)?.into_parts();
        Ok(BlobFile {
            layout: layout.clone(),
            path,
            _in_use: in_use,
        })
    }

    /// Returns where to write. The file is there, and empty.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file once, puts it in its place and returns its digest and size.
    pub fn commit(self) -> Result<(Digest, u64), Error> {
        let layout = &self.layout;
        let failed = |action| move |error| layout.error(action, Path::new("blobs"), error);
        let mut file = File::open(&self.path).map_err(failed("open a file in"))?;
        let (digest, size) = Digest::of_reader(&mut file).map_err(failed("read a file in"))?;
        file.sync_all().map_err(failed("flush a file in"))?;
        let path = layout.blob(&digest);
        let _guard = lock::shared(layout)?;
        self.path
            .persist(&path)
            .map_err(|error| layout.error("write", &path, error.error))?;
        sync_folder(layout, &layout.blobs())?;
        Ok((digest, size))
    }
}

/// Makes `file` a blob without copying it: both are then names of the same bytes. Refused unless
/// the file belongs to the owner of the store, who could not read it otherwise.
pub(crate) fn link(layout: &Layout, file: &Path, digest: &Digest) -> Result<(), Error> {
    let failed = |error: io::Error| layout.error("link a file into", Path::new("blobs"), error);
    let file = file.canonicalize().map_err(failed)?;
    let metadata = fs::metadata(&file).map_err(failed)?;
    let owner = fs::metadata(layout.blobs()).map_err(failed)?.uid();
    if !metadata.is_file() || metadata.uid() != owner {
        return Err(failed(io::ErrorKind::PermissionDenied.into()));
    }
    let path = layout.blob(digest);
    let _guard = lock::shared(layout)?;
    match fs::hard_link(&file, &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // An old file must not be taken for one that nobody needs.
    touch(&path);
    sync_folder(layout, &layout.blobs())
}

/// Copies all of `reader` into `writer`.
pub(crate) fn copy(reader: &mut dyn Read, writer: &mut BlobWriter) -> Result<(), Error> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n_bytes) => writer.write(&buffer[..n_bytes])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Input(error)),
        }
    }
}

/// Replaces the small file `path` by `bytes`; `folder` is where the new one is written first and
/// must be in the same file system. Folders on the way to `path` below `folder` are made.
pub(crate) fn write_whole(
    layout: &Layout,
    folder: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<(), Error> {
    make_folders(layout, folder, path)?;
    let file = written_aside(layout, folder, path, bytes)?;
    flush(layout, &file, path)?;
    put_in_place(layout, file, path)
}

/// Like [`write_whole`], but a power failure may bring the old file back: for what is no loss.
pub(crate) fn replace(
    layout: &Layout,
    folder: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<(), Error> {
    let file = written_aside(layout, folder, path, bytes)?;
    file.persist(path)
        .map_err(|error| layout.error("write", path, error.error))?;
    Ok(())
}

fn written_aside(
    layout: &Layout,
    folder: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<NamedTempFile, Error> {
    let mut file = aside(layout, folder)?;
    file.as_file_mut()
        .write_all(bytes)
        .map_err(|error| layout.error("write", path, error))?;
    Ok(file)
}

/// Flushes a folder, so that names made or removed in it survive a power failure.
pub(crate) fn sync_folder(layout: &Layout, folder: &Path) -> Result<(), Error> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot flush folders.
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
            ) =>
        {
            Err(layout.error("flush", folder, error))
        }
        _ => Ok(()),
    }
}

/// Sets the time of a file to now; a prune spares young files. Best effort: the owner only can.
pub(crate) fn touch(path: &Path) {
    if let Err(error) = File::open(path).and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "cannot renew the time of a blob");
    }
}

/// Makes a file for a blob that is locked from the moment it is seen by those who remove leftovers:
/// when this process dies, the system unlocks it.
fn aside_in_use(layout: &Layout) -> Result<NamedTempFile, Error> {
    let _guard = lock::shared(layout)?;
    let file = aside(layout, &layout.blobs())?;
    match file.as_file().try_lock() {
        Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
            Err(layout.error("lock a file in", &layout.blobs(), error))
        }
        _ => Ok(file),
    }
}

/// Tells whether a file written aside is still being written; `None` where the file system has no
/// locks.
pub(crate) fn is_in_use(path: &Path) -> Option<bool> {
    match File::open(path).ok()?.try_lock() {
        Ok(()) => Some(false),
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}

fn aside(layout: &Layout, folder: &Path) -> Result<NamedTempFile, Error> {
    tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        // The mask of the user applies; a store may be shared.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        // The error of the library shows the whole path; its kind says enough.
        .map_err(|error| layout.error("create a file in", folder, error.kind().into()))
}

fn flush(layout: &Layout, file: &NamedTempFile, path: &Path) -> Result<(), Error> {
    file.as_file()
        .sync_all()
        .map_err(|error| layout.error("flush", path, error))
}

fn put_in_place(layout: &Layout, file: NamedTempFile, path: &Path) -> Result<(), Error> {
    file.persist(path)
        .map_err(|error| layout.error("write", path, error.error))?;
    path.parent()
        .map_or(Ok(()), |folder| sync_folder(layout, folder))
}

/// Makes the folders between `top` and `path`, each flushed into its parent.
fn make_folders(layout: &Layout, top: &Path, path: &Path) -> Result<(), Error> {
    let below: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|ancestor| *ancestor != top && ancestor.starts_with(top))
        .collect();
    let mut parent = top;
    for folder in below.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => sync_folder(layout, parent)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(layout.error("create", folder, error)),
        }
        parent = folder;
    }
    Ok(())
}

/// Hidden, so that no reader takes it for a blob or a manifest.
pub(crate) const TEMPORARY_PREFIX: &str = ".llmsrv-new-";

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        fs::create_dir(layout.blobs()).unwrap();
        (folder, layout)
    }

    fn n_files(layout: &Layout) -> usize {
        fs::read_dir(layout.blobs()).unwrap().count()
    }

    #[test]
    fn a_blob_appears_whole() {
        let (_folder, layout) = layout();
        let mut writer = BlobWriter::new(&layout).unwrap();
        writer.write(b"hello ").unwrap();
        writer.write(b"world").unwrap();
        let digest = Digest::of(b"hello world");
        assert!(layout.find_blob(&digest).is_none());
        assert_eq!(writer.commit(Some(&digest)).unwrap(), (digest, 11));
        assert_eq!(fs::read(layout.blob(&digest)).unwrap(), b"hello world");
        assert_eq!(n_files(&layout), 1);
    }

    #[test]
    fn the_wrong_digest_and_a_broken_input_leave_nothing() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            }
        }
        let (_folder, layout) = layout();
        let mut writer = BlobWriter::new(&layout).unwrap();
        copy(&mut &b"hello"[..], &mut writer).unwrap();
        let error = writer.commit(Some(&Digest::of(b""))).unwrap_err();
        assert!(
            matches!(error, Error::DigestMismatch { actual, .. } if actual == Digest::of(b"hello"))
        );
        let mut writer = BlobWriter::new(&layout).unwrap();
        let mut input = b"some".chain(Broken);
        assert!(matches!(
            copy(&mut input, &mut writer),
            Err(Error::Input(_))
        ));
        drop(writer);
        assert_eq!(n_files(&layout), 0);
    }

    #[test]
    fn folders_are_made_on_the_way() {
        let (folder, layout) = layout();
        let path = folder.path().join("a/b/c");
        write_whole(&layout, folder.path(), &path, b"1").unwrap();
        write_whole(&layout, folder.path(), &path, b"2").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"2");
        let blocked = folder.path().join("a/b/c/d");
        assert!(matches!(
            write_whole(&layout, folder.path(), &blocked, b"3"),
            Err(Error::Io { .. })
        ));
    }
}
