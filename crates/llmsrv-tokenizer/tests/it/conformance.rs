//! Small vocabularies of every kind against the ids that the reference programs give.
//!
//! `fixtures/make.py` makes the files and says how.

use crate::fixture::{Fixture, path};
use llmsrv_tokenizer::{Algorithm, Special, TokenKind, Tokenizer, Vocab};

#[test]
fn byte_level_bpe_with_every_pre_tokenizer() {
    let fixture = Fixture::read("bpe.json");
    let mut failures = Vec::new();
    for name in fixture.settings.keys() {
        let mut vocab = fixture.vocab(Algorithm::Bpe);
        let (pre, option) = name.split_once(' ').unwrap_or((name, ""));
        vocab.pre = pre.into();
        if option == "strip" {
            strip_like_phi3(&mut vocab);
        }
        let special = if option == "plain" {
            Special::Plain
        } else {
            Special::Parse
        };
        compare(&fixture, name, vocab, special, &mut failures);
    }
    assert!(fixture.settings.len() > 75, "pre-tokenizers are missing");
    finish(&failures);
}

#[test]
fn bpe_over_characters() {
    let fixture = Fixture::read("characters.json");
    let mut failures = Vec::new();
    for name in fixture.settings.keys() {
        let vocab = Vocab {
            pre: name.clone(),
            ..fixture.vocab(Algorithm::Bpe)
        };
        compare(&fixture, name, vocab, Special::Parse, &mut failures);
    }
    finish(&failures);
}

#[test]
fn sentencepiece_bpe() {
    let fixture = Fixture::read("spm.json");
    let mut failures = Vec::new();
    for name in fixture.settings.keys() {
        let mut vocab = fixture.vocab(Algorithm::Spm);
        vocab.add_space_prefix = name != "no prefix";
        (vocab.unknown, vocab.bos, vocab.eos) = (Some(0), Some(1), Some(2));
        (vocab.add_bos, vocab.add_eos) = (name == "add", name == "add end");
        if name == "strip" {
            strip_like_phi3(&mut vocab);
        }
        let special = match name.as_str() {
            "plain" => Special::Plain,
            "add" | "add end" => Special::ParseAndAdd,
            _ => Special::Parse,
        };
        compare(&fixture, name, vocab, special, &mut failures);
    }
    finish(&failures);
}

#[test]
fn unigram() {
    let fixture = Fixture::read("unigram.json");
    let charsmap = std::fs::read(path("unigram.charsmap")).unwrap();
    let mut failures = Vec::new();
    for name in fixture.settings.keys() {
        let mut vocab = fixture.vocab(Algorithm::Unigram);
        vocab.charsmap.clone_from(&charsmap);
        vocab.add_space_prefix = name != "no prefix";
        vocab.remove_extra_whitespaces = !matches!(name.as_str(), "no prefix" | "keep spaces");
        (vocab.pad, vocab.eos, vocab.unknown, vocab.add_eos) =
            (Some(0), Some(1), Some(2), name == "add");
        let special = if name == "add" {
            Special::ParseAndAdd
        } else {
            Special::Parse
        };
        compare(&fixture, name, vocab, special, &mut failures);
    }
    finish(&failures);
}

#[test]
fn wordpiece() {
    let fixture = Fixture::read("bert.json");
    let mut failures = Vec::new();
    for name in fixture.settings.keys() {
        let mut vocab = fixture.vocab(Algorithm::WordPiece);
        (vocab.pad, vocab.unknown, vocab.bos, vocab.separator) =
            (Some(0), Some(1), Some(2), Some(3));
        (vocab.add_bos, vocab.add_eos) = (true, true);
        vocab.lowercase = name != "cased";
        vocab.strip_accents = !matches!(name.as_str(), "cased" | "accents");
        let special = if name == "add" {
            Special::ParseAndAdd
        } else {
            Special::Parse
        };
        compare(&fixture, name, vocab, special, &mut failures);
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
