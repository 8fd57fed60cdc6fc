//! Request bodies without trust: of bounded size, of a least speed, and of bounded memory together.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use bytes::BytesMut;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};

use crate::error::ApiError;

/// Bodies of requests for text may carry images.
pub(crate) const TEXT_BODY_BYTES: usize = 128 << 20;
/// Bodies of everything else.
pub(crate) const BODY_BYTES: usize = 1 << 20;

/// Reads a body of bounded size. One that says it is larger is refused before any of it is read,
/// one that does not say as soon as it is.
pub(crate) async fn read(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let said = body.size_hint().lower();
    if said > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let mut held = Held {
        bytes: BytesMut::with_capacity((said as usize).min(FREE_BYTES)),
        permit: None,
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if is_too_slow(&error) {
                ApiError::refused(
                    StatusCode::REQUEST_TIMEOUT,
                    "the request body came too slowly",
                )
            } else {
                ApiError::bad_request("the request body ended early")
            }
        })?;
        if let Ok(data) = frame.into_data() {
            if held.bytes.len() + data.len() > limit {
                return Err(ApiError::too_large(limit));
            }
            held.add(&data)?;
        }
    }
    Ok(Bytes::from_owner(held))
}

/// A body in memory, and its share of what all bodies may have.
struct Held {
    bytes: BytesMut,
    permit: Option<OwnedSemaphorePermit>,
}

impl Held {
    fn add(&mut self, data: &[u8]) -> Result<(), ApiError> {
        self.bytes.extend_from_slice(data);
        let needed = self
            .bytes
            .len()
            .saturating_sub(FREE_BYTES)
            .div_ceil(SHARE_BYTES);
        let has = self
            .permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        if needed > has {
            let more = LARGE_BODIES
                .clone()
                .try_acquire_many_owned((needed - has) as u32)
                .map_err(|_| {
                    ApiError::refused(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many large requests at the same time; try again",
                    )
                })?;
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                None => self.permit = Some(more),
            }
        }
        Ok(())
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that must not come more slowly than [`SLOWEST`] after [`PATIENCE`], so that nobody holds
/// a connection for ever by sending a byte now and then.
///
/// When it is dropped before its end, what still comes is thrown away for a moment: a client that
/// only reads after it has sent everything would otherwise find its connection reset instead of an
/// answer.
pub(crate) struct Paced {
    inner: Option<Body>,
    /// Starts with the first wait.
    clock: Option<(Instant, Pin<Box<Sleep>>)>,
    n_bytes: u64,
    /// How long the first bytes may take.
    patience: Duration,
    /// The client waits for a word before it sends anything, and has not got it.
    unasked: bool,
}

impl Paced {
    /// Watches a body. `waits`: the client sends it only when it is asked to.
    pub(crate) fn new(body: Body, waits: bool) -> Paced {
        Paced {
            inner: Some(body),
            clock: None,
            n_bytes: 0,
            patience: PATIENCE,
            unasked: waits,
        }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        this.unasked = false;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        let ready = match Pin::new(inner).poll_frame(context) {
            Poll::Ready(ready) => ready,
            Poll::Pending => {
                let (started, sleep) = this.clock.get_or_insert_with(|| {
                    (Instant::now(), Box::pin(tokio::time::sleep(this.patience)))
                });
                let allowed = this.patience + Duration::from_secs(this.n_bytes / SLOWEST);
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

impl Drop for Paced {
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

/// Looks through whatever decodes the body.
fn is_too_slow(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |cause| cause.source());
    causes.any(<dyn std::error::Error>::is::<TooSlow>)
}

/// How long the first bytes may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes in a second that a client must send on average, besides.
const SLOWEST: u64 = 1024;
/// How long what nobody wants is thrown away.
const LINGER: Duration = Duration::from_secs(3);

/// What each body may hold without asking.
const FREE_BYTES: usize = 1 << 20;
/// What larger bodies are counted in.
const SHARE_BYTES: usize = 1 << 20;
/// Shares for all bodies together: half a gigabyte.
static LARGE_BODIES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(512)));

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};

    use super::*;

    fn chunks(n_chunks: usize, n_bytes: usize, pause: Duration) -> Body {
        let one = Bytes::from(vec![b'x'; n_bytes]);
        Body::from_stream(stream::iter(0..n_chunks).then(move |_| {
            let one = one.clone();
            async move {
                tokio::time::sleep(pause).await;
                Ok::<_, std::io::Error>(one)
            }
        }))
    }

    async fn status(body: Body, limit: usize) -> u16 {
        let mut paced = Paced::new(body, false);
        paced.patience = Duration::from_millis(100);
        match read(Body::new(paced), limit).await {
            Ok(_) => 200,
            Err(error) => error.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn slow_bodies_end_and_steady_ones_may_take_long() {
        let pause = Duration::from_millis(20);
        // A byte now and then never gets anywhere.
        assert_eq!(status(chunks(1000, 1, pause), 1 << 20).await, 408);
        // Nor does silence.
        assert_eq!(status(chunks(2, 10, pause * 50), 1 << 20).await, 408);
        // Many times the patience, but all the time something comes.
        assert_eq!(status(chunks(40, 2048, pause), 4 << 20).await, 200);
    }

    #[tokio::test]
    async fn large_bodies_are_refused_as_soon_as_they_are_large() {
        let now = Duration::ZERO;
        assert_eq!(status(Body::from(vec![0; 101]), 100).await, 413);
        assert_eq!(status(Body::from(vec![0; 100]), 100).await, 200);
        // Of a body without length only what is allowed is read: this one never ends.
        assert_eq!(status(chunks(usize::MAX, 4096, now), 1 << 20).await, 413);
    }

    #[tokio::test]
    async fn all_large_bodies_together_have_a_limit() {
        let large = || read(chunks(100, 1 << 20, Duration::ZERO), TEXT_BODY_BYTES);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(large().await.unwrap());
        }
        assert_eq!(large().await.unwrap_err().status(), 503);
        held.pop();
        assert!(large().await.is_ok(), "what was dropped is free again");
    }
}
