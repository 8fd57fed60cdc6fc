//! The loop with the fake model, step by step and without threads.
//!
//! The property: whatever runs beside a request, however it is cut into steps, preempted or found
//! in the prefix cache, its output is the one it has alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::{
    Event, Finish, GenRequest, GrammarSpec, Grid, Image, ImageSpan, PlacedBytes, SamplingParams,
    TokenId, TokenInfo,
    fake::{self, Answer, FakeOptions},
    grammar::Grammars,
    options::Unlimited,
};

/// Everything a request gave.
#[derive(Debug, Default)]
struct Output {
    text: String,
    /// Events with text.
    n_texts: usize,
    tokens: Vec<TokenInfo>,
    finish: Option<Finish>,
    error: Option<String>,
}

impl Output {
    fn read(events: &mut UnboundedReceiver<Event>) -> Output {
        let mut output = Output::default();
        while let Ok(event) = events.try_recv() {
            assert!(
                output.finish.is_none() && output.error.is_none(),
                "an event after the last one"
            );
            match event {
                Event::Text { text, tokens } => {
                    assert!(!text.is_empty() || !tokens.is_empty(), "an empty event");
                    output.n_texts += 1;
                    output.text.push_str(&text);
                    output.tokens.extend(tokens);
                }
                Event::Done(finish) => output.finish = Some(*finish),
                Event::Error(message) | Event::DeviceLost(message) => output.error = Some(message),
            }
        }
        output
    }

    fn reason(&self) -> FinishReason {
        self.finish().reason
    }

    fn finish(&self) -> &Finish {
        self.finish
            .as_ref()
            .unwrap_or_else(|| panic!("no end: {self:?}"))
    }

    fn assert_same(&self, other: &Output) {
        assert_eq!(self.error, other.error);
        assert_eq!(self.text, other.text);
        assert_eq!(self.tokens, other.tokens);
        let facts = |output: &Output| {
            output.finish.clone().map(|finish| {
                (
                    finish.reason,
                    finish.stop_text,
                    finish.eval_tokens,
                    finish.context,
                )
            })
        };
        assert_eq!(facts(self), facts(other));
    }
}

fn engine(fake: FakeOptions, options: EngineOptions) -> Engine {
    engine_within(fake, options, Box::new(Unlimited))
}

fn engine_within(
    fake: FakeOptions,
    options: EngineOptions,
    account: Box<dyn MemoryAccount>,
) -> Engine {
    Engine::new(fake::loaded(fake), options, account, Arc::default())
}

/// Gives a request to the engine as a handle does.
fn submit(engine: &mut Engine, request: &GenRequest) -> UnboundedReceiver<Event> {
    let (events, receiver) = unbounded_channel();
    let constraint = request.grammar.as_ref().map(|grammar| {
        let grammars = Grammars::new(engine.tokenizer.clone());
        grammars.constraint(grammar, request).unwrap()
    });
    engine.admit(Submission {
        request: request.clone(),
        constraint,
        events,
    });
    receiver
}

fn run(engine: &mut Engine, request: &GenRequest) -> Output {
    let mut events = submit(engine, request);
    finish_all(engine);
    Output::read(&mut events)
}

fn finish_all(engine: &mut Engine) {
    let mut n_steps = 0;
    while !engine.requests.is_empty() {
        engine.step();
        n_steps += 1;
        assert!(n_steps < 100_000, "the engine does not come to an end");
    }
}

fn alone(answer: &Answer, request: &GenRequest) -> Output {
    alone_with(FakeOptions::default(), answer, request)
}

fn alone_with(fake: FakeOptions, answer: &Answer, request: &GenRequest) -> Output {
    let fake = FakeOptions {
        answer: answer.clone(),
        ..fake
    };
    let options = EngineOptions {
        step_tokens: 10_000,
        prefix_cache: false,
        speculation: Speculation::Off,
        ..EngineOptions::default()
    };
    run(&mut engine(fake, options), request)
}

fn request(prompt: &str) -> GenRequest {
    GenRequest {
        tokens: tokens(prompt),
        images: Vec::new(),
        params: SamplingParams {
            seed: Some(1),
            ..SamplingParams::default()
        },
        num_ctx: 1000,
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

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(TokenId::from).collect()
}

fn answering(text: &str) -> Answer {
    Answer::Text(text.into())
}

mod choices;
mod latency;
mod loss;
mod recurrent;
mod speculation;

mod equivalence {
    use super::*;

    #[derive(Debug)]
    struct Case {
        block_size: usize,
        spare_blocks: usize,
        hashes_collide: bool,
        draft: Option<FakeOptions>,
        /// The model keeps a recurrent state; there may be so many.
        states: Option<usize>,
        options: EngineOptions,
        /// Requests with the step before which they arrive and the step before which their
        /// client goes away.
        arrivals: Vec<(usize, GenRequest, Option<usize>)>,
    }

    /// Prompts of two letters, glued from a few pieces as long as a block, so that prefixes, parts
    /// in another order and whole prompts come again, often with a length that is whole blocks.
    /// Some of the pieces are images, of which there are a few.
    fn prompt(block_size: usize) -> impl Strategy<Value = (Vec<TokenId>, Vec<ImageSpan>)> {
        let text = prop_oneof![Just("aaaaaaaa"), Just("abababab"), Just("bbbbbbbb")];
        let image = (0u8..2, 1usize..9, any::<bool>());
        let piece = prop_oneof![
            4 => text.prop_map(Ok),
            1 => image.prop_map(Err),
        ];
        let tail = prop_oneof![4 => Just(""), 1 => Just("a"), 1 => Just("ba")];
        (prop::collection::vec(piece, 1..5), tail).prop_map(move |(pieces, tail)| {
            let (mut prompt, mut images) = (Vec::new(), Vec::new());
            for piece in pieces {
                match piece {
                    Ok(text) => prompt.extend(tokens(&text[..block_size])),
                    Err((kind, rows, whole)) => {
                        let image = Arc::new(image_of(kind, rows, whole));
                        images.push(ImageSpan::all(prompt.len(), image));
                        prompt.extend(vec![0; rows]);
                    }
                }
            }
            prompt.extend(tokens(tail));
            (prompt, images)
        })
    }

    fn image_of(kind: u8, rows: usize, whole: bool) -> Image {
        let mut digest = [kind; 32];
        digest[..2].copy_from_slice(&[rows as u8, whole.into()]);
        Image {
            digest,
            rows,
            embedding: vec![0.0; rows],
            whole,
            // Of one kind, and in two lines where that is possible.
            grid: (kind == 1).then(|| {
                let height = if rows.is_multiple_of(2) { 2 } else { 1 };
                Grid {
                    width: rows / height,
                    height,
                }
            }),
        }
    }

    fn arrival(block_size: usize) -> impl Strategy<Value = (usize, GenRequest, Option<usize>)> {
        let params = (
            0u64..4,
            prop_oneof![Just(0.0f32), Just(0.8), Just(2.0)],
            prop_oneof![Just(1.0f32), Just(1.3)],
        );
        let limits = (1usize..30, 1usize..16, 0usize..8, any::<bool>());
        (
            0usize..30,
            prompt(block_size),
            params,
            limits,
            prop::option::weighted(0.1, 0usize..40),
        )
            .prop_map(
                |(
                    step,
                    (tokens, images),
                    (seed, temperature, repeat_penalty),
                    (max_tokens, room, num_keep, shift),
                    gone,
                )| {
                    let params = SamplingParams {
                        seed: Some(seed),
                        temperature,
                        repeat_penalty,
                        repeat_last_n: Some(5),
                        ..SamplingParams::default()
                    };
                    let request = GenRequest {
                        num_ctx: tokens.len() + room,
                        tokens,
                        images,
                        params,
                        max_tokens: Some(max_tokens),
                        stop: vec!["abba".into()],
                        num_keep,
                        shift,
                        logprobs: Some(1),
                        ..super::request("a")
                    };
                    (step, request, gone)
                },
            )
    }

    fn case() -> impl Strategy<Value = Case> {
        (1usize..5).prop_flat_map(|block_size| {
            let speculation = prop_oneof![
                Just(Speculation::Off),
                Just(Speculation::Auto),
                (1usize..8).prop_map(Speculation::Always),
            ];
            // One that is always right, one with blocks of another size that is not, one that fails.
            let draft = prop_oneof![
                2 => Just(None),
                2 => Just(Some(FakeOptions {
                    answer: Answer::Random,
                    block_size,
                    ..FakeOptions::default()
                })),
                1 => Just(Some(FakeOptions {
                    answer: answering("abbabaababbabbaabaab"),
                    block_size: 5 - block_size,
                    context_length: 30,
                    ..FakeOptions::default()
                })),
                1 => Just(Some(FakeOptions {
                    answer: Answer::Random,
                    block_size,
                    memory_blocks: 5,
                    fail_on: Some("babba".into()),
                    ..FakeOptions::default()
                })),
            ];
            let options = (
                1usize..5,
                1usize..20,
                any::<bool>(),
                any::<bool>(),
                speculation,
            );
            (
                options,
                draft,
                prop::option::of(1usize..12),
                0usize..4,
                prop::collection::vec(arrival(block_size), 1..8),
            )
                .prop_map(
                    move |(
                        (max_sequences, step_tokens, is_small, hashes_collide, speculation),
                        draft,
                        states,
                        spare_blocks,
                        arrivals,
                    )| Case {
                        hashes_collide,
                        draft,
                        states,
                        block_size,
                        spare_blocks,
                        options: EngineOptions {
                            max_sequences,
                            step_tokens,
                            kv_blocks: if is_small { 1 } else { 100 },
                            max_kv_blocks: 0,
                            prefix_cache: true,
                            prefix_cache_blocks: [usize::MAX, 2][spare_blocks % 2],
                            speculation,
                            ..EngineOptions::default()
                        },
                        arrivals,
                    },
                )
        })
    }

    /// Runs all requests together in a pool hardly larger than the longest of them, twice.
    fn check(case: Case) {
        let longest = case
            .arrivals
            .iter()
            .map(|(_, request, _)| request.num_ctx)
            .max()
            .unwrap();
        let bound = longest.div_ceil(case.block_size) + case.spare_blocks;
        let fake = FakeOptions {
            answer: Answer::Random,
            block_size: case.block_size,
            recurrent: case.states.is_some(),
            ..FakeOptions::default()
        };
        let mut loaded = fake::loaded(fake);
        loaded.draft = case.draft.map(|draft| fake::loaded(draft).model);
        let options = EngineOptions {
            max_kv_blocks: bound,
            max_states: case.states.unwrap_or(0),
            ..case.options
        };
        let mut engine = Engine::new(loaded, options, Box::new(Unlimited), Arc::default());
        if case.hashes_collide {
            engine.blocks.make_hashes_collide();
        }
        let expected: Vec<Output> = case
            .arrivals
            .iter()
            .map(|(_, request, _)| {
                let fake = FakeOptions {
                    recurrent: case.states.is_some(),
                    ..FakeOptions::default()
                };
                alone_with(fake, &Answer::Random, request)
            })
            .collect();
        for _ in 0..2 {
            let mut running: Vec<Option<UnboundedReceiver<Event>>> =
                case.arrivals.iter().map(|_| None).collect();
            for step in 0..40 {
                for ((arrival, request, gone), events) in case.arrivals.iter().zip(&mut running) {
                    if *arrival == step {
                        *events = Some(submit(&mut engine, request));
                    }
                    if *gone == Some(step) {
                        *events = None;
                    }
                }
                if !engine.requests.is_empty() {
                    engine.step();
                }
                assert!(engine.blocks.total() <= bound);
            }
            finish_all(&mut engine);
            assert_eq!(
                engine.blocks.used(),
                0,
                "blocks of ended sequences are free"
            );
            for (events, expected) in running.iter_mut().zip(&expected) {
                if let Some(events) = events {
                    Output::read(events).assert_same(expected);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn company_does_not_change_the_output(case in case()) {
            check(case);
        }
    }
}

#[test]
fn a_text_arrives_with_its_totals() {
    let mut engine = engine(
        FakeOptions {
            answer: answering("Grüße, 世界"),
            ..FakeOptions::default()
        },
        EngineOptions::default(),
    );
    let output = run(&mut engine, &request("hello"));
    assert_eq!(output.text, "Grüße, 世界");
    let finish = output.finish();
    assert_eq!(
        (finish.reason, finish.prompt_tokens, finish.cached_tokens),
        (FinishReason::Stop, 5, 0)
    );
    assert_eq!(
        finish.eval_tokens,
        "Grüße, 世界".len() + 1,
        "the end token is generated, too"
    );
    assert_eq!(finish.context, tokens("helloGrüße, 世界"));
    assert!(output.tokens.is_empty());
    assert_eq!(
        (engine.stats.generated_tokens, engine.stats.requests),
        (finish.eval_tokens as u64, 1)
    );
}

#[test]
fn an_image_comes_from_the_prefix_cache_but_no_other_in_its_place() {
    let fake = FakeOptions {
        image_rows: 40,
        answer: Answer::Random,
        ..FakeOptions::default()
    };
    let vision = fake::loaded(fake.clone()).vision.unwrap();
    let mut engine = engine(
        fake,
        EngineOptions {
            step_tokens: 8,
            ..EngineOptions::default()
        },
    );
    let about = |image: &str| {
        let image = vision.encode(image.as_bytes()).unwrap();
        let tokens: Vec<TokenId> = [&[97; 10][..], &[0; 40], &[98; 5]].concat();
        GenRequest {
            tokens,
            images: vec![ImageSpan::all(10, image)],
            max_tokens: Some(20),
            ..request("a")
        }
    };
    let cat = run(&mut engine, &about("image of a cat"));
    assert_eq!(
        (cat.finish().prompt_tokens, cat.finish().cached_tokens),
        (55, 0)
    );
    assert_eq!(
        cat.finish().context.len(),
        15 + cat.finish().eval_tokens - usize::from(cat.finish().reason == FinishReason::Stop),
        "the text alone is kept"
    );
    let dog = run(&mut engine, &about("image of a dog"));
    assert_eq!(
        dog.finish().cached_tokens,
        10,
        "only the text before it is shared"
    );
    assert_ne!(dog.text, cat.text);
    let again = run(&mut engine, &about("image of a cat"));
    assert_eq!(again.finish().cached_tokens, 54);
    assert_eq!(again.text, cat.text);
    assert!(vision.encode(b"no").is_err());
}

#[test]
fn text_between_the_rows_of_an_image_is_computed_as_text() {
    let fake = FakeOptions {
        image_rows: 10,
        answer: Answer::Random,
        ..FakeOptions::default()
    };
    let vision = fake::loaded(fake.clone()).vision.unwrap();
    let mut engine = engine(
        fake,
        EngineOptions {
            step_tokens: 8,
            ..EngineOptions::default()
        },
    );
    let mut ask = |cut: usize, between: TokenId| {
        let image = vision.encode(b"image/in parts").unwrap();
        assert_eq!(image.rows, 20);
        let span = |at: usize, rows: std::ops::Range<usize>| ImageSpan {
            at,
            rows,
            image: image.clone(),
        };
        let images = vec![span(3, 0..cut), span(3 + cut + 1, cut..20)];
        let tokens = [
            &[97; 3][..],
            &vec![0; cut],
            &[between],
            &vec![0; 20 - cut],
            &[98; 5],
        ];
        let request = GenRequest {
            tokens: tokens.concat(),
            images,
            max_tokens: Some(20),
            ..request("a")
        };
        let output = run(&mut engine, &request);
        (output.text.clone(), output.finish().cached_tokens)
    };
    let first = ask(10, 99);
    assert_eq!(ask(10, 99), (first.0.clone(), 28));
    let other_text = ask(10, 100);
    assert_eq!(other_text.1, 13, "what is before the text");
    assert_ne!(other_text.0, first.0);
    let other_place = ask(12, 99);
    assert_eq!(other_place.1, 13, "the rows before the text");
    assert_ne!(other_place.0, first.0);
}

#[test]
fn a_prompt_comes_from_the_prefix_cache() {
    let mut engine = engine(FakeOptions::default(), EngineOptions::default());
    let prompt = "0123456789abcdef".repeat(2);
    let first = run(&mut engine, &request(&prompt));
    let second = run(&mut engine, &request(&prompt));
    assert_eq!(
        (first.finish().cached_tokens, second.finish().cached_tokens),
        (0, 31),
        "the last token is computed again"
    );
    let longer = run(
        &mut engine,
        &request(&format!("{prompt}{} And then?", first.text)),
    );
    assert_eq!(
        longer.finish().cached_tokens,
        58,
        "the answer is there to its last token"
    );
    assert_eq!(engine.stats.prefix_hit_tokens, 31 + 58);
    second.assert_same(&first);
    // Where two prompts part makes no difference.
    let other = run(&mut engine, &request(&format!("{}x", &prompt[..21])));
    assert_eq!(other.finish().cached_tokens, 21);
}

#[test]
fn what_is_to_be_copied_is_not_lost_by_a_failure() {
    let fake = FakeOptions {
        answer: Answer::Random,
        fail_on: Some("!".into()),
        memory_blocks: 4,
        ..FakeOptions::default()
    };
    let options = EngineOptions {
        kv_blocks: 1,
        ..EngineOptions::default()
    };
    let mut engine = engine(fake, options);
    let limited = |prompt: &str| GenRequest {
        max_tokens: Some(3),
        ..request(prompt)
    };
    let prompts = [
        "0123456789abcdef01234",
        "0123456789abcdef012!",
        // Of what failed nothing is found, so the copy is made again.
        "0123456789abcdef012 and more than one block",
        "0123456789abcdef01234",
    ];
    for prompt in prompts {
        let output = run(&mut engine, &limited(prompt));
        if prompt.contains('!') {
            assert!(output.error.unwrap().contains("told to fail"));
        } else {
            output.assert_same(&alone(&Answer::Random, &limited(prompt)));
        }
    }
    assert!(engine.stats.prefix_hit_tokens > 0);
}

#[test]
fn limits_end_the_generation() {
    let mut engine = engine(
        FakeOptions {
            answer: Answer::Endless,
            ..FakeOptions::default()
        },
        EngineOptions::default(),
    );
    let none = run(
        &mut engine,
        &GenRequest {
            max_tokens: Some(0),
            ..request("a")
        },
    );
    assert_eq!(
        (none.text.as_str(), none.reason(), none.finish().eval_tokens),
        ("", FinishReason::Length, 0)
    );
    assert_eq!(engine.stats.steps, 0, "nothing is computed for nothing");
    let three = run(
        &mut engine,
        &GenRequest {
            max_tokens: Some(3),
            ..request("a")
        },
    );
    assert_eq!(
        (three.text.len(), three.reason(), three.finish().eval_tokens),
        (3, FinishReason::Length, 3)
    );
    let full = run(
        &mut engine,
        &GenRequest {
            num_ctx: 10,
            shift: false,
            ..request("abcd")
        },
    );
    assert_eq!((full.text.len(), full.reason()), (6, FinishReason::Length));
    let bounded = run(
        &mut engine,
        &GenRequest {
            num_ctx: 10,
            ..request("abcd")
        },
    );
    assert_eq!(
        (bounded.text.len(), bounded.reason()),
        (100, FinishReason::Length)
    );
    assert_eq!(
        bounded.finish().context.len(),
        104,
        "the context is what was said, not what a shift left of it"
    );
}

#[test]
fn a_token_for_ever_is_a_normal_end() {
    let dashes = answering(&"-".repeat(100));
    let stuck = alone(&dashes, &request("a"));
    assert_eq!((stuck.text.len(), stuck.reason()), (31, FinishReason::Stop));
    let wanted = alone(
        &dashes,
        &GenRequest {
            max_tokens: Some(60),
            ..request("a")
        },
    );
    assert_eq!(
        (wanted.text.len(), wanted.reason()),
        (60, FinishReason::Length)
    );
}

#[test]
fn a_stop_text_is_not_output() {
    let stop = |stop: &[&str]| {
        let stop = stop.iter().map(ToString::to_string).collect();
        alone(
            &answering("one two three"),
            &GenRequest {
                stop,
                logprobs: Some(0),
                ..request("a")
            },
        )
    };
    let stopped = stop(&["x", "two"]);
    assert_eq!(
        (stopped.text.as_str(), stopped.reason()),
        ("one ", FinishReason::Stop)
    );
    assert_eq!(stopped.finish().stop_text.as_deref(), Some("two"));
    assert_eq!(
        stopped.tokens.len(),
        4,
        "tokens of the stop text are not reported"
    );
    assert_eq!(stopped.finish().context, tokens("aone "));
    assert_eq!(stopped.finish().eval_tokens, 7);
    let begun = stop(&["threefold"]);
    assert_eq!(
        (begun.text.as_str(), begun.finish().stop_text.as_deref()),
        ("one two three", None)
    );
    assert_eq!(begun.tokens.len(), 13);
}

#[test]
fn log_probabilities_are_reported() {
    let output = alone(
        &answering("hi"),
        &GenRequest {
            logprobs: Some(2),
            ..request("a")
        },
    );
    let [h, i] = output.tokens.as_slice() else {
        panic!("{:?}", output.tokens)
    };
    assert_eq!(
        (h.id, h.bytes.as_slice(), i.id),
        (104, b"h".as_slice(), 105)
    );
    assert!(h.logprob > -0.01 && h.logprob <= 0.0);
    assert_eq!((h.top.len(), h.top[0].0, h.top[0].1), (2, 104, h.logprob));
    assert!(h.top[1].1 < -40.0);
}

#[test]
fn a_failed_step_fails_its_sequences_only() {
    let fake = FakeOptions {
        fail_on: Some("bad".into()),
        ..FakeOptions::default()
    };
    let mut engine = engine(
        fake,
        EngineOptions {
            max_sequences: 1,
            ..EngineOptions::default()
        },
    );
    let mut bad = submit(&mut engine, &request("this is bad"));
    let mut good = submit(&mut engine, &request("this is not"));
    finish_all(&mut engine);
    assert!(
        Output::read(&mut bad)
            .error
            .unwrap()
            .contains("told to fail")
    );
    assert_eq!(Output::read(&mut good).text, "Hello! How can I help you?");
    assert_eq!(engine.blocks.used(), 0);
}

/// An account with so many bytes left.
struct Purse(Arc<AtomicU64>);

impl MemoryAccount for Purse {
    fn grow(&mut self, bytes: &PlacedBytes) -> bool {
        let take = |left: u64| left.checked_sub(bytes.total());
        self.0.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    fn shrink(&mut self, bytes: &PlacedBytes) {
        self.0.fetch_add(bytes.total(), Relaxed);
    }
}

#[test]
fn the_kv_cache_grows_as_far_as_its_account_allows() {
    let fake = FakeOptions {
        block_size: 4,
        memory_blocks: 50,
        ..FakeOptions::default()
    };
    let options = EngineOptions {
        kv_blocks: 1,
        max_kv_blocks: 100,
        ..EngineOptions::default()
    };
    let purse = Arc::new(AtomicU64::new(0));
    let mut engine = engine_within(fake, options, Box::new(Purse(purse.clone())));
    let block = engine.model.spec().kv_block_bytes as u64;
    purse.store(2 * block, Relaxed);
    let output = run(&mut engine, &request("abcdefghijkl"));
    assert!(output.error.unwrap().contains("not enough memory"));
    let before = engine.stats.kv_blocks_total as u64;
    assert_eq!(purse.load(Relaxed), (2 - before) * block);

    purse.store(100 * block, Relaxed);
    let output = run(&mut engine, &request("abcdefghijkl"));
    assert!(output.error.is_none(), "{output:?}");
    let held = engine.stats.kv_blocks_total as u64;
    assert!(held <= 50, "the model has no memory for more");
    assert_eq!(purse.load(Relaxed), (100 - (held - before)) * block);
}

#[test]
fn too_little_memory_fails_what_does_not_fit() {
    let fake = FakeOptions {
        memory_blocks: 2,
        block_size: 4,
        answer: Answer::Endless,
        ..FakeOptions::default()
    };
    let options = EngineOptions {
        kv_blocks: 1,
        max_kv_blocks: 100,
        ..EngineOptions::default()
    };
    let mut engine = engine(fake, options);
    let mut long = submit(&mut engine, &request("abcdefghijkl"));
    let mut growing = submit(&mut engine, &request("ab"));
    let mut short = submit(
        &mut engine,
        &GenRequest {
            max_tokens: Some(3),
            ..request("ab")
        },
    );
    finish_all(&mut engine);
    assert!(
        Output::read(&mut long)
            .error
            .unwrap()
            .contains("not enough memory")
    );
    let growing = Output::read(&mut growing);
    assert!(growing.error.unwrap().contains("not enough memory"));
    assert!(!growing.text.is_empty());
    assert_eq!(Output::read(&mut short).text.len(), 3);
    assert!(engine.blocks.bound() <= 2);
}

#[test]
fn a_cancelled_request_frees_its_blocks_before_the_next_step() {
    let mut engine = engine(
        FakeOptions {
            answer: Answer::Endless,
            ..FakeOptions::default()
        },
        EngineOptions::default(),
    );
    let events = submit(&mut engine, &request("abc"));
    engine.step();
    assert!(engine.blocks.used() > 0);
    let n_steps = engine.stats.steps;
    drop(events);
    engine.step();
    assert_eq!(
        (
            engine.blocks.used(),
            engine.requests.len(),
            engine.stats.steps
        ),
        (0, 0, n_steps)
    );
}

#[test]
fn formats_are_enforced() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 10, "maximum": 99}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"], "additionalProperties": false,
    });
    for seed in 0..5 {
        let constrained = |grammar| {
            let params = SamplingParams {
                seed: Some(seed),
                temperature: 5.0,
                top_k: 0,
                top_p: 1.0,
                ..SamplingParams::default()
            };
            let request = GenRequest {
                grammar: Some(grammar),
                params,
                max_tokens: Some(400),
                ..request("go")
            };
            alone(&Answer::Random, &request)
        };
        let output = constrained(GrammarSpec::JsonSchema(schema.clone()));
        let value: serde_json::Value = serde_json::from_str(&output.text)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert!((10..100).contains(&value["a"].as_i64().unwrap()), "{value}");
        assert!(
            ["x", "y"].contains(&value["b"].as_str().unwrap()),
            "{value}"
        );
        assert_eq!(
            output.reason(),
            FinishReason::Stop,
            "the schema can only end"
        );
        assert_eq!(
            constrained(GrammarSpec::Regex("[0-9]{3}-x".into()))
                .text
                .len(),
            5
        );
        let lark = constrained(GrammarSpec::Lark("start: \"yes\" | \"no\"".into())).text;
        assert!(["yes", "no"].contains(&lark.as_str()), "{lark}");
    }
}

/// A model that does not come to an end is brought to one while there is room for it; the reason is
/// still the length.
#[test]
fn an_answer_in_json_is_closed_before_it_is_cut() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 10}},
        "required": ["a", "b"],
    });
    let least = "{\"a\":\"\",\"b\":10}".len();
    for (max_tokens, num_ctx) in [(least, 1000), (least + 1, 1000), (40, 1000), (1000, 60)] {
        let request = GenRequest {
            grammar: Some(GrammarSpec::JsonSchema(schema.clone())),
            max_tokens: Some(max_tokens),
            num_ctx,
            shift: false,
            ..request("go")
        };
        let output = alone(&Answer::Endless, &request);
        let value: serde_json::Value = serde_json::from_str(&output.text)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert!(value["a"].is_string() && value["b"].is_i64(), "{value}");
        assert_eq!(output.reason(), FinishReason::Length, "{value}");
    }
    let request = GenRequest {
        grammar: Some(GrammarSpec::JsonSchema(schema)),
        max_tokens: Some(least + 1),
        ..request("go")
    };
    let output = alone(&answering("{\"a\":\"x\",\"b\":10}"), &request);
    assert_eq!(output.text, "{\"a\":\"x\",\"b\":10}");
    assert_eq!(output.reason(), FinishReason::Stop);
}

#[test]
fn a_format_may_begin_after_a_text() {
    let said = |text: &str| {
        let request = GenRequest {
            grammar: Some(GrammarSpec::Json),
            grammar_after: Some("</think>".into()),
            max_tokens: Some(100),
            ..request("go")
        };
        alone(&answering(text), &request)
    };
    let output = said("let me see</think>{\"a\": [1]}");
    assert_eq!(
        (output.text.as_str(), output.reason()),
        ("let me see</think>{\"a\": [1]}", FinishReason::Stop)
    );
    assert_eq!(said("nothing to say").text, "nothing to say");
}

#[test]
fn tokens_that_are_never_output_have_names_in_reports() {
    let request = GenRequest {
        logprobs: Some(1000),
        max_tokens: Some(1),
        ..request("x")
    };
    let output = alone(&Answer::Random, &request);
    let fake = fake::loaded(FakeOptions::default());
    let end = fake.tokenizer.eos().unwrap();
    let top = &output.tokens[0].top;
    let (_, _, bytes) = top.iter().find(|(token, ..)| *token == end).unwrap();
    assert_eq!(bytes, fake.tokenizer.token_text(end).unwrap().as_bytes());
    assert!(!bytes.is_empty());
}
