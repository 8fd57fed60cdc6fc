//! Removing what no manifest needs any more. Every function here expects the caller to hold the
//! lock of the store alone.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs,
    path::PathBuf,
    time::Duration,
};

use crate::{
    Digest, Error, Manifest,
    blobs::{TEMPORARY_PREFIX, is_in_use, sync_folder},
    layout::{Layout, ignore_absent, is_older_than, read_dir},
    lock::Guard,
    manifest::{MAX_BYTES, read_limited},
};

/// Removes those of `candidates` that no manifest names. Removes nothing if a manifest cannot be
/// read: nobody knows what it names.
pub(crate) fn remove_unreferenced(
    layout: &Layout,
    _alone: &Guard,
    candidates: impl IntoIterator<Item = Digest>,
) -> Result<(), Error> {
    let Some(kept) = references(layout) else {
        return Ok(());
    };
    for digest in candidates {
        let path = layout.blob(&digest);
        if !kept.contains(&digest) && path.exists() {
            ignore_absent(fs::remove_file(&path))
                .map_err(|error| layout.error("remove", &path, error))?;
        }
    }
    sync_folder(layout, &layout.blobs())
}

/// Removes what a killed process was writing for a blob, and, when they are older than [`GRACE`], blobs that no
/// manifest names, what interrupted transfers have left, and files left behind by other interrupted writes. While a
/// transfer is under way its finished blobs wait for a manifest, so then blobs stay. Returns the number of files removed.
pub(crate) fn prune(layout: &Layout, _alone: &Guard) -> Result<usize, Error> {
    let (mut blobs, mut killed) = (Vec::new(), Vec::new());
    let mut transfers: HashMap<Digest, Vec<PathBuf>> = HashMap::new();
    let mut strays = strays_in(layout, layout.root().to_owned())?;
    strays.extend(strays_in(layout, layout.manifests())?);
    let mut transfer_under_way = false;
    for path in files_in(layout, layout.blobs())? {
        match classify(path.file_name().unwrap_or_default()) {
            Class::Blob(digest) => blobs.push((digest, path)),
            Class::Written => match is_in_use(&path) {
                Some(false) => killed.push(path),
                Some(true) => transfer_under_way = true,
                None => {
                    transfer_under_way |= !is_older_than(&path, GRACE);
                    strays.push(path);
                }
            },
            Class::Partial(digest) => transfers.entry(digest).or_default().push(path),
            Class::Other => {}
        }
    }
    for (digest, files) in transfers {
        // Without the state of one part, all that has come is worth nothing, and that of a finished part is never
        // written again: the youngest file tells how old the transfer is.
        let is_old = files.iter().all(|path| is_older_than(path, GRACE));
        if is_old && is_in_use(&layout.partial(&digest)) != Some(true) {
            strays.extend(files);
        } else {
            transfer_under_way = true;
        }
    }
    let mut doomed = strays;
    if !transfer_under_way && let Some(kept) = references(layout) {
        doomed.extend(
            blobs
                .into_iter()
                .filter(|(digest, _)| !kept.contains(digest))
                .map(|(_, path)| path),
        );
    }
    doomed.retain(|path| is_older_than(path, GRACE));
    doomed.append(&mut killed);
    for path in &doomed {
        ignore_absent(fs::remove_file(path))
            .map_err(|error| layout.error("remove", path, error))?;
    }
    Ok(doomed.len())
}

/// Returns every digest that a manifest names; `None` if a manifest cannot be read.
fn references(layout: &Layout) -> Option<HashSet<Digest>> {
    let (files, mut errors) = layout.manifest_files();
    let mut digests = HashSet::new();
    for file in files {
        let manifest = read_limited(&file.path, MAX_BYTES)
            .map_err(|error| layout.error("read", &file.path, error))
            .and_then(|bytes| Manifest::parse(&bytes));
        match manifest {
            Ok(manifest) => digests.extend(manifest.blobs().map(|layer| layer.digest)),
            Err(error) => errors.push(error),
        }
    }
    for error in &errors {
        tracing::warn!(%error, "no blobs are removed because a manifest cannot be read");
    }
    errors.is_empty().then_some(digests)
}

fn strays_in(layout: &Layout, folder: PathBuf) -> Result<Vec<PathBuf>, Error> {
    let mut paths = files_in(layout, folder)?;
    paths.retain(|path| path.file_name().is_some_and(is_temporary));
    Ok(paths)
}

fn files_in(layout: &Layout, folder: PathBuf) -> Result<Vec<PathBuf>, Error> {
    let entries = read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| layout.error("read", &folder, error))?;
    Ok(entries
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| !path.is_dir())
        .collect())
}

/// What a file among the blobs is.
enum Class {
    Blob(Digest),
    /// Being written, or left behind when that was interrupted.
    Written,
    /// Of a transfer of this blob that was interrupted, or is under way.
    Partial(Digest),
    /// Not ours to remove.
    Other,
}

fn classify(name: &OsStr) -> Class {
    let Some(text) = name.to_str() else {
        return Class::Other;
    };
    if is_temporary(name) {
        return Class::Written;
    }
    let (digest, rest) = text.split_at_checked(DIGEST_LEN).unwrap_or((text, ""));
    match digest.parse() {
        Ok(digest) if rest.is_empty() => Class::Blob(digest),
        Ok(digest) if rest.starts_with("-partial") => Class::Partial(digest),
        _ => Class::Other,
    }
}

fn is_temporary(name: &OsStr) -> bool {
    name.as_encoded_bytes()
        .starts_with(TEMPORARY_PREFIX.as_bytes())
}

/// How long a file that nobody names is left alone: it may be part of a model that is being made.
const GRACE: Duration = Duration::from_hours(1);

/// Length of `sha256-<hex>`.
const DIGEST_LEN: usize = 7 + 64;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{Layer, LayerKind, lock};

    struct Fixture {
        _folder: tempfile::TempDir,
        layout: Layout,
    }

    impl Fixture {
        fn new() -> Fixture {
            let folder = tempfile::tempdir().unwrap();
            let layout = Layout::new(folder.path());
            fs::create_dir_all(layout.manifests().join("h/n/m")).unwrap();
            fs::create_dir(layout.blobs()).unwrap();
            Fixture {
                _folder: folder,
                layout,
            }
        }

        /// Writes a file of the given age in minutes.
        fn write(path: PathBuf, content: &[u8], age_minutes: u64) -> PathBuf {
            fs::write(&path, content).unwrap();
            let time = SystemTime::now() - Duration::from_mins(age_minutes);
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
            path
        }

        fn blob(&self, content: &[u8], age_minutes: u64) -> PathBuf {
            Fixture::write(self.layout.blob(&Digest::of(content)), content, age_minutes)
        }

        fn manifest(&self, tag: &str, content: &[u8]) {
            let layer = |kind| Layer::new(kind, Digest::of(content), content.len() as u64);
            let manifest = Manifest::new(layer(LayerKind::Config), vec![layer(LayerKind::Model)]);
            Fixture::write(
                self.layout.manifests().join("h/n/m").join(tag),
                &manifest.to_bytes(),
                0,
            );
        }

        fn prune(&self) -> usize {
            prune(&self.layout, &lock::exclusive(&self.layout).unwrap()).unwrap()
        }
    }

    #[test]
    fn only_old_files_that_nobody_names_are_removed() {
        let fixture = Fixture::new();
        fixture.manifest("t", b"kept");
        let blobs = fixture.layout.blobs();
        let partial =
            |suffix: &str| blobs.join(format!("{}{suffix}", Digest::of(b"p").file_name()));
        let kept = [
            fixture.blob(b"kept", 120),
            fixture.blob(b"young", 30),
            Fixture::write(blobs.join("notes.txt"), b"", 120),
            Fixture::write(partial("-other"), b"", 120),
        ];
        let gone = [
            fixture.blob(b"old", 61),
            Fixture::write(partial("-partial"), b"", 61),
            Fixture::write(partial("-partial-3"), b"", 61),
            Fixture::write(blobs.join(".llmsrv-new-abc"), b"", 61),
            Fixture::write(fixture.layout.manifests().join(".llmsrv-new-def"), b"", 61),
            Fixture::write(fixture.layout.root().join(".llmsrv-new-ghi"), b"", 61),
        ];
        assert_eq!(fixture.prune(), gone.len());
        assert!(kept.iter().all(|path| path.exists()));
        assert!(gone.iter().all(|path| !path.exists()));
        assert_eq!(fixture.prune(), 0);
    }

    #[test]
    fn what_a_killed_process_was_writing_is_removed_at_once() {
        let fixture = Fixture::new();
        let blobs = fixture.layout.blobs();
        let writer = crate::blobs::BlobWriter::new(&fixture.layout).unwrap();
        let file = crate::blobs::BlobFile::new(&fixture.layout).unwrap();
        let killed = Fixture::write(blobs.join(".llmsrv-new-abc"), b"x", 0);
        // A download goes on where it was.
        let partial = blobs.join(format!("{}-partial", Digest::of(b"p").file_name()));
        let partial = Fixture::write(partial, b"", 0);
        assert_eq!(fixture.prune(), 1);
        assert!(!killed.exists() && partial.exists() && file.path().exists());
        fs::write(file.path(), b"converted").unwrap();
        let (digest, _) = file.commit().unwrap();
        let (empty, _) = writer.commit(None).unwrap();
        assert!(fixture.layout.blob(&digest).exists() && fixture.layout.blob(&empty).exists());
    }

    #[test]
    fn nothing_is_removed_while_a_manifest_is_unreadable() {
        let fixture = Fixture::new();
        let blob = fixture.blob(b"old", 61);
        let broken = Fixture::write(fixture.layout.manifests().join("h/n/m/broken"), b"{", 0);
        assert_eq!(fixture.prune(), 0);
        let guard = lock::exclusive(&fixture.layout).unwrap();
        remove_unreferenced(&fixture.layout, &guard, [Digest::of(b"old")]).unwrap();
        drop(guard);
        assert!(blob.exists());
        fs::remove_file(broken).unwrap();
        assert_eq!(fixture.prune(), 1);
    }

    #[test]
    fn blobs_wait_while_a_transfer_is_under_way() {
        let fixture = Fixture::new();
        fixture.blob(b"finished first", 120);
        let partial = fixture
            .layout
            .blobs()
            .join(format!("{}-partial", Digest::of(b"p").file_name()));
        Fixture::write(partial.clone(), b"", 1);
        assert_eq!(fixture.prune(), 0);
        // Held up, but under way.
        Fixture::write(partial.clone(), b"", 120);
        let receiver = fs::File::open(&partial).unwrap();
        receiver.lock().unwrap();
        assert_eq!(fixture.prune(), 0);
        drop(receiver);
        assert_eq!(fixture.prune(), 2);
    }
}
