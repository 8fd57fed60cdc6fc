//! Request bodies without trust: of bounded size, within bounded time, compressed or not.

use std::{
    io,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_front::{BodyError, Budget, FREE_BYTES, MAX_DENSITY, Share, is_too_dense, read_body};
use tokio::sync::Semaphore;

use crate::refusal::Refusal;

/// Limit of a single entry, after decompression.
pub(crate) const SINGLE_BYTES: usize = 1 << 20;
/// Limit of a batch, after decompression.
pub(crate) const BATCH_BYTES: usize = 16 << 20;

/// A body, decompressed, and its share of what all large bodies may have.
pub(crate) struct Received {
    bytes: Bytes,
    share: Share,
}

impl Received {
    /// Does the work that the body makes: large ones off the threads that answer, a few at a time.
    /// The share is given back when all that was made of the body is gone.
    pub(crate) async fn parse<T: Send + 'static>(
        self,
        parse: impl FnOnce(&[u8]) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<(T, Share), Refusal> {
        let Received { bytes, share } = self;
        if bytes.len() <= FREE_BYTES {
            return Ok((parse(&bytes)?, share));
        }
        let parsed = apart(move || {
            let parsed = parse(&bytes);
            drop(bytes);
            parsed
        });
        Ok((parsed.await?, share))
    }

    /// Decompresses it, off the threads that answer.
    async fn unpacked(self, encoding: &HeaderValue, limit: usize) -> Result<Received, Refusal> {
        let Some(unpack) = unpacker(encoding)? else {
            return Ok(self);
        };
        apart(move || {
            let Received {
                bytes: packed,
                mut share,
            } = self;
            let bytes = unpack(&packed, limit, &mut share)?;
            Ok(Received { bytes, share })
        })
        .await
    }
}

/// Reads a body of at most `limit` bytes, decompressed if it is gzip or zstd.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Received, Refusal> {
    let read = tokio::time::timeout(TIMEOUT, raw(body, limit)).await;
    let received = read.map_err(|_| too_slow())??;
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(received);
    };
    received.unpacked(encoding, limit).await
}

type Unpack = fn(&[u8], usize, &mut Share) -> Result<Bytes, Refusal>;

/// How what is compressed that way becomes what it was; `None` = it is not compressed.
fn unpacker(encoding: &HeaderValue) -> Result<Option<Unpack>, Refusal> {
    let encoding = encoding.to_str().unwrap_or_default().trim().to_lowercase();
    Ok(Some(match encoding.as_str() {
        "" | "identity" => return Ok(None),
        "gzip" | "x-gzip" => |packed, limit, share| {
            bounded(
                flate2::read::MultiGzDecoder::new(packed),
                packed.len(),
                limit,
                share,
            )
        },
        "zstd" => |packed, limit, share| {
            let mut decoder = zstd::Decoder::with_buffer(packed).map_err(garbled)?;
            // The frame says how much memory it wants; more than a body may have is no use.
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(garbled)?;
            bounded(decoder, packed.len(), limit, share)
        },
        _ => {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Encoding must be gzip, zstd or identity",
            ));
        }
    }))
}

/// Reads the one message of a call of gRPC, decompressed, in its frame. It is counted like a body
/// before anything is made of it.
pub(crate) async fn read_message(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(Bytes, Share), Refusal> {
    let limit = limit + FRAME_BYTES;
    let read = tokio::time::timeout(TIMEOUT, raw(body, limit)).await;
    let Received { bytes, share } = read.map_err(|_| too_slow())??;
    let encoding = headers.get("grpc-encoding");
    let (Some(1), Some(encoding)) = (bytes.first(), encoding) else {
        // Whoever decodes it says what is wrong with it.
        return Ok((bytes, share));
    };
    let message = Received {
        bytes: bytes.slice(FRAME_BYTES.min(bytes.len())..),
        share,
    };
    let Received { bytes, share } = message.unpacked(encoding, limit).await?;
    let mut framed = BytesMut::with_capacity(FRAME_BYTES + bytes.len());
    framed.put_u8(0);
    framed.put_u32(bytes.len() as u32);
    framed.extend_from_slice(&bytes);
    Ok((framed.freeze(), share))
}

async fn raw(body: Body, limit: usize) -> Result<Received, Refusal> {
    let (bytes, share) = read_body(body, limit, &LARGE).await?;
    Ok(Received { bytes, share })
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        match error {
            BodyError::TooLarge(limit) => Refusal::too_large(limit),
            BodyError::Busy => Refusal::busy("Too many large requests at the same time; try again"),
            BodyError::TooSlow => too_slow(),
            BodyError::TooDense => Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("Request body is compressed more than {MAX_DENSITY} to 1"),
            ),
            BodyError::EndedEarly => {
                Refusal::new(StatusCode::BAD_REQUEST, "The request body ended early")
            }
        }
    }
}

fn bounded(
    mut decoder: impl io::Read,
    n_packed: usize,
    limit: usize,
    share: &mut Share,
) -> Result<Bytes, Refusal> {
    let mut bytes = Vec::new();
    loop {
        let mut part = io::Read::take(&mut decoder, STEP_BYTES as u64);
        let n_read = io::Read::read_to_end(&mut part, &mut bytes).map_err(garbled)?;
        if n_read == 0 {
            return Ok(bytes.into());
        }
        if bytes.len() > limit {
            return Err(Refusal::too_large(limit));
        }
        if is_too_dense(n_packed as u64, bytes.len() as u64) {
            return Err(BodyError::TooDense.into());
        }
        // What was received is there as well.
        grow(share, n_packed + bytes.len())?;
    }
}

fn too_slow() -> Refusal {
    Refusal::new(
        StatusCode::REQUEST_TIMEOUT,
        "The request body came too slowly",
    )
}

fn garbled(_: io::Error) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "The request body is not what Content-Encoding says",
    )
}

/// Runs work that takes long off the threads that answer, a few at a time: each may hold several
/// times the memory of its body.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let turn = TURNS.clone().acquire_owned().await;
    let done = http_front::run_in_background(move || {
        let _turn = turn;
        work()
    });
    done.await.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The request could not be handled",
        ))
    })
}

/// Takes what a body of that size needs; small ones need nothing.
pub(crate) fn grow(share: &mut Share, n_bytes: usize) -> Result<(), Refusal> {
    Ok(share.cover(&LARGE, n_bytes)?)
}

/// How long a body may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Large bodies at the same time, decompressed.
static LARGE: LazyLock<Budget> = LazyLock::new(|| Budget::new(128 << 20));
/// Bodies that are parsed at the same time.
static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(4)));
/// What comes before a message of gRPC: whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;
/// Bytes that are decompressed between two looks at the limits.
const STEP_BYTES: usize = 64 << 10;
/// 16 MiB, as the logarithm to base 2.
const MAX_WINDOW_LOG: u32 = 24;
