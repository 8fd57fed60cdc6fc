//! How often and how soon something that failed is tried again.

use std::time::Duration;

use crate::{Error, Tuning, error::Retry};

/// Counts failures in a row.
pub(crate) struct Backoff<'a> {
    tuning: &'a Tuning,
    failures: u32,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(tuning: &'a Tuning) -> Backoff<'a> {
        Backoff {
            tuning,
            failures: 0,
        }
    }

    /// Something came: failures before it do not count.
    pub(crate) fn renew(&mut self) {
        self.failures = 0;
    }

    /// Waits until it is time to try again, or gives the error back.
    pub(crate) async fn after(&mut self, error: Error) -> Result<(), Error> {
        let asked = match error.retry() {
            Retry::Never => return Err(error),
            Retry::Free => {
                tracing::debug!(%error, "a transfer is begun again");
                return Ok(());
            }
            Retry::After(asked) => asked,
        };
        if self.failures >= self.tuning.retries {
            return Err(error);
        }
        let pause = self.tuning.backoff * 2_u32.saturating_pow(self.failures.min(6));
        // Clients that failed together must not come back together.
        let pause = pause.mul_f64(rand::random_range(0.75..1.25));
        let pause = asked.map_or(pause, |asked| asked.min(LONGEST_PAUSE));
        self.failures += 1;
        tracing::debug!(%error, ?pause, "a transfer is tried again");
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// However long a registry asks us to wait.
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
