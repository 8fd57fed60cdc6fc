//! Small vocabularies of every kind against the ids that the reference programs give.
//!
//! `fixtures/make.py` and `fixtures/make_random.py` make the files and say how.

use std::collections::BTreeMap;

use llmsrv_tokenizer::{Algorithm, Special, TokenKind, Tokenizer, Vocab};
use serde::Deserialize;

use crate::fixture::{Fixture, path, read};

/// A name of a setting, the vocabulary with it, and how texts are read.
type Setting = (String, Vocab, Special);

/// Settings of each kind of vocabulary, as `fixtures/make.py` has them.
const KINDS: [(&str, fn(&Fixture) -> Vec<Setting>); 5] = [
    ("bpe", byte_level_bpe),
    ("characters", bpe_over_characters),
    ("spm", sentencepiece_bpe),
    ("unigram", unigram),
    ("bert", wordpiece),
];

fn settings(
    fixture: &Fixture,
    algorithm: Algorithm,
    set: impl Fn(&str, &mut Vocab) -> Special,
) -> Vec<Setting> {
    let names = fixture.settings.keys();
    names
        .map(|name| {
            let mut vocab = fixture.vocab(algorithm);
            let special = set(name, &mut vocab);
            (name.clone(), vocab, special)
        })
        .collect()
}

fn byte_level_bpe(fixture: &Fixture) -> Vec<Setting> {
    assert!(fixture.settings.len() > 75, "pre-tokenizers are missing");
    settings(fixture, Algorithm::Bpe, |name, vocab| {
        let (pre, option) = name.split_once(' ').unwrap_or((name, ""));
        vocab.pre = pre.into();
        if option == "strip" {
            strip_like_phi3(vocab);
        }
        match option {
            "plain" => Special::Plain,
            _ => Special::Parse,
        }
    })
}

fn bpe_over_characters(fixture: &Fixture) -> Vec<Setting> {
    settings(fixture, Algorithm::Bpe, |name, vocab| {
        vocab.pre = name.into();
        Special::Parse
    })
}

fn sentencepiece_bpe(fixture: &Fixture) -> Vec<Setting> {
    settings(fixture, Algorithm::Spm, |name, vocab| {
        vocab.add_space_prefix = name != "no prefix";
        (vocab.unknown, vocab.bos, vocab.eos) = (Some(0), Some(1), Some(2));
        (vocab.add_bos, vocab.add_eos) = (name == "add", name == "add end");
        if name == "strip" {
            strip_like_phi3(vocab);
        }
        match name {
            "plain" => Special::Plain,
            "add" | "add end" => Special::ParseAndAdd,
            _ => Special::Parse,
        }
    })
}

fn unigram(fixture: &Fixture) -> Vec<Setting> {
    let charsmap = std::fs::read(path("unigram.charsmap")).unwrap();
    settings(fixture, Algorithm::Unigram, |name, vocab| {
        vocab.charsmap.clone_from(&charsmap);
        vocab.add_space_prefix = name != "no prefix";
        vocab.remove_extra_whitespaces = !matches!(name, "no prefix" | "keep spaces");
        (vocab.pad, vocab.eos, vocab.unknown, vocab.add_eos) =
            (Some(0), Some(1), Some(2), name == "add");
        match name {
            "add" => Special::ParseAndAdd,
            _ => Special::Parse,
        }
    })
}

fn wordpiece(fixture: &Fixture) -> Vec<Setting> {
    settings(fixture, Algorithm::WordPiece, |name, vocab| {
        (vocab.pad, vocab.unknown, vocab.bos, vocab.separator) =
            (Some(0), Some(1), Some(2), Some(3));
        (vocab.add_bos, vocab.add_eos) = (true, true);
        vocab.lowercase = name != "cased";
        vocab.strip_accents = !matches!(name, "cased" | "accents");
        match name {
            "add" => Special::ParseAndAdd,
            _ => Special::Parse,
        }
    })
}

#[test]
fn chosen_texts_have_the_ids_of_the_reference() {
    let mut failures = Vec::new();
    for (kind, settings) in KINDS {
        let fixture = Fixture::read(&format!("{kind}.json"));
        for (name, vocab, special) in settings(&fixture) {
            compare(&fixture, &name, vocab, special, &mut failures);
        }
    }
    finish(&failures);
}

/// What `fixtures/make_random.py` makes.
#[derive(Deserialize)]
struct RandomTexts {
    /// Texts that have one digest.
    chunk: usize,
    /// By kind of vocabulary and setting: digests of all chunks, 16 hexadecimal digits each.
    digests: BTreeMap<String, BTreeMap<String, String>>,
    texts: Vec<String>,
}

/// FNV-1a over the ids, each text ended by one that is no id.
fn digest(all_ids: impl Iterator<Item = Vec<u32>>) -> u64 {
    let ids = all_ids.flat_map(|ids| ids.into_iter().chain([u32::MAX]));
    ids.flat_map(u32::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
}

#[test]
fn random_texts_have_the_ids_of_the_reference() {
    let random: RandomTexts = read("random.json");
    assert_eq!(random.texts.len(), 2000);
    let mut failures = Vec::new();
    for (kind, settings) in KINDS {
        let fixture = Fixture::read(&format!("{kind}.json"));
        for (name, vocab, special) in settings(&fixture) {
            let tokenizer = Tokenizer::new(vocab).unwrap();
            let expected = &random.digests[kind][&name];
            for (idx, texts) in random.texts.chunks(random.chunk).enumerate() {
                let expected = u64::from_str_radix(&expected[16 * idx..][..16], 16).unwrap();
                let encoded = texts.iter().map(|text| tokenizer.encode(text, special));
                if digest(encoded) != expected {
                    failures.push(format!("make_random.py {kind} '{name}' {idx}"));
                }
            }
        }
    }
    finish(&failures);
}

fn compare(
    fixture: &Fixture,
    name: &str,
    vocab: Vocab,
    special: Special,
    failures: &mut Vec<String>,
) {
    let tokenizer = Tokenizer::new(vocab).unwrap();
    assert!(
        tokenizer.warnings().is_empty(),
        "{name}: {:?}",
        tokenizer.warnings()
    );
    for ((text, variants), &variant) in fixture
        .texts
        .iter()
        .zip(&fixture.variants)
        .zip(&fixture.settings[name])
    {
        let expected = &variants[variant];
        for round in ["first", "remembered"] {
            let ids = tokenizer.encode(text, special);
            if ids != *expected {
                let spell = |ids: &[u32]| {
                    let text = |id: &u32| tokenizer.token_text(*id).unwrap_or("?").to_owned();
                    ids.iter().map(text).collect::<Vec<_>>().join("·")
                };
                let (ours, theirs) = (spell(&ids), spell(expected));
                failures.push(format!(
                    "{name}, {round}: {text:?}\n  ours   {ours}\n  theirs {theirs}"
                ));
                break;
            }
        }
        let joined: Vec<u8> = tokenizer
            .encode(text, special)
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id).into_owned())
            .collect();
        let decoded = tokenizer.decode(&tokenizer.encode(text, special));
        assert_eq!(
            String::from_utf8_lossy(&joined),
            decoded,
            "{name}: {text:?}"
        );
    }
    if !fixture.ends.is_empty() {
        assert_eq!(tokenizer.end_of_generation(), fixture.ends, "{name}");
    }
}

/// The flags that the reference gives to the special tokens of this model.
fn strip_like_phi3(vocab: &mut Vocab) {
    for (id, (text, kind)) in (0..).zip(vocab.tokens.iter().zip(&vocab.kinds)) {
        let special = matches!(
            kind,
            TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown
        );
        if special && !["<unk>", "<s>", "<|endoftext|>"].contains(&text.as_str()) {
            vocab.strip_right.push(id);
        }
    }
}

fn finish(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} differ\n{}",
        failures.len(),
        failures.join("\n")
    );
}
