//! Who waits how long beside a long prompt.

use std::time::Duration;

use super::*;

/// A model of which a row takes a tenth of a millisecond: the time is slept, so it is never less.
fn slow(step_target: Duration) -> Engine {
    let fake = FakeOptions {
        answer: Answer::Endless,
        row_delay: ROW,
        ..FakeOptions::default()
    };
    let options = EngineOptions {
        step_target,
        ..EngineOptions::default()
    };
    engine(fake, options)
}

fn long(n_tokens: usize) -> GenRequest {
    GenRequest {
        tokens: (0..n_tokens).map(|idx| idx as TokenId % 200).collect(),
        num_ctx: 4096,
        max_tokens: Some(1),
        ..request("a")
    }
}

#[test]
fn an_answer_goes_on_while_a_long_prompt_is_read() {
    let target = Duration::from_millis(5);
    let mut engine = slow(target);
    // Alone, a prompt is read in steps as large as may be.
    let mut before = submit(&mut engine, &long(600));
    engine.step();
    assert_eq!(engine.step.plan.tokens.len(), 512);
    finish_all(&mut engine);
    assert_eq!(Output::read(&mut before).text.len(), 1);

    let mut answer = submit(&mut engine, &request("once upon a time"));
    engine.step();
    let mut book = submit(
        &mut engine,
        &GenRequest {
            tokens: long(3001).tokens[1..].to_vec(),
            ..long(1)
        },
    );
    let mut n_steps = 0;
    loop {
        let n_before = engine.requests[0].sequence.tokens().len();
        engine.step();
        if engine.requests.len() == 1 {
            break;
        }
        n_steps += 1;
        let n_rows = engine.step.plan.tokens.len();
        assert!(n_rows <= 50, "{n_rows} rows take more than {target:?}");
        let n_after = engine.requests[0].sequence.tokens().len();
        assert!(n_after > n_before, "every step gives the answer a token");
    }
    assert!(n_steps <= 3000 / 31 + 1, "the prompt gets on: {n_steps}");
    assert_eq!(Output::read(&mut book).text.len(), 1);
    assert!(Output::read(&mut answer).text.len() >= n_steps);
}

#[test]
fn a_short_question_does_not_wait_for_a_long_prompt() {
    let mut engine = slow(Duration::from_secs(1));
    let mut book = submit(&mut engine, &long(4000));
    engine.step();
    let mut question = submit(
        &mut engine,
        &GenRequest {
            max_tokens: Some(1),
            ..request("where?")
        },
    );
    engine.step();
    assert_eq!(Output::read(&mut question).text.len(), 1);
    assert_eq!(Output::read(&mut book).text.len(), 0);
    finish_all(&mut engine);
    assert_eq!(Output::read(&mut book).text.len(), 1);
}

const ROW: Duration = Duration::from_micros(100);
