//! One line for each request, written when its answer has been sent or nobody waits for it any more.
//! Never a key, never a body.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use axum::body::{Body, Bytes, HttpBody};
use http::{Method, Response, StatusCode};
use hyper::body::{Frame, SizeHint};

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

/// A request that is not over; it is written when this is dropped.
pub(crate) struct Line {
    record: Record,
    /// Unless there is an answer, whoever asked has gone.
    status: Option<StatusCode>,
    /// Bytes of the answer's body.
    n_bytes: u64,
}

impl Line {
    pub(crate) fn new(record: Record) -> Line {
        Line {
            record,
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
        write(&self.record, status, self.n_bytes);
    }
}

/// As other servers log it; it is never sent.
const CLIENT_LEFT: u16 = 499;

/// The place where records go.
fn write(record: &Record, status: u16, bytes: u64) {
    let ms = record.started.elapsed().as_millis() as u64;
    let client = record
        .client
        .map(|client| client.to_canonical().to_string());
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
