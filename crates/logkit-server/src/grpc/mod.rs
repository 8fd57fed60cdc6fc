//! The gRPC service.

mod convert;

use std::{pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    middleware::{self, Next},
};
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header};
use http_front::{Share, strip_bearer};
use logkit::{Entry, query::Filter};
use logkit_proto::{
    codec::ENTRY_BYTES,
    v1::{
        BatchLogRequest, BatchLogResponse, LogRequest, LogResponse, QueryRequest, QueryResponse,
        logkit_logger_server::{LogkitLogger, LogkitLoggerServer},
    },
};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::{
    Code, Request, Response, Status, Streaming, codec::CompressionEncoding, service::Routes,
};

use crate::{
    body::{grow, read_message},
    guard::Guard,
    metrics::Metrics,
    refusal::Refusal,
    store::{Pending, Store, StoreError},
};
use convert::{entry_of, filter_of, log_entry};

/// Limit of a message.
const MESSAGE_BYTES: usize = 16 << 20;

/// Bytes of an answer after which the rest is for another one.
const ANSWER_BYTES: usize = 15 << 20;
/// What a message adds to each of its entries.
const ENVELOPE_BYTES: usize = 16;

/// The services: ours, health and reflection.
pub(crate) async fn router(store: Store, guard: Arc<Guard>, metrics: Arc<Metrics>) -> Router {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<LogkitLoggerServer<Service>>().await;
    let streams = Arc::new(Semaphore::new(MAX_STREAMS));
    let service = |n_bytes| {
        LogkitLoggerServer::new(Service {
            store: store.clone(),
            metrics: metrics.clone(),
            streams: streams.clone(),
        })
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(n_bytes)
        .max_encoding_message_size(MESSAGE_BYTES)
    };
    let mut routes = Routes::new(service(MESSAGE_BYTES)).add_service(health_service);
    let descriptors = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(logkit_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Clients of both versions are about.
    if let (Ok(v1), Ok(v1alpha)) = (descriptors().build_v1(), descriptors().build_v1alpha()) {
        routes = routes.add_service(v1).add_service(v1alpha);
    }
    let enter = middleware::from_fn(move |request, next| enter(guard.clone(), request, next));
    routes
        .into_axum_router()
        // What its messages take is counted when they are there, so each is small.
        .route_service(STREAM, service(ENTRY_BYTES))
        .layer(enter)
}

/// Lets in who may call, and receives the message of a call before it is decoded.
async fn enter(
    guard: Arc<Guard>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let headers = request.headers();
    // No client of gRPC says which page it is; the browser of a page that was led here does.
    if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Status::permission_denied("web pages may not call").into_http();
    }
    let path = request.uri().path();
    if guard.has_keys() && !path.starts_with(HEALTH) && !has_key(&guard, headers) {
        let text = "send an API key in the metadata `authorization`";
        return Status::unauthenticated(text).into_http();
    }
    if !path.starts_with(OURS) || path == STREAM {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let (message, _share) = match read_message(&parts.headers, body, MESSAGE_BYTES).await {
        Ok(received) => received,
        Err(refusal) => return refused(&refusal).into_http(),
    };
    // The share is kept until all that was made of the message is gone.
    next.run(http::Request::from_parts(parts, message.into()))
        .await
}

fn has_key(guard: &Guard, headers: &HeaderMap) -> bool {
    let mut names = ["authorization", "x-api-key"].iter();
    let given = names.find_map(|name| headers.get(*name));
    // Metadata needs no scheme.
    let key = |value: &[u8]| guard.is_key(strip_bearer(value).unwrap_or(value));
    given.is_some_and(|value| key(value.as_bytes()))
}

fn refused(refusal: &Refusal) -> Status {
    let code = match refusal.status {
        // As tonic says it of messages: it is in vain to send this again.
        StatusCode::PAYLOAD_TOO_LARGE => Code::OutOfRange,
        StatusCode::SERVICE_UNAVAILABLE => Code::ResourceExhausted,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::Unimplemented,
        _ => Code::InvalidArgument,
    };
    Status::new(code, refusal.text())
}

/// Where calls of each service go.
const OURS: &str = "/logkit.LogkitLogger/";
const STREAM: &str = "/logkit.LogkitLogger/StreamLog";
const HEALTH: &str = "/grpc.health.";
/// Streams at the same time, each with one message.
const MAX_STREAMS: usize = 256;

/// Answers calls.
pub(crate) struct Service {
    store: Store,
    metrics: Arc<Metrics>,
    streams: Arc<Semaphore>,
}

impl Service {
    fn counted<T>(
        &self,
        method: &'static str,
        answer: Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.metrics.call(method, code);
        answer.map(Response::new)
    }

    async fn store(&self, requests: Vec<LogRequest>) -> Result<Vec<LogResponse>, Status> {
        if requests.len() > self.store.max_batch() {
            let most = self.store.max_batch();
            return Err(Status::invalid_argument(format!(
                "a batch may have at most {most} entries"
            )));
        }
        let n_bytes: usize = requests.iter().map(LogRequest::encoded_len).sum();
        let entries = if n_bytes <= INLINE_BYTES {
            entries_of(requests, &self.store)
        } else {
            let store = self.store.clone();
            let made = http_front::run_in_background(move || entries_of(requests, &store));
            made.await
                .map_err(|_| Status::internal("the request could not be handled"))?
        }?;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let stamps: Vec<String> = stamps(&entries);
        let first_id = self.store.write(entries).await.map_err(status)?;
        self.metrics.stored(stamps.len());
        Ok(replies(first_id, stamps))
    }
}

/// The entries of requests, blanked.
fn entries_of(requests: Vec<LogRequest>, store: &Store) -> Result<Vec<Entry>, Status> {
    let is_batch = requests.len() > 1;
    let requests = requests.into_iter().enumerate();
    let entries = requests.map(|(idx, request)| {
        let mut entry = entry_of(request, store.redactor()).map_err(|why| {
            Status::invalid_argument(if is_batch {
                format!("entries[{idx}].{why}")
            } else {
                why
            })
        })?;
        store.redact(&mut entry);
        Ok(entry)
    });
    entries.collect()
}

/// Requests up to that size are handled at once; larger ones off the threads that answer.
const INLINE_BYTES: usize = 64 << 10;

fn stamps(entries: &[Entry]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| entry.timestamp.to_string())
        .collect()
}

fn replies(first_id: i64, stamps: Vec<String>) -> Vec<LogResponse> {
    let rows = (first_id..).zip(stamps);
    rows.map(|(id, timestamp)| LogResponse {
        stored: true,
        id: id.to_string(),
        timestamp,
    })
    .collect()
}

#[tonic::async_trait]
impl LogkitLogger for Service {
    async fn log_call(
        &self,
        request: Request<LogRequest>,
    ) -> Result<Response<LogResponse>, Status> {
        let replies = self.store(vec![request.into_inner()]).await;
        let reply = replies.map(|mut replies| replies.pop().unwrap_or_default());
        self.counted("LogCall", reply)
    }

    async fn batch_log(
        &self,
        request: Request<BatchLogRequest>,
    ) -> Result<Response<BatchLogResponse>, Status> {
        let results = self.store(request.into_inner().entries).await;
        let answer = results.map(|results| BatchLogResponse {
            stored: results.len() as i32,
            results,
        });
        self.counted("BatchLog", answer)
    }

    type StreamLogStream = Pin<Box<dyn Stream<Item = Result<LogResponse, Status>> + Send>>;

    async fn stream_log(
        &self,
        request: Request<Streaming<LogRequest>>,
    ) -> Result<Response<Self::StreamLogStream>, Status> {
        let store = self.store.clone();
        let metrics = self.metrics.clone();
        let Ok(place) = self.streams.clone().try_acquire_owned() else {
            let full = Status::resource_exhausted("too many streams are open; try again");
            return self.counted("StreamLog", Err(full));
        };
        let begin = (request.into_inner(), place);
        let replies = stream::unfold(begin, |(mut requests, place)| async move {
            let chunk = chunk(&mut requests).await?;
            Some((chunk, (requests, place)))
        });
        let replies = replies
            // One after the other, so that rows have the order of the stream ...
            .then(move |chunk| push(store.clone(), chunk))
            // ... while the commits of some overlap.
            .map(committed)
            .buffered(IN_FLIGHT)
            .flat_map(move |(replies, end)| {
                metrics.stored(replies.len());
                let replies = replies.into_iter().map(Ok);
                stream::iter(replies.chain(end.map(Err)))
            });
        // Nothing follows an error.
        let replies = replies.scan(false, |ended, reply| {
            let item = (!*ended).then_some(reply);
            *ended |= item.as_ref().is_some_and(Result::is_err);
            std::future::ready(item)
        });
        self.counted("StreamLog", Ok(Box::pin(replies) as Self::StreamLogStream))
    }

    async fn query_logs(
        &self,
        request: Request<QueryRequest>,
    ) -> Result<Response<QueryResponse>, Status> {
        let answer = match filter_of(request.into_inner()) {
            Err(why) => Err(Status::invalid_argument(why)),
            Ok(filter) => self
                .store
                .read(move |reader| {
                    if !filter.words.is_empty() {
                        reader.use_words();
                    }
                    let (mut entries, mut n_bytes, mut next) = (Vec::new(), 0, String::new());
                    reader.each_newest(&filter, |row| {
                        let entry = log_entry(row);
                        n_bytes += entry.encoded_len() + ENVELOPE_BYTES;
                        // One alone goes in any case, as far as it can.
                        if n_bytes > ANSWER_BYTES && !entries.is_empty() {
                            return false;
                        }
                        next.clone_from(&entry.id);
                        entries.push(entry);
                        true
                    })?;
                    let is_last = n_bytes <= ANSWER_BYTES && Some(entries.len()) != filter.limit;
                    if is_last {
                        next.clear();
                    }
                    let all = Filter {
                        page_after: None,
                        limit: None,
                        ..filter
                    };
                    Ok((entries, next, reader.count(&all)?))
                })
                .await
                .map_err(status)
                .map(|(entries, next_cursor, total)| QueryResponse {
                    entries,
                    total: total.min(i32::MAX as u64) as i32,
                    next_cursor,
                }),
        };
        self.counted("QueryLogs", answer)
    }
}

/// Requests of a stream that one transaction holds at most.
const CHUNK: usize = 512;
/// Bytes of requests after which a transaction takes no more of them.
const CHUNK_BYTES: usize = 1 << 20;
/// Transactions of a stream that wait for their commit.
const IN_FLIGHT: usize = 4;
/// How long a stream waits for room in the queue: it can, unlike a single call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A part of a stream: what is to be committed, and the error that ends the stream after it.
struct Part {
    pending: Option<Pending>,
    stamps: Vec<String>,
    end: Option<Status>,
}

/// Requests of a stream that share a transaction, and their share of the memory for large bodies.
type Chunk = (Vec<Result<LogRequest, Status>>, Share);

/// Whatever has come: one request, and more of them where there is memory.
async fn chunk(requests: &mut Streaming<LogRequest>) -> Option<Chunk> {
    let mut next = requests.next().await;
    let (mut chunk, mut n_bytes, mut share) = (Vec::new(), 0, Share::default());
    while let Some(request) = next {
        n_bytes += request.as_ref().map_or(0, LogRequest::encoded_len);
        chunk.push(request);
        if chunk.len() >= CHUNK || n_bytes >= CHUNK_BYTES || grow(&mut share, n_bytes).is_err() {
            break;
        }
        next = requests.next().now_or_never().flatten();
    }
    (!chunk.is_empty()).then_some((chunk, share))
}

async fn push(store: Store, (chunk, _share): Chunk) -> Part {
    let mut entries = Vec::with_capacity(chunk.len());
    let mut end = None;
    for request in chunk {
        match request.and_then(|request| {
            entry_of(request, store.redactor()).map_err(Status::invalid_argument)
        }) {
            Ok(mut entry) => {
                store.redact(&mut entry);
                entries.push(entry);
            }
            Err(status) => {
                end = Some(status);
                break;
            }
        }
    }
    let stamps = stamps(&entries);
    let mut pending = None;
    if !entries.is_empty() {
        match push_patiently(&store, entries).await {
            Ok(pushed) => pending = Some(pushed),
            Err(error) => end = Some(status(error)),
        }
    }
    Part {
        pending,
        stamps,
        end,
    }
}

async fn push_patiently(store: &Store, entries: Vec<Entry>) -> Result<Pending, StoreError> {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !store.has_room(entries.len()) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.push(entries)
}

async fn committed(part: Part) -> (Vec<LogResponse>, Option<Status>) {
    match part.pending {
        None => (Vec::new(), part.end),
        Some(pending) => match pending.committed().await {
            Ok(first_id) => (replies(first_id, part.stamps), part.end),
            Err(error) => (Vec::new(), Some(status(error))),
        },
    }
}

fn status(error: StoreError) -> Status {
    match error {
        StoreError::Full => {
            Status::resource_exhausted("too many entries wait to be written; try again")
        }
        StoreError::Failed => Status::unavailable("the entry could not be written; try again"),
        StoreError::Unreadable => Status::unavailable("the database cannot be read; try again"),
        StoreError::Busy => Status::unavailable("too many queries are running; try again"),
        StoreError::Closed => Status::unavailable("the server is stopping"),
    }
}
