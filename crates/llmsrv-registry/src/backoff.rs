//! How often and how soon something that failed is tried again.

use std::time::Duration;

use crate::{Error, Tuning, error::Retry};

/// Counts failures in a row.
pub(crate) struct Backoff<'a> {
    tuning: &'a Tuning,
    /// Another place can be asked instead.
    stands_by: bool,
    /// Nothing came since the last failure.
    is_silent: bool,
    failures: u32,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(tuning: &'a Tuning) -> Backoff<'a> {
        Backoff::beside(tuning, false)
    }

    /// As [`Backoff::new`]; if another place stands by, one that says nothing is given up at once.
    pub(crate) fn beside(tuning: &'a Tuning, stands_by: bool) -> Backoff<'a> {
        Backoff {
            tuning,
            stands_by,
            is_silent: true,
            failures: 0,
        }
    }

    /// Something came: failures before it do not count.
    pub(crate) fn renew(&mut self) {
        self.failures = 0;
        self.is_silent = false;
    }

    /// Waits until it is time to try again, or gives the error back.
    pub(crate) async fn after(&mut self, error: Error) -> Result<(), Error> {
        let said_nothing = std::mem::replace(&mut self.is_silent, true);
        let retry = error.retry();
        let is_last = match retry {
            Retry::Never => true,
            Retry::AtOnce => said_nothing && self.stands_by,
            Retry::After(_) => false,
        };
        if is_last || self.failures >= self.tuning.retries {
            return Err(error);
        }
        let pause = match retry {
            Retry::After(asked) => self.pause(asked),
            Retry::Never | Retry::AtOnce => Duration::ZERO,
        };
        self.failures += 1;
        tracing::debug!(%error, ?pause, "a transfer is tried again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn pause(&self, asked: Option<Duration>) -> Duration {
        if let Some(asked) = asked {
            return asked.min(LONGEST_PAUSE);
        }
        let pause = self.tuning.backoff * 2_u32.saturating_pow(self.failures.min(6));
        // Clients that failed together must not come back together.
        pause.mul_f64(rand::random_range(0.75..1.25))
    }
}

/// However long a registry asks us to wait.
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
