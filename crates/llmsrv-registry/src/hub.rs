//! The Hugging Face hub: `hf.co/<user>/<repository>[:<quantization>]`.
//!
//! The hub speaks the registry protocol for most repositories of GGUF files. For the others (split
//! files, private repositories, tags it does not know) the files themselves are looked at: the list
//! tells names, sizes and SHA-256, which is all a manifest needs.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use llmsrv_api::progress::Progress;
use llmsrv_store::{Digest, Layer, LayerKind, Manifest, ModelName};
use serde::Deserialize;

use crate::{
    Error, Inner, Settings, blocking,
    hosts::Base,
    http::whole,
    session::Session,
    source::Source,
    transfer::{self, Blob, get, page},
};

/// Tells whether a name is one of the hub.
pub(crate) fn is_hub(name: &ModelName) -> bool {
    ["hf.co", "huggingface.co"]
        .iter()
        .any(|host| name.host().eq_ignore_ascii_case(host))
}

/// Returns the hub's address, for names of the hub.
pub(crate) fn base(settings: &Settings, name: &ModelName) -> Option<Base> {
    is_hub(name).then(|| Base::new(settings.hub_url.clone(), true))
}

/// Tells whether the files may be had although the manifest was refused.
pub(crate) fn may_help(error: &Error) -> bool {
    match error {
        Error::NotFound | Error::Unauthorized | Error::Answer { .. } => true,
        Error::Status { status, .. } => matches!(status, 400..=499 | 501),
        _ => false,
    }
}

/// Pulls a model by its files. `refused` is what the registry protocol said.
pub(crate) async fn pull(
    inner: &Arc<Inner>,
    name: &ModelName,
    refused: Error,
    report: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), Error> {
    let manifest_error = |error| Error::Manifest(Box::new(error));
    let base = Base::new(inner.settings.hub_url.clone(), true);
    let token = inner.settings.hub_token.clone();
    let session = Arc::new(Session::new(inner.clone(), base, token));
    let files = match list(&session, name).await {
        Ok(files) => files,
        // No such repository: the first answer was the better one.
        Err(Error::NotFound) => return Err(manifest_error(refused)),
        Err(Error::Unauthorized) => return Err(manifest_error(Error::HubToken)),
        Err(error) => return Err(manifest_error(error)),
    };
    let choice =
        choose(&files, name.tag()).map_err(|reason| manifest_error(Error::Unsupported(reason)))?;
    let large: Vec<(LayerKind, &File, Blob)> = choice
        .weights
        .iter()
        .map(|file| (LayerKind::Model, *file))
        .chain(choice.projector.map(|file| (LayerKind::Projector, file)))
        .map(|(kind, file)| Ok((kind, file, file.blob()?)))
        .collect::<Result<_, Error>>()
        .map_err(manifest_error)?;
    let address = |file: &File| session.url(&file.resolve(name));
    let sources: HashMap<Digest, &File> = large
        .iter()
        .map(|(_, file, blob)| (blob.digest, *file))
        .collect();
    let blobs = large.iter().map(|(_, _, blob)| *blob).collect();
    transfer::fetch_all(inner, blobs, report, &|blob: &Blob| {
        let file = sources[&blob.digest];
        Ok(vec![Source::new(
            session.clone(),
            address(file)?,
            blob.size,
        )])
    })
    .await?;

    let mut layers: Vec<Layer> = large
        .iter()
        .map(|(kind, _, blob)| Layer::new(*kind, blob.digest, blob.size))
        .collect();
    for (path, kind) in TEXTS {
        if let Some(file) = files.iter().find(|file| file.path == *path) {
            let response = get(&session, address(file)?, "*/*").await?;
            let bytes = whole(response, TEXT_BYTES).await?;
            let store = inner.store.clone();
            layers.push(blocking(move || store.put_layer(*kind, &mut &bytes[..])).await?);
        }
    }
    let store = inner.store.clone();
    let manifest = blocking(move || {
        let config = store.put_config(&layers)?;
        Ok(Manifest::new(config, layers).to_bytes())
    });
    transfer::write(inner, name, manifest.await?, report).await
}

/// A file of a repository.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct File {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    size: u64,
    lfs: Option<Lfs>,
}

/// Large files are known by the SHA-256 of their content.
#[derive(Clone, Debug, Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

impl File {
    fn blob(&self) -> Result<Blob, Error> {
        let lfs = self.lfs.as_ref();
        let digest = lfs.and_then(|lfs| format!("sha256:{}", lfs.oid).parse().ok());
        match (digest, lfs) {
            (Some(digest), Some(lfs)) => Ok(Blob {
                digest,
                size: lfs.size,
            }),
            _ => Err(Error::Unsupported(format!(
                "the hub does not say the SHA-256 of {}",
                self.name()
            ))),
        }
    }

    /// Returns the path of the content.
    fn resolve(&self, name: &ModelName) -> String {
        let segments: Vec<String> = self.path.split('/').map(escaped).collect();
        format!(
            "{}/{}/resolve/main/{}",
            name.namespace(),
            name.model(),
            segments.join("/")
        )
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn is_gguf(&self) -> bool {
        self.kind == "file" && self.path.to_ascii_lowercase().ends_with(".gguf")
    }

    fn is_projector(&self) -> bool {
        self.name().to_ascii_lowercase().contains("mmproj")
    }
}

/// Escapes one segment of a path.
fn escaped(segment: &str) -> String {
    let bytes = segment.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    bytes.collect()
}

/// Lists the files of a repository, page by page.
pub(crate) async fn list(session: &Session, name: &ModelName) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    let path = format!(
        "api/models/{}/{}/tree/main?recursive=true",
        name.namespace(),
        name.model()
    );
    let mut url = session.url(&path)?;
    for _ in 0..MAX_PAGES {
        let (listed, next) = page::<Vec<File>>(session, url).await?;
        files.extend(listed);
        match next {
            Some(next) => url = next,
            None => break,
        }
    }
    Ok(files)
}

/// Tells whether a repository has an encoder for images.
pub(crate) fn has_projector(files: &[File]) -> bool {
    let mut files = files.iter();
    files.any(|file| file.is_gguf() && file.is_projector())
}

/// Returns the quantizations of a repository, by the tags that [`pull`] takes, each with its bytes: weights and
/// encoder for images.
pub(crate) fn quantizations(files: &[File]) -> Vec<(String, u64)> {
    let weights = files
        .iter()
        .filter(|file| file.is_gguf() && !file.is_projector());
    let tags: BTreeSet<String> = weights
        .filter_map(|file| Gguf::of(file).quant().map(str::to_uppercase))
        .filter(|tag| tag.len() <= 16 && tag.contains(|c: char| c.is_ascii_digit()))
        .take(MAX_TAGS)
        .collect();
    tags.into_iter()
        .filter_map(|tag| {
            let choice = choose(files, &tag).ok()?;
            let parts = choice.weights.into_iter().chain(choice.projector);
            let bytes = parts.map(|file| file.lfs.as_ref().map_or(file.size, |lfs| lfs.size));
            Some((tag, bytes.fold(0, u64::saturating_add)))
        })
        .collect()
}

/// What is taken of a repository.
#[derive(Debug)]
struct Choice<'a> {
    /// One file, or all of a split one in order.
    weights: Vec<&'a File>,
    projector: Option<&'a File>,
}

/// Chooses the weights that a tag means: the name of a quantization or the end of a file's name,
/// in any letter case. `latest` means Q4_K_M if it is there.
fn choose<'a>(files: &'a [File], tag: &str) -> Result<Choice<'a>, String> {
    let is_projector = |file: &&File| file.is_projector();
    let ggufs: Vec<&File> = files.iter().filter(|file| file.is_gguf()).collect();
    let models: Vec<Gguf<'_>> = ggufs
        .iter()
        .filter(|file| !is_projector(file) && !file.name().to_ascii_lowercase().contains("imatrix"))
        .map(|file| Gguf::of(file))
        .collect();
    if models.is_empty() {
        return Err("the repository has no GGUF files".into());
    }
    let wanted = tag.to_ascii_lowercase();
    let preferences: Vec<&str> = if wanted == "latest" {
        DEFAULT_QUANTS.to_vec()
    } else {
        vec![&wanted]
    };
    let mut found: Vec<&Gguf<'_>> = Vec::new();
    for quant in preferences {
        found = models.iter().filter(|gguf| gguf.is(quant)).collect();
        if !found.is_empty() {
            break;
        }
    }
    if found.is_empty() && wanted == "latest" {
        found = models.iter().collect();
    }
    // Several variants of one quantization: the shortest name is the plain one.
    let stem = found
        .iter()
        .map(|gguf| gguf.stem.as_str())
        .min_by_key(|stem| (stem.len(), *stem));
    let Some(stem) = stem else {
        let mut known: Vec<&str> = models.iter().filter_map(Gguf::quant).collect();
        known.sort_unstable();
        known.dedup();
        return Err(format!(
            "the repository has no file for the tag {tag:?}; it has {}",
            known.join(", ")
        ));
    };
    let mut weights: Vec<&Gguf<'_>> = found
        .iter()
        .copied()
        .filter(|gguf| gguf.stem == stem)
        .collect();
    weights.sort_by_key(|gguf| gguf.shard);
    let n_shards = weights[0].n_shards;
    let whole = weights.len() == n_shards
        && (weights.iter().enumerate())
            .all(|(at, gguf)| gguf.shard == at + 1 && gguf.n_shards == n_shards);
    if !whole {
        return Err(format!(
            "the repository has {} of the {n_shards} pieces of {stem}",
            weights.len()
        ));
    }
    let mut projectors: Vec<&File> = ggufs.iter().copied().filter(is_projector).collect();
    projectors.sort_by_key(|file| {
        let name = file.name().to_ascii_lowercase();
        // F16 is what projectors are made for.
        (!name.contains("f16") || name.contains("bf16"), name)
    });
    Ok(Choice {
        weights: weights.into_iter().map(|gguf| gguf.file).collect(),
        projector: projectors.into_iter().next(),
    })
}

/// A file of weights, by what its name says.
#[derive(Debug)]
struct Gguf<'a> {
    file: &'a File,
    /// Path in lower case without the number of the piece and the ending.
    stem: String,
    /// Number of the piece, from 1.
    shard: usize,
    n_shards: usize,
}

impl<'a> Gguf<'a> {
    fn of(file: &'a File) -> Gguf<'a> {
        let path = file.path.to_ascii_lowercase();
        let path = path.strip_suffix(".gguf").unwrap_or(&path);
        let (stem, shard, n_shards) = shard_of(path).unwrap_or((path, 1, 1));
        Gguf {
            file,
            stem: stem.to_owned(),
            shard,
            n_shards,
        }
    }

    /// Tells whether the name ends with `tag`, or lies in a folder of that name.
    fn is(&self, tag: &str) -> bool {
        let tag = tag.strip_suffix(".gguf").unwrap_or(tag);
        let ends = self
            .stem
            .strip_suffix(tag)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '_', '.', '/']));
        ends || self
            .stem
            .split('/')
            .rev()
            .skip(1)
            .any(|folder| folder == tag)
    }

    /// Returns the word of the name that looks like a quantization.
    fn quant(&self) -> Option<&str> {
        let name = self.stem.rsplit('/').next()?;
        name.rsplit(['-', '.']).next()
    }
}

/// Splits `<stem>-00001-of-00003`.
fn shard_of(path: &str) -> Option<(&str, usize, usize)> {
    let (rest, n_shards) = path.rsplit_once("-of-")?;
    let (stem, shard) = rest.rsplit_once('-')?;
    let number =
        |text: &str| -> Option<usize> { (text.len() == 5).then(|| text.parse().ok()).flatten() };
    Some((stem, number(shard)?, number(n_shards)?))
}

/// Small files that say how a model wants to be used.
const TEXTS: &[(&str, LayerKind)] = &[
    ("template", LayerKind::Template),
    ("system", LayerKind::System),
    ("params", LayerKind::Parameters),
];
const DEFAULT_QUANTS: [&str; 4] = ["q4_k_m", "q4_0", "q4_k_s", "q8_0"];
const TEXT_BYTES: usize = 1 << 20;
const MAX_PAGES: usize = 50;
/// Quantizations of a repository that are listed.
const MAX_TAGS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<File> {
        paths
            .iter()
            .map(|path| File {
                path: (*path).into(),
                kind: "file".into(),
                size: 1,
                lfs: None,
            })
            .collect()
    }

    fn chosen(paths: &[&str], tag: &str) -> Result<Vec<String>, String> {
        let files = files(paths);
        let choice = choose(&files, tag)?;
        let all = choice.weights.into_iter().chain(choice.projector);
        Ok(all.map(|file| file.path.clone()).collect())
    }

    #[test]
    fn a_tag_is_a_quantization_in_any_case() {
        let paths = [
            "README.md",
            "m-Q8_0.gguf",
            "m-Q4_K_M.gguf",
            "m-Q4_K_S.gguf",
            "m.IQ4_XS.gguf",
            "m.imatrix.gguf",
            "mmproj-m-BF16.gguf",
            "mmproj-m-F16.gguf",
        ];
        let projector = "mmproj-m-F16.gguf";
        for (tag, file) in [
            ("latest", "m-Q4_K_M.gguf"),
            ("q8_0", "m-Q8_0.gguf"),
            ("Q4_K_S", "m-Q4_K_S.gguf"),
            ("iq4_xs", "m.IQ4_XS.gguf"),
            ("m-Q8_0.gguf", "m-Q8_0.gguf"),
        ] {
            assert_eq!(chosen(&paths, tag).unwrap(), [file, projector], "{tag}");
        }
        let error = chosen(&paths, "Q2_K").unwrap_err();
        assert!(
            error.contains("q4_k_m, ") && error.contains("Q2_K"),
            "{error}"
        );
        assert!(chosen(&["a.txt"], "latest").is_err());
        assert_eq!(chosen(&["only.gguf"], "latest").unwrap(), ["only.gguf"]);
    }

    #[test]
    fn quantizations_are_listed_with_their_bytes() {
        let files = files(&[
            "README.md",
            "m-Q8_0.gguf",
            "other-m-Q8_0.gguf",
            "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf",
            "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf",
            "m-IQ2_XS-00001-of-00003.gguf",
            "m.imatrix.gguf",
            "m-of-my-heart.gguf",
            "mmproj-m-F16.gguf",
        ]);
        let expected = [("Q4_K_M".to_owned(), 3), ("Q8_0".to_owned(), 2)];
        assert_eq!(quantizations(&files), expected);
        assert!(has_projector(&files));
    }

    #[test]
    fn all_pieces_of_a_split_file_are_taken_in_order() {
        let paths = [
            "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf",
            "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf",
            "BF16/m-00001-of-00001.gguf",
        ];
        assert_eq!(chosen(&paths, "Q4_K_M").unwrap(), [paths[1], paths[0]]);
        assert_eq!(chosen(&paths, "bf16").unwrap(), [paths[2]]);
        assert!(chosen(&paths[1..], "Q4_K_M").is_err_and(|e| e.contains("1 of the 2")));
    }

    #[test]
    fn names_are_escaped() {
        let name: ModelName = "hf.co/u/r".parse().unwrap();
        let file = &files(&["a b/c?d#é.gguf"])[0];
        assert_eq!(
            file.resolve(&name),
            "u/r/resolve/main/a%20b/c%3Fd%23%C3%A9.gguf"
        );
    }
}
