//! The tokenizer of the embedded model against the vectors that were published with it.

use std::{fs, path::Path};

use llmsrv_gguf::GgufFile;
use llmsrv_tokenizer::{Special, Tokenizer};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    vectors: Vec<Vector>,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Vector {
    text: String,
    ids: Vec<u32>,
    decoded: String,
}

#[derive(Deserialize)]
struct Prompt {
    prompt: String,
    ids: Vec<u32>,
}

#[test]
fn ids_are_those_of_the_reference() {
    let tokenizer = tokenizer();
    let reference = reference();
    assert_eq!((reference.vectors.len(), reference.prompts.len()), (54, 21));
    for Vector { text, ids, decoded } in &reference.vectors {
        assert_eq!(tokenizer.encode(text, Special::Parse), *ids, "{text:?}");
        // No begin or end token is wanted.
        assert_eq!(
            tokenizer.encode(text, Special::ParseAndAdd),
            *ids,
            "{text:?}"
        );
        assert_eq!(tokenizer.decode_with_special(ids), *decoded, "{text:?}");
        let without_special: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|&id| !tokenizer.is_control(id))
            .collect();
        assert_eq!(
            tokenizer.decode(ids),
            tokenizer.decode_with_special(&without_special)
        );
    }
    for Prompt { prompt, ids } in &reference.prompts {
        assert_eq!(tokenizer.encode(prompt, Special::Parse), *ids, "{prompt:?}");
        let plain = tokenizer.encode(prompt, Special::Plain);
        assert!(
            !plain.iter().any(|&id| tokenizer.is_control(id)),
            "{prompt:?}"
        );
        assert_eq!(tokenizer.decode(&plain), *prompt);
    }
}

#[test]
fn special_tokens_have_their_roles() {
    let tokenizer = tokenizer();
    let id = |text| tokenizer.find(text).unwrap();
    assert_eq!(tokenizer.vocab_size(), 4096);
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos()),
        (Some(id("<|endoftext|>")), Some(id("<|im_end|>")))
    );
    assert!(!tokenizer.adds_bos() && !tokenizer.adds_eos());
    assert!(tokenizer.warnings().is_empty());
    for text in ["<|im_end|>", "<|endoftext|>"] {
        assert!(
            tokenizer.is_end_of_generation(id(text)) && tokenizer.is_control(id(text)),
            "{text}"
        );
        assert!(tokenizer.token_bytes(id(text)).is_empty());
        assert_eq!(tokenizer.token_text(id(text)), Some(text));
    }
    assert!(
        tokenizer.is_control(id("<|im_start|>"))
            && !tokenizer.is_end_of_generation(id("<|im_start|>"))
    );
    assert_eq!(tokenizer.vocab().fim.prefix, Some(id("<|fim_prefix|>")));
    assert_eq!(&*tokenizer.token_bytes(id("Ġreturn")), b" return");
}

fn tokenizer() -> Tokenizer {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = GgufFile::open(&root.join("assets/embedded/model.gguf")).unwrap();
    Tokenizer::from_metadata(file.metadata()).unwrap()
}

fn reference() -> Reference {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embedded.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}
