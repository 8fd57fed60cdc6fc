//! Receiving one blob: parts side by side, each continued where it broke.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use llmsrv_store::{Digest, PartialBlob};
use reqwest::Response;
use tokio::sync::Notify;

use crate::{
    Error, Inner, Tuning,
    backoff::Backoff,
    blocking,
    http::failure,
    shared::Report,
    source::{Bytes, Source},
};

/// Receives a blob from the first of `sources` that has it whole and right.
pub(crate) async fn download(
    inner: Arc<Inner>,
    digest: Digest,
    size: u64,
    sources: Vec<Source>,
    report: Arc<Report>,
) -> Result<(), Error> {
    let mut last = Error::NotFound;
    let n_sources = sources.len();
    for (at, source) in sources.into_iter().enumerate() {
        let stands_by = at + 1 < n_sources;
        match from(&inner, digest, size, &source, stands_by, &report).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_local() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, host = source.host(), "a blob cannot be had here");
                last = error;
            }
        }
    }
    Err(last)
}

async fn from(
    inner: &Arc<Inner>,
    digest: Digest,
    size: u64,
    source: &Source,
    stands_by: bool,
    report: &Arc<Report>,
) -> Result<(), Error> {
    let tuning = &inner.settings.tuning;
    let Some(partial) = begin(inner, digest, size).await? else {
        report.send_modify(|state| state.completed = size);
        return Ok(());
    };
    let transfer = Transfer {
        tuning,
        source,
        stands_by,
        partial: Arc::new(partial),
        report,
        came: Notify::new(),
    };
    transfer.reported();
    tokio::select! {
        received = transfer.receive() => received?,
        error = transfer.keep_hashing() => return Err(error),
    }
    let partial = transfer.partial.clone();
    blocking(move || partial.commit()).await
}

/// Begins or continues a blob. Waits while another process receives it; nothing if it has come.
async fn begin(
    inner: &Arc<Inner>,
    digest: Digest,
    size: u64,
) -> Result<Option<PartialBlob>, Error> {
    loop {
        let store = inner.store.clone();
        let part_bytes = inner.settings.tuning.part_bytes(size);
        let begun = blocking(move || {
            if store.blob_size(&digest)? == Some(size) {
                return Ok(None);
            }
            store.partial_blob(&digest, size, part_bytes).map(Some)
        });
        match begun.await? {
            None => return Ok(None),
            Some(Some(partial)) => return Ok(Some(partial)),
            Some(None) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

struct Transfer<'a> {
    tuning: &'a Tuning,
    source: &'a Source,
    /// Another source can be tried.
    stands_by: bool,
    partial: Arc<PartialBlob>,
    report: &'a Report,
    /// Something came that can be hashed.
    came: Notify,
}

/// Why a part is not received further.
enum Stop {
    Failed(Error),
    /// The server sends everything, whatever is asked for.
    Whole(Response),
}

impl Transfer<'_> {
    async fn receive(&self) -> Result<(), Error> {
        let missing: Vec<usize> = self
            .partial
            .parts()
            .iter()
            .filter(|part| !part.is_complete())
            .map(|part| part.n)
            .collect();
        let Some((&first, rest)) = missing.split_first() else {
            return Ok(());
        };
        // The first answer shows where the blob really is and whether ranges are known there.
        let mut backoff = self.backoff();
        let response = loop {
            let part = self.partial.part(first);
            match self.source.open(part.position(), part.end()).await {
                Ok(Bytes::Range(response)) => break response,
                Ok(Bytes::Whole(response)) => return self.receive_whole(response).await,
                Err(error) if self.stands_by && error.is_unreachable() => return Err(error),
                Err(error) => backoff.after(error).await?,
            }
        };
        let mut parts = vec![(first, Some(response))];
        parts.extend(rest.iter().map(|n| (*n, None)));
        let parts = stream::iter(parts)
            .map(|(n, response)| self.receive_part(n, response))
            .buffer_unordered(self.tuning.parallel.max(1));
        match parts.try_collect::<()>().await {
            Ok(()) => Ok(()),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Whole(response)) => self.receive_whole(response).await,
        }
    }

    fn backoff(&self) -> Backoff<'_> {
        Backoff::beside(self.tuning, self.stands_by)
    }

    async fn receive_part(&self, n: usize, mut response: Option<Response>) -> Result<(), Stop> {
        let mut backoff = self.backoff();
        loop {
            let before = self.partial.part(n);
            if before.is_complete() {
                return Ok(());
            }
            let opened = match response.take() {
                Some(response) => Ok(Bytes::Range(response)),
                None => self.source.open(before.position(), before.end()).await,
            };
            let result = match opened {
                Ok(Bytes::Range(response)) => self.copy(response, Target::Part(n)).await,
                Ok(Bytes::Whole(response)) => return Err(Stop::Whole(response)),
                Err(error) => Err(error),
            };
            if self.partial.part(n).completed > before.completed {
                backoff.renew();
            }
            if let Err(error) = result {
                backoff.after(error).await.map_err(Stop::Failed)?;
            }
        }
    }

    /// Receives everything in one go, skipping what is there already.
    async fn receive_whole(&self, response: Response) -> Result<(), Error> {
        let mut backoff = self.backoff();
        let mut response = Some(response);
        loop {
            let before = self.partial.completed();
            let missing = self
                .partial
                .parts()
                .into_iter()
                .find(|part| !part.is_complete());
            let Some(missing) = missing else {
                return Ok(());
            };
            let opened = match response.take() {
                Some(response) => Ok(Bytes::Whole(response)),
                None => self.source.open(missing.position(), missing.end()).await,
            };
            let result = match opened {
                Ok(Bytes::Whole(response)) => self.copy(response, Target::Everything(0)).await,
                Ok(Bytes::Range(response)) => self.copy(response, Target::Part(missing.n)).await,
                Err(error) => Err(error),
            };
            if self.partial.completed() > before {
                backoff.renew();
            }
            if let Err(error) = result {
                backoff.after(error).await?;
            }
        }
    }

    /// Writes the bytes of an answer as they come.
    async fn copy(&self, mut response: Response, mut target: Target) -> Result<(), Error> {
        let url = response.url().clone();
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        let mut written_at = Instant::now();
        loop {
            let next = match tokio::time::timeout(self.tuning.stall, response.chunk()).await {
                Ok(Ok(next)) => Ok(next),
                Ok(Err(error)) => Err(failure(&url, &error)),
                Err(_) => Err(Error::Stalled {
                    host: self.source.host(),
                }),
            };
            if let Ok(Some(chunk)) = &next {
                buffer.extend_from_slice(chunk);
            }
            let ended = !matches!(next, Ok(Some(_)));
            if ended || buffer.len() >= WRITE_BYTES || written_at.elapsed() > WRITE_EVERY {
                let more;
                (buffer, target, more) = self.write(buffer, target).await?;
                buffer.clear();
                written_at = Instant::now();
                if !more {
                    return Ok(());
                }
            }
            match next {
                Ok(Some(_)) => {}
                Ok(None) => {
                    return Err(Error::Broken {
                        host: self.source.host(),
                        reason: "it ended too early".into(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts bytes in their place. Returns the buffer, where the next bytes belong, and whether any
    /// are missing there.
    async fn write(
        &self,
        buffer: Vec<u8>,
        target: Target,
    ) -> Result<(Vec<u8>, Target, bool), Error> {
        let partial = self.partial.clone();
        let written = blocking(move || {
            let (target, more) = target.write(&partial, &buffer)?;
            Ok((buffer, target, more))
        });
        let written = written.await?;
        self.reported();
        self.came.notify_one();
        Ok(written)
    }

    fn reported(&self) {
        let completed = self.partial.completed();
        self.report.send_modify(|state| state.completed = completed);
    }

    /// Hashes what comes while the rest is coming. Ends only with an error.
    async fn keep_hashing(&self) -> Error {
        loop {
            let partial = self.partial.clone();
            match blocking(move || partial.hash_some(HASH_BYTES)).await {
                Ok(true) => {}
                Ok(false) => self.came.notified().await,
                Err(error) => return error,
            }
        }
    }
}

/// Where the bytes of an answer belong.
#[derive(Clone, Copy)]
enum Target {
    /// The end of what is there of a part.
    Part(usize),
    /// This place of the blob.
    Everything(u64),
}

impl Target {
    fn write(
        self,
        partial: &PartialBlob,
        bytes: &[u8],
    ) -> Result<(Target, bool), llmsrv_store::Error> {
        match self {
            Target::Part(n) => {
                partial.write(n, bytes)?;
                Ok((self, !partial.part(n).is_complete()))
            }
            Target::Everything(start) => {
                let end = start + bytes.len() as u64;
                for part in partial.parts() {
                    let from = part.position();
                    if !part.is_complete() && from >= start && from < end {
                        let at = usize::try_from(from - start).unwrap_or(usize::MAX);
                        partial.write(part.n, &bytes[at..])?;
                    }
                }
                let more = partial.parts().iter().any(|part| !part.is_complete());
                Ok((Target::Everything(end), more))
            }
        }
    }
}

/// Bytes that are written at once.
const WRITE_BYTES: usize = 512 << 10;
/// Bytes of a slow connection are written after this time.
const WRITE_EVERY: Duration = Duration::from_millis(200);
/// Bytes that are hashed at once; whoever leaves waits for them.
const HASH_BYTES: u64 = 64 << 20;
/// How often to look whether another process has finished.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
