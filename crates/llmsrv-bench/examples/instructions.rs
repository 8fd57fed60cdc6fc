//! Runs one case so many times: `instructions CASE ROUNDS`. `benches/instructions` counts the
//! instructions of two runs of different length; what both have in common cancels out.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a tool of the developers: it stops when it cannot measure"
)]

use std::{hint::black_box, ops::ControlFlow};

use llmsrv_convert::{SHAPES, Shape, Target, synthesize};
use llmsrv_engine::{
    ActivationPrecision, BlockId, LoadOptions, Model, SamplingParams, Span, StepPlan, TokenId,
    blocks::Blocks,
    sample::{Candidates, Sampler},
    scheduler::{Scheduler, Step},
    sequence::Sequence,
};

/// The cases by name.
type Case = (&'static str, fn(usize));

const CASES: &[Case] = &[
    ("decode-q4_k_m", |n| steps(Target::Q4_K_M, n, &[1])),
    ("decode-q8_0", |n| steps(Target::Q8_0, n, &[1])),
    ("decode-bf16", |n| steps(Target::Bf16, n, &[1])),
    ("decode-4-sequences-q4_k_m", |n| {
        steps(Target::Q4_K_M, n, &[1, 1, 1, 1]);
    }),
    ("prefill-64-q4_k_m", |n| steps(Target::Q4_K_M, n, &[64])),
    ("prefill-64-q5_0", |n| steps(Target::Q5_0, n, &[64])),
    ("plan-and-commit-16-sequences", plan_and_commit),
    ("sample-default-150k", |n| {
        sample(SamplingParams::default(), n);
    }),
    ("sample-greedy-150k", |n| {
        let greedy = SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        };
        sample(greedy, n);
    }),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let case = CASES
        .iter()
        .find(|case| Some(case.0) == arguments.first().map(String::as_str));
    let rounds = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some((_, run)), Some(rounds)) = (case, rounds) else {
        let names: Vec<&str> = CASES.iter().map(|case| case.0).collect();
        eprintln!(
            "usage: instructions CASE ROUNDS; cases: {}",
            names.join(", ")
        );
        std::process::exit(2);
    };
    run(rounds);
}

/// Computes steps with so many rows of each sequence, after 128 positions.
fn steps(target: Target, rounds: usize, rows: &[usize]) {
    let mut model = model(target);
    model.reserve_blocks(rows.len() * BLOCKS).unwrap();
    let vocab_size = model.spec().vocab_size;
    let mut logits = vec![0.0; rows.len() * vocab_size];
    let prompt = plan(&vec![DEPTH; rows.len()], 0);
    model.forward(&prompt, &mut logits).unwrap();
    let step = plan(rows, DEPTH);
    for _ in 0..rounds {
        model.forward(black_box(&step), &mut logits).unwrap();
    }
    black_box(logits);
}

fn model(target: Target) -> Box<dyn Model> {
    let (_, _, shape) = SHAPES.iter().find(|row| row.0 == "tiny").unwrap();
    let shape = Shape {
        n_vocab: 1024,
        ..*shape
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut go_on = |_, _| ControlFlow::Continue(());
    synthesize(&path, "tiny", &shape, target, &mut go_on).unwrap();
    let options = LoadOptions {
        n_threads: 1,
        device: "cpu".into(),
        // As larger models do.
        activation_precision: ActivationPrecision::Int8,
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options).unwrap().model
}

/// A step with so many rows of each sequence from position `start` on.
fn plan(rows: &[usize], start: usize) -> StepPlan {
    let mut plan = StepPlan::default();
    for (sequence, &n_rows) in rows.iter().enumerate() {
        let first_row = plan.tokens.len();
        for position in start..start + n_rows {
            plan.tokens
                .push((position * 7 + sequence) as TokenId % 1024);
            plan.positions.push(position as u32);
            plan.ends.push(position as u32 + 1);
        }
        let blocks = sequence * BLOCKS..(sequence + 1) * BLOCKS;
        plan.spans.push(Span {
            rows: first_row..first_row + n_rows,
            start: start as u32,
            blocks: blocks.map(|id| BlockId(id as u32)).collect(),
            tail: None,
            state: None,
        });
        plan.logit_rows.push((plan.tokens.len() - 1) as u32);
    }
    plan
}

/// 16 sequences that decode, 500 tokens each.
fn plan_and_commit(rounds: usize) {
    let scheduler = Scheduler {
        max_sequences: 16,
        step_tokens: 8192,
    };
    let mut blocks = Blocks::new(32, 4096, 4096, true);
    let mut sequences: Vec<Sequence> = (0..16)
        .map(|idx| Sequence::new(vec![idx; 500], Vec::new()))
        .collect();
    let mut step = Step::default();
    // A round of the others is worth many of these.
    for _ in 0..rounds * 50 {
        scheduler.plan(&mut sequences, &mut blocks, &mut step);
        for (seq_idx, span) in step.sequences.iter().zip(&step.plan.spans) {
            sequences[*seq_idx].commit(span.rows.len(), &mut blocks);
            sequences[*seq_idx].push(1);
        }
        black_box(&step);
    }
}

fn sample(params: SamplingParams, rounds: usize) {
    let logits: Vec<f32> = (0..150_000_u32)
        .map(|token| {
            (token.wrapping_mul(2_654_435_761) >> 8) as f32 / f32::from(1_u16 << 15) / 26.0
        })
        .collect();
    let params = SamplingParams {
        seed: Some(1),
        ..params
    };
    let mut sampler = Sampler::new(params, &[1, 2, 3], 4096);
    let mut candidates = Candidates::default();
    let mut row = logits.clone();
    for _ in 0..rounds {
        row.copy_from_slice(&logits);
        black_box(sampler.pick(&mut row, None, &mut candidates).unwrap());
    }
}

/// Positions before a step.
const DEPTH: usize = 128;
/// KV blocks of a sequence; 32 positions each.
const BLOCKS: usize = 8;
