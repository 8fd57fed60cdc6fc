//! Servers of this program that run on this machine.
//!
//! A server writes a file `server-<port>.json` into the runtime folder while it listens. The file is
//! information, not truth: a server counts as running when its process is there, began at the time
//! that was written down (numbers of processes are used again), and is a program of this name.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use procfs::{Current as _, process::Process};
use serde::{Deserialize, Serialize};

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its process.
    pub pid: i32,
    /// Port it listens on.
    pub port: u16,
    /// Address that reaches it from this machine.
    pub url: String,
    /// Address it is bound to, such as `0.0.0.0`.
    pub bound: String,
    /// Version of the program.
    pub version: String,
    /// File its log goes to, if it was started in the background.
    #[serde(default)]
    pub log: Option<PathBuf>,
    /// When the process began, in clock ticks since the machine started.
    started: u64,
}

/// Why a server could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It belongs to somebody else.
    #[error("process {0} belongs to another user")]
    NotAllowed(i32),
    /// It is there still.
    #[error("process {0} does not end, not even when killed")]
    Stays(i32),
    /// The system refused for another reason.
    #[error("process {0} cannot be signalled: {1}")]
    Signal(i32, #[source] io::Error),
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// When it was asked to.
    Asked,
    /// Only when it was killed.
    Killed,
}

impl Instance {
    /// Describes this process.
    pub fn this(port: u16, url: &str, bound: &str, version: &str) -> Instance {
        let pid = std::process::id() as i32;
        Instance {
            pid,
            port,
            url: url.to_owned(),
            bound: bound.to_owned(),
            version: version.to_owned(),
            log: None,
            started: start_of(pid).unwrap_or(0),
        }
    }

    /// Tells whether it can be reached from other machines.
    pub fn is_bound_to_all(&self) -> bool {
        matches!(self.bound.as_str(), "0.0.0.0" | "::")
    }

    /// Bytes of memory that are its own or shared, as far as they are in use.
    pub fn resident(&self) -> Option<u64> {
        let pages = Process::new(self.pid).ok()?.statm().ok()?.resident;
        Some(pages * procfs::page_size())
    }

    /// Time since it began.
    pub fn uptime(&self) -> Option<Duration> {
        let up = procfs::Uptime::current().ok()?.uptime_duration();
        let began =
            Duration::from_secs_f64(self.started as f64 / procfs::ticks_per_second() as f64);
        up.checked_sub(began)
    }

    fn is_there(&self) -> bool {
        start_of(self.pid) == Some(self.started) && self.is_ours()
    }

    /// Tells whether the process is a program of the name of this one. A binary that was replaced
    /// since has `(deleted)` after its name.
    fn is_ours(&self) -> bool {
        let name = |path: PathBuf| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some(name.trim_end_matches(" (deleted)").to_owned())
        };
        let Some(ours) = std::env::current_exe().ok().and_then(name) else {
            return false;
        };
        let Ok(process) = Process::new(self.pid) else {
            return false;
        };
        match process.exe() {
            Ok(path) => name(path).as_deref() == Some(&ours),
            // Of other users only the beginning of the name is known. They cannot be ended anyway.
            Err(procfs::ProcError::PermissionDenied(_)) => process
                .stat()
                .is_ok_and(|stat| ours.starts_with(&stat.comm) && !stat.comm.is_empty()),
            Err(_) => false,
        }
    }

    /// Asks the process to end, waits for `timeout`, and kills it then.
    pub fn end(&self, timeout: Duration) -> Result<Ended, Error> {
        self.signal(Signal::SIGTERM)?;
        if self.is_gone_within(timeout) {
            return Ok(Ended::Asked);
        }
        self.signal(Signal::SIGKILL)?;
        if self.is_gone_within(KILLED) {
            return Ok(Ended::Killed);
        }
        Err(Error::Stays(self.pid))
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(Errno::EPERM) => Err(Error::NotAllowed(self.pid)),
            Err(error) => Err(Error::Signal(self.pid, error.into())),
        }
    }

    fn is_gone_within(&self, time: Duration) -> bool {
        let begun = Instant::now();
        while self.is_there() {
            if begun.elapsed() > time {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// Returns when a process began; `None` if there is none, or only its remains.
fn start_of(pid: i32) -> Option<u64> {
    let stat = Process::new(pid).ok()?.stat().ok()?;
    (stat.state != 'Z').then_some(stat.starttime)
}

/// Folder in which the service of the machine writes itself down.
pub const OF_THE_MACHINE: &str = "/run/llmsrv";

/// Returns the server on a port that wrote itself down in `folder` or is the service of the machine,
/// if it runs.
pub fn find(folder: &Path, port: u16) -> Option<Instance> {
    on_port(folder, port).or_else(|| on_port(Path::new(OF_THE_MACHINE), port))
}

/// Returns the server on a port that wrote itself down in `folder`, if it runs.
pub fn on_port(folder: &Path, port: u16) -> Option<Instance> {
    let text = fs::read(file(folder, port)).ok()?;
    let instance: Instance = serde_json::from_slice(&text).ok()?;
    (instance.port == port && instance.is_there()).then_some(instance)
}

/// The file of a server; removed when this is dropped.
#[derive(Debug)]
pub struct Record(PathBuf);

impl Record {
    /// Writes a server down. The folder is made, for the user alone.
    pub fn write(folder: &Path, instance: &Instance) -> io::Result<Record> {
        use std::os::unix::fs::DirBuilderExt as _;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let path = file(folder, instance.port);
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        // Of the service of the machine everybody may know; other folders are private.
        let permissions = fs::Permissions::from_mode(0o644);
        temporary.as_file().set_permissions(permissions)?;
        temporary.write_all(serde_json::to_string(instance)?.as_bytes())?;
        temporary.persist(&path)?;
        Ok(Record(path))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Another server may have the port by now.
        let own = fs::read(&self.0)
            .ok()
            .and_then(|text| serde_json::from_slice::<Instance>(&text).ok())
            .is_some_and(|instance| instance.pid == std::process::id() as i32);
        if own {
            let _ = fs::remove_file(&self.0);
        }
    }
}

fn file(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!("server-{port}.json"))
}

/// How long the system may take to end what is killed.
const KILLED: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_while_it_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run/llmsrv");
        let this = Instance::this(4321, "http://127.0.0.1:4321", "0.0.0.0", "1.2.3");
        assert!(this.is_bound_to_all());
        assert!(this.uptime().is_some() && this.resident().is_some_and(|bytes| bytes > 1 << 20));
        let record = Record::write(&folder, &this).unwrap();
        assert_eq!(on_port(&folder, 4321), Some(this));
        assert_eq!(on_port(&folder, 4322), None);
        drop(record);
        assert_eq!(on_port(&folder, 4321), None);
    }

    #[test]
    fn other_processes_and_remains_are_not_taken_for_servers() {
        let folder = tempfile::tempdir().unwrap();
        let this = Instance::this(1, "u", "::", "v");
        // The number of this process, but of another time.
        let mut reused = this.clone();
        reused.started += 1;
        // A process which is there, but no server.
        let mut sleep = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut other = this.clone();
        other.pid = sleep.id() as i32;
        other.started = start_of(other.pid).unwrap();
        let mut gone = this;
        gone.pid = i32::MAX;
        for instance in [reused, other, gone] {
            let record = Record::write(folder.path(), &instance).unwrap();
            assert_eq!(on_port(folder.path(), 1), None, "{instance:?}");
            std::mem::forget(record);
        }
        fs::write(file(folder.path(), 2), "{\"pid\":").unwrap();
        assert_eq!(on_port(folder.path(), 2), None);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
