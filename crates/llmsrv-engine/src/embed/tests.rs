//! Vectors from the fake model, beside text and by themselves.

use std::{sync::Arc, thread, time::Duration};

use proptest::prelude::*;

use crate::{
    EmbeddingSpec, EngineOptions, Event, GenRequest, Generation, Grid, Handle, Image, ImageSpan,
    Pooling, SamplingParams, SubmitError, TokenId,
    fake::{self, Answer, FakeOptions},
    spawn,
};

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(TokenId::from).collect()
}

fn all(pooling: Pooling, bidirectional: bool) -> FakeOptions {
    FakeOptions {
        embedding: Some(EmbeddingSpec {
            width: 8,
            pooling,
            bidirectional,
        }),
        ..FakeOptions::default()
    }
}

fn embed(handle: &Handle, texts: &[&str]) -> Vec<Vec<f32>> {
    let inputs = texts.iter().map(|text| tokens(text)).collect();
    handle.embed(inputs).unwrap().blocking_wait().unwrap()
}

fn request(prompt: &str) -> GenRequest {
    GenRequest {
        tokens: tokens(prompt),
        images: Vec::new(),
        params: SamplingParams::default(),
        num_ctx: 4096,
        max_tokens: None,
        stop: Vec::new(),
        num_keep: 4,
        shift: true,
        grammar: None,
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
    }
}

#[test]
fn vectors_follow_the_pooling() {
    let texts = ["a", "ab", "abc", "b"];
    for bidirectional in [false, true] {
        let of = |pooling| {
            let fake = fake::loaded(all(pooling, bidirectional));
            embed(&spawn(fake, EngineOptions::default()), &texts)
        };
        let (mean, cls, last) = (of(Pooling::Mean), of(Pooling::Cls), of(Pooling::Last));
        assert_eq!(mean[0], cls[0], "one row is its own mean");
        assert_eq!(cls[0], last[0]);
        assert_ne!(cls[1], last[1]);
        assert_eq!(
            cls[0] == cls[1],
            !bidirectional,
            "the first token sees the others or not"
        );
        for idx in 0..8 {
            let expected = f32::midpoint(cls[1][idx], last[1][idx]);
            assert!((mean[1][idx] - expected).abs() < 1e-6);
        }
    }
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let refuse = |fake: FakeOptions, inputs: Vec<Vec<TokenId>>| {
        let handle = spawn(fake::loaded(fake), EngineOptions::default());
        handle.embed(inputs).map(|_| ()).unwrap_err().to_string()
    };
    let small = || FakeOptions {
        context_length: 4,
        ..FakeOptions::default()
    };
    for (inputs, expected) in [
        (vec![vec![]], "the prompt has 0 tokens; the context holds 4"),
        (
            vec![tokens("a"), tokens("abcde")],
            "the prompt has 5 tokens; the context holds 4",
        ),
        (vec![vec![999]], "token 999 is not in the vocabulary"),
    ] {
        assert_eq!(refuse(small(), inputs), expected);
    }
    let none = FakeOptions {
        embedding: None,
        ..FakeOptions::default()
    };
    assert_eq!(
        refuse(none, vec![tokens("a")]),
        "the model does not support embeddings"
    );
    let handle = spawn(
        fake::loaded(FakeOptions::embedding_only(Pooling::Cls)),
        EngineOptions::default(),
    );
    assert!(matches!(
        handle.submit(request("a")),
        Err(SubmitError::NoText)
    ));
    assert!(embed(&handle, &[]).is_empty());
}

#[test]
fn a_failing_input_fails_its_step_and_the_engine_goes_on() {
    for bidirectional in [false, true] {
        let fake = FakeOptions {
            fail_on: Some("!".into()),
            ..all(Pooling::Last, bidirectional)
        };
        let handle = spawn(fake::loaded(fake), EngineOptions::default());
        let error = handle.embed(vec![tokens("no!")]).unwrap().blocking_wait();
        assert_eq!(
            error.unwrap_err().to_string(),
            "computation failed: the fake model was told to fail"
        );
        assert_eq!(embed(&handle, &["yes"]).len(), 1);
    }
}

#[test]
fn a_panic_gives_an_error() {
    let fake = FakeOptions {
        panic_on: Some("!".into()),
        ..FakeOptions::default()
    };
    let handle = spawn(fake::loaded(fake), EngineOptions::default());
    let error = handle
        .embed(vec![tokens("a"), tokens("!")])
        .unwrap()
        .blocking_wait();
    assert_eq!(
        error.unwrap_err().to_string(),
        "the model stopped unexpectedly"
    );
    assert!(matches!(
        handle.embed(vec![tokens("a")]),
        Err(SubmitError::Closed)
    ));
}

/// A thousand inputs wait; a generation that comes after them answers first, and its text is what it
/// would be alone.
#[test]
fn text_does_not_wait_for_a_long_list() {
    let fake = FakeOptions {
        step_delay: Duration::from_millis(2),
        ..all(Pooling::Last, false)
    };
    let handle = spawn(fake::loaded(fake), EngineOptions::default());
    let list = (0..4000)
        .map(|idx| tokens(&format!("{idx} ").repeat(20)))
        .collect();
    let vectors = handle.embed(list).unwrap();
    let mut generation = handle.submit(request("a")).unwrap();
    let mut text = String::new();
    while let Some(event) = generation.blocking_next() {
        match event {
            Event::Text { text: more, .. } => text.push_str(&more),
            Event::Done(_) => break,
            Event::Error(error) | Event::DeviceLost(error) => panic!("{error}"),
        }
    }
    assert_eq!(text, "Hello! How can I help you?");
    assert!(handle.stats().waiting > 1000, "the list is not through");
    drop(vectors);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while handle.stats().waiting + handle.stats().running > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "dropping the list cancels it"
        );
        thread::yield_now();
    }
    assert_eq!(handle.stats().kv_blocks_used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A vector does not depend on what is computed beside it, on how its input is cut into steps, on
    /// preemption, nor on the prefix cache.
    #[test]
    fn a_vector_is_what_it_is_alone(
        texts in prop::collection::vec("[ab]{1,40}", 1..12),
        pooling in prop::sample::select(vec![Pooling::Mean, Pooling::Cls, Pooling::Last]),
        bidirectional: bool,
        step_tokens in 1usize..40,
        kv_blocks in 11usize..30,
        with_text: bool,
    ) {
        let fake = || FakeOptions { block_size: 4, answer: Answer::Random, ..all(pooling, bidirectional) };
        let options = EngineOptions { step_tokens, kv_blocks: 1, max_kv_blocks: kv_blocks, max_sequences: 3, prefix_cache: true, ..EngineOptions::default() };
        let handle = spawn(fake::loaded(fake()), options);
        let beside = (with_text && !bidirectional)
            .then(|| handle.submit(about_an_image()).unwrap());
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let together = embed(&handle, &texts);
        let again = embed(&handle, &texts);
        let alone = spawn(fake::loaded(fake()), EngineOptions { prefix_cache: false, ..EngineOptions::default() });
        for ((text, together), again) in texts.iter().zip(&together).zip(&again) {
            prop_assert_eq!(&embed(&alone, &[text])[0], together);
            prop_assert_eq!(together, again);
        }
        if let Some(beside) = beside {
            prop_assert_eq!(text(beside), text(alone.submit(about_an_image()).unwrap()));
        }
    }
}

/// A request whose prompt has an image between two texts.
fn about_an_image() -> GenRequest {
    let image = Image {
        digest: [7; 32],
        rows: 5,
        embedding: vec![0.0; 5],
        whole: true,
        grid: Some(Grid {
            width: 5,
            height: 1,
        }),
    };
    GenRequest {
        images: vec![ImageSpan::all(2, Arc::new(image))],
        max_tokens: Some(20),
        params: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        ..request("ab.....ab")
    }
}

fn text(mut generation: Generation) -> String {
    let mut text = String::new();
    while let Some(event) = generation.blocking_next() {
        match event {
            Event::Text { text: more, .. } => text.push_str(&more),
            Event::Done(_) => break,
            Event::Error(error) | Event::DeviceLost(error) => panic!("{error}"),
        }
    }
    text
}
