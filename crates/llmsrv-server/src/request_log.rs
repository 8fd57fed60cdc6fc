//! One line for each request, written when its answer has been sent or nobody waits for it any more.
//! Never a key, never a body.

use std::{
    collections::VecDeque,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use axum::body::{Body, Bytes, HttpBody};
use http::{Method, Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use llmsrv_api::requests::PastRequest;
use parking_lot::Mutex;

use crate::clock;

/// What is known of a request.
pub(crate) struct Record {
    pub(crate) method: Method,
    /// Without the query, which may hold anything.
    pub(crate) path: String,
    pub(crate) client: Option<IpAddr>,
    /// Name of the key.
    pub(crate) key: Option<Arc<str>>,
    pub(crate) started: Instant,
    /// Probes come all the time and say nothing; the questions of a logger would ask about
    /// themselves.
    pub(crate) probe: bool,
}

/// The latest requests, for those who manage.
#[derive(Debug, Default)]
pub(crate) struct Latest(Mutex<VecDeque<PastRequest>>);

/// Requests that are kept.
const KEPT: usize = 200;
/// Bytes of a path that are kept.
const PATH_BYTES: usize = 200;
/// What the web page asks for while somebody looks.
const POLLED: &[&str] = &["/api/ps", "/api/requests", "/api/status", "/metrics"];

impl Latest {
    /// Returns them, newest first.
    pub(crate) fn list(&self) -> Vec<PastRequest> {
        let kept = self.0.lock();
        kept.iter().rev().cloned().collect()
    }

    fn push(&self, past: PastRequest) {
        let mut kept = self.0.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(past);
    }
}

/// A request that is not over; it is written when this is dropped.
pub(crate) struct Line {
    record: Record,
    latest: Arc<Latest>,
    /// Unless there is an answer, whoever asked has gone.
    status: Option<StatusCode>,
    /// Bytes of the answer's body.
    n_bytes: u64,
}

impl Line {
    pub(crate) fn new(record: Record, latest: Arc<Latest>) -> Line {
        Line {
            record,
            latest,
            status: None,
            n_bytes: 0,
        }
    }

    /// Goes on with the answer until it is sent or dropped.
    pub(crate) fn watch(mut self, response: Response<Body>) -> Response<Body> {
        self.status = Some(response.status());
        response.map(|inner| Body::new(Watched { inner, line: self }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let status = match self.status {
            Some(status) => status.as_u16(),
            None if std::thread::panicking() => 500,
            None => CLIENT_LEFT,
        };
        write(&self.record, status, self.n_bytes, &self.latest);
    }
}

/// As other servers log it; it is never sent.
const CLIENT_LEFT: u16 = 499;

/// The places where records go.
fn write(record: &Record, status: u16, bytes: u64, latest: &Latest) {
    let ms = record.started.elapsed().as_millis() as u64;
    let client = record
        .client
        .map(|client| client.to_canonical().to_string());
    if !record.probe && !POLLED.contains(&record.path.as_str()) {
        let end = record.path.floor_char_boundary(PATH_BYTES);
        latest.push(PastRequest {
            ended_at: clock::now(),
            method: record.method.to_string(),
            path: record.path[..end].to_owned(),
            status,
            milliseconds: ms,
            bytes,
            client: client.clone(),
            key: record.key.as_deref().map(str::to_owned),
        });
    }
    let client = client.as_deref().unwrap_or("-");
    let key = record.key.as_deref().unwrap_or("-");
    let Record { method, path, .. } = record;
    if record.probe {
        tracing::debug!(target: "llmsrv::request", %method, path, status, ms, bytes, client, key);
    } else {
        tracing::info!(target: "llmsrv::request", %method, path, status, ms, bytes, client, key);
    }
}

struct Watched {
    inner: Body,
    line: Line,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.line.n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
