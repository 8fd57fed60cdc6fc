//! What the sinks have in common that send entries to another logkit service.

use std::time::Duration;

use super::outbox::{Failure, Limits};

/// How a sink works that sends entries to a logkit service elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Key that the service asks for; the address may hold it too: `http://:KEY@host:8080`.
    pub api_key: Option<String>,
    /// How long one request may take: 10 s unless set.
    pub timeout: Duration,
    /// How long the first entry waits for others: 200 ms unless set.
    pub linger: Duration,
    /// Wait after the first failure, which doubles three times: 1 s unless set.
    pub retry: Duration,
}

impl Default for RemoteOptions {
    fn default() -> RemoteOptions {
        RemoteOptions {
            api_key: None,
            timeout: Duration::from_secs(10),
            linger: Duration::from_millis(200),
            retry: Duration::from_secs(1),
        }
    }
}

impl RemoteOptions {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            linger: self.linger,
            timeout: self.timeout,
            pace: self.retry,
            ..Limits::default()
        }
    }
}

/// Sends a batch. One entry that the service refuses costs only itself: a refused batch is sent
/// again in halves.
pub(crate) fn deliver<I>(
    items: &[I],
    send: &mut impl FnMut(&[I]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match send(items) {
        Err(Failure::Never { why }) if items.len() > 1 => {
            let mut n_refused = 0;
            halves(items, send, &mut n_refused)?;
            match n_refused {
                0 => Ok(()),
                n_items => Err(Failure::Refused { n_items, why }),
            }
        }
        other => other,
    }
}

/// Entries of one batch that are asked about one by one.
const MAX_REFUSED: u64 = 16;

fn halves<I>(
    items: &[I],
    send: &mut impl FnMut(&[I]) -> Result<(), Failure>,
    n_refused: &mut u64,
) -> Result<(), Failure> {
    let (first, second) = items.split_at(items.len() / 2);
    for half in [first, second] {
        // A service that refuses everything is not asked about each entry.
        if *n_refused >= MAX_REFUSED {
            *n_refused += half.len() as u64;
            continue;
        }
        match send(half) {
            Err(Failure::Never { .. }) if half.len() > 1 => halves(half, send, n_refused)?,
            Err(Failure::Never { .. }) => *n_refused += 1,
            Err(Failure::Refused { n_items, .. }) => *n_refused += n_items,
            other => other?,
        }
    }
    Ok(())
}
