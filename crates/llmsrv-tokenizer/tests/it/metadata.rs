//! From the keys of a file to a tokenizer: the keys, what stands in for them, and damage.

use llmsrv_gguf::{Metadata, Value};
use llmsrv_tokenizer::{Algorithm, Error, Special, TokenKind, Tokenizer, Vocab};

use crate::fixture::Fixture;

#[test]
fn files_give_the_ids_of_their_settings() {
    for (file, setting, model, keys) in [
        (
            "bpe.json",
            "qwen2",
            "gpt2",
            vec![("pre", Value::from("qwen2"))],
        ),
        (
            "bpe.json",
            "gpt-2 strip",
            "gpt2",
            vec![
                ("pre", Value::from("gpt-2")),
                ("general.name", Value::from("Phi-3 mini")),
            ],
        ),
        (
            "characters.json",
            "gemma4",
            "gemma4",
            vec![
                ("bos_token_id", Value::U32(0)),
                ("eos_token_id", Value::U32(1)),
            ],
        ),
        ("spm.json", "default", "llama", vec![]),
        (
            "spm.json",
            "no prefix",
            "llama",
            vec![("add_space_prefix", Value::Bool(false))],
        ),
        (
            "spm.json",
            "strip",
            "llama",
            vec![("general.name", Value::from("phi3"))],
        ),
        ("unigram.json", "no prefix", "t5", vec![]),
        (
            "unigram.json",
            "default",
            "t5",
            vec![
                ("add_space_prefix", Value::Bool(true)),
                ("remove_extra_whitespaces", Value::Bool(true)),
            ],
        ),
        (
            "bert.json",
            "default",
            "bert",
            vec![("unknown_token_id", Value::U32(1))],
        ),
        (
            "bert.json",
            "accents",
            "bert",
            vec![
                ("unknown_token_id", Value::U32(1)),
                ("normalizer.strip_accents", Value::Bool(false)),
            ],
        ),
        (
            "bert.json",
            "cased",
            "bert",
            vec![
                ("unknown_token_id", Value::U32(1)),
                ("normalizer.lowercase", Value::Bool(false)),
            ],
        ),
    ] {
        let fixture = Fixture::read(file);
        let charsmap = std::fs::read(crate::fixture::path("unigram.charsmap")).unwrap();
        let mut all = vec![
            ("model", Value::from(model)),
            ("tokens", Value::from(fixture.tokens.clone())),
            (
                "token_type",
                Value::from(
                    fixture
                        .kinds
                        .iter()
                        .map(|kind| i32::from(*kind))
                        .collect::<Vec<i32>>(),
                ),
            ),
            ("merges", Value::from(fixture.merges.clone())),
        ];
        if !fixture.scores.is_empty() {
            all.push(("scores", Value::from(fixture.scores.clone())));
        }
        if model == "t5" {
            all.push(("precompiled_charsmap", Value::from(charsmap.clone())));
        }
        all.extend(keys);
        let tokenizer = tokenizer(&all).unwrap();
        for (text, (variants, &variant)) in fixture
            .texts
            .iter()
            .zip(fixture.variants.iter().zip(&fixture.settings[setting]))
        {
            assert_eq!(
                tokenizer.encode(text, Special::Parse),
                variants[variant],
                "{file}, {setting}: {text:?}"
            );
        }
        if !fixture.ends.is_empty() && model == "llama" {
            assert_eq!(
                tokenizer.end_of_generation(),
                fixture.ends,
                "{file}, {setting}"
            );
        }
    }
}

#[test]
fn what_stands_in_for_absent_keys() {
    let words: Vec<String> = (0..200).map(|id| format!("w{id}")).collect();
    for (model, pre, bos, eos, adds_bos, adds_eos) in [
        ("gpt2", "gpt-2", None, None, false, false),
        ("gpt2", "", None, None, false, false),
        ("llama", "", Some(1), Some(2), true, false),
        ("t5", "", None, Some(1), false, true),
        ("bert", "", Some(101), None, true, true),
    ] {
        let keys = [
            ("model", Value::from(model)),
            ("pre", Value::from(pre)),
            ("tokens", Value::from(words.clone())),
            ("merges", Value::from(Vec::<String>::new())),
        ];
        let tokenizer = tokenizer(&keys).unwrap();
        let found = (
            tokenizer.bos(),
            tokenizer.eos(),
            tokenizer.adds_bos(),
            tokenizer.adds_eos(),
        );
        assert_eq!(found, (bos, eos, adds_bos, adds_eos), "{model}");
    }
    // Llama 3 begins every text, whatever the file forgets.
    let keys = [
        ("model", Value::from("gpt2")),
        ("pre", Value::from("llama-bpe")),
        ("tokens", Value::from(words.clone())),
        ("merges", Value::from(Vec::<String>::new())),
        ("bos_token_id", Value::U32(7)),
        ("eos_token_id", Value::U32(4000)),
        ("eos_token_ids", Value::from(vec![8, 9, -1, 4000_i32])),
        ("fim_pre_token_id", Value::U32(5)),
    ];
    let tokenizer = tokenizer(&keys).unwrap();
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos(), tokenizer.adds_bos()),
        (Some(7), None, true)
    );
    assert_eq!(tokenizer.end_of_generation(), [8, 9]);
    assert_eq!(tokenizer.vocab().fim.prefix, Some(5));
    assert_eq!(tokenizer.encode("", Special::ParseAndAdd), [7]);
}

#[test]
fn damage_has_a_clear_error() {
    let words = ["a".to_owned(), "b".to_owned()];
    let tokens = || ("tokens", Value::from(words.to_vec()));
    for (keys, message) in [
        (
            vec![],
            "tokenizer metadata has no valid tokenizer.ggml.model",
        ),
        (
            vec![("model", Value::U32(1))],
            "tokenizer metadata has no valid tokenizer.ggml.model",
        ),
        (
            vec![("model", Value::from("rwkv"))],
            "unsupported tokenizer model \"rwkv\"",
        ),
        (
            vec![("model", Value::from("llama"))],
            "tokenizer metadata has no valid tokenizer.ggml.tokens",
        ),
        (
            vec![
                ("model", Value::from("llama")),
                ("tokens", Value::from(Vec::<String>::new())),
            ],
            "the vocabulary is empty",
        ),
        (
            vec![("model", Value::from("gpt2")), tokens()],
            "tokenizer metadata has no valid tokenizer.ggml.merges",
        ),
        (
            vec![
                ("model", Value::from("llama")),
                tokens(),
                ("scores", Value::from(vec![1.0_f32])),
            ],
            "the vocabulary has 2 tokens but 1 scores",
        ),
        (
            vec![
                ("model", Value::from("llama")),
                tokens(),
                ("token_type", Value::from(vec![1_i32])),
            ],
            "the vocabulary has 2 tokens but 1 token types",
        ),
        (
            vec![
                ("model", Value::from("t5")),
                tokens(),
                ("precompiled_charsmap", Value::from(vec![9, 0, 0, 0, 1_u8])),
            ],
            "invalid tokenizer.ggml.precompiled_charsmap: the trie is cut off",
        ),
    ] {
        assert_eq!(tokenizer(&keys).unwrap_err().to_string(), message);
    }
}

#[test]
fn lists_may_be_longer_than_the_vocabulary() {
    let words = ["a".to_owned(), "<x>".to_owned()];
    let keys = [
        ("model", Value::from("llama")),
        ("tokens", Value::from(words.to_vec())),
        ("scores", Value::from(vec![0.0, 0.0, 0.0_f32])),
        ("token_type", Value::from(vec![99, 3, 1_i32])),
    ];
    let vocab = Vocab::from_metadata(&metadata(&keys)).unwrap();
    assert_eq!(vocab.algorithm, Algorithm::Spm);
    assert_eq!(vocab.kinds, [TokenKind::Normal, TokenKind::Control]);
    assert_eq!(vocab.scores, [0.0, 0.0]);
}

#[test]
fn an_unknown_pre_tokenizer_is_a_warning() {
    let words = ["a".to_owned()];
    let keys = [
        ("model", Value::from("gpt2")),
        ("pre", Value::from("none such")),
        ("tokens", Value::from(words.to_vec())),
        ("merges", Value::from(Vec::<String>::new())),
    ];
    let tokenizer = tokenizer(&keys).unwrap();
    assert_eq!(tokenizer.warnings().len(), 1);
    assert!(tokenizer.warnings()[0].contains("none such"));
    assert_eq!(tokenizer.encode("a", Special::Parse), [0]);
}

/// Words of characters, between which white space is dropped, as in Jina Embeddings 2 for Chinese.
#[test]
fn white_space_that_parts_words_is_no_token() {
    let words = ["<s>", "</s>", "a", "b", "ab", "中", "文", "中文", "B"];
    let words = words.map(str::to_owned);
    let merges = ["a b", "中 文"].map(str::to_owned);
    let keys = [
        ("model", Value::from("whitespace")),
        ("pre", Value::from("whitespace")),
        ("tokens", Value::from(words.to_vec())),
        ("merges", Value::from(merges.to_vec())),
        ("bos_token_id", Value::U32(0)),
        ("eos_token_id", Value::U32(1)),
        ("add_bos_token", Value::Bool(true)),
        ("add_eos_token", Value::Bool(true)),
    ];
    let tokenizer = tokenizer(&keys).unwrap();
    assert!(tokenizer.warnings().is_empty());
    assert_eq!(tokenizer.longest_token(), None);
    for (text, expected) in [
        ("  ab \n中文\u{3000}B", vec![0, 4, 7, 8, 1]),
        ("a b中文ab", vec![0, 2, 3, 7, 4, 1]),
        (" \t", vec![0, 1]),
        ("\u{2581}a", vec![0, 2, 1]),
    ] {
        let found = tokenizer.encode(text, Special::ParseAndAdd);
        assert_eq!(found, expected, "{text:?}");
    }
    assert_eq!(tokenizer.decode(&[4, 7]), "ab中文");
}

fn tokenizer(keys: &[(&str, Value)]) -> Result<Tokenizer, Error> {
    Tokenizer::from_metadata(&metadata(keys))
}

/// Keys of the tokenizer are named by their ends.
fn metadata(keys: &[(&str, Value)]) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    for (key, value) in keys {
        let prefix = if key.starts_with("general.") {
            ""
        } else {
            "tokenizer.ggml."
        };
        metadata.set(format!("{prefix}{key}"), value.clone());
    }
    metadata
}
