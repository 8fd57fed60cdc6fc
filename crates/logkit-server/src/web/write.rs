//! Storing entries.

use axum::{body::Body, extract::State, response::Response};
use http::HeaderMap;
use logkit::{Entry, Timestamp};
use serde::{Serialize, Serializer};

use super::App;
use crate::{
    body,
    call::Logged,
    parse,
    refusal::{Refusal, json_answer},
    store::Store,
};

/// What a stored entry is answered with.
#[expect(clippy::struct_field_names, reason = "the name of the answer's member")]
#[derive(Serialize)]
struct Stored {
    cmd: String,
    language: String,
    stored: bool,
    id: i64,
    #[serde(serialize_with = "as_text")]
    timestamp: Timestamp,
}

/// Moments are kept small until they are sent.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn as_text<S: Serializer>(timestamp: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(timestamp)
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
    let store = app.store.clone();
    let parsed = received.parse(move |bytes| Ok(prepare(parse::single(bytes)?, &store)));
    let ((entry, mut stored), _share) = parsed.await?;
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
    let store = app.store.clone();
    let parsed = received.parse(move |bytes| {
        let (mut entries, mut results) = (Vec::new(), Vec::new());
        parse::batch(bytes, store.max_batch(), |logged| {
            let (entry, stored) = prepare(logged, &store);
            let n_bytes = entry.size_bytes() + stored.cmd.len() + stored.language.len();
            entries.push(entry);
            results.push(stored);
            n_bytes + size_of::<Stored>()
        })?;
        Ok((entries, results))
    });
    let ((entries, mut results), _share) = parsed.await?;
    if !entries.is_empty() {
        let first_id = app.store.write(entries).await?;
        for (stored, id) in results.iter_mut().zip(first_id..) {
            stored.id = id;
        }
    }
    app.metrics.stored(results.len());
    Ok(json_answer(&StoredBatch {
        stored: results.len(),
        results,
    }))
}

/// The entry, blanked, and its answer, which lacks the id.
fn prepare(logged: Logged, store: &Store) -> (Entry, Stored) {
    let (mut entry, cmd, language) = logged.into_entry(store.redactor());
    store.redact(&mut entry);
    let stored = Stored {
        cmd,
        language,
        stored: true,
        id: 0,
        timestamp: entry.timestamp,
    };
    (entry, stored)
}
