//! Connections that cannot be accepted, because there are too many open files for example.

use std::{
    io,
    time::{Duration, Instant},
};

/// Failures to accept connections, one after the other: how long to wait after each, and when to warn.
#[derive(Debug, Default)]
pub(crate) struct AcceptFailures {
    n_unreported: u64,
    reported: Option<Instant>,
    backoff: Duration,
}

impl AcceptFailures {
    /// Counts one, warns at most once in a second, and returns how long to wait before the next try.
    pub(crate) fn add(&mut self, error: &io::Error) -> Duration {
        self.add_at(error, Instant::now())
    }

    fn add_at(&mut self, error: &io::Error, now: Instant) -> Duration {
        self.n_unreported += 1;
        if self
            .reported
            .is_none_or(|reported| now - reported >= REPORT_EVERY)
        {
            tracing::warn!(%error, failures = self.n_unreported, "cannot accept connections");
            (self.reported, self.n_unreported) = (Some(now), 0);
        }
        self.backoff = (self.backoff * 2).clamp(SHORTEST_BACKOFF, REPORT_EVERY);
        self.backoff
    }

    /// One was accepted.
    pub(crate) fn end(&mut self) {
        self.backoff = Duration::ZERO;
    }
}

/// Tells whether this process, or the machine, has too many open files, so that closing some helps.
#[must_use]
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

const REPORT_EVERY: Duration = Duration::from_secs(1);
const SHORTEST_BACKOFF: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn out_of_files() -> io::Error {
        io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error())
    }

    #[test]
    fn a_minute_of_failures_is_told_in_a_line_a_second() {
        let mut failures = AcceptFailures::default();
        let began = Instant::now();
        let (mut now, mut n_tries, mut n_reports) = (began, 0, 0);
        while now - began < Duration::from_mins(1) {
            let backoff = failures.add_at(&out_of_files(), now);
            n_tries += 1;
            n_reports += u32::from(failures.n_unreported == 0);
            now += backoff;
        }
        assert!(n_reports <= 61, "{n_reports}");
        assert!(n_tries <= 70, "{n_tries}");
        failures.end();
        assert_eq!(failures.add_at(&out_of_files(), now), SHORTEST_BACKOFF);
    }

    #[test]
    fn only_files_can_be_closed() {
        assert!(is_out_of_files(&out_of_files()));
        assert!(!is_out_of_files(&io::ErrorKind::ConnectionAborted.into()));
    }
}
