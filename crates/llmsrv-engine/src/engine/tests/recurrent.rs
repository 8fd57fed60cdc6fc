//! Models that keep a recurrent state: what is reused, where checkpoints are, and what they cost.

use super::*;

fn recurrent() -> FakeOptions {
    FakeOptions {
        answer: Answer::Random,
        block_size: 4,
        recurrent: true,
        ..FakeOptions::default()
    }
}

fn expected(request: &GenRequest) -> Output {
    alone_with(recurrent(), &Answer::Random, request)
}

fn hits(engine: &mut Engine, request: &GenRequest) -> u64 {
    let before = engine.stats.prefix_hit_tokens;
    run(engine, request).assert_same(&expected(request));
    engine.stats.prefix_hit_tokens - before
}

fn short(prompt: &str) -> GenRequest {
    GenRequest {
        max_tokens: Some(3),
        ..request(prompt)
    }
}

#[test]
fn a_prefix_is_reused_up_to_a_checkpoint() {
    let mut engine = engine(recurrent(), EngineOptions::default());
    let first = short("aabbabababbbabaabbab");
    assert_eq!(hits(&mut engine, &first), 0);
    assert!(engine.blocks.checkpoints() > 0);
    // 20 tokens: a block before the end of the prompt.
    assert_eq!(hits(&mut engine, &first), 16);
    // The second time as many keys and values were known as may be.
    assert_eq!(hits(&mut engine, &first), 16);
    // Another ending: what is stored reaches to the 12th token, and no state is known there yet.
    let branch = short("aabbabababbbbbbbbbbb");
    assert_eq!(hits(&mut engine, &branch), 0);
    let third = short("aabbabababbbaaaaaaaa");
    assert_eq!(hits(&mut engine, &third), 12, "a proven branch");
}

#[test]
fn answers_leave_checkpoints_for_the_next_turn() {
    let mut engine = engine(recurrent(), EngineOptions::default());
    let prompt = "abababab";
    let ask = GenRequest {
        max_tokens: Some(200),
        ..request(prompt)
    };
    let answer = expected(&ask).text;
    assert!(
        hits(&mut engine, &ask) == 0 && answer.len() > 40,
        "{answer}"
    );
    let n_kept = engine.blocks.checkpoints();
    assert!(
        n_kept <= 3,
        "each takes the place of the one before: {n_kept}"
    );
    let next = short(&format!("{prompt}{answer}ab"));
    let n_known = hits(&mut engine, &next) as usize;
    assert!(
        n_known + 8 * 4 + 4 >= prompt.len() + answer.len(),
        "{n_known}"
    );
}

#[test]
fn several_answers_to_one_question_read_it_once() {
    let mut engine = engine(recurrent(), EngineOptions::default());
    let prompt = "abbabaabbaababba".repeat(4);
    let requests = [1, 2, 3].map(|seed| GenRequest {
        params: SamplingParams {
            seed: Some(seed),
            temperature: 2.0,
            ..SamplingParams::default()
        },
        ..short(&prompt)
    });
    let mut events = requests
        .each_ref()
        .map(|request| submit(&mut engine, request));
    finish_all(&mut engine);
    for (events, request) in events.iter_mut().zip(&requests) {
        Output::read(events).assert_same(&expected(request));
    }
    assert_eq!(engine.stats.prefix_hit_tokens, 2 * 60);
}

#[test]
fn sequences_share_few_states() {
    for max_states in [1, 2, 3] {
        let options = EngineOptions {
            max_states,
            ..EngineOptions::default()
        };
        let mut engine = engine(recurrent(), options);
        let requests = ["aaaa", "abab", "bbbbbbbb", "ba"].map(short);
        let mut events = requests
            .each_ref()
            .map(|request| submit(&mut engine, request));
        finish_all(&mut engine);
        for (events, request) in events.iter_mut().zip(&requests) {
            Output::read(events).assert_same(&expected(request));
        }
        assert!(engine.blocks.total_states() <= max_states);
    }
}

#[test]
fn a_cancelled_request_frees_its_state() {
    let mut engine = engine(recurrent(), EngineOptions::default());
    let events = submit(&mut engine, &request("abc"));
    engine.step();
    assert_eq!(engine.stats.states_total, 1);
    drop(events);
    engine.step();
    assert_eq!(engine.blocks.checkpoints(), 0, "it ended within a block");
    engine
        .blocks
        .assert_states_consistent(std::iter::empty(), std::iter::empty());
    assert_eq!(hits(&mut engine, &short("abc")), 0);
    assert_eq!(engine.stats.states_total, 1);
}

#[test]
fn states_are_accounted_and_may_be_too_many() {
    let bytes = fake::loaded(recurrent()).model.spec().state_bytes as u64;
    let block = fake::loaded(recurrent()).model.spec().kv_block_bytes as u64;
    // Room for two states and some blocks.
    let options = EngineOptions {
        kv_blocks: 1,
        max_kv_blocks: 20,
        ..EngineOptions::default()
    };
    for memory_states in [2, usize::MAX] {
        let fake = FakeOptions {
            memory_states,
            ..recurrent()
        };
        let before = 20 * block + 2 * bytes;
        let purse = Arc::new(AtomicU64::new(before));
        let mut engine = engine_within(fake, options.clone(), Box::new(Purse(purse.clone())));
        let requests = ["aaaa", "abab", "bbbb"].map(short);
        let mut events = requests
            .each_ref()
            .map(|request| submit(&mut engine, request));
        finish_all(&mut engine);
        for (events, request) in events.iter_mut().zip(&requests) {
            Output::read(events).assert_same(&expected(request));
        }
        let held = engine.blocks.total() as u64 * block + engine.stats.states_total as u64 * bytes;
        assert_eq!(purse.load(Relaxed), before - held);
    }
    let none = FakeOptions {
        memory_states: 0,
        ..recurrent()
    };
    let mut engine = engine(none, options);
    let error = run(&mut engine, &request("abc")).error.unwrap();
    assert!(error.contains("not enough memory"), "{error}");
}

/// A step that fails leaves a state of which nobody knows what it is.
#[test]
fn a_state_of_a_failed_step_is_not_kept() {
    let fake = FakeOptions {
        fail_on: Some("abababab".into()),
        ..recurrent()
    };
    let options = EngineOptions {
        step_tokens: 4,
        ..EngineOptions::default()
    };
    let mut engine = engine(fake, options);
    assert!(run(&mut engine, &request("aaaaababababab")).error.is_some());
    engine
        .blocks
        .assert_states_consistent(std::iter::empty(), std::iter::empty());
    for prompt in ["aaaabb", "aaaaabbbbb"] {
        run(&mut engine, &short(prompt)).assert_same(&expected(&short(prompt)));
    }
}

/// What a wrong draft token did to a state cannot be taken back.
#[test]
fn no_draft_tokens_are_made() {
    let options = EngineOptions {
        speculation: Speculation::Always(4),
        ..EngineOptions::default()
    };
    let mut loaded = fake::loaded(recurrent());
    loaded.draft = Some(fake::loaded(FakeOptions::default()).model);
    let mut engine = Engine::new(loaded, options.clone(), Box::new(Unlimited), Arc::default());
    let ask = short("abababababab");
    run(&mut engine, &ask).assert_same(&expected(&ask));
    assert_eq!(engine.stats.drafted_tokens, 0);
    // Nor does such a model make them for others.
    let mut loaded = fake::loaded(FakeOptions::default());
    loaded.draft = Some(fake::loaded(recurrent()).model);
    let mut engine = Engine::new(loaded, options, Box::new(Unlimited), Arc::default());
    assert_eq!(
        run(&mut engine, &request("hello")).text,
        "Hello! How can I help you?"
    );
}

#[test]
fn a_long_prompt_has_few_checkpoints() {
    let mut engine = engine(recurrent(), EngineOptions::default());
    let prompt = "ab".repeat(1000);
    let ask = GenRequest {
        num_ctx: 3000,
        ..short(&prompt)
    };
    assert_eq!(hits(&mut engine, &ask), 0);
    // 500 blocks: at 128, 256, 384 blocks and near the end.
    assert_eq!(engine.blocks.checkpoints(), 4);
    let other = GenRequest {
        num_ctx: 3000,
        ..short(&format!("{}bb", &prompt[..1100]))
    };
    assert_eq!(hits(&mut engine, &other), 1024);
}
