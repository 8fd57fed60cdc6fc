//! Signals as something to poll for.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    iterator::{
        backend::SignalDelivery,
        exfiltrator::{WithOrigin, origin::Origin},
    },
    low_level::siginfo::Cause,
};

/// Signals that are meant for the command.
const FORWARDED: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signals of this process that `run` cares for, from its creation on.
pub(crate) struct Signals(SignalDelivery<UnixStream, WithOrigin>);

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// To be passed on.
    Forward {
        /// Its number.
        signal: i32,
        /// The terminal sent it, to all processes of the group in its foreground.
        by_terminal: bool,
    },
    /// The terminal has another size.
    Resized,
    /// A child ended, stopped or goes on.
    Child,
}

impl Signals {
    /// Begins to take them. One that was ignored stays ignored, here and in the command: that is
    /// what `nohup` asks for.
    pub(crate) fn new() -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        let ignored = ignored();
        let taken = FORWARDED
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0)
            .chain([SIGCHLD, SIGWINCH]);
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), taken)?;
        Ok(Signals(delivery))
    }

    /// Returns what came since the last call, without waiting.
    pub(crate) fn arrived(&mut self) -> Vec<Arrived> {
        self.0.pending().map(|origin| arrived(&origin)).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}

fn arrived(origin: &Origin) -> Arrived {
    match origin.signal {
        SIGCHLD => Arrived::Child,
        SIGWINCH => Arrived::Resized,
        signal => Arrived::Forward {
            signal,
            by_terminal: !matches!(origin.cause, Cause::Sent(_)),
        },
    }
}

/// Returns the signals this process ignores, as bits; nothing where the system does not tell.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}
