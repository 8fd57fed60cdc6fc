//! A model goes out: blobs the registry lacks, then the manifest.

use std::{collections::HashSet, sync::Arc};

use llmsrv_api::progress::Progress;
use llmsrv_store::{Layer, Manifest, ModelName};
use reqwest::header;
use tokio::sync::watch;

use crate::{
    Error, Inner,
    backoff::Backoff,
    blocking,
    hosts::bases,
    http::refusal,
    hub,
    session::Session,
    transfer::{REPORT_EVERY, progress},
    upload::{Upload, exists},
};

pub(crate) async fn push(
    inner: &Arc<Inner>,
    name: &ModelName,
    insecure: bool,
    report: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), Error> {
    inner.settings.check(name.host())?;
    report(Progress::step("retrieving manifest"));
    let (bytes, manifest) = match read(inner, name).await {
        Ok(read) => read,
        Err(error) => {
            report(Progress::step("couldn't retrieve manifest"));
            return Err(error);
        }
    };
    if hub::is_hub(name) {
        return Err(Error::Unsupported(
            "the Hugging Face hub takes no models this way; upload the GGUF file there".into(),
        ));
    }
    // Layers first, as the protocol has it, and each blob once.
    let mut seen = HashSet::new();
    let mut layers: Vec<&Layer> = manifest.layers.iter().chain(&manifest.config).collect();
    layers.retain(|layer| seen.insert(layer.digest));

    let session = connect(inner, name, insecure, layers.first().copied()).await?;
    for layer in layers {
        push_layer(&session, name, layer, report).await?;
    }
    report(Progress::step("pushing manifest"));
    put_manifest(&session, name, &manifest.media_type, bytes).await
}

async fn read(inner: &Arc<Inner>, name: &ModelName) -> Result<(Vec<u8>, Manifest), Error> {
    let (store, name) = (inner.store.clone(), name.clone());
    blocking(move || {
        let bytes = store.manifest_bytes(&name)?;
        let manifest = Manifest::parse(&bytes)?;
        Ok((bytes, manifest))
    })
    .await
}

/// Finds the address at which the registry answers, from the safest on.
async fn connect(
    inner: &Arc<Inner>,
    name: &ModelName,
    insecure: bool,
    probe: Option<&Layer>,
) -> Result<Session, Error> {
    let mut first_error = None;
    for base in bases(name, insecure)? {
        let session = Session::new(inner.clone(), base, None);
        let Some(layer) = probe else {
            return Ok(session);
        };
        match exists(&session, name, layer).await {
            Err(error) if error.is_unreachable() => {
                first_error.get_or_insert(error);
            }
            Err(error) if error.wants_encryption() && first_error.is_some() => break,
            // Other errors will come again where they can be dealt with.
            _ => return Ok(session),
        }
    }
    Err(first_error.unwrap_or(Error::NotFound))
}

async fn push_layer(
    session: &Session,
    name: &ModelName,
    layer: &Layer,
    report: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), Error> {
    let say = |completed| {
        report(progress("pushing", &layer.digest, layer.size, completed));
    };
    let (sent, mut watch) = watch::channel(0_u64);
    let upload = Upload {
        session,
        name,
        layer,
        file: session.inner.store.blob_path(&layer.digest),
        sent: Arc::new(sent),
        last: Arc::default(),
    };
    let mut upload = std::pin::pin!(upload.run());
    say(0);
    loop {
        if let Ok(done) = tokio::time::timeout(REPORT_EVERY, &mut upload).await {
            done?;
            say(layer.size);
            return Ok(());
        }
        if watch.has_changed().unwrap_or(false) {
            say(*watch.borrow_and_update());
        }
    }
}

async fn put_manifest(
    session: &Session,
    name: &ModelName,
    media_type: &str,
    bytes: Vec<u8>,
) -> Result<(), Error> {
    let url = session.url(&format!(
        "v2/{}/{}/manifests/{}",
        name.namespace(),
        name.model(),
        name.tag()
    ))?;
    let bytes = bytes::Bytes::from(bytes);
    let mut backoff = Backoff::new(&session.inner.settings.tuning);
    loop {
        let sent = session.send_within(session.inner.settings.tuning.commit, |client| {
            client
                .put(url.clone())
                .header(header::CONTENT_TYPE, media_type)
                .body(bytes.clone())
        });
        let error = match sent.await {
            Ok(response) if response.status().is_success() => return Ok(()),
            Ok(response) => refusal(response).await,
            Err(error) => error,
        };
        backoff.after(error).await?;
    }
}
