//! The start of an output that either begins with a tag (of thinking) or with its grammar.

use llguidance::{Matcher, TokenParser};
use llmsrv_tokenizer::Tokenizer;
use toktrie::SimpleVob;

use crate::{TokenId, detok::output_bytes};

/// Follows an output as long as it may become both.
pub(super) struct Trigger {
    begin: Vec<u8>,
    /// The text after which the grammar begins if the output has the tag.
    pub(super) after: String,
    /// Bytes of `begin` that are output.
    n_seen: usize,
    /// Tokens that spell parts of `begin`.
    pieces: Vec<(TokenId, Vec<u8>)>,
    n_tokens: usize,
    /// Whether the output so far is in the grammar, too.
    pub(super) in_grammar: bool,
    /// The grammar as it was at first.
    pub(super) fresh: (Matcher, TokenParser),
}

impl Trigger {
    pub(super) fn new(
        tokenizer: &Tokenizer,
        begin: String,
        after: String,
        (matcher, ahead): (&Matcher, &TokenParser),
    ) -> Trigger {
        let begin = begin.into_bytes();
        let n_tokens = tokenizer.vocab_size();
        let is_part = |bytes: &[u8]| {
            !bytes.is_empty()
                && bytes.len() <= begin.len()
                && begin.windows(bytes.len()).any(|part| part == bytes)
        };
        let pieces = (0..n_tokens as TokenId)
            .filter(|token| !tokenizer.is_end_of_generation(*token))
            .map(|token| (token, output_bytes(tokenizer, token).into_owned()))
            .filter(|(_, bytes)| is_part(bytes))
            .collect();
        Trigger {
            begin,
            after,
            n_seen: 0,
            pieces,
            n_tokens,
            in_grammar: true,
            fresh: (matcher.deep_clone(), ahead.deep_clone()),
        }
    }

    /// Adds the tokens that go on with the tag to those that the grammar allows.
    pub(super) fn allowed(&self, grammar: Option<SimpleVob>) -> SimpleVob {
        let mut allowed = grammar.unwrap_or_else(|| SimpleVob::alloc(self.n_tokens));
        let rest = &self.begin[self.n_seen..];
        for (token, bytes) in &self.pieces {
            if rest.starts_with(bytes) {
                allowed.allow_token(*token);
            }
        }
        allowed
    }

    /// Takes the bytes of a token; returns whether they go on with the tag.
    pub(super) fn accept(&mut self, bytes: &[u8]) -> bool {
        let opens = !bytes.is_empty() && self.begin[self.n_seen..].starts_with(bytes);
        if opens {
            self.n_seen += bytes.len();
        }
        opens
    }

    /// Whether the whole tag is output.
    pub(super) fn is_complete(&self) -> bool {
        self.n_seen == self.begin.len()
    }
}
