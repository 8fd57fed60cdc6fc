//! The file of API keys: names, roles and hashes of those who may call the server.
//!
//! The keys themselves are random and long, so that a plain SHA-256 of one cannot be turned back;
//! they are shown once, when they are made, and kept nowhere.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// What the holder of a key may do; each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Ask models and list them.
    Infer,
    /// Also add, copy and delete models.
    Manage,
    /// Everything.
    Admin,
}

impl Role {
    /// Returns the word that users write.
    pub fn word(self) -> &'static str {
        match self {
            Role::Infer => "infer",
            Role::Manage => "manage",
            Role::Admin => "admin",
        }
    }
}

/// One key of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Who has it; unique in the file.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// SHA-256 of the key.
    #[serde(serialize_with = "write_hash", deserialize_with = "read_hash")]
    pub sha256: [u8; 32],
    /// When it was made (RFC 3339).
    pub created: String,
}

/// What can go wrong with the file of keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not of its form.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Others could put keys of their own into it.
    #[error("{}: others may write to this file; `chmod 600` it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A name cannot be used.
    #[error("not a valid name for a key: `{0}`; use at most 64 letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// There is a key of that name.
    #[error("a key named `{0}` exists already")]
    Taken(String),
    /// There is no key of that name.
    #[error("no such key: `{0}`")]
    Unknown(String),
}

/// The file, by its path.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// Names the file; it need not exist.
    pub fn new(path: &Path) -> KeyFile {
        KeyFile {
            path: path.to_path_buf(),
        }
    }

    /// Reads all keys. `None` when there is no file: nobody asked for keys. A file without keys is
    /// something else: nobody may call.
    pub fn read(&self) -> Result<Option<Vec<KeyEntry>>, KeyError> {
        let mut text = String::new();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(self.io("read", error)),
        };
        self.check_mode(&file)?;
        file.take(MAX_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| self.io("read", error))?;
        if text.len() as u64 == MAX_BYTES {
            return Err(KeyError::Syntax {
                path: self.path.clone(),
                message: "the file is too large".to_owned(),
            });
        }
        let content: Content = toml::from_str(&text).map_err(|error| self.syntax(&error))?;
        let mut names = BTreeSet::new();
        for entry in &content.key {
            check_name(&entry.name)?;
            if !names.insert(&entry.name) {
                return Err(KeyError::Taken(entry.name.clone()));
            }
        }
        Ok(Some(content.key))
    }

    /// Adds a key; makes the file when it is the first one.
    pub fn add(&self, entry: KeyEntry) -> Result<(), KeyError> {
        check_name(&entry.name)?;
        self.change(|entries| {
            if entries.iter().any(|other| other.name == entry.name) {
                return Err(KeyError::Taken(entry.name));
            }
            entries.push(entry);
            Ok(())
        })
    }

    /// Removes a key and returns how many are left. The file stays when it was the last one: a
    /// server must not open because nobody may use it any more.
    pub fn remove(&self, name: &str) -> Result<usize, KeyError> {
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| entry.name != name);
            if entries.len() == before {
                return Err(KeyError::Unknown(name.to_owned()));
            }
            Ok(entries.len())
        })
    }

    /// Removes the file with all keys: none is wanted any more. Tells whether it was there.
    pub fn remove_all(&self) -> Result<bool, KeyError> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(self.io("remove", error)),
        }
    }

    /// Reads, changes and replaces the file while no other process does.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<KeyEntry>) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        let folder = self.folder();
        fs::create_dir_all(folder).map_err(|error| self.io("make the folder of", error))?;
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(self.path.with_extension("lock"))
            .map_err(|error| self.io("lock", error))?;
        match lock.lock() {
            // Some network file systems have no locks.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(self.io("lock", error));
            }
            _ => {}
        }
        // A missing name is no reason to make the file.
        let mut entries = self.read()?.unwrap_or_default();
        let result = change(&mut entries)?;
        self.write(entries)
            .map_err(|error| self.io("write", error))?;
        Ok(result)
    }

    /// Replaces the file as a whole; only its owner may read it.
    fn write(&self, entries: Vec<KeyEntry>) -> io::Result<()> {
        let text = toml::to_string(&Content { key: entries }).map_err(io::Error::other)?;
        // Temporary files are made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(self.folder())?;
        write!(file, "{HEAD}{text}")?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        // The name must survive a power failure, too; some file systems cannot flush folders.
        let _ = File::open(self.folder()).and_then(|folder| folder.sync_all());
        Ok(())
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    #[cfg(unix)]
    fn check_mode(&self, file: &File) -> Result<(), KeyError> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file
            .metadata()
            .map_err(|error| self.io("read", error))?
            .permissions()
            .mode();
        if mode & 0o022 == 0 {
            Ok(())
        } else {
            Err(KeyError::Exposed {
                path: self.path.clone(),
            })
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as on unix")]
    fn check_mode(&self, _file: &File) -> Result<(), KeyError> {
        Ok(())
    }

    fn io(&self, action: &'static str, source: io::Error) -> KeyError {
        KeyError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> KeyError {
        KeyError::Syntax {
            path: self.path.clone(),
            // Without the line itself: it may hold a key that somebody put there by mistake.
            message: error.message().to_owned(),
        }
    }
}

fn check_name(name: &str) -> Result<(), KeyError> {
    let good = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if (1..=64).contains(&name.len()) && name.bytes().all(good) {
        Ok(())
    } else {
        Err(KeyError::Name(name.chars().take(80).collect()))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn write_hash<S: serde::Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex::encode(hash))
}

fn read_hash<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut hash = [0; 32];
    hex::decode_to_slice(text, &mut hash)
        .map_err(|_| serde::de::Error::custom("sha256 must be 64 hexadecimal digits"))?;
    Ok(hash)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    key: Vec<KeyEntry>,
}

const HEAD: &str =
    "# Keys of the server's callers, written by `llmsrv key`. Only hashes are kept.\n\n";
/// Room for thousands of keys.
const MAX_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, role: Role) -> KeyEntry {
        KeyEntry {
            name: name.into(),
            role,
            sha256: [7; 32],
            created: "2026-11-21T10:00:00Z".into(),
        }
    }

    #[test]
    fn keys_are_added_listed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = KeyFile::new(&dir.path().join("new/keys.toml"));
        assert_eq!(file.read().unwrap(), None);
        assert!(matches!(file.remove("ann"), Err(KeyError::Unknown(_))));
        assert_eq!(file.read().unwrap(), None, "nothing was made");

        file.add(entry("ann", Role::Infer)).unwrap();
        file.add(entry("bob", Role::Admin)).unwrap();
        assert!(matches!(
            file.add(entry("ann", Role::Admin)),
            Err(KeyError::Taken(_))
        ));
        assert_eq!(
            file.read().unwrap().unwrap(),
            [entry("ann", Role::Infer), entry("bob", Role::Admin)]
        );
        assert_eq!(file.remove("ann").unwrap(), 1);
        assert_eq!(file.remove("bob").unwrap(), 0);
        assert_eq!(
            file.read().unwrap(),
            Some(Vec::new()),
            "still a file: closed"
        );
        for name in ["", "a b", "../x", "ä", &"x".repeat(65)] {
            assert!(
                matches!(file.add(entry(name, Role::Infer)), Err(KeyError::Name(_))),
                "{name}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_the_file_and_nobody_else_may_write_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let file = KeyFile::new(&path);
        file.add(entry("ann", Role::Manage)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(file.read(), Err(KeyError::Exposed { .. })));
    }

    #[test]
    fn a_broken_file_is_an_error_and_never_no_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let line = format!(
            "name = \"a\"\nrole = \"infer\"\nsha256 = \"{}\"\ncreated = \"\"\n",
            "0".repeat(64)
        );
        for text in [
            "[[key]".to_owned(),
            "[[key]]\nname = \"a\"\n".to_owned(),
            "[[keys]]\n".to_owned(),
            format!("[[key]]\n{}", line.replace("infer", "root")),
            format!("[[key]]\n{}", line.replace("00", "zz")),
            format!("[[key]]\n{line}secret = \"x\"\n"),
            format!("[[key]]\n{line}[[key]]\n{line}"),
        ] {
            fs::write(&path, &text).unwrap();
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt as _;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            assert!(KeyFile::new(&path).read().is_err(), "{text}");
        }
        fs::write(&path, format!("[[key]]\n{line}")).unwrap();
        assert_eq!(KeyFile::new(&path).read().unwrap().unwrap().len(), 1);
    }
}
