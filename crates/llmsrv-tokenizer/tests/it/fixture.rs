//! The files that `fixtures/make.py` makes.

use std::{collections::BTreeMap, path::PathBuf};

use llmsrv_tokenizer::{Algorithm, TokenKind, Vocab};
use serde::{Deserialize, de::DeserializeOwned};

/// A vocabulary, texts, and what the reference programs make of them.
#[derive(Deserialize)]
pub(crate) struct Fixture {
    pub(crate) tokens: Vec<String>,
    pub(crate) kinds: Vec<u8>,
    #[serde(default)]
    pub(crate) merges: Vec<String>,
    #[serde(default)]
    pub(crate) scores: Vec<f32>,
    /// The tokens that end a generation.
    #[serde(default)]
    pub(crate) ends: Vec<u32>,
    pub(crate) texts: Vec<String>,
    /// For each text the different results.
    pub(crate) variants: Vec<Vec<Vec<u32>>>,
    /// For each setting and text the number of the result.
    pub(crate) settings: BTreeMap<String, Vec<usize>>,
}

impl Fixture {
    pub(crate) fn read(name: &str) -> Fixture {
        read(name)
    }

    /// Returns the vocabulary alone, without roles and flags.
    pub(crate) fn vocab(&self, algorithm: Algorithm) -> Vocab {
        let kind = |kind: &u8| match kind {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        };
        Vocab {
            algorithm,
            tokens: self.tokens.clone(),
            kinds: self.kinds.iter().map(kind).collect(),
            merges: self.merges.clone(),
            scores: self.scores.clone(),
            ..Vocab::default()
        }
    }
}

pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
}

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}
