//! Request bodies without trust: of bounded size, within bounded time, compressed or not.

use std::{
    io,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// Limit of a single entry, after decompression.
pub(crate) const SINGLE_BYTES: usize = 1 << 20;
/// Limit of a batch, after decompression.
pub(crate) const BATCH_BYTES: usize = 16 << 20;

/// A body, and its share of what all large bodies may have.
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// Reads a body of at most `limit` bytes, decompressed if it is gzip or zstd.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Received, Refusal> {
    let Ok(received) = tokio::time::timeout(PATIENCE, raw(body, limit)).await else {
        return Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "The request body came too slowly",
        ));
    };
    let mut received = received?;
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(received);
    };
    let encoding = encoding.to_str().unwrap_or_default().trim().to_lowercase();
    match encoding.as_str() {
        "" | "identity" => {}
        "gzip" | "x-gzip" => {
            let decoder = flate2::read::MultiGzDecoder::new(&*received.bytes);
            received.bytes = bounded(decoder, limit)?;
        }
        "zstd" => {
            let decoder = zstd::Decoder::with_buffer(&*received.bytes).map_err(garbled)?;
            received.bytes = bounded(decoder, limit)?;
        }
        _ => {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Encoding must be gzip, zstd or identity",
            ));
        }
    }
    Ok(received)
}

async fn raw(mut body: Body, limit: usize) -> Result<Received, Refusal> {
    // One that says it is larger is refused before any of it is read.
    let said = body.size_hint().lower();
    if said > limit as u64 {
        return Err(Refusal::too_large(limit));
    }
    let mut share = None;
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "The request body ended early"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > limit {
            return Err(Refusal::too_large(limit));
        }
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(Received {
                bytes: data,
                _share: None,
            });
        }
        bytes.extend_from_slice(&data);
        if bytes.len() > SINGLE_BYTES && share.is_none() {
            let permit = LARGE.clone().try_acquire_owned();
            share = Some(permit.map_err(|_| {
                Refusal::busy("Too many large requests at the same time; try again")
            })?);
        }
    }
    Ok(Received {
        bytes: bytes.freeze(),
        _share: share,
    })
}

fn bounded(decoder: impl io::Read, limit: usize) -> Result<Bytes, Refusal> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(decoder, limit as u64 + 1), &mut bytes)
        .map_err(garbled)?;
    if bytes.len() > limit {
        return Err(Refusal::too_large(limit));
    }
    Ok(bytes.into())
}

fn garbled(_: io::Error) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "The request body is not what Content-Encoding says",
    )
}

/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Large bodies at the same time: a quarter of a gigabyte together.
static LARGE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(16)));
