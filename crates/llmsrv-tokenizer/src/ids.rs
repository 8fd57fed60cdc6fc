//! From the spelling of a token to its id.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::{TokenKind, Vocab};

/// The entries of a vocabulary by their spelling.
#[derive(Debug)]
pub(crate) struct Ids {
    by_text: HashMap<Box<str>, u32, RandomState>,
    /// Whether ordinary text may become this token.
    textual: Vec<bool>,
    /// The tokens `<0x00>` to `<0xFF>`.
    bytes: Vec<Option<u32>>,
}

impl Ids {
    /// Of entries with the same spelling the last wins.
    pub(crate) fn new(vocab: &Vocab) -> Ids {
        let by_text: HashMap<Box<str>, u32, RandomState> = vocab
            .tokens
            .iter()
            .zip(0..)
            .filter(|(text, _)| !text.is_empty())
            .map(|(text, id)| (text.as_str().into(), id))
            .collect();
        let textual = vocab
            .kinds
            .iter()
            .map(|kind| match kind {
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => true,
                TokenKind::Unknown | TokenKind::Control | TokenKind::Byte => false,
            })
            .collect();
        let is_control = |id: &u32| vocab.kinds.get(*id as usize) == Some(&TokenKind::Control);
        let bytes = (0..=255u8)
            .map(|byte| by_text.get(format!("<0x{byte:02X}>").as_str()).copied())
            .map(|id| id.filter(|id| !is_control(id)))
            .collect();
        Ids {
            by_text,
            textual,
            bytes,
        }
    }

    /// Returns the entry with this spelling, of any kind.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// Returns the entry with this spelling if ordinary text may become it: text that spells a
    /// control token stays text.
    pub(crate) fn textual(&self, text: &str) -> Option<u32> {
        self.find(text).filter(|&id| self.is_textual(id))
    }

    /// Returns whether ordinary text may become this token.
    pub(crate) fn is_textual(&self, id: u32) -> bool {
        self.textual.get(id as usize).copied().unwrap_or(false)
    }

    /// Returns the token that stands for a single byte.
    pub(crate) fn byte(&self, byte: u8) -> Option<u32> {
        self.bytes.get(usize::from(byte)).copied().flatten()
    }
}
