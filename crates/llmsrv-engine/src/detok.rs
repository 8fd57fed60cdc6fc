//! Bytes of tokens to text, never in the middle of a character.
//!
//! A token may hold part of a UTF-8 character: its bytes wait for the rest. Example: `€` is
//! `e2 82 ac`; after `e2 82` nothing is returned, after `ac` the whole character.

use std::borrow::Cow;

use llmsrv_tokenizer::Tokenizer;

use crate::TokenId;

/// Returns the bytes that a generated token adds to the output. Control tokens give their
/// spelling, for those who read tool calls and channels from the text; tokens that begin or end a
/// text give nothing.
pub fn output_bytes(tokenizer: &Tokenizer, token: TokenId) -> Cow<'_, [u8]> {
    if !tokenizer.is_control(token) {
        return tokenizer.token_bytes(token);
    }
    if tokenizer.is_end_of_generation(token) || tokenizer.bos() == Some(token) {
        return Cow::Borrowed(&[]);
    }
    Cow::Borrowed(tokenizer.token_text(token).unwrap_or_default().as_bytes())
}

/// Returns the bytes by which a report names a token: what it adds to the output or, where that is
/// nothing, its spelling, such as `<eos>`.
pub fn named_bytes(tokenizer: &Tokenizer, token: TokenId) -> Cow<'_, [u8]> {
    let bytes = output_bytes(tokenizer, token);
    if bytes.is_empty() {
        return Cow::Borrowed(tokenizer.token_text(token).unwrap_or_default().as_bytes());
    }
    bytes
}

/// A text that arrives in pieces of bytes.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    held: Vec<u8>,
}

impl Utf8Stream {
    /// Adds bytes and appends the characters that are complete to `text`. Bytes that can never
    /// become a character are replaced by U+FFFD.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.held.extend_from_slice(bytes);
        let mut rest = self.held.as_slice();
        loop {
            match str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    text.push_str(str::from_utf8(valid).unwrap_or_default());
                    rest = invalid;
                    if let Some(n_bad) = error.error_len() {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = &rest[n_bad..];
                        continue;
                    }
                }
            }
            break;
        }
        let n_done = self.held.len() - rest.len();
        self.held.drain(..n_done);
    }

    /// Ends the text: an incomplete character is replaced by U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        if !self.held.is_empty() {
            self.held.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_stay_whole() {
        let mut stream = Utf8Stream::default();
        let mut seen = Vec::new();
        for byte in "a€😀\u{301}".bytes() {
            let mut text = String::new();
            stream.push(&[byte], &mut text);
            seen.push(text);
        }
        assert_eq!(seen, ["a", "", "", "€", "", "", "", "😀", "", "\u{301}"]);
    }

    #[test]
    fn control_tokens_are_spelled_but_for_ends() {
        let tokenizer = crate::fake::tokenizer();
        let output =
            |text: &str| output_bytes(&tokenizer, tokenizer.find(text).unwrap()).into_owned();
        assert_eq!(output("<|im_start|>"), b"<|im_start|>");
        assert!(output("<|im_end|>").is_empty());
        assert_eq!(*output_bytes(&tokenizer, 0xe4), [0xe4]);
        assert!(output_bytes(&tokenizer, 9999).is_empty());
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), Just(0xf0), Just(0x9f)], 0..40),
            cut in 1usize..5,
        ) {
            let mut stream = Utf8Stream::default();
            let mut text = String::new();
            for piece in bytes.chunks(cut) {
                stream.push(piece, &mut text);
                prop_assert!(stream.held.len() < 4);
            }
            stream.finish(&mut text);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
