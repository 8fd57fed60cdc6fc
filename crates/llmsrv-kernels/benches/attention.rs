//! Attention of one layer in the shapes of small models:
//! `cargo bench -p llmsrv-kernels --bench attention [-- NAME...]`.
//!
//! `prefill/*`: the last 512 rows of a prompt, as they come in one step.
//! `decode/*`: one row of each sequence, at a depth.
//! `n_threads=1` sets the threads. Figures are multiplications with keys and with values a second and
//! thread: the median of several runs and, in brackets, the best. Beside them stands what the float
//! units can do at most: half of it where numbers are f32.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench reports and fails so"
)]

use std::time::Instant;

use llmsrv_gguf::TensorType;
use llmsrv_kernels::{Attention, KV_BLOCK, PagedKv, Pool, Queries, Query, Slot, attend, probe};

/// Query heads, key heads, elements of a head.
const SHAPES: [(&str, usize, usize, usize); 3] =
    [("0.5B", 14, 2, 64), ("1B", 32, 8, 64), ("8B", 32, 8, 128)];

const TYPES: [TensorType; 4] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q8_0,
];

/// Several layers, so that one is not served from the cache of the run before.
const LAYERS: usize = 4;

fn main() {
    let arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let arguments: Vec<String> = arguments.collect();
    let n_threads = arguments
        .iter()
        .find_map(|a| a.strip_prefix("n_threads=")?.parse().ok());
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let pool = Pool::new(n_threads.unwrap_or(0));
    let n_threads = pool.n_threads();
    let peak = probe::float_peak(1);
    let limit = peak.ops_per_second / 2e9;
    println!(
        "{n_threads} threads; limit: {limit:.0} Gmac/s a thread, {}",
        peak.instruction
    );
    for (what, depth, n_rows, n_sequences) in [
        ("prefill", 512, 512, 1),
        ("prefill", 2048, 512, 1),
        ("decode", 128, 1, 1),
        ("decode", 2048, 1, 1),
        ("decode", 8192, 1, 1),
        ("decode", 512, 1, 8),
    ] {
        for (shape, n_heads, n_kv_heads, head_dim) in SHAPES {
            for ty in TYPES {
                let name = format!("{what}/{n_sequences}x{depth}/{shape}/{ty}");
                if !wanted(&name) {
                    continue;
                }
                let a = Attention {
                    n_heads,
                    n_kv_heads,
                    head_dim,
                    scale: 0.125,
                    softcap: None,
                    window: None,
                    sinks: None,
                };
                let case = Case::new(a, ty, depth, n_rows, n_sequences);
                let times = case.times(&pool, if n_rows > 1 { 25 } else { 99 });
                let rate = |seconds: f64| case.products() / seconds / 1e9 / n_threads as f64;
                let (median, best) = (rate(times[times.len() / 2]), rate(times[0]));
                println!("{name:28} {median:7.1} Gmac/s ({best:.1})");
            }
        }
    }
}

struct Case {
    attention: Attention<'static>,
    kv: PagedKv,
    blocks: Vec<u32>,
    /// Of each sequence.
    n_blocks: usize,
    depth: usize,
    n_rows: usize,
}

impl Case {
    /// Sequences of `depth` positions, the last `n_rows` of which are computed.
    fn new(
        attention: Attention<'static>,
        ty: TensorType,
        depth: usize,
        n_rows: usize,
        n_sequences: usize,
    ) -> Case {
        let (n_heads, head_dim) = (attention.n_kv_heads, attention.head_dim);
        let n_blocks = depth / KV_BLOCK;
        let mut kv = PagedKv::new(&[(n_heads, head_dim); LAYERS], ty).unwrap();
        kv.reserve(n_blocks * n_sequences).unwrap();
        let row = values(n_heads * head_dim);
        for layer in 0..LAYERS {
            for position in 0..depth * n_sequences {
                let place = Slot {
                    block: (position / KV_BLOCK) as u32,
                    slot: position % KV_BLOCK,
                };
                kv.append(layer, &[place], &row, &row, None, &Pool::new(1))
                    .unwrap();
            }
        }
        Case {
            attention,
            kv,
            blocks: (0..(n_sequences * n_blocks) as u32).collect(),
            n_blocks,
            depth,
            n_rows,
        }
    }

    fn rows(&self) -> Vec<Query> {
        let (n_blocks, positions) = (self.n_blocks, self.depth - self.n_rows..self.depth);
        let of_sequence = |first_block| {
            positions.clone().map(move |position| Query {
                position,
                end: position + 1,
                first_block,
                n_blocks,
            })
        };
        let sequences = (0..self.blocks.len()).step_by(n_blocks);
        sequences.flat_map(of_sequence).collect()
    }

    /// Multiplications with keys and with values.
    fn products(&self) -> f64 {
        let seen: usize = self.rows().iter().map(|row| row.end).sum();
        (2 * seen * self.attention.n_heads * self.attention.head_dim) as f64
    }

    /// Seconds of each run, the shortest first.
    fn times(&self, pool: &Pool, n: usize) -> Vec<f64> {
        let rows = self.rows();
        let queries = Queries {
            rows: &rows,
            blocks: &self.blocks,
        };
        let query = values(rows.len() * self.attention.n_heads * self.attention.head_dim);
        let mut out = vec![0.0; query.len()];
        let mut times: Vec<f64> = (0..n)
            .map(|run| {
                let start = Instant::now();
                let layer = run % LAYERS;
                attend(
                    &self.kv,
                    layer,
                    &query,
                    queries,
                    &self.attention,
                    &mut out,
                    pool,
                )
                .unwrap();
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

fn values(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| (i * 7919 % 2003) as f32 / 1000.0 - 1.0)
        .collect()
}
