//! Blobs on their way from a registry, kept when the process dies and continued part by part.
//!
//! ```text
//! blobs/sha256-<hex>-partial       the bytes, each already at its place
//! blobs/sha256-<hex>-partial-<N>   JSON: where part N begins, how long it is, how much is there
//! ```
//!
//! The state of a part never promises more than what was written, so a killed process loses at most
//! what came after the last save. Whether the bytes are the right ones is for the digest to say: it
//! is computed while they come, and nothing becomes a blob without it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Digest, Error, Store, blobs,
    layout::{Layout, ignore_absent},
    lock,
    manifest::read_limited,
};

/// A blob of known size that is being received. Nobody else writes it meanwhile, in this process
/// or another. Dropping it keeps what has come.
#[derive(Debug)]
pub struct PartialBlob {
    layout: Layout,
    digest: Digest,
    size_bytes: u64,
    /// Locked as long as it is open.
    file: File,
    parts: Vec<Mutex<Progress>>,
    hash: Mutex<Hash>,
}

/// One part of a partial blob, in the words of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Part {
    /// Number of the part, from 0.
    pub n: usize,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// How much of it is there, in bytes.
    pub completed: u64,
}

impl Part {
    /// Returns where the missing bytes begin.
    pub fn position(&self) -> u64 {
        self.offset + self.completed
    }

    /// Returns where the part ends (exclusive).
    pub fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Tells whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.completed == self.size
    }
}

#[derive(Debug)]
struct Progress {
    part: Part,
    saved: u64,
    saved_at: Instant,
}

struct Hash {
    hasher: Sha256,
    /// Bytes from the beginning that are hashed.
    done: u64,
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({} bytes)", self.done)
    }
}

impl Store {
    /// Begins or continues the blob `digest` of `size_bytes`; parts of a new one have `part_bytes`.
    /// `None` while somebody else receives it.
    pub fn partial_blob(
        &self,
        digest: &Digest,
        size_bytes: u64,
        part_bytes: u64,
    ) -> Result<Option<PartialBlob>, Error> {
        PartialBlob::open(&self.primary, digest, size_bytes, part_bytes)
    }

    /// Returns how many bytes of a blob an interrupted transfer has left.
    pub fn partial_bytes(&self, digest: &Digest, size_bytes: u64) -> u64 {
        let length = fs::metadata(self.primary.partial(digest)).map_or(0, |data| data.len());
        if length != size_bytes {
            return 0;
        }
        let parts = read_parts(&self.primary, digest, size_bytes).unwrap_or_default();
        parts.iter().map(|part| part.completed).sum()
    }

    /// Returns how many bytes the file system of the store has left for this user.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        let blobs = self.primary.blobs();
        let stat = rustix::fs::statvfs(&blobs)
            .map_err(|error| self.primary.error("look at", &blobs, error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl PartialBlob {
    fn open(
        layout: &Layout,
        digest: &Digest,
        size_bytes: u64,
        part_bytes: u64,
    ) -> Result<Option<PartialBlob>, Error> {
        let path = layout.partial(digest);
        // Whoever removes what interrupted transfers have left sees this one whole, or its lock.
        let _guard = lock::shared(layout)?;
        let Some(file) = open_locked(layout, &path)? else {
            return Ok(None);
        };
        let length = file
            .metadata()
            .map_err(|error| layout.error("read", &path, error))?
            .len();
        let known = read_parts(layout, digest, size_bytes).filter(|_| length == size_bytes);
        let parts = if let Some(parts) = known {
            parts
        } else {
            remove_parts(layout, digest)?;
            file.set_len(0)
                .and_then(|()| file.set_len(size_bytes))
                .map_err(|error| layout.error("write", &path, error))?;
            let parts = plan(size_bytes, part_bytes);
            for part in &parts {
                write_part(layout, digest, part)?;
            }
            parts
        };
        let progress = |part: Part| {
            Mutex::new(Progress {
                part,
                saved: part.completed,
                saved_at: Instant::now(),
            })
        };
        Ok(Some(PartialBlob {
            layout: layout.clone(),
            digest: *digest,
            size_bytes,
            file,
            parts: parts.into_iter().map(progress).collect(),
            hash: Mutex::new(Hash {
                hasher: Sha256::new(),
                done: 0,
            }),
        }))
    }

    /// Returns all parts as they are now.
    pub fn parts(&self) -> Vec<Part> {
        self.parts.iter().map(|part| locked(part).part).collect()
    }

    /// Returns part `n` as it is now.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn part(&self, n: usize) -> Part {
        locked(&self.parts[n]).part
    }

    /// Returns how many bytes are there.
    pub fn completed(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| locked(part).part.completed)
            .sum()
    }

    /// Adds bytes to part `n`; what is beyond its end is not taken. Returns how many were taken.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn write(&self, n: usize, bytes: &[u8]) -> Result<u64, Error> {
        let mut progress = locked(&self.parts[n]);
        let missing = progress.part.size - progress.part.completed;
        let bytes = &bytes[..bytes
            .len()
            .min(usize::try_from(missing).unwrap_or(usize::MAX))];
        self.file
            .write_all_at(bytes, progress.part.position())
            .map_err(|error| self.error("write", error))?;
        progress.part.completed += bytes.len() as u64;
        if progress.part.is_complete() || progress.saved_at.elapsed() > SAVE_EVERY {
            self.save(&mut progress)?;
        }
        Ok(bytes.len() as u64)
    }

    /// Hashes up to `max_bytes` of what has come since; returns whether there is more to hash.
    pub fn hash_some(&self, max_bytes: u64) -> Result<bool, Error> {
        let mut hash = locked(&self.hash);
        let contiguous = self.contiguous();
        let end = contiguous.min(hash.done.saturating_add(max_bytes));
        let mut buffer = vec![0; 1 << 20];
        while hash.done < end {
            let wanted = (end - hash.done).min(buffer.len() as u64) as usize;
            let chunk = &mut buffer[..wanted];
            self.file
                .read_exact_at(chunk, hash.done)
                .map_err(|error| self.error("read", error))?;
            hash.hasher.update(&chunk);
            hash.done += wanted as u64;
        }
        Ok(hash.done < contiguous)
    }

    /// Makes it a blob, once all bytes are there. Bytes with another digest are thrown away.
    pub fn commit(&self) -> Result<(), Error> {
        while self.hash_some(u64::MAX)? {}
        let actual = {
            let hash = locked(&self.hash);
            if hash.done != self.size_bytes {
                return Err(Error::MissingBlob {
                    digest: self.digest,
                });
            }
            Digest::of_hasher(hash.hasher.clone())
        };
        if actual != self.digest {
            self.discard()?;
            return Err(Error::DigestMismatch {
                expected: self.digest,
                actual,
            });
        }
        self.file
            .sync_all()
            .map_err(|error| self.error("flush", error))?;
        let _guard = lock::shared(&self.layout)?;
        fs::rename(self.path(), self.layout.blob(&self.digest))
            .map_err(|error| self.error("rename", error))?;
        blobs::touch(&self.layout.blob(&self.digest));
        remove_parts(&self.layout, &self.digest)?;
        blobs::sync_folder(&self.layout, &self.layout.blobs())
    }

    /// Throws away what has come.
    pub fn discard(&self) -> Result<(), Error> {
        for part in &self.parts {
            let mut progress = locked(part);
            progress.part.completed = 0;
            progress.saved = 0;
        }
        remove_parts(&self.layout, &self.digest)?;
        ignore_absent(fs::remove_file(self.path())).map_err(|error| self.error("remove", error))
    }

    /// Returns the bytes from the beginning up to the first that is missing.
    fn contiguous(&self) -> u64 {
        let mut end = 0;
        for part in &self.parts {
            let part = locked(part).part;
            end = part.position();
            if !part.is_complete() {
                break;
            }
        }
        end
    }

    fn save(&self, progress: &mut Progress) -> Result<(), Error> {
        write_part(&self.layout, &self.digest, &progress.part)?;
        progress.saved = progress.part.completed;
        progress.saved_at = Instant::now();
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.layout.partial(&self.digest)
    }

    fn error(&self, action: &'static str, error: io::Error) -> Error {
        self.layout.error(action, &self.path(), error)
    }
}

impl Drop for PartialBlob {
    fn drop(&mut self) {
        for part in &self.parts {
            let mut progress = locked(part);
            if progress.saved != progress.part.completed
                && let Err(error) = self.save(&mut progress)
            {
                tracing::debug!(%error, "the state of an interrupted transfer is not saved");
            }
        }
    }
}

/// Opens the file of the bytes and locks it; `None` while another has it.
fn open_locked(layout: &Layout, path: &Path) -> Result<Option<File>, Error> {
    let error = |action, error| layout.error(action, path, error);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|e| error("open", e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        // Some network file systems have no locks.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
        Err(TryLockError::Error(e)) => return Err(error("lock", e)),
    }
    // Who had the lock before may have renamed the file or removed it.
    let ours = file.metadata().map_err(|e| error("read", e))?;
    let same = fs::metadata(path)
        .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
    Ok(same.then_some(file))
}

/// Divides a blob into parts.
fn plan(size_bytes: u64, part_bytes: u64) -> Vec<Part> {
    // More parts than this would be more files than a folder should hold.
    let part_bytes = part_bytes.max(size_bytes / MAX_PARTS as u64 + 1);
    let starts = (0..size_bytes).step_by(usize::try_from(part_bytes).unwrap_or(usize::MAX));
    starts
        .enumerate()
        .map(|(n, offset)| Part {
            n,
            offset,
            size: part_bytes.min(size_bytes - offset),
            completed: 0,
        })
        .collect()
}

/// Reads the states of all parts; nothing if they do not describe a blob of this size.
fn read_parts(layout: &Layout, digest: &Digest, size_bytes: u64) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut end = 0_u64;
    while end < size_bytes && parts.len() <= MAX_PARTS {
        let bytes = read_limited(&part_path(layout, digest, parts.len()), MAX_PART_BYTES).ok()?;
        let part: Part = serde_json::from_slice(&bytes).ok()?;
        let sound = part.n == parts.len()
            && part.offset == end
            && part.size > 0
            && part.completed <= part.size;
        end = end.checked_add(part.size).filter(|_| sound)?;
        parts.push(part);
    }
    (end == size_bytes).then_some(parts)
}

/// Replaces the state of a part. Not flushed: after a power failure the digest decides.
fn write_part(layout: &Layout, digest: &Digest, part: &Part) -> Result<(), Error> {
    let path = part_path(layout, digest, part.n);
    let json = serde_json::to_vec(part).expect("a struct of numbers is always JSON");
    blobs::replace(layout, &layout.blobs(), &path, &json)
}

fn remove_parts(layout: &Layout, digest: &Digest) -> Result<(), Error> {
    let prefix = format!("{}-partial-", digest.file_name());
    let folder = layout.blobs();
    let entries = fs::read_dir(&folder).map_err(|error| layout.error("read", &folder, error))?;
    for entry in entries.flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes())
        {
            ignore_absent(fs::remove_file(entry.path()))
                .map_err(|error| layout.error("remove", &entry.path(), error))?;
        }
    }
    Ok(())
}

fn part_path(layout: &Layout, digest: &Digest, n: usize) -> PathBuf {
    layout
        .blobs()
        .join(format!("{}-partial-{n}", digest.file_name()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// How often the state of a part is saved.
const SAVE_EVERY: Duration = Duration::from_millis(500);
const MAX_PARTS: usize = 4096;
const MAX_PART_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        fs::create_dir(layout.blobs()).unwrap();
        (folder, layout)
    }

    fn open(layout: &Layout, digest: &Digest, size: u64) -> PartialBlob {
        PartialBlob::open(layout, digest, size, 4).unwrap().unwrap()
    }

    #[test]
    fn parts_come_in_any_order_and_survive_an_interruption() {
        let (_folder, layout) = layout();
        let digest = Digest::of(b"hello world");
        let partial = open(&layout, &digest, 11);
        assert_eq!(partial.parts().len(), 3);
        assert_eq!(partial.write(2, b"rld and more").unwrap(), 3);
        assert_eq!(partial.write(0, b"he").unwrap(), 2);
        assert!(!partial.hash_some(u64::MAX).unwrap());
        assert!(
            PartialBlob::open(&layout, &digest, 11, 4)
                .unwrap()
                .is_none()
        );
        assert!(matches!(partial.commit(), Err(Error::MissingBlob { .. })));
        drop(partial);

        let partial = open(&layout, &digest, 11);
        assert_eq!(partial.completed(), 5);
        assert_eq!(partial.part(0).position(), 2);
        partial.write(1, b"o wo").unwrap();
        partial.write(0, b"ll").unwrap();
        partial.commit().unwrap();
        assert_eq!(fs::read(layout.blob(&digest)).unwrap(), b"hello world");
        assert_eq!(fs::read_dir(layout.blobs()).unwrap().count(), 1);
    }

    #[test]
    fn wrong_bytes_are_thrown_away() {
        let (_folder, layout) = layout();
        let digest = Digest::of(b"right");
        let partial = open(&layout, &digest, 5);
        partial.write(0, b"wron").unwrap();
        partial.write(1, b"g").unwrap();
        assert!(matches!(
            partial.commit(),
            Err(Error::DigestMismatch { .. })
        ));
        drop(partial);
        assert_eq!(fs::read_dir(layout.blobs()).unwrap().count(), 0);
    }

    #[test]
    fn states_that_make_no_sense_are_not_believed() {
        let (_folder, layout) = layout();
        let digest = Digest::of(b"x");
        for lie in [
            "",
            "{",
            r#"{"N":1,"Offset":0,"Size":8,"Completed":0}"#,
            r#"{"N":0,"Offset":0,"Size":8,"Completed":9}"#,
            r#"{"N":0,"Offset":0,"Size":18446744073709551615,"Completed":9}"#,
            r#"{"N":0,"Offset":0,"Size":0,"Completed":0}"#,
        ] {
            drop(open(&layout, &digest, 8));
            fs::write(part_path(&layout, &digest, 0), lie).unwrap();
            fs::write(part_path(&layout, &digest, 1), lie).unwrap();
            assert_eq!(open(&layout, &digest, 8).completed(), 0, "{lie}");
        }
        // One from another size, and one whose bytes are gone.
        let partial = open(&layout, &digest, 8);
        partial.write(0, b"abcd").unwrap();
        drop(partial);
        assert_eq!(open(&layout, &digest, 12).completed(), 0);
        let partial = open(&layout, &digest, 12);
        partial.write(0, b"abcd").unwrap();
        drop(partial);
        fs::remove_file(layout.partial(&digest)).unwrap();
        assert_eq!(open(&layout, &digest, 12).completed(), 0);
    }

    #[test]
    fn plans_cover_the_blob_with_a_bounded_number_of_parts() {
        for (size, part) in [(0, 4), (1, 4), (4, 4), (5, 4), (u64::MAX / 2, 1)] {
            let parts = plan(size, part);
            assert_eq!(parts.iter().map(|part| part.size).sum::<u64>(), size);
            assert!(parts.len() <= MAX_PARTS);
        }
    }
}
