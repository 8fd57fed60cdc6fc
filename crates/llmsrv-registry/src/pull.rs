//! A model comes in: manifest, blobs, manifest written.

use std::{collections::HashSet, sync::Arc, time::Duration};

use llmsrv_store::{Digest, Error as StoreError, LayerKind, Manifest, ModelName};
use reqwest::{Response, StatusCode, Url, header};

use crate::{
    Error, Inner, Progress,
    backoff::Backoff,
    blocking,
    download::download,
    hosts::{self, Base, authority, check_redirect},
    http::{refusal, text_header, whole},
    hub,
    progress::REPORT_EVERY,
    session::Session,
    source::Source,
};

/// What a model consists of and where it comes from.
pub(crate) struct Plan {
    /// The bytes to be stored.
    pub(crate) manifest: Vec<u8>,
    /// The same, read.
    pub(crate) parsed: Manifest,
    /// Where its blobs are, best first.
    pub(crate) origins: Vec<Origin>,
}

/// A place that has the blobs of a model.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) session: Arc<Session>,
    /// Path of a blob with `{digest}` in it.
    pub(crate) blobs: String,
}

impl Plan {
    /// Returns where a blob can be had.
    fn sources(&self, blob: Blob) -> Result<Vec<Source>, Error> {
        let source = |origin: &Origin| {
            let path = origin.blobs.replace("{digest}", &blob.digest.to_string());
            let url = origin.session.url(&path)?;
            Ok(Source::new(origin.session.clone(), url, blob.size))
        };
        self.origins.iter().map(source).collect()
    }
}

type Report<'a> = &'a (dyn Fn(Progress) + Send + Sync);

pub(crate) async fn pull(
    inner: &Arc<Inner>,
    name: &ModelName,
    insecure: bool,
    report: Report<'_>,
) -> Result<(), Error> {
    inner.settings.check(name.host())?;
    report(Progress::step("pulling manifest"));
    let plan = match plan(inner, name, insecure).await {
        Err(error) if hub::is_hub(name) && hub::may_help(&error) => {
            tracing::debug!(%error, "the hub has no such manifest; looking at its files");
            return hub::pull(inner, name, error, report).await;
        }
        plan => plan.map_err(|error| Error::Manifest(Box::new(error)))?,
    };
    check(&plan.parsed)?;
    let blobs = unique(plan.parsed.blobs().map(|layer| Blob {
        digest: layer.digest,
        size: layer.size,
    }));
    // Before anything is received.
    check_space(inner, blobs.clone()).await?;
    check_runs(inner, &plan, report).await?;
    // Somebody may remove a blob, with another model, between our look at it and the manifest.
    for attempt in 1.. {
        let sources = |blob: &Blob| plan.sources(*blob);
        fetch_all(inner, blobs.clone(), report, &sources).await?;
        match write(inner, name, plan.manifest.clone(), report).await {
            Err(Error::Store(error))
                if attempt < 3 && matches!(*error, StoreError::MissingBlob { .. }) => {}
            written => return written,
        }
    }
    Ok(())
}

/// Refuses a model whose configuration names an architecture that does not run here, before the weights
/// are received. One whose configuration cannot be read is judged when it is loaded.
async fn check_runs(inner: &Arc<Inner>, plan: &Plan, report: Report<'_>) -> Result<(), Error> {
    let config = plan.parsed.config.as_ref();
    let config = config.filter(|config| config.size <= CONFIG_BYTES);
    let (Some(config), Some(refusal)) = (config, inner.settings.refusal) else {
        return Ok(());
    };
    let blob = Blob {
        digest: config.digest,
        size: config.size,
    };
    if !is_there(inner, blob).await? {
        fetch(inner, blob, plan.sources(blob)?, report).await?;
    }
    let store = inner.store.clone();
    let read = move || Ok(std::fs::read(store.blob_path(&blob.digest)).unwrap_or_default());
    let bytes = blocking(read).await?;
    let Ok(config) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
        return Ok(());
    };
    let text = |key: &str| config.get(key).and_then(serde_json::Value::as_str);
    if let Some(format) = text("model_format").filter(|format| *format == "safetensors") {
        return Err(Error::Unsupported(format!(
            "its weights are {format}, which do not run here; take a tag of the model with GGUF weights, \
             such as one that ends in q4_K_M"
        )));
    }
    match text("model_family").and_then(refusal) {
        Some(refusal) => Err(Error::Unsupported(refusal)),
        None => Ok(()),
    }
}

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
            report(Progress::blob(
                "pulling",
                &blob.digest,
                blob.size,
                blob.size,
            ));
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
fn unique(blobs: impl Iterator<Item = Blob>) -> Vec<Blob> {
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

async fn is_there(inner: &Arc<Inner>, blob: Blob) -> Result<bool, Error> {
    let store = inner.store.clone();
    blocking(move || Ok(store.blob_size(&blob.digest)? == Some(blob.size))).await
}

/// Waits for one blob, which others may wait for too.
async fn fetch(
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
            report(Progress::blob(
                "pulling",
                &blob.digest,
                blob.size,
                completed,
            ));
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
async fn check_space(inner: &Arc<Inner>, blobs: Vec<Blob>) -> Result<(), Error> {
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

/// Refuses what could never run here before gigabytes of it are received.
pub(crate) fn check(manifest: &Manifest) -> Result<(), Error> {
    if manifest.layers_of(LayerKind::Model).next().is_none() {
        return Err(Error::Unsupported(
            "this is no model that runs here: it has no weights in the GGUF format".into(),
        ));
    }
    Ok(())
}

/// Gets the manifest from the first place that has it. That place comes first for the blobs too.
pub(crate) async fn plan(
    inner: &Arc<Inner>,
    name: &ModelName,
    insecure: bool,
) -> Result<Plan, Error> {
    let mut places: Vec<Vec<Base>> = inner
        .settings
        .mirrors
        .iter()
        .filter(|mirror| name.host().eq_ignore_ascii_case(&mirror.host))
        .map(|mirror| vec![Base::new(mirror.url.clone(), true)])
        .collect();
    places.push(match hub::base(&inner.settings, name) {
        Some(base) => vec![base],
        None => hosts::bases(name, insecure)?,
    });
    let mut origins = Vec::new();
    let mut found: Option<(Vec<u8>, Manifest)> = None;
    let mut last = Error::NotFound;
    for bases in places {
        // Once there is a manifest, the other places only stand by.
        if found.is_some() {
            origins.extend(bases.into_iter().map(|base| origin(inner, name, base)));
            continue;
        }
        match first_manifest(inner, name, bases).await {
            Ok((origin, bytes, manifest)) => {
                origins.push(origin);
                found = Some((bytes, manifest));
            }
            Err(error) => last = error,
        }
    }
    let (manifest, parsed) = found.ok_or(last)?;
    Ok(Plan {
        manifest,
        parsed,
        origins,
    })
}

/// Tries the addresses of one place, from the safest on.
async fn first_manifest(
    inner: &Arc<Inner>,
    name: &ModelName,
    bases: Vec<Base>,
) -> Result<(Origin, Vec<u8>, Manifest), Error> {
    let mut first_error = None;
    for base in bases {
        let origin = origin(inner, name, base);
        match manifest(&origin.session, name).await {
            Ok((bytes, manifest)) => return Ok((origin, bytes, manifest)),
            Err(error) if error.is_unreachable() => {
                first_error.get_or_insert(error);
            }
            // The trouble with its certificate is what matters then.
            Err(error) if error.wants_encryption() && first_error.is_some() => break,
            Err(error) => return Err(error),
        }
    }
    Err(first_error.unwrap_or(Error::NotFound))
}

fn origin(inner: &Arc<Inner>, name: &ModelName, base: Base) -> Origin {
    let token = hub::is_hub(name)
        .then(|| inner.settings.hub_token.clone())
        .flatten();
    Origin {
        session: Arc::new(Session::new(inner.clone(), base, token)),
        blobs: format!("v2/{}/{}/blobs/{{digest}}", name.namespace(), name.model()),
    }
}

async fn manifest(session: &Session, name: &ModelName) -> Result<(Vec<u8>, Manifest), Error> {
    let path = format!(
        "v2/{}/{}/manifests/{}",
        name.namespace(),
        name.model(),
        name.tag()
    );
    let unusable = |reason: String| Error::Answer {
        host: session.host(),
        reason,
    };
    let response = get(session, session.url(&path)?, MANIFEST_TYPES).await?;
    let is_index = text_header(&response, header::CONTENT_TYPE)
        .is_some_and(|kind| kind.contains("manifest.list") || kind.contains("image.index"));
    let bytes = whole(response, MANIFEST_BYTES).await?;
    if is_index {
        return Err(unusable(
            "it is a list of images for several machines, not a model".into(),
        ));
    }
    let manifest = Manifest::parse(&bytes).map_err(|error| unusable(error.to_string()))?;
    Ok((bytes.to_vec(), manifest))
}

/// Gets something small, following redirects, trying again where that may help.
pub(crate) async fn get(session: &Session, url: Url, accept: &str) -> Result<Response, Error> {
    let mut backoff = Backoff::new(&session.inner.settings.tuning);
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
const MANIFEST_TYPES: &str = "application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.oci.image.manifest.v1+json";
const MANIFEST_BYTES: usize = 4 << 20;
const CONFIG_BYTES: u64 = 1 << 20;
const MAX_REDIRECTS: usize = 8;
/// For manifests and lists.
const SMALL_TIMEOUT: Duration = Duration::from_mins(2);
