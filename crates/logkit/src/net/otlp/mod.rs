//! Entries to an OpenTelemetry collector, and through it to the stores behind it.

mod map;

use std::{
    borrow::Cow,
    io::{self, Write},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use logkit_proto::otlp::{
    ExportResponse, LogRecord, LogsRequest, Resource, ResourceLogs, ResourceSpans, Scope,
    ScopeLogs, ScopeSpans, Span, TracesRequest,
};
use prost::Message;

use crate::{
    Entry, Sink, SinkError,
    net::{
        http::{Endpoint, ORIGIN},
        outbox::{Courier, DeliveryCounts, Failure, Limits, Outbox},
    },
};

/// Sends every entry as a log record, and calls with a duration, a trace id and a span id as spans
/// too: OTLP over HTTP, protobuf in gzip.
///
/// At most 20,000 items or 32 MiB wait; the oldest go when there is no room. A collector that is
/// away is asked again and again.
#[derive(Debug)]
pub struct OtlpSink {
    logs: Outbox<Export<LogRecord>>,
    spans: Outbox<Export<Span>>,
}

/// How an [`OtlpSink`] works.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    /// `service.name`: `logkit` unless set.
    pub service: String,
    /// Sent with each request, such as a key.
    pub headers: Vec<(String, String)>,
    /// How long one request may take: 10 s unless set.
    pub timeout: Duration,
    /// How long the first entry waits for others: 1 s unless set.
    pub linger: Duration,
    /// Wait after the first failure, which doubles three times: 1 s unless set.
    pub retry: Duration,
}

impl Default for OtlpOptions {
    fn default() -> OtlpOptions {
        OtlpOptions {
            service: "logkit".into(),
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            retry: Duration::from_secs(1),
        }
    }
}

impl OtlpSink {
    /// Sends to `url` with `/v1/logs` and `/v1/traces` behind it, as collectors want it:
    /// `http://127.0.0.1:4318`.
    ///
    /// ```no_run
    /// use logkit::{Logger, OtlpOptions, OtlpSink};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// let options = OtlpOptions { service: "billing".into(), ..OtlpOptions::default() };
    /// let sink = OtlpSink::new("http://127.0.0.1:4318", &options)?;
    /// let logger = Logger::builder().sink(sink).build();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Other`] if the address is not one of HTTP with a host, or a header cannot be sent.
    pub fn new(url: &str, options: &OtlpOptions) -> Result<OtlpSink, SinkError> {
        let limits = Limits {
            linger: options.linger,
            timeout: options.timeout,
            pace: options.retry,
            ..Limits::default()
        };
        let service = options.service.clone();
        let logs = Export {
            endpoint: endpoint(url, "v1/logs", options)?,
            service: service.clone(),
            encode: encode_logs,
        };
        let spans = Export {
            endpoint: endpoint(url, "v1/traces", options)?,
            service,
            encode: encode_spans,
        };
        Ok(OtlpSink {
            logs: Outbox::new(logs, limits.clone()),
            spans: Outbox::new(spans, limits),
        })
    }

    /// Counts of log records.
    pub fn log_counts(&self) -> DeliveryCounts {
        self.logs.counts()
    }

    /// Counts of spans.
    pub fn span_counts(&self) -> DeliveryCounts {
        self.spans.counts()
    }
}

fn endpoint(url: &str, path: &str, options: &OtlpOptions) -> Result<Endpoint, SinkError> {
    let wrong = |error| SinkError::Other(format!("the collector cannot be used: {error}"));
    let mut endpoint = Endpoint::new(url).map_err(wrong)?;
    // Some are told with the path of one kind; the other one lies beside it.
    let base = endpoint.path().trim_end_matches('/');
    if let Some(base) = base
        .strip_suffix("/v1/logs")
        .or_else(|| base.strip_suffix("/v1/traces"))
    {
        let base = base.to_owned();
        endpoint = endpoint.at(&base);
    }
    endpoint = endpoint.below(path);
    let fixed = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
        // A collector that is a logkit service must not log this as a call.
        ORIGIN,
    ];
    let own = options
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()));
    for (name, value) in fixed.into_iter().chain(own) {
        endpoint = endpoint.header(name, value).map_err(wrong)?;
    }
    Ok(endpoint)
}

/// An item and the tags of its resource.
#[derive(Debug)]
struct Tagged<T> {
    environment: String,
    version: String,
    item: T,
}

impl<T: Message> Tagged<T> {
    /// With the bytes it takes.
    fn new(entry: &Entry, item: T) -> (Tagged<T>, usize) {
        // In memory the parts of a message are larger than on the wire.
        let n_bytes = 256 + 2 * item.encoded_len();
        let tagged = Tagged {
            environment: entry.environment.to_string(),
            version: entry.version.to_string(),
            item,
        };
        (tagged, n_bytes)
    }
}

impl Sink for OtlpSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let logs = self.logs.push(
            entries
                .iter()
                .map(|entry| Tagged::new(entry, map::log_record(entry))),
        );
        let spans = self.spans.push(
            entries
                .iter()
                .filter_map(|entry| Some(Tagged::new(entry, map::span(entry)?))),
        );
        logs.and(spans)
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        Ok(self.logs.poll()? | self.spans.poll()?)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.logs.flush().and(self.spans.flush())
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.spans.hurry();
        self.logs.close().and(self.spans.close())
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("otlp")
    }
}

/// Brings items of one kind to the collector.
#[derive(Debug)]
struct Export<T> {
    endpoint: Endpoint,
    service: String,
    encode: fn(&str, &[Tagged<T>]) -> Vec<u8>,
}

impl<T: Send + 'static> Courier for Export<T> {
    type Item = Tagged<T>;

    fn deliver(&mut self, items: &[Tagged<T>], timeout: Duration) -> Result<(), Failure> {
        let body =
            compress(&(self.encode)(&self.service, items)).map_err(|error| Failure::Never {
                why: error.to_string(),
            })?;
        let answer = self.endpoint.post(&[], &body, timeout, MAX_ANSWER);
        let answer = Failure::of(&self.endpoint, answer)?;
        // Anything but a message of this form is taken as "all accepted".
        let partial = ExportResponse::decode(&*answer.body)
            .ok()
            .and_then(|response| response.partial_success)
            .filter(|partial| partial.rejected > 0);
        match partial {
            None => Ok(()),
            Some(partial) => {
                let message: String = partial.error_message.chars().take(200).collect();
                Err(Failure::Refused {
                    n_items: partial.rejected as u64,
                    why: format!("{} refused them: {message}", self.endpoint),
                })
            }
        }
    }
}

const MAX_ANSWER: usize = 64 << 10;

fn compress(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

fn scope() -> Scope {
    Scope {
        name: "logkit".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

fn encode_logs(service: &str, items: &[Tagged<LogRecord>]) -> Vec<u8> {
    let resource_logs = by_resource(service, items)
        .map(|(resource, log_records)| ResourceLogs {
            resource: Some(resource),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records,
            }],
        })
        .collect();
    LogsRequest { resource_logs }.encode_to_vec()
}

fn encode_spans(service: &str, items: &[Tagged<Span>]) -> Vec<u8> {
    let resource_spans = by_resource(service, items)
        .map(|(resource, spans)| ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans,
            }],
        })
        .collect();
    TracesRequest { resource_spans }.encode_to_vec()
}

/// Neighbours with equal tags together.
fn by_resource<'a, T: Clone>(
    service: &'a str,
    items: &'a [Tagged<T>],
) -> impl Iterator<Item = (Resource, Vec<T>)> + 'a {
    items
        .chunk_by(|a, b| a.environment == b.environment && a.version == b.version)
        .map(move |chunk| {
            let resource = map::resource(service, &chunk[0].environment, &chunk[0].version);
            (
                resource,
                chunk.iter().map(|tagged| tagged.item.clone()).collect(),
            )
        })
}
