//! The key pair of the user: found, made when there is none, and never overwritten.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD},
};
use sha2::{Digest as _, Sha256};
use ssh_key::{Algorithm, LineEnding, PrivateKey, rand_core::OsRng};

use crate::ssh::Settings;

/// The files of a key pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The private half.
    pub private: PathBuf,
    /// The public half, one line.
    pub public: PathBuf,
    /// Whether it is ours to make: a file that the user named must exist.
    may_be_made: bool,
}

/// The public half and how it was come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// The line for `authorized_keys`, without a line end.
    pub line: String,
    /// What was done for it.
    pub origin: Origin,
    /// Whether a passphrase protects the private half, as far as can be told.
    pub is_encrypted: bool,
}

impl PublicKey {
    /// Returns the fingerprint as ssh writes it.
    pub fn fingerprint(&self) -> Option<String> {
        let (_, data) = blob(&self.line)?;
        let digest = Sha256::digest(BASE64_STANDARD.decode(data).ok()?);
        Some(format!("SHA256:{}", BASE64_STANDARD_NO_PAD.encode(digest)))
    }
}

/// How a public key was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was there.
    Found,
    /// The private half was there; the public one was derived from it.
    Derived,
    /// Both halves were made.
    Made,
}

/// What is wrong with the files of a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The user's file is not there.
    #[error("there is no key {0}")]
    Missing(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {path}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{0} is no {1} key of OpenSSH")]
    NotAKey(PathBuf, &'static str),
    /// Only its owner could derive the public half.
    #[error(
        "{private} has no public half {public}, and it cannot be derived without the passphrase"
    )]
    CannotDerive {
        /// The private half.
        private: PathBuf,
        /// Where the public half should be.
        public: PathBuf,
    },
    /// The halves are of two pairs.
    #[error("{public} is not the public half of {private}")]
    Mismatch {
        /// The private half.
        private: PathBuf,
        /// The public half of another pair.
        public: PathBuf,
    },
    /// No key could be made.
    #[error("cannot make a key")]
    Generate(#[source] ssh_key::Error),
}

impl KeyError {
    /// Returns what may help.
    pub fn fixes(&self) -> Vec<String> {
        let show = |path: &Path| crate::known_errors::quoted(&path.to_string_lossy());
        match self {
            KeyError::Missing(path) => {
                vec![format!("make it: ssh-keygen -t ed25519 -f {}", show(path))]
            }
            KeyError::Unreadable { path, .. } => {
                vec![format!("see whose it is: ls -l {}", show(path))]
            }
            KeyError::Unwritable { path, .. } => vec![
                format!(
                    "see whose the folder is: ls -ld {}",
                    show(path.parent().unwrap_or(path))
                ),
                "or use a key elsewhere: llmsrv ssh -i FILE …".into(),
            ],
            KeyError::NotAKey(path, _) => {
                vec![format!("see what it is: ssh-keygen -lf {}", show(path))]
            }
            KeyError::CannotDerive { private, public } | KeyError::Mismatch { private, public } => {
                vec![format!(
                    "derive it: ssh-keygen -y -f {} > {}",
                    show(private),
                    show(public)
                )]
            }
            KeyError::Generate(_) => vec!["make one: ssh-keygen -t ed25519".into()],
        }
    }
}

impl Identity {
    /// Chooses the key to copy: the one the user named, else the first of the settings for this
    /// host, else `~/.ssh/id_ed25519`.
    pub fn choose(named: Option<&Path>, settings: &Settings, home: &Path) -> Identity {
        let usual = home.join(".ssh/id_ed25519");
        if let Some(path) = named {
            return Identity::at(path.to_owned(), path == usual);
        }
        let configured = |file: &String| match file.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(file),
        };
        let mut files = settings.identity_files.iter().map(configured);
        // Without settings, ssh lists its usual names, ours among them.
        let is_usual = settings
            .identity_files
            .iter()
            .any(|file| file.ends_with("/.ssh/id_ed25519"));
        match files.next() {
            Some(first) if !is_usual => Identity::at(first, false),
            _ => Identity::at(usual, true),
        }
    }

    fn at(path: PathBuf, may_be_made: bool) -> Identity {
        // The private half may be in an agent or in a device; ssh takes the public one then.
        if path.extension().is_some_and(|extension| extension == "pub") {
            return Identity {
                private: path.with_extension(""),
                public: path,
                may_be_made: false,
            };
        }
        let mut public = path.clone().into_os_string();
        public.push(".pub");
        Identity {
            private: path,
            public: public.into(),
            may_be_made,
        }
    }

    /// Tells whether the pair would be made.
    pub fn would_be_made(&self) -> bool {
        self.may_be_made && !exists(&self.private) && !exists(&self.public)
    }

    /// Returns the public half; derives it or makes both where that is needed. `comment` is for a
    /// new pair.
    pub fn ensure(&self, comment: &str) -> Result<PublicKey, KeyError> {
        if self.would_be_made() {
            return self.make(comment);
        }
        let key = self.inspect()?;
        if key.origin == Origin::Derived {
            create(&self.public, &format!("{}\n", key.line), 0o644)?;
        }
        Ok(key)
    }

    /// Returns the public half, derived if need be; writes nothing.
    pub fn inspect(&self) -> Result<PublicKey, KeyError> {
        match (exists(&self.private), exists(&self.public)) {
            (false, false) => Err(KeyError::Missing(self.private.clone())),
            // The agent or a device may have the private half.
            (false, true) => self.read_public(),
            (true, true) => self.read_both(),
            (true, false) => self.derive(),
        }
    }

    fn make(&self, comment: &str) -> Result<PublicKey, KeyError> {
        if let Some(folder) = self.private.parent()
            && !folder.exists()
        {
            let made = fs::DirBuilder::new().mode(0o700).create(folder);
            made.map_err(|source| unwritable(folder, source))?;
        }
        let mut key =
            PrivateKey::random(&mut OsRng, Algorithm::Ed25519).map_err(KeyError::Generate)?;
        key.set_comment(comment);
        let text = key.to_openssh(LineEnding::LF).map_err(KeyError::Generate)?;
        let line = key.public_key().to_openssh().map_err(KeyError::Generate)?;
        if !create(&self.private, &text, 0o600)? {
            // Somebody else made one at this moment.
            return self.ensure(comment);
        }
        create(&self.public, &format!("{line}\n"), 0o644)?;
        Ok(PublicKey {
            line,
            origin: Origin::Made,
            is_encrypted: false,
        })
    }

    fn derive(&self) -> Result<PublicKey, KeyError> {
        // OpenSSH keeps the public half readable beside an encrypted private one; older formats do not.
        let Some(key) = self.read_private()? else {
            return Err(KeyError::CannotDerive {
                private: self.private.clone(),
                public: self.public.clone(),
            });
        };
        let line = key.public_key().to_openssh();
        let line = line.map_err(|_| KeyError::NotAKey(self.private.clone(), "private"))?;
        Ok(PublicKey {
            line,
            origin: Origin::Derived,
            is_encrypted: key.is_encrypted(),
        })
    }

    fn read_both(&self) -> Result<PublicKey, KeyError> {
        let mut public = self.read_public()?;
        // Types that are not understood here are ssh's matter.
        if let Ok(Some(private)) = self.read_private() {
            public.is_encrypted = private.is_encrypted();
            let derived = private.public_key().to_openssh().unwrap_or_default();
            if blob(&derived) != blob(&public.line) {
                return Err(KeyError::Mismatch {
                    private: self.private.clone(),
                    public: self.public.clone(),
                });
            }
        }
        Ok(public)
    }

    fn read_public(&self) -> Result<PublicKey, KeyError> {
        let text = read(&self.public)?;
        let line = text.lines().find(|line| !line.trim().is_empty());
        let line = line
            .filter(|line| is_public_key(line))
            .ok_or_else(|| KeyError::NotAKey(self.public.clone(), "public"))?;
        Ok(PublicKey {
            line: line.trim().to_owned(),
            origin: Origin::Found,
            is_encrypted: false,
        })
    }

    /// Reads the private half; none if it is in another format than OpenSSH's.
    fn read_private(&self) -> Result<Option<PrivateKey>, KeyError> {
        let text = read(&self.private)?;
        if text.contains("-----BEGIN OPENSSH PRIVATE KEY-----") {
            let key = PrivateKey::from_openssh(&text);
            return key
                .map(Some)
                .map_err(|_| KeyError::NotAKey(self.private.clone(), "private"));
        }
        if text.contains("PRIVATE KEY-----") {
            return Ok(None);
        }
        Err(KeyError::NotAKey(self.private.clone(), "private"))
    }
}

/// Returns the part of a public key that is the key: type and data.
pub(crate) fn blob(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?))
}

/// Tells whether a line is a public key of any type: its data begin with the name of the type.
fn is_public_key(line: &str) -> bool {
    let data = blob(line).and_then(|(kind, data)| Some((kind, BASE64_STANDARD.decode(data).ok()?)));
    data.is_some_and(|(kind, data)| {
        let length = data
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes) as usize);
        length == kind.len() && data.get(4..4 + length) == Some(kind.as_bytes())
    })
}

/// Writes a file that must not exist, whole or not at all; tells whether it was made.
fn create(path: &Path, text: &str, mode: u32) -> Result<bool, KeyError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        // Made with O_EXCL under a name nobody knows, then given its name if that is free.
        let mut file = tempfile::Builder::new()
            .prefix(".llmsrv-")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    let file = write().map_err(|source| unwritable(path, source))?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(unwritable(path, error.error)),
    }
}

fn unwritable(path: &Path, source: io::Error) -> KeyError {
    KeyError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

fn read(path: &Path) -> Result<String, KeyError> {
    let unreadable = |source| KeyError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let size = fs::metadata(path).map_err(unreadable)?;
    // No key is that long; a device never ends.
    if !size.is_file() || size.len() > 1 << 20 {
        return Err(KeyError::NotAKey(path.to_owned(), "readable"));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// Tells whether something is there, also a link that leads nowhere: it is not to be overwritten.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns who makes a key, as `user@machine`.
pub fn comment() -> String {
    let uid = nix::unistd::Uid::current();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| uid.to_string(), |user| user.name);
    let machine = nix::sys::utsname::uname().ok();
    let host = machine.map(|names| names.nodename().to_string_lossy().into_owned());
    let text = format!("{user}@{}", host.as_deref().unwrap_or("localhost"));
    // It ends up in files of one line and in a shell script.
    text.chars().filter(|c| !c.is_control()).collect()
}
