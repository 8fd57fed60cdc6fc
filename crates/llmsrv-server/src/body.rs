//! Request bodies without trust: of bounded size, and of bounded memory together.

use std::{ops::Deref, sync::LazyLock};

use axum::body::{Body, Bytes};
use http::StatusCode;
use http_front::{BodyError, Budget, FREE_BYTES, MAX_DENSITY, Share, read_body};
use llmsrv_api::members::{self, Member};
use tokio::sync::Semaphore;

use crate::{error::ApiError, memory, tasks::computing};

/// Bodies of requests for text may carry images.
pub(crate) const TEXT_BODY_BYTES: usize = 128 << 20;
/// Bodies of everything else.
pub(crate) const BODY_BYTES: usize = 1 << 20;

/// Reads a body of bounded size.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Held, ApiError> {
    let (bytes, share) = read_body(body, limit, &BUDGET).await?;
    Ok(Held { bytes, share })
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> ApiError {
        match error {
            BodyError::TooLarge(limit) => ApiError::too_large(limit),
            BodyError::Busy => ApiError::refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large requests at the same time; try again",
            ),
            BodyError::TooSlow => ApiError::refused(
                StatusCode::REQUEST_TIMEOUT,
                "the request body came too slowly",
            ),
            BodyError::TooDense => ApiError::refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "the request body becomes more than {MAX_DENSITY} times as large when it is decompressed; \
                     send it uncompressed"
                ),
            ),
            BodyError::EndedEarly => ApiError::bad_request("the request body ended early"),
        }
    }
}

/// A body in memory, and its share of what all bodies may have.
pub(crate) struct Held {
    bytes: Bytes,
    share: Share,
}

impl Held {
    /// Makes something of the request that a body is, on a thread that may compute where it is large.
    /// The share is that of the result: it is kept as long as that is.
    ///
    /// # Errors
    /// If it is no such request, has too many values, or `make` refuses it.
    pub(crate) async fn parse<R: Member, T: Send + 'static>(
        self,
        make: impl FnOnce(R) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Share), ApiError> {
        let is_small = self.bytes.len() <= FREE_BYTES;
        let parse = move || -> Result<(T, Share), ApiError> {
            let Held { bytes, mut share } = self;
            let n_bytes = bytes.len();
            let (request, weight) = members::parse(&bytes)?;
            drop(bytes);
            share.cover(&BUDGET, n_bytes + weight)?;
            Ok((make(request)?, share))
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

/// Larger bodies parsed at the same time; the others wait.
static PARSERS: Semaphore = Semaphore::const_new(4);

/// For all bodies and their values together: half a gigabyte, on small machines a sixteenth of the memory.
static BUDGET: LazyLock<Budget> = LazyLock::new(|| {
    let part = memory::total().map_or(MOST_BYTES, |total| total / 16);
    let part = usize::try_from(part.min(MOST_BYTES)).unwrap_or(0);
    Budget::new(part.max(BODY_BYTES))
});
const MOST_BYTES: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::extract::Request;
    use futures_util::{StreamExt as _, stream};
    use http_front::{MinRateBody, bound_decompressed, count_compressed};
    use llmsrv_api::{members::IdsOr, request};

    use super::*;

    request! {
        struct Tokens {
            #[schema(value_type = Vec<u32>)] tokens: Option<IdsOr>,
        }
    }

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
        let part = BUDGET.n_bytes() / 5;
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
        let (request, share) = body.parse(Ok::<Tokens, _>).await.unwrap();
        drop(request);
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
