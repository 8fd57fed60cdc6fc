//! Text to token ids and back, built from the metadata of a GGUF file.
//!
//! Read in this order: `vocab` (the plain data), `metadata` (how a file states it), `tokenizer`
//! (what callers use), then the parts it is made of. `roles` and `special` know special tokens,
//! `pretokenizers` and `pretokenize` cut text into words for byte-pair encoding, `bpe`, `spm`,
//! `unigram` and `wordpiece` turn a piece of text into ids, `words` remembers them.
//!
//! Any vocabulary and any text is safe: encoding never fails, and no text takes more than time
//! proportional to n log n. The crate reads no file and never prints.

mod bpe;
mod charsmap;
mod ids;
mod merge;
mod metadata;
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

pub use pretokenizers::identify as identify_pretokenizer;
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
    #[error("the vocabulary has {tokens} tokens but {found} {what}")]
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
