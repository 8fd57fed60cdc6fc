//! A vocabulary of any size that byte-level BPE can really reach: all bytes, then every word of two,
//! three and four letters, with the merges that make them, and a few control tokens at the end.

use llmsrv_gguf::{Metadata, StringArray};

/// Fewest tokens: the bytes, one word and the control tokens.
pub(super) const FEWEST: usize = 256 + 1 + CONTROLS.len();
/// As many words as there are.
pub(super) const MOST: usize = 256 + 27 * (26 + 26 * 26 + 26 * 26 * 26) + CONTROLS.len();

/// Writes the keys of the tokenizer.
pub(super) fn describe(metadata: &mut Metadata, n_vocab: usize, pretokenizer: &str) {
    let n_words = n_vocab - 256 - CONTROLS.len();
    let mut tokens = StringArray::new();
    let mut merges = StringArray::new();
    for byte in 0..=255 {
        tokens.push(spelled(byte).to_string().as_bytes());
    }
    let mut stems: Vec<String> = std::iter::once('Ġ')
        .chain('a'..='z')
        .map(String::from)
        .collect();
    let mut n_left = n_words;
    while n_left > 0 {
        let mut words = Vec::new();
        for stem in &stems {
            for letter in ('a'..='z').take(n_left) {
                let word = format!("{stem}{letter}");
                tokens.push(word.as_bytes());
                merges.push(format!("{stem} {letter}").as_bytes());
                words.push(word);
                n_left -= 1;
            }
        }
        stems = words;
    }
    for control in CONTROLS {
        tokens.push(control.as_bytes());
    }
    let mut types = vec![NORMAL; n_vocab - CONTROLS.len()];
    types.resize(n_vocab, CONTROL);
    let end = (n_vocab - 1) as u32;
    metadata.set("tokenizer.ggml.model", "gpt2");
    metadata.set("tokenizer.ggml.pre", pretokenizer);
    metadata.set("tokenizer.ggml.tokens", tokens);
    metadata.set("tokenizer.ggml.token_type", types);
    metadata.set("tokenizer.ggml.merges", merges);
    metadata.set("tokenizer.ggml.bos_token_id", end - 1);
    metadata.set("tokenizer.ggml.eos_token_id", end);
    metadata.set("tokenizer.ggml.padding_token_id", end);
    metadata.set("tokenizer.ggml.add_bos_token", false);
}

/// The character that stands for a byte, as published with GPT-2: printable Latin-1 for itself, the
/// others from U+0100 on in order.
fn spelled(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !is_printable(*byte)).count();
    char::from_u32(0x100 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

const CONTROLS: [&str; 2] = ["<|begin_of_text|>", "<|end_of_text|>"];
/// Kinds of tokens as files number them.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

#[cfg(test)]
mod tests {
    use llmsrv_tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn a_vocabulary_has_the_size_asked_for_and_its_words_are_reached() {
        for n_vocab in [FEWEST, 2048, 151_936] {
            let mut metadata = Metadata::new();
            describe(&mut metadata, n_vocab, "qwen2");
            let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
            assert_eq!(tokenizer.vocab_size(), n_vocab);
            let text = "the cat: 7\n";
            let tokens = tokenizer.encode(text, llmsrv_tokenizer::Special::Parse);
            assert_eq!(tokenizer.decode(&tokens), text);
            if n_vocab > 20_000 {
                assert!(tokens.len() < text.len(), "{tokens:?}");
            }
        }
    }
}
