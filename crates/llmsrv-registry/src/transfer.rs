//! Blobs come in, and the manifest is written at last.

use std::{collections::HashSet, sync::Arc, time::Duration};

use llmsrv_api::progress::Progress;
use llmsrv_store::{Digest, Manifest, ModelName};
use reqwest::{Response, StatusCode, Url, header};
use serde::de::DeserializeOwned;

use crate::{
    Error, Inner,
    backoff::Backoff,
    blocking,
    download::download,
    hosts::{authority, check_redirect},
    http::{refusal, text_header, whole},
    session::Session,
    source::Source,
};

/// How far the transfer of a blob is; `verb` is `pulling` or `pushing`.
pub(crate) fn progress(verb: &str, digest: &Digest, total: u64, completed: u64) -> Progress {
    Progress {
        status: format!("{verb} {}", &digest.hex()[..12]),
        digest: Some(digest.to_string()),
        total,
        completed,
    }
}

/// Time between two reports on one blob: about seven a second.
pub(crate) const REPORT_EVERY: Duration = Duration::from_millis(150);

/// Is told what comes.
pub(crate) type Report<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// A blob to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Blob {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// Receives the blobs that are missing, one after another.
pub(crate) async fn fetch_all(
    inner: &Arc<Inner>,
    blobs: Vec<Blob>,
    report: Report<'_>,
    sources: &(dyn Fn(&Blob) -> Result<Vec<Source>, Error> + Sync),
) -> Result<(), Error> {
    let blobs = unique(blobs.into_iter());
    check_space(inner, blobs.clone()).await?;
    for blob in &blobs {
        if is_there(inner, *blob).await? {
            report(progress("pulling", &blob.digest, blob.size, blob.size));
            continue;
        }
        let fetched = fetch(inner, *blob, sources(blob)?, report).await;
        if matches!(fetched, Err(Error::DigestMismatch { .. })) {
            report(Progress::step(VERIFYING));
        }
        fetched?;
    }
    report(Progress::step(VERIFYING));
    Ok(())
}

/// Returns each blob once, in their order.
pub(crate) fn unique(blobs: impl Iterator<Item = Blob>) -> Vec<Blob> {
    let mut seen = HashSet::new();
    blobs.filter(|blob| seen.insert(*blob)).collect()
}

/// Writes the manifest of a model that passes the check. From here on the model is there.
pub(crate) async fn write(
    inner: &Arc<Inner>,
    name: &ModelName,
    manifest: Vec<u8>,
    report: Report<'_>,
) -> Result<(), Error> {
    let (store, check, bytes) = (inner.store.clone(), inner.check, manifest.clone());
    let checked = blocking(move || Ok(check(&store, &Manifest::parse(&bytes)?))).await?;
    checked.map_err(Error::Unsupported)?;
    report(Progress::step("writing manifest"));
    let (store, name) = (inner.store.clone(), name.clone());
    blocking(move || store.put_manifest(&name, &manifest)).await?;
    Ok(())
}

pub(crate) async fn is_there(inner: &Arc<Inner>, blob: Blob) -> Result<bool, Error> {
    let store = inner.store.clone();
    blocking(move || Ok(store.blob_size(&blob.digest)? == Some(blob.size))).await
}

/// Waits for one blob, which others may wait for too.
pub(crate) async fn fetch(
    inner: &Arc<Inner>,
    blob: Blob,
    sources: Vec<Source>,
    report: Report<'_>,
) -> Result<(), Error> {
    let shared = inner.downloads.join(blob.digest, |state| {
        download(inner.clone(), blob.digest, blob.size, sources, state)
    });
    let mut watch = shared.watch();
    let mut reported = None;
    loop {
        let state = watch.borrow_and_update().clone();
        let completed = match state.result {
            Some(Ok(())) => blob.size,
            _ => state.completed,
        };
        if reported != Some(completed) {
            report(progress("pulling", &blob.digest, blob.size, completed));
            reported = Some(completed);
        }
        if let Some(result) = state.result {
            return result;
        }
        // An end is told at once, the rest at most every so often.
        let ended = watch.wait_for(|state| state.result.is_some());
        if let Ok(Err(_)) = tokio::time::timeout(REPORT_EVERY, ended).await {
            return Err(Error::Internal("a download ended without a result".into()));
        }
    }
}

/// Refuses what would fill the disk before a byte is received.
pub(crate) async fn check_space(inner: &Arc<Inner>, blobs: Vec<Blob>) -> Result<(), Error> {
    let (needed, free) = space(inner, blobs).await?;
    if needed > free {
        return Err(Error::NoSpace { needed, free });
    }
    Ok(())
}

/// Returns how many bytes of the blobs are still to come, and how many the disk has left.
pub(crate) async fn space(inner: &Arc<Inner>, blobs: Vec<Blob>) -> Result<(u64, u64), Error> {
    let store = inner.store.clone();
    blocking(move || {
        let mut needed = 0_u64;
        for blob in blobs {
            if store.blob_size(&blob.digest)? != Some(blob.size) {
                let there = store.partial_bytes(&blob.digest, blob.size);
                needed = needed.saturating_add(blob.size.saturating_sub(there));
            }
        }
        Ok((needed, store.free_bytes()?))
    })
    .await
}

/// Gets something small, following redirects, trying again where that may help.
pub(crate) async fn get(session: &Session, url: Url, accept: &str) -> Result<Response, Error> {
    let backoff = Backoff::new(&session.inner.settings.tuning);
    get_with(backoff, session, url, accept).await
}

/// As [`get`], trying again as `backoff` has it.
pub(crate) async fn get_with(
    mut backoff: Backoff<'_>,
    session: &Session,
    url: Url,
    accept: &str,
) -> Result<Response, Error> {
    loop {
        let error = match get_once(session, url.clone(), accept).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if error.is_unreachable() {
            return Err(error);
        }
        backoff.after(error).await?;
    }
}

/// Gets a page of JSON of at most [`PAGE_BYTES`], and the address of the next one.
pub(crate) async fn page<T: DeserializeOwned>(
    session: &Session,
    url: Url,
) -> Result<(T, Option<Url>), Error> {
    let response = get(session, url.clone(), "application/json").await?;
    let next = text_header(&response, header::LINK).and_then(next_page);
    let next = next.and_then(|next| url.join(&next).ok());
    if let Some(next) = &next {
        check_redirect(session.base(), next)?;
    }
    let bytes = whole(response, PAGE_BYTES).await?;
    match serde_json::from_slice(&bytes) {
        Ok(page) => Ok((page, next)),
        Err(error) => Err(Error::Answer {
            host: session.host(),
            reason: error.to_string(),
        }),
    }
}

/// Finds the next page in `Link: <https://...>; rel="next"`.
fn next_page(header: &str) -> Option<String> {
    header.split(',').find_map(|link| {
        let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        rest.contains("rel=\"next\"").then(|| url.to_owned())
    })
}

async fn get_once(session: &Session, mut url: Url, accept: &str) -> Result<Response, Error> {
    for _ in 0..MAX_REDIRECTS {
        let sent = session.send(|client| {
            client
                .get(url.clone())
                .header(header::ACCEPT, accept)
                .timeout(SMALL_TIMEOUT)
        });
        let response = sent.await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let target = text_header(&response, header::LOCATION)
            .filter(|_| response.status().is_redirection())
            .and_then(|location| url.join(location).ok());
        let Some(target) = target else {
            return Err(refusal(response).await);
        };
        check_redirect(session.base(), &target)?;
        url = target;
    }
    Err(Error::Answer {
        host: authority(&url),
        reason: "it redirects too often".into(),
    })
}

const VERIFYING: &str = "verifying sha256 digest";
const MAX_REDIRECTS: usize = 8;
/// For manifests and lists.
const SMALL_TIMEOUT: Duration = Duration::from_mins(2);
/// A page of a list; the hub's have chat templates.
const PAGE_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found() {
        assert_eq!(
            next_page("<https://h/p?a=1>; rel=\"prev\", <https://h/p?a=2>; rel=\"next\"")
                .as_deref(),
            Some("https://h/p?a=2")
        );
        assert_eq!(next_page("nonsense"), None);
    }
}
