//! Reading `/sys`, `/proc` and `/dev` below a folder: the machine itself, or a copy of what another one shows.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

/// A folder that stands for `/`.
#[derive(Clone, Debug)]
pub struct Sysroot(PathBuf);

impl Sysroot {
    /// This machine.
    pub fn machine() -> Sysroot {
        Sysroot(PathBuf::from("/"))
    }

    /// A folder with `sys`, `proc`, `dev` and so on.
    pub fn new(folder: impl Into<PathBuf>) -> Sysroot {
        Sysroot(folder.into())
    }

    /// Tells whether this is the machine itself.
    pub fn is_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns where a path such as `sys/class/drm` is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Tells whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Reads a short file, without white space and zeros at its end.
    pub fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        fs::File::open(self.path(path))
            .ok()?
            .take(LONGEST)
            .read_to_end(&mut bytes)
            .ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(
            text.trim_end_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned(),
        )
    }

    /// Reads a whole number.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.trim().parse().ok()
    }

    /// Names of what is in a folder, sorted; none if it cannot be read.
    pub fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The last part of what a link leads to: the name of a driver, or of a device.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }
}

/// Files of the kernel are far shorter; `pci.ids` is read otherwise.
const LONGEST: u64 = 1 << 20;
