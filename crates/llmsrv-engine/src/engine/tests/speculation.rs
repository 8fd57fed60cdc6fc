//! Speculative decoding changes how many steps an output takes, and nothing else.

use super::*;

fn with(answer: &Answer, speculation: Speculation, request: &GenRequest) -> (Output, Stats) {
    let fake = FakeOptions {
        answer: answer.clone(),
        ..FakeOptions::default()
    };
    let options = EngineOptions {
        speculation,
        ..EngineOptions::default()
    };
    let mut engine = engine(fake, options);
    let output = run(&mut engine, request);
    assert_eq!(engine.blocks.used(), 0);
    (output, engine.stats)
}

#[test]
fn every_feature_gives_the_same_with_guesses() {
    let greedy = SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let penalties = SamplingParams {
        repeat_penalty: 1.3,
        seed: Some(9),
        ..SamplingParams::default()
    };
    let hot = SamplingParams {
        temperature: 5.0,
        top_n_sigma: 0.3,
        top_k: 0,
        top_p: 1.0,
        seed: Some(9),
        ..SamplingParams::default()
    };
    let base = request("abababab");
    let requests = [
        base.clone(),
        GenRequest {
            params: greedy,
            logprobs: Some(3),
            ..base.clone()
        },
        GenRequest {
            params: penalties,
            max_tokens: Some(33),
            ..base.clone()
        },
        GenRequest {
            params: hot.clone(),
            ..base.clone()
        },
        GenRequest {
            params: hot,
            grammar: Some(GrammarSpec::Regex("(ab|ba|aab){3,20}".into())),
            max_tokens: Some(50),
            ..base.clone()
        },
        GenRequest {
            stop: vec!["babb".into(), "words w".into()],
            ..base.clone()
        },
        GenRequest {
            num_ctx: 24,
            max_tokens: Some(100),
            ..base.clone()
        },
        GenRequest {
            num_ctx: 24,
            shift: false,
            ..base.clone()
        },
        GenRequest {
            grammar: Some(GrammarSpec::Regex("(ab|ba|aab){3,20}".into())),
            max_tokens: Some(50),
            ..base.clone()
        },
        GenRequest {
            grammar: Some(readings()),
            max_tokens: Some(90),
            ..base.clone()
        },
    ];
    let answers = [
        Answer::Random,
        Answer::Endless,
        answering("one two three one two three one two four one two three"),
    ];
    let mut n_accepted = 0;
    for answer in &answers {
        for request in &requests {
            let plain = with(answer, Speculation::Off, request).0;
            for draft_tokens in 1..=7 {
                let (output, stats) = with(answer, Speculation::Always(draft_tokens), request);
                output.assert_same(&plain);
                n_accepted += stats.accepted_tokens;
            }
            with(answer, Speculation::Auto, request)
                .0
                .assert_same(&plain);
        }
    }
    assert!(
        n_accepted > 1000,
        "{n_accepted}: the draft_tokens were tried"
    );
}

/// A schema that wants two names.
fn readings() -> GrammarSpec {
    GrammarSpec::JsonSchema(serde_json::json!({
        "type": "object",
        "properties": {"temperature_in_celsius": {"type": "boolean"}, "measured_by": {"enum": ["satellite", "buoy"]}},
        "required": ["temperature_in_celsius", "measured_by"],
        "additionalProperties": false,
    }))
}

/// Nothing of it was said before: the draft tokens are those of the grammar.
#[test]
fn names_of_a_schema_are_drafted() {
    let request = GenRequest {
        grammar: Some(readings()),
        max_tokens: Some(90),
        ..request("abc")
    };
    let plain = with(&Answer::Random, Speculation::Off, &request).0;
    let (output, stats) = with(&Answer::Random, Speculation::Always(7), &request);
    output.assert_same(&plain);
    // Behind the first letters of both names.
    let n_forced = "emperature_in_celsius".len() + "easured_by".len();
    assert!(
        stats.accepted_tokens as usize >= n_forced * 3 / 4,
        "{} of {n_forced}",
        stats.accepted_tokens
    );
}

/// A small model beside the one that answers.
fn with_draft(
    answer: &Answer,
    draft: FakeOptions,
    speculation: Speculation,
    request: &GenRequest,
) -> (Output, Stats) {
    let fake = FakeOptions {
        answer: answer.clone(),
        ..FakeOptions::default()
    };
    let mut loaded = fake::loaded(fake);
    loaded.draft = Some(fake::loaded(draft).model);
    let options = EngineOptions {
        speculation,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(loaded, options, Box::new(Unlimited), Arc::default());
    let output = run(&mut engine, request);
    (output, engine.stats)
}

#[test]
fn a_small_model_that_knows_the_answer_saves_steps() {
    let answer = answering("It was a bright cold day in April, and the clocks were striking 13.");
    let draft = FakeOptions {
        answer: answer.clone(),
        ..FakeOptions::default()
    };
    let request = request("How does it begin?");
    let plain = with(&answer, Speculation::Off, &request);
    for n in 1..=7 {
        let drafted = with_draft(&answer, draft.clone(), Speculation::Always(n), &request);
        drafted.0.assert_same(&plain.0);
        let (stats, before) = (drafted.1, plain.1);
        assert!(
            stats.accepted_tokens >= stats.drafted_tokens - n as u64,
            "all come true but those after the end: {stats:?}"
        );
        let fewer = before.steps as f32 / (n + 1) as f32;
        assert!((stats.steps as f32) < 1.5 * fewer + 6.0, "{n}: {stats:?}");
    }
}

#[test]
fn a_small_model_that_is_wrong_changes_nothing() {
    let answers = [Answer::Random, answering("one two three one two four")];
    let right = |answer: &Answer| FakeOptions {
        answer: answer.clone(),
        ..FakeOptions::default()
    };
    for answer in &answers {
        let drafts = [
            right(&answering("zzzzzzzzzzzzzzzzzzzzzzzzzzz")),
            right(&Answer::Endless),
            FakeOptions {
                context_length: 40,
                block_size: 7,
                ..right(answer)
            },
            FakeOptions {
                memory_blocks: 0,
                ..right(answer)
            },
            FakeOptions {
                fail_on: Some("ab".into()),
                ..right(answer)
            },
        ];
        for (temperature, num_ctx) in [(0.0, 1000), (0.8, 1000), (0.8, 30)] {
            let request = GenRequest {
                params: SamplingParams {
                    temperature,
                    seed: Some(3),
                    ..SamplingParams::default()
                },
                num_ctx,
                max_tokens: Some(80),
                ..request("say one thing")
            };
            let plain = with(answer, Speculation::Off, &request).0;
            for draft in &drafts {
                for speculation in [Speculation::Always(4), Speculation::Auto] {
                    with_draft(answer, draft.clone(), speculation, &request)
                        .0
                        .assert_same(&plain);
                }
            }
        }
    }
}

#[test]
fn a_small_model_is_asked_as_long_as_it_pays() {
    let request = GenRequest {
        params: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        ..request("x")
    };
    // Each letter once, so that nothing can be looked up.
    let text: String = (b'!'..b'~').map(char::from).collect();
    let timed = |big: u64, small: u64| {
        let fake = |delay: u64| FakeOptions {
            answer: answering(&text),
            step_delay: Duration::from_millis(delay),
            ..FakeOptions::default()
        };
        let mut loaded = fake::loaded(fake(big));
        loaded.draft = Some(fake::loaded(fake(small)).model);
        let options = EngineOptions::default();
        let mut engine = Engine::new(loaded, options, Box::new(Unlimited), Arc::default());
        assert_eq!(run(&mut engine, &request).text, text);
        engine.stats
    };
    let cheap = timed(10, 0);
    assert!(cheap.steps < 50, "{cheap:?}");
    let dear = timed(1, 20);
    assert!(dear.drafted_tokens < 30, "{dear:?}");
}

#[test]
fn what_repeats_itself_takes_fewer_steps() {
    let request = GenRequest {
        max_tokens: Some(400),
        ..request("x")
    };
    let (_, plain) = with(&Answer::Endless, Speculation::Off, &request);
    assert_eq!((plain.steps, plain.drafted_tokens), (400, 0));
    let (output, drafted) = with(&Answer::Endless, Speculation::Always(3), &request);
    assert_eq!(drafted.generated_tokens, 400);
    assert_eq!(
        output.n_texts as u64, drafted.steps,
        "one event for each step"
    );
    assert!(drafted.steps < 200, "{drafted:?}");
    assert!(drafted.accepted_tokens <= drafted.drafted_tokens);
    assert_eq!(drafted.steps + drafted.accepted_tokens, 400);
}

#[test]
fn the_last_token_is_not_guessed_beyond() {
    for max_tokens in 1..12 {
        let request = GenRequest {
            max_tokens: Some(max_tokens),
            ..request(&"abcd ".repeat(8))
        };
        let (output, stats) = with(&Answer::Endless, Speculation::Always(7), &request);
        assert_eq!(output.finish().eval_tokens, max_tokens);
        assert!(stats.drafted_tokens < max_tokens as u64 * 8);
    }
}
