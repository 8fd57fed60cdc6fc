//! What can be pulled from a place that lists it: the hub by its search, other registries by `_catalog`
//! (<https://distribution.github.io/distribution/spec/api/#listing-repositories>).

use std::{collections::BTreeSet, sync::Arc};

use futures_util::{StreamExt as _, stream};
use llmsrv_store::ModelName;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Inner,
    backoff::Backoff,
    hosts, hub,
    pull::{CONFIG_BYTES, manifest},
    session::Session,
    transfer::page,
};

/// A model that can be pulled, in one quantization or tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    /// What is pulled.
    pub name: String,
    /// Bytes to download.
    pub bytes: u64,
    /// `general.architecture` of its files, where the place says it.
    pub architecture: Option<String>,
    /// The longest context in tokens, where the place says it.
    pub context: Option<u32>,
    /// The licence of the weights, where the place says it.
    pub licence: Option<String>,
    /// What it can do beside text, in the words of `/api/show`.
    pub capabilities: Vec<String>,
}

/// Asks a place what it offers. `host` is the hub or a registry; all `words` are part of the names. Of the hub
/// these are the repositories of GGUF files that people pull most, at most [`MAX_REPOSITORIES`]. `report` gets
/// the number of repositories that were read, and of all.
pub(crate) async fn offers(
    inner: &Arc<Inner>,
    host: &str,
    words: &[String],
    insecure: bool,
    report: &(dyn Fn(usize, usize) + Send + Sync),
) -> Result<Vec<Offer>, Error> {
    let name: ModelName = format!("{host}/library/any")
        .parse()
        .map_err(|_| Error::Host { host: host.into() })?;
    inner.settings.check(name.host())?;
    if let Some(base) = hub::base(&inner.settings, &name) {
        let token = inner.settings.hub_token.clone();
        return of_hub(&Session::new(inner.clone(), base, token), words, report).await;
    }
    let mut first_error = None;
    for base in hosts::bases(&name, insecure)? {
        let session = Session::new(inner.clone(), base, None);
        match of_registry(&session, &name, words, report).await {
            Err(error) if error.is_unreachable() => drop(first_error.get_or_insert(error)),
            Err(Error::NotFound) => return Err(Error::NoList { host: host.into() }),
            result => return result,
        }
    }
    Err(first_error.unwrap_or(Error::NotFound))
}

/// A repository, as the hub's search describes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Repository {
    id: String,
    tags: Vec<String>,
    pipeline_tag: Option<String>,
    gguf: Option<Gguf>,
}

/// What the hub has read in a GGUF file of a repository.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Gguf {
    architecture: Option<String>,
    context_length: Option<u32>,
    chat_template: Option<String>,
}

async fn of_hub(
    session: &Session,
    words: &[String],
    report: &(dyn Fn(usize, usize) + Send + Sync),
) -> Result<Vec<Offer>, Error> {
    let mut url = session.url("api/models")?;
    let limit = MAX_REPOSITORIES.to_string();
    url.query_pairs_mut()
        .append_pair("filter", "gguf")
        .append_pair("search", &words.join(" "))
        .append_pair("sort", "downloads")
        .append_pair("direction", "-1")
        .append_pair("limit", &limit)
        .extend_pairs(["gguf", "pipeline_tag", "tags"].map(|what| ("expand[]", what)));
    let (mut found, _) = page::<Vec<Repository>>(session, url).await?;
    found.truncate(MAX_REPOSITORIES);
    let offers = found.iter().map(|it| quantizations(session, it));
    gather(offers, report).await
}

/// Joins what repositories offer, some of which are asked at a time.
async fn gather(
    offers: impl ExactSizeIterator<Item = impl Future<Output = Result<Vec<Offer>, Error>>>,
    report: &(dyn Fn(usize, usize) + Send + Sync),
) -> Result<Vec<Offer>, Error> {
    let n_all = offers.len();
    let mut all = Vec::new();
    let mut answers = stream::iter(offers).buffered(AT_ONCE).enumerate();
    while let Some((idx, answer)) = answers.next().await {
        report(idx + 1, n_all);
        match answer {
            Ok(offers) => all.extend(offers),
            // Gone since, no model, or nothing for this user.
            Err(
                Error::NotFound | Error::Unauthorized | Error::Status { .. } | Error::Answer { .. },
            ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Lists what a repository of the hub has, smallest first.
async fn quantizations(session: &Session, of: &Repository) -> Result<Vec<Offer>, Error> {
    let Ok(name) = format!("hf.co/{}", of.id).parse::<ModelName>() else {
        return Ok(Vec::new());
    };
    let files = hub::list(session, &name).await?;
    let gguf = of.gguf.as_ref();
    let template = gguf.and_then(|gguf| gguf.chat_template.as_deref());
    let says = |word: &str| template.is_some_and(|template| template.contains(word));
    let task = of.pipeline_tag.as_deref().unwrap_or_default();
    let sees = task == "image-text-to-text" || hub::has_projector(&files);
    let embeds = matches!(task, "feature-extraction" | "sentence-similarity");
    let capabilities = [
        ("embedding", embeds),
        ("tools", says("tools")),
        ("thinking", says("think>")),
        ("vision", sees),
    ];
    let capabilities = capabilities.into_iter().filter(|(_, can)| *can);
    let capabilities: Vec<String> = capabilities.map(|(what, _)| what.to_owned()).collect();
    let licence = of.tags.iter().find_map(|tag| tag.strip_prefix("license:"));
    let mut offers: Vec<Offer> = hub::quantizations(&files)
        .into_iter()
        .map(|(quantization, bytes)| Offer {
            name: format!("hf.co/{}:{quantization}", of.id),
            bytes,
            architecture: gguf.and_then(|gguf| gguf.architecture.clone()),
            context: gguf.and_then(|gguf| gguf.context_length),
            licence: licence.map(str::to_owned),
            capabilities: capabilities.clone(),
        })
        .collect();
    offers.sort_by_key(|offer| offer.bytes);
    Ok(offers)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Repositories {
    repositories: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tags {
    tags: Option<Vec<String>>,
}

/// What the configuration of a model says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    model_family: Option<String>,
}

async fn of_registry(
    session: &Session,
    like: &ModelName,
    words: &[String],
    report: &(dyn Fn(usize, usize) + Send + Sync),
) -> Result<Vec<Offer>, Error> {
    let mut url = session.url(&format!("v2/_catalog?n={PAGE}"))?;
    let mut repositories = BTreeSet::new();
    for _ in 0..MAX_PAGES {
        let (listed, next) = page::<Repositories>(session, url).await?;
        let listed = listed.repositories.unwrap_or_default().into_iter();
        let is_meant = |name: &String| words.iter().all(|word| name.contains(word.as_str()));
        repositories.extend(listed.filter(is_meant));
        match next {
            Some(next) if repositories.len() < MAX_LISTED => url = next,
            _ => break,
        }
    }
    let repositories: Vec<String> = repositories.into_iter().take(MAX_LISTED).collect();
    let offers = repositories.iter().map(|it| tags(session, like, it));
    gather(offers, report).await
}

/// Lists the tags of a repository that are models.
async fn tags(session: &Session, like: &ModelName, path: &str) -> Result<Vec<Offer>, Error> {
    let url = session.url(&format!("v2/{path}/tags/list"))?;
    let (listed, _) = page::<Tags>(session, url).await?;
    let mut offers = Vec::new();
    let tags = listed.tags.unwrap_or_default().into_iter();
    for tag in tags.take(MAX_TAGS) {
        let Ok(name) = format!("{}/{path}:{tag}", like.host()).parse::<ModelName>() else {
            continue;
        };
        let backoff = Backoff::new(&session.inner.settings.tuning);
        let (_, manifest) = match manifest(session, &name, backoff).await {
            Err(Error::Answer { .. } | Error::NotFound) => continue,
            manifest => manifest?,
        };
        if crate::pull::check(&manifest).is_err() {
            continue;
        }
        let config = manifest.config.as_ref();
        let config = match config.filter(|config| config.size <= CONFIG_BYTES) {
            Some(layer) => {
                let url = session.url(&format!("v2/{path}/blobs/{}", layer.digest))?;
                let (config, _) = page::<Config>(session, url).await.unwrap_or_default();
                config
            }
            None => Config::default(),
        };
        offers.push(Offer {
            name: name.to_string(),
            bytes: manifest.size(),
            architecture: config.model_family,
            ..Offer::default()
        });
    }
    offers.sort_by_key(|offer| offer.bytes);
    Ok(offers)
}

/// Repositories of the hub that are read for one question.
const MAX_REPOSITORIES: usize = 40;
/// Repositories of a registry that are read.
const MAX_LISTED: usize = 500;
/// Tags of a repository of a registry.
const MAX_TAGS: usize = 50;
/// Repositories on a page of a registry.
const PAGE: usize = 200;
const MAX_PAGES: usize = 50;
/// Questions at the same time.
const AT_ONCE: usize = 4;
