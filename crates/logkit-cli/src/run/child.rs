//! Starting the command: where its output goes and how signals reach it.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::OFlags,
    process::{Pid, Signal},
    termios,
};

/// What to start.
pub(crate) struct Plan {
    /// The command as typed.
    pub(crate) command: OsString,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Folder to start it in.
    pub(crate) cwd: Option<PathBuf>,
    /// Variables it gets besides ours.
    pub(crate) environment: Vec<(String, OsString)>,
    /// Where its output goes.
    pub(crate) output: Output,
}

/// Where the output of the command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Through two pipes.
    Pipes,
    /// Through a terminal of its own.
    Terminal,
    /// To our own streams, unseen by us.
    Inherited,
}

/// A started command.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// Our end of its terminal.
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) group: Group,
}

/// The process group of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Its own.
    Own,
    /// Ours, which the terminal has in its foreground: so the command may read from the terminal,
    /// and the terminal's signals reach it without us.
    Shared,
}

/// Starts the command.
pub(crate) fn start(plan: &Plan) -> io::Result<Started> {
    match spawn(plan, command(plan, &plan.command, &plan.args)) {
        // A script without a first line that says what runs it: shells run it themselves.
        Err(error) if error.raw_os_error() == Some(8) && is_text(plan) => {
            let script = find(plan).unwrap_or_else(|| PathBuf::from(&plan.command));
            let args = std::iter::once(script.into_os_string()).chain(plan.args.iter().cloned());
            let args: Vec<OsString> = args.collect();
            spawn(plan, command(plan, OsStr::new("/bin/sh"), &args))
        }
        result => result,
    }
}

fn command(plan: &Plan, program: &OsStr, args: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command.envs(plan.environment.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &plan.cwd {
        command.current_dir(cwd);
    }
    command
}

fn spawn(plan: &Plan, mut command: Command) -> io::Result<Started> {
    if plan.output == Output::Terminal {
        return spawn_in_terminal(command);
    }
    if plan.output == Output::Pipes {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let group = if in_foreground() {
        Group::Shared
    } else {
        Group::Own
    };
    if group == Group::Own {
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    Ok(Started {
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
        child,
        terminal: None,
        group,
    })
}

fn spawn_in_terminal(command: Command) -> io::Result<Started> {
    let (terminal, inner) = pty_process::blocking::open().map_err(plain)?;
    // It looks and behaves like the terminal it stands for.
    if let Ok(settings) = termios::tcgetattr(io::stdin()) {
        termios::tcsetattr(&inner, termios::OptionalActions::Now, &settings)?;
    }
    termios::tcsetwinsize(&terminal, size())?;
    let mut command = pty_process::blocking::Command::from(command);
    // Errors that go elsewhere go on going there.
    let apart = !termios::isatty(io::stderr());
    if apart {
        command = command.stderr(Stdio::piped());
    }
    let mut child = command.spawn(inner).map_err(plain)?;
    let terminal = OwnedFd::from(terminal);
    let flags = rustix::fs::fcntl_getfl(&terminal)?;
    rustix::fs::fcntl_setfl(&terminal, flags | OFlags::NONBLOCK)?;
    Ok(Started {
        stdout: None,
        stderr: child.stderr.take().map(OwnedFd::from),
        child,
        terminal: Some(terminal),
        group: Group::Own,
    })
}

/// Returns the size of our terminal, or the usual one if we have none.
fn size() -> termios::Winsize {
    termios::tcgetwinsize(io::stdout())
        .ok()
        .filter(|size| size.ws_col > 0)
        .unwrap_or(termios::Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        })
}

/// Returns the error with the number of the system in it.
fn plain(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
    }
}

impl Started {
    /// Sends a signal to the command: to its whole group, where that is not also ours.
    pub(crate) fn send(&self, signal: i32) {
        let (Some(pid), Some(signal)) = (
            Pid::from_raw(self.child.id() as i32),
            Signal::from_named_raw(signal),
        ) else {
            return;
        };
        // A process that has ended needs no signal.
        let _ = match self.group {
            Group::Own => rustix::process::kill_process_group(pid, signal),
            Group::Shared => rustix::process::kill_process(pid, signal),
        };
    }
}

/// Tells whether a terminal has our process group in its foreground.
pub(crate) fn in_foreground() -> bool {
    File::open("/dev/tty")
        .and_then(|terminal| Ok(termios::tcgetpgrp(&terminal)?))
        .is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Returns the file that the command names, as the system would find it.
pub(crate) fn find(plan: &Plan) -> Option<PathBuf> {
    let bytes = plan.command.as_encoded_bytes();
    if bytes.contains(&b'/') {
        let path = Path::new(&plan.command);
        return Some(match &plan.cwd {
            Some(cwd) => cwd.join(path),
            None => path.to_owned(),
        });
    }
    let given = plan.environment.iter().find(|(name, _)| name == "PATH");
    let path = given
        .map(|(_, value)| value.clone())
        .or_else(llmsrv_config::search_path)?;
    path.as_encoded_bytes()
        .split(|byte| *byte == b':')
        .filter_map(|folder| Some(Path::new(std::str::from_utf8(folder).ok()?).join(&plan.command)))
        .find(|file| fs::metadata(file).is_ok_and(|facts| facts.is_file()))
}

fn is_text(plan: &Plan) -> bool {
    let mut start = Vec::new();
    find(plan)
        .and_then(|file| File::open(file).ok())
        .and_then(|file| file.take(512).read_to_end(&mut start).ok())
        .is_some()
        && !start.contains(&0)
}
