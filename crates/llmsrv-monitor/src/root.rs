//! Files below a folder that stands for `/`: bounded reads, and why one gave nothing.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Where `proc` and `sys` are looked for. Below any folder but `/` no link leads out of it.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    is_machine: bool,
}

/// Why a file gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It is not there, or is not a plain file.
    Missing,
    /// This user may not read it.
    Denied,
    /// The device behind it did not answer.
    Failed,
}

impl Root {
    /// Takes the folder; it must exist.
    pub fn new(dir: &Path) -> io::Result<Root> {
        let dir = dir.canonicalize()?;
        if !dir.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let is_machine = dir == Path::new("/");
        Ok(Root { dir, is_machine })
    }

    /// Tells whether this is the real machine.
    pub fn is_machine(&self) -> bool {
        self.is_machine
    }

    /// Reads the text of a file; what is no UTF-8 is replaced, what is beyond a megabyte left out.
    pub fn text(&self, path: &str) -> Result<String, Lack> {
        let path = self.path(path)?;
        // Opening anything else, such as a pipe, may wait for ever.
        if !fs::metadata(&path).map_err(Lack::of)?.is_file() {
            return Err(Lack::Missing);
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(Lack::of)?;
        file.take(MAX_FILE)
            .read_to_end(&mut bytes)
            .map_err(Lack::of)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Lists a folder in the order of names, numbers by their value.
    pub fn names(&self, path: &str) -> Result<Vec<String>, Lack> {
        let entries = fs::read_dir(self.path(path)?).map_err(Lack::of)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MAX_NAMES).collect();
        names.sort_by_cached_key(|name| natural(name));
        Ok(names)
    }

    fn path(&self, path: &str) -> Result<PathBuf, Lack> {
        let path = self.dir.join(path);
        if self.is_machine {
            return Ok(path);
        }
        let real = path.canonicalize().map_err(Lack::of)?;
        if real.starts_with(&self.dir) {
            Ok(real)
        } else {
            Err(Lack::Missing)
        }
    }
}

impl Lack {
    fn of(error: io::Error) -> Lack {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Lack::Denied,
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory => Lack::Missing,
            _ => Lack::Failed,
        }
    }
}

/// The name without its last number, and that number: `card10` comes after `card9`.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[stem.len()..].parse().unwrap_or(0);
    (stem.to_owned(), number, name.to_owned())
}

/// Longest text that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most entries of a folder.
const MAX_NAMES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_leads_out_of_a_fixture() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "1").unwrap();
        let inside = tempfile::tempdir().unwrap();
        let at = |name: &str| inside.path().join(name);
        fs::write(at("plain"), b"2\xff").unwrap();
        std::os::unix::fs::symlink("plain", at("near")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), at("far")).unwrap();
        std::os::unix::fs::symlink(outside.path(), at("folder")).unwrap();
        let root = Root::new(inside.path()).unwrap();
        assert_eq!(root.text("near").unwrap(), "2\u{fffd}");
        assert_eq!(root.text("far"), Err(Lack::Missing));
        assert_eq!(root.text("folder/secret"), Err(Lack::Missing));
        assert_eq!(root.names("folder"), Err(Lack::Missing));
        assert_eq!(root.text("../secret"), Err(Lack::Missing));
        assert_eq!(root.text(""), Err(Lack::Missing));
    }

    #[test]
    fn names_come_in_the_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["card10", "card9", "a"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names = Root::new(dir.path()).unwrap().names("").unwrap();
        assert_eq!(names, ["a", "card9", "card10"]);
    }
}
