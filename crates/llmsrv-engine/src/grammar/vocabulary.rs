//! The vocabulary as a trie of bytes, which the grammar engine walks.

use std::sync::Arc;

use llmsrv_tokenizer::Tokenizer;
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

/// Builds the trie. Control tokens get a marker byte that no text has, so a grammar cannot spell
/// them; the end-of-generation tokens end the output.
pub(super) fn environment(tokenizer: &Tokenizer) -> Result<TokEnv, String> {
    let n_tokens = tokenizer.vocab_size();
    if n_tokens > MAX_TOKENS {
        return Err("the vocabulary is too large for grammars".into());
    }
    let ids = 0..n_tokens as u32;
    let mut words: Vec<Vec<u8>> = ids.clone().map(|id| word(tokenizer, id)).collect();
    let mut ends: Vec<u32> = ids
        .filter(|id| tokenizer.is_end_of_generation(*id))
        .collect();
    if ends.is_empty() {
        // The trie needs an end; this one is outside the vocabulary and is never sampled.
        ends.push(n_tokens as u32);
        words.push(Vec::new());
    }
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}

fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    if tokenizer.is_control(id) || tokenizer.is_end_of_generation(id) {
        let text = tokenizer.token_text(id).unwrap_or_default().as_bytes();
        let name = if text.len() > MAX_WORD_BYTES {
            &[]
        } else {
            text
        };
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], name].concat();
    }
    let bytes = tokenizer.token_bytes(id);
    // Building the trie recurses once for each byte of a word; a longer token is never allowed.
    // The single byte 0xFF would look like a control token.
    let is_usable =
        bytes.len() <= MAX_WORD_BYTES && bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER);
    if is_usable {
        bytes.into_owned()
    } else {
        Vec::new()
    }
}

const MAX_WORD_BYTES: usize = 1024;
/// Node numbers of the trie have 22 bits; a vocabulary needs a few nodes for each token.
const MAX_TOKENS: usize = 1 << 20;
