//! Storing entries.

use axum::{body::Body, extract::State, response::Response};
use http::HeaderMap;
use logkit::Entry;
use serde::Serialize;

use super::App;
use crate::{
    body,
    call::Logged,
    parse,
    refusal::{Refusal, json_answer},
};

/// What a stored entry is answered with.
#[expect(clippy::struct_field_names, reason = "the name of the answer's member")]
#[derive(Serialize)]
struct Stored {
    cmd: String,
    language: String,
    stored: bool,
    id: i64,
    timestamp: String,
}

#[derive(Serialize)]
struct StoredBatch {
    stored: usize,
    results: Vec<Stored>,
}

/// `POST /log`
pub(super) async fn single(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let received = body::read(&headers, body, body::SINGLE_BYTES).await?;
    let logged = parse::single(&received.bytes)?;
    drop(received);
    let (entry, mut stored) = prepare(logged, &app);
    stored.id = app.store.write(vec![entry]).await?;
    app.metrics.stored(1);
    Ok(json_answer(&stored))
}

/// `POST /log/batch`
pub(super) async fn batch(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let received = body::read(&headers, body, body::BATCH_BYTES).await?;
    let logged = parse::batch(&received.bytes, app.store.max_batch())?;
    let (entries, mut results): (Vec<Entry>, Vec<Stored>) = logged
        .into_iter()
        .map(|logged| prepare(logged, &app))
        .unzip();
    if !entries.is_empty() {
        let first_id = app.store.write(entries).await?;
        for (stored, id) in results.iter_mut().zip(first_id..) {
            stored.id = id;
        }
    }
    app.metrics.stored(results.len());
    drop(received);
    Ok(json_answer(&StoredBatch {
        stored: results.len(),
        results,
    }))
}

/// The entry and its answer, which lacks the id.
fn prepare(logged: Logged, app: &App) -> (Entry, Stored) {
    let (entry, cmd, language) = logged.into_entry(app.store.redactor());
    let stored = Stored {
        cmd,
        language,
        stored: true,
        id: 0,
        timestamp: entry.timestamp.to_string(),
    };
    (entry, stored)
}
