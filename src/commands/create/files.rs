//! The files a model is made from: finding them, and bringing them to the server.
//!
//! A Modelfile may come from a stranger, so only what has the form of a model file is ever read:
//! GGUF, and the published files of a folder with safetensors.
//!
//! The server may run elsewhere or as another user, so it is given bytes, never a path to read. When
//! it is of this machine and its store is the one of our settings, this command links the file into
//! that store with the rights of its own user, and then asks the server whether it has the blob.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures_util::stream;
use llmsrv_config::Folders;
use llmsrv_store::{Digest, OpenOptions, Store};
use tokio::io::AsyncReadExt as _;

use crate::{connect::Connection, context::Context, term::Steps};

/// What a model is made from.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// A model the server knows.
    Model(String),
    /// Files with the names the server is told.
    Files(Vec<(String, PathBuf)>),
}

impl Source {
    /// Finds out what `text` means: a file or a folder if there is one, else the name of a model.
    /// Relative paths begin at `folder`.
    pub fn find(folder: &Path, text: &str) -> anyhow::Result<Source> {
        let path = match text.strip_prefix("~/").zip(Folders::from_process().home) {
            Some((rest, home)) => home.join(rest),
            None => folder.join(text),
        };
        let unusable = || format!("cannot use {text}");
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                let files = in_folder(&path).with_context(unusable)?;
                if files.is_empty() {
                    bail!("the folder {text} has neither GGUF nor safetensors files");
                }
                Ok(Source::Files(files))
            }
            Ok(_) => {
                if !is_gguf(&path).with_context(unusable)? {
                    bail!("{text} is not a GGUF file; for safetensors, name their folder");
                }
                Ok(Source::Files(vec![(name_of(&path), path)]))
            }
            Err(error) if looks_like_path(text) => Err(error).with_context(unusable),
            Err(_) => Ok(Source::Model(text.to_owned())),
        }
    }
}

fn looks_like_path(text: &str) -> bool {
    let extension = Path::new(text).extension().unwrap_or_default();
    text.starts_with(['/', '.', '~'])
        || ["gguf", "safetensors", "bin"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
}

/// Lists the files of a published model: the safetensors and what belongs to them, else all GGUF.
fn in_folder(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            files.push((name_of(&path), path));
        }
    }
    files.sort();
    let ends = |name: &str, end: &str| name.to_ascii_lowercase().ends_with(end);
    if !files.iter().any(|(name, _)| ends(name, ".safetensors")) {
        files.retain(|(name, path)| ends(name, ".gguf") && is_gguf(path).unwrap_or(false));
        return Ok(files);
    }
    // Some publish the same weights a second time in their own form.
    let has_model = files
        .iter()
        .any(|(name, _)| name.starts_with("model") && ends(name, ".safetensors"));
    files.retain(|(name, _)| {
        let weights =
            ends(name, ".safetensors") && !(has_model && name.starts_with("consolidated"));
        weights || ends(name, ".json") || BESIDE_WEIGHTS.contains(&name.as_str())
    });
    // How the library sentence-transformers makes one vector of many.
    let pooling = folder.join(POOLING);
    if pooling.is_file() {
        files.push((POOLING.to_owned(), pooling));
    }
    Ok(files)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn is_gguf(path: &Path) -> io::Result<bool> {
    let mut magic = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"GGUF")
}

/// Brings files to the server.
pub struct Uploader<'a> {
    connection: &'a Connection,
    /// The store of this machine, when the server probably has the same.
    store: Option<Store>,
    steps: &'a mut Steps,
}

impl<'a> Uploader<'a> {
    /// Prepares; with `link` files are linked where that is possible.
    pub fn new(
        context: &Context,
        connection: &'a Connection,
        link: bool,
        steps: &'a mut Steps,
    ) -> Uploader<'a> {
        let server = &context.config().server;
        let here = link && server.host.is_local() && server.models.join("blobs").is_dir();
        let options = OpenOptions {
            prune: false,
            ..OpenOptions::default()
        };
        Uploader {
            connection,
            store: here
                .then(|| Store::open(&server.models, options).ok())
                .flatten(),
            steps,
        }
    }

    /// Makes sure that the server has the content of a file; returns its digest.
    pub async fn bring(&mut self, path: &Path) -> anyhow::Result<Digest> {
        let unreadable = || format!("cannot read {}", path.display());
        let name = name_of(path);
        let total = fs::metadata(path).with_context(unreadable)?.len();
        let digest = self
            .hash(path, &format!("hashing {name}"), total)
            .with_context(unreadable)?;
        let client = &self.connection.client;
        let blob = digest.to_string();
        if client.has_blob(&blob).await? {
            return Ok(digest);
        }
        if let Some(store) = &self.store {
            match store.link_blob(path, &digest) {
                // Another server may have another store.
                Ok(()) if client.has_blob(&blob).await? => return Ok(digest),
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, file = name, "copied, not linked"),
            }
        }
        let step = format!("copying {name}");
        self.steps.amount(&step, 0, total);
        let file = tokio::fs::File::open(path).await.with_context(unreadable)?;
        let (sender, mut sent) = tokio::sync::watch::channel(0);
        let pieces = stream::try_unfold((file, sender), |(mut file, sender)| async move {
            let mut piece = vec![0; PIECE_BYTES];
            let n_bytes = file.read(&mut piece).await?;
            piece.truncate(n_bytes);
            sender.send_modify(|sent| *sent += n_bytes as u64);
            let piece = (n_bytes > 0).then(|| Bytes::from(piece));
            Ok::<_, io::Error>(piece.map(|piece| (piece, (file, sender))))
        });
        let mut upload = std::pin::pin!(client.upload(&blob, pieces));
        loop {
            tokio::select! {
                done = &mut upload => {
                    done?;
                    return Ok(digest);
                }
                Ok(()) = sent.changed() => self.steps.amount(&step, *sent.borrow(), total),
            }
        }
    }

    fn hash(&mut self, path: &Path, step: &str, total: u64) -> io::Result<Digest> {
        let mut file = Counted {
            file: File::open(path)?,
            n_read: 0,
            on: &mut |n_read| self.steps.amount(step, n_read, total),
        };
        // Nothing else is done meanwhile, so that this thread may wait.
        Ok(Digest::of_reader(&mut file)?.0)
    }
}

/// A file that tells how much of it was read.
struct Counted<'a> {
    file: File,
    n_read: u64,
    on: &'a mut dyn FnMut(u64),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.file.read(buffer)?;
        self.n_read += n_bytes as u64;
        (self.on)(self.n_read);
        Ok(n_bytes)
    }
}

const PIECE_BYTES: usize = 1 << 20;
/// Files without a telling name that belong to published weights.
const POOLING: &str = "1_Pooling/config.json";
const BESIDE_WEIGHTS: [&str; 4] = [
    "tokenizer.model",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &Source) -> Vec<&str> {
        match source {
            Source::Files(files) => files.iter().map(|(name, _)| name.as_str()).collect(),
            Source::Model(_) => Vec::new(),
        }
    }

    #[test]
    fn a_file_or_folder_is_preferred_to_a_model_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("a.gguf", b"GGUF....");
        write("key", b"-----BEGIN");
        write("parts/2.gguf", b"GGUF");
        write("parts/1.gguf", b"GGUF");
        write("parts/x.gguf", b"text");
        write("parts/README.md", b"");
        for name in [
            "config.json",
            "model-1.safetensors",
            "consolidated.safetensors",
            "tokenizer.model",
            "notes.txt",
            "1_Pooling/config.json",
            "2_Normalize/config.json",
        ] {
            write(&format!("published/{name}"), b"");
        }
        write("empty/x.txt", b"");
        let find = |text: &str| Source::find(dir.path(), text);
        assert_eq!(names(&find("a.gguf").unwrap()), ["a.gguf"]);
        assert_eq!(names(&find("./parts").unwrap()), ["1.gguf", "2.gguf"]);
        let published = find("published").unwrap();
        assert_eq!(
            names(&published),
            [
                "config.json",
                "model-1.safetensors",
                "tokenizer.model",
                "1_Pooling/config.json"
            ]
        );
        assert_eq!(find("qwen:1b").unwrap(), Source::Model("qwen:1b".into()));
        for text in [
            "key",
            "./nothing",
            "/nowhere/at/all",
            "b.gguf",
            "empty",
            "~/no/such.gguf",
        ] {
            assert!(find(text).is_err(), "{text}");
        }
    }
}
