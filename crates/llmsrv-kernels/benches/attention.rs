//! Attention of one layer in the shapes of small models: one token at a depth, several sequences at
//! once, and a prompt. The throughput counts multiplications with keys and with values.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops when it cannot measure"
)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use llmsrv_gguf::TensorType;
use llmsrv_kernels::{Attention, KV_BLOCK, PagedKv, Pool, Query, attend};

/// Query heads, key heads, elements of a head.
const SHAPES: [(&str, usize, usize, usize); 3] =
    [("0.5B", 14, 2, 64), ("1B", 32, 8, 64), ("8B", 32, 8, 128)];

fn values(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| (i * 7919 % 2003) as f32 / 1000.0 - 1.0)
        .collect()
}

/// Several layers, so that one is not served from the cache of the run before.
const LAYERS: usize = 8;

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (name, n_heads, n_kv_heads, head_dim) in SHAPES {
        for (depth, n_sequences) in [(128, 1), (2048, 1), (512, 8)] {
            for ty in [TensorType::F16, TensorType::Q8_0] {
                let a = Attention {
                    n_heads,
                    n_kv_heads,
                    head_dim,
                    scale: 0.125,
                    softcap: None,
                    window: None,
                };
                let n_blocks = (depth / KV_BLOCK) as u32;
                let mut kv = PagedKv::new(LAYERS, n_kv_heads, head_dim, ty).unwrap();
                kv.reserve(n_blocks as usize * n_sequences).unwrap();
                let row = values(n_kv_heads * head_dim);
                for layer in 0..LAYERS {
                    for block in 0..n_blocks * n_sequences as u32 {
                        for slot in 0..KV_BLOCK {
                            kv.write(layer, block, slot, &row, &row).unwrap();
                        }
                    }
                }
                let blocks: Vec<Vec<u32>> = (0..n_sequences as u32)
                    .map(|s| (s * n_blocks..(s + 1) * n_blocks).collect())
                    .collect();
                let rows: Vec<Query<'_>> = blocks
                    .iter()
                    .map(|blocks| Query {
                        position: depth - 1,
                        end: depth,
                        blocks,
                    })
                    .collect();
                let query = values(n_sequences * n_heads * head_dim);
                let mut out = vec![0.0; query.len()];
                for n_threads in [1, 2] {
                    let pool = Pool::new(n_threads);
                    let id = BenchmarkId::new(
                        format!("{name} {ty} {n_threads} threads"),
                        format!("{n_sequences} at {depth}"),
                    );
                    group.throughput(Throughput::Elements(
                        (2 * n_sequences * depth * n_heads * head_dim) as u64,
                    ));
                    let mut layer = 0;
                    group.bench_function(id, |bencher| {
                        bencher.iter(|| {
                            layer = (layer + 1) % LAYERS;
                            attend(&kv, layer, &query, &rows, &a, &mut out, &pool).unwrap();
                        });
                    });
                }
            }
        }
    }
}

fn prefill(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prefill");
    group.sample_size(10);
    for (name, n_heads, n_kv_heads, head_dim) in SHAPES {
        for n in [512, 2048] {
            let a = Attention {
                n_heads,
                n_kv_heads,
                head_dim,
                scale: 0.125,
                softcap: None,
                window: None,
            };
            let mut kv = PagedKv::new(1, n_kv_heads, head_dim, TensorType::F16).unwrap();
            kv.reserve(n / KV_BLOCK).unwrap();
            let row = values(n_kv_heads * head_dim);
            for position in 0..n {
                kv.write(
                    0,
                    (position / KV_BLOCK) as u32,
                    position % KV_BLOCK,
                    &row,
                    &row,
                )
                .unwrap();
            }
            let blocks: Vec<u32> = (0..(n / KV_BLOCK) as u32).collect();
            // The last 512 rows of the prompt, as they come in one step.
            let rows: Vec<Query<'_>> = (n - 512..n)
                .map(|position| Query {
                    position,
                    end: position + 1,
                    blocks: &blocks,
                })
                .collect();
            let query = values(512 * n_heads * head_dim);
            let mut out = vec![0.0; query.len()];
            let seen: usize = rows.iter().map(|row| row.end).sum();
            group.throughput(Throughput::Elements((2 * seen * n_heads * head_dim) as u64));
            for n_threads in [1, 2] {
                let pool = Pool::new(n_threads);
                let id =
                    BenchmarkId::new(format!("{name} {n_threads} threads"), format!("512 of {n}"));
                group.bench_function(id, |bencher| {
                    bencher.iter(|| attend(&kv, 0, &query, &rows, &a, &mut out, &pool).unwrap());
                });
            }
        }
    }
}

criterion_group!(benches, decode, prefill);
criterion_main!(benches);
