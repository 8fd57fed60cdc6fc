//! What the engine itself costs for a step: planning and committing 16 sequences, and choosing a
//! token from vocabularies of 150,000 and 262,144.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use llmsrv_engine::{
    SamplingParams, TokenId,
    blocks::Blocks,
    sample::{Candidates, Sampler},
    scheduler::{Scheduler, Step},
    sequence::Sequence,
};

fn schedule(criterion: &mut Criterion) {
    let scheduler = Scheduler {
        max_sequences: 16,
        step_tokens: 8192,
    };
    criterion.bench_function("plan and commit, 16 sequences of 500 tokens", |bencher| {
        let mut blocks = Blocks::new(32, 4096, 4096, true);
        let mut sequences = Vec::new();
        let mut step = Step::default();
        bencher.iter(|| {
            // Begin again before the sequences get long.
            if sequences
                .first()
                .is_none_or(|sequence: &Sequence| sequence.tokens().len() > 600)
            {
                for sequence in &mut sequences {
                    sequence.release(&mut blocks);
                }
                sequences = (0..16)
                    .map(|idx| Sequence::new(vec![idx; 500], Vec::new()))
                    .collect();
            }
            scheduler.plan(&mut sequences, &mut blocks, &mut step);
            for (seq_idx, span) in step.sequences.iter().zip(&step.plan.spans) {
                sequences[*seq_idx].commit(span.rows.len(), &mut blocks);
                sequences[*seq_idx].push(1);
            }
            black_box(&step);
        });
    });
}

fn sample(criterion: &mut Criterion) {
    let all = SamplingParams {
        min_p: 0.05,
        ..SamplingParams::default()
    };
    let options = [
        (150_000, "default options", SamplingParams::default()),
        (262_144, "top_k, top_p and min_p", all),
        (
            150_000,
            "top_n_sigma",
            SamplingParams {
                top_n_sigma: 1.0,
                ..SamplingParams::default()
            },
        ),
        (
            150_000,
            "greedy",
            SamplingParams {
                temperature: 0.0,
                ..SamplingParams::default()
            },
        ),
        (
            150_000,
            "without top_k",
            SamplingParams {
                top_k: 0,
                ..SamplingParams::default()
            },
        ),
        (
            150_000,
            "penalties",
            SamplingParams {
                repeat_penalty: 1.1,
                ..SamplingParams::default()
            },
        ),
    ];
    for (n_tokens, name, params) in options {
        let logits: Vec<f32> = (0..n_tokens).map(|token| noise(token) * 20.0).collect();
        let prompt: Vec<TokenId> = (0..64).collect();
        let mut sampler = Sampler::new(
            SamplingParams {
                seed: Some(1),
                ..params
            },
            &prompt,
            4096,
        );
        let mut candidates = Candidates::default();
        criterion.bench_function(&format!("sample of {n_tokens}, {name}"), |bencher| {
            bencher.iter_batched_ref(
                || logits.clone(),
                |logits| sampler.pick(logits, None, &mut candidates),
                BatchSize::LargeInput,
            );
        });
    }
}

/// Returns a number in 0..1 that looks random (a multiplicative hash).
fn noise(token: u32) -> f32 {
    (token.wrapping_mul(0x9e37_79b1) >> 8) as f32 / (1 << 24) as f32
}

criterion_group!(benches, schedule, sample);
criterion_main!(benches);
