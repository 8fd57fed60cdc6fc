//! Text to token ids and back, built from the metadata of a GGUF file.
//!
//! Read in this order: `vocab` (the plain data), `tokenizer` (what callers use), then the
//! parts it is made of: `special` finds control tokens in the text, `pretokenize` cuts text
//! into words for byte-level BPE, and `bpe`, `spm`, `unigram`, `wordpiece` turn a piece
//! of text into ids. The crate reads no file and never prints.

mod bpe;
mod charsmap;
mod ids;
mod merge;
mod prefix;
mod pretokenize;
mod pretokenizers;
mod roles;
mod special;
mod spelling;
mod spm;
mod tokenizer;
mod unigram;
mod vocab;
mod wordpiece;
mod words;

pub use tokenizer::{Special, Tokenizer};
pub use vocab::{Algorithm, FimTokens, TokenKind, Vocab};

/// A vocabulary that cannot become a tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The metadata lacks a key.
    #[error("tokenizer metadata has no valid {0}")]
    Missing(&'static str),
    /// The model names an algorithm that this crate does not have.
    #[error("unsupported tokenizer model {0:?}")]
    UnsupportedModel(String),
    /// A list has another length than the list of tokens.
    #[error("tokenizer {what} has {found} entries for {tokens} tokens")]
    Length {
        /// The list.
        what: &'static str,
        /// Its length.
        found: usize,
        /// Number of tokens.
        tokens: usize,
    },
    /// There is no token.
    #[error("the vocabulary is empty")]
    Empty,
    /// More tokens, or longer ones, than ids and offsets of 32 bits can name.
    #[error("the vocabulary is too large")]
    TooLarge,
    /// The normalisation table of a unigram vocabulary is damaged.
    #[error("invalid tokenizer.ggml.precompiled_charsmap: {0}")]
    Charsmap(&'static str),
}
