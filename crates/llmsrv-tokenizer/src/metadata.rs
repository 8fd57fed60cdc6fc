//! From the `tokenizer.ggml.*` keys of a GGUF file to a [`Vocab`].
//!
//! Where a key is absent the algorithm's usual value stands in; an id outside the vocabulary
//! counts as absent.

use llmsrv_gguf::Metadata;

use crate::{Algorithm, Error, FimTokens, TokenKind, Tokenizer, Vocab, pretokenizers};

impl Tokenizer {
    /// Builds the tokenizer that a model file describes.
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer, Error> {
        Tokenizer::new(Vocab::from_metadata(metadata)?)
    }
}

impl Vocab {
    /// Reads the vocabulary out of a model file's metadata. Spellings that are not UTF-8 lose the
    /// bytes in question.
    pub fn from_metadata(metadata: &Metadata) -> Result<Vocab, Error> {
        let model = metadata.str(MODEL).ok_or(Error::Missing(MODEL))?;
        let pre = match model {
            "gemma4" => "gemma4",
            "whitespace" => "whitespace",
            _ => metadata.str(PRE).unwrap_or_default(),
        };
        let Defaults {
            algorithm,
            bos,
            eos,
            unknown,
            separator,
            pad,
            mask,
            add_bos,
            add_eos,
        } = defaults(model, pre).ok_or_else(|| Error::UnsupportedModel(model.into()))?;

        let texts = |key| {
            let list = metadata.strings(key)?.iter();
            Some(
                list.map(|text| String::from_utf8_lossy(text).into_owned())
                    .collect::<Vec<_>>(),
            )
        };
        let tokens = texts(TOKENS).ok_or(Error::Missing(TOKENS))?;
        let merges = match algorithm {
            // Some vocabularies of whole words have none.
            Algorithm::Bpe if pre == "kimi-k2" => texts(MERGES).unwrap_or_default(),
            Algorithm::Bpe => texts(MERGES).ok_or(Error::Missing(MERGES))?,
            Algorithm::Spm | Algorithm::Unigram | Algorithm::WordPiece => Vec::new(),
        };
        let scores = match metadata.f32s(SCORES) {
            Some(scores) => scores,
            None => metadata
                .i64s(SCORES)
                .unwrap_or_default()
                .into_iter()
                .map(|score| score as f32)
                .collect(),
        };
        let kinds = metadata
            .i64s(TYPES)
            .unwrap_or_default()
            .into_iter()
            .map(kind)
            .collect();

        let id = |name: &str| metadata.u32(&format!("tokenizer.ggml.{name}_token_id"));
        let known = |name: &str, default| {
            id(name)
                .filter(|&id| (id as usize) < tokens.len())
                .or(default)
        };
        let flag = |name: &str, default| {
            metadata
                .bool(&format!("tokenizer.ggml.{name}"))
                .unwrap_or(default)
        };
        let lowercase = flag("normalizer.lowercase", true);
        let mut vocab = Vocab {
            algorithm,
            scores: cut(scores, tokens.len()),
            kinds: cut(kinds, tokens.len()),
            merges,
            pre: pre.into(),
            bos: known("bos", known("cls", bos)),
            eos: known("eos", eos),
            eot: id("eot"),
            eom: id("eom"),
            unknown: known("unknown", unknown),
            // The first spelling is the one that files have.
            separator: known("seperator", known("separator", separator)),
            pad: known("padding", pad),
            mask: known("mask", mask),
            ends: ids(metadata, "tokenizer.ggml.eos_token_ids"),
            fim: FimTokens {
                prefix: id("fim_pre").or_else(|| id("prefix")),
                suffix: id("fim_suf").or_else(|| id("suffix")),
                middle: id("fim_mid").or_else(|| id("middle")),
                pad: id("fim_pad"),
                repository: id("fim_rep"),
                separator: id("fim_sep"),
            },
            // BERT's texts always have both, and the reference server does not ask.
            add_bos: algorithm == Algorithm::WordPiece
                || model == "gemma4"
                || pre == "gemma4"
                || flag("add_bos_token", add_bos),
            add_eos: algorithm == Algorithm::WordPiece || flag("add_eos_token", add_eos),
            add_space_prefix: flag("add_space_prefix", algorithm == Algorithm::Spm),
            remove_extra_whitespaces: flag("remove_extra_whitespaces", false),
            lowercase,
            strip_accents: flag("normalizer.strip_accents", lowercase),
            charsmap: metadata
                .i64s("tokenizer.ggml.precompiled_charsmap")
                .unwrap_or_default()
                .into_iter()
                .map(|byte| byte as u8)
                .collect(),
            strip_left: Vec::new(),
            strip_right: Vec::new(),
            tokens,
        };
        add_strip_flags(&mut vocab, metadata);
        Ok(vocab)
    }
}

/// What stands in for absent keys.
#[derive(Default)]
struct Defaults {
    algorithm: Algorithm,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    separator: Option<u32>,
    pad: Option<u32>,
    mask: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

fn defaults(model: &str, pre: &str) -> Option<Defaults> {
    let none = Defaults::default();
    Some(match model {
        "gpt2" | "gemma4" | "whitespace" => Defaults {
            algorithm: Algorithm::Bpe,
            add_bos: pretokenizers::find(pre).is_some_and(|rules| rules.adds_bos),
            ..none
        },
        "llama" => Defaults {
            algorithm: Algorithm::Spm,
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            add_bos: true,
            ..none
        },
        "t5" => Defaults {
            algorithm: Algorithm::Unigram,
            eos: Some(1),
            unknown: Some(2),
            pad: Some(0),
            add_eos: true,
            ..none
        },
        "bert" => Defaults {
            algorithm: Algorithm::WordPiece,
            bos: Some(101),
            unknown: Some(100),
            separator: Some(102),
            pad: Some(0),
            mask: Some(103),
            ..none
        },
        _ => return None,
    })
}

/// The numbers of `tokenizer.ggml.token_type`; others count as ordinary text.
fn kind(number: i64) -> TokenKind {
    match number {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

/// Cuts a list that is longer than the vocabulary; one that is too short is left for
/// [`Tokenizer::new`] to refuse.
fn cut<T>(mut list: Vec<T>, n_tokens: usize) -> Vec<T> {
    list.truncate(n_tokens);
    list
}

fn ids(metadata: &Metadata, key: &str) -> Vec<u32> {
    let list = metadata.i64s(key).unwrap_or_default();
    list.into_iter()
        .filter_map(|id| u32::try_from(id).ok())
        .collect()
}

/// GGUF has no key for special tokens that swallow white space; they are known by model.
fn add_strip_flags(vocab: &mut Vocab, metadata: &Metadata) {
    let architecture = metadata.architecture().unwrap_or_default();
    let name = metadata
        .str("general.name")
        .unwrap_or_default()
        .to_lowercase();
    let id = |text: &str| {
        vocab
            .tokens
            .iter()
            .rposition(|token| token == text)
            .map(|id| id as u32)
    };
    if vocab.pre.starts_with("jina-v2-")
        || ["nomic-bert-moe", "jina-bert-v3"].contains(&architecture)
    {
        vocab.strip_left.extend(id("<mask>"));
    } else if name.contains("phi-3") || name.contains("phi3") {
        let keep = ["<unk>", "<s>", "<|endoftext|>"];
        for ((text, kind), id) in vocab.tokens.iter().zip(&vocab.kinds).zip(0..) {
            let is_special = matches!(
                kind,
                TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown
            );
            if (is_special || text == "</s>") && !keep.contains(&text.as_str()) {
                vocab.strip_right.push(id);
            }
        }
    } else if name.contains("modern-bert") {
        vocab.strip_left.extend(id("[MASK]"));
    }
}

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
