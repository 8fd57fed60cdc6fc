//! A folder of its own for each test, and the program in it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Once, atomic::AtomicBool},
    time::{Duration, Instant},
};

use logkit::{DbSink, Durability, Entry, Sink};
use serde_json::Value;

/// How long a test waits for something that should happen at once.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A temporary folder: nothing of the user's reaches the program under test.
pub(crate) struct Sandbox(tempfile::TempDir);

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        Sandbox(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path().join("logkit_logs.db")
    }

    /// The program with a cleared environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        default_signals();
        let mut command = Command::new(env!("CARGO_BIN_EXE_logkit"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&mut self.command(args))
    }

    /// The entries of the usual database, newest first.
    pub(crate) fn entries(&self) -> Vec<Value> {
        self.run(&["logs", "-n", "1000", "--json"]).json()
    }

    /// The one entry that was logged.
    pub(crate) fn entry(&self) -> Value {
        let mut entries = self.entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.remove(0)
    }

    /// Writes entries into the usual database.
    pub(crate) fn log(&self, entries: &[Entry]) {
        let mut sink = DbSink::open(self.db(), "logs", Durability::Buffered).unwrap();
        sink.write_batch(entries).unwrap();
        sink.close().unwrap();
    }
}

/// Programs under test get the default dispositions of signals, whatever started the tests: those that are
/// ignored, as under `nohup`, are inherited, and those that are caught become the default.
fn default_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let always = Arc::new(AtomicBool::new(true));
            signal_hook::flag::register_conditional_default(signal, always).unwrap();
        }
    });
}

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) bytes: Vec<u8>,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Ended {
        Ended::from(command.output().unwrap())
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }
}

/// Waits until `ready` gives something.
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(began.elapsed() < TIMEOUT, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}
