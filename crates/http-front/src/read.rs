//! Request bodies without trust: of bounded size, of bounded memory together, and not much larger than what was sent.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
};
use futures_util::StreamExt as _;
use http::header;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{is_cause, is_too_slow};

/// A body that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than that.
    #[error("the request body has more than {0} bytes")]
    TooLarge(usize),
    /// Others have the memory it needs.
    #[error("too many large requests at the same time")]
    Busy,
    /// See [`MinRateBody`](crate::MinRateBody).
    #[error("the request body came too slowly")]
    TooSlow,
    /// See [`is_too_dense`].
    #[error("the request body becomes too large when it is decompressed")]
    TooDense,
    /// Its client left.
    #[error("the request body ended early")]
    EndedEarly,
}

/// The memory that all large bodies of a server may have together.
#[derive(Debug)]
pub struct Budget {
    shares: Arc<Semaphore>,
    n_shares: usize,
}

impl Budget {
    /// So many bytes. What is free for each body does not count.
    pub fn new(n_bytes: usize) -> Budget {
        let n_shares = (n_bytes / SHARE_BYTES).min(Semaphore::MAX_PERMITS);
        Budget {
            shares: Arc::new(Semaphore::new(n_shares)),
            n_shares,
        }
    }

    /// Returns how many bytes it has in all.
    pub fn n_bytes(&self) -> usize {
        self.n_shares * SHARE_BYTES
    }
}

/// What a body, and what was made of it, has of a [`Budget`]; its drop gives it back.
#[derive(Debug, Default)]
pub struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Makes it so large that it covers so many bytes; the first [`FREE_BYTES`] need nothing.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] if all of the budget is less, [`BodyError::Busy`] if what is left of it is.
    pub fn cover(&mut self, budget: &Budget, n_bytes: usize) -> Result<(), BodyError> {
        let needed = n_bytes.saturating_sub(FREE_BYTES).div_ceil(SHARE_BYTES);
        let has = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if needed <= has {
            return Ok(());
        }
        if needed > budget.n_shares {
            return Err(BodyError::TooLarge(budget.n_bytes()));
        }
        let more = u32::try_from(needed - has).map_err(|_| BodyError::Busy)?;
        let more = budget.shares.clone().try_acquire_many_owned(more);
        let more = more.map_err(|_| BodyError::Busy)?;
        match &mut self.0 {
            Some(permit) => permit.merge(more),
            None => self.0 = Some(more),
        }
        Ok(())
    }
}

/// Reads a body of at most `limit` bytes, and takes its share. One that says it is larger is refused before any of it
/// is read, one that does not say as soon as it is.
///
/// # Errors
/// Each [`BodyError`].
pub async fn read_body(
    mut body: Body,
    limit: usize,
    budget: &Budget,
) -> Result<(Bytes, Share), BodyError> {
    let said = body.size_hint().lower();
    if said > limit as u64 {
        return Err(BodyError::TooLarge(limit));
    }
    let (mut bytes, mut share) = (Vec::new(), Share::default());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if is_too_slow(&error) {
                BodyError::TooSlow
            } else if is_cause::<TooDense>(&error) {
                BodyError::TooDense
            } else {
                BodyError::EndedEarly
            }
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let n_bytes = bytes.len() + data.len();
        if n_bytes > limit {
            return Err(BodyError::TooLarge(limit));
        }
        share.cover(budget, n_bytes)?;
        if bytes.is_empty() && body.is_end_stream() {
            return Ok((data, share));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), share))
}

/// Tells whether a compressed body becomes much larger than what was sent of it: text rarely shrinks to a fiftieth.
pub fn is_too_dense(n_sent: u64, n_bytes: u64) -> bool {
    n_bytes > DENSE_BYTES && n_bytes / MAX_DENSITY > n_sent
}

/// What a compressed body has sent so far; found in the extensions of its request.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicU64>);

/// Counts what is sent of a compressed body. To be called before it is decompressed.
pub fn count_compressed(mut request: Request) -> Request {
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

/// Ends a body that [is too dense](is_too_dense). To be called after it is decompressed.
pub fn bound_decompressed(mut request: Request) -> Request {
    let Some(Sent(sent)) = request.extensions_mut().remove() else {
        return request;
    };
    let mut n_bytes = 0;
    request.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |data| {
            let data = data.map_err(axum::Error::into_inner)?;
            n_bytes += data.len() as u64;
            if is_too_dense(sent.load(Ordering::Relaxed), n_bytes) {
                return Err(TooDense.into());
            }
            Ok::<_, axum::BoxError>(data)
        }))
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the request body becomes too large when it is decompressed")]
struct TooDense;

/// How many times as large as what was sent a body may become.
pub const MAX_DENSITY: u64 = 200;
/// Bytes that any compressed body may become.
const DENSE_BYTES: u64 = 1 << 20;
/// Bytes of a body that need no share.
pub const FREE_BYTES: usize = 64 << 10;
/// What more than that is counted in.
const SHARE_BYTES: usize = 64 << 10;
