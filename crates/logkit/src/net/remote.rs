//! Entries to a logkit service elsewhere.

use std::{borrow::Cow, time::Duration};

use crate::{
    Entry, Sink, SinkError,
    net::{
        http::{Endpoint, ORIGIN},
        outbox::{Courier, DeliveryCounts, Failure, Limits, Outbox},
    },
};

/// Sends entries in batches to `POST /log/batch` of a logkit service, all fields of them.
///
/// At most 20,000 entries or 32 MiB wait; the oldest go when there is no room. A service that is
/// away is asked again and again. Each entry arrives at least once: if an answer is lost its batch
/// is sent again.
#[derive(Debug)]
pub struct RemoteSink {
    outbox: Outbox<Batches>,
}

/// How a [`RemoteSink`] works.
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

impl RemoteSink {
    /// Sends to the service at `url`, `http://host:8080`; nothing is sent before the first entry.
    pub fn new(url: &str, options: &RemoteOptions) -> Result<RemoteSink, SinkError> {
        let wrong = |error| SinkError::Other(format!("the service cannot be used: {error}"));
        let mut endpoint = Endpoint::new(url)
            .map(|endpoint| endpoint.below("log/batch"))
            .and_then(|endpoint| endpoint.header("content-type", "application/json"))
            .and_then(|endpoint| endpoint.header(ORIGIN.0, ORIGIN.1))
            .map_err(wrong)?;
        if let Some(key) = &options.api_key
            && !endpoint.has_header("authorization")
        {
            endpoint = endpoint
                .header("authorization", &format!("Bearer {key}"))
                .map_err(wrong)?;
        }
        let limits = Limits {
            linger: options.linger,
            timeout: options.timeout,
            pace: options.retry,
            ..Limits::default()
        };
        Ok(RemoteSink {
            outbox: Outbox::new(Batches { endpoint }, limits),
        })
    }

    /// Counts of entries sent and lost.
    pub fn counts(&self) -> DeliveryCounts {
        self.outbox.counts()
    }
}

impl Sink for RemoteSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.outbox.push(entries.iter().map(|entry| {
            let json = serde_json::Value::Object(entry.as_json()).to_string();
            let n_bytes = json.len();
            (json, n_bytes)
        }))
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        self.outbox.poll()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.outbox.flush()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.outbox.close()
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("remote")
    }
}

#[derive(Debug)]
struct Batches {
    endpoint: Endpoint,
}

impl Courier for Batches {
    type Item = String;

    /// One entry that the service refuses costs only itself: a refused batch is sent again in halves.
    fn deliver(&mut self, entries: &[String], timeout: Duration) -> Result<(), Failure> {
        match self.send(entries, timeout) {
            Err(Failure::Never { why }) if entries.len() > 1 => {
                let mut n_refused = 0;
                self.send_halves(entries, timeout, &mut n_refused)?;
                if n_refused == 0 {
                    Ok(())
                } else {
                    Err(Failure::Refused {
                        n_items: n_refused,
                        why,
                    })
                }
            }
            other => other,
        }
    }
}

/// Requests for the halves of one batch.
const MAX_REFUSED: u64 = 16;
const MAX_ANSWER: usize = 1 << 20;

impl Batches {
    fn send(&self, entries: &[String], timeout: Duration) -> Result<(), Failure> {
        let n_bytes: usize = entries.iter().map(|entry| entry.len() + 1).sum();
        let mut body = String::with_capacity(n_bytes + 16);
        body.push_str("{\"entries\":[");
        for (at, entry) in entries.iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            body.push_str(entry);
        }
        body.push_str("]}");
        let answer = self
            .endpoint
            .post(&[], body.as_bytes(), timeout, MAX_ANSWER);
        let about_entries = |status| matches!(status, 400 | 413 | 422);
        match answer {
            Ok(answer) if (400..500).contains(&answer.status) && !about_entries(answer.status) => {
                // A wrong key or address: smaller batches would not help.
                Err(Failure::Later {
                    why: format!("{} answered {}", self.endpoint, answer.status),
                    after: answer.retry_after,
                })
            }
            answer => Failure::of(&self.endpoint, answer).map(|_| ()),
        }
    }

    fn send_halves(
        &self,
        entries: &[String],
        timeout: Duration,
        n_refused: &mut u64,
    ) -> Result<(), Failure> {
        let (first, second) = entries.split_at(entries.len() / 2);
        for half in [first, second] {
            // A service that refuses everything is not asked about each entry.
            if *n_refused >= MAX_REFUSED {
                *n_refused += half.len() as u64;
                continue;
            }
            match self.send(half, timeout) {
                Err(Failure::Never { .. }) if half.len() > 1 => {
                    self.send_halves(half, timeout, n_refused)?;
                }
                Err(Failure::Never { .. }) => *n_refused += 1,
                other => other?,
            }
        }
        Ok(())
    }
}
