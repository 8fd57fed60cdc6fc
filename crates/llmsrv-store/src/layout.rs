//! Every path of a store, and walking its manifests.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{Digest, Error, ModelName};

/// The paths of one store; does no more than look.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

/// A file where a manifest may be.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    pub(crate) path: PathBuf,
    /// The name its path says, if that is a valid one.
    pub(crate) name: Option<ModelName>,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Layout {
        Layout {
            root: root.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.root.join("manifests")
    }

    pub(crate) fn manifest(&self, name: &ModelName) -> PathBuf {
        self.manifests().join(name.to_path())
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.file_name())
    }

    /// What has come of a blob that is being received.
    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(format!("{}-partial", digest.file_name()))
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join(".llmsrv.lock")
    }

    /// Which embedded model was installed last.
    pub(crate) fn embedded_marker(&self) -> PathBuf {
        self.root.join(".llmsrv-embedded.json")
    }

    /// Which model the user has chosen for the name `default`.
    pub(crate) fn chosen_default(&self) -> PathBuf {
        self.root.join(".llmsrv-default.json")
    }

    /// Wraps an error of the system, naming `path` relative to the root.
    pub(crate) fn error(&self, action: &'static str, path: &Path, source: io::Error) -> Error {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        Error::io(action, relative.display().to_string(), source)
    }

    /// Looks for a blob; a store that cannot be written may still use the old spelling.
    pub(crate) fn find_blob(&self, digest: &Digest) -> Option<(PathBuf, u64)> {
        [self.blob(digest), self.blobs().join(digest.to_string())]
            .into_iter()
            .find_map(|path| {
                let metadata = fs::metadata(&path).ok()?;
                metadata.is_file().then_some((path, metadata.len()))
            })
    }

    /// Renames blobs of the old spelling, `sha256:<hex>`.
    pub(crate) fn rename_old_blobs(&self) -> io::Result<()> {
        for entry in read_dir(&self.blobs())? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("sha256:")) else {
                continue;
            };
            let renamed = self.blobs().join(format!("sha256-{rest}"));
            if !renamed.exists() {
                ignore_absent(fs::rename(entry.path(), renamed))?;
            }
        }
        Ok(())
    }

    /// Lists all files where manifests may be, in no order, and the folders that could not be
    /// read. Hidden files are not looked at: no name begins with a dot.
    pub(crate) fn manifest_files(&self) -> (Vec<ManifestFile>, Vec<Error>) {
        let mut level = vec![self.manifests()];
        let mut errors = Vec::new();
        for depth in 1..=4 {
            let mut next = Vec::new();
            for folder in level {
                match children(&folder) {
                    Ok(paths) => next.extend(
                        paths
                            .into_iter()
                            .filter(|path| path.is_dir() == (depth < 4)),
                    ),
                    Err(error) => errors.push(self.error("read", &folder, error)),
                }
            }
            level = next;
        }
        let files = level
            .into_iter()
            .map(|path| ManifestFile {
                name: self.name_of(&path),
                path,
            })
            .collect();
        (files, errors)
    }

    fn name_of(&self, manifest: &Path) -> Option<ModelName> {
        let relative = manifest.strip_prefix(self.manifests()).ok()?;
        let parts: Vec<&str> = relative
            .iter()
            .map(|part| part.to_str())
            .collect::<Option<_>>()?;
        ModelName::from_parts(parts.try_into().ok()?)
    }

    /// Replaces the parts of `name` by the spelling of a manifest that exists, from the host
    /// onwards as far as there is one. `true` if the whole name exists.
    pub(crate) fn spelling(&self, name: &ModelName) -> (ModelName, bool) {
        // Most requests spell a name as it is stored: then no folder is listed, however many models there are.
        if self.manifest(name).is_file() {
            return (name.clone(), true);
        }
        let wanted: Vec<&str> = name.parts().iter().map(String::as_str).collect();
        let found = longest_spelling(&self.manifests(), &wanted);
        let mut parts = [name.host(), name.namespace(), name.model(), name.tag()];
        for (part, spelling) in parts.iter_mut().zip(&found) {
            *part = spelling;
        }
        let exists = found.len() == parts.len();
        (
            ModelName::from_parts(parts).unwrap_or_else(|| name.clone()),
            exists,
        )
    }
}

/// Returns the longest chain of existing entries that equal `parts` but for letter case; at each
/// level the exact spelling is preferred.
fn longest_spelling(folder: &Path, parts: &[&str]) -> Vec<String> {
    let Some((part, rest)) = parts.split_first() else {
        return Vec::new();
    };
    let mut spellings: Vec<String> = children(folder)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let is_meant = name.eq_ignore_ascii_case(part) && path.is_dir() != rest.is_empty();
            is_meant.then(|| name.to_owned())
        })
        .collect();
    spellings.sort_by_key(|name| (name != part, name.clone()));
    let mut longest = Vec::new();
    for spelling in spellings {
        let mut chain = longest_spelling(&folder.join(&spelling), rest);
        chain.insert(0, spelling);
        if chain.len() > longest.len() {
            longest = chain;
        }
    }
    longest
}

/// Returns the entries of a folder that are not hidden; none if the folder is not there.
fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

/// Reads a folder; one that is not there, or is a file, is empty.
pub(crate) fn read_dir(
    folder: &Path,
) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None.into_iter().flatten())
        }
        Err(error) => Err(error),
    }
}

/// Takes "not found" as done: another process may have been faster.
pub(crate) fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Tells whether a file was last written longer ago than `age`. A time in the future is not old.
pub(crate) fn is_older_than(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| {
        SystemTime::now()
            .duration_since(time)
            .is_ok_and(|elapsed| elapsed > age)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout_with(manifests: &[&str]) -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        for path in manifests {
            let path = layout.manifests().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "{}").unwrap();
        }
        (folder, layout)
    }

    #[test]
    fn only_files_at_the_fourth_level_are_manifests() {
        let (_folder, layout) = layout_with(&[
            "h/n/m/t",
            "h:80/n/M.x/T",
            "h/n/m/.hidden",
            ".tmp/n/m/t",
            "h/n/file",
            "h/n/m/deep/er",
            "h/n/m/bad name",
        ]);
        let (files, errors) = layout.manifest_files();
        assert!(errors.is_empty());
        let mut names: Vec<_> = files
            .iter()
            .map(|file| file.name.as_ref().map(ModelName::full))
            .collect();
        names.sort();
        assert_eq!(
            names,
            [None, Some("h/n/m:t".into()), Some("h:80/n/M.x:T".into())]
        );
    }

    #[test]
    fn an_absent_store_is_empty() {
        let layout = Layout::new(Path::new("/nonexistent/store"));
        let (files, errors) = layout.manifest_files();
        assert!(files.is_empty() && errors.is_empty());
    }

    #[test]
    fn names_take_the_spelling_on_disk() {
        let (_folder, layout) = layout_with(&[
            "registry.ollama.ai/library/Foo/Q4",
            "registry.ollama.ai/Library/bar/latest",
            "hf.co/User/Repo-GGUF/Q4_K_M",
            "hf.co/user/other/latest",
        ]);
        for (asked, expected, exists) in [
            ("foo:q4", "registry.ollama.ai/library/Foo:Q4", true),
            ("FOO:new", "registry.ollama.ai/library/Foo:new", false),
            ("BAR", "registry.ollama.ai/Library/bar:latest", true),
            (
                "HF.CO/user/repo-gguf:q4_k_m",
                "hf.co/User/Repo-GGUF:Q4_K_M",
                true,
            ),
            ("hf.co/USER/Other", "hf.co/user/other:latest", true),
            ("hf.co/user/fresh", "hf.co/user/fresh:latest", false),
            ("Fresh:T", "registry.ollama.ai/library/Fresh:T", false),
        ] {
            let (name, found) = layout.spelling(&asked.parse().unwrap());
            let full = name.full();
            assert_eq!((full.as_str(), found), (expected, exists), "{asked}");
        }
    }

    #[test]
    fn old_blob_names_are_renamed() {
        let (folder, layout) = layout_with(&[]);
        fs::create_dir(layout.blobs()).unwrap();
        let digest = Digest::of(b"x");
        fs::write(layout.blobs().join(digest.to_string()), "x").unwrap();
        assert_eq!(layout.find_blob(&digest).unwrap().1, 1);
        layout.rename_old_blobs().unwrap();
        layout.rename_old_blobs().unwrap();
        assert_eq!(
            layout.find_blob(&digest).unwrap(),
            (layout.blob(&digest), 1)
        );
        assert_eq!(
            fs::read_dir(folder.path().join("blobs")).unwrap().count(),
            1
        );
    }
}
