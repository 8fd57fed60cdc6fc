//! Guessing ahead changes how many steps an output takes, and nothing else.

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
            for guesses in 1..=7 {
                let (output, stats) = with(answer, Speculation::Always(guesses), request);
                output.assert_same(&plain);
                n_accepted += stats.accepted_tokens;
            }
            with(answer, Speculation::Auto, request)
                .0
                .assert_same(&plain);
        }
    }
    assert!(n_accepted > 1000, "{n_accepted}: the guesses were tried");
}

#[test]
fn what_repeats_itself_takes_fewer_steps() {
    let request = GenRequest {
        max_tokens: Some(400),
        ..request("x")
    };
    let (_, plain) = with(&Answer::Endless, Speculation::Off, &request);
    assert_eq!((plain.steps, plain.drafted_tokens), (400, 0));
    let (_, guessed) = with(&Answer::Endless, Speculation::Always(3), &request);
    assert_eq!(guessed.generated_tokens, 400);
    assert!(guessed.steps < 200, "{guessed:?}");
    assert!(guessed.accepted_tokens <= guessed.drafted_tokens);
    assert_eq!(guessed.steps + guessed.accepted_tokens, 400);
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
