//! Entries to a logkit service elsewhere.

use std::{borrow::Cow, time::Duration};

use crate::{
    Entry, Sink, SinkError,
    net::{
        http::{Endpoint, ORIGIN},
        outbox::{Courier, DeliveryCounts, Failure, Outbox, hand_on_to_outbox},
        service::{self, RemoteOptions},
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

impl RemoteSink {
    /// Sends to the service at `url`, `http://host:8080`; nothing is sent before the first entry.
    ///
    /// ```no_run
    /// use logkit::{Logger, RemoteOptions, RemoteSink};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// let options = RemoteOptions { api_key: Some("k-123".into()), ..RemoteOptions::default() };
    /// let sink = RemoteSink::new("http://127.0.0.1:8080", &options)?;
    /// let logger = Logger::builder().sink(sink).build();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Other`] if the address is not one of HTTP with a host, or the key has characters
    /// that cannot be sent.
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
        Ok(RemoteSink {
            outbox: Outbox::new(Batches { endpoint }, options.limits()),
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

    hand_on_to_outbox!();

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

    fn deliver(&mut self, entries: &[String], timeout: Duration) -> Result<(), Failure> {
        service::deliver(entries, &mut |part| self.send(part, timeout))
    }
}

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
}
