//! Small models that guess: which one is loaded, what is said when it cannot, what memory it takes.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use llmsrv_engine::{
    LoadError, Loader, Speculation,
    fake::{self, Answer, FakeOptions},
};
use llmsrv_gguf::{GgufFile, Metadata, Writer};
use llmsrv_server::Settings;
use llmsrv_store::LayerKind;
use llmsrv_tokenizer::{Algorithm, TokenKind, Tokenizer, Vocab};
use serde_json::json;

use crate::host::{Host, configured, host_loading};

/// The names of the models that were loaded.
type LoadedNames = Arc<Mutex<Vec<String>>>;

/// A server with these draft models. The model `other` has another vocabulary.
fn guessing(drafts: &[&str], memory_limit: Option<u64>) -> (Host, LoadedNames) {
    guessing_with(drafts, memory_limit, |_| {})
}

fn guessing_with(
    drafts: &[&str],
    memory_limit: Option<u64>,
    change: fn(&mut Settings),
) -> (Host, LoadedNames) {
    let names = LoadedNames::default();
    let seen = names.clone();
    let loader: Loader = Arc::new(move |path, _| {
        let file = GgufFile::open(path).unwrap();
        let name = file.metadata().str("general.basename").unwrap_or_default();
        names_of(&seen).push(name.to_owned());
        if name == "broken" {
            return Err(LoadError::Io(std::io::Error::other("it is gone")));
        }
        let mut loaded = fake::loaded(FakeOptions {
            answer: Answer::Text("It was a bright cold day in April.".into()),
            weight_bytes: 1000,
            ..FakeOptions::default()
        });
        if name == "speaker" {
            loaded.tokenizer = Arc::new(other_tokenizer());
        }
        Ok(loaded)
    });
    let mut settings = Settings {
        draft_models: drafts.iter().map(|text| text.parse().unwrap()).collect(),
        ..configured(|config| config.memory_limit = memory_limit)
    };
    change(&mut settings);
    (host_loading(settings, loader), names)
}

fn names_of(names: &LoadedNames) -> std::sync::MutexGuard<'_, Vec<String>> {
    names.lock().unwrap()
}

fn other_tokenizer() -> Tokenizer {
    let same = fake::tokenizer();
    let mut tokens = same.vocab().tokens.clone();
    tokens[97] = "another".into();
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[256..].fill(TokenKind::Control);
    Tokenizer::new(Vocab {
        algorithm: Algorithm::Bpe,
        tokens,
        kinds,
        pre: "gpt-2".into(),
        eos: Some(258),
        ..Vocab::default()
    })
    .unwrap()
}

#[tokio::test]
async fn a_small_model_guesses_and_says_nothing_else() {
    let (host, names) = guessing(&["thinker"], None);
    let (status, answer) = host.ask(json!({})).await;
    assert_eq!(
        (status, &answer["response"]),
        (200, &json!("It was a bright cold day in April."))
    );
    assert_eq!(*names_of(&names), ["plain", "thinker"]);
    let (_, metrics) = host.text(Method::GET, "/metrics", "").await;
    let drafted = metrics
        .lines()
        .find(|line| line.starts_with("llmsrv_drafted_tokens_total"));
    let n: f64 = drafted
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(n > 0.0, "{drafted:?}");
    // The small model itself needs nobody.
    let (status, _) = host.ask(json!({"model": "thinker"})).await;
    assert_eq!(status, 200);
    assert_eq!(*names_of(&names), ["plain", "thinker", "thinker"]);
}

#[tokio::test]
async fn a_small_model_with_another_vocabulary_is_an_error_where_it_was_named() {
    let (host, _) = guessing(&["plain=speaker"], None);
    let (status, answer) = host.ask(json!({})).await;
    assert_eq!(
        (status, answer),
        (
            500,
            json!({"error": "draft model 'speaker:latest' cannot draft for 'plain:latest': token 97 is another one; change LLMSRV_DRAFT_MODEL"})
        )
    );
    // One for all is not for this one.
    let (host, names) = guessing(&["speaker"], None);
    let (status, _) = host.ask(json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(*names_of(&names), ["plain", "speaker"]);
}

#[tokio::test]
async fn a_small_model_that_is_not_there_is_an_error() {
    let (host, _) = guessing(&["nowhere"], None);
    let (status, answer) = host.ask(json!({})).await;
    let text =
        "draft model 'nowhere:latest' not found: pull it, or take it out of LLMSRV_DRAFT_MODEL";
    assert_eq!((status, answer), (500, json!({"error": text})));
}

/// A small model file; its facts are known if its architecture is.
fn file(architecture: &str, name: &str) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", architecture);
    metadata.set("general.basename", name);
    if architecture == "llama" {
        for (key, value) in [
            ("block_count", 1u32),
            ("embedding_length", 8),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 2),
        ] {
            metadata.set(format!("llama.{key}"), value);
        }
    }
    Writer::new(metadata).to_bytes().unwrap()
}

#[tokio::test]
async fn a_model_brings_its_draft_model() {
    let loaded = async |drafts: &[&str], small: &[u8], change: fn(&mut Settings)| {
        let (host, names) = guessing_with(drafts, None, change);
        let big = file("llama", "big");
        let layers = [(LayerKind::Model, &big[..]), (LayerKind::Draft, small)];
        host.put_layers("big", "{}", &layers);
        let (status, answer) = host.ask(json!({"model": "big"})).await;
        assert_eq!(status, 200, "{answer}");
        names_of(&names).clone()
    };
    let small = file("llama", "small");
    assert_eq!(loaded(&[], &small, |_| {}).await, ["big", "small"]);
    // A setting goes before it.
    assert_eq!(
        loaded(&["thinker"], &small, |_| {}).await,
        ["big", "thinker"]
    );
    let off = |settings: &mut Settings| settings.speculation = Speculation::Off;
    assert_eq!(loaded(&[], &small, off).await, ["big"]);
    // One that cannot draft, or not be loaded, is left out.
    let other = file("llama", "speaker");
    assert_eq!(loaded(&[], &other, |_| {}).await, ["big", "speaker"]);
    let broken = file("llama", "broken");
    assert_eq!(loaded(&[], &broken, |_| {}).await, ["big", "broken"]);
    let part = file("llama_part", "part");
    assert_eq!(loaded(&[], &part, |_| {}).await, ["big"]);
}
