//! Starting a server that goes on when the terminal is closed, where no manager of services is there
//! to do it.

use std::{
    fmt, fs, io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{fcntl::OFlag, unistd};

use crate::command::quoted;

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables it gets besides those of this process.
    pub variables: Vec<(String, String)>,
    /// File that takes what it writes.
    pub log: PathBuf,
}

/// Why it was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be used.
    #[error("cannot use the log {path}: {error}", path = .0.display(), error = .1)]
    Log(PathBuf, #[source] LogError),
    /// The program does not start.
    #[error("cannot start {path}: {error}", path = .0.display(), error = .1)]
    Start(PathBuf, #[source] io::Error),
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody put a link there, perhaps to have another file overwritten.
    #[error("it is a link: remove it")]
    Link,
    /// It is a folder, a pipe or the like.
    #[error("it is not a plain file")]
    NotPlain,
    /// It can be read, or was made, by somebody else.
    #[error("it belongs to another user: remove it, or choose another one with LLMSRV_LOG_FILE")]
    Strange,
}

impl Program {
    /// Starts it and returns its process.
    pub fn start(&self) -> Result<u32, Error> {
        let log = open_log(&self.log).map_err(|error| Error::Log(self.log.clone(), error))?;
        let failed = |error| Error::Start(self.path.clone(), error);
        let child = Command::new(&self.path)
            .args(&self.args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        Ok(child.id())
    }
}

impl fmt::Display for Program {
    /// Writes it as a shell would take it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.path.to_string_lossy()))?;
        for arg in &self.args {
            write!(f, " {}", quoted(arg))?;
        }
        let log = quoted(&self.log.to_string_lossy());
        write!(f, " </dev/null >>{log} 2>&1 &")
    }
}

/// Leaves the session of the terminal, so that its end is not ours. For a program that was started
/// with [`Program::start`].
pub fn detach() -> io::Result<()> {
    unistd::setsid().map(drop).map_err(Into::into)
}

/// Opens a log to append to. It may lie in a folder where all can write: a link, or a file of
/// somebody else, is refused.
pub fn open_log(path: &Path) -> Result<fs::File, LogError> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        // A pipe without a reader must not hold us up.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(code) if code == nix::errno::Errno::ELOOP as i32 => LogError::Link,
            Some(code) if code == nix::errno::Errno::ENXIO as i32 => LogError::NotPlain,
            _ => LogError::Io(error),
        })?;
    check_log(&file)?;
    let metadata = file.metadata()?;
    if metadata.permissions().mode() & 0o777 != 0o600 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    if metadata.len() > MAX_LOG {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Tells whether a log is not there yet, or is one that [`open_log`] would open; makes none.
pub fn is_usable(path: &Path) -> bool {
    let file = fs::OpenOptions::new()
        .append(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path);
    match file {
        Ok(file) => check_log(&file).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Tells whether an open file is a plain one of this user, known by one name.
pub(crate) fn check_log(file: &fs::File) -> Result<(), LogError> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(LogError::NotPlain);
    }
    if metadata.uid() != unistd::geteuid().as_raw() || metadata.nlink() > 1 {
        return Err(LogError::Strange);
    }
    Ok(())
}

/// A log that is larger when a server starts begins anew.
const MAX_LOG: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_private_and_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        // The folder is made, for the user alone.
        let path = folder.path().join("state/x.log");
        assert!(is_usable(&path));
        assert!(!path.exists());
        drop(open_log(&path).unwrap());
        assert!(is_usable(&path));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(open_log(&path).unwrap());
        assert_eq!(mode(&path), 0o600);

        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(open_log(&link), Err(LogError::Link)));
        assert!(!is_usable(&link));
        let second = folder.path().join("second");
        fs::hard_link(&path, &second).unwrap();
        assert!(matches!(open_log(&second), Err(LogError::Strange)));
        let fifo = folder.path().join("fifo");
        unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(open_log(&fifo), Err(LogError::NotPlain)));
        assert!(matches!(open_log(folder.path()), Err(LogError::Io(_))));
        if unistd::geteuid().is_root() {
            let strange = folder.path().join("strange");
            fs::write(&strange, "").unwrap();
            std::os::unix::fs::chown(&strange, Some(65_534), None).unwrap();
            assert!(matches!(open_log(&strange), Err(LogError::Strange)));
            assert!(!is_usable(&strange));
        }
    }

    #[test]
    fn what_is_shown_is_what_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("x.log");
        let program = Program {
            path: "/bin/sh".into(),
            args: vec!["-c".into(), "echo \"$GREETING\"".into()],
            variables: vec![("GREETING".into(), "it's me".into())],
            log: log.clone(),
        };
        program.start().unwrap();
        let begun = std::time::Instant::now();
        while fs::read_to_string(&log).unwrap() != "it's me\n" {
            assert!(begun.elapsed().as_secs() < 10);
        }
        let shown = format!("{program} wait");
        fs::remove_file(&log).unwrap();
        let typed = Command::new("sh").args(["-c", &shown]).status().unwrap();
        assert!(typed.success());
        assert_eq!(fs::read_to_string(&log).unwrap(), "it's me\n");
    }
}
