//! Alerts to a chat service, or to anything that takes JSON.

mod payload;

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Entry, Level, Redactor, Sink, SinkError,
    net::{
        http::Endpoint,
        outbox::{Courier, DeliveryCounts, Failure, Limits, Outbox, hand_on_to_outbox},
    },
};

pub use payload::WebhookFormat;

/// Posts entries of some levels to an address.
///
/// At most 1,000 alerts wait; one that fails is sent again after 1, 2, 4 and 8 seconds, or when the
/// service wants it. Of alerts with the same function, type of error and place one goes out in 60
/// seconds, and the next says how many were left out. The address is a secret: nothing tells it.
#[derive(Debug)]
pub struct WebhookSink {
    levels: Vec<Level>,
    format: WebhookFormat,
    redactor: Arc<Redactor>,
    groups: Groups,
    outbox: Outbox<Post>,
}

/// How a [`WebhookSink`] works.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Levels that are announced: ERROR unless set.
    pub levels: Vec<Level>,
    /// Sent with each request beside the content type.
    pub headers: Vec<(String, String)>,
    /// How long one request may take: 5 s unless set.
    pub timeout: Duration,
    /// What is sent; `None` = by the host, else as for Slack.
    pub format: Option<WebhookFormat>,
    /// Equal alerts are not sent more often: 60 s unless set.
    pub quiet: Duration,
    /// Wait after the first failure, which doubles three times: 1 s unless set.
    pub retry: Duration,
}

impl Default for WebhookOptions {
    fn default() -> WebhookOptions {
        WebhookOptions {
            levels: vec![Level::Error],
            headers: Vec::new(),
            timeout: Duration::from_secs(5),
            format: None,
            quiet: Duration::from_mins(1),
            retry: Duration::from_secs(1),
        }
    }
}

impl WebhookSink {
    /// Checks the address; nothing is sent before the first alert.
    ///
    /// ```no_run
    /// use logkit::{Level, Logger, WebhookOptions, WebhookSink};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// let options = WebhookOptions {
    ///     levels: vec![Level::Error, Level::Critical],
    ///     ..WebhookOptions::default()
    /// };
    /// let sink = WebhookSink::new("https://hooks.example.com/T0/B0", options)?;
    /// let logger = Logger::builder().sink(sink).build();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Other`] if the address is not one of HTTP with a host, or a header cannot be sent.
    pub fn new(url: &str, options: WebhookOptions) -> Result<WebhookSink, SinkError> {
        let wrong = |error| SinkError::Other(format!("the web hook cannot be used: {error}"));
        let mut endpoint = Endpoint::new(url)
            .and_then(|endpoint| endpoint.header("content-type", "application/json"))
            .map_err(wrong)?;
        for (name, value) in &options.headers {
            endpoint = endpoint.header(name, value).map_err(wrong)?;
        }
        let format = options
            .format
            .unwrap_or_else(|| WebhookFormat::of_host(endpoint.host()));
        let limits = Limits {
            max_items: 1000,
            batch_items: 1,
            linger: Duration::ZERO,
            timeout: options.timeout,
            impatient: true,
            pace: options.retry,
            ..Limits::default()
        };
        Ok(WebhookSink {
            levels: options.levels,
            format,
            redactor: Redactor::shared(),
            groups: Groups::new(options.quiet),
            outbox: Outbox::new(Post { endpoint }, limits),
        })
    }

    /// Counts of alerts sent and lost.
    pub fn counts(&self) -> DeliveryCounts {
        self.outbox.counts()
    }
}

impl WebhookSink {
    /// The alerts for entries that come at a moment, each with its size in bytes.
    fn alerts(&mut self, entries: &[Entry], now: Instant) -> Vec<(Vec<u8>, usize)> {
        let mut alerts = Vec::new();
        for entry in entries {
            if !self.levels.contains(&entry.level) {
                continue;
            }
            if let Some(n_suppressed) = self.groups.admit(entry, now) {
                let payload =
                    payload::render(entry, self.format, n_suppressed, &self.redactor).into_bytes();
                let n_bytes = payload.len();
                alerts.push((payload, n_bytes));
            }
        }
        alerts
    }
}

impl Sink for WebhookSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let alerts = self.alerts(entries, Instant::now());
        self.outbox.push(alerts)
    }

    /// Nothing that comes later matters here.
    fn can_update(&self) -> bool {
        true
    }

    hand_on_to_outbox!();

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("webhook")
    }
}

#[derive(Debug)]
struct Post {
    endpoint: Endpoint,
}

impl Courier for Post {
    type Item = Vec<u8>;

    fn deliver(&mut self, payloads: &[Vec<u8>], timeout: Duration) -> Result<(), Failure> {
        for payload in payloads {
            let answer = self.endpoint.post(&[], payload, timeout, MAX_ANSWER);
            Failure::of(&self.endpoint, answer)?;
        }
        Ok(())
    }
}

/// Of what a service answers that much is read, so that the connection can be used again.
const MAX_ANSWER: usize = 64 << 10;
/// Kinds of alerts remembered.
const MAX_GROUPS: usize = 1000;

/// When which kind of alert was last sent.
#[derive(Debug)]
struct Groups {
    quiet: Duration,
    sent: HashMap<u128, Sent>,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    n_suppressed: u64,
}

impl Groups {
    fn new(quiet: Duration) -> Groups {
        Groups {
            quiet,
            sent: HashMap::new(),
        }
    }

    /// How many like this were left out since the last one was sent; `None` if this one is left out
    /// too.
    fn admit(&mut self, entry: &Entry, now: Instant) -> Option<u64> {
        let key = group_of(entry);
        if let Some(sent) = self.sent.get_mut(&key) {
            if now.duration_since(sent.at) < self.quiet {
                sent.n_suppressed += 1;
                return None;
            }
            sent.at = now;
            return Some(std::mem::take(&mut sent.n_suppressed));
        }
        if self.sent.len() >= MAX_GROUPS {
            let quiet = self.quiet;
            self.sent
                .retain(|_, sent| sent.n_suppressed > 0 || now.duration_since(sent.at) < quiet);
        }
        if self.sent.len() >= MAX_GROUPS
            && let Some(oldest) = self
                .sent
                .iter()
                .min_by_key(|(_, sent)| sent.at)
                .map(|(key, _)| *key)
        {
            self.sent.remove(&oldest);
        }
        let n_suppressed = 0;
        self.sent.insert(
            key,
            Sent {
                at: now,
                n_suppressed,
            },
        );
        Some(n_suppressed)
    }
}

/// Function, type of the error and the frame it happened in.
fn group_of(entry: &Entry) -> u128 {
    let frame = top_frame(&entry.traceback);
    crate::net::fingerprint([&*entry.function_name, &*entry.exception_type, frame])
}

/// The innermost frame: the last line that names a place.
fn top_frame(traceback: &str) -> &str {
    traceback
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| line.starts_with("File ") || line.starts_with("at "))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(function: &str, line: u32) -> Entry {
        Entry {
            level: Level::Error,
            function_name: function.to_owned().into(),
            exception_type: "ValueError".into(),
            traceback: format!("Traceback:\n  File \"x.py\", line {line}, in f\n    f()\n").into(),
            ..Entry::default()
        }
    }

    #[test]
    fn equal_alerts_are_sent_once_in_a_while() {
        let mut groups = Groups::new(Duration::from_mins(1));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(groups.admit(&error("f", 1), start), Some(0));
        assert_eq!(groups.admit(&error("f", 1), after(1)), None);
        assert_eq!(groups.admit(&error("f", 2), after(2)), Some(0));
        assert_eq!(groups.admit(&error("g", 1), after(2)), Some(0));
        assert_eq!(groups.admit(&error("f", 1), after(59)), None);
        assert_eq!(groups.admit(&error("f", 1), after(60)), Some(2));
        assert_eq!(groups.admit(&error("f", 1), after(61)), None);
        assert_eq!(groups.admit(&error("f", 1), after(121)), Some(1));
    }

    #[test]
    fn equal_alerts_are_counted_in_the_next_one() {
        let options = WebhookOptions {
            format: Some(WebhookFormat::Raw),
            ..WebhookOptions::default()
        };
        let quiet = options.quiet;
        let mut sink = WebhookSink::new("http://127.0.0.1:9", options).unwrap();
        let start = Instant::now();
        let mut sent = |n: usize, now| {
            let alerts = sink.alerts(&vec![error("f", 1); n], now);
            let values = alerts.iter().map(|(payload, n_bytes)| {
                assert_eq!(payload.len(), *n_bytes);
                serde_json::from_slice(payload).unwrap()
            });
            values.collect::<Vec<serde_json::Value>>()
        };
        let first = sent(50, start);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].get("extra"), None);
        let next = sent(1, start + quiet);
        assert_eq!(next.len(), 1);
        assert_eq!(next[0]["extra"]["suppressed"], 49);
    }

    #[test]
    fn the_memory_of_alerts_is_bounded() {
        let mut groups = Groups::new(Duration::from_mins(1));
        let start = Instant::now();
        for n in 0..3000 {
            groups.admit(&error("f", n), start + Duration::from_millis(n.into()));
        }
        assert_eq!(groups.sent.len(), MAX_GROUPS);
        let later = start + Duration::from_secs(30);
        assert_eq!(groups.admit(&error("f", 2999), later), None);
        assert_eq!(groups.admit(&error("f", 0), later), Some(0));
    }
}
