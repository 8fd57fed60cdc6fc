//! From the command to whoever reads, at once and in order, until the command has ended.
//!
//! One thread waits for all streams and for signals. A stream is read only when what was read
//! before is written: a slow reader slows the command, as it would without us, and memory does not
//! grow. Nothing here blocks for long, so signals are passed on while a reader sleeps.

use std::{
    io::{self, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::FileType,
    io::Errno,
    process::Signal,
    termios,
};

use super::{
    capture::{Capture, Captured},
    child::{Group, Started},
    signals::{Arrived, Signals},
};

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// Bytes that a pipe with any room takes without blocking.
const ATOMIC: usize = 4096;
/// How long a command may take to end after it was asked to.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a terminal may be silent after its command ended.
const SILENCE: Duration = Duration::from_millis(100);

/// How the command ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// It was ended because its time was over.
    pub(crate) timed_out: bool,
    /// Why output did not reach our own streams, other than that nobody wanted to read it.
    pub(crate) lost: Option<io::Error>,
}

/// Relays until the command has ended and everything it wrote is written.
pub(crate) fn relay(
    mut started: Started,
    mut signals: Signals,
    timeout: Option<Duration>,
    limit: usize,
) -> io::Result<Ended> {
    let is_terminal = started.terminal.is_some();
    let _raw = is_terminal.then(Raw::enter);
    let mut pumps = pumps(&mut started, limit)?;
    let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut timed_out = false;
    let mut status: Option<ExitStatus> = None;
    let mut last_read = Instant::now();
    loop {
        if status.is_none()
            && let Some(ended) = started.child.try_wait()?
        {
            status = Some(ended);
            deadline = None;
            last_read = Instant::now();
            for pump in &mut pumps {
                pump.source_ended();
            }
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            started.send(
                if timed_out {
                    Signal::KILL
                } else {
                    Signal::TERM
                }
                .as_raw(),
            );
            deadline = (!timed_out).then(|| now + LAST_WORDS);
            timed_out = true;
        }
        let until_silent = status.map(|_| last_read + SILENCE);
        if let Some(silent) = until_silent {
            let pending = pumps.iter().any(Pump::has_pending);
            let open = pumps
                .iter()
                .any(|pump| pump.tap.is_some() && pump.is_open());
            if !pending && (!open || now >= silent) {
                break;
            }
        }
        let wake = [deadline, until_silent].into_iter().flatten().min();
        let ready = wait(
            &pumps,
            &signals,
            wake.map(|wake| wake.saturating_duration_since(now)),
        )?;
        for (pump, ready) in pumps.iter_mut().zip(&ready) {
            if *ready && pump.step() {
                last_read = Instant::now();
            }
        }
        if started.terminal.is_some() && pumps.iter().any(Pump::is_unread) {
            // A terminal has one end of ours for output and keys. While a part of it is open, a command that
            // nobody reads from waits for ever; when it closes, the command sees its terminal go.
            started.terminal = None;
            pumps.retain(|pump| pump.stream != Stream::Stdin);
        }
        for arrived in signals.arrived() {
            match arrived {
                Arrived::Forward {
                    signal,
                    by_terminal,
                } => {
                    // What the terminal sends to our group the command has already got.
                    if !(by_terminal && started.group == Group::Shared) {
                        started.send(signal);
                    }
                }
                Arrived::Resized => {
                    if let Some(terminal) = &started.terminal
                        && let Ok(size) = termios::tcgetwinsize(io::stdout())
                    {
                        let _ = termios::tcsetwinsize(terminal, size);
                    }
                }
                Arrived::Child => {}
            }
        }
    }
    let lost = pumps.iter_mut().find_map(|pump| pump.lost.take());
    let mut captured = |from: Stream| {
        pumps
            .iter_mut()
            .filter(|pump| pump.stream == from)
            .find_map(|pump| pump.tap.take())
            .map(|tap| tap.finish(is_terminal && from == Stream::Stdout))
            .unwrap_or_default()
    };
    Ok(Ended {
        status: status.unwrap_or_else(|| ExitStatus::from_raw(0)),
        stdout: captured(Stream::Stdout),
        stderr: captured(Stream::Stderr),
        timed_out,
        lost,
    })
}

fn pumps(started: &mut Started, limit: usize) -> io::Result<Vec<Pump>> {
    let mut pumps = Vec::new();
    let tap = || Some(Capture::new(limit));
    if let Some(terminal) = &started.terminal {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        pumps.push(Pump::new(Stream::Stdout, terminal.try_clone()?, out, tap()));
        let keys = io::stdin().as_fd().try_clone_to_owned()?;
        pumps.push(Pump::new(Stream::Stdin, keys, terminal.try_clone()?, None));
    }
    if let Some(from) = started.stdout.take() {
        let to = io::stdout().as_fd().try_clone_to_owned()?;
        pumps.push(Pump::new(Stream::Stdout, from, to, tap()));
    }
    if let Some(from) = started.stderr.take() {
        let to = io::stderr().as_fd().try_clone_to_owned()?;
        pumps.push(Pump::new(Stream::Stderr, from, to, tap()));
    }
    Ok(pumps)
}

/// Waits until something can be done; tells for each pump whether it can.
fn wait(pumps: &[Pump], signals: &Signals, limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    let active: Vec<usize> = (0..pumps.len())
        .filter(|idx| pumps[*idx].waits_for().is_some())
        .collect();
    for idx in &active {
        if let Some((fd, flags)) = pumps[*idx].waits_for() {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
    }
    // One nanosecond too early would mean to turn in circles.
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = vec![false; pumps.len()];
    for (idx, fd) in active.into_iter().zip(&fds[1..]) {
        ready[idx] = !fd.revents().is_empty();
    }
    Ok(ready)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

/// One stream on its way.
struct Pump {
    stream: Stream,
    /// None once it has ended.
    from: Option<OwnedFd>,
    /// None once nobody reads there.
    to: Option<OwnedFd>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes a write may have.
    most: usize,
    /// Bytes that may still be read after the command ended.
    remaining: Option<u64>,
    tap: Option<Capture>,
    lost: Option<io::Error>,
}

impl Pump {
    fn new(stream: Stream, from: OwnedFd, to: OwnedFd, tap: Option<Capture>) -> Pump {
        let is_file = rustix::fs::fstat(&to)
            .is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile);
        let size = if stream == Stream::Stdin {
            ATOMIC
        } else {
            CHUNK
        };
        Pump {
            stream,
            from: Some(from),
            to: Some(to),
            buffer: vec![0; size].into_boxed_slice(),
            start: 0,
            end: 0,
            most: if is_file { CHUNK } else { ATOMIC },
            remaining: None,
            tap,
            lost: None,
        }
    }

    fn is_open(&self) -> bool {
        self.from.is_some()
    }

    /// Nobody reads any more what comes from a terminal.
    fn is_unread(&self) -> bool {
        self.stream == Stream::Stdout && self.to.is_none()
    }

    fn has_pending(&self) -> bool {
        // What is typed ahead of the end of a command is nobody's.
        self.start < self.end && self.stream != Stream::Stdin
    }

    fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        if self.start < self.end {
            self.to.as_ref().map(|to| (to.as_fd(), PollFlags::OUT))
        } else {
            self.from.as_ref().map(|from| (from.as_fd(), PollFlags::IN))
        }
    }

    /// Notes that the command has ended: only what is already in its pipe is its output. Others
    /// who hold the pipe open, a service it left behind, are not waited for.
    fn source_ended(&mut self) {
        if let Some(from) = &self.from
            && self.stream != Stream::Stdin
            && !termios::isatty(from)
        {
            self.remaining = rustix::io::ioctl_fionread(from).ok();
            self.close_when_drained();
        }
    }

    fn close_when_drained(&mut self) {
        if self.remaining == Some(0) {
            self.from = None;
        }
    }

    /// Does one read or one write; tells whether something was read.
    fn step(&mut self) -> bool {
        if self.start < self.end {
            self.write();
            false
        } else {
            self.read()
        }
    }

    fn read(&mut self) -> bool {
        let Some(from) = &self.from else {
            return false;
        };
        match rustix::io::read(from, &mut self.buffer[..]) {
            Ok(0) => self.end_of_source(),
            Ok(count) => {
                if let Some(tap) = &mut self.tap {
                    tap.push(&self.buffer[..count]);
                }
                (self.start, self.end) = (0, count);
                if let Some(remaining) = &mut self.remaining {
                    *remaining = remaining.saturating_sub(count as u64);
                }
                self.close_when_drained();
                return true;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // So ends a terminal whose command has gone.
            Err(_) => self.end_of_source(),
        }
        false
    }

    fn end_of_source(&mut self) {
        self.from = None;
        if self.stream == Stream::Stdin {
            // Control-D, the end of what is typed; twice, as the first may only end a line.
            let end = [4, 4];
            self.buffer[..2].copy_from_slice(&end);
            (self.start, self.end) = (0, 2);
        }
    }

    fn write(&mut self) {
        let Some(to) = &self.to else {
            return;
        };
        let end = self.end.min(self.start + self.most);
        match rustix::io::write(to, &self.buffer[self.start..end]) {
            Ok(count) => self.start += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                // The command shall see what it would see without us: nobody reads.
                if error != Errno::PIPE {
                    self.lost = Some(error.into());
                }
                self.start = self.end;
                self.from = None;
                self.to = None;
            }
        }
    }
}

/// The terminal we run in, raw as long as this lives: every key goes to the command's terminal.
struct Raw(Option<termios::Termios>);

impl Raw {
    fn enter() -> Raw {
        let Ok(saved) = termios::tcgetattr(io::stdin()) else {
            return Raw(None);
        };
        let mut raw = saved.clone();
        raw.make_raw();
        let entered = termios::tcsetattr(io::stdin(), termios::OptionalActions::Now, &raw);
        Raw(entered.ok().map(|()| saved))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(saved) = &self.0 {
            let _ = io::stdout().flush();
            let _ = termios::tcsetattr(io::stdin(), termios::OptionalActions::Drain, saved);
        }
    }
}
