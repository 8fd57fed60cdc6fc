//! The same prefix gives bit-identical logits, however it was computed.

use std::sync::Once;

use crate::tiny::{
    CASES, Case, Random, all_logits, difference, plan, wide, wide_latent, with_state,
};
use llmsrv_engine::{
    BlockId, GpuArithmetic, GpuOptions, LoadOptions, Model, Span, SpanState, StateId, StepPlan,
};
use llmsrv_gguf::TensorType;
use proptest::prelude::*;

fn load(case: &Case, kv_cache_type: &str) -> Box<dyn Model> {
    load_on(case, kv_cache_type, "cpu")
}

pub(crate) fn load_on(case: &Case, kv_cache_type: &str, device: &str) -> Box<dyn Model> {
    if device == "vulkan" {
        keep_drivers();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = case.write(folder.path());
    let options = LoadOptions {
        kv_cache_type: kv_cache_type.into(),
        n_threads: 2,
        device: device.into(),
        gpu: SOFTWARE,
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options).unwrap().model
}

/// Opens a GPU for as long as the process lives: else each load would bring all drivers of the machine into memory again,
/// which takes longer than to load a model so small.
pub(crate) fn keep_drivers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let any = llmsrv_gpu::Choice {
            vendor: true,
            software: true,
            ..llmsrv_gpu::Choice::default()
        };
        // What is missing is said where a model is loaded.
        if let Ok(gpu) = llmsrv_gpu::Gpu::open(&any, 0) {
            std::mem::forget(gpu);
        }
    });
}

/// Tests compute on whatever there is.
pub(crate) const SOFTWARE: GpuOptions = GpuOptions {
    arithmetic: GpuArithmetic::Exact,
    vendor: true,
    software: true,
    leave_free_bytes: 0,
    limit_bytes: None,
    visible: None,
    nvidia: None,
    checked: None,
};

/// One sequence that is computed piece by piece.
struct Sequence {
    tokens: Vec<u32>,
    blocks: Vec<BlockId>,
    /// Where the end of what is done is to be copied from.
    tail: Option<BlockId>,
    /// Its recurrent state, for models that keep one, and that from which it is to be copied.
    state: StateId,
    from: Option<StateId>,
    /// A checkpoint: after which token, and where.
    save: Option<(usize, StateId)>,
    done: usize,
    logits: Vec<Vec<f32>>,
}

impl Sequence {
    /// A random prompt whose blocks are every `n_sequences`th, so that no two are neighbours.
    fn new(seed: usize, len: usize, n_sequences: usize, block_size: usize) -> Sequence {
        let mut random = Random::new(&format!("{len} {seed}"));
        Sequence {
            tokens: (0..len).map(|_| random.next() as u32 % 90).collect(),
            blocks: (0..len.div_ceil(block_size))
                .rev()
                .map(|idx| BlockId((idx * n_sequences + seed) as u32))
                .collect(),
            tail: None,
            state: StateId(seed as u32),
            from: None,
            save: None,
            done: 0,
            logits: Vec::new(),
        }
    }
}

/// Computes one step with the next tokens of several sequences.
fn step(model: &mut dyn Model, pieces: &mut [(&mut Sequence, usize)]) {
    let mut plan = StepPlan::default();
    for (sequence, n) in pieces.iter() {
        let range = sequence.done..sequence.done + n;
        let first_row = plan.tokens.len();
        plan.tokens.extend(&sequence.tokens[range.clone()]);
        plan.positions.extend(range.clone().map(|p| p as u32));
        plan.ends.extend(range.clone().map(|p| p as u32 + 1));
        plan.spans.push(Span {
            rows: first_row..plan.tokens.len(),
            start: range.start as u32,
            blocks: sequence.blocks.clone(),
            tail: sequence.tail,
            state: (model.spec().state_bytes > 0).then(|| SpanState {
                slot: sequence.state,
                from: sequence.from,
                saves: sequence
                    .save
                    .filter(|(at, _)| (range.start + 1..=range.end).contains(at))
                    .map(|(at, to)| (at - range.start, to))
                    .into_iter()
                    .collect(),
            }),
        });
    }
    plan.logit_rows = (0..plan.tokens.len() as u32).collect();
    let n_vocab = model.spec().vocab_size;
    let mut logits = vec![0.0; plan.logit_rows.len() * n_vocab];
    model.forward(&plan, &mut logits).unwrap();
    let mut rows = logits.chunks(n_vocab).map(<[f32]>::to_vec);
    for (sequence, n) in pieces.iter_mut() {
        sequence.logits.extend(rows.by_ref().take(*n));
        sequence.done += *n;
        sequence.tail = None;
        sequence.from = None;
    }
}

fn reserve_states(model: &mut dyn Model, n: usize) {
    if model.spec().state_bytes > 0 {
        model.reserve_states(n).unwrap();
    }
}

/// Computes every sequence alone, in one step.
fn alone(model: &mut dyn Model, sequences: &mut [Sequence]) -> Vec<Vec<Vec<f32>>> {
    for sequence in sequences.iter_mut() {
        let n = sequence.tokens.len();
        step(model, &mut [(sequence, n)]);
    }
    let logits = sequences.iter_mut().map(|sequence| {
        sequence.done = 0;
        std::mem::take(&mut sequence.logits)
    });
    logits.collect()
}

fn check(case: &Case, kv_cache_type: &str, lengths: &[usize], pieces: &[usize]) {
    check_model(case.name, &mut *load(case, kv_cache_type), lengths, pieces);
}

pub(crate) fn check_model(name: &str, model: &mut dyn Model, lengths: &[usize], pieces: &[usize]) {
    let block_size = model.spec().block_size;
    let n = lengths.len();
    let mut sequences: Vec<Sequence> = lengths
        .iter()
        .enumerate()
        .map(|(seed, len)| Sequence::new(seed, *len, n, block_size))
        .collect();
    let longest = lengths.iter().max().unwrap();
    model
        .reserve_blocks(longest.div_ceil(block_size) * n)
        .unwrap();
    reserve_states(model, n);
    let expected = alone(model, &mut sequences);
    let mut piece = pieces.iter().copied().cycle();
    while sequences.iter().any(|s| s.done < s.tokens.len()) {
        let mut parts: Vec<(&mut Sequence, usize)> = sequences
            .iter_mut()
            .filter(|sequence| sequence.done < sequence.tokens.len())
            .map(|sequence| {
                let left = sequence.tokens.len() - sequence.done;
                (sequence, piece.next().unwrap().min(left))
            })
            .collect();
        step(model, &mut parts);
    }
    for (sequence, expected) in sequences.iter().zip(&expected) {
        for (position, (found, expected)) in sequence.logits.iter().zip(expected).enumerate() {
            let same = found
                .iter()
                .zip(expected)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name}: position {position}");
        }
    }
}

#[test]
fn batches_and_pieces_change_no_bit() {
    for case in CASES {
        check(case, "f32", &[40, 33, 1], &[1]);
        check(case, "f16", &[40, 33, 1], &[7, 1, 16, 3]);
    }
}

/// Weights that are packed, in models with experts.
#[test]
fn batches_and_pieces_change_no_bit_of_packed_weights() {
    for dtype in [
        TensorType::Q4_0,
        TensorType::Q5_0,
        TensorType::Q8_0,
        TensorType::Q4_K,
        TensorType::Q6_K,
    ] {
        check(&wide(dtype), "f16", &[40, 33, 1], &[7, 1, 16, 3]);
    }
}

/// Keys of latent attention that are packed are unpacked to exchange rows and columns.
#[test]
fn packed_weights_of_latent_attention_stay_what_they_are() {
    for dtype in [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0] {
        let case = wide_latent(dtype);
        check(&case, "q8_0", &[40, 33, 1], &[7, 1, 16, 3]);
        let [prompt, _] = case.prompts();
        let cpu = all_logits(&mut *load(&case, "f32"), &prompt);
        let candle = all_logits(&mut *load_on(&case, "f32", "candle"), &prompt);
        for (cpu, candle) in cpu.iter().zip(&candle) {
            let difference = difference(cpu, candle);
            assert!(difference < 0.02, "{dtype}: {difference}");
        }
    }
}

/// Computes two sequences with `n_common` first tokens: the second one takes the blocks of the
/// first, and a copy of the one in which they part. `same` compares its logits with those it has
/// alone; both go on afterwards.
pub(crate) fn check_copy(
    model: &mut dyn Model,
    (n_common, n_first, n_second): (usize, usize, usize),
) {
    let block_size = model.spec().block_size;
    let lengths = [n_common + n_first, n_common + n_second];
    let n_blocks = lengths
        .map(|len| len.div_ceil(block_size))
        .into_iter()
        .max();
    model.reserve_blocks(2 * n_blocks.unwrap()).unwrap();
    let mut sequences = [0, 1].map(|seed| Sequence::new(seed, lengths[seed], 2, block_size));
    let common = sequences[0].tokens[..n_common].to_vec();
    sequences[1].tokens[..n_common].copy_from_slice(&common);
    reserve_states(model, 3);
    let expected = alone(model, &mut sequences);

    let [first, second] = &mut sequences;
    first.save = Some((n_common, StateId(2)));
    second.from = Some(StateId(2));
    let n_now = n_common + n_first / 2;
    step(model, &mut [(first, n_now)]);
    let n_full = n_common / block_size;
    second.blocks[..n_full].copy_from_slice(&first.blocks[..n_full]);
    second.tail = (n_common % block_size > 0).then(|| first.blocks[n_full]);
    second.done = n_common;
    let n_rest = first.tokens.len() - n_now;
    // The first sequence writes in the same step, but for what the second one reads.
    if n_now / block_size > n_full && n_rest > 0 {
        step(model, &mut [(second, 1), (first, n_rest)]);
    } else {
        step(model, &mut [(second, 1)]);
    }
    let n_rest = second.tokens.len() - second.done;
    if n_rest > 0 {
        step(model, &mut [(second, n_rest)]);
    }
    let expected = [&expected[0][..], &expected[1][n_common..]];
    for (sequence, expected) in sequences.iter().zip(expected) {
        for (position, (found, expected)) in sequence.logits.iter().zip(expected).enumerate() {
            let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(found), bits(expected), "row {position}");
        }
    }
}

/// Where cuts may change bits, a copy in the same cuts changes none.
#[test]
fn a_block_is_copied_on_candle_tensors() {
    for case in CASES {
        for kv_cache_type in ["f16", "bf16", "f32"] {
            let mut model = load_on(case, kv_cache_type, "candle");
            model.reserve_blocks(6).unwrap();
            reserve_states(&mut *model, 2);
            let mut own = Sequence::new(0, 70, 2, 32);
            let mut copied = Sequence::new(0, 70, 2, 32);
            copied.state = StateId(1);
            copied.from = Some(own.state);
            copied.blocks[1..].copy_from_slice(&[BlockId(1), BlockId(3)]);
            step(&mut *model, &mut [(&mut own, 45)]);
            (copied.tail, copied.done) = (Some(own.blocks[1]), 45);
            step(&mut *model, &mut [(&mut copied, 25)]);
            step(&mut *model, &mut [(&mut own, 25)]);
            assert_eq!(copied.logits, own.logits[45..], "{}", case.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_copy_changes_no_bit(
        case in 0..CASES.len(),
        kv_cache_type in prop::sample::select(vec!["f32", "f16", "bf16", "q8_0", "q4_0"]),
        n_common in 1usize..100,
        n_first in 1usize..80,
        n_second in 1usize..60,
    ) {
        let mut model = load(&CASES[case], kv_cache_type);
        check_copy(&mut *model, (n_common, n_first, n_second));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_changes_no_bit(
        case in 0..CASES.len(),
        kv_cache_type in prop::sample::select(vec!["f32", "f16", "bf16", "q8_0", "q4_0"]),
        lengths in prop::collection::vec(1usize..100, 1..5),
        pieces in prop::collection::vec(1usize..40, 1..6),
    ) {
        check(&CASES[case], kv_cache_type, &lengths, &pieces);
    }
}

/// Rows without logits are computed all the same.
#[test]
fn logits_of_the_last_row_alone_are_the_same() {
    for case in CASES {
        check_last(case, &mut *load(case, "f16"), 40);
    }
}

/// Computes the first `n_tokens` of a prompt: for all logits, for the last ones alone, and in two steps.
pub(crate) fn check_last(case: &Case, model: &mut dyn Model, n_tokens: usize) {
    model.reserve_blocks(2).unwrap();
    let [tokens, _] = case.prompts();
    let tokens = &tokens[..n_tokens];
    let blocks = [BlockId(0), BlockId(1)];
    let n_vocab = model.spec().vocab_size;
    let mut all = vec![0.0; tokens.len() * n_vocab];
    let whole = with_state(model, plan(tokens, 0, &blocks, true));
    model.forward(&whole, &mut all).unwrap();
    let mut last = vec![0.0; n_vocab];
    let whole = with_state(model, plan(tokens, 0, &blocks, false));
    model.forward(&whole, &mut last).unwrap();
    assert_eq!(all[all.len() - n_vocab..], last, "{}", case.name);
    // A step that only fills the cache.
    let (first, rest) = tokens.split_at(n_tokens / 2);
    let mut silent = with_state(model, plan(first, 0, &blocks, true));
    silent.logit_rows.clear();
    model.forward(&silent, &mut []).unwrap();
    let rest = with_state(model, plan(rest, first.len(), &blocks, false));
    model.forward(&rest, &mut last).unwrap();
    assert_eq!(all[all.len() - n_vocab..], last, "{}", case.name);
}
