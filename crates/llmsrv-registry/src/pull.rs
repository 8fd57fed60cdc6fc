//! A model comes in: manifest, blobs, manifest written.

use std::sync::Arc;

use llmsrv_api::progress::Progress;
use llmsrv_store::{Error as StoreError, LayerKind, Manifest, ModelName};
use reqwest::header;

use crate::{
    Error, Inner,
    backoff::Backoff,
    blocking,
    hosts::{self, Base, same_origin},
    http::{text_header, whole},
    hub,
    session::Session,
    source::Source,
    transfer::{Blob, Report, check_space, fetch, fetch_all, get_with, is_there, unique, write},
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
    let n_places = places.len();
    for (at, bases) in places.into_iter().enumerate() {
        // Once there is a manifest, the other places only stand by.
        if found.is_some() {
            origins.extend(bases.into_iter().map(|base| origin(inner, name, base)));
            continue;
        }
        let stands_by = at + 1 < n_places;
        match first_manifest(inner, name, bases, stands_by).await {
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

/// Tries the addresses of one place, from the safest on. Another place may stand by.
async fn first_manifest(
    inner: &Arc<Inner>,
    name: &ModelName,
    bases: Vec<Base>,
    stands_by: bool,
) -> Result<(Origin, Vec<u8>, Manifest), Error> {
    let mut first_error = None;
    for base in bases {
        let origin = origin(inner, name, base);
        let backoff = Backoff::beside(&inner.settings.tuning, stands_by);
        match manifest(&origin.session, name, backoff).await {
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
    let settings = &inner.settings;
    // A mirror of the hub is somebody else.
    let is_hub = hub::is_hub(name) && same_origin(&base.url, &settings.hub_url);
    let token = settings.hub_token.clone().filter(|_| is_hub);
    Origin {
        session: Arc::new(Session::new(inner.clone(), base, token)),
        blobs: format!("v2/{}/{}/blobs/{{digest}}", name.namespace(), name.model()),
    }
}

pub(crate) async fn manifest(
    session: &Session,
    name: &ModelName,
    backoff: Backoff<'_>,
) -> Result<(Vec<u8>, Manifest), Error> {
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
    let url = session.url(&path)?;
    let response = get_with(backoff, session, url, MANIFEST_TYPES).await?;
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

const MANIFEST_TYPES: &str = "application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.oci.image.manifest.v1+json";
const MANIFEST_BYTES: usize = 4 << 20;
pub(crate) const CONFIG_BYTES: u64 = 1 << 20;
