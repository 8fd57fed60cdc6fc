//! WordPiece with the normalisation of BERT.
//!
//! Devlin et al. (2018): control characters go, accents go and text is lower-cased where the
//! vocabulary wants it, punctuation and CJK characters are words of their own; then the longest
//! token is taken from the left again and again, and a word that cannot be spelled is unknown as
//! a whole. GGUF spells the begin of a word with U+2581 in front, and continuations bare.

use regex_automata::meta::Regex;
use unicode_normalization::UnicodeNormalization;

use crate::{
    Vocab, ids::Ids, prefix::PrefixTable, pretokenize::compile, spelling::SPACE, words::Words,
};

/// The tokens of a vocabulary and its normalisation.
#[derive(Debug)]
pub(crate) struct WordPiece {
    tokens: PrefixTable,
    unknown: Option<u32>,
    lowercase: bool,
    strip_accents: bool,
    removed: Option<Regex>,
    accents: Option<Regex>,
    word: Option<Regex>,
}

impl WordPiece {
    pub(crate) fn new(vocab: &Vocab, ids: &Ids) -> WordPiece {
        let entries = vocab
            .tokens
            .iter()
            .zip(0..)
            .filter(|&(_, id)| ids.is_textual(id));
        WordPiece {
            tokens: PrefixTable::new(entries.map(|(text, id)| (text.as_str(), id))),
            unknown: vocab.unknown,
            lowercase: vocab.lowercase,
            strip_accents: vocab.strip_accents,
            removed: compile(REMOVED),
            accents: compile(ACCENTS),
            word: compile(WORD),
        }
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, text: &str, words: &mut Words, out: &mut Vec<u32>) {
        let normalised = self.normalise(text);
        let Some(word) = &self.word else { return };
        for found in word.find_iter(&normalised) {
            let word = normalised.get(found.range()).unwrap_or_default();
            words.tokens(word, out, |word, _, out| self.encode_word(word, out));
        }
    }

    fn normalise(&self, text: &str) -> String {
        let mut text = remove(self.removed.as_ref(), text);
        if self.strip_accents {
            text = remove(self.accents.as_ref(), &text.nfd().collect::<String>());
        }
        if self.lowercase {
            text = text.chars().flat_map(char::to_lowercase).collect();
        }
        text
    }

    fn encode_word(&self, word: &str, out: &mut Vec<u32>) {
        let first = out.len();
        let spelled = format!("{SPACE}{word}");
        let mut rest = spelled.as_bytes();
        while !rest.is_empty() {
            let Some((len, id)) = self.tokens.longest(rest) else {
                out.truncate(first);
                out.extend(self.unknown);
                return;
            };
            out.push(id);
            rest = rest.get(len..).unwrap_or_default();
        }
    }
}

fn remove(pattern: Option<&Regex>, text: &str) -> String {
    let Some(pattern) = pattern else {
        return text.to_owned();
    };
    let mut kept = String::with_capacity(text.len());
    let mut done = 0;
    for found in pattern.find_iter(text) {
        kept.push_str(text.get(done..found.start()).unwrap_or_default());
        done = found.end();
    }
    kept.push_str(text.get(done..).unwrap_or_default());
    kept
}

/// Control, format, private and unassigned characters; three of the control ones are white space.
const REMOVED: &str = r"[[\p{C}\x{FFFD}]&&[^\t\n\r]]+";
const ACCENTS: &str = r"\p{Mn}+";
/// One punctuation mark (all ASCII symbols count) or CJK character, or a run of anything else but
/// white space. The CJK blocks are those of BERT's published tokenizer in its Rust version.
const WORD: &str = r"(?x)
    [\p{P}$+<=>^`|~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}
     \x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]
  | [^\s\p{P}$+<=>^`|~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}
      \x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]+";
