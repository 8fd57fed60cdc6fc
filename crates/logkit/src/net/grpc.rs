//! Entries to a logkit service elsewhere, over gRPC.

use std::{borrow::Cow, fmt, time::Duration};

use logkit_proto::{
    tonic::{
        Code, Request, Status,
        metadata::MetadataValue,
        transport::{Channel, ClientTlsConfig, Endpoint},
    },
    v1::{BatchLogRequest, LogRequest, Record, logkit_logger_client::LogkitLoggerClient},
};
use tokio::runtime::Runtime;
use url::Url;

use super::{
    outbox::{Courier, DeliveryCounts, Failure, Outbox, hand_on_to_outbox},
    service::{self, RemoteOptions},
};
use crate::{Entry, Sink, SinkError};

/// Sends entries in batches to `BatchLog` of a logkit service, all fields of them.
///
/// At most 20,000 entries or 32 MiB wait; the oldest go when there is no room. A service that is
/// away is asked again and again. Each entry arrives at least once: if an answer is lost its batch
/// is sent again.
#[derive(Debug)]
pub struct GrpcSink {
    outbox: Outbox<Batches>,
}

impl GrpcSink {
    /// Sends to the service at `grpc://host:50051`, or at `grpcs://host:50051` over TLS;
    /// `grpc://:KEY@host` sends the key KEY. Nothing is sent before the first entry.
    ///
    /// ```no_run
    /// use logkit::{GrpcSink, Logger, RemoteOptions};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// let sink = GrpcSink::new("grpcs://logs.example.com", &RemoteOptions::default())?;
    /// let logger = Logger::builder().sink(sink).build();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Other`] if the address is no such one or has a path, the key has characters that
    /// cannot be sent, or the system's certificates cannot be used.
    pub fn new(url: &str, options: &RemoteOptions) -> Result<GrpcSink, SinkError> {
        let service = Batches::new(url, options)
            .map_err(|why| SinkError::Other(format!("the service cannot be used: {why}")))?;
        Ok(GrpcSink {
            outbox: Outbox::new(service, options.limits()),
        })
    }

    /// Counts of entries sent and lost.
    pub fn counts(&self) -> DeliveryCounts {
        self.outbox.counts()
    }
}

impl Sink for GrpcSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.outbox.push(entries.iter().map(|entry| {
            let request = LogRequest {
                record: Some(record(entry)),
                ..LogRequest::default()
            };
            // The empty fields of a message take room too, but only in memory.
            (request, size_of::<LogRequest>() + entry.size_bytes())
        }))
    }

    hand_on_to_outbox!();

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("grpc")
    }
}

fn record(entry: &Entry) -> Record {
    let id = |id: Option<crate::SpanId>| id.map_or_else(String::new, |id| id.to_string());
    Record {
        timestamp_us: entry.timestamp.micros(),
        level: entry.level.as_str().to_owned(),
        function_name: entry.function_name.to_string(),
        module: entry.module.to_string(),
        args: entry.args.to_string(),
        kwargs: entry.kwargs.to_string(),
        arg_types: entry.arg_types.to_string(),
        kwarg_types: entry.kwarg_types.to_string(),
        return_value: entry.return_value.to_string(),
        return_type: entry.return_type.to_string(),
        exception: entry.exception.to_string(),
        exception_type: entry.exception_type.to_string(),
        traceback: entry.traceback.to_string(),
        duration_ms: entry.duration_ms,
        environment: entry.environment.to_string(),
        trace_id: entry.trace_id.to_string(),
        version: entry.version.to_string(),
        llm_analysis: entry.llm_analysis.to_string(),
        extra: if entry.extra.is_empty() {
            String::new()
        } else {
            serde_json::to_string(&entry.extra).unwrap_or_default()
        },
        span_id: id(entry.span_id),
        parent_id: id(entry.parent_id),
    }
}

/// The service, and the one connection to it.
struct Batches {
    endpoint: Endpoint,
    /// Scheme, host and port: what messages may say of the address.
    place: String,
    authorization: Option<MetadataValue<logkit_proto::tonic::metadata::Ascii>>,
    /// Made at the first batch, on the thread that sends.
    connection: Option<(Runtime, LogkitLoggerClient<Channel>)>,
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batches({})", self.place)
    }
}

impl Courier for Batches {
    type Item = LogRequest;

    fn deliver(&mut self, entries: &[LogRequest], timeout: Duration) -> Result<(), Failure> {
        service::deliver(entries, &mut |part| self.send(part, timeout))
    }
}

const PORT: u16 = 50051;

impl Batches {
    fn new(url: &str, options: &RemoteOptions) -> Result<Batches, String> {
        let shape = || "write grpc://host:port, or grpcs://host:port for TLS".to_owned();
        let url = Url::parse(url.trim()).map_err(|_| shape())?;
        let scheme = match url.scheme() {
            "grpc" => "http",
            "grpcs" => "https",
            _ => return Err(shape()),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(shape)?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err("its address has no path".to_owned());
        }
        let port = url.port().unwrap_or(PORT);
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}:{port}"))
            .map_err(|_| shape())?
            .connect_timeout(options.timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        if scheme == "https" {
            llmsrv_tls::init();
            endpoint = endpoint
                .tls_config(ClientTlsConfig::new().with_native_roots())
                .map_err(|error| format!("TLS: {error}"))?;
        }
        let in_url = url.password().map(super::percent_decode);
        let authorization = in_url
            .or_else(|| options.api_key.clone())
            .map(|key| {
                let mut value: MetadataValue<_> = format!("Bearer {key}")
                    .parse()
                    .map_err(|_| "the key has characters that cannot be sent".to_owned())?;
                value.set_sensitive(true);
                Ok::<_, String>(value)
            })
            .transpose()?;
        Ok(Batches {
            endpoint,
            place: format!("{}://{host}:{port}", url.scheme()),
            authorization,
            connection: None,
        })
    }

    fn send(&mut self, entries: &[LogRequest], timeout: Duration) -> Result<(), Failure> {
        let place = &self.place;
        let (runtime, client) = match &mut self.connection {
            Some(connection) => connection,
            none => {
                // A thread beside this one answers the pings of the service between two batches.
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("logkit-grpc")
                    .enable_all()
                    .build()
                    .map_err(|error| Failure::Away {
                        why: format!("no thread: {error}"),
                        after: None,
                    })?;
                let channel = {
                    let _inside = runtime.enter();
                    self.endpoint.connect_lazy()
                };
                none.insert((runtime, LogkitLoggerClient::new(channel)))
            }
        };
        let mut request = Request::new(BatchLogRequest {
            entries: entries.to_vec(),
        });
        request.set_timeout(timeout);
        let metadata = request.metadata_mut();
        // A server that logs with this very sink must not log this as a call.
        metadata.insert("x-logkit-origin", MetadataValue::from_static("sink"));
        if let Some(key) = &self.authorization {
            metadata.insert("authorization", key.clone());
        }
        let answer = runtime.block_on(async {
            match tokio::time::timeout(timeout, client.batch_log(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Status::deadline_exceeded(format!(
                    "no answer within {} ms",
                    timeout.as_millis()
                ))),
            }
        });
        let n_stored = match answer {
            Ok(answer) => answer.into_inner().stored.max(0) as u64,
            Err(status) => return Err(judge(place, &status)),
        };
        let n_lost = (entries.len() as u64).saturating_sub(n_stored);
        if n_lost > 0 {
            return Err(Failure::Refused {
                n_items: n_lost,
                why: format!("{place} did not store them"),
            });
        }
        Ok(())
    }
}

/// Finds out that the other end is gone while nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

fn judge(place: &str, status: &Status) -> Failure {
    // What a peer says is cut: it ends in a message of ours.
    let said: String = status.message().chars().take(200).collect();
    let why = format!("{place} answered {:?}: {said}", status.code());
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => {
            Failure::Never { why }
        }
        // A wrong key or address: smaller batches would not help.
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::NotFound
        | Code::Internal
        | Code::DataLoss => Failure::Later { why, after: None },
        _ => Failure::Away { why, after: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_explained_without_their_key() {
        for (url, part) in [
            ("nowhere", "write grpc://"),
            ("http://h:1", "write grpc://"),
            ("grpc://", "write grpc://"),
            ("grpc://:SECRET@h:1/path", "no path"),
            ("grpc://:SECRET%0A@h:1", "cannot be sent"),
        ] {
            let told = GrpcSink::new(url, &RemoteOptions::default())
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(told.contains(part), "{url}: {told}");
            assert!(!told.contains("SECRET"), "{told}");
        }
        let sink = Batches::new("grpcs://:a%2Bb@h", &RemoteOptions::default()).unwrap();
        assert_eq!(sink.place, "grpcs://h:50051");
        assert_eq!(sink.authorization.unwrap(), "Bearer a+b");
    }
}
