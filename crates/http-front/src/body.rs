//! Request bodies of a least speed.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// A body that must not come more slowly than 1 KiB in a second after the first half minute, so that
/// nobody holds a connection for ever by sending a byte now and then.
///
/// When it is dropped before its end, what still comes is thrown away for a moment: a client that
/// only reads after it has sent everything would otherwise find its connection reset instead of an
/// answer.
pub struct MinRateBody {
    inner: Option<Body>,
    /// Starts with the first wait.
    clock: Option<(Instant, Pin<Box<Sleep>>)>,
    n_bytes: u64,
    /// How long the first bytes may take.
    timeout: Duration,
    /// The client waits for a word before it sends anything, and has not got it.
    unasked: bool,
}

impl MinRateBody {
    /// Watches a body. `waits`: the client sends it only when it is asked to.
    pub fn new(body: Body, waits: bool) -> MinRateBody {
        MinRateBody {
            inner: Some(body),
            clock: None,
            n_bytes: 0,
            timeout: TIMEOUT,
            unasked: waits,
        }
    }

    /// Lets the first bytes take another time than half a minute.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> MinRateBody {
        self.timeout = timeout;
        self
    }
}

impl HttpBody for MinRateBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        this.unasked = false;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        let ready = match Pin::new(inner).poll_frame(context) {
            Poll::Ready(ready) => ready,
            Poll::Pending => {
                let (started, sleep) = this.clock.get_or_insert_with(|| {
                    (Instant::now(), Box::pin(tokio::time::sleep(this.timeout)))
                });
                let allowed = this.timeout + Duration::from_secs(this.n_bytes / SLOWEST);
                let deadline = *started + allowed;
                while sleep.as_mut().poll(context).is_ready() {
                    if sleep.deadline() >= deadline {
                        return Poll::Ready(Some(Err(TooSlow.into())));
                    }
                    // Data has come since the timer was set.
                    sleep.as_mut().reset(deadline);
                }
                return Poll::Pending;
            }
        };
        Poll::Ready(match ready {
            Some(Ok(frame)) => {
                this.n_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.inner = None;
                Some(Err(error.into_inner()))
            }
            None => {
                this.inner = None;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for MinRateBody {
    fn drop(&mut self) {
        let Some(mut body) = self.inner.take() else {
            return;
        };
        if body.is_end_stream() || self.unasked {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let drain = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(LINGER, drain).await;
        });
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the request body came too slowly")]
struct TooSlow;

/// Tells whether a body was ended because it came too slowly.
pub(crate) fn is_too_slow(error: &(dyn Error + 'static)) -> bool {
    is_cause::<TooSlow>(error)
}

/// Looks for a cause through whatever decodes the body.
pub(crate) fn is_cause<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |cause| (*cause).source());
    causes.any(<dyn Error>::is::<E>)
}

/// How long the first bytes may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes in a second that a client must send on average, besides.
const SLOWEST: u64 = 1024;
/// How long what nobody wants is thrown away.
const LINGER: Duration = Duration::from_secs(3);
