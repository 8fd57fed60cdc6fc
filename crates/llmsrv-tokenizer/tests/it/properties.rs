//! What holds for every text and every vocabulary.

use std::time::Instant;

use crate::fixture::Fixture;
use llmsrv_tokenizer::{Algorithm, FimTokens, Special, TokenKind, Tokenizer, Vocab};
use proptest::prelude::*;
use tokenizers::{
    PreTokenizerWrapper, SplitDelimiterBehavior,
    models::bpe::BPE,
    pre_tokenizers::{
        byte_level::ByteLevel,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn byte_level_text_survives(text in text()) {
        for pre in ["gpt-2", "llama-bpe", "qwen2", "gpt-4o", "deepseek-llm", "superbpe", "chameleon", "none such"] {
            let tokenizer = byte_level(pre);
            for special in [Special::Plain, Special::Parse] {
                let ids = tokenizer.encode(&text, special);
                prop_assert_eq!(tokenizer.decode_with_special(&ids), text.as_str(), "{}", pre);
            }
            let ids = tokenizer.encode(&text, Special::Plain);
            prop_assert!(!ids.iter().any(|&id| tokenizer.is_control(id)));
            prop_assert_eq!(tokenizer.decode(&ids), text.as_str(), "{}", pre);
        }
    }

    #[test]
    fn byte_level_ids_are_those_of_the_other_library(text in text()) {
        for (pre, pattern) in [
            ("gpt-2", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
            ("qwen2", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
        ] {
            let expected = oracle(pattern).encode_fast(text.as_str(), false).unwrap();
            prop_assert_eq!(byte_level(pre).encode(&text, Special::Plain), expected.get_ids());
        }
    }

    #[test]
    fn no_vocabulary_panics(vocab in vocab(), text in "[ab<>x ▁é0-9A-F\u{301}]{0,40}|\\PC{0,20}") {
        let Ok(tokenizer) = Tokenizer::new(vocab) else { return Ok(()) };
        for special in [Special::Plain, Special::Parse, Special::ParseAndAdd] {
            let ids = tokenizer.encode(&text, special);
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            let joined: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).into_owned()).collect();
            prop_assert_eq!(String::from_utf8_lossy(&joined), tokenizer.decode(&ids));
            if special == Special::Plain {
                let unknown = tokenizer.vocab().unknown;
                prop_assert!(!ids.iter().any(|&id| tokenizer.is_control(id) && Some(id) != unknown));
            }
            prop_assert_eq!(tokenizer.encode(&text, special), ids);
        }
        for id in [0, 1, 7, 1000, u32::MAX] {
            tokenizer.decode_with_special(&[id]);
            prop_assert!(tokenizer.token_bytes(id).is_empty() || (id as usize) < tokenizer.vocab_size());
            let found = tokenizer.token_text(id).and_then(|text| tokenizer.find(text));
            prop_assert_eq!(found.and_then(|id| tokenizer.token_text(id)), tokenizer.token_text(id).filter(|text| !text.is_empty()));
        }
    }
}

/// Nothing in a text may make its encoding slow: each case has some 60 kB and takes milliseconds.
#[test]
fn no_text_is_slow() {
    let (bytes, characters) = (Fixture::read("bpe.json"), Fixture::read("characters.json"));
    let (spm, unigram, bert) = (
        Fixture::read("spm.json"),
        Fixture::read("unigram.json"),
        Fixture::read("bert.json"),
    );
    let mut tokenizers: Vec<(String, Tokenizer)> = [
        "gpt-2",
        "llama-bpe",
        "gpt-4o",
        "tiny_aya",
        "jais-2",
        "superbpe",
    ]
    .map(|pre| {
        (
            pre.to_owned(),
            Tokenizer::new(Vocab {
                pre: pre.into(),
                ..bytes.vocab(Algorithm::Bpe)
            })
            .unwrap(),
        )
    })
    .into();
    for (name, vocab) in [
        (
            "characters",
            Vocab {
                pre: "gemma4".into(),
                ..characters.vocab(Algorithm::Bpe)
            },
        ),
        (
            "spm",
            Vocab {
                unknown: Some(0),
                ..spm.vocab(Algorithm::Spm)
            },
        ),
        (
            "unigram",
            Vocab {
                unknown: Some(0),
                ..unigram.vocab(Algorithm::Unigram)
            },
        ),
        (
            "bert",
            Vocab {
                unknown: Some(0),
                ..bert.vocab(Algorithm::WordPiece)
            },
        ),
    ] {
        tokenizers.push((name.to_owned(), Tokenizer::new(vocab).unwrap()));
    }
    for (name, tokenizer) in &tokenizers {
        for unit in [
            "a", "ab", " ", "\n", "1", "中", "é", "a ", "▁", "<", "<|im_", "'s",
        ] {
            let text = unit.repeat(60_000 / unit.len()) + "x";
            let start = Instant::now();
            tokenizer.encode(&text, Special::Parse);
            let duration = start.elapsed();
            assert!(
                duration.as_secs_f64() < 1.0,
                "{name}: {unit:?} took {duration:?}"
            );
        }
    }
}

#[test]
fn begin_and_end_are_added_once() {
    let mut vocab = bpe("gpt-2");
    (vocab.bos, vocab.eos, vocab.add_bos, vocab.add_eos) = (Some(0), Some(1), true, true);
    let tokenizer = Tokenizer::new(vocab).unwrap();
    let a = tokenizer.find("a").unwrap();
    for (text, expected) in [
        ("a", vec![0, a, 1]),
        ("<s>a", vec![0, a, 1]),
        ("a</s>", vec![0, a, 1]),
        ("<s>a</s>", vec![0, a, 1]),
        ("<s><s>a", vec![0, 0, a, 1]),
        ("</s>", vec![0, 1]),
        ("<s>", vec![0, 1]),
        ("", vec![0, 1]),
    ] {
        assert_eq!(
            tokenizer.encode(text, Special::ParseAndAdd),
            expected,
            "{text:?}"
        );
    }
    assert!(tokenizer.adds_bos() && tokenizer.adds_eos());
}

/// Text with many of the characters that pre-tokenizers treat apart, and special tokens.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => proptest::sample::select("aAzZ 1\n\t\r'éß中ー٣².,!?_-/<|>\u{301}\u{a0}\u{200d}👩\0".chars().collect::<Vec<_>>())
            .prop_map(String::from),
        2 => any::<char>().prop_map(String::from),
        1 => proptest::sample::select(vec!["<s>", "<|im_end|>", "<|user|>", "'ll", "   ", "the ", "return"]).prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

fn vocab() -> impl Strategy<Value = Vocab> {
    let algorithm = proptest::sample::select(vec![
        Algorithm::Bpe,
        Algorithm::Spm,
        Algorithm::Unigram,
        Algorithm::WordPiece,
    ]);
    let token = prop_oneof![
        4 => "[abx▁ é]{0,4}",
        1 => "<[abx0|]{0,4}>",
        1 => proptest::sample::select(vec!["<0x41>", "<0xC3>", "</s>", "<|end|>", "Ġ", "Ġa", "a▁b"]).prop_map(String::from),
    ];
    let kind = proptest::sample::select(vec![
        TokenKind::Normal,
        TokenKind::Normal,
        TokenKind::Unknown,
        TokenKind::Control,
        TokenKind::UserDefined,
        TokenKind::Unused,
        TokenKind::Byte,
    ]);
    let score = prop_oneof![any::<f32>(), -9.0..0.0f32];
    let id = proptest::option::of(0..24u32);
    let entries = proptest::collection::vec((token, kind, score), 0..20);
    let merges = proptest::collection::vec("[abĠ ▁é]{0,3} [abĠ ▁é]{0,3}", 0..12);
    let ids = proptest::collection::vec(id, 8);
    let pre = proptest::sample::select(vec!["", "gpt-2", "llama3", "gemma4", "tiny_aya", "?"]);
    let charsmap = proptest::collection::vec(any::<u8>(), 0..40);
    (
        algorithm,
        entries,
        merges,
        ids,
        any::<[bool; 6]>(),
        pre,
        charsmap,
    )
        .prop_map(|(algorithm, entries, merges, ids, flags, pre, charsmap)| {
            let mut vocab = Vocab {
                algorithm,
                merges,
                pre: pre.into(),
                ..Vocab::default()
            };
            for (token, kind, score) in entries {
                vocab.tokens.push(token);
                vocab.kinds.push(kind);
                vocab.scores.push(score);
            }
            (vocab.bos, vocab.eos, vocab.unknown, vocab.separator) =
                (ids[0], ids[1], ids[2], ids[3]);
            vocab.fim = FimTokens {
                prefix: ids[4],
                ..FimTokens::default()
            };
            vocab.strip_left.extend(ids[5]);
            vocab.strip_right.extend(ids[6]);
            vocab.ends.extend(ids[7]);
            [
                vocab.add_bos,
                vocab.add_eos,
                vocab.add_space_prefix,
                vocab.remove_extra_whitespaces,
                vocab.lowercase,
                vocab.strip_accents,
            ] = flags;
            if flags[0] {
                vocab.charsmap = charsmap;
            }
            vocab
        })
}

fn bpe(pre: &str) -> Vocab {
    Vocab {
        pre: pre.into(),
        ..Fixture::read("bpe.json").vocab(Algorithm::Bpe)
    }
}

fn byte_level(pre: &str) -> Tokenizer {
    Tokenizer::new(bpe(pre)).unwrap()
}

fn oracle(pattern: &str) -> tokenizers::Tokenizer {
    let fixture = Fixture::read("bpe.json");
    let vocab = fixture.tokens.iter().cloned().zip(0..).collect();
    let pairs = fixture
        .merges
        .iter()
        .map(|merge| merge.split_once(' ').unwrap());
    let merges = pairs
        .map(|(left, right)| (left.to_owned(), right.to_owned()))
        .collect();
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::new(vocab, merges));
    let split = Split::new(
        SplitPattern::Regex(pattern.into()),
        SplitDelimiterBehavior::Isolated,
        false,
    )
    .unwrap();
    let byte_level = ByteLevel::new(false, true, false);
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
        PreTokenizerWrapper::Split(split),
        PreTokenizerWrapper::ByteLevel(byte_level),
    ])));
    let user = tokenizers::AddedToken::from("<|user|>", false).normalized(false);
    tokenizer.add_tokens([user]).unwrap();
    tokenizer
}
