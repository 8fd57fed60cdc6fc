//! Request bodies without trust: of bounded size, and of bounded memory together.

use std::{
    ops::Deref,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
};
use bytes::BytesMut;
use futures_util::StreamExt as _;
use http::{StatusCode, header};
use http_body_util::BodyExt as _;
use http_front::{is_cause, is_too_slow};
use llmsrv_api::lenient::Fields;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::ApiError, memory, tasks::computing};

/// Bodies of requests for text may carry images.
pub(crate) const TEXT_BODY_BYTES: usize = 128 << 20;
/// Bodies of everything else.
pub(crate) const BODY_BYTES: usize = 1 << 20;

/// Reads a body of bounded size. One that says it is larger is refused before any of it is read,
/// one that does not say as soon as it is.
pub(crate) async fn read(mut body: Body, limit: usize) -> Result<Held, ApiError> {
    let said = body.size_hint().lower();
    if said > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let mut held = Held {
        bytes: BytesMut::with_capacity((said as usize).min(FREE_BYTES)),
        share: Share::default(),
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if is_too_slow(&error) {
                ApiError::refused(
                    StatusCode::REQUEST_TIMEOUT,
                    "the request body came too slowly",
                )
            } else if is_cause::<TooDense>(&error) {
                ApiError::refused(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!(
                        "the request body becomes more than {MOST_DENSE} times as large when it is decompressed; \
                         send it uncompressed"
                    ),
                )
            } else {
                ApiError::bad_request("the request body ended early")
            }
        })?;
        if let Ok(data) = frame.into_data() {
            let n_bytes = held.bytes.len() + data.len();
            if n_bytes > limit {
                return Err(ApiError::too_large(limit));
            }
            held.share.cover(n_bytes)?;
            held.bytes.extend_from_slice(&data);
        }
    }
    Ok(held)
}

/// A body in memory, and its share of what all bodies may have.
pub(crate) struct Held {
    bytes: BytesMut,
    share: Share,
}

impl Held {
    /// Makes something of the members of a body, on a thread that may compute where it is large. The
    /// share is that of the result: it is kept as long as that is.
    ///
    /// # Errors
    /// If it is no JSON object, has too many values, or `make` refuses it.
    pub(crate) async fn parse<T: Send + 'static>(
        self,
        make: impl FnOnce(Fields) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Share), ApiError> {
        self.parse_with_ids(&[], make).await
    }

    /// As [`Held::parse`], with [members that are lists of token ids](Fields::parse_with_ids).
    pub(crate) async fn parse_with_ids<T: Send + 'static>(
        self,
        ids: &'static [&'static str],
        make: impl FnOnce(Fields) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Share), ApiError> {
        let is_small = self.bytes.len() <= SMALL_BYTES;
        let parse = move || -> Result<(T, Share), ApiError> {
            let Held { bytes, mut share } = self;
            let n_bytes = bytes.len();
            let fields = Fields::parse_with_ids(&bytes, ids)?;
            drop(bytes);
            share.cover(n_bytes + fields.weight())?;
            Ok((make(fields)?, share))
        };
        if is_small {
            return parse();
        }
        // While it is parsed a body takes more than its share says.
        let turn = PARSERS.acquire().await;
        // The turn is over with the work, which goes on when its client leaves.
        let work = move || {
            let _turn = turn;
            parse()
        };
        computing(work).await?
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A share of what all bodies and their values may take together.
#[derive(Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Makes it so large that it covers so many bytes; the first of them are free.
    fn cover(&mut self, n_bytes: usize) -> Result<(), ApiError> {
        let needed = n_bytes.saturating_sub(FREE_BYTES).div_ceil(SHARE_BYTES);
        let has = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if needed <= has {
            return Ok(());
        }
        if needed > *N_SHARES {
            return Err(ApiError::too_large(*N_SHARES * SHARE_BYTES));
        }
        let more = SHARES.clone().try_acquire_many_owned((needed - has) as u32);
        let more = more.map_err(|_| {
            ApiError::refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large requests at the same time; try again",
            )
        })?;
        match &mut self.0 {
            Some(permit) => permit.merge(more),
            None => self.0 = Some(more),
        }
        Ok(())
    }
}

/// What a compressed body has sent so far; found in the extensions of its request.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicU64>);

/// Counts what is sent of a compressed body. To be called before it is decompressed.
pub(crate) fn count_compressed(mut request: Request) -> Request {
    if !request.headers().contains_key(header::CONTENT_ENCODING) {
        return request;
    }
    let sent = Sent::default();
    request.extensions_mut().insert(sent.clone());
    request.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let n_bytes = frame.data_ref().map_or(0, Bytes::len);
            sent.0.fetch_add(n_bytes as u64, Ordering::Relaxed);
            frame
        }))
    })
}

/// Ends a body that has become much larger than what was sent of it. To be called after it is
/// decompressed.
pub(crate) fn bound_decompressed(mut request: Request) -> Request {
    let Some(Sent(sent)) = request.extensions_mut().remove() else {
        return request;
    };
    let mut n_bytes = 0;
    request.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |data| {
            let data = data.map_err(axum::Error::into_inner)?;
            n_bytes += data.len() as u64;
            let sent = sent.load(Ordering::Relaxed);
            if n_bytes > DENSE_BYTES && n_bytes / MOST_DENSE > sent {
                return Err(TooDense.into());
            }
            Ok::<_, axum::BoxError>(data)
        }))
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the request body becomes too large when it is decompressed")]
struct TooDense;

/// How many times as large a compressed body may become: text rarely shrinks to a fiftieth.
const MOST_DENSE: u64 = 200;
/// What any compressed body may become.
const DENSE_BYTES: u64 = 1 << 20;

/// Bodies up to this size are parsed where they were read.
const SMALL_BYTES: usize = 64 << 10;
/// Larger bodies parsed at the same time; the others wait.
static PARSERS: Semaphore = Semaphore::const_new(4);

/// What each body and its values may hold without asking.
const FREE_BYTES: usize = 64 << 10;
/// What more than that is counted in.
const SHARE_BYTES: usize = 64 << 10;
/// Shares for all bodies together: half a gigabyte, on small machines a sixteenth of the memory.
static N_SHARES: LazyLock<usize> = LazyLock::new(|| {
    let part = memory::total().map_or(MOST_BYTES, |total| total / 16);
    let part = usize::try_from(part.min(MOST_BYTES)).unwrap_or(0);
    part.max(BODY_BYTES) / SHARE_BYTES
});
const MOST_BYTES: u64 = 512 << 20;
static SHARES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(*N_SHARES)));

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;
    use http_front::MinRateBody;

    use super::*;

    /// The shares belong to all.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

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
        let paced = MinRateBody::new(body, false).with_timeout(Duration::from_millis(100));
        match read(Body::new(paced), limit).await {
            Ok(_) => 200,
            Err(error) => error.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn slow_bodies_end_and_steady_ones_may_take_long() {
        let _alone = ALONE.lock().await;
        let pause = Duration::from_millis(20);
        // A byte now and then never gets anywhere.
        assert_eq!(status(chunks(1000, 1, pause), 1 << 20).await, 408);
        // Nor does silence.
        assert_eq!(status(chunks(2, 10, pause * 50), 1 << 20).await, 408);
        // Many times the timeout, but all the time something comes.
        assert_eq!(status(chunks(40, 2048, pause), 4 << 20).await, 200);
    }

    #[tokio::test]
    async fn large_bodies_are_refused_as_soon_as_they_are_large() {
        let _alone = ALONE.lock().await;
        let now = Duration::ZERO;
        assert_eq!(status(Body::from(vec![0; 101]), 100).await, 413);
        assert_eq!(status(Body::from(vec![0; 100]), 100).await, 200);
        // Of a body without length only what is allowed is read: this one never ends.
        assert_eq!(status(chunks(usize::MAX, 4096, now), 1 << 20).await, 413);
    }

    #[tokio::test]
    async fn all_large_bodies_together_have_a_limit() {
        let _alone = ALONE.lock().await;
        let part = *N_SHARES * SHARE_BYTES / 5;
        let status = |read: Result<Held, ApiError>| read.err().map(|error| error.status().as_u16());
        let large = |n_bytes: usize| read(chunks(n_bytes >> 20, 1 << 20, Duration::ZERO), n_bytes);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(large(part).await.unwrap());
        }
        // Values count as well: with them it is twice as large.
        let ids = format!(
            r#"{{"tokens":[{}0]}}"#,
            "1234567,".repeat(part * 3 / 10 / 8)
        );
        let body = read(Body::from(ids), part).await.unwrap();
        let (fields, share) = body.parse_with_ids(&["tokens"], Ok).await.unwrap();
        drop(fields);
        assert_eq!(status(large(part / 2).await), Some(503));
        drop(share);
        held.push(large(part / 2).await.unwrap());
        let endless = || read(chunks(usize::MAX, 1 << 20, Duration::ZERO), usize::MAX);
        assert_eq!(status(endless().await), Some(503));
        held.clear();
        assert_eq!(status(endless().await), Some(413), "more than there is");
        assert!(large(part).await.is_ok(), "what was dropped is free again");
    }

    #[tokio::test]
    async fn what_grows_too_much_when_it_is_decompressed_is_refused() {
        let _alone = ALONE.lock().await;
        let status = async |sent: usize, becomes: usize| {
            let request = Request::builder()
                .header("content-encoding", "gzip")
                .body(Body::from(vec![b'x'; sent]));
            let request = count_compressed(request.unwrap());
            // What a decoder does, as far as sizes go.
            let request = request.map(|body| {
                let chunks = body.into_data_stream().flat_map(move |_| {
                    let chunk = Bytes::from(vec![b'x'; 1 << 16]);
                    stream::iter(
                        (0..becomes >> 16).map(move |_| Ok::<_, std::io::Error>(chunk.clone())),
                    )
                });
                Body::from_stream(chunks)
            });
            let request = bound_decompressed(request);
            match read(request.into_body(), TEXT_BODY_BYTES).await {
                Ok(held) => {
                    assert_eq!(held.len(), becomes);
                    200
                }
                Err(error) => error.status().as_u16(),
            }
        };
        assert_eq!(status(100, 1 << 20).await, 200, "small anyway");
        assert_eq!(status(100, 2 << 20).await, 413);
        assert_eq!(status(20 << 10, 2 << 20).await, 200);
        assert_eq!(status(20 << 10, 8 << 20).await, 413);
    }
}
