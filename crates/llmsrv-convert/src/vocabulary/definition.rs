//! `tokenizer.json`: the definition of a tokenizer in the format of the `tokenizers` library.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Kind, Token, Vocabulary};
use crate::Error;

/// Reads a definition that merges pairs of bytes or, with bytes as a fallback, of characters; or takes the longest token
/// from the left, as BERT does.
pub(super) fn read(definition: &Map<String, Value>) -> Result<Vocabulary, Error> {
    let model = definition.get("model").and_then(Value::as_object);
    let model = model.ok_or_else(|| invalid("has no model"))?;
    let entries = model.get("vocab").and_then(Value::as_object);
    let entries = entries.ok_or_else(|| invalid("has no vocabulary"));
    let kind = model.get("type").and_then(Value::as_str).unwrap_or("BPE");
    if kind == "WordPiece" {
        return word_pieces(definition, tokens(entries?)?);
    }
    if kind != "BPE" {
        let kind: String = kind.chars().take(40).flat_map(char::escape_debug).collect();
        let message =
            format!("tokenizer.json is of type {kind}; BPE and WordPiece can be converted");
        return Err(Error::Unsupported(message));
    }
    let entries = entries?;
    let merges = merges(model.get("merges"))?;
    let flag = |key: &str| model.get(key).and_then(Value::as_bool) == Some(true);
    let has_bytes = flag("byte_fallback");
    let mut vocabulary = Vocabulary {
        model: if has_bytes { "llama" } else { "gpt2" },
        pre: "default",
        tokens: tokens(entries)?,
        ..Vocabulary::default()
    };
    if has_bytes {
        rank(&mut vocabulary.tokens, &merges);
        vocabulary.add_space_prefix = Some(adds_space(definition));
    } else {
        let mut patterns = Vec::new();
        let cutter = definition.get("pre_tokenizer").unwrap_or(&Value::Null);
        collect(cutter, &mut patterns)?;
        vocabulary.pre = pretokenizer(&patterns, flag("ignore_merges"))?;
        let joined = merges
            .iter()
            .map(|(a, b)| format!("{} {}", escaped(a), escaped(b)));
        vocabulary.merges = joined.collect();
    }
    Ok(vocabulary)
}

/// Files mark the first token of a word, definitions the others.
fn word_pieces(
    definition: &Map<String, Value>,
    mut tokens: Vec<Token>,
) -> Result<Vocabulary, Error> {
    let normalizer = definition.get("normalizer").unwrap_or(&Value::Null);
    let flag = |key: &str| normalizer.get(key).and_then(Value::as_bool);
    if normalizer.get("type").and_then(Value::as_str) != Some("BertNormalizer") {
        let message = "tokenizer.json changes text in a way that is not that of BERT";
        return Err(Error::Unsupported(message.into()));
    }
    for token in tokens.iter_mut().filter(|token| token.kind != Kind::Unused) {
        token.kind = Kind::Normal;
        token.text = match token.text.strip_prefix(b"##") {
            Some(rest) => rest.to_vec(),
            None if token.text.starts_with(b"[") && token.text.ends_with(b"]") => continue,
            None => ["\u{2581}".as_bytes(), &token.text].concat(),
        };
    }
    Ok(Vocabulary {
        model: "bert",
        pre: "default",
        tokens,
        lowercase: Some(flag("lowercase").unwrap_or(true)),
        strip_accents: flag("strip_accents"),
        ..Vocabulary::default()
    })
}

/// Puts tokens in the order of their ids.
fn tokens(entries: &Map<String, Value>) -> Result<Vec<Token>, Error> {
    let mut tokens: Vec<Token> = Vec::new();
    for (text, id) in entries {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
        // Gaps are possible, but not large ones.
        let id = id
            .filter(|id| *id < 2 * entries.len() + 1000)
            .ok_or_else(|| invalid("has a token with an id out of range"))?;
        for missing in tokens.len()..=id {
            tokens.push(Token::unused(missing));
        }
        tokens[id] = Token {
            text: text.clone().into_bytes(),
            score: 0.0,
            kind: byte(text).map_or(Kind::Normal, |_| Kind::Byte),
        };
    }
    Ok(tokens)
}

/// The byte of a spelling like `<0x0A>`.
fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Reads pairs, written as two strings or as one with a space between.
fn merges(list: Option<&Value>) -> Result<Vec<(&str, &str)>, Error> {
    let list = list.and_then(Value::as_array);
    let list = list.ok_or_else(|| invalid("has no merges"))?;
    let pairs: Option<Vec<(&str, &str)>> = list.iter().map(pair).collect();
    pairs.ok_or_else(|| invalid("has a merge that is not a pair"))
}

fn pair(entry: &Value) -> Option<(&str, &str)> {
    match entry {
        Value::String(text) => text.split_once(' '),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(a), Value::String(b)] => Some((a.as_str(), b.as_str())),
            _ => None,
        },
        _ => None,
    }
}

/// A space within a part would end it; files write it as byte-level vocabularies do.
fn escaped(part: &str) -> String {
    part.replace(' ', "\u{120}")
}

/// Gives tokens the scores that make the best pair the one of the earliest merge.
fn rank(tokens: &mut [Token], merges: &[(&str, &str)]) {
    let mut ranks: HashMap<Vec<u8>, usize> = HashMap::with_capacity(merges.len());
    for (rank, (a, b)) in merges.iter().enumerate() {
        ranks
            .entry([a.as_bytes(), b.as_bytes()].concat())
            .or_insert(rank + 1);
    }
    for token in tokens {
        if let Some(rank) = ranks.get(&token.text) {
            token.score = -(*rank as f32);
        }
    }
}

/// Tells whether a space is put in front of texts.
fn adds_space(definition: &Map<String, Value>) -> bool {
    fn any(node: Option<&Value>, lists: &str) -> bool {
        let Some(node) = node else {
            return false;
        };
        let text = |key: &str| node.get(key).and_then(Value::as_str);
        match text("type") {
            Some("Prepend") => text("prepend").is_some_and(|prefix| !prefix.is_empty()),
            Some("Metaspace") => match text("prepend_scheme") {
                Some(scheme) => scheme != "never",
                None => node.get("add_prefix_space").and_then(Value::as_bool) != Some(false),
            },
            Some("Sequence") => node
                .get(lists)
                .and_then(Value::as_array)
                .is_some_and(|parts| parts.iter().any(|part| any(Some(part), lists))),
            _ => false,
        }
    }
    any(definition.get("normalizer"), "normalizers")
        || any(definition.get("pre_tokenizer"), "pretokenizers")
}

/// Lists the patterns that cut text into words; `None` is the one of GPT-2, which has no spelling.
fn collect(node: &Value, patterns: &mut Vec<Option<String>>) -> Result<(), Error> {
    let text = |key: &str| node.get(key).and_then(Value::as_str);
    let flag = |key: &str| node.get(key).and_then(Value::as_bool);
    match text("type") {
        Some("Sequence") => {
            let parts = node.get("pretokenizers").and_then(Value::as_array);
            for part in parts.into_iter().flatten() {
                collect(part, patterns)?;
            }
            Ok(())
        }
        Some("Split") => {
            let regex = node
                .get("pattern")
                .and_then(|pattern| pattern.get("Regex")?.as_str());
            let keeps_matches = match text("behavior") {
                Some("Isolated") => true,
                Some("Removed") => flag("invert") == Some(true),
                _ => false,
            };
            match regex {
                Some(regex) if keeps_matches => patterns.push(Some(plain(regex))),
                _ => return Err(unknown()),
            }
            Ok(())
        }
        Some("Digits") => {
            let one = flag("individual_digits") == Some(true);
            patterns.push(Some(if one { r"\p{N}" } else { r"\p{N}+" }.to_owned()));
            Ok(())
        }
        Some("ByteLevel") => {
            if flag("use_regex") != Some(false) {
                patterns.push(None);
            }
            Ok(())
        }
        _ => Err(unknown()),
    }
}

/// Writes a pattern as most definitions do: without possessive repetitions, which change nothing
/// here, and with contractions in full.
fn plain(regex: &str) -> String {
    let mut regex = regex.replace("'(?i:[sdmt]|ll|ve|re)", "(?i:'s|'t|'re|'ve|'m|'ll|'d)");
    for (possessive, greedy) in [("?+", "?"), ("*+", "*"), ("++", "+")] {
        regex = regex.replace(possessive, greedy);
    }
    regex
}

/// Names the pre-tokenizer. Whether whole words are preferred hardly ever matters, so a row that
/// disagrees about it is better than none.
fn pretokenizer(patterns: &[Option<String>], whole_words: bool) -> Result<&'static str, Error> {
    let patterns: Vec<Option<&str>> = patterns.iter().map(Option::as_deref).collect();
    llmsrv_tokenizer::identify_pretokenizer(&patterns, whole_words)
        .or_else(|| llmsrv_tokenizer::identify_pretokenizer(&patterns, !whole_words))
        .ok_or_else(unknown)
}

fn unknown() -> Error {
    Error::Unsupported("tokenizer.json cuts text into words in a way that is not known".into())
}

fn invalid(what: &str) -> Error {
    Error::Invalid(format!("tokenizer.json {what}"))
}
