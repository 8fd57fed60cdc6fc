//! Files on their way into the store, before a model is made from them.

use axum::{
    body::Body,
    extract::{Path, State},
    http::StatusCode,
};
use http_body_util::BodyExt as _;
use llmsrv_store::{BlobWriter, Digest};

use crate::{app::App, error::ApiError, tasks::blocking};

pub(super) async fn head(
    State(app): State<App>,
    Path(digest): Path<String>,
) -> Result<StatusCode, ApiError> {
    let digest: Digest = digest.parse()?;
    let store = app.store.clone();
    match blocking(move || store.blob_size(&digest)).await?? {
        Some(_) => Ok(StatusCode::OK),
        None => Err(ApiError::blob_not_found(&digest)),
    }
}

/// Stores a blob of any size: what has come is written before more is read. A client that leaves,
/// or sends something else than it promised, leaves nothing behind.
pub(super) async fn create(
    State(app): State<App>,
    Path(digest): Path<String>,
    mut body: Body,
) -> Result<StatusCode, ApiError> {
    let digest: Digest = digest.parse()?;
    let store = app.store.clone();
    let begun = blocking(move || match store.blob_size(&digest)? {
        Some(_) => Ok(None),
        None => store.blob_writer().map(Some),
    });
    let Some(mut writer) = begun.await?? else {
        return Ok(StatusCode::OK);
    };
    let mut pending = Vec::with_capacity(WRITE_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the request body ended early"))?;
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        while !data.is_empty() {
            let room = WRITE_BYTES - pending.len();
            pending.extend_from_slice(&data.split_to(room.min(data.len())));
            if pending.len() == WRITE_BYTES {
                (writer, pending) = write(writer, pending).await?;
            }
        }
    }
    let (writer, _) = write(writer, pending).await?;
    blocking(move || writer.commit(Some(&digest))).await??;
    Ok(StatusCode::CREATED)
}

/// Writes on a thread that may wait; returns the empty buffer to be filled again.
async fn write(
    mut writer: BlobWriter,
    mut bytes: Vec<u8>,
) -> Result<(BlobWriter, Vec<u8>), ApiError> {
    blocking(move || {
        writer.write(&bytes)?;
        bytes.clear();
        Ok((writer, bytes))
    })
    .await?
}

/// Bytes kept in memory of one upload.
const WRITE_BYTES: usize = 1 << 20;
