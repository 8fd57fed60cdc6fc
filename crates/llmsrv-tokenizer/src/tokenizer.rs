//! What callers use: text to ids, ids to bytes, and the roles of special tokens.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError, TryLockError},
};

use crate::{
    Algorithm, Error, TokenKind, Vocab,
    bpe::Bpe,
    ids::Ids,
    pretokenizers, roles,
    special::{Fragment, SpecialTokens},
    spelling::{self, SPACE},
    spm::Spm,
    unigram::Unigram,
    wordpiece::WordPiece,
    words::Words,
};

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
    ids: Ids,
    special: SpecialTokens,
    encoder: Encoder,
    /// What each token stands for, one after the other.
    bytes: Vec<u8>,
    /// Where it ends in `bytes`.
    ends: Vec<u32>,
    end_of_generation: Vec<u32>,
    longest: Option<usize>,
    warnings: Vec<String>,
    words: Mutex<Words>,
}

#[derive(Debug)]
enum Encoder {
    Bpe(Bpe),
    Spm(Spm),
    Unigram(Unigram),
    WordPiece(WordPiece),
}

impl Tokenizer {
    /// Builds a tokenizer.
    ///
    /// Lists may be empty where [`Vocab`] says so. Special ids outside the vocabulary and merges
    /// that are none are ignored; an unknown pre-tokenizer falls back to the default one with a
    /// [warning](Tokenizer::warnings).
    pub fn new(mut vocab: Vocab) -> Result<Tokenizer, Error> {
        let n_tokens = vocab.tokens.len();
        if n_tokens == 0 {
            return Err(Error::Empty);
        }
        let n_merges = vocab.merges.len();
        let text_bytes: usize = vocab
            .tokens
            .iter()
            .chain(&vocab.merges)
            .map(String::len)
            .sum();
        if n_tokens.max(n_merges) > MAX_ENTRIES || text_bytes > MAX_TEXT_BYTES {
            return Err(Error::TooLarge);
        }
        for (what, found) in [
            ("scores", vocab.scores.len()),
            ("token types", vocab.kinds.len()),
        ] {
            if found != 0 && found != n_tokens {
                return Err(Error::Length {
                    what,
                    found,
                    tokens: n_tokens,
                });
            }
        }
        vocab.kinds.resize(n_tokens, TokenKind::Normal);
        vocab.scores.resize(n_tokens, 0.0);
        let end_of_generation = roles::assign(&mut vocab);

        let mut warnings = Vec::new();
        if vocab.algorithm == Algorithm::Bpe && pretokenizers::find(&vocab.pre).is_none() {
            warnings.push(format!(
                "unknown pre-tokenizer {:?}: using the default one, answers may suffer",
                vocab.pre
            ));
        }
        let ids = Ids::new(&vocab);
        let encoder = match vocab.algorithm {
            Algorithm::Bpe => Encoder::Bpe(Bpe::new(&vocab, &ids)),
            Algorithm::Spm => Encoder::Spm(Spm::new(&vocab, &ids)),
            Algorithm::Unigram => Encoder::Unigram(Unigram::new(&vocab)?),
            Algorithm::WordPiece => Encoder::WordPiece(WordPiece::new(&vocab, &ids)),
        };
        let spells_bytes = matches!(&encoder, Encoder::Bpe(bpe) if bpe.spells_bytes());
        let mut bytes = Vec::with_capacity(text_bytes);
        let mut ends = Vec::with_capacity(n_tokens);
        for (text, kind) in vocab.tokens.iter().zip(&vocab.kinds) {
            bytes.extend_from_slice(&output_bytes(text, *kind, spells_bytes));
            ends.push(bytes.len() as u32);
        }
        let drops_spaces = matches!(&encoder, Encoder::Bpe(bpe) if bpe.drops_spaces());
        let longest = match vocab.algorithm {
            Algorithm::Bpe if drops_spaces => None,
            Algorithm::Bpe | Algorithm::Spm => vocab.tokens.iter().map(String::len).max(),
            // A word of any length may become the unknown token.
            Algorithm::Unigram | Algorithm::WordPiece => None,
        };
        let special = SpecialTokens::new(&vocab);
        // The encoder has them; as texts they take as much memory as the tokens.
        vocab.merges = Vec::new();
        let words = Mutex::default();
        Ok(Tokenizer {
            vocab,
            ids,
            special,
            encoder,
            bytes,
            ends,
            end_of_generation,
            longest,
            warnings,
            words,
        })
    }

    /// Returns the ids of `text`.
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        // One call at a time uses the memory of words; a second one at the same moment does
        // without rather than wait.
        let mut own;
        let mut shared;
        let words = match self.words.try_lock() {
            Ok(words) => {
                shared = words;
                &mut *shared
            }
            Err(TryLockError::Poisoned(words)) => {
                shared = PoisonError::into_inner(words);
                *shared = Words::default();
                &mut *shared
            }
            Err(TryLockError::WouldBlock) => {
                own = Words::default();
                &mut own
            }
        };
        let mut ids = Vec::with_capacity(text.len() / 4 + 4);
        let mut after_special = true;
        for fragment in self.special.split(text, special != Special::Plain) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => self.encode_text(text, after_special, words, &mut ids),
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if special == Special::ParseAndAdd {
            let (begin, end) = (self.begin(), self.end());
            let has_begin = begin.is_some() && ids.first() == begin.as_ref();
            // The same token may be both; a single one is the begin.
            let has_end = ids.len() > usize::from(has_begin) && ids.last() == end.as_ref();
            if let Some(begin) = begin.filter(|_| !has_begin) {
                ids.insert(0, begin);
            }
            ids.extend(end.filter(|_| !has_end));
        }
        ids
    }

    /// Encodes text without special tokens.
    fn encode_text(&self, text: &str, after_special: bool, words: &mut Words, out: &mut Vec<u32>) {
        let mut rest = text;
        let mut after_special = after_special;
        while !rest.is_empty() {
            let (part, tail) = rest.split_at(rest.floor_char_boundary(MAX_FRAGMENT_BYTES));
            match &self.encoder {
                Encoder::Bpe(bpe) => bpe.encode(part, &self.ids, words, out),
                Encoder::Spm(spm) => {
                    let prefix = self.vocab.add_space_prefix && after_special;
                    let mut escaped = String::with_capacity(part.len() + part.len() / 2 + 3);
                    escaped.extend(prefix.then_some(SPACE));
                    escaped.extend(part.chars().map(|c| if c == ' ' { SPACE } else { c }));
                    spm.encode(&escaped, &self.ids, words, out);
                }
                Encoder::Unigram(unigram) => unigram.encode(part, words, out),
                Encoder::WordPiece(wordpiece) => wordpiece.encode(part, words, out),
            }
            rest = tail;
            after_special = false;
        }
    }

    /// Returns the bytes that a token stands for in output: nothing for control tokens and for
    /// ids outside the vocabulary. The bytes of one token need not be valid UTF-8.
    pub fn token_bytes(&self, id: u32) -> Cow<'_, [u8]> {
        let end = |idx: usize| self.ends.get(idx).map_or(0, |end| *end as usize);
        let idx = id as usize;
        let start = idx.checked_sub(1).map_or(0, end);
        Cow::Borrowed(self.bytes.get(start..end(idx)).unwrap_or_default())
    }

    /// Returns the vocabulary's own spelling of a token, such as `<|im_end|>` or `Ġthe`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.tokens.get(id as usize).map(String::as_str)
    }

    /// Returns the text of `ids` without special tokens: their [bytes](Tokenizer::token_bytes) one
    /// after the other, U+FFFD for what is not UTF-8.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(&self.token_bytes(id));
        }
        into_text(bytes)
    }

    /// Returns the text of `ids` with the spelling of special tokens.
    pub fn decode_with_special(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            match self.vocab.kinds.get(id as usize) {
                Some(TokenKind::Control | TokenKind::Unknown) => {
                    bytes.extend_from_slice(self.token_text(id).unwrap_or_default().as_bytes());
                }
                _ => bytes.extend_from_slice(&self.token_bytes(id)),
            }
        }
        into_text(bytes)
    }

    /// Returns the id of a whole vocabulary entry, by the vocabulary's own spelling.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.ids.find(text)
    }

    /// Returns whether a token steers the model and has no text.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kinds.get(id as usize) == Some(&TokenKind::Control)
    }

    /// Returns whether a generation ends with this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// Returns all tokens that end a generation, in ascending order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Returns the token at the begin of a text.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// Returns the token at the end of a text.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Returns whether [`Special::ParseAndAdd`] puts a begin token in front.
    pub fn adds_bos(&self) -> bool {
        self.begin().is_some()
    }

    /// Returns whether [`Special::ParseAndAdd`] puts an end token behind.
    pub fn adds_eos(&self) -> bool {
        self.end().is_some()
    }

    /// Returns the bytes of text that one token stands for, at most; `None` where that may be any
    /// number. White space that a special token swallows is not counted.
    ///
    /// With it a caller knows of a long text that it has more tokens than a context without having
    /// it cut into them.
    pub fn longest_token(&self) -> Option<usize> {
        self.longest
    }

    /// Returns the number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.tokens.len()
    }

    /// Returns the vocabulary without its merges, with the roles of special tokens as far as they are known.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// Returns what is wrong with the vocabulary although it can be used; one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn begin(&self) -> Option<u32> {
        self.vocab.bos.filter(|_| self.vocab.add_bos)
    }

    fn end(&self) -> Option<u32> {
        // BERT ends a text with its separator.
        let end = match self.vocab.algorithm {
            Algorithm::WordPiece => self.vocab.separator.or(self.vocab.eos),
            Algorithm::Bpe | Algorithm::Spm | Algorithm::Unigram => self.vocab.eos,
        };
        end.filter(|_| self.vocab.add_eos)
    }
}

/// Returns what a token stands for in output.
fn output_bytes(text: &str, kind: TokenKind, spells_bytes: bool) -> Cow<'_, [u8]> {
    match kind {
        TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => Cow::Borrowed(&[]),
        TokenKind::UserDefined => Cow::Borrowed(text.as_bytes()),
        TokenKind::Byte => match spelling::hex_byte(text) {
            Some(byte) => Cow::Owned(vec![byte]),
            None => Cow::Borrowed(text.as_bytes()),
        },
        TokenKind::Normal if spells_bytes => match spelling::spelled_bytes(text) {
            Some(bytes) => Cow::Owned(bytes),
            None => Cow::Borrowed(text.as_bytes()),
        },
        TokenKind::Normal => Cow::Owned(text.replace(SPACE, " ").into_bytes()),
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// More tokens or merges than any model has.
const MAX_ENTRIES: usize = 1 << 24;
/// Offsets into the bytes of all tokens are 32 bits wide.
const MAX_TEXT_BYTES: usize = 1 << 30;
/// Positions in a fragment are 32 bits wide, with room for escapes.
const MAX_FRAGMENT_BYTES: usize = 1 << 30;
