//! The life of a worker: started with one end of a socket, watched by a thread, and gone in the end, whatever it does.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream,
            process::{CommandExt as _, ExitStatusExt as _},
        },
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use llmsrv_engine::OnLoss;
use nix::{
    sys::wait::{Id, WaitPidFlag, waitid},
    unistd::Pid,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// A program and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

/// A worker that was started.
pub(crate) struct Process {
    watched: Arc<Watched>,
}

#[derive(Default)]
struct Watched {
    life: Mutex<Life>,
    ended: Condvar,
}

#[derive(Default)]
struct Life {
    /// As long as it is here its number belongs to no other process.
    child: Option<Child>,
    status: Option<ExitStatus>,
    tell: Option<OnLoss>,
}

impl Process {
    /// Starts a program that has the other end of the returned socket as its stdin.
    pub(crate) fn start(program: &Program) -> io::Result<(Process, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&program.path);
        command
            .arg0("llmsrv")
            .args(&program.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // A signal of the terminal is for the server, which lets requests finish.
            .process_group(0);
        let watched = Arc::new(Watched::default());
        let (started, outcome) = mpsc::channel();
        let own = watched.clone();
        // The system kills a worker when the thread that started it ends: so this one stays.
        thread::Builder::new()
            .name("llmsrv-worker".into())
            .spawn(move || {
                let child = command.spawn();
                // Else this process would hold the worker's end, too, and never see it close.
                drop(command);
                match child {
                    Ok(child) => {
                        let pid = Pid::from_raw(child.id().cast_signed());
                        own.life().child = Some(child);
                        let _ = started.send(Ok(()));
                        own.watch(pid);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            })?;
        outcome
            .recv()
            .map_err(|_| io::Error::other("the thread of the worker ended"))??;
        Ok((Process { watched }, ours))
    }

    /// Calls `tell` when the process has ended, at once if it has.
    pub(crate) fn on_end(&self, tell: OnLoss) {
        let mut life = self.watched.life();
        match life.status {
            None => life.tell = Some(tell),
            Some(status) => {
                drop(life);
                tell(how(status));
            }
        }
    }

    /// Waits for the end of the process for so long, then ends it. Returns how it ended; `None` = it cannot be ended,
    /// because it hangs in the kernel.
    pub(crate) fn end(&self, patience: Duration) -> Option<String> {
        let waiting = |life: &mut Life| life.status.is_none();
        let ended = &self.watched.ended;
        let mut life = self.watched.life();
        ended.wait_while_for(&mut life, waiting, patience);
        if let Some(child) = &mut life.child {
            // It may end by itself meanwhile, which is as good.
            let _ = child.kill();
        }
        ended.wait_while_for(&mut life, waiting, GRACE);
        life.status.map(how)
    }
}

impl Watched {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock()
    }

    /// Waits for the end of the process and tells of it.
    fn watch(&self, pid: Pid) {
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        // Its number stays taken until `wait`, so that nobody kills another process by it.
        while waitid(Id::Pid(pid), ended) == Err(nix::errno::Errno::EINTR) {}
        let mut life = self.life();
        life.status = life.child.take().and_then(|mut child| child.wait().ok());
        let (status, tell) = (life.status.unwrap_or_default(), life.tell.take());
        life.status = Some(status);
        drop(life);
        self.ended.notify_all();
        if let Some(tell) = tell {
            tell(how(status));
        }
    }
}

fn how(status: ExitStatus) -> String {
    let signal = status
        .signal()
        .and_then(|signal| nix::sys::signal::Signal::try_from(signal).ok());
    match signal {
        Some(signal) => format!("its process was ended by {signal}"),
        None => format!("its process ended ({status})"),
    }
}

/// How long a process that was killed may take to end.
const GRACE: Duration = Duration::from_secs(5);
