//! The files of a published model: found by name, read with a limit.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use llmsrv_gguf::json;
use serde_json::{Map, Value};

use crate::Error;

/// Files of one folder under the names their owner gave them, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    all: &'a [(String, PathBuf)],
    /// Part of the names up to the last separator: the other folders hold other things, for
    /// instance the same model in the form of the authors' own library.
    folder: &'a str,
}

impl<'a> Files<'a> {
    /// Takes the files beside the one named `config`; of several, the one nearest to the top.
    pub(crate) fn beside(config: &str, all: &'a [(String, PathBuf)]) -> Files<'a> {
        let folders = all.iter().filter_map(|(name, _)| {
            let folder = name.strip_suffix(config)?;
            (folder.is_empty() || folder.ends_with(SEPARATORS)).then_some(folder)
        });
        Files {
            all,
            folder: folders.min_by_key(|folder| folder.len()).unwrap_or(""),
        }
    }

    /// Takes the files of a folder in this one, if it has any.
    pub(crate) fn below(self, folder: &str) -> Option<Files<'a>> {
        let inner = self.all.iter().find_map(|(name, _)| {
            let rest = name.strip_prefix(self.folder)?.strip_prefix(folder)?;
            let rest = rest.strip_prefix(SEPARATORS)?;
            name.get(..name.len() - rest.len())
        });
        inner.map(|folder| Files { folder, ..self })
    }

    /// Returns the files of the folder.
    fn iter(self) -> impl Iterator<Item = (&'a str, &'a Path)> {
        self.all.iter().filter_map(move |(name, path)| {
            let name = name.strip_prefix(self.folder)?;
            (!name.contains(SEPARATORS)).then_some((name, path.as_path()))
        })
    }

    /// Returns the file of this name.
    pub(crate) fn find(self, name: &str) -> Option<&'a Path> {
        let found = self.iter().find(|(other, _)| *other == name);
        found.map(|(_, path)| path)
    }

    /// Returns all files with weights, by name. Of a model that is there in two forms, the form of
    /// the authors' own library (`consolidated`) is left out.
    pub(crate) fn weights(self) -> Vec<(&'a str, &'a Path)> {
        let mut found: Vec<(&str, &Path)> = self
            .iter()
            .filter(|(name, _)| name.ends_with(".safetensors"))
            .collect();
        let is_consolidated = |name: &str| name.starts_with("consolidated");
        if !found.iter().all(|(name, _)| is_consolidated(name)) {
            found.retain(|(name, _)| !is_consolidated(name));
        }
        found.sort_unstable();
        found
    }

    /// Returns the content of a file, if there is one of this name.
    pub(crate) fn bytes(self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(path) = self.find(name) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        File::open(path)?
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::Invalid(format!("{name} is too large")));
        }
        Ok(Some(bytes))
    }

    /// Returns the content of a text file.
    pub(crate) fn text(self, name: &str) -> Result<Option<String>, Error> {
        let bytes = self.bytes(name)?;
        let text = bytes.map(|bytes| {
            String::from_utf8(bytes)
                .map_err(|_| Error::Invalid(format!("{name} is not UTF-8 text")))
        });
        text.transpose()
    }

    /// Returns the object in a JSON file.
    pub(crate) fn json(self, name: &str) -> Result<Option<Map<String, Value>>, Error> {
        let bytes = self.bytes(name)?;
        let object = bytes.map(|bytes| {
            json::check(&bytes, MAX_VALUES)
                .map_err(|what| Error::Invalid(format!("{name}: {what}")))?;
            serde_json::from_slice(&bytes)
                .map_err(|error| Error::Invalid(format!("{name}: {error}")))
        });
        object.transpose()
    }
}

const SEPARATORS: [char; 2] = ['/', '\\'];
/// The largest vocabularies are a tenth of this.
const MAX_BYTES: u64 = 256 << 20;
/// Values of one file, twice those of the largest published vocabulary.
pub(crate) const MAX_VALUES: usize = 4_000_000;
