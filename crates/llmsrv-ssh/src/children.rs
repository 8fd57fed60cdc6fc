//! Programs that are run and waited for, and signals that end the waiting: every child is gone and
//! has restored the terminal before the caller goes on.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
};

use crate::Error;

/// The signals that ask for the end. While this lives they are told to whoever waits, instead of
/// ending the process in the middle of a step.
pub struct Interrupt {
    int: unix::Signal,
    term: unix::Signal,
}

impl Interrupt {
    /// Starts to listen. Needs a tokio runtime.
    pub fn listen() -> io::Result<Interrupt> {
        Ok(Interrupt {
            int: unix::signal(SignalKind::interrupt())?,
            term: unix::signal(SignalKind::terminate())?,
        })
    }

    /// Does some work, unless a signal comes. Where both are there the signal wins: Ctrl-C reaches the children
    /// as well, and what they end with is not what went wrong.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if a signal came.
    pub async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            signal = self.signal() => Err(Error::Interrupted(signal)),
            done = work => Ok(done),
        }
    }

    /// Waits for a signal; returns its number.
    async fn signal(&mut self) -> i32 {
        tokio::select! {
            _ = self.int.recv() => Signal::SIGINT as i32,
            _ = self.term.recv() => Signal::SIGTERM as i32,
        }
    }
}

/// Runs a program to its end.
pub(crate) async fn status(
    command: &mut Command,
    interrupt: &mut Interrupt,
) -> Result<ExitStatus, Error> {
    let program = command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NoClient(program.clone()),
        _ => Error::Run {
            program: program.clone(),
            source,
        },
    };
    let mut child = command.spawn().map_err(&failed)?;
    match interrupt.unless(child.wait()).await {
        Ok(status) => status.map_err(&failed),
        Err(interrupted) => {
            end(&mut child).await;
            Err(interrupted)
        }
    }
}

/// What a program that ended has written.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program to its end and keeps what it writes.
pub(crate) async fn output(
    command: &mut Command,
    interrupt: &mut Interrupt,
) -> Result<Output, Error> {
    // Files rather than pipes: what a child leaves running may keep them open.
    let mut files = [
        tempfile::tempfile().map_err(Error::Temporary)?,
        tempfile::tempfile().map_err(Error::Temporary)?,
    ];
    let copy = |file: &File| file.try_clone().map_err(Error::Temporary);
    command
        .stdin(Stdio::null())
        .stdout(copy(&files[0])?)
        .stderr(copy(&files[1])?);
    let status = status(command, interrupt).await?;
    let [stdout, stderr] = files.each_mut().map(text);
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Reads what a child wrote into a file; at most a megabyte, since hosts can write there.
pub(crate) fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.take(1 << 20).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Ends a child, politely at first: one that asks for a password has switched echoing off.
async fn end(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

const GRACE: Duration = Duration::from_secs(3);
