//! New entries as they come, as server-sent events.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    extract::{RawQuery, State},
    response::{
        Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use http::HeaderMap;
use logkit::query::{Filter, Row};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};

use super::{App, read};
use crate::{call::row_json, refusal::Refusal, store::StoreError};

/// `GET /logs/stream`: entries stored from now on, or after `Last-Event-ID`, which a client sends
/// that was cut off. A slow client reads later from the database; nothing is kept for it.
pub(super) async fn logs(
    State(app): State<App>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let wanted = read::parse(&query.unwrap_or_default())?;
    let permit = app.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Refusal::busy("Too many streams; try again"))?;
    let commits = app.store.commits();
    let last_event: Option<i64> = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let seen = match last_event {
        Some(id) => id,
        None => app.store.read(|reader| reader.last_id()).await?,
    };
    let tail = Tail {
        filter: wanted.filter,
        seen,
        ready: VecDeque::new(),
        commits,
        stopping: app.stopping.clone(),
        asked: Instant::now(),
        app,
        _permit: permit,
    };
    let events = stream::unfold(tail, |mut tail| async move {
        let row = tail.next().await?;
        let event = Event::default().id(row.id.to_string());
        let event = event.data(row_json(&row).to_string());
        Some((Ok(event), tail))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

struct Tail {
    app: App,
    filter: Filter,
    /// Rows up to this one have been looked at.
    seen: i64,
    ready: VecDeque<Row>,
    commits: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    asked: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Tail {
    /// The next row that matches; `None` when the server stops.
    async fn next(&mut self) -> Option<Row> {
        loop {
            if *self.stopping.borrow() {
                return None;
            }
            if let Some(row) = self.ready.pop_front() {
                return Some(row);
            }
            // Under load one query answers for many commits.
            tokio::time::sleep_until(self.asked + PAUSE).await;
            self.commits.mark_unchanged();
            let found = self.look().await;
            self.asked = Instant::now();
            if found.is_ok() && self.ready.is_empty() {
                tokio::select! {
                    _ = self.commits.changed() => {}
                    // Other programs may write to the same database.
                    () = tokio::time::sleep(OTHERS) => {}
                    _ = self.stopping.changed() => return None,
                }
            }
            if found.is_err() {
                tokio::time::sleep(OTHERS).await;
            }
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let (filter, seen) = (self.filter.clone(), self.seen);
        let (rows, last) = self
            .app
            .store
            .read(move |reader| {
                let last = reader.last_id()?;
                if last <= seen {
                    return Ok((Vec::new(), seen));
                }
                let mut rows = Vec::new();
                let (mut n_bytes, mut is_full) = (0, false);
                let filter = Filter {
                    after_id: Some(seen),
                    before_id: last.checked_add(1),
                    limit: Some(PAGE),
                    ..filter
                };
                reader.for_each(&filter, |row| {
                    n_bytes += row.entry.size_bytes();
                    rows.push(row);
                    is_full = rows.len() == PAGE || n_bytes > PAGE_BYTES;
                    !is_full
                })?;
                let last = match rows.last() {
                    Some(row) if is_full => row.id,
                    _ => last,
                };
                Ok((rows, last))
            })
            .await?;
        self.ready = rows.into();
        self.seen = last;
        Ok(())
    }
}

/// Rows that are read at once.
const PAGE: usize = 200;
/// And as long as they have not so many bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Between two queries.
const PAUSE: Duration = Duration::from_millis(25);
/// How often is looked for what other programs wrote.
const OTHERS: Duration = Duration::from_millis(500);
